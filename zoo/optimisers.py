"""Optimisers by name, as a list each: Muon takes the matrices between embeddings and leaves the rest to AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from zoo.families import Run


class Lion(Optimizer):
    """The sign of a momentum, with decay apart from the gradient.  [Chen et al. 2023]"""

    def __init__(self, params: Iterable[Any], lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, _: Any = None) -> None:
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            means = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in params]
            (near, far), rate = group["betas"], group["lr"]
            moves = torch._foreach_lerp(means, grads, 1 - near)
            torch._foreach_sign_(moves)
            torch._foreach_mul_(params, 1 - rate * group["weight_decay"])
            torch._foreach_add_(params, moves, alpha=-rate)
            torch._foreach_lerp_(means, grads, 1 - far)


class Muon(Optimizer):
    """Momentum made orthogonal, at the root mean square of an AdamW step.  [Jordan et al. 2024, Liu et al. 2025]

    torch has one, a matrix at a time and in bfloat16 alone; here matrices of one shape are taken together.
    """

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, _: Any = None) -> None:
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault(parameter.shape, []).append(parameter)
            for shape, params in alike.items():
                grads = [p.grad for p in params]
                means = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in params]
                torch._foreach_lerp_(means, grads, 1 - group["momentum"])
                ahead = torch.stack(torch._foreach_lerp(grads, means, group["momentum"]))
                moves = orthogonal(ahead) * (0.2 * math.sqrt(max(shape)))
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(params, list(moves.unbind()), alpha=-group["lr"])


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Singular values drawn near one by five Newton-Schulz steps.  matrices: (n, rows, columns)"""
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    x = x.to(torch.bfloat16 if x.is_cuda else x.dtype)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x if wide else x.mT).to(matrices.dtype)


def optimisers(network: nn.Module, run: Run) -> list[Optimizer]:
    """Decay on everything with two axes or more, `norm_decay` on gains and biases."""
    tables = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    params = [p for p in network.parameters() if p.requires_grad]
    if run.optimiser == "muon":
        inner = [p for p in params if p.ndim == 2 and id(p) not in tables]
        rest = [p for p in params if p.ndim != 2 or id(p) in tables]
        muon = Muon(inner, lr=run.rate, weight_decay=run.decay)
        return [muon, _adamw(_groups(rest, run), run)]
    if run.optimiser == "lion":
        return [Lion(_groups(params, run), lr=run.rate)]
    if run.optimiser == "sgd":
        return [SGD(_groups(params, run), lr=run.rate, momentum=0.9, nesterov=True)]
    if run.optimiser == "adamw":
        return [_adamw(_groups(params, run), run)]
    raise ValueError(f"{run.name}: no optimiser {run.optimiser!r}; known are adamw, lion, muon, sgd")


def _groups(params: list[nn.Parameter], run: Run) -> list[dict[str, Any]]:
    matrices, vectors = [p for p in params if p.ndim > 1], [p for p in params if p.ndim == 1]
    parts = ((matrices, run.decay), (vectors, run.norm_decay))
    return [{"params": part, "weight_decay": decay} for part, decay in parts if part]


def _adamw(groups: list[dict[str, Any]], run: Run) -> AdamW:
    return AdamW(groups, lr=run.rate, betas=(0.9, 0.95), fused=groups[0]["params"][0].is_cuda)


class Schedule(Protocol):
    """What a run and a recipe both say of the rate."""

    @property
    def rate(self) -> float: ...
    @property
    def warmup(self) -> int: ...
    @property
    def steps(self) -> int: ...


def learning_rate(run: Schedule, step: int) -> float:
    """Linear warm-up (over a quarter of a short run at most), then a cosine down to a tenth."""
    warmup = min(run.warmup, run.steps // 4)
    if step < warmup:
        return run.rate * (step + 1) / warmup
    done = (step - warmup) / max(1, run.steps - warmup)
    return run.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))
