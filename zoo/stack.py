"""Many models of one shape trained in one step: every weight has a leading axis of models, every product is batched.

One tiny model leaves a GPU idle; eighty of them side by side do not. Each model gets the step that it would get alone:
its own gradient norm is clipped, its own weights move, nothing is shared but the batch. Llama, Mixtral and GPT-2
shapes; every expert is computed for every token, which at this size is cheaper than sending tokens to experts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from zoo.checkpoints import Model, Weights
from zoo.optimisers import learning_rate

Report = Callable[[str], None]
Rotary = tuple[torch.Tensor, torch.Tensor]
ORDERS_FROM = 10_000  # beyond the seeds that initial weights are drawn from
BALANCE = 0.02  # weight of the loss that keeps experts in use
LORA_ROLES = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Recipe:
    """How long, how fast, on what: everything about a run but the initial weights."""

    domain: str
    steps: int
    rate: float
    order: int = 0  # seed of the order in which the text is read
    batch: int = 64
    length: int = 256
    warmup: int = 40
    decay: float = 0.1
    lora_rank: int | None = None
    distil: str | None = None  # "logits" or "hidden": imitate a teacher instead of the text

    @property
    def tokens(self) -> int:
        return self.steps * self.batch * self.length


class Stack:
    """Models of one config as one function of tokens."""

    def __init__(self, models: Sequence[Model], device: str, seeds: Sequence[int] = ()) -> None:
        """`seeds`, one a model, decide what training draws for each of them: the beginning of its adapters."""
        first, self.seeds = models[0], list(seeds) or list(range(len(models)))
        odd = [m for m in models if _shape(m) != _shape(first)]
        if odd:
            raise ValueError(f"a stack holds one shape; got {_shape(first)} and {_shape(odd[0])}")
        if first.family not in ("llama", "mistral", "mixtral", "gpt2"):
            raise ValueError(f"{first.family} models cannot be stacked: Llama, Mixtral and GPT-2 shapes only")
        self.epsilon = float(first.config.get("rms_norm_eps") or first.config["layer_norm_epsilon"])
        self.models, self.like, self.device = list(models), first, device
        self.weights = {role: torch.stack([m.weights[role] for m in models]).to(device) for role in first.weights}

    def __len__(self) -> int:
        return len(self.models)

    def unstack(self) -> list[Model]:
        """The models with the weights they have now, rounded to what will be stored."""
        stored = {role: w.detach().to(torch.bfloat16).float().cpu() for role, w in self.weights.items()}
        return [
            replace(model, weights={role: w[i].clone() for role, w in stored.items()})
            for i, model in enumerate(self.models)
        ]

    def states(self, weights: Weights, tokens: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The residual stream after the embedding and after every layer, each (models, tokens, hidden); and how
        unevenly each model uses its experts (0 without any).

        `tokens` is (sequences, length): all models read the same.
        """
        like, uneven = self.like, torch.zeros(len(self), device=self.device)
        x = weights["embed"].index_select(1, tokens.flatten())
        if "positions" in weights:
            x = x + weights["positions"][:, : tokens.shape[1]].repeat(1, tokens.shape[0], 1)
        rotary = None if "positions" in weights else _rotary(tokens.shape[1], like.head_dim, _theta(like), x)
        states = [x]
        for layer in range(like.layers):
            x = x + self._attention(
                weights, f"{layer}.", self._norm(x, weights, f"{layer}.input_norm"), tokens.shape, rotary
            )
            output, share = self._mlp(weights, layer, self._norm(x, weights, f"{layer}.post_norm"))
            x, uneven = x + output, uneven + share / like.layers
            states.append(x)
        return states, uneven

    def logits(self, weights: Weights, state: torch.Tensor) -> torch.Tensor:
        head = weights.get("head", weights["embed"])
        return torch.bmm(self._norm(state, weights, "final_norm"), head.mT)

    def _norm(self, x: torch.Tensor, weights: Weights, role: str) -> torch.Tensor:
        """RMSNorm; LayerNorm where there is a bias."""
        size, gain = (x.shape[-1],), weights[role][:, None]
        if f"{role}_bias" in weights:
            return F.layer_norm(x, size, eps=self.epsilon) * gain + weights[f"{role}_bias"][:, None]
        return F.rms_norm(x, size, eps=self.epsilon) * gain

    def _attention(
        self, weights: Weights, at: str, x: torch.Tensor, batch: torch.Size, rotary: Rotary | None
    ) -> torch.Tensor:
        def heads(role: str) -> torch.Tensor:
            flat = _linear(x, weights, at + role)
            return flat.view(len(self) * batch[0], batch[1], -1, self.like.head_dim).transpose(1, 2)

        q, k = (heads(role) if rotary is None else _rotate(heads(role), rotary) for role in "qk")
        mixed = F.scaled_dot_product_attention(q, k, heads("v"), is_causal=True, enable_gqa=True)
        return _linear(mixed.transpose(1, 2).reshape(len(self), batch.numel(), -1), weights, f"{at}o")

    def _mlp(self, weights: Weights, layer: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | int]:
        outputs = [_block(x, weights, block) for block in self.like.blocks(layer)]
        if not self.like.experts:
            return outputs[0], 0
        wished = torch.softmax(_linear(x, weights, f"{layer}.router").float(), -1)
        top, chosen = wished.topk(self.like.config["num_experts_per_tok"], -1)
        share = torch.zeros_like(wished).scatter(-1, chosen, top / top.sum(-1, keepdim=True))
        used = (share > 0).float().mean(1)
        uneven = self.like.experts * (used * wished.mean(1)).sum(-1)
        outputs = [share[..., e, None].to(x.dtype) * output for e, output in enumerate(outputs)]
        return torch.stack(outputs).sum(0), uneven


