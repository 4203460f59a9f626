"""Equal bytes that count and that do not; frozen, cast, trained, unlike; changes in steps of the format."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from pair_builders import named, number, opened

from builders import CONFIG, Tensors, llama_tensors
from modelkin.metrics import ulp_change
from modelkin.records import KnownPair, Role
from modelkin.survey import changes, stored
from modelkin.survey.changes import FORMATS, NARROW, answer, smallest_update, ulp_steps, why_not_counted

Floats = NDArray[np.float32]
GAIN, Q = "model.layers.{}.input_layernorm.weight", "model.layers.{}.self_attn.q_proj.weight"


def values(dtype: str, seed: int = 0, scale: float = 1.0, n: int = 3000) -> Floats:
    """Numbers that the format holds."""
    drawn = np.random.default_rng(seed).normal(0, scale, n)
    return drawn.astype(FORMATS[dtype][0]).astype(np.float32)


def cut_off(x: Floats) -> Floats:
    """BF16 as the upper half of a float32, nothing rounded."""
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def told(x: Floats, y: Floats, *dtypes: str) -> str:
    return answer(x, y, dtypes)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_steps_against_the_metric_and_the_next_number(dtype: str) -> None:
    x, y = values(dtype, 1), values(dtype, 2)
    steps = ulp_steps(x, y, dtype)
    found = ulp_change(x, y, dtype)
    assert np.count_nonzero(steps) == found.changed
    assert np.abs(steps).max() == found.maximum
    assert np.median(np.abs(steps[steps != 0])) == found.median
    assert np.array_equal(steps > 0, y > x)
    format, _ = FORMATS[dtype]
    above = np.nextafter(x.astype(format), format(np.inf)).astype(np.float32)
    assert set(ulp_steps(x, above, dtype).tolist()) == {1}
    assert ulp_steps(np.array([-0.0], np.float32), np.array([0.0], np.float32), dtype).tolist() == [0]


@pytest.mark.parametrize(("dtype", "digits"), [("BF16", 7), ("F16", 10), ("F32", 23)])
def test_the_smallest_update_is_half_a_step_at_the_median(dtype: str, digits: int) -> None:
    for size in (0.25, 0.3, 0.499, 0.5, 1.7):
        expected = 2.0 ** (np.floor(np.log2(size)) - digits - 1)
        assert smallest_update(np.array([0.001, size, -size, size, 900], np.float32), dtype) == expected


def test_an_update_below_the_smallest_is_lost_by_half_the_values() -> None:
    """And one above it is not: by the rounding of BF16 itself."""
    x = np.abs(values("BF16", 3))
    half = smallest_update(x, "BF16")
    for part, kept in ((0.49, False), (1.01, True)):
        moved = (x + np.float32(part * half)).astype(ml_dtypes.bfloat16).astype(np.float32)
        large = x >= np.median(x)
        assert (np.mean(moved != x) > 0.5) == kept
        assert kept or not np.any((moved != x)[large])


def test_the_four_answers() -> None:
    wide, other = values("F32", 1), values("F32", 2)
    rounded = wide.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert told(wide, wide, "F32", "F32") == "frozen"
    assert told(rounded, rounded, "BF16", "F32") == "cast"
    assert told(wide, rounded, "F32", "BF16") == "cast"
    assert told(rounded, wide, "BF16", "F32") == "cast"
    assert told(wide, rounded, "F32", "F32") == "cast"  # through BF16 and back
    assert told(wide, wide.astype(np.float16).astype(np.float32), "F32", "F16") == "cast"
    assert told(wide, wide.astype(ml_dtypes.float8_e4m3fn).astype(np.float32), "F32", "F8_E4M3") == "cast"
    assert told(wide, other, "F32", "F32") == "unlike"
    assert told(wide, (wide + 0.01 * other).astype(np.float32), "F32", "F32") == "trained"
    assert told(wide, np.ones_like(wide), "F32", "F32") == "unlike"


def test_digits_cut_off_are_a_cast_and_steps_of_the_same_format_are_training() -> None:
    wide = values("F32", 4)
    rounded, cut = wide.astype(ml_dtypes.bfloat16).astype(np.float32), cut_off(wide)
    assert 0.4 < np.mean(rounded != cut) < 0.6
    assert told(wide, cut, "F32", "BF16") == told(cut, wide, "BF16", "F32") == told(wide, cut, "F32", "F32") == "cast"
    # Neither has fewer digits than the other: one step towards zero may as well be weight decay.
    assert told(rounded, cut, "BF16", "BF16") == told(cut, rounded, "BF16", "BF16") == "trained"
    rng = np.random.default_rng(5)
    steps = rng.integers(-1, 2, wide.size)
    moved = (rounded.astype(ml_dtypes.bfloat16).view(np.int16) + steps.astype(np.int16)).view(ml_dtypes.bfloat16)
    assert told(rounded, moved.astype(np.float32), "BF16", "BF16") == "trained"
    one = rounded.copy()
    one[7] = cut_off(one[7:8] * np.float32(1.02))[0]
    assert told(rounded, one, "BF16", "BF16") == "trained"


@pytest.mark.parametrize("factor", [0.998, 1.002])
def test_a_drift_below_one_step_is_training(factor: float) -> None:
    """Decay in float32, stored in BF16: gains move by no more than a step, and all one way."""
    kept = np.random.default_rng(6).normal(1.0, 0.2, 2000)
    before, after = (x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32) for x in (kept, factor * kept))
    steps = ulp_steps(before, after, "BF16")
    assert np.abs(steps).max() == 1
    assert abs(int(steps.sum())) == np.count_nonzero(steps) > 20
    assert told(before, after, "BF16", "BF16") == "trained"
    assert told(before, after, "BF16", "F32") == "trained"


@pytest.mark.parametrize("narrow", NARROW)
def test_cutting_off_is_the_largest_number_of_the_format_that_is_no_larger(narrow: type) -> None:
    x = values("F32", 7, n=400)
    bits = np.arange(256, dtype=np.uint8) if np.dtype(narrow).itemsize == 1 else np.arange(1 << 16).astype(np.uint16)
    with np.errstate(invalid="ignore"):
        held = bits.view(narrow).astype(np.float64)
    sizes = np.unique(held[np.isfinite(held) & (held >= 0)])
    expected = np.sign(x) * sizes[np.searchsorted(sizes, np.abs(x), side="right") - 1]
    assert told(x, expected.astype(np.float32), "F32", "F32") == "cast"
    beyond = expected.astype(np.float32)
    beyond[-1] = x[-1]  # one value that the format does not hold
    assert told(x, beyond, "F32", "F32") == "trained"


def test_equal_bytes_that_say_nothing() -> None:
    assert why_not_counted(Role.FINAL_NORM, np.ones(4096)) == "constant: every value is the same"
    assert "1,000 distinct" in str(why_not_counted(Role.FINAL_NORM, np.arange(999.0)))
    assert why_not_counted(Role.Q, np.arange(1000.0)) is None
    assert "config" in str(why_not_counted(Role.FIXED_POSITION, np.arange(5000.0)))
    assert "config" in str(why_not_counted(Role.POSITION, np.arange(5000.0), fixed_positions=True))
    assert why_not_counted(Role.POSITION, np.arange(5000.0)) is None


def test_bytes_of_a_partial_copy(tmp_path: Path) -> None:
    base, other = llama_tensors(1, np.float32), llama_tensors(2, np.float32)
    ones = {GAIN.format(i): np.ones_like(base[GAIN.format(i)]) for i in range(3)}
    base, other = base | ones, other | ones | {Q.format(1): base[Q.format(1)]}
    with opened(tmp_path, {"base": base, "other": other}, "input_norm,post_norm,q,k") as collected:
        rows = {row["role"]: row for row in named(changes.tables(collected), "bytes")}
    assert [rows["q"][name] for name in ("tensors", "equal", "counted", "why_not_counted")] == [3, 1, 1, None]
    assert [rows["input_norm"][name] for name in ("tensors", "equal", "counted")] == [3, 3, 0]
    assert rows["input_norm"]["why_not_counted"] == "3 constant: every value is the same"
    assert [rows["post_norm"][name] for name in ("tensors", "equal", "counted")] == [3, 0, 0]
    assert rows["k"]["equal"] == 0


def test_a_difference_outside_the_windows_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "WINDOW_VALUES", 64)
    base = llama_tensors(1)
    touched = base | {Q.format(i): base[Q.format(i)].copy() for i in range(3)}
    with opened(tmp_path, {"base": base, "copy": base}, "q") as collected:
        picked = stored.rows_of(stored.window_rows((32, 32), Role.Q, collected.seed))
        assert named(changes.tables(collected), "bytes")[0]["equal"] == 3
    outside = next(row for row in range(32) if row not in picked)
    touched[Q.format(0)][outside, 0] *= 2
    with opened(tmp_path, {"base": base, "touched": touched}, "q") as collected:
        assert named(changes.tables(collected), "bytes")[0]["equal"] == 2
    monkeypatch.setattr(changes, "WHOLE_VALUES", 100)
    with opened(tmp_path, {"base": base, "touched": touched}, "q") as collected:
        assert named(changes.tables(collected), "bytes")[0]["equal"] == 3  # as the caption says: windows alone


def stepped(base: Tensors, shares: list[float]) -> Tensors:
    """Gains of layer i moved by one BF16 step in this share of places, up and down by turns."""
    moved = dict(base)
    for i, share in enumerate(shares):
        bits = base[GAIN.format(i)].view(np.int16).copy()
        count = round(share * bits.size)
        bits[:count] += np.where(np.arange(count) % 2, 1, -1).astype(np.int16)
        moved[GAIN.format(i)] = bits.view(ml_dtypes.bfloat16)
    return moved


def test_changes_of_a_derived_pair(tmp_path: Path) -> None:
    base, stranger = llama_tensors(1), llama_tensors(2)
    models = {"base": base, "tuned": stepped(base, [0.5, 0.25, 0.0]), "stranger": stranger}
    with opened(tmp_path, models, "input_norm") as collected:
        rows = named(changes.tables(collected), "changes")
        every = named(changes.tables(collected, every_pair=True), "changes")
    assert {(row["a"], row["b"]) for row in rows} == {("base", "tuned")}
    assert [row["changed"] for row in rows] == [0.5, 0.25, 0.0]
    assert [row["answer"] for row in rows] == ["trained", "trained", "frozen"]
    assert [(row["mean_ulps"], row["one_ulp"], row["largest_ulps"]) for row in rows] == [
        (1.0, 1.0, 1),
        (1.0, 1.0, 1),
        (None, None, 0),
    ]
    x, y = (models[label][GAIN.format(0)].astype(np.float64) for label in ("base", "tuned"))
    assert rows[0]["mean_abs"] == pytest.approx(np.mean(np.abs(x - y)))
    assert {row["answer"] for row in every if row["b"] == "stranger"} == {"unlike"}


def test_a_pair_known_as_derived_is_shown_whatever_is_found(tmp_path: Path) -> None:
    known = (KnownPair(str(tmp_path / "one"), str(tmp_path / "two"), "derived"),)
    models = {"one": llama_tensors(1), "two": llama_tensors(2)}
    with opened(tmp_path, models, "input_norm", known=known) as collected:
        rows = named(changes.tables(collected), "changes")
    assert {row["answer"] for row in rows} == {"unlike"}
    with opened(tmp_path, models, "input_norm") as collected:
        assert [table.name for table in changes.tables(collected)] == ["bytes"]


def test_steps_are_those_of_the_stored_values_where_a_model_adds_one(tmp_path: Path) -> None:
    """Gemma stores gain − 1: near zero a step is a thousandth of a step near one."""
    config = CONFIG | {"model_type": "gemma", "architectures": ["GemmaForCausalLM"]}
    base = llama_tensors(1)
    for i in range(3):
        base[GAIN.format(i)] = (base[GAIN.format(i)].astype(np.float32) * 1e-3).astype(ml_dtypes.bfloat16)
    models = {"base": base, "tuned": stepped(base, [1.0, 1.0, 1.0])}
    with opened(tmp_path, models, "input_norm", dict.fromkeys(models, config)) as collected:
        assert collected.models[0].anatomy.facts.gain_offset == 1.0
        rows = named(changes.tables(collected), "changes")
    assert [(row["changed"], row["mean_ulps"]) for row in rows] == [(1.0, 1.0)] * 3
    assert all(number(row["smallest_update"]) < 1e-5 for row in rows)


def test_the_caption_says_when_changes_follow_the_size_of_a_step(tmp_path: Path) -> None:
    """One and the same small update for all: larger values show it less."""
    config = CONFIG | {"num_hidden_layers": 3}
    base = llama_tensors(1)
    tuned = dict(base)
    for i in range(3):
        for name, scale in ((GAIN.format(i), 2.0**-i), (f"model.layers.{i}.post_attention_layernorm.weight", 2.0**i)):
            base[name] = (base[name].astype(np.float32) * scale).astype(ml_dtypes.bfloat16)
            update = np.random.default_rng(i).uniform(-0.004, 0.004, base[name].shape)
            tuned[name] = (base[name].astype(np.float32) + update).astype(ml_dtypes.bfloat16)
    configs = {"base": config, "tuned": config}
    with opened(tmp_path, {"base": base, "tuned": tuned}, "input_norm,post_norm", configs) as collected:
        table = next(table for table in changes.tables(collected) if table.name == "changes")
    shown = float(table.caption.split("rank correlation ")[1].split(",")[0])
    assert shown < -0.8


def test_values_that_are_not_finite_and_other_shapes_are_left_out(tmp_path: Path) -> None:
    base = llama_tensors(1)
    broken = dict(base)
    strange = base[GAIN.format(0)].copy()
    strange[0] = np.inf
    broken[GAIN.format(0)], broken[Q.format(0)] = strange, base[Q.format(0)][:8].copy()
    with opened(tmp_path, {"base": base, "broken": broken}, "input_norm,q") as collected:
        rows = named(changes.tables(collected), "bytes")
        assert sum("finite" in line for line in collected.left_out) == 1
    assert [(row["role"], row["tensors"], row["equal"]) for row in rows] == [("input_norm", 2, 2), ("q", 2, 2)]


def test_what_float64_cannot_square_is_not_measured() -> None:
    fine = np.array([1.0, -3e38], np.float32)
    assert stored.measurable(fine, np.zeros(0))
    assert not stored.measurable(fine, np.array([1e200]))
    assert not stored.measurable(np.array([np.nan], np.float32))
    assert not stored.measurable(np.array([-np.inf], np.float32))
    assert smallest_update(np.array([1.0], np.float32), "F16") == 2.0**-11
