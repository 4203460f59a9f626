"""Layers of b beside layers of a: the map, and whether layers were repeated or left out."""

from __future__ import annotations

from collections.abc import Sequence

from modelkin.records import Evidence, Kind, LayerFinding
from modelkin.verdict.policy import LAYER_MAP

LayerMap = tuple[tuple[str, str | None], ...]


def layer_map(rejecting: Sequence[Evidence]) -> LayerMap:
    """(layer of b, layer of a or None), if the layer map's answer rejects. A layer that b lacks has no row."""
    return tuple((finding.b, finding.a or None) for finding in _findings(rejecting) if finding.b)


def depth_kind(rejecting: Sequence[Evidence], depths: tuple[int | None, int | None]) -> Kind | None:
    """Upscaled where one layer meets two of the other model; pruned where one model alone has layers without partner.

    New layers put between old ones look like layers left out, from the other side; as direction is not known here,
    both are called depth-prune.
    """
    pairs = [(finding.a, finding.b) for finding in _findings(rejecting) if finding.a and finding.b]
    met_a, met_b = {a for a, _ in pairs}, {b for _, b in pairs}
    if len(pairs) > min(len(met_a), len(met_b)):
        return "depth-upscale"
    layers_a = depths[0] or len({f.a for f in _findings(rejecting) if f.a})
    layers_b = depths[1] or len({f.b for f in _findings(rejecting) if f.b})
    alone_a, alone_b = layers_a > len(met_a), layers_b > len(met_b)
    return "depth-prune" if pairs and alone_a != alone_b and layers_a != layers_b else None


def _findings(rejecting: Sequence[Evidence]) -> tuple[LayerFinding, ...]:
    return next((answer.per_layer for answer in rejecting if answer.question == LAYER_MAP), ())
