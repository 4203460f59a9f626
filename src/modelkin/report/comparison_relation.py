"""What was done to one model to make the other, who came first and how much is shared, as lines of the page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from modelkin.records import Comparison, Direction, Json, KindShare, Relation
from modelkin.records.naming import short_names
from modelkin.report.text import interval, percent, plain

TITLE = "What was done, from all tensors of both"
SHOWN_SOURCES = 6
PLACES = ("hidden", "neurons", "heads", "experts", "layers")
NAMES = {"hidden": "hidden axes", "neurons": "neurons", "heads": "heads", "experts": "experts", "layers": "layers"}
SHAPES = {
    "a between": "A lies between it and B",
    "b between": "B lies between it and A",
    "third between": "it lies between A and B",
    "star": "all three come from a fourth",
    "opposed": (
        "how the three lie to each other cannot be told: seen from one of them the others lie in opposed directions, "
        "as from a mixture of them, perhaps with a parent that is not given, from a checkpoint on the way from one to "
        "the other, or from a model that learnt what another of them learnt as well"
    ),
    "mixture": "one of the three is a mixture, so that no single line of descent joins them",
    "unclear": "how the three lie to each other cannot be told",
}
IN_PLACE = ("identity", "none", None)
FIRST: dict[Direction, str] = {
    "a->b": "A seems to have come first",
    "b->a": "B seems to have come first",
    "neither": "neither comes from the other",
    "unknown": "who came first is not told",
}
# How the parts of b stand beside those of a, by the word of the record.
STANDS = {
    "permutation": "those of A under other numbers",
    "signed permutation": "those of A under other numbers and signs",
    "rotation": "a rotation of those of A",
    "rectangular": "a rotation of some, as one model is wider",
    "subset": "one model has only some of the other's",
    "one MLP": "those of one model continue the MLP of the other",
    "moved": "not those of A with the same numbers",
}


def relation_lines(comparison: Comparison) -> list[str]:
    """A line a kind that holds with what it would be between strangers; then order, share and mixture."""
    found = comparison.relation
    if found is None:
        return []
    said = {share.kind for share in comparison.verdict.kinds}
    kinds = [kind for kind in found.kinds if kind.kind in said]
    by_reason: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        by_reason.setdefault((kind.why, kind.strangers), []).append(_kind(KindShare(kind.kind, kind.probability)))
    lines = [f"{' or '.join(names)}: {why}; between strangers: {chance}" for (why, chance), names in by_reason.items()]
    if "shared-init" not in said:
        lines += [*_order(comparison, found, {kind.why for kind in kinds}), *_share(comparison)]
    elif not any(kind.kind == "shared-init" for kind in kinds):
        lines += _agreement(found)
    return [*lines, *_candidate(comparison, found), *_merge(found), *_thirds(found)]


def _order(comparison: Comparison, found: Relation, above: Collection[str]) -> list[str]:
    """One line with all reasons but those that stand above, where a kind was told by them."""
    if not found.direction_reasons:
        return []
    reasons = [why for why in found.direction_reasons if why not in above] or ["as said above"]
    return [f"{FIRST[comparison.verdict.direction]}: {'; '.join(reasons)}"]


def _agreement(found: Relation) -> list[str]:
    """What two that began alike have in common. A share or an order would read as descent."""
    parts = {
        "matrices": [f.correlation for f in found.tensors if len(f.shape) == 2 and f.correlation is not None],
        "norm gains": [f.correlation for f in found.tensors if f.role.is_gain and f.correlation is not None],
    }
    told = [f"{name} by a correlation of {median(values):.2f}" for name, values in parts.items() if values]
    return [f"what agrees: {' and '.join(told)} (middle values); between strangers both are near 0"] if told else []


def _share(comparison: Comparison) -> list[str]:
    shared = comparison.verdict.shared
    if shared is None:
        return []
    of = shared.side(comparison.verdict.direction).upper()
    told = f"{percent(shared.fraction)} of the parameters of {of}"
    return [f"shared: {told} (95 % interval {interval(shared.low, shared.high)}; strangers: none)"]


def _candidate(comparison: Comparison, found: Relation) -> list[str]:
    """A further model that was computed from the pair and the rest: of the pair neither is the mixture."""
    merge = found.merge
    if merge is None or merge.merged in (comparison.a.id, comparison.b.id):
        return []
    called = short_names((merge.merged, *merge.sources))
    parts = ", ".join(f"{w:.2f} {called[name]}" for w, name in zip(merge.weights, merge.sources, strict=True))
    return [
        f"the candidate {called[merge.merged]} is a mixture ({merge.method}): {parts}; its values are rounded where "
        "these put them and theirs are not, so that it was computed from them; a stranger's weights would be 0.00"
    ]


def _merge(found: Relation) -> list[str]:
    merge = found.merge
    if merge is None or len(merge.layers) < 2 or merge.missing_parent:  # then no weight can be known
        return []
    spread, names = [], short_names(merge.sources)
    for place, source in enumerate(merge.sources[:SHOWN_SOURCES]):
        weights = [layer.weights[place] for layer in merge.layers]
        spread.append(f"{names[source]} {min(weights):.2f} to {max(weights):.2f}")
    what = "weights, if it is a mixture" if merge.last is None else "weights of the mixture"
    return [f"{what}, layer by layer: {'; '.join(spread)}; a stranger's would be 0.00"]


def _thirds(found: Relation) -> list[str]:
    names = short_names([each.third for each in found.triplets])
    return [
        f"with {names[each.third]}: {SHAPES[each.shape]} (cosines at A, B and it: {each.at_a[0]:.2f}, "
        f"{each.at_b[0]:.2f}, {each.at_third[0]:.2f}; between strangers 0.50 each)"
        for each in found.triplets
    ]


def alignment_lines(alignment: Json | None) -> list[str]:
    """What of b stands where in a, if it was found elsewhere without being rearranged: what was, the kind tells."""
    if not alignment or alignment.get("hidden") in (None, "none") or alignment.get("undone"):
        return []
    moved = [(name, alignment.get(name)) for name in PLACES if alignment.get(name) not in IN_PLACE]
    return [f"{NAMES[name]}: {STANDS.get(str(how), str(how))}" for name, how in moved]


def drawing(comparison: Comparison) -> Iterable[RenderableType]:
    """The map of the layers, where it is more than a diagonal."""
    found = comparison.relation
    facing = comparison.a.layers == comparison.b.layers and all(a == b for b, a in comparison.verdict.layer_map)
    if found is None or not found.drawing or facing:
        return
    yield Padding(Group(*(Text(plain(line), no_wrap=True) for line in found.drawing)), (0, 0, 0, 3))


def kinds_text(kinds: Sequence[KindShare]) -> str:
    """For a headline; of no kinds, and no relation, nothing."""
    return ", ".join(_kind(share) for share in kinds)


def _kind(share: KindShare) -> str:
    return share.kind if share.probability is None else f"{share.kind} ({share.probability:.2f})"
