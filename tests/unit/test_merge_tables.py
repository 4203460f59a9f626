"""The table of merges in docs/calibration.md: each cell against a count made by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from benchmarks import merges


def truth(name: str, step: str, parents: list[str], **details: object) -> dict[str, Any]:
    return {"name": name, "kind": "merge", "parents": parents, "made_by": {"step": step, "details": details}}


def plain(name: str) -> dict[str, Any]:
    return {"name": name, "kind": "fine-tune", "parents": ["twin-00"], "made_by": {}}


def cases_of(*truths: dict[str, Any]) -> list[merges.Case]:
    return list(merges.cases({t["name"]: t for t in truths}))


def test_a_merge_is_asked_with_all_parents_with_a_bystander_and_without_one() -> None:
    found = cases_of(plain("rl.twin-00"), truth("slerp.twin-00", "slerp", ["sft.twin-00", "sft-prose.twin-00"], t=0.4))
    assert [case.given for case in found] == [merges.ALL, merges.BYSTANDER, merges.MISSING]
    assert [case.candidates for case in found] == [
        ("sft-prose.twin-00", "twin-00"),
        ("sft-prose.twin-00", "twin-00", "rl.twin-00"),
        ("twin-00",),
    ]
    assert found[0].weights == pytest.approx((0.6, 0.4))
    assert found[2].weights == ()
    assert {case.parents for case in found} == {("sft.twin-00", "sft-prose.twin-00")}


def test_layers_of_a_passthrough_know_where_they_come_from() -> None:
    found = cases_of(truth("passthrough.twin-00", "passthrough", ["x", "y"], layers=[[0, 0], [1, 3]]))
    assert found[0].origins == (("0", "x", "0"), ("1", "y", "3"))


def test_what_was_never_merged_is_asked_beside_it() -> None:
    found = cases_of(plain("sft.twin-00"), plain("rl.twin-00"))
    assert [(case.given, case.a, case.b, case.candidates) for case in found] == [
        (merges.NEVER, "twin-00", "sft.twin-00", ("rl.twin-00",))
    ]


def row(step: str, given: str, **told: str) -> dict[str, str]:
    empty = merges.Row(step, given, "a", "b", 1, "", "", "", "", "")
    return {name: str(value) for name, value in asdict(empty).items()} | told


def test_a_line_counts_what_was_right() -> None:
    rows = [
        row("linear", merges.ALL, method="linear", weight_error="0.0010", missing_parent="0"),
        row("linear", merges.ALL, method="unknown", weight_error="0.0300", missing_parent="1", innocent_named="2"),
        row("linear", merges.MISSING, method="unknown", missing_parent="1"),
        row("sft", merges.NEVER, is_merge="0"),
        row("passthrough", merges.ALL, method="passthrough", origins_right="7 of 8", missing_parent="0"),
    ]
    cells = [line.strip("| ").split(" | ") for line in merges.merges_table(rows).splitlines()[2:]]
    assert cells == [
        ["linear", "a parent missing", "1", "1", "–", "–", "–", "–", "1", "0"],
        ["linear", "all parents", "2", "2", "1", "1 of 2", "0.0300", "–", "1", "1"],
        ["passthrough", "all parents", "1", "1", "1", "–", "–", "7 of 8", "0", "0"],
        ["sft", "never merged", "1", "0", "–", "–", "–", "–", "–", "0"],
    ]
