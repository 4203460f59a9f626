"""Measure a zoo before its weights go:  python -m zoo.measure MODELS OUT [--workers N]

Reads every model once through modelkin's own reader, keeps a sample of it, and compares the pairs that calibration
needs (`zoo.comparison`). `zoo.measured` says what the files in OUT are and reads them back.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint
from modelkin.inspection import open_model
from modelkin.records import Role, Slot
from zoo import measured
from zoo.commands import run, say
from zoo.comparison import COMPARED_ROWS, SEED, Reading, Row, compare, scored
from zoo.lineage import pairs_for_calibration
from zoo.measured import Floats, Sample, bits, key_of
from zoo.origins import Origins, origins

SAMPLED_TOKENS, COMPARED_TOKENS = 64, 256
SAMPLED_ROWS = 16
EXPERTS = (0, 1)
BUDGET = 25_000_000  # bytes that all samples may take
LONGEST = 64  # numbers that a list of a disguise may have
STREAM = frozenset(
    f"{role}{ending}"
    for role in ("embedding_norm", "input_norm", "post_norm", "attn_out_norm", "mlp_out_norm", "final_norm")
    for ending in ("", "_bias")
) | {"o_bias", "down_bias"}  # what is added to or scales the hidden axes


Task = tuple[Row, Origins | None]  # a pair, and where the parts of a descendant come from


@dataclass(frozen=True)
class Outline:
    """What is known of a model before its weights are read."""

    truth: dict[str, Any]
    token_ids: tuple[int, ...]  # of the tokens that all vocabularies share, in one order
    whole: bool = False  # all its neurons are wanted: a descendant has some of them at other numbers


@dataclass(frozen=True)
class Plan:
    """What to read of every model: the same tokens and neurons everywhere."""

    tokens: tuple[str, ...]
    offset: int
    rows: int
    sampled_tokens: int


def outline(shared: Sequence[str], folder: Path, ids: Mapping[str, int]) -> Outline:
    checkpoint = open_model(str(folder))
    try:
        truth = json.loads((folder / "truth.json").read_text("utf-8")) | {"shape": shape_of(identify(checkpoint))}
    finally:
        checkpoint.close()
    return Outline(truth, tuple(ids[token] for token in shared) if ids else ())


def shape_of(anatomy: Anatomy) -> dict[str, Any]:
    ups = anatomy.of(Role.UP)
    experts = 1 + max((slot.expert for slot in ups if slot.expert is not None), default=-1)
    kind = "moe" if experts else "dense" if anatomy.of(Role.GATE) else "ungated"
    sizes = {"hidden": anatomy.facts.hidden, "layers": anatomy.facts.layers, "experts": experts}
    return sizes | {"neurons": min(anatomy.shape(slot)[0] for slot in ups), "class": kind}


def read(plan: Plan, folder: Path, known: Outline) -> Reading:
    checkpoint = open_model(str(folder))
    try:
        return _read(checkpoint, identify(checkpoint), known, plan)
    finally:
        checkpoint.close()


def _read(checkpoint: Checkpoint, anatomy: Anatomy, known: Outline, plan: Plan) -> Reading:
    wanted: dict[str, tuple[Slot, slice | list[int] | None]] = {}
    neurons: dict[tuple[str, int, int | None], str] = {}
    for slot in anatomy.slots:
        role, key = str(slot.role), key_of(str(slot.role), slot.layer, slot.expert)
        if role in STREAM or role == "router":
            wanted[key] = slot, None
        elif role in ("gate", "up") and slot.layer is not None and slot.expert in (None, *EXPERTS):
            wanted[key] = slot, None if known.whole else slice(0, plan.offset + COMPARED_ROWS)
            neurons[role, slot.layer, slot.expert] = key
        elif role == "embedding" and known.token_ids:
            wanted[key] = slot, list(known.token_ids)
    arrays = dict(zip(wanted, _stored(checkpoint, anatomy, wanted.values()), strict=True))
    experts: dict[int, tuple[int | None, ...]] = {}
    for role, layer, expert in neurons:
        if role == "up":
            experts[layer] = (*experts.get(layer, ()), expert)
    sample = _sampled(arrays, set(neurons.values()), known, plan, anatomy.facts.gain_offset or 0.0)
    gains = sample.gains()
    rows = {place: arrays[key] for place, key in neurons.items()}
    first = plan.offset + COMPARED_ROWS
    return Reading(sample, gains, scored(gains), rows, arrays.get("embedding"), experts, first)


def _stored(
    checkpoint: Checkpoint, anatomy: Anatomy, wanted: Iterable[tuple[Slot, slice | list[int] | None]]
) -> list[Floats]:
    """Rows as stored. `Anatomy.read` would add a family's offset to the gains, and round."""
    wanted = list(wanted)
    arrays = checkpoint.read_many([anatomy.view(slot).request(rows) for slot, rows in wanted])
    return [anatomy.view(slot).result(array, rows) for (slot, rows), array in zip(wanted, arrays, strict=True)]


