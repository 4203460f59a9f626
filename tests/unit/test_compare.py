"""The main job on the bundled models: the verdicts that their truth asks for, and records that can be checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import CONFIG, llama_files, write_files
from modelkin.compare import CompareOptions, compare, plan
from modelkin.demo import bundled
from modelkin.errors import NothingComparable, UnreadableError
from modelkin.records import Comparison, Evidence, Unanswered
from modelkin.records.comparison import sealed
from modelkin.report.files import to_json
from modelkin.sources import ReadOptions
from modelkin.verify import read_comparison, verify, verify_fetched

KEYS = {
    *("schema", "modelkin", "policy", "seed", "a", "b", "verdict", "answers", "alignment", "controls"),
    *("not_evidence", "rows", "cost"),
}


@cache
def compared(a: str, b: str, budget: Any = "standard") -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]), CompareOptions(budget))


def kinds(comparison: Comparison) -> list[str]:
    return [share.kind for share in comparison.verdict.kinds]


@pytest.mark.parametrize("budget", ["quick", "standard"])
@pytest.mark.parametrize("child", ["heath", "birch", "amber"])
def test_descendants_are_related_beyond_any_doubt(child: str, budget: str) -> None:
    verdict = compared("dune", child, budget).verdict
    assert (verdict.outcome, verdict.grade, verdict.direction) == ("related", "A", "unknown")
    assert verdict.log10_pvalue is not None
    assert verdict.log10_pvalue < -12


@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_an_independent_twin_is_never_related(budget: str) -> None:
    verdict = compared("dune", "grove", budget).verdict
    assert verdict.outcome != "related"
    assert verdict.pvalue is None


def test_shared_norms_alone_are_a_component() -> None:
    comparison = compared("ember", "cobalt")
    assert comparison.verdict.outcome == "related"
    assert kinds(comparison)[0] == "component-reuse"


def test_a_disguised_copy_is_found_and_called_what_it_is() -> None:
    comparison = compared("dune", "fjord")
    verdict = comparison.verdict
    assert (verdict.outcome, verdict.grade, kinds(comparison)) == ("related", "B", ["obfuscated"])
    assert verdict.direction == "a->b"
    assert verdict.layer_map == tuple((str(i), str(i)) for i in range(6))
    assert comparison.alignment is not None
    assert comparison.alignment["hidden"] == "rotation"
    assert verify(comparison) == ()
    back = compared("fjord", "dune").verdict
    assert (back.outcome, back.direction) == ("related", "b->a")


def test_disguises_are_looked_for_only_where_weights_do_not_agree_in_their_places() -> None:
    assert reasons(compared("dune", "heath"))["unmasked-neurons"].startswith("not needed")
    twin = compared("dune", "grove")
    assert "unmasked-neurons" not in reasons(twin)
    assert "also if its weights had been turned" in twin.verdict.sentence
    assert "unmasked-neurons" not in {answer.question for answer in compared("dune", "grove", "quick").answers}


def test_a_deeper_child_shows_its_layers() -> None:
    comparison = compared("dune", "amber")
    assert "depth-upscale" in kinds(comparison)
    source = [0, 1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert comparison.verdict.layer_map == tuple((str(i), str(layer)) for i, layer in enumerate(source))


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
def test_a_model_beside_itself_is_identical(budget: str) -> None:
    assert kinds(compared("dune", "dune", budget))[0] == "identical"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weights are too large to be hashed without need."""
    monkeypatch.setattr(sys.modules["modelkin.compare"], "SMALL_FILE", 100_000)
    return bundled()["dune"]


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
@pytest.mark.parametrize("way", ["the same path", "a link to the folder", "a link to the file", "another name on disk"])
def test_large_files_in_one_place_are_the_same_at_once(large: Path, tmp_path: Path, way: str, budget: Any) -> None:
    other = large
    if way == "a link to the folder":
        other = tmp_path / "link"
        other.symlink_to(large)
    elif way != "the same path":
        first, other = Path(shutil.copytree(large, tmp_path / "first")), Path(shutil.copytree(large, tmp_path / "b"))
        (other / "model.safetensors").unlink()
        (os.symlink if way == "a link to the file" else os.link)(
            first / "model.safetensors", other / "model.safetensors"
        )
        large = first
    comparison = compare(str(large), str(other), CompareOptions(budget))
    assert kinds(comparison) == ["identical"]
    assert {fact.sha256 for fact in comparison.b.files if fact.name == "model.safetensors"} == {None}
    assert verify(comparison) == verify_fetched(comparison) == ()


