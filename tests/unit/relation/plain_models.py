"""Models that are nothing but arrays: what the relation needs to read, without files."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from modelkin.records import Role, Slot

Floats = NDArray[np.float32]
WIDTH, NEURONS, LAYERS = 48, 64, 4
MATRICES = {
    Role.Q: (WIDTH, WIDTH),
    Role.O: (WIDTH, WIDTH),
    Role.GATE: (NEURONS, WIDTH),
    Role.UP: (NEURONS, WIDTH),
    Role.DOWN: (WIDTH, NEURONS),
}


@dataclass(frozen=True, eq=False)
class Plain:
    """Arrays by slot, read like an Anatomy."""

    slots: dict[Slot, Floats]
    form: str = "BF16"
    facts: Any = field(
        default_factory=lambda: SimpleNamespace(
            hidden=WIDTH, intermediate=NEURONS, experts=None, head_dim=None, tied=False
        )
    )

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(str(i) for i in sorted({slot.layer for slot in self.slots if slot.layer is not None}))

    def read(self, slot: Slot, rows: Any = None) -> Floats:
        return self.slots[slot] if rows is None else self.slots[slot][rows]

    def shape(self, slot: Slot) -> tuple[int, ...]:
        return self.slots[slot].shape

    def dtype(self, _: Slot) -> str:
        return self.form

    def changed(self, **by_role: Any) -> Plain:
        """With a function of the array and its slot applied to some roles, all stored as before."""
        return Plain(
            {s: bf16(by_role[s.role.value](x, s)) if s.role.value in by_role else x for s, x in self.slots.items()},
            self.form,
            self.facts,
        )


def bf16(values: Any) -> Floats:
    return np.asarray(np.asarray(values).astype(ml_dtypes.bfloat16).astype(np.float32))


def plain(seed: int, layers: int = LAYERS, vocabulary: int = 64) -> Plain:
    rng = np.random.default_rng(seed)
    slots = {Slot(Role.EMBEDDING): rng.normal(0, 1, (vocabulary, WIDTH)), Slot(Role.FINAL_NORM): _gain(rng)}
    for layer in range(layers):
        slots |= {Slot(role, layer): rng.normal(0, 0.05, shape) for role, shape in MATRICES.items()}
        slots |= {Slot(role, layer): _gain(rng) for role in (Role.INPUT_NORM, Role.POST_NORM)}
    return Plain({slot: bf16(array) for slot, array in slots.items()})


def _gain(rng: np.random.Generator) -> Floats:
    return rng.normal(1, 0.1, WIDTH).astype(np.float32)


def moved(model: Plain, size: float, seed: int) -> Plain:
    """Every tensor moved by noise of `size` times its own spread."""
    rng = np.random.default_rng(seed)
    return Plain(
        {slot: bf16(x + size * x.std() * rng.normal(size=x.shape)) for slot, x in model.slots.items()},
        model.form,
        model.facts,
    )


def trained(model: Plain, size: float, seed: int) -> Plain:
    """The same with half of the squares of every matrix's change in one direction, as what is learnt has some."""
    rng = np.random.default_rng(seed)

    def step(x: Floats) -> Any:
        noise = rng.normal(size=x.shape)
        if x.ndim < 2:
            return noise
        return (noise + np.outer(rng.normal(size=x.shape[0]), rng.normal(size=x.shape[1]))) / np.sqrt(2)

    return Plain({slot: bf16(x + size * x.std() * step(x)) for slot, x in model.slots.items()}, model.form, model.facts)


def mixed(models: list[Plain], weights: list[float]) -> Plain:
    return Plain(
        {
            slot: bf16(sum(w * m.slots[slot].astype(np.float64) for w, m in zip(weights, models, strict=True)))
            for slot in models[0].slots
        },
        models[0].form,
        models[0].facts,
    )
