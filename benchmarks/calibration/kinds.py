"""The kind that was named: against the true one, of single steps, of chains, and of disguises."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from benchmarks.calibration.markdown import per_cent, table
from benchmarks.calibration.results import Result, depth

from modelkin.stats import clopper_pearson

BY_DEGREE = ("fine-tune", "continued-pretraining")
DEGREE = "fine-tune or continued-pretraining"
KINDS = (
    *("identical", "re-encoded", *BY_DEGREE, "merged-lora", "moe-upcycle", "depth-upscale", "depth-prune"),
    *("width-prune", "vocabulary-surgery", "component-reuse", "shared-init"),
)
FLAG = "obfuscated"
OTHER, NOT_FOUND = "another, or none", "not found"
WITH_CANDIDATES = "merge"  # told where the other parents are given, and not from a pair
EXAMPLES = 20  # of a kind, that its score counts as measured
DRAWS = 400
Pairs = Sequence[tuple[str, str]]  # (true kind, named kind)


def joined(kind: str) -> str:
    """Fine-tuning and continued pretraining are one kind, of which there is more or less."""
    return DEGREE if kind in BY_DEGREE else kind


ELEVEN = tuple(dict.fromkeys(map(joined, KINDS)))


def deepest(results: Iterable[Result]) -> list[Result]:
    """Each pair at the largest budget it was compared at; `quick` reads too little to tell kinds."""
    found: dict[tuple[str, str], Result] = {}
    for result in results:
        before = found.get(result.pair)
        if result.budget != "quick" and (before is None or depth(result.budget) > depth(before.budget)):
            found[result.pair] = result
    return list(found.values())


def named_kind(result: Result) -> str:
    """The first that was named: those that change the shape stand before what training did, and a flag is no kind."""
    if result.verdict != "related":
        return NOT_FOUND
    return next((joined(kind) for kind in result.named if joined(kind) in ELEVEN), OTHER)


def singles(results: Iterable[Result]) -> list[Result]:
    """Pairs that are one step apart, by one of the eleven kinds."""
    return [result for result in deepest(results) if result.expected]


def kind_pairs(results: Iterable[Result]) -> Pairs:
    return [(joined(result.expected), named_kind(result)) for result in results]


def f1(pairs: Pairs, kind: str) -> float | None:
    """Harmonic mean of precision and recall; None where there is no such pair."""
    true, named = sum(t == kind for t, _ in pairs), sum(n == kind for _, n in pairs)
    both = sum(t == n == kind for t, n in pairs)
    return 2 * both / (true + named) if true else None


def macro_f1(pairs: Pairs) -> float | None:
    """Mean over the kinds of which there are examples."""
    scores = [score for kind in ELEVEN if (score := f1(pairs, kind)) is not None]
    return float(np.mean(scores)) if scores else None


def base_of(result: Result) -> str:
    """The model without parents that a pair goes back to: pairs of one base are not independent."""
    return result.a.rpartition(".")[2]


def low_end(results: Sequence[Result], score: Callable[[Sequence[Result]], float | None]) -> float | None:
    """What a score reaches in 95 of 100 draws of as many bases, each with all of its pairs."""
    by_base: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_base[base_of(result)].append(result)
    groups = [by_base[base] for base in sorted(by_base)]
    if len(groups) < 2:
        return None
    rng = np.random.default_rng(0)
    drawn = [[r for i in rng.integers(len(groups), size=len(groups)) for r in groups[i]] for _ in range(DRAWS)]
    values = [value for draw in drawn if (value := score(draw)) is not None]
    return float(np.quantile(values, 0.05)) if values else None


def confusion_table(results: Iterable[Result]) -> str:
    """A line a true kind and a column a named one; columns that nothing fell into are left out."""
    pairs = kind_pairs(singles(results))
    counts = Counter(pairs)
    columns = [kind for kind in (*ELEVEN, OTHER, NOT_FOUND) if any(named == kind for _, named in pairs)]
    rows = []
    for kind in ELEVEN:
        total = sum(true == kind for true, _ in pairs)
        right = clopper_pearson(counts[kind, kind], total) if total else None
        score = f1(pairs, kind)
        rows.append(
            [
                *(kind, str(total), *(_count(counts[kind, named], kind == named) for named in columns)),
                "–" if right is None else f"{per_cent(right.low)}–{per_cent(right.high)}",
                "–" if score is None else f"{score:.3f}",
            ]
        )
    return table(("true kind", "pairs", *columns, "right, 95 % interval", "F1"), rows)


def _count(count: int, right: bool) -> str:
    return f"**{count}**" if right and count else str(count) if count else ""


def macro_line(results: Iterable[Result]) -> str:
    """The score in words, with how many kinds it stands for."""
    chosen = singles(results)
    pairs = kind_pairs(chosen)
    seen = Counter(true for true, _ in pairs)
    score = macro_f1(pairs)
    if score is None:
        return "No pair was compared whose kind a pair can show."
    low = low_end(chosen, lambda draw: macro_f1(kind_pairs(draw)))
    few = [f"{kind} ({seen[kind]})" for kind in ELEVEN if seen[kind] < EXAMPLES]
    lacking = f"fewer than {EXAMPLES} examples: {', '.join(few)}" if few else f"at least {EXAMPLES} examples of each"
    bound = "" if low is None or low == 1 else f" (at least {low:.3f} in 95 of 100 draws of the bases)"
    return f"Macro-F1: **{score:.3f}**{bound}, over {len(seen)} of 11 kinds; {lacking}."


def degree_table(results: Iterable[Result]) -> str:
    """Fine-tunes and continued pretraining, by what was done: how often the more likely of the two was the true one."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in singles(results):
        if result.expected in BY_DEGREE:
            found[result.label].append(result)
    rows = []
    for label, group in sorted(found.items()):
        said = Counter(likelier(result) for result in group)
        chances = [_chance(result) for result in group if likelier(result) in BY_DEGREE]
        mean = f"{np.mean(chances):.2f}" if chances else "–"
        rows.append([label, str(len(group)), *(str(said[kind]) for kind in (*BY_DEGREE, OTHER)), mean])
    head = ("what was done", "pairs", *(f"called {kind}" for kind in BY_DEGREE), OTHER)
    return table((*head, "mean probability of continued pretraining"), rows, words=2)


