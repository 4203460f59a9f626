"""One pass over the weights: every tensor of b beside the one of a that it continues, and what that shows.

At most two stored tensors are in memory; of the largest, which are vocabularies, a block of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from modelkin.metrics import ulp_change
from modelkin.records import Role, Slot
from modelkin.records.relation import Lattice, Spectra, TensorFact
from modelkin.relation.elementwise import FRACTION, Elementwise
from modelkin.relation.inheritance import rows_found
from modelkin.relation.lattice import lattice, nearest_share
from modelkin.relation.reading import LINEAR, FacingSlots, Floats, Reader, Weights, as_stored, blocks, reader, spread
from modelkin.relation.refitting import left_over
from modelkin.relation.spectra import compared

WHOLE = 64 << 20  # numbers; larger tensors are looked at in some of their rows where all are needed at once
SPECTRA_LAYERS = 4  # layers whose large matrices are taken apart into singular values
LARGE = 4 << 20
MOST_SPECTRA = 128  # matrices in all: banks of experts have thousands
STEPS_AT_MOST = 1 << 20
Progress = Callable[[str, int, int], None]
WHAT = "what was changed"


def tensor_facts(
    a: Weights, b: Weights, pairs: Sequence[FacingSlots], rng: np.random.Generator, progress: Progress
) -> tuple[TensorFact, ...]:
    """One a pair, but for those that hold values which are not finite: of these nothing can be said."""
    chosen, held = _for_spectra(a, pairs), reader(b)
    total, done, found = sum(int(np.prod(pair.shape(a))) for pair in pairs), 0, []
    for pair in pairs:
        fact = _fact(a, b, held, pair, pair.b in chosen, rng)
        found += [fact] if fact is not None else []
        done += int(np.prod(pair.shape(a)))
        progress(WHAT, done, total)
    return tuple(found)


def _for_spectra(a: Weights, pairs: Sequence[FacingSlots]) -> set[Slot]:
    """Matrices of b inside the layers: small ones, and large ones of some layers, evenly where they are very many."""
    layers = sorted({pair.b.layer_name for pair in pairs if pair.b.layer is not None}, key=_place)
    some = {layers[i] for i in spread(len(layers), SPECTRA_LAYERS)}
    fit = [pair for pair in pairs if pair.b.role in LINEAR and len(pair.shape(a)) == 2 and min(pair.shape(a)) > 1]
    taken = [pair.b for pair in fit if pair.b.layer_name in some or int(np.prod(pair.shape(a))) <= LARGE]
    return {taken[i] for i in spread(len(taken), MOST_SPECTRA)}


def _place(layer: str) -> tuple[str, int]:
    stack, _, number = layer.rpartition(".")
    return stack, int(number)


def _fact(
    a: Weights, b: Weights, held: Reader, pair: FacingSlots, chosen: bool, rng: np.random.Generator
) -> TensorFact | None:
    """`held` reads b. `chosen`: singular values are wanted. None where a value is not finite."""
    sums, first = Elementwise(), None
    for left, right in blocks(a, held, pair):
        sums.add(left, right)
        first = (left, right) if first is None else first
    assert first is not None  # no slot is empty
    if not math.isfinite(sums.aa + sums.bb):
        return None
    left, right = first if first[0].size == sums.n else _some_rows(a, held, pair)
    formats = _stored(a.dtype(pair.a), sums.a.held()), _stored(b.dtype(pair.b), sums.b.held())
    matrix = left.ndim == 2
    rows, found = rows_found(left, right, pair.b.role, rng) if matrix else (0, 0)
    grids = _grids(left, right) if pair.b.role in LINEAR and matrix else (None, None, None)
    spectra: Spectra | None = compared(left, right, formats, rng) if chosen else None
    return TensorFact(
        a=str(pair.a),
        b=str(pair.b),
        role=pair.b.role,
        layer=pair.b.layer_name,
        shape=pair.shape(a),
        values=sums.n,
        dtype_a=a.dtype(pair.a),
        dtype_b=as_stored(b).dtype(pair.b),
        slope=sums.slope,
        difference=sums.difference,
        correlation=sums.correlation,
        same=sums.same / sums.n,
        moved=_steps(left, right, formats, (sums.a.held(), sums.b.held())),
        zeros_a=sums.a.zeros / sums.n,
        zeros_b=sums.b.zeros / sums.n,
        emptied_b=sums.a_or_zero == sums.n,
        emptied_a=sums.b_or_zero == sums.n,
        cast_b=sums.cast_b(),
        cast_a=sums.cast_a(),
        held_a=sums.a.held(),
        held_b=sums.b.held(),
        kurtosis_a=sums.a.kurtosis(sums.n),
        kurtosis_b=sums.b.kurtosis(sums.n),
        norm_a=float(np.sqrt(sums.aa)),
        norm_b=float(np.sqrt(sums.bb)),
        from_one_a=sums.a.distance(1.0, sums.n) if pair.a.role.is_gain else None,
        from_one_b=sums.b.distance(1.0, sums.n) if pair.b.role.is_gain else None,
        lattice_a=grids[0],
        lattice_b=grids[1],
        nearest=grids[2],
        spectra=spectra,
        refitted=left_over(left, right, pair.b.role, a.facts.head_dim) if chosen and sums.same < sums.n else None,
        rows=rows,
        found=found,
    )


def _some_rows(a: Weights, b: Reader, pair: FacingSlots) -> tuple[Floats, Floats]:
    """The tensor whole, or as many of its rows as may be held."""
    height, *rest = pair.shape(a)
    width = int(np.prod(rest))
    index = spread(height, max(2, WHOLE // width)) if pair.b.role in LINEAR else spread(height, 4096)
    if pair.tokens is not None:
        return a.read(pair.a, pair.tokens.a[index]), b.read(pair.b, pair.tokens.b[index])
    rows = None if len(index) == height else index
    return a.read(pair.a, rows), b.read(pair.b, rows)


def _stored(dtype: str, held: str) -> str:
    """How exactly values are known: the stored format, or a coarser one that holds them all."""
    return min((dtype, held), key=lambda form: FRACTION.get(form, 23))


def _grids(a: Floats, b: Floats) -> tuple[Lattice | None, Lattice | None, float | None]:
    on_a, on_b = lattice(a), lattice(b)
    if on_b is not None and on_a is None:
        return on_a, on_b, nearest_share(b, a, on_b)
    if on_a is not None and on_b is None:
        return on_a, on_b, nearest_share(a, b, on_a)
    return on_a, on_b, None


def _steps(a: Floats, b: Floats, formats: tuple[str, str], held: tuple[str, str]) -> float | None:
    """Median number of steps that changed values took, where both are in one format that steps are counted in.

    Not where a model applies other values than it stores, as gains to which it adds one: they lie between the steps.
    """
    form = formats[0] if formats[0] == formats[1] else "F32"
    if form not in ("BF16", "F16", "F32") or any(FRACTION[each] > FRACTION[form] for each in held):
        return None
    return ulp_change(a.ravel()[:STEPS_AT_MOST], b.ravel()[:STEPS_AT_MOST], form).median


def linear(facts: Sequence[TensorFact]) -> list[TensorFact]:
    return [fact for fact in facts if fact.role in LINEAR and fact.correlation is not None]


def gains(facts: Sequence[TensorFact]) -> list[TensorFact]:
    """Gains on the residual stream: those that a model may fold, and that start at one."""
    return [fact for fact in facts if fact.role.is_gain and fact.role not in (Role.Q_NORM, Role.K_NORM)]
