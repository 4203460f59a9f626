from __future__ import annotations

import math

import msgspec
import pytest

from modelkin.records import Answer, Assumption, Evidence, LayerFinding, Unanswered
from modelkin.verdict import ALPHA, WEIGHTS, adjusted, judge
from modelkin.verdict.judging import located
from modelkin.verdict.policy import FLOORS
from verdict_answers import (
    EMBEDDINGS,
    EVERY,
    FAILS,
    GAINS,
    NEURONS,
    SETS,
    evidence,
    kinds,
    layers,
    mapped,
    no,
    no_suspicion,
    yes,
)

# the table of outcomes, row by row


def test_two_sets_are_related_of_undetermined_kind() -> None:
    verdict = judge([yes(GAINS), yes(NEURONS)])
    assert verdict.outcome == "related"
    assert (kinds(verdict), verdict.kinds[0].probability, verdict.direction) == (["undetermined"], None, "unknown")
    assert len(verdict.reasons) == 2


def test_one_set_is_component_reuse_and_the_rest_shows_nothing_beyond_chance() -> None:
    verdict = judge([no(GAINS), yes(NEURONS, per_layer=layers(-13, -0.2)), no(EMBEDDINGS)])
    assert (verdict.outcome, kinds(verdict)) == ("related", ["component-reuse"])
    rest = "in the rest that was compared (hidden axes) nothing beyond chance was seen."
    assert verdict.sentence.endswith(f"they share MLP neurons; {rest}")


def test_what_was_not_compared_is_not_called_unshared() -> None:
    verdict = judge([Unanswered(GAINS, "other widths"), yes(NEURONS)])
    assert kinds(verdict) == ["component-reuse"]
    assert verdict.sentence.endswith("the rest could not be compared.")


@pytest.mark.parametrize("question", [GAINS, EMBEDDINGS])
def test_hidden_axes_alone_are_reuse_or_distillation(question: str) -> None:
    others = [no(name) for name in (GAINS, NEURONS) if name != question]
    verdict = judge([yes(question), *others])
    assert (verdict.outcome, kinds(verdict)) == ("related", ["component-reuse"])
    assert "tensor reuse or hidden-state distillation, which this cannot tell apart" in verdict.sentence


def test_gains_and_embeddings_are_one_set() -> None:
    assert kinds(judge([yes(GAINS), yes(EMBEDDINGS), no(NEURONS)])) == ["component-reuse"]


def test_layers_are_named_by_holm_once_all_together_reject() -> None:
    """Six layers at 4e-6 each: none would convict alone; by Holm each is beyond 1e-3. Two at 1e-3 are not."""
    six = tuple(LayerFinding(str(i), str(i), 5.0, 224, -5.4, 0.01) for i in range(6))
    answer = yes("every-neuron", -30.0, effect=0.001, per_layer=six)
    assert located([answer]) == tuple("012345")
    faint = tuple(msgspec.structs.replace(finding, log10_pvalue=-3.0) for finding in six[1:3])
    assert located([msgspec.structs.replace(answer, per_layer=(six[0], *faint))]) == ("0",)
    assert located([]) == ()


def test_a_small_part_that_can_be_pointed_at_is_component_reuse() -> None:
    verdict = judge([yes(GAINS), yes(NEURONS, effect=0.001, per_layer=layers(-0.1, -9.0, -0.4))])
    assert kinds(verdict) == ["component-reuse"]
    assert "some of their MLP neurons are alike beyond chance" in verdict.sentence
    assert "most clearly in layer 1; so are their norm gains; the rest could not be compared." in verdict.sentence


def test_one_layer_of_many_is_a_component_whatever_else_it_brings_along() -> None:
    one = tuple(
        LayerFinding(a, str(i), 16.0 if a else 1.0, 16, -13.0 if a else -0.2) for i, a in enumerate(("", "", "2", ""))
    )
    answers = [no("hidden-axes-by-gains"), yes("layer-map", per_layer=one, effect=0.25), yes("attention", effect=0.2)]
    verdict = judge(answers, depths=(4, 4))
    assert kinds(verdict) == ["component-reuse"]
    assert "layer 2" in verdict.sentence
    inherited = [yes("hidden-axes-by-gains"), *answers[1:]]
    assert kinds(judge(inherited, depths=(4, 4)))[0] != "component-reuse"


