"""Files that are whole or not there: written beside their place, and put there once everything is written.

A disk that fills up on the way leaves an earlier result as it was, and no half of the new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


def write_whole(folder: Path, bodies: Mapping[str, str | bytes]) -> list[Path]:
    """All of them, or none."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = {_beside(folder / name): folder / name for name in bodies}
    try:
        for path, body in zip(beside, bodies.values(), strict=True):
            path.write_bytes(body.encode() if isinstance(body, str) else body)
        for path, place in beside.items():
            os.replace(path, place)
    finally:
        for path in beside:
            path.unlink(missing_ok=True)
    return list(beside.values())


@contextmanager
def replacing(place: Path) -> Iterator[Path]:
    """Where to write what shall stand at `place`; it is put there at the end, and taken away if there is none."""
    path = _beside(place)
    try:
        yield path
        os.replace(path, place)
    finally:
        path.unlink(missing_ok=True)


def _beside(place: Path) -> Path:
    """In the same folder, for only there can one file take the place of another; with the same ending."""
    return place.with_name(f".modelkin-{token_hex(8)}{place.suffix}")
