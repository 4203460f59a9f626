"""Many models of one shape trained in one step: every weight has a leading axis of models, every product is batched.

One tiny model leaves a GPU idle; eighty of them side by side do not. Each model gets the step that it would get alone:
its own gradient norm is clipped, its own weights move, nothing is shared but the batch. Llama and Mixtral shapes; every
expert is computed for every token, which at this size is cheaper than sending tokens to experts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from zoo.checkpoints import Model, Weights

Report = Callable[[str], None]
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


def shape_config(**shape: Any) -> dict[str, Any]:
    """A config.json of the Llama or, with experts, the Mixtral family."""
    experts = shape.pop("experts", 0)
    family, name = ("mixtral", "MixtralForCausalLM") if experts else ("llama", "LlamaForCausalLM")
    config: dict[str, Any] = {
        "model_type": family,
        "architectures": [name],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "initializer_range": 0.02,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": None}
    return config | shape


def fresh(config: Mapping[str, Any], seed: int, tokenizer: dict[str, Any] | None = None) -> Model:
    """Matrices from N(0, initializer_range), gains at 1: what transformers does, from a generator of our own."""
    rng, model = torch.Generator().manual_seed(seed), Model(dict(config), {}, tokenizer)
    d, h, width = model.hidden, model.neurons, model.head_dim

    def matrix(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=rng) * model.config["initializer_range"]

    weights: Weights = {"embed": matrix(config["vocab_size"], d), "final_norm": torch.ones(d)}
    if not config["tie_word_embeddings"]:
        weights["head"] = matrix(config["vocab_size"], d)
    for layer in range(model.layers):
        at = f"{layer}."
        weights |= {f"{at}input_norm": torch.ones(d), f"{at}post_norm": torch.ones(d)}
        weights |= {f"{at}q": matrix(model.heads * width, d), f"{at}k": matrix(model.kv_heads * width, d)}
        weights |= {f"{at}v": matrix(model.kv_heads * width, d), f"{at}o": matrix(d, model.heads * width)}
        if model.experts:
            weights[f"{at}router"] = matrix(model.experts, d)
        for block in [f"{at}experts.{e}." for e in range(model.experts)] or [at]:
            weights |= {f"{block}gate": matrix(h, d), f"{block}up": matrix(h, d), f"{block}down": matrix(d, h)}
    return replace(model, weights=weights)


class Stack:
    """Models of one config as one function of tokens."""

    def __init__(self, models: Sequence[Model], device: str) -> None:
        first = models[0]
        odd = [m for m in models if _shape(m) != _shape(first)]
        if odd:
            raise ValueError(f"a stack holds one shape; got {_shape(first)} and {_shape(odd[0])}")
        if first.family not in ("llama", "mistral", "mixtral"):
            raise ValueError(f"{first.family} models cannot be stacked: Llama and Mixtral shapes only")
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
        like, count, uneven = self.like, len(self), torch.zeros(len(self), device=self.device)
        x = weights["embed"].index_select(1, tokens.flatten())
        rotary = _rotary(tokens.shape[1], like.head_dim, _theta(like), x)
        states = [x]
        for layer in range(like.layers):
            at = f"{layer}."
            x = x + self._attention(weights, at, self._norm(x, weights[f"{at}input_norm"]), count, tokens.shape, rotary)
            output, share = self._mlp(weights, layer, self._norm(x, weights[f"{at}post_norm"]))
            x, uneven = x + output, uneven + share / like.layers
            states.append(x)
        return states, uneven

    def logits(self, weights: Weights, state: torch.Tensor) -> torch.Tensor:
        head = weights.get("head", weights["embed"])
        return torch.bmm(self._norm(state, weights["final_norm"]), head.mT)

    def _norm(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), eps=self.like.config["rms_norm_eps"]) * gain[:, None]

    def _attention(
        self,
        weights: Weights,
        at: str,
        x: torch.Tensor,
        count: int,
        batch: torch.Size,
        rotary: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        width = self.like.head_dim

        def heads(role: str) -> torch.Tensor:
            flat = torch.bmm(x, weights[at + role].mT)
            return flat.view(count * batch[0], batch[1], -1, width).transpose(1, 2)

        q, k = _rotate(heads("q"), rotary), _rotate(heads("k"), rotary)
        mixed = F.scaled_dot_product_attention(q, k, heads("v"), is_causal=True, enable_gqa=True)
        return torch.bmm(mixed.transpose(1, 2).reshape(count, batch.numel(), -1), weights[f"{at}o"].mT)

    def _mlp(self, weights: Weights, layer: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | int]:
        blocks = self.like.blocks(layer)
        outputs = [_gated(x, *(weights[block + role] for role in ("gate", "up", "down"))) for block in blocks]
        if not self.like.experts:
            return outputs[0], 0
        wished = torch.softmax(torch.bmm(x, weights[f"{layer}.router"].mT).float(), -1)
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


def _rotary(length: int, width: int, theta: float, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rates = theta ** (-torch.arange(0, width, 2, device=like.device).float() / width)
    angles = torch.arange(length, device=like.device).float()[:, None] * torch.cat([rates, rates])
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotate(x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * rotary[0] + torch.cat([-right, left], -1) * rotary[1]


def _gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return torch.bmm(F.silu(torch.bmm(x, gate.mT)) * torch.bmm(x, up.mT), down.mT)


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
    rng, rank = torch.Generator().manual_seed(recipe.order), recipe.lora_rank
    pairs, trained = {}, {}
    for role, w in stack.weights.items():
        if role.rpartition(".")[2] in LORA_ROLES:
            start = torch.randn((len(stack), rank, w.shape[2]), generator=rng) / math.sqrt(w.shape[2])
            down, up = start.to(stack.device), torch.zeros(len(stack), w.shape[1], rank, device=stack.device)
            pairs[role] = (up.requires_grad_(), down.requires_grad_())
            trained |= {f"{role}.up": pairs[role][0], f"{role}.down": pairs[role][1]}
    return trained, lambda: stack.weights | {r: stack.weights[r] + torch.bmm(u, d) for r, (u, d) in pairs.items()}


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


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    warmup = min(recipe.warmup, recipe.steps // 4)
    if step < warmup:
        return recipe.rate * (step + 1) / warmup
    done = (step - warmup) / max(1, recipe.steps - warmup)
    return recipe.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def batches(text: np.ndarray[Any, Any], recipe: Recipe, device: str) -> Iterator[torch.Tensor]:
    """Windows of the text at random places: (batch, length + 1), the same for every model of a stack."""
    rng = torch.Generator().manual_seed(recipe.order)
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
