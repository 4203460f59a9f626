"""Models in sentences: by the last part of a local path, and by more of it where two would be called the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath


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
