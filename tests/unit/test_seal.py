"""The seal of a record, and a forged identity under a new one."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from modelkin.cli import main
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.errors import ModelkinError
from modelkin.questions.identity import SAME_PLACE, same_files
from modelkin.records import Comparison, Evidence
from modelkin.records.comparison import sealed
from modelkin.report.files import to_json
from modelkin.sources import ReadOptions, open_source
from modelkin.verdict import judge
from modelkin.verify import read_comparison, verify

Record = dict[str, Any]


@cache
def compared(a: str = "dune", b: str = "heath", budget: Any = "quick") -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]), CompareOptions(budget, reading=ReadOptions(cache=False)))


def record(budget: Any = "quick") -> Record:
    whole: Record = json.loads(to_json(compared(budget=budget)))
    return whole


def verified(folder: Path, whole: Record) -> Any:
    path = folder / "record.json"
    path.write_text(json.dumps(whole))
    return CliRunner().invoke(main, ["verify", str(path)])


@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_any_altered_entry_breaks_the_seal(budget: str) -> None:
    """Also what nothing else is worked out from: versions, costs, texts, answers that need the models."""
    whole = record(budget)
    places = [path for path in entries_of(whole) if path[0] not in ("rows", "sha256")]
    assert len(places) > 100
    for path in places[:: max(1, len(places) // 150)]:
        edited: Any = json.loads(json.dumps(whole))
        inner = edited
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = another(inner[path[-1]])
        try:
            found = verify(msgspec.convert(edited, Comparison))
        except (ModelkinError, msgspec.ValidationError):
            continue
        assert "sha256" in [difference.where for difference in found], path


def entries_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for key, one in inner for found in entries_of(one, (*path, key))]
    return [path]


def another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if value is None:
        return 0.5
    return value + "x" if isinstance(value, str) else value + 1 if isinstance(value, int) else value * 1.001 + 1e-6


def test_a_broken_seal_is_told_in_words(tmp_path: Path) -> None:
    whole = record()
    whole["cost"]["seconds"] += 1
    done = verified(tmp_path, whole)
    assert done.exit_code == 1
    assert done.output.endswith("the record was altered after it was written\n")
    del whole["sha256"]
    assert verified(tmp_path, whole).exit_code == 1


def test_the_seal_survives_another_spelling_of_the_same_json(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(dict(reversed(record("standard").items())), ensure_ascii=True, separators=(",", ":")))
    assert verify(read_comparison(path)) == ()


def forged(comparison: Comparison, **changes: Any) -> Comparison:
    """An identity that was not found, with the verdict that follows from it and a new seal."""
    identity = next(answer for answer in comparison.answers if answer.question == "identity")
    assert isinstance(identity, Evidence)
    claimed = msgspec.structs.replace(identity, statistic=1.0, effect=1.0, grade="A", **changes)
    answers = (claimed, *(answer for answer in comparison.answers if answer is not identity))
    verdict = judge(answers, depths=(comparison.a.layers, comparison.b.layers), budget=comparison.budget)
    assert verdict.kinds[0].kind == "identical"
    return sealed(msgspec.structs.replace(comparison, answers=answers, verdict=verdict))


@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_a_forged_identity_contradicts_the_hashes_of_the_files(budget: str) -> None:
    whole = compared("dune", "grove", budget)
    told = {difference.where for difference in verify(forged(whole))}
    assert told >= {"answers.identity.statistic", "answers.identity.effect", "answers.identity.grade"}


def test_one_place_is_not_believed_where_rows_differ() -> None:
    whole = compared("dune", "grove")
    nameless = [
        msgspec.structs.replace(side, files=tuple(msgspec.structs.replace(f, sha256=None) for f in side.files))
        for side in (whole.a, whole.b)
    ]
    whole = msgspec.structs.replace(whole, a=nameless[0], b=nameless[1])
    told = {difference.where for difference in verify(forged(whole, assumptions=(SAME_PLACE,)))}
    assert "answers.identity" in told


def with_hashes_of_a(whole: Comparison, **fact: Any) -> Comparison:
    """Every file of weights of b under the hash of that of a, with the answer, the verdict and the seal of that."""
    (mine,) = (fact for fact in whole.a.files if fact.name in whole.a.weights)
    files = tuple(
        msgspec.structs.replace(one, sha256=mine.sha256, **fact) if one.name in whole.b.weights else one
        for one in whole.b.files
    )
    b = msgspec.structs.replace(whole.b, files=files)
    identity = same_files([mine], [one for one in files if one.name in b.weights], False)
    answers = (identity, *(answer for answer in whole.answers if answer.question != "identity"))
    verdict = judge(answers, depths=(whole.a.layers, b.layers), budget=whole.budget)
    assert verdict.kinds[0].kind == "identical"
    return sealed(msgspec.structs.replace(whole, b=b, answers=answers, verdict=verdict))


@pytest.mark.parametrize("other", ["grove", "heath"])
@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_equal_hashes_with_unlike_rows_contradict_each_other(other: str, budget: str) -> None:
    told = {difference.where: difference for difference in verify(with_hashes_of_a(compared("dune", other, budget)))}
    assert "the kept rows differ" in told["answers.identity"].recomputed


def test_one_hash_has_one_size() -> None:
    told = {difference.where for difference in verify(with_hashes_of_a(compared("dune", "heath"), size=7))}
    assert "files.model.safetensors.size" in told


def test_the_same_files_under_two_configs_contradict_nothing(tmp_path: Path) -> None:
    """One config adds one to every gain, and the rows that were read differ, as they should."""
    folders = []
    for name, kind in (("a", "llama"), ("b", "gemma")):
        folders.append(shutil.copytree(bundled()["dune"], tmp_path / name))
        config = json.loads((folders[-1] / "config.json").read_text()) | {"model_type": kind}
        config.pop("architectures", None)
        (folders[-1] / "config.json").write_text(json.dumps(config))
    whole = compare(str(folders[0]), str(folders[1]), CompareOptions("quick", reading=ReadOptions(cache=False)))
    assert whole.rows is not None
    assert whole.rows.portrait_a.gain_offset != whole.rows.portrait_b.gain_offset
    assert [share.kind for share in whole.verdict.kinds] == ["identical"]
    assert verify(whole) == ()


def test_the_date_is_sealed_and_nothing_else_depends_on_it(tmp_path: Path) -> None:
    models = bundled()
    options = CompareOptions("quick", reading=ReadOptions(cache=False), made="2026-01-31T12:00:00Z")
    dated = compare(str(models["dune"]), str(models["heath"]), options)
    assert verify(dated) == ()
    assert msgspec.structs.replace(dated, made=None, cost=compared().cost, sha256="") == msgspec.structs.replace(
        compared(), sha256=""
    )
    whole = json.loads(to_json(dated))
    assert verified(tmp_path, whole).exit_code == 0
    assert verified(tmp_path, {**whole, "made": "2020-01-01T00:00:00Z"}).exit_code == 1
    assert verified(tmp_path, {**whole, "made": None}).exit_code == 1


def test_a_record_from_before_dates_and_addresses_stays_whole(tmp_path: Path) -> None:
    whole = record()
    del whole["made"], whole["a"]["address"], whole["b"]["address"]
    body = json.dumps({**whole, "sha256": ""}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert sha256(body.encode()).hexdigest() == whole["sha256"]
    assert verified(tmp_path, whole).exit_code == 0


def test_the_command_line_dates_a_record(tmp_path: Path) -> None:
    models, file = bundled(), tmp_path / "record.json"
    pair = [str(models["dune"]), str(models["heath"])]
    done = CliRunner().invoke(main, ["compare", *pair, "--budget", "quick", "--no-cache", "--json", str(file)])
    assert done.exit_code == 0, done.output
    made = datetime.strptime(json.loads(file.read_bytes())["made"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert timedelta(0) <= datetime.now(UTC) - made < timedelta(minutes=10)


def test_a_model_of_a_hub_has_its_address_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    models = bundled()
    with LoopbackHub({f"demo/{name}": Repository.from_folder(models[name]) for name in ("dune", "heath")}) as hub:
        reading = ReadOptions(endpoint=hub.endpoint, cache=False, token=False)
        found = compare("demo/dune", "demo/heath", CompareOptions("quick", reading=reading))
        assert found.a.address == f"{hub.endpoint}/demo/dune/tree/{found.a.revision}"
        source = open_source("demo/dune", reading)
        monkeypatch.setattr(source, "_endpoint", "https://me:secret@mirror.example/hub")
        assert source.address == f"https://mirror.example/hub/demo/dune/tree/{source.revision}"
        source.close()
    assert compared().a.address is None
