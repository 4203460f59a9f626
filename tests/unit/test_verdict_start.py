"""Rows that agree where the constants do not: a common random start, or a part that was taken over."""

from __future__ import annotations

import pytest

from modelkin.records import Answer, Evidence, LayerFinding, Unanswered
from modelkin.verdict import judge
from verdict_answers import EMBEDDINGS, GAINS, NEURONS, kinds, layers, mapped, no, yes


@pytest.mark.parametrize("more", [[], [yes(EMBEDDINGS)], [Unanswered(EMBEDDINGS, "not at quick")], [yes("attention")]])
def test_rows_without_constants_are_shared_init_and_not_descent(more: list[Answer]) -> None:
    verdict = judge([no(GAINS), yes(NEURONS, per_layer=layers(-13, -13)), *more])
    assert (verdict.outcome, kinds(verdict)) == ("related", ["shared-init"])
    assert "not descent" in verdict.sentence
    assert "reset or folded" in verdict.sentence


SAME_SEED = [no(GAINS), yes(NEURONS, per_layer=layers(-13, -13)), yes("attention")]


@pytest.mark.parametrize(("pairs", "depths", "kind"), [
    ((("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")), (2, 4), "depth-upscale"),
    ((("0", "0"), ("1", "2")), (3, 2), "depth-prune"),
])  # fmt: skip
def test_a_same_seed_pair_derived_further_is_shared_init_beside_its_depth(
    pairs: tuple[tuple[str, str], ...], depths: tuple[int, int], kind: str
) -> None:
    found = [*SAME_SEED, yes("layer-map", per_layer=mapped(*pairs)), no(EMBEDDINGS)]
    verdict = judge(found, depths=depths)
    assert kinds(verdict) == ["shared-init", kind]
    assert "not descent" in verdict.sentence
    assert "continues" not in verdict.sentence


def test_new_embeddings_do_not_turn_a_shared_start_into_descent() -> None:
    assert kinds(judge([*SAME_SEED, no(EMBEDDINGS)])) == ["shared-init"]


def test_neurons_alone_where_other_rows_were_asked_are_a_part() -> None:
    quiet = [no(GAINS), yes(NEURONS, per_layer=layers(-13, -13)), no("attention")]
    assert kinds(judge(quiet)) == ["component-reuse"]


@pytest.mark.parametrize(("effect", "kind"), [(0.97, "shared-init"), (0.98, "component-reuse")])
def test_rows_that_hardly_changed_were_taken_over(effect: float, kind: str) -> None:
    verdict = judge([no(GAINS), yes(NEURONS, effect=effect, per_layer=layers(-13, -13)), yes("attention", effect=0.5)])
    assert kinds(verdict) == [kind]
    assert ("nearly the same number for number" in verdict.sentence) == (kind == "component-reuse")


def test_what_imitates_a_shared_start_is_named() -> None:
    sentence = judge(SAME_SEED).sentence
    assert all(words in sentence for words in ("merge that took a small share", "blocks taken over", "reset or folded"))


@pytest.mark.parametrize("gains", [Unanswered(GAINS, "constant"), yes(GAINS, -9.0, effect=0.05)])
def test_without_clear_gains_a_common_random_start_is_not_ruled_out(gains: Answer) -> None:
    verdict = judge([gains, yes(NEURONS), yes("attention")])
    assert kinds(verdict) == ["undetermined"]
    assert "both started from the same random weights" in verdict.sentence
    assert "random" not in judge([yes(GAINS, effect=0.1), yes(NEURONS)]).sentence


def found_layers(*log10s: float, matched: tuple[int, ...]) -> Evidence:
    findings = (LayerFinding(str(i) if i in matched else "", str(i), 3.0, 16, log10) for i, log10 in enumerate(log10s))
    return yes("layer-map", per_layer=tuple(findings))


def test_layers_that_come_near_none_are_no_shared_start_and_faint_ones_are() -> None:
    some = judge([*SAME_SEED, found_layers(-30, -30, -30, -0.5, matched=(0, 1, 2))], depths=(4, 4))
    assert kinds(some) == ["component-reuse"]
    assert "in layers 0, 1 and 2 of B; the other layers match none of A beyond chance" in some.sentence
    faint = judge([*SAME_SEED, found_layers(-30, -30, -30, -4.0, matched=(0, 1, 2))], depths=(4, 4))
    assert kinds(faint) == ["shared-init"]


@pytest.mark.parametrize(("counted", "kind"), [(2.0, "component-reuse"), (6.0, "shared-init")])
def test_a_likeness_that_goes_faintly_through_all_layers_is_not_placed_in_one(counted: float, kind: str) -> None:
    """1 of 32 a layer is chance, and so is 2 in one of them; 3 times 6 is not."""
    heads = tuple(LayerFinding(str(i), str(i), 30.0 if i == 3 else counted if i == 0 or counted > 2 else 1.0, 32, -0.5)
                  for i in range(4))  # fmt: skip
    found = [no(GAINS), yes("attention", per_layer=heads), found_layers(-0.2, -0.4, -0.1, -30, matched=(3,))]
    verdict = judge(found, depths=(4, 4))
    assert kinds(verdict) == [kind]
    assert ("in layer 3 of B" in verdict.sentence) == (kind == "component-reuse")
