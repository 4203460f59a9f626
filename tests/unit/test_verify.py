"""A record checked, with and without its models: what was altered is noticed, what is hostile is refused."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.cli import main
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.errors import ModelkinError, NotFound, NothingComparable, UnreadableError
from modelkin.questions import Pair
from modelkin.questions.gains import GAINS
from modelkin.questions.neurons import NEURONS
from modelkin.records import Comparison
from modelkin.records.comparison import sealed
from modelkin.report.files import to_json
from modelkin.sampling.readings import kept_bytes
from modelkin.sources import ReadOptions
from modelkin.sources.memory import MemorySource
from modelkin.verify import not_recomputed, read_comparison, verify, verify_fetched

Record = dict[str, Any]


@cache
def compared(a: str = "dune", b: str = "heath", budget: Any = "quick") -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]), CompareOptions(budget, reading=ReadOptions(cache=False)))


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    models = bundled()
    return (
        Path(shutil.copytree(models["dune"], tmp_path / "dune")),
        Path(shutil.copytree(models["heath"], tmp_path / "heath")),
    )


def record(budget: Any = "quick") -> Record:
    whole: Record = json.loads(to_json(compared(budget=budget)))
    return whole


def saved(folder: Path, whole: Record) -> Path:
    path = folder / "record.json"
    path.write_text(json.dumps(whole))
    return path


def verified(folder: Path, whole: Record, *options: str) -> Any:
    return CliRunner().invoke(main, ["verify", str(saved(folder, whole)), *options])


# Altered.


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for key, inner in value.items() for p in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [p for i, inner in enumerate(value) for p in leaves(inner, (*path, i))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


def altered(whole: Record, path: tuple[Any, ...]) -> Comparison:
    """By somebody who knows of the seal and makes a new one: then only what can be recomputed shows it."""
    edited: Any = msgspec.json.decode(msgspec.json.encode(whole))
    inner = edited
    for key in path[:-1]:
        inner = inner[key]
    old = inner[path[-1]]
    inner[path[-1]] = old + 1 if isinstance(old, int) else old * 1.001 + 0.001
    return sealed(msgspec.convert(edited, Comparison))


def is_noticed(whole: Record, path: tuple[Any, ...]) -> bool:
    try:
        return bool(verify(altered(whole, path)))
    except UnreadableError:
        return True


def test_every_altered_number_among_the_rows_is_noticed() -> None:
    whole = record()
    places = leaves(whole["rows"], ("rows",))
    assert len(places) > 100
    assert [path for path in places[:: max(1, len(places) // 60)] if not is_noticed(whole, path)] == []
    named = [path for path in places if path[1].startswith("portrait")]
    assert [path for path in named if not is_noticed(whole, path)] == []


@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_every_altered_measure_is_noticed(budget: str) -> None:
    whole = record(budget)
    entries = whole["not_evidence"]
    places = [(i, k) for i, entry in enumerate(entries) for k in ("value", "expected_from_means_alone")]
    places = [(i, k) for i, k in places if isinstance(entries[i][k], float)]
    assert len(places) >= (5 if budget == "quick" else 6)
    assert all(is_noticed(whole, ("not_evidence", i, key)) for i, key in places)
    del whole["not_evidence"][0]
    assert verify(sealed(msgspec.convert(whole, Comparison)))


def test_what_a_party_says_of_its_model_is_held_against_the_portrait() -> None:
    for side in ("a", "b"):
        for key in ("hidden", "layers"):
            assert is_noticed(record(), (side, key))


@pytest.mark.parametrize("budget", ["quick", "standard"])
def test_an_untouched_record_comes_out_again(budget: str) -> None:
    assert verify(compared(budget=budget)) == ()


def test_one_flipped_bit_of_a_kept_row_is_noticed() -> None:
    whole = compared()
    assert whole.rows is not None
    part = whole.rows.a[-1]
    data = bytes([part.data[0] ^ 1]) + part.data[1:]
    rows = (*whole.rows.a[:-1], msgspec.structs.replace(part, data=data))
    changed = msgspec.structs.replace(whole, rows=msgspec.structs.replace(whole.rows, a=rows))
    assert "rows.sha256" in [difference.where for difference in verify(changed)]


def test_a_later_answer_must_agree_with_itself() -> None:
    whole = record("standard")
    (i,) = (i for i, answer in enumerate(whole["answers"]) if answer["question"] == "layer-map")
    for key in ("pvalue", "log10_pvalue", "adjusted_pvalue"):
        assert is_noticed(whole, ("answers", i, key))


def test_what_could_not_be_recomputed_is_named(tmp_path: Path) -> None:
    left = not_recomputed(compared(budget="standard"))
    assert "layer-map" in left
    assert "neurons" not in left
    said = verified(tmp_path, record("standard")).output
    assert f"{len(left)} answers need the models again" in said
    assert "layer-map" in said


# Hostile.


def hostile(whole: Record, case: str) -> None:
    rows = whole["rows"]
    first = rows["a"][0]
    if case == "a layer without number":
        rows["portrait_a"]["layers"][0] = "zero"
    elif case == "a layer with a number beyond belief":
        rows["portrait_a"]["layers"][0] = "9" * 5000
    elif case == "a layer twice":
        rows["portrait_b"]["layers"][0] = rows["portrait_b"]["layers"][1]
    elif case == "no rows":
        whole["rows"] = None
    elif case == "a huge shape":
        first["shape"] = [2**40, 2**40]
    elif case == "a shape without end":
        first["shape"] = [0, 10**18]
    elif case == "a negative shape":
        first["shape"] = [-1, -first["shape"][0]]
    elif case == "an impossible cut":
        first["cut"] |= {"start": 7, "stop": 3}
    elif case == "half a cut":
        first["cut"] |= {"start": 7, "stop": None}
    elif case == "impossible columns":
        first["cut"] |= {"columns": [5, 1]}
    elif case == "rows kept twice":
        rows["a"].append(first)
    elif case == "no base64":
        first["data"] = "*" + first["data"][1:]
    elif case == "too few bytes":
        first["data"] = first["data"][:-8]
    elif case == "no number":
        whole["answers"][1]["statistic"] = None
    elif case == "a question twice":
        whole["answers"].append(whole["answers"][1])
    elif case == "an unknown role":
        first["cut"]["slot"]["role"] = "throne"
    elif case == "another schema":
        whole["schema"] = "modelkin.comparison/9"


CASES = (
    "a layer without number", "a layer with a number beyond belief", "a layer twice", "no rows", "a huge shape",
    "a shape without end", "a negative shape", "an impossible cut", "half a cut", "impossible columns",
    "rows kept twice", "no base64", "too few bytes", "no number", "a question twice", "an unknown role",
    "another schema",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_record_ends_with_four_and_a_sentence(case: str, tmp_path: Path) -> None:
    whole = record()
    hostile(whole, case)
    done = verified(tmp_path, whole)
    assert done.exit_code == 4, done.output
    assert done.output.startswith("modelkin: ")
    assert len(done.output) < 600


def test_text_that_json_does_not_know_is_refused(tmp_path: Path) -> None:
    text = to_json(compared()).replace('"statistic": ', '"statistic": NaN, "x": ', 1)
    (tmp_path / "nan.json").write_text(text)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    for name in ("nan", "deep", "bytes"):
        with pytest.raises(UnreadableError, match="is no comparison"):
            read_comparison(tmp_path / f"{name}.json")
    with pytest.raises(NotFound):
        read_comparison(tmp_path / "nothing.json")


def test_rows_of_another_width_or_gone_are_differences_and_no_crash(tmp_path: Path) -> None:
    whole = record()
    whole["rows"]["portrait_a"]["hidden"] = whole["rows"]["portrait_b"]["hidden"] = 10**15
    done = verified(tmp_path, whole)
    assert done.exit_code == 1
    assert "rows.sha256" in done.output
    whole = record()
    whole["rows"]["a"] = whole["rows"]["a"][1:]
    assert verified(tmp_path, whole).exit_code == 1


def test_a_record_of_another_policy_is_not_judged_by_this_one() -> None:
    with pytest.raises(NothingComparable, match="policy"):
        verify(msgspec.structs.replace(compared(), policy="1999-01"))


# With the models.


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
def test_an_unchanged_pair_comes_out_again(copies: tuple[Path, Path], budget: Any) -> None:
    comparison = compare(str(copies[0]), str(copies[1]), CompareOptions(budget))
    assert verify_fetched(comparison) == ()


def test_later_reads_are_recorded_by_digest() -> None:
    standard = compared(budget="standard")
    assert compared().reads.a == ()
    assert len({str(read.cut) for read in standard.reads.b}) == len(standard.reads.b) > 10
    full = compared(budget="full")
    layers = {read.cut.slot.layer for read in full.reads.a if read.cut.start == 0}
    assert layers >= set(range(full.a.layers or 0))


def change(folder: Path, name: str) -> None:
    """Other numbers in the place of one tensor's."""
    path = folder / "model.safetensors"
    body = bytearray(path.read_bytes())
    data = 8 + int.from_bytes(body[:8], "little")
    start, stop = (data + at for at in json.loads(body[8:data])[name]["data_offsets"])
    body[start:stop] = body[start + 2 : stop] + body[start : start + 2]
    path.write_bytes(body)


