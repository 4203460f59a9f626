"""Which pairs of a zoo are compared, at which budgets, and what should come out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.calibration.results import BUDGETS, Budget, Job
from zoo.lineage import PARTS, Row, pairs_for_calibration
from zoo.measure import shape_of
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
NAMED_YET = frozenset({PARTS, "depth-upscale", "depth-prune"})


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
    expected = kinds[0] if single and kinds[0] in NAMED_YET else "shared-init" if kinds == ["shared-init"] else ""
    told = {"label": _label(pair, kinds, step), "demand": demand if single and not host else "", "expected": expected}
    return dict(pair) | told


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
    """Relatives before strangers, small budgets before large; within these by a hash of the names, so that a run which
    is stopped early leaves an even sample. `limit`: at most so many of every outcome and budget."""
    pairs = sorted((described(pair) for pair in pairs_for_calibration(known)), key=_draw)
    outcomes = dict.fromkeys(sorted((pair["outcome"] for pair in pairs), key=lambda name: name == "unrelated"))
    near, far = [name for name in outcomes if name != "unrelated"], [n for n in outcomes if n == "unrelated"]
    wanted = set(budgets)
    if unknown := wanted - set(BUDGETS):
        raise ValueError(f"no such budget: {', '.join(sorted(unknown))}; there are {', '.join(BUDGETS)}")
    chosen = [budget for budget in BUDGETS if budget in wanted]
    order = [(budget, outcome) for group in (near, far) for budget in chosen for outcome in group]
    return [job for budget, outcome in order for job in islice(_asked(pairs, budget, outcome), limit)]


def _asked(pairs: Sequence[Mapping[str, str]], budget: Budget, outcome: str) -> Iterator[Job]:
    """At `full` only what is demanded there: everything else was answered by less."""
    for pair in pairs:
        if pair["outcome"] == outcome and (budget != "full" or pair["demand"] == "full"):
            yield Job(budget, pair)


def _draw(pair: Mapping[str, str]) -> bytes:
    return sha256(f"{pair['a']}|{pair['b']}".encode()).digest()
