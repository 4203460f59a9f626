"""What must never convict is printed with what chance makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save

from builders import CONFIG, Tensors, llama_files, llama_tensors
from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.questions.not_evidence import not_evidence
from modelkin.records import Cut, NotEvidence, Role
from modelkin.sampling.readings import Readings, portrait, read
from modelkin.sources.memory import MemorySource


def gains_of(tensors: Tensors) -> Readings:
    anatomy = identify(open_checkpoint(MemorySource(llama_files() | {"model.safetensors": save(tensors)})))
    cuts = [Cut(slot) for slot in anatomy.slots if slot.role.is_gain]
    return Readings(portrait(anatomy), read(anatomy, cuts))


def named(entries: tuple[NotEvidence, ...], start: str) -> NotEvidence:
    return next(entry for entry in entries if entry.measure.startswith(start))


def test_strangers_have_the_cosine_that_their_means_give() -> None:
    entries = not_evidence(gains_of(llama_tensors(0)), gains_of(llama_tensors(1)), CONFIG, CONFIG)
    cosine = named(entries, "raw cosine")
    assert "7 vectors" in cosine.measure
    assert isinstance(cosine.value, float)
    assert cosine.value > 0.98
    assert cosine.expected_from_means_alone == pytest.approx(cosine.value, abs=0.01)
    assert all(entry.why.endswith(".") for entry in entries)


def test_gains_of_both_signs_are_not_said_to_have_a_cosine_near_one() -> None:
    plain, turned = llama_tensors(seed=1), llama_tensors(seed=2)
    signs = np.where(np.arange(8192) % 2, -1.0, 1.0)
    for name, tensor in turned.items():
        if tensor.ndim == 1:
            turned[name] = (tensor * signs[: tensor.size]).astype(tensor.dtype)
    entry = named(not_evidence(gains_of(plain), gains_of(turned), {}, {}), "raw cosine")
    assert isinstance(entry.value, float)
    assert abs(entry.value) < 0.5
    assert "any two models have a cosine near 1" not in entry.why
    assert "moved into other weights or have both signs" in entry.why


def test_one_vector_is_not_called_many() -> None:
    tensors = {
        name: array for name, array in llama_tensors(0).items() if "norm" not in name or name == "model.norm.weight"
    }
    side = gains_of(tensors)
    assert named(not_evidence(side, side, {}, {}), "raw cosine").measure.endswith("mean of 1 vector")


def test_one_model_twice() -> None:
    side = gains_of(llama_tensors(0))
    entries = not_evidence(side, side, CONFIG, CONFIG, {"jaccard": 1.0})
    assert named(entries, "raw cosine").value == pytest.approx(1)
    assert named(entries, "correlation over depth").value == pytest.approx(1)
    assert named(entries, "entries of config").value == f"{len(CONFIG)} of {len(CONFIG)}"
    assert named(entries, "tokens in common").value == 1.0


def test_configs_are_counted_over_all_entries_that_say_something() -> None:
    side = gains_of(llama_tensors(0))
    a = {"hidden_size": 4, "layers": 2, "transformers_version": "5", "_name_or_path": "x"}
    entries = not_evidence(side, side, a, {"hidden_size": 4, "layers": 3, "more": None})
    assert named(entries, "entries of config").value == "1 of 3"


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, np.inf])
def test_what_has_no_value_is_left_out(value: float) -> None:
    tensors = llama_tensors(0)
    for name, array in tensors.items():
        if "norm" in name:
            tensors[name] = np.full_like(array, value)
    entries = not_evidence(gains_of(tensors), gains_of(llama_tensors(1)), {}, {})
    assert [entry.measure[:10] for entry in entries] == (["raw cosine"] if value == 1 else [])


def test_nothing_read() -> None:
    side = gains_of(llama_tensors(0))
    assert not_evidence(side, Readings(side.portrait, {}), {}, CONFIG) == ()


def rows_of(seed: int) -> Readings:
    anatomy = identify(open_checkpoint(MemorySource(llama_files(seed))))
    cuts = [Cut(slot, 8, 24) for slot in anatomy.slots if slot.role in (Role.GATE, Role.UP)]
    return Readings(portrait(anatomy), read(anatomy, cuts))


def test_spectra_of_strangers_coincide_and_stand_beside_those_of_other_depths() -> None:
    strangers = named(not_evidence(rows_of(0), rows_of(1), {}, {}), "cosine of singular values")
    assert "6 blocks" in strangers.measure
    assert isinstance(strangers.value, float)
    assert strangers.value > 0.98
    assert strangers.expected_from_means_alone == pytest.approx(strangers.value, abs=0.01)
    same = named(not_evidence(rows_of(0), rows_of(0), {}, {}), "cosine of singular values")
    assert same.value == pytest.approx(1, abs=1e-9)


def test_spectra_against_the_singular_values_themselves() -> None:
    a, b = rows_of(0), rows_of(1)
    cosines = []
    for cut, rows in a.arrays.items():
        left, right = (np.linalg.svd(side.astype(np.float64), compute_uv=False) for side in (rows, b[cut]))
        cosines.append(left @ right / np.linalg.norm(left) / np.linalg.norm(right))
    assert named(not_evidence(a, b, {}, {}), "cosine of sing").value == pytest.approx(np.mean(cosines), abs=1e-9)


def test_spectra_of_what_is_not_finite_are_left_out() -> None:
    a, b = rows_of(0), rows_of(1)
    broken = Readings(b.portrait, {cut: np.full_like(rows, np.nan) for cut, rows in b.arrays.items()})
    zero = Readings(b.portrait, {cut: np.zeros_like(rows) for cut, rows in b.arrays.items()})
    assert not_evidence(a, broken, {}, {}) == not_evidence(a, zero, {}, {}) == ()
