"""Stage 5 in the table of outcomes, and what the relation adds to a verdict."""

from __future__ import annotations

import msgspec

from modelkin.records import Evidence, LayerFinding, Relation, Shared, Unanswered
from modelkin.records.relation import KindFound, Merge
from modelkin.records.terms import Direction, Kind
from modelkin.unmasking import all_in_place
from modelkin.verdict import judge
from verdict_answers import EMBEDDINGS, FAILS, GAINS, NEURONS, evidence, kinds, mapped, no, no_suspicion, yes

UNMASKED = "unmasked-neurons"
TURNED = {"undone": ["hidden axes are a rotation of A's"], "layer_map": [["0", "1"], ["1", None]]}
IN_PLACE = {"undone": [], "layer_map": [["0", "0"]]}
QUIET = (no(GAINS), no(NEURONS), no(EMBEDDINGS))


def seen(log10: float = -3.5, share: float = 1.0, **changes: object) -> Evidence:
    told = {"grade": "B", "index_set": "neurons", "statistic": 640 * share, "n": 640, "effect": share}
    return evidence(UNMASKED, log10, **(told | changes))


def relation(*found: Kind, direction: Direction = "unknown", low: float = 0.8) -> Relation:
    told = tuple(KindFound(kind, None, "it shows", "it does not") for kind in found)
    share = Shared(max(0.9, low), low, 1.0)
    return Relation(
        kinds=told, direction=direction, direction_probability=0.97, direction_reasons=("it lost",), shared=share
    )


def test_recognised_neurons_convict_at_grade_b() -> None:
    verdict = judge([*QUIET, seen()], alignment=TURNED)
    assert (verdict.outcome, verdict.grade, verdict.log10_pvalue) == ("related", "B", -3.5)
    assert kinds(verdict) == ["obfuscated"]
    assert "hidden axes are a rotation of A's" in verdict.sentence
    assert "640 of 640" in verdict.sentence
    assert verdict.layer_map == (("0", "1"), ("1", None))


def test_what_controls_show_too_convicts_nobody() -> None:
    verdict = judge([*QUIET, seen(-2.9, 0.01)], alignment=TURNED)
    assert verdict.outcome == "unrelated"
    assert no_suspicion(verdict)
    assert "also if its weights had been turned and renumbered" in verdict.sentence
    assert not any("were not looked for" in limit for limit in verdict.limits)


def test_without_stage_five_a_disguise_is_not_ruled_out() -> None:
    for answers in (QUIET, (*QUIET, Unanswered(UNMASKED, "too large")), (*QUIET, seen(-9.0, grade=None))):
        verdict = judge(answers)
        assert verdict.outcome == "unrelated"
        assert "unless it was deliberately disguised" in verdict.sentence
        assert any("were not looked for" in limit for limit in verdict.limits)


def test_other_shapes_are_no_disguise() -> None:
    verdict = judge([Unanswered(GAINS, "other widths"), seen()], alignment=IN_PLACE)
    assert (verdict.outcome, verdict.grade, kinds(verdict)) == ("related", "B", ["undetermined"])
    assert "rearranged" not in verdict.sentence


def test_a_few_neurons_are_a_part() -> None:
    assert kinds(judge([*QUIET, seen(share=0.2)], alignment=TURNED)) == ["obfuscated", "component-reuse"]


def test_exact_evidence_of_one_set_keeps_its_grade_beside_a_disguise() -> None:
    verdict = judge([yes(GAINS, -30.0), no(NEURONS), seen()], alignment=TURNED)
    assert (verdict.grade, kinds(verdict)) == ("A", ["obfuscated"])
    plain = judge([yes(GAINS, -30.0), no(NEURONS), seen(-0.2, 0.0)], alignment=IN_PLACE)
    assert kinds(plain) == ["component-reuse"]


def test_rows_that_a_formula_fills_are_recognised_between_strangers_too() -> None:
    verdict = judge([yes(NEURONS, assumptions=FAILS), no(GAINS), seen()], alignment=TURNED)
    assert (verdict.outcome, verdict.grade) == ("undecided", None)


def test_all_in_place_but_one_set_rearranged_is_a_disguise_too() -> None:
    verdict = judge([yes(GAINS), yes("attention"), no(NEURONS), seen()], alignment=TURNED)
    assert (verdict.grade, kinds(verdict)) == ("A", ["obfuscated"])


def test_gains_moved_into_matrices_are_no_random_start() -> None:
    layers = tuple(LayerFinding(str(i), str(i), 224.0, 224, None, 0.995) for i in range(6))
    rows = [no(GAINS), yes(NEURONS), yes(EMBEDDINGS)]
    assert kinds(judge([*rows, seen(per_layer=layers)], alignment=IN_PLACE)) == ["undetermined"]
    far = tuple(LayerFinding(str(i), str(i), 224.0, 224, None, 0.6) for i in range(6))
    assert kinds(judge([*rows, seen(per_layer=far)], alignment=IN_PLACE)) == ["shared-init"]


