"""Renumbered copies: the exact tests on pairs whose numbers mean nothing, because we drew them.

The index sets of one model of a pair are renumbered at random: hidden axes jointly, the neurons of every layer, value
rows inside a head, experts. Every such copy is a stranger by construction, also that of a fine-tune and that of the
model itself: whatever the two have in common, K must follow the law of fixed points and no p-value may be too small
too often. Rows come from `zoo/measured`, value rows from the models that ship with modelkin.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from benchmarks.calibration.laws import GROUPS, VALUES
from benchmarks.calibration.running import deaf_pool
from numpy.typing import NDArray
from rich.progress import track
from zoo.measured import Sample
from zoo.readings import readings

from modelkin import demo
from modelkin.architectures import Anatomy, identify
from modelkin.inspection import open_model
from modelkin.questions import QUESTIONS, CannotAsk
from modelkin.records import Role
from modelkin.sampling.readings import Readings
from modelkin.stats import RollCall, hidden_axes, neurons, neurons_over_layers, pair_swap_axes, pooled_rows, roll_call
from modelkin.stats.arrays import unit_rows
from zoo import measured

GAUGE = "gauge.csv"
COPIES_A_PAIR = 20
DEAR = 10  # tests that take ten times as long as the others are asked of every tenth copy
DIGITS = 100  # log10 p is kept to a hundredth, rounded down: counted as smaller, never as larger
SMALLEST = -12.0
COLUMNS = ("test", "pairs", "n", "k", "log10_p", "copies")

Arrays = NDArray[np.float32]
Finding = tuple[str, str, int, int | None, float | None]  # test, group, n, K, log10 p
LAYER_MAP = next(question for question in QUESTIONS if question.id == "layer-map")


@dataclass(frozen=True)
class Task:
    """So many copies of b beside a."""

    group: str
    a: str
    b: str
    seed: int
    copies: int


def tasks(samples: Mapping[str, Sample], pairs: Iterable[Mapping[str, str]], copies: int) -> list[Task]:
    """Strangers, relatives and models beside themselves in turn, drawn with one seed."""
    rng = np.random.default_rng(0)
    drawn: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
    for pair in pairs:
        group = {"unrelated": GROUPS[0], "descendant": GROUPS[1]}.get(pair["outcome"])
        if group and samples[pair["a"]].truth["shape"]["hidden"] == samples[pair["b"]].truth["shape"]["hidden"]:
            drawn[group].append((pair["a"], pair["b"]))
    drawn[GROUPS[2]] = [(name, name) for name in samples]
    found = []
    for number in range(-(-copies // COPIES_A_PAIR)):
        group = GROUPS[number % len(GROUPS)]
        a, b = drawn[group][int(rng.integers(len(drawn[group])))]
        found.append(Task(group, a, b, number, min(COPIES_A_PAIR, copies - number * COPIES_A_PAIR)))
    return found


def asked(task: Task, samples: Mapping[str, Sample]) -> Counter[Finding]:
    """What all copies of one task gave."""
    a, b = samples[task.a], samples[task.b]
    rng = np.random.default_rng([1, task.seed])
    found: Counter[Finding] = Counter()
    for number in range(task.copies):
        tests = [*hidden_tests(a, b, rng), *neuron_tests(a, b, rng), *expert_tests(a, b, rng)]
        if number % DEAR == 0:
            tests += [*pair_swap_tests(a, b, rng), *row_tests(a, b, rng), *map_tests(a, b, rng)]
        found.update((test, task.group, n, k, log10_p) for test, n, k, log10_p in tests)
        found.update(value_tests(rng))
    return found


Test = tuple[str, int, int | None, float | None]


def _count(test: str, call: RollCall) -> list[Test]:
    """Nothing where no index could be told from the others, as where gains were folded away."""
    return [(test, call.n, call.fixed, None)] if call.n else []


def _chance(test: str, n: int, log10_p: float) -> Test:
    return test, n, None, max(SMALLEST, math.floor(log10_p * DIGITS) / DIGITS)


def hidden_tests(a: Sample, b: Sample, rng: np.random.Generator) -> list[Test]:
    left, right = _gains(a, b)
    order = rng.permutation(left.shape[1])
    found = _count("hidden axes by gains", hidden_axes(left, right[:, order], rng))
    tokens = _embeddings(a, b)
    if tokens is not None:
        found += _count("hidden axes by embeddings", hidden_axes(tokens[0], tokens[1][:, order], rng))
    return found


def pair_swap_tests(a: Sample, b: Sample, rng: np.random.Generator) -> list[Test]:
    left, right = _gains(a, b)
    swap = pair_swap_axes(left, right[:, rng.permutation(left.shape[1])], rng)
    return [_chance("pair-swap e-value of gains", swap.n, swap.log10_pvalue)]


def neuron_tests(a: Sample, b: Sample, rng: np.random.Generator) -> list[Test]:
    """Two layers, gate and up, each layer renumbered apart; hidden axes stay, so that rows are as alike as they are."""
    layers = _gated(a, b)[:: max(1, len(_gated(a, b)) - 1)][:2]
    calls = []
    for layer in layers:
        gates, ups = ((_rows(a, role, layer), _rows(b, role, layer)) for role in ("gate", "up"))
        order = rng.permutation(len(gates[1]))
        calls.append(neurons(gates[0], gates[1][order], ups[0], ups[1][order], rng))
    if not calls:
        return []
    both = neurons_over_layers(calls).significance
    found = [test for call in calls for test in _count("neurons by gate rows", call.gate)]
    found += [test for call in calls for test in _count("neurons by up rows", call.up)]
    return [*found, _chance("neurons, two layers, the better of gate and up", both.n, both.log10_pvalue)]


def expert_tests(a: Sample, b: Sample, rng: np.random.Generator) -> list[Test]:
    shared = [key for key in a.arrays if key.endswith(".router") and key in b.arrays]
    pairs = [(a.router(int(key.split(".")[0])), b.router(int(key.split(".")[0]))) for key in shared]
    equal = [(left, right) for left, right in pairs if left.shape == right.shape]
    calls = [roll_call(left, right[rng.permutation(len(right))], rng) for left, right in equal]
    return [test for call in calls for test in _count("experts by router rows", call)]


def row_tests(a: Sample, b: Sample, rng: np.random.Generator) -> list[Test]:
    layers = []
    for layer in _gated(a, b):
        left, right = (
            [unit_rows(_rows(side, role, layer).astype(float)) for role in ("gate", "up")] for side in (a, b)
        )
        order = rng.permutation(len(right[0]))
        layers.append((np.hstack(left), np.hstack(right)[order]))
    if not layers:
        return []
    found = pooled_rows(layers, rng, draws=1).significance
    return [_chance("pooled rows", found.n, found.log10_pvalue)]


def map_tests(a: Sample, b: Sample, rng: np.random.Generator) -> list[Test]:
    """The question itself, every layer against every layer; each layer of the copy has one new order."""
    plain = readings(b)
    orders = {cut.slot.layer_name: rng.permutation(len(rows)) for cut, rows in plain.arrays.items() if rows.ndim == 2}
    moved = {
        cut: rows[orders[cut.slot.layer_name]] if rows.ndim == 2 else rows
        for cut, rows in plain.arrays.items()
        if rows.ndim < 2 or len(rows) == len(orders[cut.slot.layer_name])
    }
    try:
        found = LAYER_MAP.answer(readings(a), Readings(plain.portrait, moved), rng)
    except CannotAsk:  # too few layers of which both keep rows
        return []
    return [] if found.log10_pvalue is None else [_chance("layer map", found.n, found.log10_pvalue)]


def value_tests(rng: np.random.Generator) -> list[Finding]:
    """One head of one layer of two of the models that ship."""
    names = sorted(_bundled())
    a, b = (names[int(rng.integers(len(names)))] for _ in range(2))
    layer = int(rng.integers(min(len(_values(a)), len(_values(b)))))
    left, right = _values(a)[layer], _values(b)[layer]
    head = int(rng.integers(min(len(left), len(right))))
    call = roll_call(left[head], right[head][rng.permutation(len(right[head]))], rng)
    group = GROUPS[2] if a == b else GROUPS[1] if _root(a) == _root(b) else GROUPS[0]
    return [(VALUES, group, call.n, call.fixed, None)]


def _gains(a: Sample, b: Sample) -> tuple[Arrays, Arrays]:
    mine, theirs = a.gains(), b.gains()
    shared = [key for key in mine if key in theirs]
    return np.array([mine[key] for key in shared]), np.array([theirs[key] for key in shared])


def _embeddings(a: Sample, b: Sample) -> tuple[Arrays, Arrays] | None:
    """Of the same tokens, centred over them as the question does."""
    if a.embedding is None or b.embedding is None or a.embedding.shape[1] != b.embedding.shape[1]:
        return None
    count = min(len(a.embedding), len(b.embedding))
    left, right = a.embedding[:count], b.embedding[:count]
    return left - left.mean(axis=0), right - right.mean(axis=0)


def _gated(a: Sample, b: Sample) -> list[int]:
    """Layers whose gate and up rows are kept of both."""
    return [layer for layer in _layers_with(a) if layer in _layers_with(b)]


def _layers_with(sample: Sample) -> list[int]:
    heads = [key.split(".")[0] for key in sample.arrays if measured.role_of(key) == "gate"]
    found = dict.fromkeys(int(layer) for layer in heads)
    return [layer for layer in found if _key(sample, "up", layer)]


def _key(sample: Sample, role: str, layer: int) -> str:
    keys = (measured.key_of(role, layer), measured.key_of(role, layer, 0))
    return next((key for key in keys if key in sample.arrays), "")


def _rows(sample: Sample, role: str, layer: int) -> Arrays:
    return measured.floats(sample.arrays[_key(sample, role, layer)])


@lru_cache(maxsize=1)
def _bundled() -> dict[str, list[list[Arrays]]]:
    return {name: _value_rows(path) for name, path in demo.bundled().items()}


def _values(name: str) -> list[list[Arrays]]:
    return _bundled()[name]


def _value_rows(path: Path) -> list[list[Arrays]]:
    """By layer and head, (rows, hidden)."""
    anatomy: Anatomy = identify(open_model(str(path)))
    size = anatomy.facts.head_dim or 1
    slots = sorted(anatomy.of(Role.V), key=lambda slot: slot.layer or 0)
    layers = anatomy.read_many([(slot, None) for slot in slots])
    return [[rows[at : at + size] for at in range(0, len(rows), size)] for rows in layers]


@lru_cache(maxsize=64)
def _root(name: str) -> str:
    parents = demo.truth()["models"][name]["parents"]
    return _root(parents[0]) if parents else name


# Many tasks on several processes.

_samples: Mapping[str, Sample] = {}


def run(copies: int, workers: int, path: Path) -> int:
    """All copies, into a file of counts; a second run with as many copies gives the same file."""
    work = tasks(measured.load(), measured.pairs(), copies)
    found: Counter[Finding] = Counter()
    with deaf_pool(workers, _prepare) as pool:
        for counts in track(pool.imap_unordered(_asked, work), "renumbering", len(work)):
            found += counts
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(counted_text(found), "utf-8")
    return sum(task.copies for task in work)


def _prepare() -> None:
    global _samples
    _samples = measured.load()


def _asked(task: Task) -> Counter[Finding]:
    return asked(task, _samples)


def counted_text(found: Mapping[Finding, int]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    order: Callable[[Finding], tuple[str, ...]] = lambda finding: tuple(str(part) for part in finding)  # noqa: E731
    for finding in sorted(found, key=order):
        writer.writerow([*("" if part is None else part for part in finding), found[finding]])
    return text.getvalue()
