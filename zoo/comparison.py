"""Two models compared: how many hidden axes and neurons find themselves, and the usual measures beside.

Columns of the result, beside those of `zoo.lineage.pairs_for_calibration` (K of n: how many of n members found
themselves; lists have a number a layer, or one for each of the first two experts of a layer):

    axes, vectors              hidden axes; vectors of gains and biases that both models have and that vary
    gains_k                    K of `axes` by those vectors
    tokens, tokens_k           embedding rows of shared tokens; K of `axes` by them
    gate_n gate_k up_n up_k    neurons of the layers of the same number, by rows of the gate and of the up projection
    gain_cosine gain_pearson   means over the vectors
    gate_cosine                mean over the rows (of the up projection where there is no gate)
    map                        for a descendant whose layers moved: the ancestor's layer of each, - for none
    axes_map … up_k_map        the same for a descendant whose layers, axes or neurons do not have the numbers they had
                               in its ancestor, beside those that they were (`zoo.origins`)

Empty: it cannot be asked, as of models of different width, or of all but the layers where a disguise moved the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from zoo.measured import Floats, Sample, key_of, role_of
from zoo.origins import Block, Origins

SEED = 0
COMPARED_ROWS = 64
COLUMNS = (
    *("a", "b", "outcome", "kinds", "direction", "class", "half", "layers_a", "layers_b", "axes", "vectors"),
    *("gains_k", "tokens", "tokens_k", "gate_n", "gate_k", "up_n", "up_k", "gain_cosine", "gain_pearson"),
    *("gate_cosine", "map", "axes_map", "gains_k_map", "tokens_map", "tokens_k_map"),
    *("gate_n_map", "gate_k_map", "up_n_map", "up_k_map"),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """One model as the comparisons need it."""

    sample: Sample
    gains: Mapping[str, Floats]
    scores: Mapping[str, Floats]  # of the gains that vary: ranks, centred, of length 1
    neurons: Mapping[tuple[str, int, int | None], Floats]  # role, layer, expert -> the first rows, or all
    embedding: Floats | None
    experts: Mapping[int, tuple[int | None, ...]]  # layer -> which experts were read; (None,) without experts
    first: int  # so many of the rows are compared by number, or the last 64 of them


def roll_call(left: Floats, right: Floats, rng: np.random.Generator) -> int:
    """How many rows of `left` choose the row of their own number in `right`, one to one, by likeness alone.

    The numbers of one side are hidden behind a random order, for among ties the solver would return the identity.
    """
    order = rng.permutation(len(right))
    rows, chosen = linear_sum_assignment(left @ right[order].T, maximize=True)
    return int(np.sum(order[chosen] == rows))


def telling(rows: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows can be told from the others: they vary, and none is a copy.

    All copies go, not all but the first: which is the first would depend on the numbers that are being tested.
    """
    content = [row.tobytes() for row in rows]
    copies = Counter(content)
    return np.array([copies[text] == 1 for text in content], bool) & (rows.max(axis=1) > rows.min(axis=1))


def standardised(rows: Floats) -> Floats:
    """Rows centred and of length 1; none may be constant."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def neurons_found(left: Floats, right: Floats, rng: np.random.Generator) -> tuple[int, int]:
    """K of n for two sets of rows, those that cannot be told apart left out of both."""
    kept = telling(left) & telling(right)
    if not kept.any():
        return 0, 0
    return roll_call(standardised(left[kept]), standardised(right[kept]), rng), int(kept.sum())


def axes_by_tokens(left: Floats, right: Floats, rng: np.random.Generator) -> tuple[int, int]:
    """(rows used, K) of the hidden axes by embedding rows of the same tokens, (tokens, hidden) each."""
    left, right = (rows - rows.mean(axis=0) for rows in (left, right))
    kept = (np.ptp(left, axis=1) > 0) & (np.ptp(right, axis=1) > 0)
    if not kept.any():
        return 0, 0
    return int(kept.sum()), roll_call(standardised(left[kept]).T, standardised(right[kept]).T, rng)


def scored(gains: Mapping[str, Floats]) -> dict[str, Floats]:
    varying = {key: rankdata(values) for key, values in gains.items() if np.ptp(values) > 0}
    return {key: standardised(ranks[None])[0].astype(np.float32) for key, ranks in varying.items()}


def cosine(a: Floats, b: Floats) -> float | None:
    """Mean over rows of the cosine; rows of zeros have none."""
    length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    kept = length > 0
    return float(np.mean(np.sum(a * b, axis=1)[kept] / length[kept])) if kept.any() else None


def compare(a: Reading, b: Reading, row: Row, origins: Origins | None) -> Row:
    """The statistics of one pair; `origins` says where a descendant's parts come from, where they moved."""
    shapes = [reading.sample.truth["shape"] for reading in (a, b)]
    found = dict.fromkeys(COLUMNS) | row | {"layers_a": shapes[0]["layers"], "layers_b": shapes[1]["layers"]}
    rng = np.random.default_rng(list(sha256(f"{SEED}|{row['a']}|{row['b']}".encode()).digest()))
    same_width = shapes[0]["hidden"] == shapes[1]["hidden"]
    if same_width:
        ways = [(i, i) for i in range(min(shape["layers"] for shape in shapes))]
        found |= {"axes": shapes[0]["hidden"]} | by_tokens(a, b, rng) | by_layers(a, b, ways, rng)
        found |= likeness(a, b, ways)
    if origins is not None and (same_width or origins.axes is not None):
        found |= by_map(*((b, a) if row["direction"] == "b->a" else (a, b)), origins, rng)
    return {column: _told(value) for column, value in found.items()}


