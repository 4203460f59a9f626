"""Layers of b beside layers of a: the map, and whether layers were repeated or left out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from modelkin.records import Evidence, Kind, LayerFinding
from modelkin.stats import log_total_tail
from modelkin.verdict.policy import LAYER_MAP

COUNTED_IN_PLACE = ("neurons", "every-neuron", "attention")  # fixed points of facing layers
FAINTLY = 1e-3
LayerMap = tuple[tuple[str, str | None], ...]


def layer_map(rejecting: Sequence[Evidence]) -> LayerMap:
    """(layer of b, layer of a or None), if the layer map's answer rejects. A layer that b lacks has no row.

    Further layers of a that match the same layer of b come later in the answer, and are no row either.
    """
    found: dict[str, str | None] = {}
    for finding in _findings(rejecting):
        if finding.b:
            found.setdefault(finding.b, finding.a or None)
    return tuple(found.items())


def depth_kind(rejecting: Sequence[Evidence], depths: tuple[int | None, int | None]) -> Kind | None:
    """Upscaled where one layer meets two of the other model; pruned where one model alone has layers without partner.

    New layers put between old ones look like layers left out, from the other side; as direction is not known here,
    both are called depth-prune.
    """
    pairs = {(finding.a, finding.b) for finding in _findings(rejecting) if finding.a and finding.b}
    met_a, met_b = {a for a, _ in pairs}, {b for _, b in pairs}
    if len(pairs) > min(len(met_a), len(met_b)):
        return "depth-upscale"
    layers_a = depths[0] or len({f.a for f in _findings(rejecting) if f.a})
    layers_b = depths[1] or len({f.b for f in _findings(rejecting) if f.b})
    alone_a, alone_b = layers_a > len(met_a), layers_b > len(met_b)
    return "depth-prune" if pairs and alone_a != alone_b and layers_a != layers_b else None


def layers_apart(rejecting: Sequence[Evidence]) -> tuple[str, ...]:
    """Layers of b that match none of a and come no nearer to any than chance; none, if what was counted in them shows
    more than chance when it is taken together: then a likeness goes through all layers, too faint to match each."""
    findings = _findings(rejecting)
    chance = math.log10(0.05 / max(1, len(findings)))  # the nearest of many layers was kept
    apart = tuple(f.b for f in findings if f.b and not f.a and (f.log10_pvalue is None or f.log10_pvalue > chance))
    counted = [answer for answer in rejecting if answer.question in COUNTED_IN_PLACE]
    return () if any(_counts_beyond_chance(answer, apart) for answer in counted) else apart


def _counts_beyond_chance(answer: Evidence, layers: Sequence[str]) -> bool:
    """In these layers alone, all sets of an answer added up."""
    within = [finding for finding in answer.per_layer if finding.b in layers and finding.n]
    total = round(math.fsum(finding.statistic for finding in within))
    return bool(within) and log_total_tail([finding.n for finding in within], total) <= math.log(FAINTLY)


def _findings(rejecting: Sequence[Evidence]) -> tuple[LayerFinding, ...]:
    return next((answer.per_layer for answer in rejecting if answer.question == LAYER_MAP), ())