def test_a_changed_model_is_told_by_file_and_range(copies: tuple[Path, Path], tmp_path: Path) -> None:
    whole = json.loads(to_json(compare(str(copies[0]), str(copies[1]), CompareOptions("standard"))))
    change(copies[1], "model.layers.1.mlp.up_proj.weight")
    done = verified(tmp_path, whole, "--fetch")
    assert done.exit_code == 1
    assert "b.files.model.safetensors.sha256" in done.output
    assert "reads.b: 1 up, rows" in done.output
    assert "reads.a" not in done.output
    assert "entries do not come out again" in done.output
    assert "altered after it was written" not in done.output


def test_an_altered_later_answer_is_found_by_fetching_alone(copies: tuple[Path, Path]) -> None:
    comparison = compare(str(copies[0]), str(copies[1]), CompareOptions("standard"))
    place, layer_map = next((i, a) for i, a in enumerate(comparison.answers) if a.question == "layer-map")
    answers = list(comparison.answers)
    answers[place] = msgspec.structs.replace(layer_map, effect=0.123)
    edited = sealed(msgspec.structs.replace(comparison, answers=tuple(answers)))
    assert verify(edited) == ()
    assert [difference.where for difference in verify_fetched(edited)] == ["answers.layer-map.effect"]


def test_a_model_that_is_gone_ends_with_three(copies: tuple[Path, Path], tmp_path: Path) -> None:
    whole = json.loads(to_json(compare(str(copies[0]), str(copies[1]), CompareOptions("quick"))))
    shutil.rmtree(copies[0])
    assert verified(tmp_path, whole, "--fetch").exit_code == 3
    assert verified(tmp_path, whole).exit_code == 0


