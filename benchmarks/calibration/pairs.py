"""Which pairs of a zoo are compared, at which budgets, and what should come out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.calibration.kinds import KINDS
from benchmarks.calibration.made import made_pairs
from benchmarks.calibration.results import BUDGETS, Budget, Job, is_made, map_text
from zoo.lineage import PARTS, Row, halves, pairs_for_calibration
from zoo.measure import shape_of
from zoo.origins import layer_map
from zoo.tables import WITH_STRANGERS, class_name, step_of

from modelkin.architectures import identify
from modelkin.inspection import open_model

# What one of these steps made of its base must be found at `quick`; casts and quantisation are the four schemes.
AT_QUICK = frozenset(
    (
        *("sft", "sft-prose", "rl", "lora-4", "lora-16", "cpt-light", "cpt-heavy", "cpt-german", "cpt-rewarmed"),
        *("pooled", "int8", "int4", "fp8", "nf4", "extend", "swap", "upscale", "stacked", "shallow", "cut"),
        *("moe-copied", "linear", "soup", "decoy-10", "decoy-30", "decoy-50"),
        *(f"{size} …-{how}" for size in ("small", "large") for how in ("tuned", "german")),
    )
)
AT_FULL = frozenset(("layer", "grafted-layer", "neurons", "grafted-neurons", "moe-split", "narrow", "squeezed"))
FAINT = frozenset({"decoy-10, the decoy"})  # a tenth of a merge: less than the three tenths that are demanded
# At the default budget a pair costs seconds, so of these only so many are compared at it: strangers in all, those of
# the half that no control or threshold has seen before all others; siblings and shared-init of either half.
STRANGERS, KIN = 3100, 100
HALVES = ("test", "tune", "across")
UNRELATED = "unrelated"


def truths(folder: Path) -> dict[str, dict[str, Any]]:
    """truth.json of every model in the folder, with its shape beside it."""
    found = {}
    for place in sorted(path.parent for path in folder.glob("*/truth.json")):
        checkpoint = open_model(str(place))
        try:
            shape = shape_of(identify(checkpoint))
        finally:
            checkpoint.close()
        found[place.name] = json.loads((place / "truth.json").read_text("utf-8")) | {"shape": shape}
    if not found:
        raise ValueError(f"{folder} holds no folder with a truth.json: python -m zoo.train makes them")
    return found


def described(pair: Row) -> dict[str, str]:
    """The pair with `label`, what it is called in the tables; `demand` and `expected`, what should be found."""
    step = _step(pair)
    kinds = pair["kinds"].split()
    single = pair["outcome"] == "descendant" and len(kinds) == 1
    plain = step.partition(",")[0]
    demand = "quick" if plain in AT_QUICK and step not in FAINT else "full" if plain in AT_FULL else ""
    host = step.endswith("the host")
    alone = single or kinds == ["shared-init"]
    told = {
        "label": _label(pair, kinds, step),
        "demand": demand if single and not host else "",
        "expected": kinds[0] if alone and kinds[0] in KINDS else "",
    }
    return dict(pair) | told


def true_map(known: Mapping[str, Mapping[str, Any]], pair: Mapping[str, str]) -> str:
    """Of a child and its ancestor: the ancestor's layer that each layer of the child was. "" of all others."""
    if pair["outcome"] != "descendant":
        return ""
    ancestor, child = (pair[side] for side in ("ab" if pair["direction"] == "a->b" else "ba"))
    details = known[child].get("made_by", {}).get("details", {})
    layers = range(known[child]["shape"]["layers"])
    if pair["kinds"] == PARTS and "layers" in details:
        taken = {int(host): str(donor) for host, donor in details["layers"]}
        return map_text((str(layer), taken.get(layer)) for layer in layers)
    found = layer_map(known, ancestor, child)
    moved = list(layers) if found is None else found
    return map_text((str(layer), None if old is None else str(old)) for layer, old in enumerate(moved))


def _label(pair: Row, kinds: Sequence[str], step: str) -> str:
    if pair["outcome"] == "unrelated":
        return f"strangers, {class_name(pair['class'])}"
    if pair["outcome"] == "descendant":
        return f"{kinds[0]} ({step})" if len(kinds) == 1 else " → ".join(kinds)
    if pair["outcome"] == "distilled" and len(kinds) == 1:
        return f"distilled ({step})"
    further = ", derived further" if pair["outcome"] != "siblings" and len(kinds) > 1 else ""
    return f"{pair['outcome']}{further}{', disguised' if 'obfuscated' in kinds else ''}"


def _step(pair: Row) -> str:
    """What made the child of the other; "" where neither is. A stranger that was taken in is told apart."""
    if pair["direction"] not in ("a->b", "b->a"):
        return ""
    base, child = (pair[side] for side in ("ab" if pair["direction"] == "a->b" else "ba"))
    step = step_of(child)
    stranger = WITH_STRANGERS.get(step.partition("-")[0])
    return f"{step}, the {stranger}" if stranger and not child.endswith(f".{base}") else step


def jobs(known: Mapping[str, Mapping[str, Any]], budgets: Iterable[str], limit: int | None = None) -> list[Job]:
    """What matters most first, within that by a hash of the names: a run that is stopped early leaves an even sample.

    `limit`: at most so many pairs of every outcome, budget and half.
    """
    wanted = set(budgets)
    if unknown := wanted - set(BUDGETS):
        raise ValueError(f"no such budget: {', '.join(sorted(unknown))}; there are {', '.join(BUDGETS)}")
    pairs = [described(pair) | {"true_map": true_map(known, pair)} for pair in pairs_for_calibration(known)]
    pairs = sorted((*pairs, *map(described, made_pairs(known, halves(known)))), key=_draw)
    near = sorted({pair["outcome"] for pair in pairs} - {UNRELATED})
    groups: list[tuple[Budget, str, Sequence[str]]] = [
        *(("quick", outcome, [half]) for outcome in near for half in HALVES),
        *(("standard", outcome, ["test"]) for outcome in near),
        *(("quick", UNRELATED, [half]) for half in HALVES),
        ("standard", UNRELATED, HALVES),
        *(("standard", outcome, ["tune"]) for outcome in near),
    ]
    return [job for group in groups for job in _asked(pairs, *group, limit) if job.budget in wanted]


def _asked(
    pairs: Sequence[Mapping[str, str]], budget: Budget, outcome: str, of: Sequence[str], limit: int | None
) -> Iterator[Job]:
    """With `standard` comes `full`, of what is demanded there alone: everything else was answered by less.

    One after the other, for what is seen through a disguise serves both.
    """
    group = [pair for pair in pairs if pair["outcome"] == outcome and pair["half"] in of]
    if budget == "quick":
        plain = (pair for pair in group if not is_made(pair["b"]))  # they are there for their kinds, told at `standard`
        yield from (Job(budget, pair) for pair in islice(plain, limit))
        return
    most = {UNRELATED: STRANGERS, "siblings": KIN, "shared-init": KIN}.get(outcome, len(group))
    group.sort(key=lambda pair: (HALVES.index(pair["half"]), not pair["expected"]))  # chains after single steps
    for pair in islice(group, most if limit is None else min(most, limit)):
        yield Job("standard", pair)
        if pair["demand"] == "full":
            yield Job("full", pair)


def _draw(pair: Mapping[str, str]) -> bytes:
    return sha256(f"{pair['a']}|{pair['b']}".encode()).digest()
