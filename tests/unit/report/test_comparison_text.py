from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from modelkin.questions import QUESTIONS
from modelkin.records import (
    Answer,
    Assumption,
    Comparison,
    Cost,
    Evidence,
    LayerFinding,
    NotEvidence,
    Null,
    Party,
    Unanswered,
)
from modelkin.report.comparison_text import (
    COUNTS,
    LABELS,
    QUESTION_WIDTH,
    comparison_page,
    fails,
    pvalue_text,
    shortened,
)
from modelkin.report.text import render
from modelkin.verdict import ALPHA, ALPHA_B, WEIGHTS, adjusted, judge


def party(name: str, layers: int = 24) -> Party:
    return Party(
        id=name,
        revision="3f2c1a0d9e8b7c6a5f4e3d2c1b0a99887766554433",
        format="safetensors",
        parameters=7_240_000_000,
        layers=layers,
        hidden=4096,
        vocabulary=32_000,
        files=(),
    )


def evidence(question: str, index_set: str, log10: float | None, **changes: object) -> Evidence:
    fields: dict[str, object] = {
        "question": question,
        "index_set": index_set,
        "grade": "A",
        "statistic": 252.0,
        "pvalue": None if log10 is None else max(10.0 ** max(log10, -323), 5e-324),
        "log10_pvalue": log10,
        "null": Null("one finds itself"),
        "n": 256,
        "effect": 0.9,
        "observed": "252 of 256 found themselves",
        "strangers": "1 of 256 on average",
        "assumptions": (Assumption("axes may be renumbered", True),),
        "detectable": 0.04,
    }
    return Evidence(**(fields | changes))  # type: ignore[arg-type]


GAINS, NEURONS = ("hidden-axes-by-gains", "hidden axes"), ("neurons", "neurons")
FEW = {"observed": "2 of 256 found themselves", "effect": 0.0, "statistic": 2.0}
FAILED = {"grade": None, "assumptions": (Assumption("positions are not fixed in the family", False),)}
NOT_ASKED = Unanswered("experts", "neither model has experts, so that there is nothing to match between the two")
CASES: dict[str, list[Answer]] = {
    "related": [evidence(*GAINS, -400.2), evidence(*NEURONS, -40.5), NOT_ASKED],
    "unrelated": [evidence(*GAINS, -0.45, **FEW), evidence(*NEURONS, -0.1, **FEW), NOT_ASKED],
    "undecided": [evidence(*GAINS, -40.0, **FAILED), evidence(*NEURONS, -3.0, **FEW), NOT_ASKED],
    "component-reuse": [evidence(*GAINS, -40.0), evidence(*NEURONS, -0.1, **FEW), NOT_ASKED],
    "identical": [evidence("identity", "files", None, statistic=2.0, n=2, observed="2 of 2 files"), NOT_ASKED],
}
COSINE = NotEvidence("cosine of norm gains", 0.99312, 0.99298, "the means alone make it so, between strangers too")
TOKENS = NotEvidence("tokenizer overlap", "31,988 of 32,000", None, "vocabularies are taken over by strangers")


def comparison(
    answers: list[Answer], a: str = "example/base-7b", b: str = "acme/orca-7b", deep: int = 24
) -> Comparison:
    return Comparison(
        modelkin="0.1",
        policy="2026-11",
        seed=0,
        budget="quick",
        a=party(a),
        b=party(b, deep),
        verdict=judge(answers, depths=(24, deep)),
        answers=adjusted(answers),
        not_evidence=(COSINE, TOKENS),
        cost=Cost(
            bytes_a=1_204_000, bytes_b=988_000, tensor_bytes_a=900_000, tensor_bytes_b=1, requests=14, seconds=2.34
        ),
    )


def coloured(page: Comparison) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, color_system="truecolor").print(comparison_page(page))
    return stream.getvalue()


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", list(CASES))
def test_every_outcome_fits_80_columns_and_shows_every_answer(name: str) -> None:
    case = comparison(CASES[name])
    page = render(comparison_page(case), width=80)
    assert max(map(cell_len, page.splitlines())) <= 80
    for answer in case.answers:
        assert LABELS[answer.question] in page
    assert "not asked: neither model has experts" in page
    for sentence in (case.verdict.sentence, *case.verdict.limits):
        assert squeezed(sentence) in squeezed(page)


@pytest.mark.parametrize("name", list(CASES))
def test_the_outcome_is_the_first_word(name: str) -> None:
    case = comparison(CASES[name])
    assert render(comparison_page(case), width=80).split()[0] == case.verdict.outcome.upper()
    assert "\x1b[" in coloured(case)
    assert "\x1b[" not in render(comparison_page(case), width=80)


def test_p_comes_from_its_logarithm() -> None:
    page = render(comparison_page(comparison(CASES["related"])), width=80)
    assert "6e-401" in page
    assert "3e-41" in page
    assert [pvalue_text(x) for x in (0.0, -0.3, -1.44, -2.43, -3.5, -4.0, -312.0, -40.52, -9.001)] == [
        "1.00", "0.50", "0.036", "0.0037", "0.00032", "1e-4", "1e-312", "3e-41", "1e-9",
    ]  # fmt: skip


