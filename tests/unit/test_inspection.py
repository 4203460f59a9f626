from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save

from builders import CONFIG, HIDDEN, LAYERS, llama_files, llama_tensors, write_files
from modelkin.inspection import describe, inspect, statistics_of
from modelkin.records import Inspection, Role, Slot
from modelkin.report.files import to_json, write_inspection
from modelkin.report.text import inspection_page, render
from modelkin.sources.memory import MemorySource


def inspected(files: dict[str, bytes]) -> Inspection:
    return describe(MemorySource(files), 0.0)


def test_gain_statistics_are_those_of_numpy() -> None:
    record = inspected(llama_files())
    tensors = llama_tensors()
    assert len(record.gains) == 2 * LAYERS + 1
    for line in record.gains:
        name = {
            Role.FINAL_NORM: "model.norm.weight",
            Role.INPUT_NORM: f"model.layers.{line.layer}.input_layernorm.weight",
            Role.POST_NORM: f"model.layers.{line.layer}.post_attention_layernorm.weight",
        }[line.role]
        values = tensors[name].astype(np.float64)
        expected = [values.mean(), values.std(), values.min(), values.max(), np.sqrt((values**2).sum())]
        assert [line.mean, line.std, line.min, line.max, line.l2] == pytest.approx(expected, rel=1e-12)
        assert line.cv == pytest.approx(values.std() / values.mean(), rel=1e-12)
        assert (line.n, line.nonfinite) == (HIDDEN, 0)


def test_only_headers_and_norm_vectors_are_read() -> None:
    files = llama_files(shards=3)
    source = MemorySource(files)
    record = describe(source, 0.0)
    assert record.cost.tensor_bytes == (2 * LAYERS + 1) * HIDDEN * 2
    matrices = [e for e in source.ledger.exchanges if e.kind == "tensor" and e.bytes != HIDDEN * 2]
    assert matrices == []


def test_gains_that_are_not_finite_are_counted_and_left_out() -> None:
    tensors = llama_tensors(dtype=np.float32)
    tensors["model.norm.weight"][:3] = [np.nan, np.inf, -np.inf]
    tensors["model.layers.1.input_layernorm.weight"][:] = np.nan
    tensors["model.layers.2.input_layernorm.weight"][:] = 0
    record = inspected({"config.json": json.dumps(CONFIG).encode(), "model.safetensors": save(tensors)})
    lines = {(line.role, line.layer): line for line in record.gains}
    final = lines[Role.FINAL_NORM, ""]
    assert final.nonfinite == 3
    assert final.mean == pytest.approx(tensors["model.norm.weight"][3:].astype(np.float64).mean())
    assert lines[Role.INPUT_NORM, "1"].mean is None
    assert lines[Role.INPUT_NORM, "2"].cv is None
    assert "3 not finite" in render(inspection_page(record))
    json.loads(to_json(record), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_the_record_survives_json() -> None:
    record = inspected(llama_files())
    again = msgspec.json.decode(to_json(record), type=Inspection)
    assert again == record


def test_missing_layers_are_said_loudly() -> None:
    record = inspected(llama_files(config={**CONFIG, "num_hidden_layers": 5}))
    assert not record.layer_checks[0].agrees
    assert "BUT the config says 5" in render(inspection_page(record))


def test_files_written_hold_every_gain(tmp_path: Path) -> None:
    record = inspected(llama_files())
    paths = write_inspection(record, render(inspection_page(record)), tmp_path / "out")
    assert {path.name for path in paths} >= {
        "inspection.json",
        "inspection.txt",
        "gains.csv",
        "anatomy.csv",
        "files.csv",
    }
    with open(tmp_path / "out" / "gains.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [float(row["mean"]) for row in rows] == [line.mean for line in record.gains]


def test_a_hostile_name_can_neither_colour_the_page_nor_run_in_a_spreadsheet(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "\x1b[31m[bold]evil\x07": np.ones(3, np.float32), "=cmd()": np.ones(3, np.float32)}
    record = inspected({"config.json": json.dumps(CONFIG).encode(), "model.safetensors": save(tensors)})
    page = render(inspection_page(record))
    assert "\x1b" not in page
    assert "\x07" not in page
    assert "[bold]evil" in page
    write_inspection(record, page, tmp_path)
    assert "'=cmd()" in (tmp_path / "left_out.csv").read_text()


def test_a_broken_tokenizer_does_not_hide_the_tensors() -> None:
    record = inspected({**llama_files(), "tokenizer.json": b"{not json"})
    assert record.vocabulary is None
    assert "tokenizer.json" in (record.vocabulary_missing or "")
    assert record.gains


def test_local_files_are_hashed_up_to_a_size_and_all_on_request(tmp_path: Path) -> None:
    import hashlib

    files = llama_files() | {"notes.bin.txt": b"x" * (5 << 20)}
    folder = write_files(tmp_path / "m", files)
    few = {fact.name: fact.sha256 for fact in inspect(str(folder)).model.files}
    every = {fact.name: fact.sha256 for fact in inspect(str(folder), hashed=True).model.files}
    assert few["notes.bin.txt"] is None
    assert few["config.json"] == hashlib.sha256(files["config.json"]).hexdigest()
    assert every["notes.bin.txt"] == hashlib.sha256(files["notes.bin.txt"]).hexdigest()


def test_slots_are_named_by_stack_and_layer() -> None:
    assert str(Slot(Role.Q, 3, None, "encoder")) == "encoder.3 q"
    assert str(Slot(Role.GATE, 1, 7)) == "1 gate expert 7"
    assert Slot(Role.HEAD).layer_name == ""


def test_gains_of_absurd_size_make_no_noise() -> None:
    line = statistics_of(Slot(Role.FINAL_NORM), np.full(4, 1e308))
    assert (line.nonfinite, line.max) == (0, 1e308)