@pytest.mark.parametrize("budget", ["standard", "full"])
def test_large_copies_are_hashed_and_identical(large: Path, tmp_path: Path, budget: Any) -> None:
    copy = shutil.copytree(large, tmp_path / "copy")
    told: list[tuple[str, int, int]] = []
    comparison = compare(str(large), str(copy), CompareOptions(budget), lambda *step: told.append(step))
    assert kinds(comparison) == ["identical"]
    size = sum(fact.size for fact in comparison.a.files if fact.name == "model.safetensors")
    hashing = [step for step in told if step[0] == "hashing" and step[2] >= 2 * size]
    assert hashing[-1][1] == hashing[-1][2]
    assert verify(comparison) == verify_fetched(comparison) == ()


def test_quick_says_what_hashing_would_show(large: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(large, tmp_path / "copy")
    comparison = compare(str(large), str(copy), CompareOptions("quick"))
    assert "every row that was read is the same to the bit" in reasons(comparison)["identity"]
    assert "identical" not in kinds(comparison)
    assert verify(comparison) == ()


def test_twins_of_equal_size_are_not_hashed_at_standard(large: Path) -> None:
    comparison = compare(str(large), str(bundled()["grove"]))
    assert "rows that were read differ" in reasons(comparison)["identity"]
    assert {fact.sha256 for fact in comparison.a.files if fact.size > 100_000} == {None}


def test_the_order_of_the_two_does_not_matter_to_the_outcome() -> None:
    for a, b in (("dune", "heath"), ("dune", "grove"), ("ember", "cobalt")):
        assert compared(a, b).verdict.outcome == compared(b, a).verdict.outcome


def test_the_record_has_every_key_of_the_contract_and_comes_back_from_json() -> None:
    comparison = compared("dune", "heath")
    written = json.loads(to_json(comparison))
    assert written.keys() >= KEYS
    assert written["schema"] == "modelkin.comparison/1"
    assert msgspec.json.decode(to_json(comparison), type=Comparison) == comparison


@pytest.mark.parametrize("pair", [("dune", "heath"), ("dune", "grove"), ("ember", "cobalt"), ("dune", "amber")])
def test_the_quick_answers_come_out_again_from_the_kept_rows(pair: tuple[str, str]) -> None:
    assert verify(compared(*pair)) == ()


def numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for key, inner in value.items() for p in numbers(inner, (*path, key))]
    if isinstance(value, list | tuple):
        return [p for i, inner in enumerate(value) for p in numbers(inner, (*path, i))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_every_altered_number_of_a_quick_answer_or_the_verdict_is_noticed() -> None:
    whole = msgspec.to_builtins(compared("dune", "heath", "quick"), builtin_types=(bytes,))
    places = [p for p in numbers(whole["answers"], ("answers",)) if "sample" not in p and p[1] != 0]
    places += numbers(whole["verdict"], ("verdict",))
    assert len(places) > 20
    for path in places:
        edited = json.loads(json.dumps({key: whole[key] for key in ("answers", "verdict")}))
        inner: Any = edited
        for key in path[:-1]:
            inner = inner[key]
        old = inner[path[-1]]
        inner[path[-1]] = old + 1 if isinstance(old, int) else old * 1.001 + 0.001
        altered = msgspec.convert({**whole, **edited}, Comparison, builtin_types=(bytes,))
        assert verify(sealed(altered)), path


def test_altered_rows_are_noticed() -> None:
    whole = compared("dune", "heath", "quick")
    assert whole.rows is not None
    part = next(part for part in whole.rows.b if len(part.shape) == 2)
    turned = msgspec.structs.replace(part, data=part.data[len(part.data) // 2 :] + part.data[: len(part.data) // 2])
    rows = tuple(turned if kept is part else kept for kept in whole.rows.b)
    altered = msgspec.structs.replace(whole, rows=msgspec.structs.replace(whole.rows, b=rows))
    assert verify(sealed(altered))


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": 3}')
    with pytest.raises(UnreadableError, match="no comparison"):
        read_comparison(tmp_path / "x.json")


def test_a_quick_comparison_reads_little_and_keeps_it() -> None:
    comparison = compared("dune", "heath", "quick")
    assert comparison.cost.tensor_bytes_a <= 1_000_000
    assert comparison.rows is not None
    assert len(to_json(comparison)) < 3_000_000


def test_the_plan_names_every_question_and_reads_no_weights() -> None:
    models = bundled()
    lines = plan(str(models["dune"]), str(models["ember"]), CompareOptions("quick"))
    assert [line.partition(":")[0] for line in lines] == ["hidden-axes-by-gains", "neurons", "all together"]
    assert all("bytes" in line or "not asked" in line for line in lines)


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
def test_the_plan_keeps_its_promise_of_bytes(budget: Any) -> None:
    models = bundled()
    read = compare(str(models["dune"]), str(models["heath"]), CompareOptions(budget, reading=ReadOptions(cache=False)))
    total = plan(str(models["dune"]), str(models["heath"]), CompareOptions(budget))[-1]
    a, b = (
        int(number.replace(",", "")) for number in re.findall(r"([\d,]+)(?: bytes of the weights| of those)", total)
    )
    for promised, cost in ((a, read.cost.tensor_bytes_a), (b, read.cost.tensor_bytes_b)):
        # Disguises are looked for only where weights do not agree in their places, and what `full` plans for equal
        # tensors is read only as far as they begin alike.
        assert cost <= promised
        assert budget != "quick" or cost > 0.8 * promised


def test_another_seed_reads_other_rows_and_says_the_same() -> None:
    models = bundled()
    other = compare(str(models["dune"]), str(models["heath"]), CompareOptions("quick", seed=7))
    assert other.rows != compared("dune", "heath", "quick").rows
    assert other.verdict.outcome == "related"


def test_strangers_of_another_width_cannot_be_asked(tmp_path: Path) -> None:
    other = write_files(tmp_path / "narrow", llama_files())
    with pytest.raises(NothingComparable, match="nothing could be asked"):
        compare(str(bundled()["dune"]), str(other), CompareOptions("quick"))


def test_two_random_models_are_not_related(tmp_path: Path) -> None:
    paths = [write_files(tmp_path / str(seed), llama_files(seed, config=CONFIG)) for seed in (1, 2)]
    answers = compare(*map(str, paths), CompareOptions("quick"))
    assert answers.verdict.outcome != "related"
    assert any(isinstance(answer, Evidence) for answer in answers.answers)


def reasons(comparison: Comparison) -> dict[str, str]:
    return {answer.question: answer.unanswered for answer in comparison.answers if isinstance(answer, Unanswered)}


def test_what_can_add_nothing_is_not_read() -> None:
    """Early stopping: a likeness on the whole where neurons were recognised, anything where the files are the same."""
    assert "one by one" in reasons(compared("dune", "heath", "standard"))["pooled-rows"]
    assert "pooled-rows" not in reasons(compared("dune", "grove", "standard"))
    same, quick = compared("dune", "dune", "standard"), compared("dune", "dune", "quick")
    assert "the same to the byte" in reasons(same)["layer-map"]
    assert same.cost.tensor_bytes_a == quick.cost.tensor_bytes_a
