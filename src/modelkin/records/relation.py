"""What kind of relation, which way, how much and where: everything that is said of a pair after a rejection."""

from __future__ import annotations

from typing import Literal

import msgspec

from modelkin.records.models import Role
from modelkin.records.terms import Direction, Kind, Shared

MergeMethod = Literal["linear", "slerp", "ties", "dare", "passthrough", "unknown"]


class Lattice(msgspec.Struct, frozen=True):
    """The values of a tensor lie on a grid: `name` of the code, how many values share one scale (`group`)."""

    name: str  # int8, int4, nf4, fp4, fp8, codes
    group: str  # tensor, row, or a number of columns
    levels: int  # most different values found in any group


class Spectra(msgspec.Struct, frozen=True, kw_only=True):
    """Singular values of a tensor pair. `rank` counts those of the difference above what rounding alone can reach.

    `capped`: there may be more. `strength`: the largest over that edge, `next`: the first that does not count over it.
    `leading_a` and `leading_b`: the share of the difference that lies in the leading singular directions of each.
    `bulk` and `outliers`: cosine of the two matrices without their leading directions, and of what these hold.
    `excess`: the largest singular value of the difference over the largest that noise reaches which is as large in
    every row and column; about one where numbers were rounded or noise was added, more where something was learnt.
    """

    rank: int
    capped: bool
    strength: float
    next: float
    leading_a: float
    leading_b: float
    bulk: float
    outliers: float
    effective_rank_a: float
    effective_rank_b: float
    excess: float | None = None