def test_gains_moved_into_matrices_that_were_trained_on_are_no_random_start() -> None:
    """Neurons of one start agree as they are stored; with moved gains they do once gains are folded in, and only then.

    A tenth of continued pretraining: 0.85 folded beside 0.09 as stored; of one random start 0.21 beside 0.23.
    """

    def pair(stored: float, folded: float, log10: float = -3.5) -> list[str]:
        rows = [yes(NEURONS, effect=stored), yes("attention", effect=0.8), no(GAINS)]
        layers = (LayerFinding("0", "0", 640, 640, None, folded),)
        return kinds(judge([*rows, seen(log10, per_layer=layers)], alignment=IN_PLACE))

    assert pair(0.09, 0.85) == ["undetermined"]
    assert pair(0.8, 0.85) == ["shared-init"]
    assert pair(0.23, 0.21) == ["shared-init"]
    assert pair(0.09, 0.85, log10=-2.0) == ["shared-init"]  # not recognised


def test_a_relation_makes_no_verdict() -> None:
    told = judge(QUIET, relation=relation("fine-tune", direction="a->b"))
    assert told == judge(QUIET)


def mixed(*reasons: str, direction: Direction = "a->b") -> Relation:
    merge = Merge(
        merged="zoo/b", sources=("zoo/a", "zoo/c"), method="linear", weights=(0.6, 0.4), layers=(), gain=1.0,
        unexplained=0.0, missing_parent=False, marks=(),
    )  # fmt: skip
    found = relation("merge", direction=direction)
    return msgspec.structs.replace(found, merge=merge, direction_reasons=reasons)


def test_of_a_mixture_the_sentence_names_all_that_it_was_mixed_from() -> None:
    both = [yes(GAINS), yes(NEURONS)]
    told = judge(both, relation=mixed("B is a mixture of zoo/a, zoo/c")).sentence
    assert told == (
        "The two models are related: B is a mixture of zoo/a and zoo/c, and so continues from the weights of A, or of "
        "a model very near to A, unless the order was made to look so."
    )
    assert "mixture" not in judge(both, relation=mixed("the values of B are coarser")).sentence
    assert "mixture" not in judge(both, relation=mixed("B is a mixture of zoo/a, zoo/c", direction="b->a")).sentence
    assert "mixture" not in judge(both, relation=mixed(direction="unknown")).sentence


def test_a_told_mixture_is_no_common_start() -> None:
    """A tenth of a stranger leaves rows alike and gains not, as a common start does; but it was computed from it."""
    start = [no(GAINS), yes(NEURONS), yes("attention")]
    assert kinds(judge(start)) == ["shared-init"]
    told = mixed("B is a mixture of zoo/a, zoo/c")
    assert told.merge is not None
    merge = msgspec.structs.replace(told.merge, last="zoo/b")
    verdict = judge(start, relation=msgspec.structs.replace(told, merge=merge))
    assert (kinds(verdict), verdict.direction, verdict.shared) == (["merge"], "a->b", None)
    assert "B is a mixture of zoo/a and zoo/c" in verdict.sentence
    open_one = msgspec.structs.replace(told, direction="unknown", direction_reasons=())
    assert kinds(judge(start, relation=open_one))[0] == "shared-init"
    of_others = msgspec.structs.replace(told, merge=merge, direction="unknown", direction_reasons=("it lost",))
    assert kinds(judge(start, relation=of_others))[0] == "shared-init"


def test_kinds_direction_and_share_come_from_the_relation() -> None:
    both = [yes(GAINS), yes(NEURONS)]
    verdict = judge(both, relation=relation("merged-lora", direction="a->b"))
    assert (kinds(verdict), verdict.direction) == (["merged-lora"], "a->b")
    assert verdict.direction_probability == 0.97
    assert verdict.sentence == (
        "The two models are related: B continues from the weights of A, or of a model very near to A, unless the order "
        "was made to look so."
    )
    assert verdict.shared == Shared(0.9, 0.8, 1.0)
    assert not any("which of the two came first" in limit for limit in verdict.limits)
    open_end = judge(both, relation=relation())
    assert (kinds(open_end), open_end.direction) == (["undetermined"], "unknown")
    assert open_end.direction_probability is None  # of an order that is not told
    assert any("which of the two came first" in limit for limit in open_end.limits)


def test_siblings_and_shared_starts_are_no_descent() -> None:
    siblings = judge([yes(GAINS), yes(NEURONS)], relation=relation("shared-ancestor", direction="neither"))
    assert "neither from the other" in siblings.sentence
    start = judge([no(GAINS), yes(NEURONS), yes(EMBEDDINGS)], relation=relation("shared-init", direction="a->b"))
    assert (kinds(start), start.direction) == (["shared-init"], "neither")
    contradicted = judge([no(GAINS), yes(NEURONS), yes(EMBEDDINGS)], relation=relation("fine-tune", direction="a->b"))
    assert (kinds(contradicted), contradicted.direction) == (["shared-init"], "unknown")


