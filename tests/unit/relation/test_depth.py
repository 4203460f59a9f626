"""Layers that are doubles of others, where whoever disguised the model gave their neurons other numbers."""

from __future__ import annotations

import numpy as np
from plain_models import LAYERS, NEURONS, WIDTH, Plain, plain

from modelkin.records import Role, Slot
from modelkin.relation.depth import depth_change

BASE = plain(1)
THREE = tuple((str(i), str(i)) for i in range(LAYERS - 1))


def relabelled(model: Plain, seed: int) -> Plain:
    """Neurons renumbered and scaled and gains drawn anew in every layer: the model says what it said."""
    rng = np.random.default_rng(seed)
    slots = dict(model.slots)
    for layer in range(LAYERS):
        order, scales = rng.permutation(NEURONS), np.exp(rng.normal(size=NEURONS))
        gain = rng.uniform(0.2, 5, WIDTH)
        old = slots[Slot(Role.POST_NORM, layer)]
        slots[Slot(Role.POST_NORM, layer)] = (old * gain).astype(np.float32)
        slots[Slot(Role.UP, layer)] = (slots[Slot(Role.UP, layer)] / gain * scales[:, None])[order]
        slots[Slot(Role.DOWN, layer)] = (slots[Slot(Role.DOWN, layer)] / scales)[:, order]
    return Plain(slots, model.form, model.facts)


def kind(model: Plain) -> str | None:
    """Beside one that lacks its last layer."""
    few = Plain({slot: x for slot, x in model.slots.items() if slot.layer != LAYERS - 1})
    found = depth_change(model, few, THREE, np.random.default_rng(0), renumbered=True)
    return None if found is None else found.kind


def test_layers_that_write_alike_are_no_doubles() -> None:
    rng = np.random.default_rng(2)
    ways = rng.normal(size=(WIDTH, 4)).astype(np.float32)
    alike = BASE.changed(down=lambda x, _: ways[:, rng.integers(0, 4, NEURONS)] + 4 * x)
    assert kind(alike) == "depth-prune"
    assert kind(relabelled(alike, 3)) == "depth-prune"


def test_a_renumbered_double_is_one() -> None:
    last = {Slot(slot.role, LAYERS - 1): x for slot, x in BASE.slots.items() if slot.layer == 0}
    doubled = Plain(BASE.slots | last, BASE.form, BASE.facts)
    assert kind(relabelled(doubled, 3)) == "depth-upscale"
