"""Which layers of two models stand beside each other before anything is known of how they correspond."""

from __future__ import annotations

from collections.abc import Sequence

Facing = tuple[tuple[str, str], ...]


def facing(a: Sequence[str], b: Sequence[str], most: int | None = None) -> Facing:
    """Names of layers in pairs: counted from the start in the lower half, from the end in the upper half.

    Where depths are equal that is layer i beside layer i. Where layers were inserted or dropped in the middle, both
    ends still meet their own. Of more pairs than `most`, as many are taken evenly, first and last among them.
    """
    pairs = [pair for stack in _stacks(a, b) for pair in _beside(*stack)]
    return tuple(pairs) if most is None or len(pairs) <= most else tuple(pairs[i] for i in _evenly(len(pairs), most))


def two_depths(a: Sequence[str], b: Sequence[str]) -> Facing:
    """A quarter from the start and a quarter from the end: deep enough to have learnt, and near an end."""
    pairs = facing(a, b)
    if len(pairs) < 2:
        return pairs
    quarter = len(pairs) // 4
    return (pairs[quarter], pairs[len(pairs) - 1 - quarter])


def _stacks(a: Sequence[str], b: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """Encoder beside encoder, decoder beside decoder; a plain model stands beside a decoder."""
    mine, theirs = _by_stack(a), _by_stack(b)
    if not mine.keys() & theirs.keys() and len(mine) == 1 != len(theirs):
        mine = {"decoder": next(iter(mine.values()))}
    elif not mine.keys() & theirs.keys() and len(theirs) == 1 != len(mine):
        theirs = {"decoder": next(iter(theirs.values()))}
    return [(mine[name], theirs[name]) for name in mine if name in theirs]


def _by_stack(names: Sequence[str]) -> dict[str, list[str]]:
    stacks: dict[str, list[str]] = {}
    for name in names:
        stacks.setdefault(name.rpartition(".")[0], []).append(name)
    return stacks


def _beside(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, str]]:
    shared = min(len(a), len(b))
    lower = (shared + 1) // 2
    starts = list(zip(a[:lower], b[:lower], strict=True))
    upper = shared - lower
    return starts + (list(zip(a[-upper:], b[-upper:], strict=True)) if upper else [])


def _evenly(count: int, wanted: int) -> list[int]:
    if wanted == 1:
        return [count // 2]
    return sorted({round(i * (count - 1) / (wanted - 1)) for i in range(wanted)})