def test_what_began_alike_has_no_share_and_no_probability() -> None:
    start = judge([no(GAINS), yes(NEURONS), yes(EMBEDDINGS)], relation=relation("shared-init", direction="neither"))
    assert (start.direction, start.direction_probability, start.shared) == ("neither", None, None)
    part = judge([no(GAINS), yes(NEURONS), no(EMBEDDINGS)], relation=relation("shared-init", direction="a->b"))
    assert kinds(part) == ["component-reuse", "shared-init"]
    assert (part.direction, part.direction_probability, part.shared) == ("unknown", None, None)


def test_siblings_have_no_probability() -> None:
    siblings = judge([yes(GAINS), yes(NEURONS)], relation=relation("shared-ancestor", direction="neither"))
    assert siblings.direction_probability is None


def test_a_disguise_is_no_proof_of_intent() -> None:
    alone = judge([*QUIET, seen()], alignment=TURNED)
    told = judge([*QUIET, seen()], alignment=TURNED, relation=relation("obfuscated"))
    by_relation = judge([yes(GAINS), yes(NEURONS)], relation=relation("obfuscated"))
    for verdict in (alone, told, by_relation):
        assert sum("good faith" in limit for limit in verdict.limits) == 1
    assert not any("good faith" in limit for limit in judge([yes(GAINS), yes(NEURONS)]).limits)


def test_the_exact_evidence_outweighs_what_the_relation_says() -> None:
    part = judge([yes(GAINS), no(NEURONS)], relation=relation("fine-tune", "vocabulary-surgery"))
    assert kinds(part) == ["component-reuse", "vocabulary-surgery"]
    gains_too = judge([yes(GAINS), yes(NEURONS)], relation=relation("shared-init"))
    assert kinds(gains_too) == ["undetermined"]


def test_a_common_start_that_is_not_ruled_out_leaves_the_order_open() -> None:
    faint = judge([yes(GAINS, effect=0.05), yes(NEURONS)], relation=relation("re-encoded", direction="a->b"))
    assert (faint.direction, faint.direction_probability) == ("unknown", None)
    assert "same random weights" in faint.sentence


def test_a_disguise_with_its_order() -> None:
    verdict = judge([*QUIET, seen()], alignment=TURNED, relation=relation("obfuscated", direction="a->b"))
    assert kinds(verdict) == ["obfuscated"]
    assert "B continues from the weights of A" in verdict.sentence


def test_what_is_all_the_same_but_for_free_numbers_is_no_part() -> None:
    """Grids, zeros and moved gains hide rows as they stand; all tensors together show that nothing else is new."""
    alone = [yes(EMBEDDINGS), no(GAINS), no(NEURONS)]
    assert kinds(judge(alone)) == ["component-reuse"]
    whole = judge(alone, relation=relation("re-encoded", low=0.95))
    assert kinds(whole) == ["re-encoded"]
    assert "in part" not in whole.sentence
    for less in (relation("re-encoded", low=0.7), relation("re-encoded", "fine-tune", low=0.95)):
        assert kinds(judge(alone, relation=less))[0] == "component-reuse"


def test_neurons_that_agree_once_gains_are_folded_in_are_no_part() -> None:
    layers = (LayerFinding("0", "0", statistic=1, n=1, effect=0.999),)
    answers = [yes(EMBEDDINGS), no(GAINS), no(NEURONS)]
    assert kinds(judge([*answers, seen(-5.5, per_layer=layers)], alignment=IN_PLACE)) == ["undetermined"]
    part = judge([*answers, seen(-5.5, 0.2, per_layer=layers)], alignment=IN_PLACE)
    assert kinds(part) == ["component-reuse"]


def test_the_map_with_more_layers_is_shown() -> None:
    told = msgspec.structs.replace(relation("fine-tune"), layer_map=(("0", "0"), ("1", "1")))
    seen_in_part = evidence("layer-map", -41.0, index_set="neurons", per_layer=mapped(("0", "0"), ("1", "")))
    answers = [yes(NEURONS), yes(GAINS), seen_in_part]
    assert judge(answers).layer_map == (("0", "0"), ("1", None))
    assert judge(answers, relation=told).layer_map == (("0", "0"), ("1", "1"))


def test_gains_that_differ_where_tokens_agree_are_looked_into() -> None:
    agree = [yes(EMBEDDINGS, effect=1.0), yes(NEURONS, effect=0.9)]
    assert all_in_place([*agree, yes(GAINS, effect=0.9)])
    assert not all_in_place([*agree, yes(GAINS, effect=0.1)])
    assert all_in_place([yes(EMBEDDINGS, effect=0.3), yes(NEURONS, effect=0.3), yes(GAINS, effect=0.1)])
