"""Who descends from whom: pure functions of the truths of a zoo, {name: truth.json}.

Three ways lead from one model to another. Weights are handed down (`parents`, `relations`); an initial seed may be
shared (`same_seed_as`); answers may be imitated (`teachers`). The first found in this order names a pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush
from itertools import combinations, islice
from typing import Any

Truth = Mapping[str, Any]
Truths = Mapping[str, Truth]
Kinds = tuple[str, ...]
Row = dict[str, str]

SIBLINGS = 60  # pairs of children of one parent that are measured; a base has up to eighty children
ACROSS = "across"
PARTS = "component-reuse"  # the kind that carries named parts of a model; all others carry it whole


@dataclass(frozen=True)
class Relation:
    """How b stands to a. `kinds` run from the ancestor to the descendant; for siblings from the common ancestor
    `through` to a and then from there to b; where only the initial weights are shared, "shared-init" stands between.

    No descent, and an arm that carried named parts only: `partial`, for the two may have nothing in common.
    """

    outcome: str  # unrelated, descendant, siblings, shared-init, distilled
    kinds: Kinds = ()
    direction: str = "neither"  # "a->b": a is the ancestor, or the teacher
    through: str = ""

    @property
    def partial(self) -> bool:
        return self.outcome != "descendant" and PARTS in self.kinds


def handed_down(truth: Truth) -> dict[str, str]:
    """Parents in weights, and the kind of each; single models record one kind for their only parent."""
    return dict(truth.get("relations") or dict.fromkeys(truth.get("parents", ()), truth["kind"]))


def lineage(truths: Truths, name: str, teachers: bool = False) -> dict[str, Kinds]:
    """Every ancestor and the model itself, each with the kinds of the way down to it.

    Of several ways the shortest that carries whole models, else the shortest. With `teachers`, those whose answers
    were learnt count as ancestors too.
    """
    found: dict[str, Kinds] = {}
    waiting: list[tuple[bool, int, int, str, Kinds]] = [(False, 0, 0, name, ())]
    pushed = 0  # the first named of equal parents goes first
    while waiting:
        partial, length, _, current, kinds = heappop(waiting)
        if current in found:
            continue
        found[current] = kinds
        for parent, kind in _above(truths.get(current), teachers).items():
            pushed += 1
            heappush(waiting, (partial or kind == PARTS, length + 1, pushed, parent, (kind, *kinds)))
    return found


def _above(truth: Truth | None, teachers: bool) -> dict[str, str]:
    if truth is None:
        return {}
    taught = dict.fromkeys(truth.get("teachers", ()), "distilled") if teachers else {}
    return handed_down(truth) | taught


def relation(truths: Truths, a: str, b: str) -> Relation:
    """Descent of weights wins over a shared seed, which wins over distillation."""
    if a == b:
        raise ValueError(f"{a} was compared with itself")
    to_a, to_b = lineage(truths, a), lineage(truths, b)
    return (
        _descent(a, b, to_a, to_b, "descendant", "siblings")
        or _shared_init(truths, to_a, to_b)
        or _descent(a, b, lineage(truths, a, True), lineage(truths, b, True), "distilled", "distilled")
        or Relation("unrelated")
    )


def _descent(
    a: str, b: str, to_a: Mapping[str, Kinds], to_b: Mapping[str, Kinds], straight: str, apart: str
) -> Relation | None:
    if a in to_b:
        return Relation(straight, to_b[a], "a->b", a)
    if b in to_a:
        return Relation(straight, to_a[b], "b->a", b)
    ways = [Relation(apart, to_a[name] + to_b[name], "neither", name) for name in to_a.keys() & to_b.keys()]
    return min(ways, key=_distance, default=None)


def _distance(way: Relation) -> tuple[bool, int, str]:
    """Ways that carry whole models are nearer than any that carries parts."""
    return way.partial, len(way.kinds), way.through


def _shared_init(truths: Truths, to_a: Mapping[str, Kinds], to_b: Mapping[str, Kinds]) -> Relation | None:
    ways = [
        Relation("shared-init", (*down_a, "shared-init", *down_b), "neither", x)
        for x, down_a in to_a.items()
        for y, down_b in to_b.items()
        if first_weights(truths, x) == first_weights(truths, y)
    ]
    return min(ways, key=_distance, default=None)


def first_weights(truths: Truths, name: str) -> str:
    """What the initial weights were drawn by: two models are alike in it if they began alike.

    Models without parents draw theirs from a seed, and equal seeds give equal numbers, if only as far as the shapes
    agree; models that were trained for something else may still share them. A child has its weights from its parents.
    """
    truth = truths.get(name, {})
    if truth.get("same_seed_as"):
        return first_weights(truths, truth["same_seed_as"])
    alone = not truth.get("parents") and truth.get("seed") is not None
    return f"seed {truth['seed']}" if alone else name


def halves(truths: Truths) -> dict[str, str]:
    """Every model in `tune` or `test`, thresholds being set on the one and scored on the other.

    All models that have anything to do with each other fall together, for a threshold that saw a base has seen its
    children: bases joined by a merge, a graft, a teacher or a seed are one clan, and the hash of the clan's first name
    decides. Models of another draw than the first were made to be tested on, all of them.
    """
    return {name: "test" if truths[name].get("draw") else _half(clan) for clan in clans(truths) for name in clan}


def _half(clan: Iterable[str]) -> str:
    return ("tune", "test")[_digest(min(clan, key=lambda name: (name.count("."), name)))[0] & 1]


def clans(truths: Truths) -> list[set[str]]:
    """The models by connection of any kind."""
    clan_of: dict[str, set[str]] = {}
    for name, truth in truths.items():
        seed = [truth["same_seed_as"]] if truth.get("same_seed_as") else []
        joined = {name, first_weights(truths, name), *handed_down(truth), *truth.get("teachers", ()), *seed}
        joined = joined.union(*(clan_of[member] for member in joined if member in clan_of))
        clan_of |= dict.fromkeys(joined, joined)
    distinct = {id(clan): clan for clan in clan_of.values()}
    return [clan & truths.keys() for clan in distinct.values() if clan & truths.keys()]


def pair_half(half_of: Mapping[str, str], a: str, b: str) -> str:
    """`tune`, `test`, or `across` for two strangers of different halves.

    Not by a hash of the pair: every model would then stand in both halves, and whatever is odd about it would be
    tuned on and tested on. A pair across serves laws that need no threshold, and no claim about a threshold.
    """
    return half_of[a] if half_of[a] == half_of[b] else ACROSS


def pairs_for_calibration(truths: Truths) -> list[Row]:
    """The pairs to measure, by name. Truths need their `shape`, with `hidden`, `layers` and `class`.

    Partial relations are left out: whether such a pair has anything in common is not known.
    """
    half_of = halves(truths)
    pairs = {(a, b) if a < b else (b, a) for a, b in (*_strangers(truths), *_relatives(truths), *_siblings(truths))}
    found = {(a, b): relation(truths, a, b) for a, b in sorted(pairs)}
    return [_row(truths, half_of, a, b, how) for (a, b), how in found.items() if not how.partial]


def _row(truths: Truths, half_of: Mapping[str, str], a: str, b: str, found: Relation) -> Row:
    classes = sorted({truths[a]["shape"]["class"], truths[b]["shape"]["class"]})
    return {
        "a": a,
        "b": b,
        "outcome": found.outcome,
        "kinds": " ".join(found.kinds),
        "direction": found.direction,
        "class": "+".join(classes),
        "half": pair_half(half_of, a, b),
    }


def _strangers(truths: Truths) -> Iterator[tuple[str, str]]:
    """All pairs of one width. Across classes too: a child that was given experts is compared with a dense parent."""
    by_width: dict[int, list[str]] = defaultdict(list)
    for name, truth in truths.items():
        if truth["kind"] == "unrelated":
            by_width[truth["shape"]["hidden"]].append(name)
    for names in by_width.values():
        yield from combinations(names, 2)


def _relatives(truths: Truths) -> Iterator[tuple[str, str]]:
    """Every model with its ancestors, its teachers, and those that began with the same weights."""
    began: dict[str, list[str]] = defaultdict(list)
    for name in truths:
        began[first_weights(truths, name)].append(name)
    for name in truths:
        above = lineage(truths, name, teachers=True)
        alike = {other for ancestor in lineage(truths, name) for other in began[first_weights(truths, ancestor)]}
        yield from ((name, other) for other in sorted(truths.keys() & {*above, *alike}) if other != name)


def _siblings(truths: Truths) -> Iterator[tuple[str, str]]:
    """Parents of one merge, and children of one parent: so many, drawn by the hash of their names."""
    children: dict[str, list[str]] = defaultdict(list)
    for name, truth in truths.items():
        for parent in handed_down(truth):
            children[parent].append(name)
        yield from combinations([parent for parent in handed_down(truth) if parent in truths], 2)
    for names in children.values():
        drawn = sorted(combinations(sorted(names), 2), key=lambda pair: _digest("|".join(pair)))
        yield from islice((pair for pair in drawn if not relation(truths, *pair).partial), SIBLINGS)


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()