def _sampled(arrays: Mapping[str, Floats], neurons: set[str], known: Outline, plan: Plan, gain_offset: float) -> Sample:
    block, few = slice(plan.offset, plan.offset + plan.rows), slice(0, plan.sampled_tokens)
    cuts = {"embedding": few} | dict.fromkeys(neurons, block)
    kept = {key: bits(array[cuts.get(key, slice(None))]) for key, array in arrays.items()}
    ids, told = known.token_ids[few], {"offset": plan.offset, "truth": known.truth}
    return Sample(known.truth["name"], kept, gain_offset, plan.tokens[few] if ids else (), ids, **told)


def vocabularies(folders: Sequence[Path]) -> dict[Path, dict[str, int]]:
    """Ids by token of every model that has a tokenizer. Most have the same file, which is read once."""
    read_once: dict[bytes, dict[str, int]] = {}
    found = {}
    for folder in folders:
        path = folder / "tokenizer.json"
        content = sha256(path.read_bytes()).digest() if path.exists() else b""
        if content not in read_once:
            read_once[content] = _ids(folder) if content else {}
        found[folder] = read_once[content]
    return found


def _ids(folder: Path) -> dict[str, int]:
    checkpoint = open_model(str(folder))
    try:
        words = {} if checkpoint.vocabulary is None else checkpoint.vocabulary.ids
    finally:
        checkpoint.close()
    texts = ((content.decode("utf-8", "replace"), id) for content, id in words.items())
    return {text: id for text, id in texts if text and "\ufffd" not in text}  # part of a character is no text


def shared_tokens(words: Iterable[Mapping[str, int]]) -> list[str]:
    """Tokens that every vocabulary has, in an order that says nothing about them."""
    distinct = {id(ids): set(ids) for ids in words if ids}
    common = set.intersection(*distinct.values()) if distinct else set()
    return sorted(common, key=lambda token: sha256(f"{SEED}|{token}".encode()).digest())[:COMPARED_TOKENS]


def sampled_offset(fewest: int, rows: int) -> int:
    """The first sampled neuron: one for all layers of all models, hashed, inside the smallest."""
    return int.from_bytes(sha256(f"{SEED}|neurons".encode()).digest()[:4], "big") % max(1, fewest - rows + 1)


def shortened(truth: Mapping[str, Any]) -> dict[str, Any]:
    """A truth without the long orders of its disguises, which their seeds give again.

    Everything else stays: which axes and neurons a narrower model kept follows from weights that are gone.
    """
    made = truth.get("made_by", {})
    if "disguise" not in made:
        return dict(truth)
    return {**truth, "made_by": {**made, "disguise": [_shortened(move) for move in made["disguise"]]}}


def _shortened(move: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in move.items() if "seed" not in move or _numbers(value) <= LONGEST}


def _numbers(value: Any) -> int:
    """How many numbers a value holds, those in its lists included."""
    if isinstance(value, dict):
        return sum(map(_numbers, value.values()))
    return sum(map(_numbers, value)) if isinstance(value, list) else int(isinstance(value, int | float))


_readings: dict[str, Reading] = {}  # of a worker: unpickled once, when it starts


def _begin(file: str) -> None:
    _readings.update(pickle.loads(Path(file).read_bytes()))


def _compare(task: Task) -> Row:
    row, moved = task
    return compare(_readings[row["a"]], _readings[row["b"]], row, moved)


def measure(models: Path, out: Path, workers: int, rows: int = SAMPLED_ROWS, tokens: int = SAMPLED_TOKENS) -> bool:
    """Write OUT: samples, pairs, truths. Whether the samples fit into their budget.

    All is written beside OUT first, so that a run that ends early leaves what was there.
    """
    began = time.monotonic()
    by_name, tasks = read_all(models, workers, rows, tokens)
    say(f"{len(by_name)} models read, {time.monotonic() - began:.0f} s")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        fits = write_all(Path(folder), by_name, tasks, workers)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        measured.put_in_place(Path(folder), out)
    say(f"{len(tasks)} pairs, {size / 1e6:.1f} MB in {out}, {time.monotonic() - began:.0f} s")
    return fits


