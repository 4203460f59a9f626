"""What is kept of the trained zoo: whole, learnt, and enough to count again what its tables say."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from zoo import measured, others, plan, tables

TRUTHS = measured.truths(measured.HERE)
PAIRS = measured.pairs(measured.HERE)


@pytest.fixture(scope="module")
def samples() -> dict[str, measured.Sample]:
    return measured.load(measured.HERE)


def test_every_model_of_the_plan_was_trained() -> None:
    planned = {step.child(base) for step in plan.STEPS for base in step.bases} | {run.name for run in others.OTHERS}
    assert set(TRUTHS) == planned


def test_every_stranger_learnt_at_least_a_nat() -> None:
    gained = {n: t["unigram_entropy"] - t["loss"] for n, t in TRUTHS.items() if t["kind"] == "unrelated"}
    assert len(gained) == 201
    assert min(gained.values()) >= 1, min(gained, key=gained.get)


def test_strangers_differ_in_all_the_ways_they_should() -> None:
    strangers = [t for t in TRUTHS.values() if t["kind"] == "unrelated"]
    families = {"llama", "qwen3", "gpt2", "gpt_neox", "phi3", "mixtral", "glm4_moe", "gemma", "olmo2"}
    assert {t["family"] for t in strangers} == families
    assert {t["optimiser"]["optimiser"] for t in strangers} >= {"adamw", "sgd", "lion", "muon"}
    assert {t["optimiser"].get("norm_decay", 0) for t in strangers} == {0, 0.1}
    assert len({t["domain"] for t in strangers}) == 4
    assert sum(t["parameters"] > 4e6 and t["shape"]["hidden"] >= 256 for t in strangers) == 12


def test_the_pairs_of_twins_are_all_there() -> None:
    twins = [p for p in PAIRS if p["a"].startswith("twin-") and p["b"].startswith("twin-")]
    assert len(twins) == comb(80, 2)
    assert {p["outcome"] for p in twins} == {"unrelated"}


def test_no_twin_seems_related_to_another() -> None:
    """P(K ≥ k) ≤ 1/k!: at 1e-6 that is K ≥ 10. Of 3,160 pairs not one comes near on the axes."""
    counts = [int(p["gains_k"]) for p in PAIRS if p["a"].startswith("twin-") and p["b"].startswith("twin-")]
    assert max(counts) < 10


def test_the_tables_of_the_readme_are_those_of_the_data() -> None:
    assert tables.main(["--check"]) == 0


@pytest.mark.parametrize(("step", "rows"), [("narrow", "gains"), ("squeezed", "gains"), ("moe-split", "gate")])
def test_what_pruning_kept_and_splitting_dealt_out_is_counted_by_its_map(step: str, rows: str) -> None:
    """By a map of another run next to nothing would be found."""
    parents = {(name, parent) for name, t in TRUTHS.items() for parent in t["parents"] if tables.step_of(name) == step}
    pairs = [p for p in PAIRS if {(p["a"], p["b"]), (p["b"], p["a"])} & parents]
    assert len(pairs) == len(parents) >= 8
    columns = ("gains_k_map", "tokens_k_map", "gate_k_map", "up_k_map")
    assert all(pair[column] for pair in pairs for column in columns)
    size = "axes_map" if rows == "gains" else "gate_n_map"
    assert min(total(pair[f"{rows}_k_map"]) / total(pair[size]) for pair in pairs) > 0.5


def total(counts: str) -> int:
    return sum(map(int, counts.split()))


@pytest.mark.parametrize(
    ("a", "b", "direction", "kinds", "expected"),
    [
        ("grafted-layer.twin-00", "twin-41", "b->a", "fine-tune", "fine-tune (grafted-layer, the host)"),
        ("grafted-layer.twin-00", "twin-00", "b->a", "component-reuse", "component-reuse (grafted-layer)"),
        ("sft.twin-00", "twin-00", "b->a", "fine-tune", "fine-tune"),
        ("decoy-10.twin-00", "twin-00", "b->a", "merge", "merge (decoy-10)"),
        ("decoy-10.twin-00", "twin-41", "b->a", "merge", "merge (decoy-10, the decoy)"),
        ("linear.twin-00", "sft.twin-00", "b->a", "merge", "merge"),
        ("moe-split.twin-00", "twin-00", "b->a", "moe-upcycle", "moe-upcycle (moe-split)"),
        ("large-llama", "moe-copied.large-llama", "a->b", "moe-upcycle", "moe-upcycle (moe-copied)"),
        ("masked.moe-copied.twin-00", "twin-00", "b->a", "moe-upcycle obfuscated", "moe-upcycle → obfuscated"),
    ],
)
def test_steps_that_leave_different_things_have_rows_of_their_own(
    a: str, b: str, direction: str, kinds: str, expected: str
) -> None:
    pair = {"a": a, "b": b, "direction": direction, "kinds": kinds, "outcome": "descendant"}
    assert tables.relation_name(pair) == expected


@pytest.mark.parametrize("step", ["", "sft", "cpt-heavy", "norms", "student"])
def test_counts_can_be_made_again_from_the_kept_rows_alone(samples: dict[str, measured.Sample], step: str) -> None:
    chosen = [p for p in PAIRS if p["gains_k"] and same_depth(p) and names(step).intersection((p["a"], p["b"]))]
    assert len(chosen) >= 5
    for pair in chosen[:40]:
        a, b = (scores(samples[pair[side]]) for side in "ab")
        rows, found = linear_sum_assignment(a.T @ b, maximize=True)
        assert int(np.sum(rows == found)) == int(pair["gains_k"]), (pair["a"], pair["b"])


def names(step: str) -> set[str]:
    return {base if not step else f"{step}.{base}" for base in plan.TWINS[:6]}


def same_depth(pair: dict[str, str]) -> bool:
    shapes = [TRUTHS[pair[side]]["shape"] for side in "ab"]
    return shapes[0]["layers"] == shapes[1]["layers"] and {s["class"] for s in shapes} == {"dense"}


def scores(sample: measured.Sample) -> np.ndarray:
    """Ranks of every gain vector, centred and of length 1: (vectors, hidden)."""
    ranks = np.stack([rankdata(vector) for _, vector in sorted(sample.gains().items())])
    centred = ranks - ranks.mean(1, keepdims=True)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def test_what_is_kept_is_small() -> None:
    assert sum(path.stat().st_size for path in measured.HERE.iterdir()) < 30_000_000


def test_gains_rows_and_tokens_of_every_model_are_kept(samples: dict[str, measured.Sample]) -> None:
    assert set(samples) == set(TRUTHS)
    for name, sample in samples.items():
        shape = TRUTHS[name]["shape"]
        assert all(len(vector) == shape["hidden"] for vector in sample.gains().values())
        assert sample.embedding is not None
        assert sample.embedding.shape == (len(sample.token_ids), shape["hidden"])
        assert len(sample.token_ids) >= 32
        expert = 0 if shape["experts"] else None
        assert sample.rows("up", shape["layers"] // 3, expert).shape == (16, shape["hidden"])