def test_a_few_neurons_among_all_are_a_part_and_not_the_neurons() -> None:
    quiet = [no(GAINS), no(NEURONS), no("attention")]
    spread = judge([*quiet, yes(EVERY, -13.0, effect=0.003, per_layer=layers(-3.1, -2.9))])
    assert kinds(spread) == ["component-reuse"]
    assert "some of their MLP neurons are alike beyond chance, or many faintly; in the rest" in spread.sentence
    one = judge([*quiet, yes(EVERY, -90.0, effect=0.003, per_layer=layers(-0.1, -90.0))])
    assert "or many faintly, most clearly in layer 1;" in one.sentence
    whole = judge([*quiet, yes(EVERY, -90.0, effect=0.3, per_layer=layers(-90.0, -0.1))])
    assert "they share some weights of MLP neurons; in the rest that was compared" in whole.sentence


def test_where_every_neuron_was_called_none_could_lie_outside() -> None:
    outside = "A few neurons taken from another model could lie outside the rows that were read."
    assert outside in judge([no(GAINS), no(NEURONS)]).limits
    assert outside not in judge([no(GAINS), no(NEURONS), no(EVERY, n=4096)]).limits


def test_a_faint_likeness_everywhere_is_undecided() -> None:
    verdict = judge([yes(GAINS), yes(NEURONS, effect=0.001, per_layer=layers(-2, -3, -2))])
    assert verdict.outcome == "undecided"
    assert no_suspicion(verdict)


def test_strong_gains_do_not_lift_faint_rows_over_the_floor() -> None:
    assert GAINS not in FLOORS
    assert judge([yes(GAINS, effect=1.0), yes(NEURONS, effect=0.019)]).outcome == "undecided"
    assert kinds(judge([yes(GAINS, effect=1.0), yes(NEURONS, effect=0.02)])) == ["undetermined"]


def test_unsound_constants_do_not_make_a_shared_init() -> None:
    assert "shared-init" not in kinds(judge([no(GAINS, grade=None, assumptions=FAILS), yes(NEURONS)]))


def test_a_failed_assumption_is_undecided() -> None:
    for grade in ("A", None):
        verdict = judge([yes(GAINS, grade=grade, assumptions=FAILS), no(NEURONS)])
        assert verdict.outcome == "undecided"
        assert no_suspicion(verdict)


def test_a_failed_assumption_with_one_sound_set_is_undecided_and_with_two_is_related() -> None:
    tainted = yes(GAINS, grade=None, assumptions=FAILS)
    assert judge([tainted, yes(NEURONS)]).outcome == "undecided"
    verdict = judge([tainted, yes(NEURONS), yes("attention")])
    assert kinds(verdict) == ["undetermined"]
    assert any("does not hold" in reason for reason in verdict.reasons)


def test_unrelated_needs_two_sets_with_power_and_names_the_disguise() -> None:
    verdict = judge([no(GAINS), no(NEURONS)])
    assert verdict.outcome == "unrelated"
    assert "no shared origin was found in what was compared" in verdict.sentence
    assert verdict.sentence.endswith("unless it was deliberately disguised.")
    assert no_suspicion(verdict)


@pytest.mark.parametrize(("log10", "outcome"), [(-3.65, "unrelated"), (-3.75, "undecided")])
def test_what_one_pair_of_strangers_in_a_thousand_shows_clears_nobody(log10: float, outcome: str) -> None:
    """A fifth of the budget is the gains': 1e-3 of it is 2e-4, or 10 to the -3.7."""
    verdict = judge([no(GAINS, log10), no(NEURONS)])
    assert verdict.outcome == outcome
    assert ("a pair of strangers in a thousand" in verdict.sentence) == (outcome == "undecided")
    assert no_suspicion(verdict)


def test_quick_clears_nobody() -> None:
    verdict = judge([no(GAINS), no(NEURONS)], budget="quick")
    assert verdict.outcome == "undecided"
    assert "the little that `quick` reads; `standard` reads more" in verdict.sentence
    assert no_suspicion(verdict)
    assert judge([yes(GAINS), yes(NEURONS)], budget="quick") == judge([yes(GAINS), yes(NEURONS)])