def _told(value: Any) -> str:
    if isinstance(value, list):
        return " ".join("-" if item is None else str(item) for item in value)
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def by_tokens(a: Reading, b: Reading, rng: np.random.Generator) -> Row:
    if a.embedding is None or b.embedding is None:
        return {}
    used, found = axes_by_tokens(a.embedding, b.embedding, rng)
    return {"tokens": used, "tokens_k": found if used else None}


def by_map(ancestor: Reading, descendant: Reading, origins: Origins, rng: np.random.Generator) -> Row:
    """As by number, after the ancestor was put into the order of its descendant."""
    shape = descendant.sample.truth["shape"]
    moved = rearranged(ancestor, descendant, origins)
    ways = [(layer, layer) for layer in range(shape["layers"]) if layer in moved.experts]
    found = by_tokens(moved, descendant, rng) | by_layers(moved, descendant, ways, rng) | {"axes": shape["hidden"]}
    told = {f"{key}_map": value for key, value in found.items() if key != "vectors"}
    return told | {"map": None if origins.layers is None else list(origins.layers)}


def rearranged(ancestor: Reading, descendant: Reading, origins: Origins) -> Reading:
    """The ancestor in the layers, axes, experts and neurons of its descendant. What that has from elsewhere is out."""
    axes = slice(None) if origins.axes is None else list(origins.axes)
    depth = descendant.sample.truth["shape"]["layers"]
    layers = {i: layer for i, layer in enumerate(origins.layers or range(depth)) if layer is not None}
    gains = {key: values[axes] for key, values in _in_layers(ancestor.gains, layers).items()}
    experts = {i: descendant.experts[i] for i in layers}
    neurons = {}
    for i, expert in ((i, expert) for i, there in experts.items() for expert in there):
        block = origins.blocks.get((i, expert)) or Block(layers[i], expert)
        chosen = slice(None) if block.neurons is None else list(block.neurons)
        for role in ("gate", "up"):
            if (rows := ancestor.neurons.get((role, block.layer, block.expert))) is not None:
                neurons[role, i, expert] = rows[chosen][:, axes]
    embedding = None if ancestor.embedding is None else ancestor.embedding[:, axes]
    return replace(ancestor, gains=gains, scores=scored(gains), neurons=neurons, embedding=embedding, experts=experts)


def _in_layers(gains: Mapping[str, Floats], layers: Mapping[int, int]) -> dict[str, Floats]:
    """Those of no layer, and those of `layers` (new number -> old)."""
    found = {key: values for key, values in gains.items() if not key[0].isdigit()}
    inside = sorted({role_of(key) for key in gains.keys() - found.keys()})
    moved = {key_of(role, new): gains.get(key_of(role, old)) for new, old in layers.items() for role in inside}
    return found | {key: values for key, values in moved.items() if values is not None}


def by_layers(a: Reading, b: Reading, ways: Sequence[tuple[int, int]], rng: np.random.Generator) -> Row:
    """Axes by gains and neurons by rows, layer i of a beside layer j of b for every (i, j) of `ways`."""
    found: Row = {"vectors": 0, "gains_k": None}
    keys = vectors(a.scores, b.scores, ways)
    if keys:
        left, right = np.stack([a.scores[key] for key, _ in keys]), np.stack([b.scores[key] for _, key in keys])
        found = {"vectors": len(keys), "gains_k": roll_call(left.T, right.T, rng)}
    for role in ("gate", "up"):
        counts = [neurons_found(x, y, rng) for x, y in blocks(a, b, role, ways)]
        found |= {f"{role}_n": [n for _, n in counts], f"{role}_k": [k for k, _ in counts]}
    return found


def vectors(left: Iterable[str], right: Iterable[str], ways: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
    """The keys of both models that have the same role, in layers that stand beside each other or in none."""
    left, right = set(left), set(right)
    roles = sorted({role_of(key) for key in left & right if key[0].isdigit()})
    beside = [(key, key) for key in sorted(left & right) if not key[0].isdigit()]
    beside += [(key_of(role, i), key_of(role, j)) for i, j in ways for role in roles]
    return [(x, y) for x, y in beside if x in left and y in right]


def blocks(a: Reading, b: Reading, role: str, ways: Sequence[tuple[int, int]]) -> Iterator[tuple[Floats, Floats]]:
    """The same neurons of both, layer by layer; experts by number, and a dense layer beside each of the first two."""
    for i, j in ways:
        if (None in a.experts[i]) == (None in b.experts[j]):
            units = [(expert, expert) for expert in a.experts[i] if expert in b.experts[j]]
        else:
            units = [(x, y) for x in a.experts[i] for y in b.experts[j]]
        for x, y in units:
            left, right = a.neurons.get((role, i, x)), b.neurons.get((role, j, y))
            if left is not None and right is not None:
                stop = min(len(left), len(right), a.first)
                start = max(0, stop - COMPARED_ROWS)
                yield left[start:stop], right[start:stop]


def likeness(a: Reading, b: Reading, ways: Sequence[tuple[int, int]]) -> Row:
    """The usual measures, for comparison: they have no law between strangers."""
    raw = vectors(a.gains, b.gains, ways)
    varying = vectors(a.scores, b.scores, ways)
    role = "gate" if any(place[0] == "gate" for place in a.neurons) else "up"
    rows = list(blocks(a, b, role, ways))
    return {
        "gain_cosine": cosine(_side(a, raw, 0), _side(b, raw, 1)) if raw else None,
        "gain_pearson": cosine(*(standardised(_side(m, varying, n)) for n, m in enumerate((a, b))))
        if varying
        else None,
        "gate_cosine": cosine(*(np.concatenate(side) for side in zip(*rows, strict=True))) if rows else None,
    }


def _side(reading: Reading, keys: Sequence[tuple[str, str]], side: int) -> Floats:
    return np.stack([reading.gains[pair[side]] for pair in keys])
