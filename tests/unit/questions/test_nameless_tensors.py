"""Tensors under names that say nothing are compared as they are stored; identity wants every tensor once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from modelkin.errors import NothingComparable
from modelkin.questions.digests import Fingerprint
from modelkin.questions.stored_tensors import Tensor
from modelkin.questions.whole_tensors import equal_tensors, in_place
from modelkin.records import Role, Slot
from modelkin.sources.protocol import no_progress
from modelkin.verify import verify, verify_fetched
from tensor_models import GPT2, HIDDEN, LLAMA, NEURONS, Tensors, anatomy, compared, evidence, gpt2, kinds, llama, whole


def renamed(tensors: Tensors, order: int = 0) -> Tensors:
    """Names that say nothing, in an order that says nothing either."""
    shuffled = np.random.default_rng(order).permutation(list(tensors))
    return {f"z{i}": tensors[name] for i, name in enumerate(shuffled)}


@pytest.mark.parametrize("budget", ["standard", "full"])
@pytest.mark.parametrize("both", [False, True])
def test_names_that_say_nothing_hide_no_copy(tmp_path: Path, budget: str, both: bool) -> None:
    a = llama(0)
    comparison = compared(tmp_path, renamed(a, 1) if both else a, renamed(a, 2), budget)
    assert (comparison.verdict.outcome, kinds(comparison)) == ("related", ["identical"])
    assert verify(comparison) == verify_fetched(comparison) == ()


@pytest.mark.parametrize("config", [GPT2, LLAMA])
def test_fused_and_transposed_tensors_meet_their_nameless_copies(config: Mapping[str, Any]) -> None:
    a = gpt2(0) if config is GPT2 else llama(0)
    answer = whole(anatomy(a, config), anatomy(renamed(a), config))
    assert answer.effect == 1
    assert answer.observed == f"all {len(a)} tensors are in both to the byte"


def test_strangers_without_names_share_nothing(tmp_path: Path) -> None:
    for a, b in ((llama(0), renamed(llama(1))), (renamed(llama(0)), renamed(llama(1))), (gpt2(0), renamed(gpt2(1)))):
        answer = whole(anatomy(a, GPT2 if "wte.weight" in a else LLAMA), anatomy(b))
        assert (answer.statistic, answer.grade) == (0, None)
    with pytest.raises(NothingComparable):
        compared(tmp_path, llama(0), renamed(llama(1)), "full")


def test_a_known_tensor_counts_under_any_name() -> None:
    a, b = llama(0), llama(1)
    taken = {"z7": a["model.layers.1.mlp.up_proj.weight"]}
    answer = whole(anatomy(a), anatomy(b | taken))
    assert (answer.grade, answer.statistic) == ("A", NEURONS * HIDDEN)
    buffer = {"z7": a["model.layers.1.mlp.up_proj.weight"], "rotary.cache": a["lm_head.weight"]}
    assert whole(anatomy(a), anatomy(b | buffer)).statistic == NEURONS * HIDDEN


def test_identity_wants_every_tensor_once() -> None:
    a = llama(0)
    small = a | {"unknown.vector": np.arange(9, dtype=np.float32)}
    other = a | {"unknown.vector": np.arange(1, 10, dtype=np.float32)}
    assert whole(anatomy(small), anatomy(small)).effect == 1
    assert (whole(anatomy(small), anatomy(other)).effect or 0) < 1
    twice = renamed(a) | {"z99": a["lm_head.weight"], "z98": a["lm_head.weight"]}
    assert (whole(anatomy(a), anatomy(twice)).effect or 0) < 1
    swapped = a | {
        f"model.layers.{i}.mlp.up_proj.weight": a[f"model.layers.{1 - i}.mlp.up_proj.weight"] for i in (0, 1)
    }
    assert (whole(anatomy(a), anatomy(swapped)).effect or 0) < 1
    integers = a | {"unknown.levels": np.arange(9)}
    assert (whole(anatomy(integers), anatomy(integers)).effect or 0) < 1  # read by nobody, so nobody knows


def test_pairs_in_place_against_every_assignment() -> None:
    """Equal tensors, some with a place, some without: as many pairs as the best assignment of all finds."""
    seen = Fingerprint({"F32": "x"}, True)
    slots = [Slot(Role.UP, layer=i) for i in range(8)]
    for counts in product(range(4), repeat=4):
        placed_a, free_a, placed_b, free_b = counts
        a = [Tensor(slot, (2, 3), "F32") for slot in slots[:placed_a]]
        a += [Tensor(f"a{i}", (2, 3), "F32") for i in range(free_a)]
        b = [Tensor(slot, (2, 3), "F32") for slot in slots[4 : 4 + placed_b]]
        b += [Tensor(f"b{i}", (2, 3), "F32") for i in range(free_b)]
        meets = np.array([[isinstance(x.thing, str) or isinstance(y.thing, str) for y in b] for x in a])
        best = 0
        if meets.size:
            rows, columns = linear_sum_assignment(meets, maximize=True)
            best = int(meets[rows, columns].sum())
        assert in_place(dict.fromkeys(a, seen), dict.fromkeys(b, seen)) == 6 * best


def test_of_large_tensors_without_names_standard_reads_the_start() -> None:
    a = llama(0)
    b = renamed(a)
    changed = {name: array.copy() for name, array in b.items()}
    for array in changed.values():
        array.reshape(-1, array.shape[-1])[-1] += 1 if array.ndim > 1 else 0
    sides = anatomy(a), anatomy(changed)
    answer = evidence(equal_tensors(*sides, no_progress, None, 4 * HIDDEN * 20 * len(a)))
    assert answer.grade == "A"
    assert "read in part" in answer.observed
    assert (answer.effect or 0) < 1
    read = sides[0].checkpoint.source.ledger.bytes({"stream"})
    assert read <= 4 * HIDDEN * 21 * len(a)
    assert whole(*sides).statistic == 0


def test_numbers_of_eight_bytes_are_not_called_identical() -> None:
    """They are read as numbers of four, which hides small differences."""
    wide = {name: array.astype(np.float64) for name, array in llama(0).items()}
    answer = whole(anatomy(wide), anatomy(wide))
    assert (answer.grade, answer.effect) == ("A", 0)
