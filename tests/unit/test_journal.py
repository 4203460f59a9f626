"""A comparison at `full`, interrupted and resumed, with the same result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from mlp_models import layered, written
from modelkin.cli import main
from modelkin.compare import CompareOptions, compare
from modelkin.journal import clear_journals
from modelkin.questions import Pair
from modelkin.questions.neuron_stream import LayerCalls, Task, call_layers
from modelkin.questions.whole_tensors import WHAT
from modelkin.records import Comparison
from modelkin.sources import ReadOptions
from modelkin.sources.local import LocalSource

FULL = CompareOptions("full")


class Interrupting:
    """Presses Ctrl-C when the neurons of so many pairs of layers have been called."""

    def __init__(self, after: int) -> None:
        self.after, self.layers, self.notes = after, set[str](), list[str]()

    def __call__(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        if what.startswith("note: "):
            self.notes.append(what)
        if what.startswith("calling"):
            self.layers.add(what)
            if len(self.layers) > self.after:
                raise KeyboardInterrupt


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    return str(written(tmp_path / "a", layered(1, 4, 64))), str(written(tmp_path / "b", layered(2, 4, 64)))


@pytest.fixture
def kept_in() -> Path:
    return Path(os.environ["MODELKIN_CACHE"])


def without_cost(comparison: Comparison) -> Comparison:
    """And without the seal, which covers the cost."""
    return msgspec.structs.replace(comparison, cost=None, sha256="")


def unfinished(cache_folder: Path) -> list[Path]:
    return sorted((cache_folder / "unfinished").rglob("*.json"))


def test_an_interrupted_comparison_goes_on_and_says_the_same(models: tuple[str, str], kept_in: Path) -> None:
    whole = compare(*models, FULL)
    assert unfinished(kept_in) == []
    with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
        compare(*models, FULL, Interrupting(2))
    assert len(unfinished(kept_in)) == 2
    read_again: list[tuple[str, int]] = []
    resumed = compare(*models, FULL, lambda what, done, _: read_again.append((what, done)))
    assert without_cost(resumed) == without_cost(whole)
    assert resumed.cost.tensor_bytes_a < whole.cost.tensor_bytes_a
    assert unfinished(kept_in) == []


def test_before_anything_was_found_an_interrupt_promises_nothing(models: tuple[str, str]) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        compare(*models, FULL, Interrupting(0))
    assert str(raised.value) == ""


class Stopping:
    """Presses Ctrl-C in the midst of a step, when so much of it is done; small files are none."""

    def __init__(self, what: str, share: float) -> None:
        self.what, self.share = what, share

    def __call__(self, what: str, done: int, total: int) -> None:
        if what == self.what and total > 10_000 and done > self.share * total:
            raise KeyboardInterrupt


@pytest.fixture
def relatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Too large to be hashed without need, and the same but for one tensor."""
    monkeypatch.setattr(sys.modules["modelkin.compare"], "SMALL_FILE", 1000)
    a, b = layered(1, 4, 64), layered(1, 4, 64)
    b["model.layers.3.mlp.up_proj.weight"] = layered(2, 4, 64)["model.layers.3.mlp.up_proj.weight"]
    return str(written(tmp_path / "a", a)), str(written(tmp_path / "b", b))


def test_hashes_of_whole_files_are_kept(relatives: tuple[str, str], kept_in: Path) -> None:
    whole = compare(*relatives, FULL)
    hashed = 2 * (Path(relatives[0]) / "model.safetensors").stat().st_size
    with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
        compare(*relatives, FULL, Stopping("hashing", 0.9))
    assert len(unfinished(kept_in)) == 1
    again, read_files = compared_and_hashed(relatives)
    assert without_cost(again) == without_cost(whole)
    assert 0 < read_files < 0.6 * hashed


def compared_and_hashed(models: tuple[str, str]) -> tuple[Comparison, int]:
    """The comparison, and the bytes of large files that were hashed for it."""
    read: list[int] = []
    hash_file = LocalSource.hash_file

    def counting(source: LocalSource, name: str, count: Any) -> str:
        read.append(source.files()[name].size if name == "model.safetensors" else 0)
        return hash_file(source, name, count)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalSource, "hash_file", counting)
        return compare(*models, FULL), sum(read)