def test_strength_beyond_the_controls_is_said_to_be_extrapolated() -> None:
    case = comparison(CASES["related"])
    verdict = msgspec.structs.replace(case.verdict, grade="B", log10_pvalue=-6.0)
    beyond = (Assumption("extrapolated: no 1,000 controls of its class reach so far", None),)
    for assumptions, shown in ((), "p ≤ 1e-6 (grade B)"), (beyond, "p ≤ 1e-6 (grade B, extrapolated)"):
        answers = (evidence(*NEURONS, -6.0, grade="B", assumptions=assumptions),)
        page = msgspec.structs.replace(case, verdict=verdict, answers=answers)
        assert shown in render(comparison_page(page), width=110)


def test_without_rejection_a_small_number_has_a_word_beside_it() -> None:
    """No number is kept back, but where what it rests on does not hold; and none reads as a find."""
    small = re.compile(r"(?<![\d.])(?:\de-\d+|0\.0\d+)\b(?! ·)")
    for name in ("unrelated", "undecided"):
        case = comparison(CASES[name])
        table = (
            render(comparison_page(case), width=110).partition("What was asked")[2].partition("p: strangers show")[0]
        )
        given = [answer for answer in case.answers if isinstance(answer, Evidence) and answer.log10_pvalue is not None]
        kept_back = [
            answer for answer in given if fails(answer) and pvalue_text(answer.log10_pvalue or 0.0) not in table
        ]
        assert [answer for answer in given if pvalue_text(answer.log10_pvalue or 0.0) not in table] == kept_back
        assert [found for line in table.splitlines() for found in small.findall(line)] == []
    assert COUNTS == {"A": ALPHA, "B": ALPHA_B}


def test_a_failed_assumption_is_told() -> None:
    page = render(comparison_page(comparison(CASES["undecided"])), width=80)
    assert squeezed("positions are not fixed in the family") in squeezed(page).replace("·", "")


def test_a_count_that_does_not_count_is_not_shown() -> None:
    page = " ".join(render(comparison_page(comparison(CASES["undecided"])), width=110).split())
    assert "252 of 256" not in page
    assert "does not count: what it rests on does not hold" in page
    assert "2 of 256 found themselves" in page  # a sound answer keeps its own


def test_equal_bytes_have_no_p() -> None:
    answers = [*CASES["identical"][:1], *CASES["related"]]
    case = comparison(answers)
    assert (case.verdict.pvalue, case.verdict.log10_pvalue, case.verdict.grade) == (None, None, "A")
    assert "p ≤" not in render(comparison_page(case), width=110)


def test_layers_that_share_some_neurons_are_not_said_to_match_none() -> None:
    """The map looks at few rows; among all neurons some are the same."""
    mapped = [(str(i), str(i) if i == 2 else "") for i in range(24)]
    found = tuple(LayerFinding(a, b, 16.0, 16, -13.0 if a else -0.3) for b, a in mapped)
    some = tuple(LayerFinding(str(i), str(i), 20.0, 512, -13.0 if i < 4 else -0.2) for i in range(24))
    answers: list[Answer] = [
        evidence("layer-map", "neurons", -40.0, per_layer=found),
        evidence("every-neuron", "neurons", -90.0, per_layer=some),
    ]
    page = render(comparison_page(comparison(answers)), width=110)
    assert "layers 0–1 of B share some neurons with layers 0–1 of A" in page
    assert "layer 3 of B shares some neurons with layer 3 of A" in page
    assert "layer 2 of B matches layer 2 of A" in page
    assert "layers 4–23 of B match none of A" in page
    assert "layers 4–23 of A match none of B" in page
    assert "layers 0–1 of B match none" not in page


def test_unrelated_says_what_would_have_been_noticed() -> None:
    page = render(comparison_page(comparison(CASES["unrelated"])), width=80)
    assert "correlation of 0.04 or more would have been noticed 99 times" in page


def test_what_is_not_evidence_stands_beside_what_means_alone_predict() -> None:
    page = render(comparison_page(comparison(CASES["unrelated"])), width=80)
    assert "cosine of norm gains: 0.9931; expected of strangers: 0.9930" in page
    assert "tokenizer overlap: 31,988 of 32,000; strangers have no single value\n" in page
    assert squeezed(COSINE.why) in squeezed(page)


def test_every_question_has_a_short_label() -> None:
    assert LABELS.keys() >= {question.id for question in QUESTIONS} | WEIGHTS.keys()
    assert max(map(len, LABELS.values())) <= QUESTION_WIDTH


def test_a_question_without_a_label_shows_its_id() -> None:
    page = render(comparison_page(comparison([evidence("later", "neurons", -0.2)])), width=80)
    assert "later" in page


def test_one_reason_is_told_once() -> None:
    reason = "the models have different widths"
    missing: list[Answer] = [evidence(*GAINS, -0.2), *(Unanswered(name, reason) for name in ("neurons", "attention"))]
    page = render(comparison_page(comparison(missing)), width=80)
    assert page.count(reason) == 1
    assert squeezed("MLP neurons, attention heads") in squeezed(page).replace(
        "notasked:themodelshavedifferentwidths", ""
    )


