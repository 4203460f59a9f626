"""Models in sentences: by the last part of a local path, and by more of it where two would be called the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from modelkin.records.terms import Direction

# What a turn of one model's axes is called by the other: alignments are told as seen from a.
TURNS = {
    "hidden axes are a rotation of A's": "hidden axes are a rotation of B's",
    "hidden axes are a rotation of some of A's": "hidden axes are a rotation of B's and others",
    "hidden axes are a rotation of A's and others": "hidden axes are a rotation of some of B's",
}


def short_names(names: Iterable[str | None]) -> dict[str, str]:
    """What to call each. Names on a hub are short, and owners matter: they stay as they are."""
    known = list(dict.fromkeys(name for name in names if name))
    parts = {name: PurePath(name).parts if PurePath(name).is_absolute() else (name,) for name in known}
    kept = dict.fromkeys(known, 1)
    while True:
        called = {name: "/".join(parts[name][-kept[name] :]) for name in known}
        taken = list(called.values())
        alike = [name for name in known if taken.count(called[name]) > 1 and kept[name] < len(parts[name])]
        if not alike:
            return called
        for name in alike:
            kept[name] += 1


def mixture_of(side: str, sources: Iterable[str]) -> str:
    """What is said of the one of a pair, a or b, that is a mixture with the other in it."""
    return f"{side.upper()} is a mixture of {', '.join(short_names(sources).values())}"


def seen_from_child(undone: Sequence[str], order: Direction) -> tuple[str, ...]:
    """What was done to the weights of the child, where that is a: its axes are turned against those of b."""
    return tuple(TURNS.get(each, each) for each in undone) if order == "b->a" else tuple(undone)
