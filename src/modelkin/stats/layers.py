"""The roll calls of many layers as one: what may be added up, and what must be paid for looking often.

Under the null the neurons of every layer may be renumbered apart from those of any other, so the counts of fixed points
of different layers are independent (whatever the layers share otherwise). The product of their p-values is no p-value.
What is one:

- `total`   the exact law of the sum of the counts. Strong when every layer gives a little.
- `best`    the smallest p of any layer, times the number of layers. Strong when one layer was kept and the rest was
            not, where the sum drowns in the ones that the other layers find by chance.
- `fisher`  the combination of the p-values: conservative, for the discrete counts make them larger than uniform;
            between the other two in power. For display and as a check.

Grade A takes `significance`: the smaller of `total` and `best`, times two. The hidden axes are one index set for the
whole model and never come here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from modelkin.records import Null, Significance
from modelkin.stats.arrays import LN10
from modelkin.stats.multiplicity import fisher
from modelkin.stats.rencontres import even_quantiles, log_chosen_tail, log_e_value, log_total_tail, total_law
from modelkin.stats.roll_call import Neurons, RollCall, better_of


@dataclass(frozen=True, slots=True)
class Layers:
    """`fixed` of `n` over all layers; `layer` is the place in the list of the most surprising one."""

    fixed: int
    n: int
    layer: int
    total: Significance
    best: Significance
    fisher: Significance
    significance: Significance


@dataclass(frozen=True, slots=True)
class NeuronLayers:
    """All layers by gate rows, all layers by up rows, and the better of the two."""

    gate: Layers
    up: Layers
    significance: Significance


def over_layers(calls: Sequence[RollCall]) -> Layers:
    """Roll calls of index sets that may be renumbered independently: layers, or the experts inside them."""
    if not calls:
        raise ValueError("no layers to combine")
    counts, sizes = [call.fixed for call in calls], [call.n for call in calls]
    layer = min(range(len(calls)), key=lambda i: calls[i].significance.log10_pvalue)
    asked = [call.significance for call in calls if call.n] or [calls[layer].significance]
    total, best = total_fixed_points(counts, sizes), better_of(asked, "layers")
    both = better_of([total, best], "all layers together, the best layer alone")
    combined = _fisher(calls, total)
    return Layers(sum(counts), sum(sizes), layer, total, best, combined, both)


def neurons_over_layers(layers: Sequence[Neurons]) -> NeuronLayers:
    """Gate and up each over all layers; p = 2·min of the two, for within a layer they share one permutation."""
    gate, up = over_layers([layer.gate for layer in layers]), over_layers([layer.up for layer in layers])
    return NeuronLayers(gate, up, better_of([gate.significance, up.significance], "gate and up rows"))


def total_fixed_points(counts: Sequence[int], sizes: Sequence[int]) -> Significance:
    """The sum of the fixed points of independent permutations against its exact law; e-values of layers multiply."""
    if len(counts) != len(sizes) or any(not 0 <= k <= n for k, n in zip(counts, sizes, strict=True)):
        raise ValueError("every layer needs a count between 0 and its size")
    asked = tuple(sorted(n for n in sizes if n))
    where = "in one layer, one" if len(asked) == 1 else f"in {len(asked)} layers apart, one a layer"
    text = f"of {sum(asked):,} numbers, hidden and given back {where} finds itself"
    return Significance(
        statistic=float(sum(counts)),
        log10_pvalue=log_total_tail(asked, sum(counts)) / LN10,
        null=Null(text, _drawn(asked)),
        n=sum(asked),
        exact=True,
        log10_evalue=math.fsum(log_e_value(k) for k in counts) / LN10,
    )


def surest_fixed_points(count: int, chosen: int, share: float) -> Significance:
    """Fixed points among those who were surest of their choice: `chosen` of all, `share` of them by chance.

    Where a few were taken as they are, they are as sure as can be, while the ones that find themselves by chance are
    anywhere.
    """
    text = f"of the {chosen} surest, {share:.2g} find themselves on average; k or more with a chance below that^k/k!"
    return Significance(
        statistic=float(count),
        log10_pvalue=log_chosen_tail(share, count) / LN10,
        null=Null(text),
        n=chosen,
        exact=True,
    )


@lru_cache(maxsize=256)
def _drawn(sizes: tuple[int, ...]) -> tuple[float, ...]:
    return even_quantiles(total_law(sizes))


def _fisher(calls: Sequence[RollCall], total: Significance) -> Significance:
    pvalues = [call.significance.log10_pvalue for call in calls]
    return Significance(
        statistic=-2 * LN10 * math.fsum(pvalues),
        log10_pvalue=fisher(pvalues),
        null=Null(f"-2 Σ ln p of {len(calls)} independent layers: chi-square with {2 * len(calls)} degrees of freedom"),
        n=total.n,
        exact=True,
    )