def test_a_changed_file_is_hashed_again(relatives: tuple[str, str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(*relatives, FULL, Stopping("hashing", 0.9))
    changed = layered(1, 4, 64)
    written(Path(relatives[0]), changed | {"model.norm.weight": changed["model.norm.weight"] + 1})
    again, _ = compared_and_hashed(relatives)
    body = (Path(relatives[0]) / "model.safetensors").read_bytes()
    assert {f.sha256 for f in again.a.files if f.name == "model.safetensors"} == {sha256(body).hexdigest()}


def test_tensors_that_were_compared_to_their_end_are_kept(
    relatives: tuple[str, str], kept_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelkin.questions.whole_tensors.PART", 5000)
    whole = compare(*relatives, FULL)
    with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
        compare(*relatives, FULL, Stopping("comparing whole tensors", 0.7))
    before = len(unfinished(kept_in))
    assert before > 4 + 2  # pairs of layers, and hashes
    reached: list[int] = []
    resumed = compare(*relatives, FULL, lambda what, done, _: reached.append(done) if what == WHAT else None)
    assert without_cost(resumed) == without_cost(whole)
    assert reached[-1] > reached[0] > 0
    assert resumed.cost.tensor_bytes_a < 0.5 * whole.cost.tensor_bytes_a
    assert unfinished(kept_in) == []


def test_an_entry_replaced_by_a_folder_costs_that_entry_alone(models: tuple[str, str], kept_in: Path) -> None:
    whole = compare(*models, FULL)
    with pytest.raises(KeyboardInterrupt):
        compare(*models, FULL, Interrupting(2))
    first, _ = unfinished(kept_in)
    first.unlink()
    (first / "inside").mkdir(parents=True)
    watching = Interrupting(99)
    assert without_cost(compare(*models, FULL, watching)) == without_cost(whole)
    assert len(watching.notes) == 1
    assert "cannot be read" in watching.notes[0]
    assert unfinished(kept_in) == []


def damages(body: bytes) -> Iterator[bytes]:
    yield b""
    yield body[:-10]
    yield body.replace(b'"fixed":[', b'"fixed":[9,', 1)
    yield b"\xff" + body


def test_a_damaged_journal_is_noticed_and_not_trusted(models: tuple[str, str], kept_in: Path) -> None:
    whole = compare(*models, FULL)
    for damage in range(4):
        with pytest.raises(KeyboardInterrupt):
            compare(*models, FULL, Interrupting(1))
        (entry,) = unfinished(kept_in)
        entry.write_bytes(list(damages(entry.read_bytes()))[damage])
        watching = Interrupting(99)
        assert without_cost(compare(*models, FULL, watching)) == without_cost(whole)
        assert len(watching.notes) == 1
        assert "damaged" in watching.notes[0]


def test_an_entry_of_another_pair_of_layers_is_not_trusted(models: tuple[str, str], kept_in: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(*models, FULL, Interrupting(2))
    first, second = unfinished(kept_in)
    second.write_bytes(first.read_bytes())
    watching = Interrupting(99)
    compare(*models, FULL, watching)
    assert len(watching.notes) == 1


def test_changed_weights_another_seed_or_order_begin_anew(models: tuple[str, str], kept_in: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(*models, FULL, Interrupting(2))
    kept = len(unfinished(kept_in))
    with pytest.raises(KeyboardInterrupt):
        compare(*models, CompareOptions("full", seed=1), Interrupting(1))
    with pytest.raises(KeyboardInterrupt):
        compare(models[1], models[0], FULL, Interrupting(1))
    written(Path(models[1]), layered(3, 4, 64))
    with pytest.raises(KeyboardInterrupt):
        compare(*models, FULL, Interrupting(1))
    assert len(unfinished(kept_in)) == kept + 3
    assert clear_journals() > 0
    assert unfinished(kept_in) == []


def test_without_a_cache_nothing_is_kept(models: tuple[str, str], kept_in: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        compare(*models, CompareOptions("full", reading=ReadOptions(cache=False)), Interrupting(2))
    assert unfinished(kept_in) == []


def test_a_disk_that_takes_nothing_costs_the_resumption_alone(
    models: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compare(*models, FULL)
    (tmp_path / "taken").write_text("a file, where a folder should be")
    monkeypatch.setenv("MODELKIN_CACHE", str(tmp_path / "taken"))
    watching = Interrupting(99)
    assert without_cost(compare(*models, FULL, watching)) == without_cost(whole)
    assert len(watching.notes) == 1
    assert "nothing is kept" in watching.notes[0]


def test_the_command_line_says_that_it_can_go_on(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(pair: Pair, task: Task, told: Any) -> LayerCalls:
        if task.names == ("2", "2"):
            raise KeyboardInterrupt
        return call_layers(pair, task, told)

    command = ["compare", *models, "--budget", "full"]
    with monkeypatch.context() as patched:
        patched.setattr("modelkin.full.call_layers", stopping)
        done = CliRunner().invoke(main, command)
    assert done.exit_code == 130
    assert done.stderr.endswith("that were finished are kept, and the same command goes on from there\n")
    assert CliRunner().invoke(main, command).exit_code == 0
