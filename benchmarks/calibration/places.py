"""A stolen part: how surely it was found, and whether it was found where it lies; and the layers of all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.calibration.kinds import deepest
from benchmarks.calibration.markdown import scientific, table
from benchmarks.calibration.results import LayerMap, Result

LAYER = ("component-reuse (layer)", "component-reuse (grafted-layer)")
NEURONS = ("component-reuse (neurons)", "component-reuse (grafted-neurons)")
SURE = -9.0  # log10 of the p that is asked for


def right_layers(true: LayerMap, said: LayerMap, child_is_b: bool = True) -> tuple[int, int]:
    """(right, of how many) layers of b whose layer in a was told. `true` is of the child, `said` of b.

    Where the child is a, one of its layers is right for a layer of b if it was made from that; none if none was.
    """
    told = dict(said)
    if child_is_b:
        return sum(told.get(layer) == old for layer, old in true), len(true)
    old_of = dict(true)
    made = {old for _, old in true if old}
    return sum(old_of.get(a) == b if a else b not in made for b, a in said), len(said)


def layers_right(result: Result) -> tuple[int, int] | None:
    """None where there is no true map, or nothing was told."""
    if not result.true_map or not result.map:
        return None
    return right_layers(result.true_map, result.map, result.direction == "a->b")


def is_located(result: Result) -> bool:
    """The layer was named and no other; of scattered neurons, some layer that holds them (all do)."""
    if result.label in NEURONS:
        return bool(result.at)
    found = layers_right(result)
    return found is not None and found[0] == found[1]


def is_sure(result: Result) -> bool:
    return result.verdict == "related" and (result.log10_p is None or result.log10_p <= SURE)


def stolen(results: Iterable[Result]) -> list[Result]:
    return [r for r in results if r.budget == "full" and r.label in (*LAYER, *NEURONS)]


def stolen_table(results: Iterable[Result]) -> str:
    """One layer of several, or 2 % of the neurons, at `full`."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in stolen(results):
        found[result.label].append(result)
    rows = []
    for label, group in sorted(found.items()):
        weakest = max((r.log10_p for r in group if r.verdict == "related" and r.log10_p is not None), default=None)
        counts = (len(group), sum(map(is_sure, group)), sum(map(is_located, group)))
        rows.append([label, *map(str, counts), "–" if weakest is None else scientific(weakest)])
    head = ("what was taken", "pairs", "found at p ≤ 1e-9", "and located", "weakest p")
    return table(head, rows, words=2)


def maps_table(results: Iterable[Result]) -> str:
    """Layer maps of single-step descendants: pairs in which every layer was told rightly."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for result in deepest(results):
        told = layers_right(result)
        if result.outcome == "descendant" and len(result.kinds) == 1 and told and result.kinds[0] != "component-reuse":
            found[result.kinds[0]].append(told)
    rows = [_maps_row(kind, found[kind]) for kind in sorted(found)]
    return table(("relation", "pairs with a map", "every layer right", "layers", "right"), rows)


def _maps_row(kind: str, group: Sequence[tuple[int, int]]) -> list[str]:
    whole = sum(right == of for right, of in group)
    return [kind, str(len(group)), str(whole), str(sum(of for _, of in group)), str(sum(right for right, _ in group))]
