"""Tensors that stand in both models are found under any name, place or float format; what strangers share is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from modelkin.architectures import Anatomy
from modelkin.questions import stored_tensors, whole_tensors
from modelkin.questions.copies import equal_rows
from modelkin.questions.digests import TensorDigest, rounded, same_numbers
from modelkin.records import Cut, Evidence, Role
from modelkin.sampling.readings import Readings, portrait, read
from tensor_models import (
    GPT2,
    HIDDEN,
    LAYERS,
    LLAMA,
    NEURONS,
    PLACES,
    VOCABULARY,
    Tensors,
    anatomy,
    compared,
    evidence,
    gpt2,
    kinds,
    llama,
    remarks,
    sinusoids,
    whole,
)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def rows(a: Anatomy, b: Anatomy) -> Evidence:
    """What `standard` might have read: rows 8 to 40 of every matrix, and all gains."""
    sides = []
    for side in (a, b):
        cuts = [Cut(slot) if slot.role.is_gain else Cut(slot, 8, 40) for slot in side.slots]
        sides.append(Readings(portrait(side), read(side, cuts)))
    return evidence(equal_rows(sides[0], sides[1], a.checkpoint.parameters))


# what is found


@pytest.mark.parametrize("look", [whole, rows])
def test_strangers_share_nothing(look: Any) -> None:
    answer = look(anatomy(llama(0)), anatomy(llama(1)))
    assert (answer.statistic, answer.grade, answer.effect, answer.per_layer) == (0, None, 0, ())
    assert answer.observed.startswith("none of")


@pytest.mark.parametrize("look", [whole, rows])
def test_one_copied_layer_is_found_where_it_stands(look: Any) -> None:
    a, b = llama(0), llama(1)
    moved = {name: a[name.replace("layers.1.", "layers.0.")] for name in b if "layers.1.mlp" in name}
    answer = look(anatomy(a), anatomy(b | moved))
    assert answer.grade == "A"
    assert [(found.a, found.b) for found in answer.per_layer] == [("0", "1")]
    assert "3 of" in answer.observed
    assert "layer 1" in answer.observed
    assert "another place" in remarks(answer)


def test_the_share_is_that_of_the_parameters() -> None:
    a, b = llama(0), llama(1)
    shared = {name: a[name] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    answer = whole(anatomy(a), anatomy(b | shared))
    total = sum(array.size for array in a.values())
    assert (answer.statistic, answer.n) == (2 * VOCABULARY * HIDDEN, total)
    assert answer.effect == pytest.approx(2 * VOCABULARY * HIDDEN / total)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16])
@pytest.mark.parametrize("finer_first", [True, False])
@pytest.mark.parametrize("look", [whole, rows])
def test_a_cast_is_seen_through_and_told(look: Any, finer_first: bool, dtype: np.dtype[Any]) -> None:
    fine = llama(0)
    coarse = {name: array.astype(dtype) for name, array in fine.items()}
    pair = (fine, coarse) if finer_first else (coarse, fine)
    answer = look(*map(anatomy, pair))
    assert answer.grade == "A"
    assert f"after rounding to {'BF16' if dtype == BFLOAT16 else 'F16'}" in answer.observed
    assert answer.effect == 0  # to the byte nothing is the same


def test_a_cast_between_the_two_halves() -> None:
    half = {name: array.astype(np.float16) for name, array in llama(0).items()}
    answer = whole(anatomy(half), anatomy({name: array.astype(BFLOAT16) for name, array in half.items()}))
    assert "after rounding to BF16" in answer.observed


def test_rounding_both_is_no_cast() -> None:
    a = llama(0)
    near = {name: (array * np.float32(1 + 1e-6)).astype(np.float32) for name, array in a.items()}
    for look in (whole, rows):
        assert look(anatomy(a), anatomy(near)).statistic == 0


def test_transposed_and_fused_matrices_meet_split_ones() -> None:
    a = gpt2(0)
    again = {f"transformer.{name}": array for name, array in a.items()}
    assert whole(anatomy(a, GPT2), anatomy(again, GPT2)).effect == 1


def test_blocks_of_any_size_give_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = anatomy(llama(0)), anatomy(llama(0))
    at_once = whole(a, b)
    monkeypatch.setattr(stored_tensors, "BLOCK", 100)
    monkeypatch.setattr(stored_tensors, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(whole_tensors, "PART", 5000)
    assert whole(a, b) == at_once


def test_strangers_cost_a_row_a_tensor() -> None:
    a, b = anatomy(llama(0)), anatomy(llama(1))
    whole(a, b)
    gains = 5 * HIDDEN
    rows_read = sum(slot.role is not Role.DOWN and not slot.role.is_gain for slot in a.slots) * HIDDEN
    assert a.checkpoint.source.ledger.bytes({"stream"}) == 4 * (gains + rows_read + LAYERS * NEURONS)


# the verdict


def test_renamed_and_resharded_is_identical(tmp_path: Path) -> None:
    a = llama(0)
    renamed = {name.replace("model.", "language_model.model.", 1): array for name, array in a.items()}
    config = LLAMA | {"architectures": ["LlamaForCausalLM"]}
    full = compared(tmp_path, a, renamed, "full", config)
    assert (full.verdict.outcome, kinds(full)) == ("related", ["identical"])


@pytest.mark.parametrize("budget", ["standard", "full"])
def test_a_part_that_was_taken_over_is_component_reuse(tmp_path: Path, budget: str) -> None:
    a, b = llama(0), llama(1)
    taken = {name: a[name] for name in b if "layers.1.mlp" in name}
    comparison = compared(tmp_path, a, b | taken, budget)
    assert (comparison.verdict.outcome, kinds(comparison)[0]) == ("related", "component-reuse")


def test_one_changed_number_is_not_identical(tmp_path: Path) -> None:
    a, b = llama(0), llama(0)
    b["model.layers.1.self_attn.o_proj.weight"][-1, -1] += 1
    comparison = compared(tmp_path, a, b, "full")
    assert comparison.verdict.outcome == "related"
    assert "identical" not in kinds(comparison)


def test_a_cast_of_everything_is_related_and_not_identical(tmp_path: Path) -> None:
    a = llama(0)
    comparison = compared(tmp_path, a, {name: array.astype(BFLOAT16) for name, array in a.items()}, "full")
    assert comparison.verdict.outcome == "related"
    assert "identical" not in kinds(comparison)


def strangers_with_equal_tables() -> dict[str, tuple[Tensors, Tensors, Mapping[str, Any]]]:
    def both(extra: Tensors) -> tuple[Tensors, Tensors, Mapping[str, Any]]:
        return llama(0) | extra, llama(1) | extra, LLAMA

    frequencies = (1 / 10000 ** (np.arange(0, 4096, 2) / 4096)).astype(np.float32)
    padding = llama(1)
    padding["model.embed_tokens.weight"][40:] = llama(0)["model.embed_tokens.weight"][40:]
    at = "model.layers.0.self_attn."
    random_once = np.random.default_rng(42).normal(size=(64, 64)).astype(np.float32)
    return {
        "sinusoids, masks, zero biases, gains of one": (gpt2(0), gpt2(1), GPT2),
        "rotary frequencies": both({f"{at}rotary_emb.inv_freq": frequencies}),
        "rotary tables": both({f"{at}rotary_emb.cos_cached": sinusoids(PLACES, 64)}),
        "positions of unknown kind": both({"model.embed_positions.weight": sinusoids(PLACES, HIDDEN)}),
        "a mask": both({f"{at}bias": np.tril(np.ones((1, 1, 64, 64), np.float32))}),
        "padding rows": (llama(0), padding, LLAMA),
        "one tensor drawn from a fixed seed": both({"model.features.weight": random_once}),
        "buffers drawn from a fixed seed": both({f"model.features.{i}.projection": random_once + i for i in range(3)}),
    }


@pytest.mark.parametrize("name", list(strangers_with_equal_tables()))
def test_what_strangers_share_never_counts(tmp_path: Path, name: str) -> None:
    a, b, config = strangers_with_equal_tables()[name]
    answer = whole(anatomy(a, config), anatomy(b, config))
    assert (answer.statistic, answer.grade) == (0, None)
    assert answer.observed.startswith("none of")
    for budget in ("standard", "full"):
        (tmp_path / budget).mkdir()
        assert compared(tmp_path / budget, a, b, budget, config).verdict.outcome != "related"


@pytest.mark.parametrize("look", [whole, rows])
def test_few_levels_and_formulas_do_not_count_in_the_place_of_weights(look: Any) -> None:
    levels = np.random.default_rng(3).integers(-8, 8, (NEURONS, HIDDEN)).astype(np.float32) / 64
    for table in (levels, sinusoids(NEURONS, HIDDEN)):
        same = {"model.layers.0.mlp.gate_proj.weight": table}
        answer = look(anatomy(llama(0) | same), anatomy(llama(1) | same))
        assert (answer.statistic, answer.grade) == (0, None)
        assert "1 equal tensor does not count" in remarks(answer)


def test_a_tower_without_roles_counts(tmp_path: Path) -> None:
    tower = {
        f"vision_tower.stages.{i}.mixer.weight": np.random.default_rng(i).normal(size=(64, 64)).astype(np.float32)
        for i in range(3)
    }
    answer = whole(anatomy(llama(0) | tower), anatomy(llama(1) | tower))
    assert (answer.grade, answer.statistic) == ("A", 3 * 64 * 64)
    assert "tensors of no known role" in answer.observed
    assert kinds(compared(tmp_path, llama(0) | tower, llama(1) | tower, "full")) == ["component-reuse"]


def test_a_dropped_buffer_does_not_matter_to_identity() -> None:
    a = llama(0)
    old = a | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.arange(8, dtype=np.float32)}
    assert whole(anatomy(a), anatomy(old)).effect == 1


# numbers


def test_same_numbers_against_the_definition() -> None:
    rng = np.random.default_rng(0)
    array = rng.normal(size=(20, 30)).astype(np.float32)
    assert same_numbers(array, array.copy()) == "F32"
    for form, dtype in (("F16", np.dtype(np.float16)), ("BF16", BFLOAT16)):
        cast = array.astype(dtype).astype(np.float32)
        assert same_numbers(array, cast) == same_numbers(cast, array) == form
        off = cast.copy()
        off[3, 4] = np.nextafter(dtype.type(off[3, 4]), dtype.type(9), dtype=dtype) if form == "F16" else off[3, 4] * 2
        assert same_numbers(array, off) is None


def test_digests_do_not_depend_on_the_blocks() -> None:
    array = np.random.default_rng(1).normal(size=(50, 40)).astype(np.float32)
    one, many = TensorDigest(["F32", "BF16"]), TensorDigest(["F32", "BF16"])
    one.update(array)
    for start in range(0, 50, 7):
        many.update(array[start : start + 7])
    for form in ("F32", "BF16"):
        assert one.in_format(form) == many.in_format(form)
    assert one.says_something
    assert rounded(array, "BF16").dtype == BFLOAT16


def test_a_thousand_different_numbers_are_needed() -> None:
    rng = np.random.default_rng(2)
    numbers = rng.normal(size=1000).astype(np.float32)
    assert np.unique(numbers).size == 1000
    for count, expected in ((999, False), (1000, True)):
        digest = TensorDigest(["F32"])
        for _ in range(4):
            digest.update(rng.permutation(numbers[:count]))
        assert digest.says_something is expected


def test_numbers_that_are_none_are_compared_like_others() -> None:
    patterns = np.random.default_rng(5).integers(0, 1 << 32, 5000, dtype=np.uint32)
    array = patterns.view(np.float32).reshape(50, 100)  # infinities and NaN of every kind among them
    assert same_numbers(array, array.copy()) == "F32"
    digest = TensorDigest(["F32", "F16", "BF16"])
    digest.update(array)
    assert digest.says_something
    assert same_numbers(array, np.zeros_like(array)) is None