def gauge(*seen: str) -> Evidence:
    signs = tuple(
        LayerFinding(name, name, 0.0, 9, None, float(name in seen)) for name in ("norm gains", "token angles")
    )
    return evidence("gauge", None, grade=None, index_set="none", statistic=float(len(seen)), n=2, per_layer=signs)


def test_a_sign_of_rearranged_weights_keeps_from_clearing_and_convicts_nobody() -> None:
    assert judge([no(GAINS), no(NEURONS), gauge()]).outcome == "unrelated"
    verdict = judge([no(GAINS), no(NEURONS), gauge("token angles")])
    assert (verdict.outcome, verdict.reasons[0][:5]) == ("undecided", "Signs")
    assert "angles between token embeddings are nearly the same in both" in verdict.sentence
    assert "norm gains" not in verdict.sentence
    assert "does not count as evidence yet" in verdict.sentence
    assert no_suspicion(verdict)
    assert judge([gauge("norm gains", "token angles")]).outcome == "undecided"
    assert kinds(judge([yes(GAINS), yes(NEURONS), gauge("norm gains")])) == ["undetermined"]


@pytest.mark.parametrize(("share", "outcome"), [(0.5, "unrelated"), (0.49, "undecided")])
def test_parts_out_of_sight_keep_from_clearing_and_are_named(share: float, outcome: str) -> None:
    remark = Assumption("Not compared: token embeddings (51 % of the parameters), as there is no tokenizer.")
    coverage = evidence("coverage", None, grade=None, index_set="none", statistic=share, assumptions=(remark,))
    verdict = judge([no(GAINS), no(NEURONS), coverage])
    assert verdict.outcome == outcome
    assert verdict.limits[0] == remark.text
    assert judge([coverage]).sentence == judge([]).sentence


@pytest.mark.parametrize(
    "answers",
    [
        [no(NEURONS)],
        [no(GAINS), no(EMBEDDINGS)],
        [no(GAINS), no(NEURONS, detectable=0.11)],
        [no(GAINS), no(NEURONS, detectable=None)],
        [no(GAINS), no(NEURONS, detectable=math.nan)],
        [no(GAINS, grade=None, assumptions=FAILS), no(NEURONS)],
        [no(NEURONS), no("experts", n=8)],
        [no(NEURONS), no("attention", n=64), Unanswered(GAINS, "the gains are constant in one of them")],
        [no(GAINS, -5.0), Unanswered(NEURONS, "no MLP")],
    ],
)
def test_too_little_to_clear_is_undecided(answers: list[Answer]) -> None:
    verdict = judge(answers)
    assert verdict.outcome == "undecided"
    assert no_suspicion(verdict)
    assert "e-" not in verdict.sentence


def test_nothing_answered_is_undecided() -> None:
    assert judge([]).outcome == judge([Unanswered(name, "no such tensor") for name in WEIGHTS]).outcome == "undecided"


# identity and depth


def test_identical_comes_before_everything() -> None:
    verdict = judge([yes(GAINS, assumptions=FAILS), no(NEURONS)], identical=True)
    assert (verdict.outcome, verdict.grade, verdict.pvalue, kinds(verdict)) == ("related", "A", None, ["identical"])
    files = evidence("identity", None, statistic=2.0, n=2)
    assert kinds(judge([files])) == ["identical"]


def test_some_equal_bytes_are_component_reuse_without_a_pvalue() -> None:
    verdict = judge([evidence("identity", None, statistic=3.0, n=200), no(GAINS), no(NEURONS)])
    assert (kinds(verdict), verdict.pvalue) == (["component-reuse"], None)


def test_equal_bytes_without_grade_do_not_count() -> None:
    files = evidence("identity", None, statistic=1.0, n=2, grade=None)
    assert judge([files, no(GAINS), no(NEURONS)]).outcome == "unrelated"


