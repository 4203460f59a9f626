"""A GPT-2 small enough to train in a minute, as plain functions over a dict of tensors. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkin.errors import UsageError

VOCABULARY = 256
LENGTH = 128
LEARNING_RATE = 1e-3
INITIAL_STD = 0.02  # of weights, as in GPT-2

Floats = NDArray[np.float64]
Batch = Callable[[int], NDArray[np.int64]]  # step -> (sequences, LENGTH + 1) tokens


@dataclass(frozen=True, slots=True)
class Size:
    layers: int
    heads: int
    width: int
    steps: int


@dataclass(frozen=True, slots=True)
class Trained:
    """The gains of every norm, by (norm, layer), before and after training, and the first and last loss."""

    start: dict[tuple[str, int], Floats]
    gains: dict[tuple[str, int], Floats]
    first_loss: float
    last_loss: float


def torch_module() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise UsageError(
            "this study trains small models, which needs torch", hint="pip install 'modelkin[torch]'"
        ) from error


def train(size: Size, batch: Batch, *, seed: int, random_gains: bool, weight_decay: float) -> Trained:
    """From random weights, with AdamW on everything, the gains included. On a GPU where there is one."""
    torch = torch_module()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = _initial(torch, size, seed, random_gains, device)
    start = _gains(weights)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=LEARNING_RATE, weight_decay=weight_decay)
    losses = []
    for step in range(size.steps):
        tokens = torch.from_numpy(batch(step)).to(device)
        logits = _logits(torch, weights, size, tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return Trained(start, _gains(weights), losses[0], losses[-1])


def _initial(torch: Any, size: Size, seed: int, random_gains: bool, device: str) -> dict[str, Any]:
    """Weights N(0, 0.02²), those that write to the residual stream smaller by sqrt(2 layers); biases 0.

    Gains are 1, or N(0, 1). Drawn on the CPU, so that a seed means the same everywhere.
    """
    chance = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float = INITIAL_STD) -> Any:
        return torch.randn(*shape, generator=chance) * std

    def gain() -> Any:
        return normal(size.width, std=1.0) if random_gains else torch.ones(size.width)

    width, written = size.width, INITIAL_STD / math.sqrt(2 * size.layers)
    weights = {"tokens": normal(VOCABULARY, width), "positions": normal(LENGTH, width)}
    for layer in range(size.layers):
        weights |= {
            f"{layer}.ln_1.gain": gain(),
            f"{layer}.ln_1.bias": torch.zeros(width),
            f"{layer}.qkv": normal(3 * width, width),
            f"{layer}.qkv.bias": torch.zeros(3 * width),
            f"{layer}.out": normal(width, width, std=written),
            f"{layer}.out.bias": torch.zeros(width),
            f"{layer}.ln_2.gain": gain(),
            f"{layer}.ln_2.bias": torch.zeros(width),
            f"{layer}.up": normal(4 * width, width),
            f"{layer}.up.bias": torch.zeros(4 * width),
            f"{layer}.down": normal(width, 4 * width, std=written),
            f"{layer}.down.bias": torch.zeros(width),
        }
    weights |= {"ln_f.gain": gain(), "ln_f.bias": torch.zeros(width)}
    return {name: tensor.to(device).requires_grad_() for name, tensor in weights.items()}


def _logits(torch: Any, weights: dict[str, Any], size: Size, tokens: Any) -> Any:
    """(sequences, length) -> (sequences, length, vocabulary); the head is tied to the embedding."""
    linear = torch.nn.functional.linear

    def norm(name: str, x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (size.width,), weights[f"{name}.gain"], weights[f"{name}.bias"])

    def project(name: str, x: Any) -> Any:
        return linear(x, weights[name], weights[f"{name}.bias"])

    stream = weights["tokens"][tokens] + weights["positions"][: tokens.shape[1]]
    for layer in range(size.layers):
        mixed = project(f"{layer}.qkv", norm(f"{layer}.ln_1", stream))
        stream = stream + project(f"{layer}.out", _attention(torch, mixed, size.heads))
        inner = torch.nn.functional.gelu(project(f"{layer}.up", norm(f"{layer}.ln_2", stream)))
        stream = stream + project(f"{layer}.down", inner)
    return linear(norm("ln_f", stream), weights["tokens"])


def _attention(torch: Any, mixed: Any, heads: int) -> Any:
    """(sequences, length, 3 width) -> (sequences, length, width), causal."""
    sequences, length, wide = mixed.shape
    q, k, v = mixed.view(sequences, length, 3, heads, wide // 3 // heads).permute(2, 0, 3, 1, 4)
    seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return seen.transpose(1, 2).reshape(sequences, length, wide // 3)


def _gains(weights: dict[str, Any]) -> dict[tuple[str, int], Floats]:
    found: dict[tuple[str, int], Floats] = {}
    for name, tensor in weights.items():
        layer, _, norm = name.removesuffix(".gain").partition(".")
        if name.endswith(".gain") and norm:
            found[norm, int(layer)] = tensor.detach().cpu().double().numpy().copy()
    return found
