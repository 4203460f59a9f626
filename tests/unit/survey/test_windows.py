"""Windows on matrices, the axis that is renumbered, and models with other numbers of heads."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_builders import named, number, opened

from builders import CONFIG, HIDDEN, Tensors, llama_tensors
from modelkin.records import Role
from modelkin.survey import stored, windows
from modelkin.survey.renumbering import by_role, renumbered
from modelkin.survey.stored import WINDOW_VALUES, WINDOWS, rows_of, window_rows
from modelkin.survey.truncation import DRAWS, _matched, matched_cosine

Q, K = "model.layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.k_proj.weight"
HEAD = 8


@given(
    st.integers(1, 5000), st.sampled_from([1, 7, 512, 4096, 100_000]), st.integers(0, 99), st.sampled_from(["q", "o"])
)
def test_windows_lie_inside_and_apart_and_are_fixed(rows: int, width: int, seed: int, role: str) -> None:
    found = window_rows((rows, width), Role(role), seed)
    listed = rows_of(found)
    assert listed == sorted(set(listed))
    assert listed[0] >= 0
    assert listed[-1] < rows
    assert found == window_rows((rows, width), Role(role), seed)
    each = max(1, WINDOW_VALUES // width)
    if rows <= WINDOWS * each:
        assert found == [range(rows)]
    else:
        assert [len(window) for window in found] == [each] * WINDOWS


def test_role_and_seed_move_the_windows() -> None:
    starts = {
        tuple(window.start for window in window_rows((4096, 4096), role, seed))
        for role in (Role.Q, Role.O, Role.V)
        for seed in range(5)
    }
    assert len(starts) == 15


@pytest.mark.parametrize("shape", [(3, 5), (7, 4), (1, 6), (2, 2)])
def test_mean_and_deviation_against_every_renumbering(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(0.5, 1, shape), rng.normal(-0.3, 1, shape)
    every = [float(np.sum(x * y[:, list(order)])) for order in permutations(range(shape[1]))]
    found = renumbered(x, y)
    assert found.seen == pytest.approx(float(np.sum(x * y)))
    assert found.mean == pytest.approx(float(np.mean(every)))
    assert found.sd == pytest.approx(float(np.std(every)))


def test_rows_are_renumbered_in_what_writes_to_the_stream() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(6, 9)), rng.normal(size=(6, 9))
    assert by_role(Role.DOWN, x, y).z == renumbered(x.T, y.T).z
    assert by_role(Role.O, x, y).z == renumbered(x.T, y.T).z
    assert by_role(Role.Q, x, y).z == renumbered(x, y).z


def test_z_of_strangers_is_standard_where_the_published_one_is_not() -> None:
    """Rows of a matrix share a direction, as trained ones do: then the values are not independent."""
    rng = np.random.default_rng(3)
    published, ours = [], []
    for _ in range(400):
        x, y = (rng.normal(size=(16, 64)) + 2 * rng.normal(size=64) for _ in "ab")
        published.append(float(np.corrcoef(x.ravel(), y.ravel())[0, 1]) * math.sqrt(x.size))
        ours.append(renumbered(x, y).z or 0.0)
    assert np.std(published) > 2.5
    assert np.std(ours) == pytest.approx(1, abs=0.15)  # four standard errors of 400 draws
    assert abs(np.mean(ours)) < 0.2


def test_p_is_never_smaller_than_a_normal_tail_can_say() -> None:
    x = np.random.default_rng(4).normal(size=(20, 50))
    assert renumbered(x, x).p == 1e-6
    assert renumbered(np.ones((3, 4)), np.ones((3, 4))).z is None
    assert renumbered(np.ones((3, 1)), np.ones((3, 1))).p is None


def test_measures_are_those_of_the_whole_tensor(tmp_path: Path) -> None:
    models = {"one": llama_tensors(1), "two": llama_tensors(2)}
    with opened(tmp_path, models, "q,o,gate") as collected:
        rows = named(windows.tables(collected), "windows")
    assert len(rows) == 9
    row = rows[1]
    x, y = (models[label][Q.format(1)].astype(np.float64).ravel() for label in models)
    assert (row["role"], row["layer_a"], row["status"], row["windows"], row["n"]) == ("q", "1", "ok", 1, HIDDEN**2)
    assert row["cosine"] == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    assert row["rel_rmse"] == pytest.approx(np.sqrt(np.mean((x - y) ** 2) / np.mean(x**2)))
    assert row["pearson"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert row["published_z"] == pytest.approx(np.corrcoef(x, y)[0, 1] * HIDDEN)
    assert row["bytes_equal"] == "no"
    assert all(abs(number(row["z"])) < 4 for row in rows)


def test_only_the_windows_are_read_and_they_are_the_same_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "WINDOW_VALUES", 4 * HIDDEN)
    models = {"one": llama_tensors(1), "two": llama_tensors(2)}
    with opened(tmp_path, models, "q") as collected:
        row = named(windows.tables(collected), "windows")[0]
        picked = rows_of(window_rows((HIDDEN, HIDDEN), Role.Q, collected.seed))
    assert (row["windows"], row["n"], len(picked)) == (3, 12 * HIDDEN, 12)
    x, y = (models[label][Q.format(0)][picked].astype(np.float64).ravel() for label in models)
    assert row["pearson"] == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_a_relative_and_a_copy(tmp_path: Path) -> None:
    base = llama_tensors(1)
    noise = np.random.default_rng(5)
    tuned = {name: (t.astype(np.float32) + noise.normal(0, 0.005, t.shape)).astype(t.dtype) for name, t in base.items()}
    with opened(tmp_path, {"base": base, "copy": base, "tuned": tuned}, "v,down") as collected:
        rows = named(windows.tables(collected), "windows")
    copies = [row for row in rows if (row["a"], row["b"]) == ("base", "copy")]
    assert {(row["bytes_equal"], row["rel_rmse"]) for row in copies} == {("yes", 0.0)}
    related = [row for row in rows if row["b"] == "tuned"]
    assert all(number(row["z"]) > 8 and row["p"] == 1e-6 and row["bytes_equal"] == "no" for row in related)


def test_what_cannot_be_measured_is_said(tmp_path: Path) -> None:
    base, other = llama_tensors(1), llama_tensors(2)
    del other[K.format(0)]
    other[K.format(1)] = other[K.format(1)].astype(np.float32)
    broken = other[Q.format(0)].copy()
    broken[3, 3] = np.nan
    other[Q.format(0)], other[Q.format(1)] = broken, np.zeros_like(broken)
    with opened(tmp_path, {"base": base, "other": other}, "q,k") as collected:
        rows = {(row["role"], row["layer_a"]): row for row in named(windows.tables(collected), "windows")}
        left_out = collected.left_out
    assert rows["k", "0"]["status"] == "missing in one"
    assert rows["k", "1"]["status"] == "dtypes differ"
    assert rows["k", "1"]["bytes_equal"] is None
    assert rows["k", "1"]["cosine"] is not None
    assert rows["q", "0"]["status"] == "not finite"
    assert rows["q", "0"]["cosine"] is None
    assert (rows["q", "1"]["cosine"], rows["q", "1"]["z"]) == (None, None)
    assert any("q of layer 0" in line and "finite" in line for line in left_out)
    assert any("q of layer 1" in line for line in left_out)


def test_one_model_or_no_matrix_gives_no_table(tmp_path: Path) -> None:
    with opened(tmp_path, {"base": llama_tensors(1)}, "q") as collected:
        assert windows.tables(collected) == []
    with opened(tmp_path, {"base": llama_tensors(1), "other": llama_tensors(2)}, "input_norm") as collected:
        assert windows.tables(collected) == []


def with_heads(seed: int, heads: int) -> Tensors:
    rng = np.random.default_rng(seed)
    tensors = llama_tensors(seed, np.float32)
    for i in range(CONFIG["num_hidden_layers"]):
        tensors[Q.format(i)] = rng.normal(0, 0.05, (heads * HEAD, HIDDEN)).astype(np.float32)
        name = f"model.layers.{i}.self_attn.o_proj.weight"
        tensors[name] = rng.normal(0, 0.05, (HIDDEN, heads * HEAD)).astype(np.float32)
    return tensors


def keeping(base: Tensors, order: list[int]) -> Tensors:
    """The heads of this order alone."""
    rows = [head * HEAD + i for head in order for i in range(HEAD)]
    cut = {name: t[rows] for name, t in base.items() if "q_proj" in name}
    return base | cut | {name: np.ascontiguousarray(t[:, rows]) for name, t in base.items() if "o_proj" in name}


def config(heads: int) -> dict[str, object]:
    return CONFIG | {"num_attention_heads": heads, "head_dim": HEAD}


@pytest.mark.parametrize(("order", "leading"), [([0, 1, 2, 3], True), ([5, 2, 7, 1], False)])
def test_kept_heads_are_found_wherever_they_stood(tmp_path: Path, order: list[int], leading: bool) -> None:
    base = with_heads(1, 8)
    models = {"base": base, "fewer": keeping(base, order)}
    with opened(tmp_path, models, "q,o", {"base": config(8), "fewer": config(4)}) as collected:
        rows = named(windows.tables(collected), "truncation")
        statuses = {row["status"] for row in named(windows.tables(collected), "windows")}
    assert statuses == {"shapes differ"}
    first = [row for row in rows if row["how"] == "leading rows"]
    matched = [row for row in rows if row["how"] == "matched heads"]
    assert len(first) == len(matched) == 6
    assert all((number(row["cosine"]) > 0.999) == leading for row in first)
    assert all(number(row["cosine"]) > 0.999 and row["p"] == 1 / (DRAWS + 1) for row in matched)
    assert {(row["heads_a"], row["heads_b"]) for row in rows} == {(8, 4)}
    assert {row["rows"] for row in first} == {4 * HEAD}


def test_matched_heads_of_strangers(tmp_path: Path) -> None:
    models = {"base": with_heads(1, 8), "other": with_heads(2, 4)}
    with opened(tmp_path, models, "q,o", {"base": config(8), "other": config(4)}) as collected:
        rows = named(windows.tables(collected), "truncation")
    matched = [row for row in rows if row["how"] == "matched heads"]
    assert all(0.05 < number(row["null_mean"]) < 0.5 for row in matched)
    assert all(abs(number(row["z"])) < 4.5 for row in rows)


def test_p_of_matched_heads_is_valid() -> None:
    rng = np.random.default_rng(7)
    values = []
    for _ in range(200):
        x, y = (rng.normal(size=(n, 2, 16)) + rng.normal(size=16) for n in (5, 3))
        values.append(number(_matched(x.astype(np.float32), y.astype(np.float32), rng)[2]))
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(values) <= level) <= level + 3 * math.sqrt(level * (1 - level) / 200)


def test_heads_of_another_size_are_left_out(tmp_path: Path) -> None:
    models = {"base": with_heads(1, 8), "other": with_heads(2, 4)}
    configs = {"base": config(8), "other": CONFIG | {"num_attention_heads": 8, "head_dim": 4}}
    with opened(tmp_path, models, "q", configs) as collected:
        rows = named(windows.tables(collected), "truncation")
        assert any("heads are not of one known size" in line for line in collected.left_out)
    assert {row["how"] for row in rows} == {"leading rows"}


@pytest.mark.parametrize("sizes", [(3, 5), (5, 5), (5, 2)])
def test_matching_against_every_assignment(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(8)
    x, y = (rng.normal(size=(n, 4)) for n in sizes)
    short, long = (x, y) if len(x) <= len(y) else (y, x)
    table = short @ long.T
    every = [np.mean(table[range(len(short)), list(order)]) for order in permutations(range(len(long)), len(short))]
    assert matched_cosine(x, y) == pytest.approx(max(every))


def test_packed_weights_are_named_and_not_read(tmp_path: Path) -> None:
    quantised = CONFIG | {"quantization_config": {"quant_method": "some-method"}}
    packed = llama_tensors(2)
    packed[Q.format(0)] = np.zeros((HIDDEN, HIDDEN), np.uint8)
    models = {"base": llama_tensors(1), "packed": packed}
    with opened(tmp_path, models, "q", {"packed": quantised}) as collected:
        rows = named(windows.tables(collected), "windows")
        assert "packed: 1 tensors hold packed values and count as missing" in collected.left_out
    assert [row["status"] for row in rows] == ["missing in one", "ok", "ok"]


def test_equal_values_of_a_scaled_format_are_not_called_equal_bytes(tmp_path: Path) -> None:
    fp8 = CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    tensors = llama_tensors(1)
    for i in range(3):
        tensors[Q.format(i)] = tensors[Q.format(i)].astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{Q.format(i)}_scale_inv"] = np.full((1, 1), 0.5, np.float32)
    models = {"one": tensors, "two": tensors}
    with opened(tmp_path, models, "q", dict.fromkeys(models, fp8)) as collected:
        rows = named(windows.tables(collected), "windows")
    assert {(row["status"], row["bytes_equal"]) for row in rows} == {("ok", None)}
    assert all(row["cosine"] == pytest.approx(1) for row in rows)