def write_all(out: Path, by_name: Mapping[str, Reading], tasks: Sequence[Task], workers: int) -> bool:
    with tempfile.NamedTemporaryFile() as file:
        pickle.dump(by_name, file, protocol=5)
        file.flush()
        with _pool(workers, _begin, file.name) as pool:
            fits = write(out, {name: reading.sample for name, reading in by_name.items()}, pool)
            measured.write_pairs(out, list(pool.map(_compare, tasks, chunksize=32)))
    return fits


def read_all(models: Path, workers: int, rows: int, tokens: int) -> tuple[dict[str, Reading], list[Task]]:
    """Every model by name, and the pairs to compare."""
    folders = sorted(path.parent for path in models.glob("*/truth.json") if not path.parent.name.startswith("."))
    if not folders:
        raise SystemExit(f"there are no models in {models}: python -m zoo.train --out {models} makes them")
    words = vocabularies(folders)
    shared = shared_tokens(words.values())
    with _pool(workers) as pool:
        known = list(pool.map(partial(outline, shared), folders, [words[f] for f in folders], chunksize=8))
        tasks = _tasks({each.truth["name"]: each.truth for each in known})
        wide = {ancestor(row) for row, moved in tasks if _by_neurons(moved)}
        known = [replace(each, whole=each.truth["name"] in wide) for each in known]
        fewest = min(each.truth["shape"]["neurons"] for each in known)
        plan = Plan(tuple(shared), sampled_offset(fewest, rows), rows, tokens)
        readings = list(pool.map(partial(read, plan), folders, known, chunksize=4))
    return {reading.sample.name: reading for reading in readings}, tasks


def _tasks(truths: Mapping[str, Mapping[str, Any]]) -> list[Task]:
    tasks: list[Task] = []
    for row in pairs_for_calibration(truths):
        ends = (row["a"], row["b"]) if row["direction"] == "a->b" else (row["b"], row["a"])
        tasks.append((dict(row), origins(truths, *ends) if row["outcome"] == "descendant" else None))
    return tasks


def ancestor(row: Row) -> str:
    return row["a"] if row["direction"] == "a->b" else row["b"]


def _by_neurons(moved: Origins | None) -> bool:
    return moved is not None and any(block and block.neurons is not None for block in moved.blocks.values())


def write(out: Path, samples: Mapping[str, Sample], pool: Executor) -> bool:
    """Samples and truths. Relatives are thinned until all fits into the budget; whether it does."""
    measured.write_truths(out, {name: shortened(sample.truth) for name, sample in samples.items()})
    files: dict[str, bytes] = {}
    for level in range(4):
        files = packed_files({name: measured.thinned(sample, level) for name, sample in samples.items()}, pool)
        size = sum(map(len, files.values()))
        say(f"samples take {size / 1e6:.1f} MB" + (f" with relatives thinned to level {level}" if level else ""))
        if size <= BUDGET:
            break
    for name, body in files.items():
        (out / name).write_bytes(body)
    return size <= BUDGET


def packed_files(samples: Mapping[str, Sample], pool: Executor) -> dict[str, bytes]:
    parts = measured.grouped(samples.values())
    needed = [{s.name: s for m in part for s in (m, *_parents(m, samples))} for part in parts.values()]
    return dict(zip(parts, pool.map(measured.packed, parts.values(), needed), strict=True))


def _parents(sample: Sample, samples: Mapping[str, Sample]) -> list[Sample]:
    return [samples[parent] for parent in sample.truth.get("parents", ()) if parent in samples]


def _pool(workers: int, *begin: Any) -> Executor:
    """Fresh processes: each has one thread, or the linear algebra of all would fight for the cores. One needs none."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    started = {"initializer": begin[0], "initargs": begin[1:]} if begin else {}
    if workers == 1:
        return ThreadPoolExecutor(1, **started)
    return ProcessPoolExecutor(workers, get_context("spawn"), **started)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="where zoo.train put the models")
    parser.add_argument("out", type=Path, help="where the measurements go; samples that lie there are replaced")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rows", type=int, default=SAMPLED_ROWS, help="neurons kept of every layer")
    parser.add_argument("--tokens", type=int, default=SAMPLED_TOKENS, help="embedding rows kept of every model")
    given = parser.parse_args(arguments)
    for name in ("workers", "rows", "tokens"):
        if getattr(given, name) < 1:
            raise SystemExit(f"--{name} is {getattr(given, name)}: give at least 1")
    if given.out.exists() and not given.out.is_dir():
        raise SystemExit(f"{given.out} is a file: name a folder that the measurements go to")
    if measure(given.models, given.out, given.workers, given.rows, given.tokens):
        return 0
    say(f"written, but the samples are larger than {BUDGET / 1e6:.0f} MB: measure again with fewer --rows or --tokens")
    return 1


if __name__ == "__main__":
    run(main)
