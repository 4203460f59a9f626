"""The quick questions on what is kept of the trained zoo: strangers are never related, derivatives always are."""

from __future__ import annotations

import itertools
import random

import pytest
from zoo.readings import readings

from modelkin.compare import ask
from modelkin.questions import QUESTIONS, QUICK_STAGES
from modelkin.records import Verdict
from modelkin.sampling.readings import Readings
from modelkin.verdict import adjusted, judge
from zoo import measured, plan

QUICK = [question for question in QUESTIONS if question.stage in QUICK_STAGES]
# What one step made and the smallest budget must find beyond any doubt.
CLEAR = (
    *("sft", "sft-prose", "rl", "lora-4", "lora-16", "cpt-light", "cpt-heavy", "cpt-german", "cpt-rewarmed"),
    *("int8", "int4", "fp8", "nf4", "extend", "swap", "upscale", "shallow", "moe-copied", "linear", "decoy-30"),
)


@pytest.fixture(scope="module")
def zoo() -> dict[str, Readings]:
    wanted = {*plan.TWINS, *plan.MOES[:6], *plan.PLAINS[:6]}
    wanted |= {step.child(base) for step in plan.STEPS for base in step.bases[:3] if step.name in (*CLEAR, *OTHERS)}
    return {name: readings(sample) for name, sample in measured.load(measured.HERE).items() if name in wanted}


OTHERS = ("student", "norms", "seed-prose", "masked")


def judged(zoo: dict[str, Readings], a: str, b: str) -> Verdict:
    answers = adjusted([ask(question, zoo[a], zoo[b], seed=0) for question in QUICK])
    return judge(answers, depths=(len(zoo[a].portrait.layers), len(zoo[b].portrait.layers)))


def children(name: str, count: int = 3) -> list[tuple[str, str]]:
    step = next(step for step in plan.STEPS if step.name == name)
    return [(base, step.child(base)) for base in step.bases[:count]]


def test_no_twin_is_related_to_another(zoo: dict[str, Readings]) -> None:
    pairs = list(itertools.combinations(plan.TWINS, 2))
    for a, b in random.Random(1).sample(pairs, 100):
        assert judged(zoo, a, b).outcome != "related", (a, b)


@pytest.mark.parametrize("names", [plan.MOES[:6], plan.PLAINS[:6], (*plan.TWINS[:2], *plan.MOES[:2], *plan.PLAINS[:2])])
def test_no_stranger_of_another_class_is_related(zoo: dict[str, Readings], names: tuple[str, ...]) -> None:
    for a, b in itertools.combinations(names, 2):
        assert judged(zoo, a, b).outcome != "related", (a, b)


@pytest.mark.parametrize("step", CLEAR)
def test_single_steps_are_found_beyond_doubt(zoo: dict[str, Readings], step: str) -> None:
    for base, child in children(step):
        verdict = judged(zoo, base, child)
        assert (verdict.outcome, verdict.grade) == ("related", "A"), child
        assert verdict.log10_pvalue is not None
        assert verdict.log10_pvalue <= -12, child


def test_what_is_not_descent_is_not_called_so(zoo: dict[str, Readings]) -> None:
    assert all(judged(zoo, *pair).outcome != "related" for pair in children("student"))
    assert all(judged(zoo, *pair).kinds[0].kind == "component-reuse" for pair in children("norms"))
    assert all(judged(zoo, *pair).kinds[0].kind == "shared-init" for pair in children("seed-prose"))


def test_a_disguise_is_not_seen_through_yet_and_nothing_is_claimed(zoo: dict[str, Readings]) -> None:
    assert all(judged(zoo, *pair).outcome == "undecided" for pair in children("masked"))
