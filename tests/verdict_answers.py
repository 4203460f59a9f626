"""Answers as questions give them, made up for the policy to judge."""

from __future__ import annotations

from modelkin.records import Assumption, Evidence, IndexSet, LayerFinding, Null, Verdict

GAINS, NEURONS, EMBEDDINGS = "hidden-axes-by-gains", "neurons", "hidden-axes-by-embeddings"
EVERY = "every-neuron"
SETS: dict[str, IndexSet] = {
    GAINS: "hidden axes",
    NEURONS: "neurons",
    EVERY: "neurons",
    EMBEDDINGS: "hidden axes",
    "layer-map": "neurons",
    "attention": "kv groups",
    "experts": "experts",
    "pooled-rows": "neurons",
}
HOLDS, FAILS = (Assumption("axes may be renumbered", True),), (Assumption("axes may be renumbered", False),)


def evidence(question: str, log10: float | None, **changes: object) -> Evidence:
    fields: dict[str, object] = {
        "question": question,
        "index_set": SETS.get(question, "files"),
        "grade": "A",
        "statistic": 60.0,
        "pvalue": None if log10 is None else max(10.0 ** max(log10, -323), 5e-324),
        "log10_pvalue": log10,
        "null": Null("one finds itself"),
        "n": 64,
        "effect": 0.9,
        "observed": "60 of 64",
        "strangers": "1 of 64",
        "assumptions": HOLDS,
    }
    return Evidence(**(fields | changes))  # type: ignore[arg-type]


def yes(question: str, log10: float = -41.0, **changes: object) -> Evidence:
    return evidence(question, log10, **changes)


def no(question: str, log10: float = -0.3, **changes: object) -> Evidence:
    return evidence(question, log10, **({"effect": 0.0, "statistic": 1.0, "detectable": 0.05} | changes))


def layers(*log10s: float) -> tuple[LayerFinding, ...]:
    return tuple(LayerFinding(str(i), str(i), 1.0, 16, log10) for i, log10 in enumerate(log10s))


def mapped(*pairs: tuple[str, str]) -> tuple[LayerFinding, ...]:
    return tuple(LayerFinding(a, b, 16.0, 16, -13.0) for b, a in pairs)


def kinds(verdict: Verdict) -> list[str]:
    return [share.kind for share in verdict.kinds]


def no_suspicion(verdict: Verdict) -> bool:
    return verdict.pvalue is None and verdict.log10_pvalue is None and verdict.grade is None and not verdict.kinds
