"""One model out of several of the same shape. All but passthrough work entry by entry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from zoo.checkpoints import Model, Weights
from zoo.derivation import (
    assemble,
    chance,
    check_layers,
    check_same_shapes,
    check_share,
    depth_config,
    derived,
    largest,
    layer_weights,
    top_weights,
)

NEARLY_PARALLEL = 0.9995


def linear(models: Sequence[Model], weights: Sequence[float]) -> Model:
    """The weighted mean; the weights sum to one."""
    return _linear(models, weights, "linear")


def soup(models: Sequence[Model]) -> Model:
    # Without models there are no weights either, and _linear says so.
    return _linear(models, [1 / len(models) for _ in models], "soup")


def _linear(models: Sequence[Model], weights: Sequence[float], step: str) -> Model:
    _check_weights(models, weights)
    check_same_shapes(models)
    if not math.isclose(sum(weights), 1):
        raise ValueError(f"weights sum to {sum(weights)}: expected 1")
    merged = {role: _weighted([model.weights[role] for model in models], weights) for role in models[0].weights}
    return derived(models[0], "merge", step, {"weights": list(weights)}, merged)


def _weighted(tensors: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    # Summed in double, so that the mean of equal tensors is that tensor, bit for bit.
    return sum(w * tensor.double() for w, tensor in zip(weights, tensors, strict=True)).float()


def slerp(a: Model, b: Model, t: float) -> Model:
    """Along the great circle from a (t = 0) to b (t = 1), each tensor as one vector.

    Nearly parallel tensors go along the chord instead, as usual in practice; the truth names them in `lerped`.
    """
    if not 0 <= t <= 1:
        raise ValueError(f"t is {t}: expected 0 to 1")
    check_same_shapes([a, b])
    lerped = [role for role in a.weights if _nearly_parallel(a.weights[role], b.weights[role])]
    merged = {
        role: _slerp(tensor, b.weights[role], t)
        if role not in lerped
        else _weighted([tensor, b.weights[role]], [1 - t, t])
        for role, tensor in a.weights.items()
    }
    return derived(a, "merge", "slerp", {"t": t, "lerped": lerped}, merged)


def _cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    x, y = a.flatten().double(), b.flatten().double()
    return float(x @ y / (x.norm() * y.norm()))


def _nearly_parallel(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Also where one is zero: it has no direction to turn from."""
    cosine = _cosine(a, b)
    return math.isnan(cosine) or abs(cosine) > NEARLY_PARALLEL


def _slerp(a: torch.Tensor, b: torch.Tensor, t: float) -> torch.Tensor:
    angle = math.acos(_cosine(a, b))
    return _weighted([a, b], [math.sin((1 - t) * angle) / math.sin(angle), math.sin(t * angle) / math.sin(angle)])


def ties(base: Model, models: Sequence[Model], weights: Sequence[float], density: float) -> Model:
    """TIES (Yadav et al., 2023): trim each change to its largest share, elect a sign, average those that agree."""
    _check_task_vectors(base, models, weights, density)
    merged = {
        role: tensor + ties_change([model.weights[role] - tensor for model in models], weights, density)
        for role, tensor in base.weights.items()
    }
    return derived(base, "merge", "ties", {"weights": list(weights), "density": density}, merged)


def ties_change(changes: Sequence[torch.Tensor], weights: Sequence[float], density: float) -> torch.Tensor:
    trimmed = torch.stack([change * largest(change, density) for change in changes])
    weight = torch.tensor(weights).view(-1, *[1] * changes[0].ndim)
    elected = (weight * trimmed).sum(0).sign()
    agrees = trimmed.sign() == elected
    total = (weight * agrees).sum(0)
    return torch.where(total > 0, (weight * trimmed * agrees).sum(0) / total.clamp(min=1e-12), 0.0)


def dare(base: Model, models: Sequence[Model], weights: Sequence[float], density: float, *, seed: int) -> Model:
    """DARE (Yu et al., 2023): entries of each change dropped by chance, the survivors divided by the density."""
    _check_task_vectors(base, models, weights, density)
    rng = chance("dare", seed)
    merged: Weights = {}
    for role in sorted(base.weights):
        tensor = base.weights[role]
        changes = [_dropped(model.weights[role] - tensor, density, rng) for model in models]
        merged[role] = tensor + sum(w * change for w, change in zip(weights, changes, strict=True))
    return derived(base, "merge", "dare", {"weights": list(weights), "density": density, "seed": seed}, merged)


def _dropped(change: torch.Tensor, density: float, rng: torch.Generator) -> torch.Tensor:
    return change * (torch.rand(change.shape, generator=rng) < density) / density


def passthrough(sources: Sequence[tuple[Model, int]]) -> Model:
    """Whole layers of two or more models. Embeddings from the first source, final norm and head from the last."""
    if not sources:
        raise ValueError("no layers: expected pairs of a model and one of its layers")
    models = _distinct([model for model, _ in sources])
    if len(models) < 2:
        raise ValueError("all layers come from one model: that is depth_upscale or depth_prune")
    for model, layer in sources:
        check_layers(model, [layer])
    first, final = sources[0][0], sources[-1][0]
    check_same_shapes([_ends(model) for model in models])
    top = {**top_weights(final), "embed": first.weights["embed"]}
    layers = [layer_weights(model, layer) for model, layer in sources]
    numbers = [[_position(models, model), layer] for model, layer in sources]
    return derived(first, "merge", "passthrough", {"layers": numbers}, assemble(top, layers), **depth_config(sources))


def _distinct(models: Sequence[Model]) -> list[Model]:
    """In order of first use. By identity: comparing tensors is not what tells two parents apart."""
    return list({id(model): model for model in models}.values())


def _position(models: Sequence[Model], wanted: Model) -> int:
    return next(i for i, model in enumerate(models) if model is wanted)


def _ends(model: Model) -> Model:
    """Cut to its first and last layer, so that models of different depth can be compared in shape."""
    ends = [layer_weights(model, layer) for layer in (0, model.layers - 1)]
    return Model(model.config, assemble(top_weights(model), ends))


def _check_weights(models: Sequence[Model], weights: Sequence[float]) -> None:
    if not models:
        raise ValueError("no models: expected at least one")
    if len(models) != len(weights):
        raise ValueError(f"{len(weights)} weights for {len(models)} models: expected one each")
    if wrong := [weight for weight in weights if not 0 <= weight < math.inf]:
        raise ValueError(f"weight {wrong[0]}: expected a finite number, not below 0")


def _check_task_vectors(base: Model, models: Sequence[Model], weights: Sequence[float], density: float) -> None:
    _check_weights(models, weights)
    check_share("density", density)
    check_same_shapes([base, *models])