def test_repeated_layers_are_a_depth_upscale_either_way_round() -> None:
    deeper = mapped(("0", "0"), ("1", "1"), ("2", "0"), ("3", "1"))
    verdict = judge([yes(GAINS), yes("layer-map", per_layer=deeper)], depths=(2, 4))
    assert kinds(verdict) == ["depth-upscale"]
    assert verdict.layer_map == (("0", "0"), ("1", "1"), ("2", "0"), ("3", "1"))
    shallower = mapped(("0", "0"), ("1", "1"), ("0", "2"), ("1", "3"))
    assert kinds(judge([yes(GAINS), yes("layer-map", per_layer=shallower)])) == ["depth-upscale"]


def test_further_matches_of_a_layer_are_repeats_and_no_rows_of_the_map() -> None:
    """As the layer map gives them where a is the deeper model: one match a layer of b, then the others."""
    found = mapped(("0", "0"), ("1", "3"), ("0", "1"), ("1", "2"))
    verdict = judge([yes(GAINS), yes("layer-map", per_layer=found)], depths=(4, 2))
    assert kinds(verdict) == ["depth-upscale"]
    assert verdict.layer_map == (("0", "0"), ("1", "3"))


def test_layers_without_partner_are_a_depth_prune() -> None:
    fewer = mapped(("0", "0"), ("1", "2"), ("2", "3"))
    assert kinds(judge([yes(GAINS), yes("layer-map", per_layer=fewer)], depths=(4, 3))) == ["depth-prune"]
    more = mapped(("0", "0"), ("1", ""), ("2", "1"))
    verdict = judge([yes(GAINS), yes("layer-map", per_layer=more)])
    assert (kinds(verdict), verdict.layer_map[1]) == (["depth-prune"], ("1", None))


def test_a_plain_layer_map_says_nothing_of_depth() -> None:
    same = mapped(("0", "0"), ("1", "1"))
    assert kinds(judge([yes(GAINS), yes("layer-map", per_layer=same)], depths=(2, 2))) == ["undetermined"]


def test_component_reuse_comes_before_depth() -> None:
    fewer = mapped(("0", "0"), ("1", "2"))
    assert kinds(judge([yes("layer-map", per_layer=fewer)], depths=(3, 2))) == ["component-reuse", "depth-prune"]


# the budget


def test_weights_spend_the_whole_budget() -> None:
    assert math.fsum(WEIGHTS.values()) == pytest.approx(1.0)
    assert WEIGHTS.keys() == SETS.keys()


@pytest.mark.parametrize("question", list(WEIGHTS))
def test_a_question_rejects_at_its_share_of_alpha(question: str) -> None:
    edge = math.log10(ALPHA * WEIGHTS[question])
    assert judge([evidence(question, edge - 1e-9)]).outcome == "related"
    assert judge([evidence(question, edge + 1e-9)]).outcome == "undecided"


def test_the_smallest_adjusted_p_is_the_verdicts() -> None:
    verdict = judge([yes(GAINS, -20.0), yes(NEURONS, -400.0)])
    assert verdict.log10_pvalue == pytest.approx(-400.0 - math.log10(0.3))
    assert verdict.pvalue == 5e-324


def test_adjusted_fills_in_what_has_a_weight() -> None:
    missing = Unanswered("experts", "dense")
    gains, other, last = adjusted([yes(GAINS, -10.0), yes("config", -10.0), missing])
    assert isinstance(gains, Evidence)
    assert gains.adjusted_pvalue == pytest.approx(5e-10)
    assert isinstance(other, Evidence)
    assert other.adjusted_pvalue is None
    assert last is missing


def test_what_has_no_weight_or_no_grade_cannot_convict() -> None:
    assert judge([yes("config"), yes("tokenizer")]).outcome == "undecided"
    assert judge([yes(GAINS, grade=None), yes(NEURONS, grade="B")]).outcome == "undecided"


def test_a_question_cannot_spend_its_share_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        judge([yes(GAINS), yes(GAINS)])


def test_a_verdict_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="outcome"):
        bool(judge([]))


def test_every_verdict_states_its_limits_and_never_a_direction() -> None:
    cases: list[list[Answer]] = [[], [yes(GAINS)], [yes(GAINS), yes(NEURONS)], [no(GAINS), no(NEURONS)]]
    for verdict in map(judge, cases):
        assert any("licences" in limit for limit in verdict.limits)
        assert verdict.direction == "unknown"
        assert not {"stole", "stolen", "copied", "theft", "plagiar"} & set(verdict.sentence.lower().split())
