"""Controls and candidates: what is shown beside a pair, and how they are named on the command line."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from builders import llama_files, write_files
from modelkin.cli import main
from modelkin.compare import CompareOptions, compare, plan
from modelkin.demo import bundled
from modelkin.errors import NotFound
from modelkin.records import Beside, Comparison, Evidence
from modelkin.report.comparison_text import comparison_page
from modelkin.report.files import to_json
from modelkin.report.text import render
from modelkin.verify import verify

comparing = import_module("modelkin.compare")  # the package has a function of that name
PATHS = {name: str(folder) for name, folder in bundled().items()}


@cache
def with_company() -> Comparison:
    options = CompareOptions("quick", controls=(PATHS["grove"], PATHS["birch"]), candidates=(PATHS["heath"],))
    return compare(PATHS["dune"], PATHS["ember"], options)


def rows(found: tuple[Beside, ...]) -> list[tuple[str, str, str | None]]:
    return [(Path(row.id).name, row.side, row.outcome) for row in found]


def test_every_further_model_stands_beside_a_and_beside_b() -> None:
    found = with_company()
    assert [row[:2] for row in rows(found.controls)] == [("grove", "a"), ("grove", "b"), ("birch", "a"), ("birch", "b")]
    assert rows(found.candidates)[0] == ("heath", "a", "related")
    assert rows(found.candidates)[1][2] != "related"


def test_a_control_counts_as_a_comparison_of_its_own_would() -> None:
    alone = compare(PATHS["dune"], PATHS["grove"], CompareOptions("quick"))
    control = with_company().controls[0]
    given = {answer.question: answer for answer in alone.answers}
    assert {answer.question for answer in control.answers} == given.keys()
    for answer in control.answers:
        expected = given[answer.question]
        assert isinstance(expected, Evidence)
        assert (answer.statistic, answer.n, answer.log10_pvalue) == (
            expected.statistic,
            expected.n,
            expected.log10_pvalue,
        )
    assert control.outcome == alone.verdict.outcome
    assert control.bytes > 0


def test_a_control_that_is_related_is_named_as_such() -> None:
    sentences = {(Path(row.id).name, row.side): row.sentence for row in with_company().controls}
    assert sentences["birch", "a"].startswith("No stranger: this control is related to A")
    assert "No stranger" not in sentences["grove", "a"]


def test_the_verdict_and_cost_of_the_pair_do_not_depend_on_its_company() -> None:
    alone = compare(PATHS["dune"], PATHS["ember"], CompareOptions("quick"))
    together = with_company()
    assert (together.verdict, together.answers, together.rows) == (alone.verdict, alone.answers, alone.rows)
    for field in ("bytes_a", "tensor_bytes_a", "bytes_b", "requests"):
        assert getattr(together.cost, field) == getattr(alone.cost, field)
    assert verify(together) == ()


def test_the_record_comes_back_from_json_with_its_company() -> None:
    text = to_json(with_company())
    assert msgspec.json.decode(text, type=Comparison) == with_company()
    assert {row["with"] for row in msgspec.json.decode(text)["controls"]} == {"a", "b"}


def test_candidates_are_asked_as_much_as_the_pair_and_controls_the_quick_questions() -> None:
    options = CompareOptions("standard", controls=(PATHS["grove"],), candidates=(PATHS["heath"],))
    found = compare(PATHS["dune"], PATHS["birch"], options)
    assert {row.budget for row in found.controls} == {"quick"}
    assert {row.budget for row in found.candidates} == {"standard"}
    assert "layer-map" in {answer.question for answer in found.candidates[0].answers}


def test_a_control_of_another_shape_says_that_nothing_could_be_compared(tmp_path: Path) -> None:
    narrow = write_files(tmp_path / "narrow", llama_files())
    found = compare(PATHS["dune"], PATHS["heath"], CompareOptions("quick", controls=(str(narrow),)))
    assert [row.outcome for row in found.controls] == [None, None]
    assert "nothing could be asked" in found.controls[0].sentence
    assert "nothing comparable" in render(comparison_page(found))


def test_a_control_that_is_not_there_ends_it_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the pair was compared first")

    monkeypatch.setattr(comparing, "compare_pair", never)
    with pytest.raises(NotFound):
        compare(PATHS["dune"], PATHS["heath"], CompareOptions("full", controls=("./not/there",)))


def test_a_claim_about_a_candidate_is_weighed(tmp_path: Path) -> None:
    def placed(name: str, files: dict[str, bytes]) -> str:
        kept = {path.name: path.read_bytes() for path in bundled()[name].iterdir() if path.is_file()}
        return str(write_files(tmp_path / "demo" / name, kept | files))

    child = placed("heath", {"README.md": b"---\nbase_model: [demo/dune, demo/ember]\n---\n"})
    options = CompareOptions("standard", candidates=(placed("dune", {}), placed("ember", {})))
    found = compare(PATHS["grove"], child, options).b.claims.findings
    assert [finding.standing for finding in found] == ["not contradicted", "contradicted"]


def test_the_page_shows_counts_and_what_they_are_between_strangers() -> None:
    page = render(comparison_page(with_company()))
    for words in (
        "Controls: models that should be strangers",
        "Candidates",
        "No stranger",
        "between strangers: norm gains 1 of 128",
    ):
        assert words in " ".join(page.split())


def test_a_control_has_no_outcome_and_stands_beside_the_pair() -> None:
    page = " ".join(render(comparison_page(with_company())).split())
    controls = page[page.index("Controls:") : page.index("Candidates")]
    assert "undecided" not in controls
    gains = {answer.question: answer for answer in with_company().answers}["hidden-axes-by-gains"]
    assert isinstance(gains, Evidence)
    assert f"(this pair {gains.statistic:.0f} of {gains.n})" in controls


def test_the_sentence_of_a_candidate_says_whom_it_stands_beside() -> None:
    page = render(comparison_page(with_company()), width=400)
    assert f"{PATHS['heath']} with A: The two models are related" in page


def test_a_model_given_twice_is_compared_once_and_said_to_be() -> None:
    notes: list[str] = []
    twice = CompareOptions("quick", candidates=(PATHS["heath"], PATHS["birch"], PATHS["heath"]))
    found = compare(PATHS["dune"], PATHS["ember"], twice, lambda what, *_: notes.append(what))
    assert [Path(row.id).name for row in found.candidates] == ["heath", "heath", "birch", "birch"]
    assert f"note: {PATHS['heath']} was given twice, and is compared once" in notes


def test_quick_says_that_claims_were_not_read() -> None:
    assert "own origin was not read: `quick` leaves that out" in render(comparison_page(with_company()), width=400)


def test_a_pair_without_company_shows_no_table() -> None:
    page = render(comparison_page(compare(PATHS["dune"], PATHS["grove"], CompareOptions("quick"))))
    assert "Controls" not in page
    assert "Candidates" not in page


def test_the_plan_names_further_models() -> None:
    lines = plan(PATHS["dune"], PATHS["heath"], CompareOptions("quick", controls=(PATHS["grove"],)))
    assert [line.partition(":")[0] for line in lines[-2:]] == [f"{PATHS['grove']} with {side}" for side in "AB"]
    sizes = [int(size) for size in lines[-2].replace(",", "").rpartition(": ")[2].removesuffix(" bytes").split(" + ")]
    read = compare(PATHS["dune"], PATHS["grove"], CompareOptions("quick")).cost
    assert sizes == [read.tensor_bytes_a, read.tensor_bytes_b]


ORDERS = {
    "several values": ["A", "B", "--control", "C", "D", "--candidates", "E", "F"],
    "each by itself": ["A", "B", "--control", "C", "--candidates", "E", "--control", "D", "--candidates", "F"],
    "before the pair": ["--control", "C", "A", "--candidates", "E", "B", "--control", "D", "--candidates", "F"],
    "other options between": [
        "A",
        "B",
        "--control",
        "C",
        "D",
        "--budget",
        "quick",
        "--candidates",
        "E",
        "F",
        "--offline",
    ],
    "with an equals sign": ["--control=C", "--budget", "quick", "A", "B", "--control", "D", "--candidates", "E", "F"],
}


@pytest.mark.parametrize("case", ORDERS)
def test_options_take_several_models(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def planned(a: str, b: str, options: CompareOptions) -> list[str]:
        seen.append((a, b, options.controls, options.candidates))
        return []

    monkeypatch.setattr(comparing, "plan", planned)
    done = CliRunner().invoke(main, ["compare", *ORDERS[case], "--dry-run"])
    assert done.exit_code == 0, done.output
    assert seen == [("A", "B", ("C", "D"), ("E", "F"))]


@pytest.mark.parametrize("words", [["A", "B", "C"], ["A"], ["A", "B", "--control"], ["A", "B", "--seed", "1", "C"]])
def test_a_word_too_many_or_too_few_is_wrong_usage(words: list[str]) -> None:
    assert CliRunner().invoke(main, ["compare", *words]).exit_code == 2


@pytest.mark.parametrize(("option", "role"), [("--candidates", "candidate"), ("--control", "control")])
def test_a_further_model_that_cannot_be_read_is_named_as_such(tmp_path: Path, option: str, role: str) -> None:
    """Before anything is computed; the message would else read as if the pair were broken."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in Path(PATHS["heath"]).iterdir():
        whole = file.read_bytes()
        (broken / file.name).write_bytes(whole[:-100] if file.suffix == ".safetensors" else whole)
    done = CliRunner().invoke(main, ["compare", PATHS["dune"], PATHS["ember"], option, str(broken)])
    assert done.exit_code == 4
    assert f"this is a {role}; A and B could be opened" in done.output
    assert f"leave the {role} out" in done.output