class TensorFact(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a beside one of b: b ≈ slope · a, and what is left over.

    `same`: share of values equal to the bit. `moved` and `rows`: the steps of the number format that changed values
    took (median), and how many of the rows asked found their own counterpart.
    """

    a: str
    b: str
    role: Role
    layer: str  # of b
    shape: tuple[int, ...]
    values: int
    dtype_a: str
    dtype_b: str
    slope: float
    difference: float
    correlation: float | None
    same: float
    moved: float | None
    zeros_a: float
    zeros_b: float
    emptied_b: bool  # every value of b is that of a or zero
    emptied_a: bool
    cast_b: str | None  # b is a rounded to this format
    cast_a: str | None
    held_a: str  # the coarsest format that holds every value
    held_b: str
    kurtosis_a: float | None
    kurtosis_b: float | None
    norm_a: float
    norm_b: float
    from_one_a: float | None = None  # of gains: how far they lie from one, where training found them
    from_one_b: float | None = None
    lattice_a: Lattice | None = None  # of a rewritten model as it is stored, like its zeros
    lattice_b: Lattice | None = None
    nearest: float | None = None  # share of the other's values whose nearest grid value is the one stored
    # Where one is the other's values rounded: how far these lie from it, in half steps. 0.5 if they came first, less if
    # they were made from it; and how far these distances follow a pattern, over what noise does: about one if they came
    # first. Then what rounding to the grid of one leaves, beside its size; and the difference without that, where
    # neither was emptied.
    filled: float | None = None
    pattern: float | None = None
    grid_noise: float | None = None
    beyond: float | None = None
    spectra: Spectra | None = None
    refitted: float | None = None  # what is left of b once what a model may choose freely is chosen as a has it
    rows: int = 0
    found: int = 0


class TokenFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Vocabularies by their rows. `near_mean`: how far rows of tokens that only one has lie from the mean of all rows,
    beside how far the others lie (median over median); between two ordinary sets of rows it is near one. `at_mean`:
    most of them are the mean of the other model's rows, as exactly as they are stored."""

    tokens_a: int
    tokens_b: int
    shared: int
    moved_ids: int
    only_a: int
    only_b: int
    near_mean_a: float | None = None
    near_mean_b: float | None = None
    at_mean_a: bool = False
    at_mean_b: bool = False
    found: float | None = None  # share of shared tokens whose rows find each other
    ascending_a: float | None = None  # share of merges whose token has a higher number than that of the merge before
    ascending_b: float | None = None


class AxesFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whether hidden axes are like any other directions, which only a turn by chance makes them.

    `pvalue_*`: how often directions drawn at random differ among each other as little or as much as the axes do, by the
    matrix of that model that tells most, times their number. Uniform or larger after a random rotation; near zero in
    trained models that nobody turned. `gains_*`: whether norm gains differ from axis to axis, as they cannot after a
    turn; without them special axes may be principal axes that were computed.
    """

    pvalue_a: float
    pvalue_b: float
    matrices_a: int
    matrices_b: int
    gains_a: bool = True
    gains_b: bool = True


class NotCompared(msgspec.Struct, frozen=True):
    """Parameters of b of one role that nothing could be said of, and why."""

    role: str
    parameters: int
    why: str


class KindFound(msgspec.Struct, frozen=True):
    """A kind, how sure (None: it was counted, not estimated), why, and what would be seen between strangers."""

    kind: Kind
    probability: float | None
    why: str
    strangers: str


class PartShare(msgspec.Struct, frozen=True):
    """One role, or one layer of the child: share of its parameters that was inherited, 95 % interval."""

    part: str
    parameters: int
    fraction: float
    low: float
    high: float


class MergeWeights(msgspec.Struct, frozen=True):
    """Of one layer (empty: what belongs to none): a weight a source, and the share that they leave unexplained."""

    layer: str
    weights: tuple[float, ...]
    unexplained: float


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """One model as a mixture of others. `gain`: how much of the distance to its nearest source the mixture explains,
    for methods that drop changes to a `base`: of the distance to that.

    By a sibling that has no part in it the gain is the squared cosine of two changes, at most about 0.1; by strangers
    zero; a checkpoint half-way between two others reaches 0.5, and more where training went on in one direction.

    `missing_parent`: more is left over than rounding, so that a parent is not among those given, or the mixture was
    changed afterwards; or it is none, and training went on in one direction. `sources` are then those that have part in
    it if it is one, or near relatives of them; weights cannot be known, and there are none.
    `same_as`: further methods that would have left the same values, to rounding.

    `last`: the one that was computed from the others, as rounding or dropped changes show; then it is `merged`. None
    where nothing tells: `merged` may be a mixture of its sources, or one of these was made from it and the rest.
    """

    merged: str
    sources: tuple[str, ...]
    method: MergeMethod
    weights: tuple[float, ...]
    layers: tuple[MergeWeights, ...]
    gain: float
    unexplained: float
    missing_parent: bool
    marks: tuple[str, ...]
    base: str | None = None
    density: float | None = None
    condition: float | None = None
    origins: tuple[tuple[str, str, str], ...] = ()  # layer of the merged model, source, its layer
    same_as: tuple[MergeMethod, ...] = ()
    last: str | None = None


class Triplet(msgspec.Struct, frozen=True, kw_only=True):
    """The pair and a third relative: the cosine at each corner, 95 % interval. Near zero: that one lies between.

    `opposed`: clearly below zero, which drift in directions of its own does not make; a mixture does, a checkpoint on
    the way of a training in one direction, and a model that learnt what another learnt as well. `mixture`: one of the
    three is known to be one.
    """

    third: str
    at_a: tuple[float, float, float]
    at_b: tuple[float, float, float]
    at_third: tuple[float, float, float]
    shape: Literal["a between", "b between", "third between", "star", "opposed", "mixture", "unclear"]


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """Asked only after a rejection. `drawing` is the layer map in text, a line a layer of b.

    Shares are of what could be compared; their intervals hold what was not, as new and as inherited. Of models with
    very many tensors `tensors` keeps an even sample; `tensors_compared` counts them all.
    """

    kinds: tuple[KindFound, ...]
    direction: Direction
    direction_probability: float | None
    direction_reasons: tuple[str, ...]
    shared: Shared | None
    by_role: tuple[PartShare, ...] = ()
    by_layer: tuple[PartShare, ...] = ()
    layer_map: tuple[tuple[str, str | None], ...] = ()
    drawing: tuple[str, ...] = ()
    tensors: tuple[TensorFact, ...] = ()
    tensors_compared: int = 0
    not_compared: tuple[NotCompared, ...] = ()
    axes: AxesFacts | None = None
    tokens: TokenFacts | None = None
    merge: Merge | None = None
    triplets: tuple[Triplet, ...] = ()
    limits: tuple[str, ...] = ()
