"""TIES and DARE entry by entry: who had part is named with weight and density, and nobody else, however alike."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from modelkin.relation.elementwise import spacing
from modelkin.relation.marks import Marks, marked

Doubles = NDArray[np.float64]
TENSORS = 3
# Of every tensor. What DARE drops is noise to the weights, and one of a tenth is seen among many entries alone.
ENTRIES = {"ties": 1200, "dare": 6000}
ALWAYS = 6  # draws in which it has always been told
DRAWS, TOLD = 12, 9  # of each of five cases, and in how many at least it must be told; never may it be told wrong


def bf16(values: Doubles) -> Doubles:
    return np.asarray(values.astype(ml_dtypes.bfloat16).astype(np.float64))


def family(rng: np.random.Generator, children: int, entries: int = 1200) -> tuple[Doubles, Doubles]:
    """A base and models trained from it. Their changes have much in common, and differ in size."""
    n = TENSORS * entries
    base = bf16(rng.normal(0, 0.05, n))
    alike, sizes = rng.uniform(0, 0.7), rng.uniform(0.05, 0.2, children)
    common, own = rng.standard_t(5, n), rng.standard_t(5, (children, n))
    changes = 0.05 * sizes[:, None] * (np.sqrt(alike) * common + np.sqrt(1 - alike) * own)
    return base, bf16(base + changes)


def trimmed(changes: Doubles, weights: Doubles, density: float) -> Doubles:
    """TIES as published: the largest of every tensor, the sign of their sum, the mean of those that have it."""
    kept = changes.reshape(len(changes), TENSORS, -1).copy()
    for parent in kept:
        for tensor in parent:
            tensor[np.argsort(np.abs(tensor))[: round(tensor.size * (1 - density))]] = 0
    kept = kept.reshape(changes.shape)
    sign = np.sign(weights @ kept)
    agrees = (np.sign(kept) == sign) & (kept != 0)
    total = weights @ agrees
    return np.where(total > 0, (weights @ (kept * agrees)) / np.maximum(total, 1e-12), 0.0)


def dropped(rng: np.random.Generator, changes: Doubles, weights: Doubles, density: float) -> Doubles:
    return np.asarray(weights @ (changes * (rng.random(changes.shape) < density)) / density)


def light_child(rng: np.random.Generator, base: Doubles, like: Doubles) -> Doubles:
    """A tenth of the entries changed, much as a parent changed them: nearly all are still those of the base."""
    change = 0.5 * (0.6 * like + 0.8 * like.std() * rng.standard_t(5, like.size))
    return bf16(base + np.where(np.abs(change) > np.quantile(np.abs(change), 0.9), change, 0))


def found(y: Doubles, sources: Doubles) -> Marks | None:
    rounding = spacing(y.astype(np.float32), "BF16").astype(np.float64) ** 2 / 12
    return marked(y, sources, rounding, np.repeat(np.arange(TENSORS), y.size // TENSORS))


def drawn_weights(rng: np.random.Generator, parents: int) -> Doubles:
    """None below a tenth."""
    return 0.1 + (1 - 0.1 * parents) * rng.dirichlet(np.ones(parents))


def tolerance(method: str, parents: int, weights: Doubles, density: float) -> tuple[Doubles, float]:
    """How far weights and density may be off, from the number of entries and from rounding.

    TIES: the density is read from ranks, which lie one in `entries` apart, and trimming rounds it to as much: two of
    these. Weights are fitted to the entries with two parents, of which there are 3,600 · 0.2² / 2 = 72 or more. Each is
    off by rounding beside its change: a step of bfloat16 at 0.05 over √12 beside 0.05 · 0.05. Five times that over √72.

    DARE: of the larger half of the entries those stay of which all changes were dropped, a share q = (1 - density)^k
    with a binomial error; the density's is that over dq/d(density). Six of them: five, and one for the changes that
    rounding swallows as if they had been dropped. A weight is a scale, which is exact, times the density.
    """
    entries = ENTRIES[method]
    if method == "ties":
        step = float(spacing(np.array([0.05], dtype=np.float32), "BF16")[0])
        several = TENSORS * entries * 0.2**2 / 2
        return np.full(parents, 5 * step / np.sqrt(12) / (0.05 * 0.05) / np.sqrt(several)), 2 / entries
    stayed = (1 - density) ** parents
    error = np.sqrt(stayed * (1 - stayed) / (TENSORS * entries / 2)) / (parents * (1 - density) ** (parents - 1))
    return np.asarray(6 * weights * error / density), float(6 * error)


@pytest.mark.parametrize("method", ["ties", "dare"])
@pytest.mark.parametrize("innocent", ["none", "one sibling", "two siblings", "a stranger", "a child of a parent"])
def test_parents_are_named_and_nobody_else(method: str, innocent: str) -> None:
    told = 0
    for seed in range(DRAWS):
        rng = np.random.default_rng([seed, len(innocent)])
        parents = int(rng.integers(2, 4))
        base, children = family(rng, parents + (2 if innocent == "two siblings" else 1), ENTRIES[method])
        weights, density = drawn_weights(rng, parents), float(rng.uniform(0.2, 0.5))
        changes = children[:parents] - base
        made = trimmed(changes, weights, density) if method == "ties" else dropped(rng, changes, weights, density)
        others: dict[str, Any] = {
            "none": [],
            "one sibling": children[parents : parents + 1],
            "two siblings": children[parents:],
            "a stranger": [bf16(rng.normal(0, 0.05, base.size))],
            "a child of a parent": [bf16(children[0] + 0.002 * rng.normal(size=base.size))],
        }
        marks = found(bf16(base + made), np.array([base, *children[:parents], *others[innocent]]))
        if marks is None and seed >= ALWAYS:  # one parent weighs little among few entries; real ones have many more
            continue
        assert marks is not None
        told += 1
        off, loose = tolerance(method, parents, weights, density)
        assert (marks.method, marks.base, marks.parents) == (method, 0, tuple(range(1, parents + 1)))
        assert (np.abs(np.array(marks.weights) - weights) <= off).all()
        assert marks.density == pytest.approx(density, abs=loose)
    assert told >= TOLD


@pytest.mark.parametrize("method", ["ties", "dare"])
def test_a_light_child_of_the_base_does_not_take_its_place(method: str) -> None:
    told = 0
    for seed in range(DRAWS):
        rng = np.random.default_rng([seed, 9])
        base, parents = family(rng, 2, ENTRIES[method])
        changes, weights = parents - base, np.array([0.5, 0.5])
        made = trimmed(changes, weights, 0.3) if method == "ties" else dropped(rng, changes, weights, 0.6)
        marks = found(bf16(base + made), np.array([*parents, base, light_child(rng, base, changes[0])]))
        if marks is not None:
            told += 1
            assert (marks.method, marks.base, marks.parents) == (method, 2, (0, 1))
    assert told >= TOLD


@pytest.mark.parametrize("method", ["ties", "dare"])
def test_a_parent_that_is_not_given_lets_nobody_else_take_its_place(method: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng([seed, 7])
        base, children = family(rng, 4)
        weights, changes = np.array([0.5, 0.5]), children[:2] - base
        made = trimmed(changes, weights, 0.3) if method == "ties" else dropped(rng, changes, weights, 0.4)
        assert found(bf16(base + made), np.array([base, children[0], *children[2:]])) is None


def test_models_that_changed_few_entries_were_not_merged() -> None:
    """Light training leaves most numbers of its parent as they are: so does TIES, but not what is left."""
    for seed in range(6):
        rng = np.random.default_rng([seed, 8])
        base, children = family(rng, 6)
        light = bf16(base + 0.02 * (children - base))
        assert np.mean(light[0] == base) > 0.1
        assert found(light[0], np.array([base, *children[1:]])) is None
        assert found(light[0], np.array([base, *light[1:]])) is None
        later = bf16(light[0] + 0.02 * (children[1] - base))
        assert found(light[0], np.array([base, later])) is None
