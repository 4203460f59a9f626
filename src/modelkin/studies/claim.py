"""The argument published as 182 sigma, replayed step by step: on the published numbers, and on two models."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from modelkin import __version__
from modelkin.demo import BASE, bundled, truth
from modelkin.records.survey import Study, Table, Value
from modelkin.studies import Settings
from modelkin.studies.claim_cells import (
    ACROSS,
    ACROSS_FIRST,
    FEWEST,
    WITHIN,
    WITHIN_FIRST,
    Argument,
    Axes,
    argument,
    axes,
    four_against_four,
    published_argument,
    published_controls,
)
from modelkin.studies.gains import ModelGains, bundled_gains, read_gains
from modelkin.studies.published import MODELS

NO_WEIGHTS = "needs the weights themselves, which are not in this package: name the two models"
STRANGERS = ("dune", "grove")  # shown where no models are named
LEFT = 0.5  # a step stands if at least this share of what was claimed is left of it
LEAST_SIGMA = 2.0  # and nothing is left of a claim with less
LEVEL = 1e-3
CONVICTS = 1e-6  # what `compare` asks of a roll call


@dataclass(frozen=True, slots=True)
class Control:
    """Two bundled models whose relation is known, put through the same arithmetic, each as the supposed parent."""

    argument: Argument
    reverse: Argument
    known: str
    axes: Axes | None

    def sigmas(self) -> list[float]:
        return [sigma for it in (self.argument, self.reverse) if (sigma := it.sigma()) is not None]


@dataclass(frozen=True, slots=True)
class Step:
    """What was claimed, what is found instead; `stands` is None where the published numbers cannot tell."""

    name: str
    claimed: float | None
    found: float | None
    stands: bool | None
    says: str


def study(settings: Settings) -> Study:
    began = time.perf_counter()
    rng = np.random.default_rng(settings.seed)
    a, b = read_gains(settings.models, settings.reading) if settings.models else bundled_gains(STRANGERS)
    published, asked, found = published_argument(), argument(a, b), axes(a, b, rng)
    controls = _controls(settings.models or STRANGERS, rng)
    strangers = [sigma for control in controls if control.known == "independent" for sigma in control.sigmas()]
    pinned = a.pinned or b.pinned
    pattern = _untested(f"the hidden axes may not be renumbered: {pinned}") if pinned else _pattern_steps(found)
    passed_over = _without_length(a, b)
    replays = (
        ("published", published, [*_cosine_steps(published), _published_control(), *_untested(NO_WEIGHTS)]),
        ("asked", asked, [*_cosine_steps(asked), _control_step(asked, strangers), *pattern]),
    )
    tables = (
        _step_table(replays),
        _cell_table(published, asked),
        _control_table(controls, asked, argument(b, a), found),
    )
    return Study(
        modelkin=__version__,
        name="claim",
        title="The 182 sigma argument, step by step",
        text=_text(replays[0][2], replays[1][2], published, asked) + passed_over,
        seed=settings.seed,
        tables=tables,
        seconds=time.perf_counter() - began,
    )


def _controls(asked: Sequence[str], rng: np.random.Generator) -> list[Control]:
    """Every pair of bundled models that are deep enough, but not the pair in question."""
    models = [model for model in bundled_gains(bundled()) if len(model.layers) > FEWEST]
    mine = {Path(model).name for model in asked}
    pairs = [(a, b) for a, b in itertools.combinations(models, 2) if {a.label, b.label} != mine]
    return [Control(argument(a, b), argument(b, a), _known(a, b), axes(a, b, rng)) for a, b in pairs]


def _known(a: ModelGains, b: ModelGains) -> str:
    relations = truth()["relations"]
    hidden = {entry[side] for entry in relations if "obfuscated" in entry["kinds"] for side in "ab"} - {BASE}
    pair = {a.label, b.label}
    relation = next(entry for entry in relations if {entry["a"], entry["b"]} == pair)
    if relation["outcome"] == "unrelated":
        return "independent"
    return "disguised" if pair & hidden else "derived"


def _cosine_steps(it: Argument) -> list[Step]:
    sigma = it.sigma()
    if sigma is None:
        return [Step("the claim", None, None, False, "all cosines are equal: there is no spread to divide by")]
    return [_claim(it, sigma), _first_layer(it), _dropped(it, sigma), _dealt(it), _means(it)]


def _claim(it: Argument, sigma: float) -> Step:
    across, within = it.mean(ACROSS), it.mean(WITHIN_FIRST)
    says = (
        f"{len(it.values(ACROSS))} cosines between facing layers of {it.a} and {it.b} (mean {across:.4f}) against "
        f"{len(it.values(WITHIN_FIRST))} between layer 0 and other layers of {it.a} (mean {within:.4f}), in pooled "
        "standard deviations"
    )
    return Step("the claim in sigma", sigma, sigma, None, says)


def _first_layer(it: Argument) -> Step:
    within, fair, across = it.mean(WITHIN_FIRST), it.mean(WITHIN), it.mean(ACROSS)
    fair_sigma = it.sigma(WITHIN)
    sigma = "" if fair_sigma is None else f", {fair_sigma:.2f} sigma from there"
    says = (
        f"all {len(it.values(WITHIN_FIRST))} baseline values have layer 0 on one side; other layers of {it.a} agree "
        f"with each other at {fair:.4f}, and the two models at {across:.4f}{sigma}"
    )
    return Step("the layer-0 baseline", within, fair, across > fair, says)


def _dropped(it: Argument, sigma: float) -> Step:
    whole = it.sigma(WITHIN_FIRST, ACROSS, ACROSS_FIRST)
    first = it.values(ACROSS_FIRST)[0]
    stands = whole is not None and abs(whole) >= max(LEAST_SIGMA, LEFT * abs(sigma)) and whole * sigma > 0
    says = f"layer 0 itself, where the two models have a cosine of {first:.4f}, was left out; this is sigma with it"
    return Step("the dropped layer", sigma, whole, stands, says)


def _dealt(it: Argument) -> Step:
    over, under = it.values(ACROSS), it.values(WITHIN_FIRST)
    p = four_against_four(over, under)
    least = four_against_four([1.0] * len(over), [0.0] * len(under))
    says = (
        f"{len(over)} numbers against {len(under)} can never give p below {least:.4f}, however many sigma apart, so "
        f"that this step {_never(least)}; sigma here is Cohen's d, a size, and no test"
    )
    return Step("sigma read as a probability", LEVEL, p, p <= LEVEL, says)


def _never(least: float) -> str:
    return f"cannot stand at {LEVEL:g}, not even between copies" if least > LEVEL else f"can stand at {LEVEL:g}"


def _means(it: Argument) -> Step:
    across, alone = it.mean(ACROSS), it.mean(ACROSS, expected=True)
    added = (across - alone) / (1 - alone) if alone < 1 else 0.0
    sigma = it.sigma(expected=True)
    also = "" if sigma is None else f"; they alone give {sigma:.1f} sigma"
    says = (
        f"means and standard deviations predict {alone:.4f}, without looking at which channel is which{also}; of what "
        f"is missing to 1 the pattern adds {added:.1%}"
    )
    return Step("the means alone", across, alone, added >= LEFT, says)


def _published_control() -> Step:
    names = {"GLM", "Solar"}
    pairs = published_controls()
    claimed = next(cosine for a, b, cosine in pairs if {a, b} == names)
    others = [(cosine, f"{a} and {b}") for a, b, cosine in pairs if {a, b} != names]
    highest, who = max(others)
    says = f"of {len(others)} other pairs of models trained apart, at layer 10, {who} come highest"
    return Step("control pairs", claimed, highest, claimed > highest, says)


def _control_step(it: Argument, strangers: Sequence[float]) -> Step:
    """More sigma than any pair of strangers has; with so few of these that is little, and it is needed."""
    sigma, highest = it.sigma(), max(strangers)
    says = f"the most sigma of {len(strangers)} replays on bundled pairs that are known to be strangers"
    return Step("control pairs", sigma, highest, sigma is not None and sigma > highest, says)


def _untested(reason: str) -> list[Step]:
    return [Step(name, None, None, None, reason) for name in ("joint permutation", "roll call")]


def _without_length(*models: ModelGains) -> str:
    """A sentence about layers that were passed over."""
    zeros = [
        f"layer {layer} of {model.label} ({role})"
        for model in models
        for role, layers in model.vectors.items()
        for layer, vector in layers.items()
        if not vector.any()
    ]
    return f" Left out, for all their gains are zero and have no direction: {', '.join(zeros)}." if zeros else ""


def _pattern_steps(found: Axes | None) -> list[Step]:
    if found is None:
        return _untested("every gain vector of one of the two is constant and has no pattern")
    joint = (
        f"mean rank correlation {found.correlation:.3f} over {found.vectors} gain vectors, 0 between strangers; p by "
        "permuting the hidden axes of all layers together"
    )
    call = (
        f"{found.fixed} of {found.n} hidden axes find themselves, 1 between strangers on average; p = "
        f"10^{found.log10_p:.1f}"
    )
    return [
        Step("joint permutation", LEVEL, found.joint_p, found.joint_p <= LEVEL * (1 + 1e-9), joint),
        Step("roll call", 1.0, float(found.fixed), found.log10_p <= math.log10(CONVICTS), call),
    ]


Replay = tuple[str, Argument, list[Step]]


def _step_table(replays: Sequence[Replay]) -> Table:
    rows = tuple(
        (which, f"{it.a} × {it.b}", place, step.name, step.claimed, step.found, _word(step.stands), step.says)
        for which, it, steps in replays
        for place, step in enumerate(steps)
    )
    return Table(
        name="steps",
        title="Where the argument fails",
        caption="Step 0 is the claim; each further step repairs one thing. `claimed` is the number that the argument "
        "rests on there, `found` what it becomes. A step stands if the cosine across models stays above what it is "
        f"held against, if at least {LEFT:.0%} of the sigma ({LEAST_SIGMA:g} or more) or of the distance to 1 is left, "
        f"if sigma is above that of every control, or if p is at most {LEVEL:g} "
        f"({CONVICTS:g} for the roll call). Sigma read as a probability can never stand, for the argument has too few "
        "numbers: it fails for true copies too, and counts for nothing in either direction.",
        strangers="no step has to stand: cosines are as high as means and standard deviations make "
        f"them, p is above {LEVEL:g} but once in {1 / LEVEL:.0f}, and one hidden axis finds itself",
        columns=("which", "pair", "step", "name", "claimed", "found", "stands", "says"),
        rows=rows,
    )


def _word(stands: bool | None) -> str:
    return "not tested" if stands is None else "stands" if stands else "fails"


def _cell_table(*arguments: Argument) -> Table:
    rows: list[tuple[Value, ...]] = [
        (which, f"{it.a} × {it.b}", cell.group, cell.layer_a, cell.layer_b, cell.cosine, cell.expected)
        for which, it in zip(("published", "asked"), arguments, strict=True)
        for cell in it.cells
    ]
    return Table(
        name="cells",
        title="The cosines of the argument",
        caption="Every cosine used: layer 0 of the first model against its other layers, facing layers of the two, "
        "layer 0 of the two, and other layers of the first among each other. `expected_cosine` comes from means and "
        "standard deviations alone.",
        strangers="the cosine is what means alone give; within one model it may be higher, for its layers share "
        "a pattern",
        columns=("which", "pair", "group", "layer_a", "layer_b", "cosine", "expected_cosine"),
        rows=tuple(rows),
    )


def _control_table(controls: Sequence[Control], asked: Argument, reverse: Argument, found: Axes | None) -> Table:
    rows = [_control_row(it.argument, it.reverse.sigma(), it.known, it.axes) for it in controls]
    return Table(
        name="controls",
        title="The same arithmetic on pairs whose relation is known",
        caption=f"The pair in question, then {len(rows)} pairs of bundled models: derived from each other or from a "
        "common parent, the same with one in disguise (rotated and rescaled), and independent. `sigma` takes the "
        "first, `sigma_reversed` the second as the supposed parent. Pairs share models, so they are not independent of "
        "each other.",
        strangers="cosine as in expected_cosine, rank correlation 0, one axis finds itself",
        columns=(
            "a",
            "b",
            "known",
            "cosine",
            "expected_cosine",
            "sigma",
            "sigma_reversed",
            "rank_correlation",
            "joint_p",
            "chose_their_own",
            "of",
            "log10_p",
        ),
        rows=(_control_row(asked, reverse.sigma(), "asked", found), *rows),
    )


def _control_row(it: Argument, reverse: float | None, known: str, found: Axes | None) -> tuple[Value, ...]:
    head = (it.a, it.b, known, it.mean(ACROSS), it.mean(ACROSS, expected=True), it.sigma(), reverse)
    if found is None:
        return (*head, None, None, None, None, None)
    return (*head, found.correlation, found.joint_p, found.fixed, found.n, found.log10_p)


def _text(published: Sequence[Step], asked: Sequence[Step], claim: Argument, it: Argument) -> str:
    sigma = claim.sigma()
    child, parent = MODELS["A"], MODELS["B"]
    return (
        f"It was once argued that {child} descends from {parent} because the gains of their norm layers are "
        f"{sigma:.2f} sigma more alike than layers of {parent} are among each other. This page repeats the argument "
        f"and repairs one thing at a time. On the published numbers {_failures(published)} The first repair is enough: "
        f"held against layers other than layer 0, the two models are less alike ({claim.mean(ACROSS):.4f}) than one "
        f"model is with itself ({claim.mean(WITHIN):.4f}). Put back the one layer that was left out, and "
        f"{sigma:.0f} sigma are {claim.sigma(WITHIN_FIRST, ACROSS, ACROSS_FIRST):.1f}. Means and standard deviations "
        f"alone, which know nothing of any pattern, give {claim.sigma(expected=True):.0f}.\n\n"
        f"The same steps on {it.a} and {it.b}: {_failures(asked)} {_pattern_sentence(asked[-1])} A verdict, with its "
        "assumptions checked, is what `modelkin compare` gives; the argument above is none, even where its "
        "conclusion happens to be true."
    )


def _failures(steps: Sequence[Step]) -> str:
    failed = [step.name for step in steps if step.stands is False]
    tested = [step for step in steps if step.stands is not None]
    if not failed:
        return f"all {len(tested)} steps that can be tested stand."
    return f"{len(failed)} of {len(tested)} steps that can be tested fail: {', '.join(failed)}."


def _pattern_sentence(call: Step) -> str:
    if call.stands is None:
        return f"The pattern cannot be tested in this way: {call.says}."
    if call.stands:
        return f"The pattern does speak: {call.says}. The two share hidden axes, which does not say who came first."
    return f"The pattern does not show more than strangers may: {call.says}. A disguised copy would look the same here."
