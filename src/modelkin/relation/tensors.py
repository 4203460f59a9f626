"""One pass over the weights: every tensor of b beside the one of a that it continues, and what that shows.

At most two stored tensors are in memory; of the largest, which are vocabularies, a block of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modelkin.alignment import Rewritten
from modelkin.metrics import ulp_change
from modelkin.records import Role, Slot
from modelkin.records.relation import Lattice, Spectra, TensorFact
from modelkin.relation.elementwise import FRACTION, Elementwise, steps_off
from modelkin.relation.inheritance import rows_found
from modelkin.relation.lattice import cells_off, grid_noise, lattice, nearest_share
from modelkin.relation.reading import LINEAR, FacingSlots, Floats, Reader, Weights, as_stored, blocks, reader, spread
from modelkin.relation.refitting import left_over
from modelkin.relation.rounding import NOT_ROUNDED, Filling, filling
from modelkin.relation.spectra import compared
from modelkin.relation.unrounded import ZEROS, before_rounding, moved_inside_cells

WHOLE = 64 << 20  # numbers; larger tensors are looked at in some of their rows where all are needed at once
SPECTRA_LAYERS = 4  # layers whose large matrices are taken apart into singular values
LARGE = 4 << 20
MOST_SPECTRA = 128  # matrices in all: banks of experts have thousands
STEPS_AT_MOST = 1 << 20
MOST_FOUND = 0.9  # of the rows: where fewer are found, free numbers may have hidden them
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
    stored = _as_stored(b, pair.b, right)
    casts = sums.cast_a(), sums.cast_b()
    grids = _grids(left, right, stored) if pair.b.role in LINEAR and matrix else Grids()
    filled = _filled(left, right, casts, grids)
    zeros_b = sums.b.zeros / sums.n if stored is right else _zeros(stored)
    whole = left.size == sums.n
    noise = _noise(b, pair, left, right, grids, zeros_b - sums.a.zeros / sums.n) if matrix and whole else grids.noise
    scalable = matrix and (
        pair.b.role in LINEAR or Role.HEAD in (pair.a.role, pair.b.role)
    )  # readers of gains among them
    refit = sums.same < sums.n and (chosen or (scalable and found < MOST_FOUND * rows))
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
        zeros_b=zeros_b,
        emptied_b=sums.a_or_zero == sums.n,
        emptied_a=sums.b_or_zero == sums.n,
        cast_b=casts[1],
        cast_a=casts[0],
        held_a=sums.a.held(),
        held_b=sums.b.held(),
        kurtosis_a=sums.a.kurtosis(sums.n),
        kurtosis_b=sums.b.kurtosis(sums.n),
        norm_a=float(np.sqrt(sums.aa)),
        norm_b=float(np.sqrt(sums.bb)),
        from_one_a=sums.a.distance(1.0, sums.n) if pair.a.role.is_gain else None,
        from_one_b=sums.b.distance(1.0, sums.n) if pair.b.role.is_gain else None,
        lattice_a=grids.a,
        lattice_b=grids.b,
        nearest=grids.nearest,
        filled=filled.filled,
        pattern=filled.pattern,
        grid_noise=noise,
        beyond=_beyond(sums, grids, noise),
        spectra=spectra,
        refitted=left_over(left, right, pair.b.role, a.facts.head_dim) if refit else None,
        rows=rows,
        found=found,
    )


def _some_rows(a: Weights, b: Reader, pair: FacingSlots) -> tuple[Floats, Floats]:
    """The tensor whole, or as many of its rows as may be held."""
    height, *rest = pair.shape(a)
    width = int(np.prod(rest))
    index = spread(height, max(2, WHOLE // width)) if pair.b.role in LINEAR else spread(height, 4096)
    if pair.tokens is not None:
        return a.read(pair.a, pair.tokens.a[index]), b.read(pair.read_b, pair.tokens.b[index])
    rows = None if len(index) == height else index
    return a.read(pair.a, rows), b.read(pair.read_b, rows)


def _stored(dtype: str, held: str) -> str:
    """How exactly values are known: the stored format, or a coarser one that holds them all."""
    return min((dtype, held), key=lambda form: FRACTION.get(form, 23))


@dataclass(frozen=True)
class Grids:
    """The grid of either, `nearest` and `filled` where one alone has one, and what rounding to it leaves."""

    a: Lattice | None = None
    b: Lattice | None = None
    nearest: float | None = None
    filled: Filling = NOT_ROUNDED
    noise: float | None = None


def _as_stored(b: Weights, slot: Slot, right: Floats) -> Floats:
    """Of a rewritten model the tensor as its file has it: turned back it is off its grid, and its zeros are filled."""
    if as_stored(b) is b or slot.role not in LINEAR:
        return right
    rows = spread(as_stored(b).shape(slot)[0], max(2, WHOLE // right[:1].size))
    return as_stored(b).read(slot, None if len(rows) == as_stored(b).shape(slot)[0] else rows)


def _zeros(values: Floats) -> float:
    return 1 - float(np.count_nonzero(values)) / values.size


def _grids(a: Floats, b: Floats, stored: Floats) -> Grids:
    on_a, on_b = lattice(a), lattice(b)
    if on_b is None and stored is not b and (own := lattice(stored)) is not None:
        return Grids(on_a, own)
    if on_b is not None and on_a is None:
        return Grids(on_a, on_b, nearest_share(b, a, on_b), filling(cells_off(b, a, on_b), b), grid_noise(b, on_b))
    if on_a is not None and on_b is None:
        return Grids(on_a, on_b, nearest_share(a, b, on_a), filling(cells_off(a, b, on_a), a), grid_noise(a, on_a))
    return Grids(on_a, on_b)


def _filled(a: Floats, b: Floats, casts: tuple[str | None, str | None], grids: Grids) -> Filling:
    """By the grid of one; else by the format that one was rounded to."""
    if grids.filled.filled is not None:
        return grids.filled
    if casts[0] is not None:
        return filling(steps_off(a, b, casts[0]), a)
    return NOT_ROUNDED if casts[1] is None else filling(steps_off(b, a, casts[1]), b)


def _noise(b: Weights, pair: FacingSlots, left: Floats, right: Floats, grids: Grids, emptied: float) -> float | None:
    """What a grid leaves, beside the size of a; of a rewritten model also what zeros do, as they stand in the files.

    `emptied`: the share of zeros that b has more than a.
    """
    if not isinstance(b, Rewritten) or grids.noise is not None or pair.b.role not in LINEAR:
        return grids.noise
    size, both = float(np.linalg.norm(left)), grids.a is not None and grids.b is not None
    if not size or both or (grids.b is None and abs(emptied) <= ZEROS):
        return None
    if grids.b is not None or emptied > 0:
        return float(np.linalg.norm(before_rounding(b).read(pair.b)[: len(right)] - right)) / size
    return float(np.linalg.norm(moved_inside_cells(left, np.random.default_rng(0)) - left)) / size


def _beyond(sums: Elementwise, grids: Grids, noise: float | None) -> float | None:
    """The difference without what zeros, where they are to be seen, and rounding account for; None where none does.

    Both may have been emptied, each at its own places: what is left is measured where neither was.
    """
    emptied = max(sums.a.zeros, sums.b.zeros) > ZEROS * sums.n
    if noise is None and not emptied:
        return None
    if emptied:
        return math.sqrt(max(0.0, sums.difference_of_full**2 - (grids.noise or 0.0) ** 2))
    return math.sqrt(max(0.0, sums.difference**2 - (noise or 0.0) ** 2))


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
