"""docs/json.md names every key of the record, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from modelkin.compare import compare
from modelkin.demo import bundled
from modelkin.questions import QUESTIONS
from modelkin.records import Comparison, Evidence, Unanswered
from modelkin.verdict import WEIGHTS

OTHERS = ("identity", "copies", "gauge", "coverage", "unmasked-neurons")
PAGE = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")


def sections() -> dict[str, list[list[str]]]:
    """Rows of the table under each heading, cell by cell."""
    found: dict[str, list[list[str]]] = {}
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        rows = [line.strip("|").split(" | ") for line in body.splitlines() if line.startswith("| `")]
        found[title.strip()] = [[cell.strip() for cell in row] for row in rows]
    return found


def named(title: str) -> list[str]:
    return [name for row in sections()[title] for name in re.findall(r"`([^`]+)`", row[0])]


def structs(kind: Any, found: dict[str, type]) -> dict[str, type]:
    """Every record that a value of this type may hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ not in found:
        found[kind.__name__] = kind
        for inner in get_type_hints(kind).values():
            structs(inner, found)
    elif get_origin(kind) is not None or isinstance(kind, UnionType):
        for inner in get_args(kind):
            structs(inner, found)
    return found


RECORDS = structs(Comparison, {})


@pytest.mark.parametrize("name", list(RECORDS))
def test_every_field_is_named_and_no_other(name: str) -> None:
    record = RECORDS[name]
    tag = ["answer"] if record in (Evidence, Unanswered) else []
    assert sorted(named(name)) == sorted([*tag, *record.__struct_encode_fields__])  # type: ignore[attr-defined]


def test_there_is_a_section_for_every_record_and_no_more() -> None:
    assert sections().keys() == RECORDS.keys() | {"Tokenizers", "The questions"}
    assert len(RECORDS) > 15


def test_tokenizers_are_named_like_the_facts() -> None:
    models = bundled()
    facts = compare(str(models["dune"]), str(models["birch"])).tokenizers
    assert facts is not None
    assert named("Tokenizers") == list(facts)
    merges = next(row[2] for row in sections()["Tokenizers"] if row[0] == "`merges`")
    assert re.findall(r"`([^`]+)`", merges) == list(facts["merges"])


def test_every_question_is_named() -> None:
    known = {question.id for question in QUESTIONS} | WEIGHTS.keys() | set(OTHERS)
    assert set(named("The questions")) == known


@pytest.mark.parametrize("title", list(sections()))
def test_every_row_says_what_it_means_and_what_it_would_be_between_strangers(title: str) -> None:
    rows = sections()[title]
    assert rows
    for row in rows:
        assert len(row) == (3 if title == "The questions" else 4)
        assert all(row)
