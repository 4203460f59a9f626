"""Imports run one way. The table below is the house; the source is read, not run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "modelkin"

# room -> rooms of ours that it may import (itself always)
HOUSE: dict[str, set[str]] = {
    "errors": set(),
    "records": {"errors"},
    "metrics": set(),
    "stats": {"errors", "records"},
    "sources": {"errors", "records"},
    "formats": {"errors", "records", "sources"},
    "vocabulary": {"errors", "records", "sources"},
    "checkpoint": {"errors", "records", "sources", "formats", "vocabulary"},
    "architectures": {"errors", "records", "checkpoint", "formats"},
    "inspection": {"errors", "records", "sources", "checkpoint", "architectures", "vocabulary"},
    "alignment": {"errors", "records", "architectures", "metrics", "stats"},
    "sampling": {"errors", "records", "sources", "architectures"},
    "relation": {"errors", "records", "architectures", "vocabulary", "metrics", "stats", "sampling", "alignment"},
    "questions": {
        "errors",
        "records",
        "architectures",
        "checkpoint",
        "vocabulary",
        "metrics",
        "stats",
        "sampling",
        "alignment",
    },
    "verdict": {"errors", "records", "stats"},
    "journal": {"sources"},
    "fingerprints": {"errors", "records", "sources", "architectures", "questions", "journal"},
    "full": {"records", "sources", "sampling", "questions", "journal"},
    "planning": {"records", "sources", "inspection", "alignment", "sampling", "questions", "fingerprints"},
    "unmasking": {"records", "sources", "sampling", "alignment", "questions", "verdict"},
    "descent": {"records", "sources", "architectures", "sampling", "alignment", "questions", "relation"},
    "claims": {"errors", "records", "sources", "checkpoint", "vocabulary"},
    "parties": {"records", "architectures", "inspection", "fingerprints", "claims"},
    "beside": {"errors", "records", "sources", "checkpoint", "architectures", "questions"},
    "compare": {
        "errors",
        "records",
        "sources",
        "checkpoint",
        "architectures",
        "inspection",
        "sampling",
        "questions",
        "verdict",
        "journal",
        "fingerprints",
        "full",
        "planning",
        "unmasking",
        "descent",
        "parties",
        "beside",
    },
    "verify": {"errors", "records", "sources", "sampling", "questions", "verdict", "compare"},
    "survey": {
        "errors",
        "records",
        "sources",
        "checkpoint",
        "architectures",
        "inspection",
        "vocabulary",
        "metrics",
        "stats",
        "sampling",
        "questions",
    },
    "reference": {"errors", "records", "metrics", "stats"},
    "demo": {"errors", "records"},
    "studies": {
        "errors",
        "records",
        "metrics",
        "stats",
        "architectures",
        "checkpoint",
        "sources",
        "inspection",
        "sampling",
        "survey",
        "reference",
        "demo",
    },
    "report": {"errors", "records"},
    "tour": {"records", "sources", "compare", "demo"},
    "options": {"errors", "sources"},
    "console": {"sources", "report", "options"},
    "showing": {"errors", "records", "report", "console", "options"},
    "commands": {
        "showing",
        "errors",
        "records",
        "sources",
        "survey",
        "studies",
        "reference",
        "report",
        "console",
        "options",
    },
    "cli": {
        "errors",
        "records",
        "sources",
        "architectures",
        "inspection",
        "journal",
        "compare",
        "tour",
        "verify",
        "survey",
        "studies",
        "reference",
        "report",
        "demo",
        "console",
        "options",
        "showing",
        "commands",
    },
}
# Files outside a room, with why.
LOOSE = {"__init__": {"compare", "verify", "inspection", "checkpoint", "architectures", "sources", "errors", "records"}}


def rooms() -> list[str]:
    names = {p.stem if p.suffix == ".py" else p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    return sorted(names - {"__pycache__", "__main__"})


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "modelkin":
                found |= {f"modelkin.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    parts = [name.split(".") for name in found]
    return {part[1] for part in parts if part[0] == "modelkin" and len(part) > 1} - {"__version__"}


def test_every_room_is_in_the_table() -> None:
    assert set(rooms()) == HOUSE.keys() | LOOSE.keys()


@pytest.mark.parametrize("room", sorted(HOUSE | LOOSE))
def test_a_room_imports_only_what_the_table_allows(room: str) -> None:
    place = PACKAGE / room
    files = sorted(place.rglob("*.py")) if place.is_dir() else [PACKAGE / f"{room}.py"]
    allowed = (HOUSE | LOOSE)[room] | {room}
    for file in files:
        assert imported_rooms(file) <= allowed, file


def test_the_table_has_no_cycle() -> None:
    seen: set[str] = set()
    for room, needs in HOUSE.items():
        assert needs <= seen, f"{room} stands before what it imports"
        seen.add(room)
