"""Stage 5: are the neurons of b those of a, once its hidden axes were turned back?

Whoever rotates the hidden axes and renumbers everything leaves nothing in its place. So neurons are recognised by what
no such move changes, the rotation is found from some layers, and others are judged by it: of how many neurons do two
ways of looking, or three, choose the same counterpart? Between strangers of about one a set. That is not an exact law,
for what opens a neuron and what it reads are not independent; so it is grade B, held against unrelated models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from modelkin.alignment import Alignment, HeldOut
from modelkin.alignment.rows import row_facts
from modelkin.questions.controls import CAP, ENOUGH, Controls, counts_of, pair_class, shape_of, shipped, structural
from modelkin.questions.question import CannotAsk
from modelkin.records import Assumption, Evidence, LayerFinding, Null

ID = "unmasked-neurons"
NULL = "unrelated models aligned the same way: two ways of looking agree on about one neuron of a set by chance"
SAMPLE = 1000  # scores of controls that the record keeps, for the picture


@dataclass(frozen=True)
class Weighed:
    """What the controls make of a pair: nothing, where there are none of its route.

    `sample`: agreements a set of the controls, to be drawn beside those of the pair.
    """

    grade: Literal["B"] | None
    log10_pvalue: float | None
    strangers: str
    remarks: tuple[str, ...]
    sample: tuple[float, ...] = ()


def answer(alignment: Alignment, controls: Controls | None = None) -> Evidence:
    """`statistic` counts neurons on which two ways of looking agree; `effect` is their share of all that were asked.

    Of a finding, `effect` is the median cosine of neurons with the ones they chose.
    """
    if not alignment.held_out:
        raise CannotAsk("; ".join(alignment.reasons) or "no layer could be judged by a rotation that others taught")
    known, digest = shipped() if controls is None else (controls, "given")
    weighed = _weighed(alignment, known)
    free = _not_by_chance(alignment)
    counts = counts_of(alignment.held_out)
    neurons = sum(found.n for found in alignment.held_out)
    layers = len(alignment.held_out)
    return Evidence(
        question=ID,
        index_set="neurons",
        grade=None if free.held is False else weighed.grade,
        statistic=float(counts.two),
        pvalue=None if weighed.log10_pvalue is None else 10.0**weighed.log10_pvalue,
        log10_pvalue=weighed.log10_pvalue,
        null=Null(NULL, weighed.sample),
        n=neurons,
        effect=counts.two / max(1, neurons),
        observed=f"with its axes turned back, {counts.two:,} of {neurons:,} neurons in {_layers(layers)} are "
        f"recognised by two ways of looking alike, {counts.three:,} by three",
        strangers=weighed.strangers,
        per_layer=tuple(_finding(found) for found in alignment.held_out),
        assumptions=(
            *(Assumption(text) for text in (*weighed.remarks, f"controls: sha256 {digest[:12]}")),
            free,
        ),
    )


def _not_by_chance(alignment: Alignment) -> Assumption:
    """One model whose rows training alone has filled is enough: nobody recognises them by a formula."""
    facts = [row_facts(side) for side in (alignment.a, alignment.b)]
    text = "rows are not filled by a formula, in one model at least"
    known = [(who, found) for who, found in zip("AB", facts, strict=True) if found is not None]
    if len(known) < 2:
        return Assumption(f"{text} (not checked)")
    shown = " and ".join(
        f"{found.tied:.2f} between what opens and what feeds a neuron, {found.few_places:.0%} of a row in its largest "
        f"eighth in {who}"
        for who, found in known
    )
    return Assumption(f"{text} ({shown})", not all(found.tells_by_chance for _, found in known))


def _weighed(alignment: Alignment, controls: Controls) -> Weighed:
    """By the controls of its class where they reach so far; beyond, against Poisson with their largest mean."""
    wanted, counts = pair_class(alignment), counts_of(alignment.held_out)
    found, means = controls.of(wanted), controls.means(alignment.route)
    if found is not None and found.covers([shape_of(alignment.a), shape_of(alignment.b)]):
        scores = [pair.score for pair in found.pairs]
        remark = (
            f"held against {len(scores):,} pairs of {found.models} unrelated models of its class ({wanted}); the "
            f"share of them that show as much, this pair counted among them, is p"
        )
        strangers = f"{_chance(counts.sets)}; of {len(scores):,} unrelated pairs at most {max(scores):.1f} a set"
        return Weighed("B", found.log10_pvalue(counts.score), strangers, (remark,), _some(scores))
    if means is None:
        return Weighed(None, None, _chance(counts.sets), (f"no controls of this class: {wanted}",))
    remark = (
        f"extrapolated: no {ENOUGH:,} controls of its class reach so far ({wanted}); held against Poisson with the "
        f"largest mean of any control, {means[0]:.1f} a set by two ways and {means[1]:.1f} by three, and p is not "
        f"taken below 1e{CAP:.0f}"
    )
    log10 = max(CAP, structural(alignment.held_out, means))
    strangers = f"{_chance(counts.sets)}, never over {means[0]:.1f} a set"
    return Weighed("B", log10, strangers, (remark,), _some(controls.scores(alignment.route)))


def _some(scores: Sequence[float]) -> tuple[float, ...]:
    """Evenly from the highest down, that one among them."""
    ranked = sorted(scores, reverse=True)
    return tuple(ranked[:: -(-len(ranked) // SAMPLE)])


def _chance(sets: int) -> str:
    return f"about {sets} by two, none by three"


def _layers(count: int) -> str:
    return "one layer" if count == 1 else f"{count} layers"


def _finding(found: HeldOut) -> LayerFinding:
    return LayerFinding(found.a, found.b, float(found.two), found.n, None, found.likeness)
