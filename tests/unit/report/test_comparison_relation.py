"""What was done, who came first and where things stand, in lines that a reader cannot take for more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from test_comparison_text import CASES, comparison, party

from modelkin.console import so_far
from modelkin.records import Beside, BriefAnswer, Comparison, Direction, Kind, KindShare, Relation, Role, Shared
from modelkin.records.relation import KindFound, TensorFact
from modelkin.report.comparison_relation import STANDS, alignment_lines, relation_lines
from modelkin.report.comparison_text import comparison_page
from modelkin.report.text import render

REASONS = ("B was turned", "that points to B")


def fact(role: Role, shape: tuple[int, ...], correlation: float) -> TensorFact:
    fields: dict[str, Any] = {
        "a": f"0 {role.value}", "b": f"0 {role.value}", "role": role, "layer": "0", "shape": shape, "values": 64,
        "dtype_a": "BF16", "dtype_b": "BF16", "slope": 1.0, "difference": 1.0, "correlation": correlation, "same": 0.0,
        "moved": 9.0, "zeros_a": 0.0, "zeros_b": 0.0, "emptied_a": False, "emptied_b": False, "cast_a": None,
        "cast_b": None, "held_a": "BF16", "held_b": "BF16", "kurtosis_a": 3.0, "kurtosis_b": 3.0, "norm_a": 1.0,
        "norm_b": 1.0,
    }  # fmt: skip
    return TensorFact(**fields)


def told(direction: Direction, *kinds: Kind, found: tuple[Kind, ...] | None = None) -> Comparison:
    """A comparison whose verdict names these kinds; `found`: those that all tensors showed, if others."""
    relation = Relation(
        kinds=tuple(KindFound(kind, None, "it shows", "it does not") for kind in found or kinds),
        direction=direction,
        direction_probability=None,
        direction_reasons=REASONS,
        shared=Shared(0.34, 0.3, 0.4),
        tensors=(fact(Role.UP, (8, 8), 0.24), fact(Role.INPUT_NORM, (8,), 0.16)),
    )
    case = comparison(CASES["related"])
    shared = None if "shared-init" in kinds else relation.shared
    verdict = msgspec.structs.replace(
        case.verdict, direction=direction, kinds=tuple(KindShare(kind, None) for kind in kinds), shared=shared
    )
    return msgspec.structs.replace(case, verdict=verdict, relation=relation)


@pytest.mark.parametrize(
    ("direction", "start"),
    [
        ("a->b", "A seems to have come first: "),
        ("b->a", "B seems to have come first: "),
        ("neither", "neither comes from the other: "),
        ("unknown", "who came first is not told: "),
    ],
)
def test_the_order_is_told_once_with_all_its_reasons(direction: Direction, start: str) -> None:
    lines = [line for line in relation_lines(told(direction, "fine-tune")) if line.endswith("points to B")]
    assert lines == [f"{start}B was turned; that points to B"]


def test_a_reason_that_a_kind_was_told_by_is_not_told_again() -> None:
    case = told("unknown", "depth-prune")
    assert case.relation is not None
    again = msgspec.structs.replace(case.relation, direction_reasons=("it shows",))
    lines = relation_lines(msgspec.structs.replace(case, relation=again))
    assert "who came first is not told: as said above" in lines
    hidden = msgspec.structs.replace(case.verdict, kinds=())  # then nothing stands above
    lines = relation_lines(msgspec.structs.replace(case, relation=again, verdict=hidden))
    assert "who came first is not told: it shows" in lines


@pytest.mark.parametrize("found", [("shared-init",), ("undetermined",)])
def test_what_began_alike_has_neither_order_nor_share_but_what_agrees(found: tuple[Kind, ...]) -> None:
    lines = relation_lines(told("neither", "shared-init", found=found))
    page = "\n".join(lines)
    assert "come" not in page
    assert "came" not in page
    assert "34" not in page
    if found == ("shared-init",):
        assert lines == ["shared-init: it shows; between strangers: it does not"]
    else:
        assert lines == [
            "what agrees: matrices by a correlation of 0.24 and norm gains by a correlation of 0.16 (middle values); "
            "between strangers both are near 0"
        ]


def test_where_parts_stand_is_told_in_sentences() -> None:
    found = {"hidden": "identity", "neurons": "subset", "heads": "permutation", "experts": "one MLP", "layers": "moved"}
    lines = alignment_lines(found)
    assert lines[-1] == "layers: not those of A with the same numbers"
    assert [line.partition(": ")[2] for line in lines] == [
        STANDS[name] for name in ("subset", "permutation", "one MLP", "moved")
    ]


def test_a_control_keeps_its_name_whole_at_80_columns() -> None:
    name = "somebody-with-a-long-name/and-a-model-with-a-longer-one-7b"
    answers = tuple(
        BriefAnswer(question=question, statistic=1.0, n=128, log10_pvalue=-0.1, strangers="1 of 128 on average")
        for question in ("hidden-axes-by-gains", "neurons", "hidden-axes-by-embeddings", "layer-map", "attention")
    )
    row = Beside(
        id=name, revision=None, side="a", budget="standard", outcome="unrelated", sentence="…", answers=answers
    )
    page = render(
        comparison_page(msgspec.structs.replace(comparison(CASES["related"]), controls=(row,), candidates=(row,))),
        width=80,
    )
    assert page.count(f"{name} with A") == 2
    assert page.count(f"{name} with A: unrelated") == 1  # of the candidate; a control is asked too little for that
    assert "norm gains 1 of 128, MLP neurons 1 of 128, token embeddings 1 of 128" in " ".join(page.split())


def test_one_of_a_thing_is_not_many() -> None:
    case = comparison(CASES["related"])
    one = msgspec.structs.replace(case, b=party("tiny/one", 1), cost=msgspec.structs.replace(case.cost, requests=1))
    page = render(comparison_page(one), width=80)
    assert "1 layer," in page
    assert "1 request;" in page


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("hashing", "1.5 kB of 3.0 MB"),
        ("reading acme/base", "1.5 kB of 3.0 MB"),
        ("calling every neuron, layers 0 and 0", "1.5 kB of 3.0 MB"),
        ("drawing", "1,500 of 3,000,000"),
        ("comparing controls", "1,500 of 3,000,000"),
        ("comparing whole tensors", "1,500 of 3,000,000"),
        ("reading models", "1,500 of 3,000,000"),
        ("matching experts", "1,500 of 3,000,000"),
        ("what was changed", "1,500 of 3,000,000"),
    ],
)
def test_progress_counts_in_the_unit_of_the_work(what: str, shown: str) -> None:
    assert so_far(what, 1_500, 3_000_000) == shown
    assert so_far(what, 0, 0) == ""