def _shape(model: Model) -> dict[str, list[int]]:
    return {role: list(tensor.shape) for role, tensor in model.weights.items()}


def _theta(model: Model) -> float:
    parameters = model.config.get("rope_parameters") or {}
    return float(model.config.get("rope_theta") or parameters.get("rope_theta") or 10000.0)


def _rotary(length: int, width: int, theta: float, like: torch.Tensor) -> Rotary:
    rates = theta ** (-torch.arange(0, width, 2, device=like.device).float() / width)
    angles = torch.arange(length, device=like.device).float()[:, None] * torch.cat([rates, rates])
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotate(x: torch.Tensor, rotary: Rotary) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * rotary[0] + torch.cat([-right, left], -1) * rotary[1]


def _linear(x: torch.Tensor, weights: Weights, role: str) -> torch.Tensor:
    product = torch.bmm(x, weights[role].mT)
    return product + weights[f"{role}_bias"][:, None] if f"{role}_bias" in weights else product


def _block(x: torch.Tensor, weights: Weights, block: str) -> torch.Tensor:
    up = _linear(x, weights, f"{block}up")
    if f"{block}gate" in weights:
        return _linear(F.silu(_linear(x, weights, f"{block}gate")) * up, weights, f"{block}down")
    return _linear(F.gelu(up, approximate="tanh"), weights, f"{block}down")


def train(
    stack: Stack, recipe: Recipe, text: np.ndarray[Any, Any], teacher: Stack | None = None, say: Report | None = None
) -> list[Model]:
    """Train all models of the stack at once and return them. `say` hears of the progress now and then."""
    trained, effective = _trainable(stack, recipe)
    optimiser = _optimiser(trained, recipe, stack.device)
    teach = None if teacher is None else _compute(teacher.weights, stack.device)
    began = time.monotonic()
    for step, batch in enumerate(batches(text, recipe, stack.device)):
        weights = _compute(effective(), stack.device)
        losses = _losses(stack, weights, batch, recipe, teacher, teach)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        clip(list(trained.values()))
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if say and (step % 50 == 0 or step == recipe.steps - 1):
            seconds = time.monotonic() - began
            say(f"step {step + 1} of {recipe.steps}, mean loss {losses.mean().item():.3f}, {seconds:.0f} s")
    stack.weights = {role: w.detach() for role, w in effective().items()}
    return stack.unstack()


def _trainable(stack: Stack, recipe: Recipe) -> tuple[Weights, Callable[[], Weights]]:
    """What the optimiser moves, and the weights that follow from it."""
    if recipe.lora_rank is None:
        trained = {role: w.clone().requires_grad_() for role, w in stack.weights.items()}
        return trained, lambda: trained
    pairs, trained = {}, {}
    for role, w in stack.weights.items():
        if role.rpartition(".")[2] in LORA_ROLES:
            down = torch.stack([_drawn_adapter(seed, role, recipe.lora_rank, w.shape[2]) for seed in stack.seeds])
            up = torch.zeros(len(stack), w.shape[1], recipe.lora_rank, device=stack.device)
            pairs[role] = (up.requires_grad_(), down.to(stack.device).requires_grad_())
            trained |= {f"{role}.up": pairs[role][0], f"{role}.down": pairs[role][1]}
    return trained, lambda: stack.weights | {r: stack.weights[r] + torch.bmm(u, d) for r, (u, d) in pairs.items()}