def test_models_of_the_hub_are_opened_at_the_recorded_commit() -> None:
    models = bundled()
    repositories = {f"demo/{name}": Repository.from_folder(models[name]) for name in ("dune", "heath", "grove")}
    with LoopbackHub(repositories) as hub:
        reading = ReadOptions(endpoint=hub.endpoint, cache=False, token=False)
        comparison = compare("demo/dune", "demo/heath", CompareOptions("quick", reading=reading))
        assert comparison.a.revision is not None
        assert verify_fetched(comparison, reading) == ()
        moved = msgspec.structs.replace(comparison, b=msgspec.structs.replace(comparison.b, revision="0" * 40))
        with pytest.raises(ModelkinError) as raised:
            verify_fetched(moved, reading)
        assert raised.value.exit_code == 3


# What a record keeps.


def header_only(hidden: int, layers: int, dtype: str, size: int) -> Any:
    """A model of any size whose weights are not there: enough to plan a reading."""
    shapes = {"model.embed_tokens.weight": [64, hidden], "model.norm.weight": [hidden]}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= {f"{at}{name}.weight": [hidden] for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{at}mlp.{name}_proj.weight": [4 * hidden, hidden] for name in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = [hidden, 4 * hidden]
        shapes |= {f"{at}self_attn.{name}_proj.weight": [hidden, hidden] for name in "qkvo"}
    entries, at_byte = {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape)) * size
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at_byte, at_byte + count]}
        at_byte += count
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text, at_byte


class Hollow(bytes):
    """The header of a file, and a length that says the weights follow."""

    length: int

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize(
    ("hidden", "layers", "dtype", "size"),
    [
        (12288, 100, "BF16", 2),
        (4096, 32, "BF16", 2),
        (8192, 80, "BF16", 2),
        (12288, 96, "F32", 4),
        (2048, 48, "F32", 4),
    ],
)
def test_what_is_kept_of_a_large_model_fits_three_megabytes(hidden: int, layers: int, dtype: str, size: int) -> None:
    header, weights = header_only(hidden, layers, dtype, size)
    body = Hollow(header)
    body.length = len(header) + weights
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 32,
              "intermediate_size": 4 * hidden, "vocab_size": 64}  # fmt: skip
    source = MemorySource({"config.json": json.dumps(config).encode(), "model.safetensors": body})
    anatomy = identify(open_checkpoint(source))
    pair = Pair(anatomy, anatomy, 0, "full")
    kept = sum(kept_bytes(anatomy, question.cuts(pair)[side]) for question in (GAINS, NEURONS) for side in (0, 1))
    assert kept * 4 / 3 + 50_000 < 3_000_000