def _chance(result: Result) -> float:
    """Of continued pretraining; a kind that is named without its alternative leaves that the rest."""
    told = result.named_p.get(BY_DEGREE[1])
    return told if told is not None else 1 - result.named_p.get(BY_DEGREE[0], 1.0)


def likelier(result: Result) -> str:
    """Of the two by degree, the one that was held more likely; where neither was named, OTHER."""
    named = [kind for kind in result.named if kind in BY_DEGREE] if named_kind(result) == DEGREE else []
    return max(named, key=lambda kind: result.named_p.get(kind, 1.0), default=OTHER)


# Chains: several labels at once.


def chains(results: Iterable[Result]) -> list[Result]:
    """Descendants by two steps. Merges are told by their other parents and are no label here."""
    found = (r for r in deepest(results) if r.outcome == "descendant" and len(r.kinds) == 2)
    return [result for result in found if true_labels(result)]


def true_labels(result: Result) -> set[str]:
    return {joined(kind) for kind in result.kinds} - {WITH_CANDIDATES}


def named_labels(result: Result) -> set[str]:
    named = {joined(kind) for kind in result.named} if result.verdict == "related" else set()
    return named & {*ELEVEN, FLAG}


def micro_f1(results: Sequence[Result]) -> float | None:
    labels = [(true_labels(result), named_labels(result)) for result in results]
    sizes = sum(len(true) + len(named) for true, named in labels)
    return 2 * sum(len(true & named) for true, named in labels) / sizes if sizes else None


def chains_table(results: Iterable[Result]) -> str:
    """A line a chain, and all together last."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in chains(results):
        found[result.label].append(result)
        found["~"].append(result)
    rows = []
    for label, group in sorted(found.items()):
        whole = sum(true_labels(result) == named_labels(result) for result in group)
        said = Counter(" + ".join(sorted(named_labels(result))) or NOT_FOUND for result in group)
        told = ", ".join(f"{text} {count}" for text, count in said.most_common(3)) if label != "~" else ""
        name = "all chains" if label == "~" else label
        rows.append([name, str(len(group)), str(whole), f"{micro_f1(group) or 0:.3f}", told])
    return table(("chain", "pairs", "all kinds right", "micro-F1", "most named"), rows, words=2)


# Disguises: a flag beside the kind.


def flags_table(results: Iterable[Result]) -> str:
    """How often `obfuscated` was named of those that are, by what was done; and of relatives that are not."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in deepest(results):
        if result.outcome == "descendant":
            found[result.label if result.disguised else "no disguise"].append(result)
    rows = []
    for label, group in sorted(found.items()):
        related = [result for result in group if result.verdict == "related"]
        flagged = sum(FLAG in result.named for result in related)
        interval = clopper_pearson(flagged, len(related)) if related else None
        told = "–" if interval is None else f"{per_cent(interval.low)}–{per_cent(interval.high)}"
        rows.append([label, str(len(group)), str(len(related)), str(flagged), told])
    return table(("what was done", "pairs", "related", "called obfuscated", "95 % interval"), rows, words=2)