def _drawn_adapter(seed: int, role: str, rank: int, width: int) -> torch.Tensor:
    """For each model by itself, so that it does not matter which others are trained beside it."""
    rng = torch.Generator().manual_seed(crc32(f"adapter {seed} {role}".encode()))
    return torch.randn((rank, width), generator=rng) / math.sqrt(width)


def _optimiser(trained: Weights, recipe: Recipe, device: str) -> torch.optim.Optimizer:
    """AdamW; gains (which here have two axes: model and hidden) are not decayed."""
    groups = [
        {"params": [w for w in trained.values() if w.ndim > 2], "weight_decay": recipe.decay},
        {"params": [w for w in trained.values() if w.ndim == 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.95), fused=device == "cuda")


def _compute(weights: Weights, device: str) -> Weights:
    """The dtype that products are taken in: bfloat16 on a GPU, float32 elsewhere."""
    return {role: w.to(torch.bfloat16) for role, w in weights.items()} if device == "cuda" else weights


def clip(trained: Sequence[torch.Tensor], largest: float = 1.0) -> None:
    """Every model's gradient to norm `largest` at most, each by its own norm."""
    gradients = [w.grad for w in trained if w.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    scale = (largest / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


def batches(text: np.ndarray[Any, Any], recipe: Recipe, device: str) -> Iterator[torch.Tensor]:
    """Windows of the text at random places: (batch, length + 1), the same for every model of a stack."""
    rng = torch.Generator().manual_seed(ORDERS_FROM + recipe.order)
    ids = torch.from_numpy(np.asarray(text).astype(np.int64)).to(device)
    window = torch.arange(recipe.length + 1, device=device)
    for _ in range(recipe.steps):
        starts = torch.randint(0, len(ids) - recipe.length - 1, (recipe.batch, 1), generator=rng)
        yield ids[starts.to(device) + window]


def _losses(
    stack: Stack, weights: Weights, batch: torch.Tensor, recipe: Recipe, teacher: Stack | None, teach: Weights | None
) -> torch.Tensor:
    """One loss a model."""
    states, uneven = stack.states(weights, batch[:, :-1])
    logits = stack.logits(weights, states[-1])
    if teacher is None or teach is None:
        return next_token_losses(logits, batch[:, 1:]) + BALANCE * uneven
    with torch.no_grad():
        shown, _ = teacher.states(teach, batch[:, :-1])
        target = teacher.logits(teach, shown[-1]).float().log_softmax(-1)
    divergence = F.kl_div(logits.float().log_softmax(-1), target, log_target=True, reduction="none").sum(-1).mean(-1)
    if recipe.distil != "hidden":
        return divergence
    return divergence + sum(
        ((s.float() - t.float()) ** 2).mean((1, 2)) / (t.float() ** 2).mean((1, 2))
        for s, t in zip(states[1:], shown[1:], strict=True)
    )


def next_token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    count = len(logits)
    flat = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten().repeat(count), reduction="none")
    return flat.view(count, -1).mean(1)


@torch.no_grad()
def held_out_losses(stack: Stack, text: np.ndarray[Any, Any], length: int = 256, windows: int = 256) -> list[float]:
    """Mean next-token loss of each model over evenly spaced windows of unseen text, in float32, nats a token."""
    ids = torch.from_numpy(np.asarray(text).astype(np.int64)).to(stack.device)
    starts = torch.linspace(0, len(ids) - length - 2, windows).long().to(stack.device)
    window = torch.arange(length + 1, device=stack.device)
    parts = []
    for part in starts.split(32):
        batch = ids[part[:, None] + window]
        logits = stack.logits(stack.weights, stack.states(stack.weights, batch[:, :-1])[0][-1])
        parts.append(next_token_losses(logits, batch[:, 1:]) * len(part))
    return [float(loss) for loss in torch.stack(parts).sum(0) / windows]
