"""The gains of whole models, for studies: every norm that scales the residual stream in a layer, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy, identify
from modelkin.demo import bundled
from modelkin.errors import NothingComparable
from modelkin.inspection import open_model
from modelkin.records import Role, Slot
from modelkin.sources import ReadOptions

IN_LAYERS = (
    Role.INPUT_NORM,
    Role.POST_NORM,
    Role.CROSS_NORM,
    Role.ATTN_OUT_NORM,
    Role.MLP_OUT_NORM,
    Role.CROSS_OUT_NORM,
)
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ModelGains:
    """`vectors[role]` holds a vector a layer, by the name of the layer, as the model applies it.

    `pinned` says why the hidden axes may not be renumbered, where they may not.
    """

    label: str
    dtypes: tuple[str, ...]
    layers: tuple[str, ...]
    vectors: dict[Role, dict[str, Floats]]
    pinned: str | None

    @property
    def width(self) -> int:
        return next(vector.size for layers in self.vectors.values() for vector in layers.values())


def read_gains(models: Sequence[str], reading: ReadOptions | None) -> tuple[ModelGains, ...]:
    """Of every model, in order; each is opened once and closed again."""
    options = reading if reading is not None else ReadOptions()
    return tuple(_of(model, label, options) for model, label in zip(models, labels(models), strict=True))


def bundled_gains(names: Iterable[str]) -> tuple[ModelGains, ...]:
    """The same of models that ship with the package, by name."""
    folders = bundled()
    return read_gains([str(folders[name]) for name in names], None)


def labels(models: Sequence[str]) -> list[str]:
    """The last part of each name, or as much of it as tells them apart."""
    short = [Path(model.rstrip("/")).name or model for model in models]
    return [name if short.count(name) == 1 else model for name, model in zip(short, models, strict=True)]


def _of(model: str, label: str, options: ReadOptions) -> ModelGains:
    checkpoint = open_model(model, options)
    try:
        return _gains(identify(checkpoint), label)
    finally:
        checkpoint.source.close()


def _gains(anatomy: Anatomy, label: str) -> ModelGains:
    width = (anatomy.facts.hidden,)
    slots = [slot for role in IN_LAYERS for slot in anatomy.of(role) if anatomy.shape(slot) == width]
    if not slots:
        raise NothingComparable("no norm on the residual stream was recognised", where=anatomy.checkpoint.id)
    arrays = anatomy.read_many([(slot, None) for slot in slots])
    vectors: dict[Role, dict[str, Floats]] = {}
    for slot, array in zip(slots, arrays, strict=True):
        vector = array.astype(np.float64)
        if not np.isfinite(vector).all():
            raise NothingComparable(f"{slot} holds values that are not finite", where=anatomy.checkpoint.id)
        vectors.setdefault(slot.role, {})[_layer(slot)] = vector
    dtypes = tuple(sorted({anatomy.dtype(slot) for slot in slots}))
    pinned = None if anatomy.facts.exchangeable_hidden else anatomy.facts.why
    return ModelGains(label, dtypes, anatomy.layers, vectors, pinned)


def _layer(slot: Slot) -> str:
    return f"{slot.stack}.{slot.layer}" if slot.stack else str(slot.layer)