@pytest.mark.parametrize(
    ("log10", "shown"),
    [(-0.3, "0.50"), (-1.2, "0.063 · chance"), (-3.0, "0.001 · chance"), (-5.9, "1e-6 · chance")],
)
def test_a_p_that_does_not_count_is_ordinary_or_chance(log10: float, shown: str) -> None:
    page = render(comparison_page(comparison([evidence(*GAINS, log10, **FEW), evidence(*NEURONS, -0.1, **FEW)])), 80)
    row = next(line for line in page.splitlines() if line.startswith("norm gains"))
    assert row.endswith(f" {shown}")


def test_tokenizers_in_a_line() -> None:
    facts = {"ordinary": [32_000, 40_000], "shared": 31_000, "same_ids": 12}
    case = msgspec.structs.replace(comparison(CASES["unrelated"]), tokenizers=facts)
    page = " ".join(render(comparison_page(case), width=80).split())
    line = "32,000 and 40,000 ordinary tokens, 31,000 in common, 12 of them under the same number"
    assert f"{line}; that says nothing of the weights" in page
    assert "tokenizers:" not in render(comparison_page(comparison(CASES["unrelated"])), width=80)


def test_the_layer_map_is_told_in_runs_when_depth_differs() -> None:
    pairs = [(i, i) for i in range(16)] + [(i, i - 8) for i in range(16, 32)]
    found = tuple(LayerFinding(str(a), str(b), 16.0, 16, -13.0) for b, a in pairs)
    answers: list[Answer] = [evidence(*GAINS, -40.0), evidence("layer-map", "neurons", -40.0, per_layer=found)]
    page = render(comparison_page(comparison(answers, deep=32)), width=80)
    assert "layers 0–15 of B match layers 0–15 of A" in page
    assert "layers 16–31 of B match layers 8–23 of A" in page
    assert "depth-upscale" in page
    assert "How the layers match" not in render(comparison_page(comparison(CASES["related"])), width=80)


def test_layers_without_a_match_are_told_of_both_models() -> None:
    pairs = [*((str(i), str(i)) for i in range(4)), ("4", ""), *((str(i), str(i + 3)) for i in range(5, 20))]
    found = tuple(LayerFinding(a, b, 16.0, 16, -13.0) for b, a in pairs)
    answers: list[Answer] = [evidence(*GAINS, -40.0), evidence("layer-map", "neurons", -40.0, per_layer=found)]
    page = render(comparison_page(comparison(answers, deep=20)), width=80)
    assert "layer 4 of B matches none of A" in page
    assert "layers 4–7 of A match none of B" in page
    assert "layer 23 of A matches none of B" in page


@pytest.mark.parametrize(
    "name", ["[red]x[/red]", "<b>x</b>", "[/]", "a\x1b[31mb", "owner/" + "long-" * 40 + "v2", "소유자/" + "모델" * 60]
)
def test_names_stay_text_and_never_break_the_page(name: str) -> None:
    case = comparison(CASES["related"], a=name, b=name)
    page = render(comparison_page(case), width=80)
    assert max(map(cell_len, page.splitlines())) <= 80
    assert "\x1b" not in page
    assert page.count("7.2 billion parameters, 24 layers, 4,096 wide") == 2
    if len(name) < 15 and name.isprintable():
        assert name in page
        assert name in coloured(case)


def test_markup_in_answers_stays_text() -> None:
    answers: list[Answer] = [
        evidence(*GAINS, -40.0, observed="[bold]7[/bold]"),
        Unanswered("experts", "[red]none[/red]"),
    ]
    page = render(comparison_page(comparison(answers)), width=80)
    assert "[bold]7[/bold]" in page
    assert "[red]none[/red]" in page


def test_a_long_name_keeps_both_ends() -> None:
    short = shortened("owner/" + "x" * 90 + "-v2", 30)
    assert len(short) == 30
    assert (short[:6], short[-3:]) == ("owner/", "-v2")


def test_cost_names_both_models() -> None:
    page = render(comparison_page(comparison(CASES["related"])), width=80)
    assert "read 1.2 MB of A" in page
    assert "988.0 kB of B" in page
    assert "14 requests" in page


def test_layers_that_a_repeats_are_shown_as_matches_too() -> None:
    matches = ((0, 0), (1, 1), (5, 2), (3, 1), (4, 2))  # layer of a, layer of b: first the map, then the repeats
    findings = tuple(LayerFinding(str(a), str(b), 16.0, 16, -13.0) for a, b in matches)
    found = [evidence(*GAINS, -40.0), evidence("layer-map", "neurons", -40.0, per_layer=findings)]
    page = msgspec.structs.replace(comparison(found, deep=3), a=party("deep/one", 6))
    text = " ".join(render(comparison_page(page), width=80).split())
    assert "layers 1–2 of B match layers 3–4 of A as well" in text
    assert "layer 2 of A matches none of B" in text
    assert "layers 2–4 of A" not in text
