"""Which rows are read: ends meet their own, blocks lie inside, and what is kept is what was read."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.errors import UnreadableError
from modelkin.records import Cut, Role, Slot
from modelkin.sampling.facing import facing, two_depths
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import pack, unpack


def names(count: int, stack: str = "") -> list[str]:
    return [f"{stack}.{i}" if stack else str(i) for i in range(count)]


def test_equal_depths_face_layer_by_layer() -> None:
    assert facing(names(5), names(5)) == tuple((str(i), str(i)) for i in range(5))


def test_both_ends_of_a_deeper_model_meet_their_own() -> None:
    """32 layers made 48 by repeating the middle: 0..23 then 8..31."""
    source = [*range(24), *range(8, 32)]
    pairs = facing(names(32), names(48))
    assert len(pairs) == 32
    assert all(source[int(b)] == int(a) for a, b in pairs)


def test_both_ends_of_a_shallower_model_meet_their_own() -> None:
    kept = [0, 1, 4, 5]
    assert all(kept[int(b)] == int(a) for a, b in facing(names(6), names(4)))


def test_of_many_pairs_the_first_and_the_last_are_taken() -> None:
    pairs = facing(names(80), names(80), most=12)
    assert len(pairs) == 12
    assert (pairs[0], pairs[-1]) == (("0", "0"), ("79", "79"))


def test_stacks_face_their_own_kind() -> None:
    both = [*names(2, "encoder"), *names(3, "decoder")]
    assert facing(both, both) == tuple((name, name) for name in both)
    assert facing(names(3), both) == tuple((str(i), f"decoder.{i}") for i in range(3))


def test_two_depths_are_two_layers_where_there_are_two() -> None:
    assert two_depths(names(6), names(6)) == (("1", "1"), ("4", "4"))
    assert two_depths(names(1), names(9)) == (("0", "0"),)
    assert two_depths([], names(3)) == ()


@given(st.integers(0, 2**32), st.integers(1, 40_000), st.integers(1, 64))
def test_a_block_lies_inside_its_index_set(seed: int, size: int, rows: int) -> None:
    start = offset(seed, "neurons", size, rows)
    assert 0 <= start <= max(0, size - rows)


def test_seeds_and_index_sets_move_the_block_and_nothing_else_does() -> None:
    starts = {offset(seed, "neurons", 14_336, 16) for seed in range(50)}
    assert len(starts) > 40
    assert offset(0, "neurons", 14_336, 16) == offset(0, "neurons", 14_336, 16)
    assert offset(0, "neurons", 14_336, 16) != offset(0, "experts", 14_336, 16)


def test_rows_are_kept_in_the_smallest_dtype_that_holds_them() -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(4, 8)).astype(ml_dtypes.bfloat16).astype(np.float32)
    half = np.array([1.0, 1.0009765625], np.float32)  # one step of float16 above 1, between two of bfloat16
    single = rng.normal(size=(2, 3)).astype(np.float32)
    arrays = {
        Cut(Slot(Role.UP, 3), 16, 20): exact,
        Cut(Slot(Role.FINAL_NORM)): half,
        Cut(Slot(Role.EMBEDDING), rows=(5, 2)): single,
    }
    kept = pack(arrays)
    assert {part.cut.slot.role: part.dtype for part in kept} == {
        Role.UP: "BF16",
        Role.FINAL_NORM: "F16",
        Role.EMBEDDING: "F32",
    }
    again = unpack(kept)
    assert again.keys() == arrays.keys()
    assert all(np.array_equal(again[cut], array) for cut, array in arrays.items())


def test_not_a_number_survives_keeping() -> None:
    array = np.array([np.nan, np.inf, -0.0], np.float32)
    (kept,) = unpack(pack({Cut(Slot(Role.FINAL_NORM)): array})).values()
    assert np.array_equal(kept, array, equal_nan=True)


def test_an_edited_record_with_too_few_bytes_is_refused() -> None:
    import msgspec

    (part,) = pack({Cut(Slot(Role.FINAL_NORM)): np.ones(4, np.float32)})
    with pytest.raises(UnreadableError, match="6 bytes kept for 8"):
        unpack([msgspec.structs.replace(part, data=part.data[:-2])])
