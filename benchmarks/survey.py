"""How long the arithmetic and the figures of a survey take: six models, 48 layers, two norms, 4,096 wide, from memory.

    python benchmarks/survey.py [--models 6 --layers 48 --width 4096] [--figures] [--processes 2]

The checkpoints are made up: gains that grow with depth, half of the models copies of others with noise, so that both
strangers and relatives are among the pairs. Opening and reading are timed apart; processor seconds count all threads
and processes. Figures need matplotlib; without --processes they are drawn as the command line draws them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.records import Survey
from modelkin.report.files import to_json
from modelkin.sources.memory import MemorySource
from modelkin.survey.labels import named
from modelkin.survey.reading import SurveyOptions, collect
from modelkin.survey.surveying import survey_of

TARGET = 3.0
FIGURES_TARGET = 60.0


def gains(rng: np.random.Generator, layers: int, width: int) -> np.ndarray:
    """(layers, 2, width): a habit of the model, and every layer's own pattern, on a scale that grows."""
    habit, own = rng.normal(size=width), rng.normal(size=(layers, 2, width))
    scale = np.linspace(0.05, 0.9, layers)[:, None, None]
    return np.asarray(scale * (1 + 0.05 * habit + 0.1 * own))


def anatomy(name: str, values: np.ndarray) -> Anatomy:
    layers, _, width = values.shape
    config = {"model_type": "llama", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 32}
    stored = values.astype(ml_dtypes.bfloat16)
    tensors = {"model.embed_tokens.weight": np.zeros((8, width), ml_dtypes.bfloat16)}
    for number, (before, after) in enumerate(stored):
        tensors[f"model.layers.{number}.input_layernorm.weight"] = before
        tensors[f"model.layers.{number}.post_attention_layernorm.weight"] = after
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": save(tensors)}
    return identify(open_checkpoint(MemorySource(files, name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--figures", action="store_true", help="draw every figure too")
    parser.add_argument("--processes", type=int, help="that draw figures; by default as many as there are processors")
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    made: list[np.ndarray] = []
    for number in range(chosen.models):
        copied = made[-1] * (1 + 0.01 * rng.normal(size=made[-1].shape)) if number % 2 else None
        made.append(gains(rng, chosen.layers, chosen.width) if copied is None else copied)
    names = [f"made/model-{number}" for number in range(chosen.models)]
    anatomies = [anatomy(name, values) for name, values in zip(names, made, strict=True)]
    began = time.perf_counter()
    found = collect(anatomies, named(names, names), SurveyOptions())
    read, worked = time.perf_counter(), time.process_time()
    record = survey_of(found, read)
    measured, worked = time.perf_counter(), time.process_time() - worked
    body = to_json(record)
    written = time.perf_counter()
    print(f"{chosen.models} models, {chosen.layers} layers, 2 norms, {chosen.width} wide")
    print(f"reading     {read - began:6.2f} s")
    print(f"arithmetic  {measured - read:6.2f} s   {worked:.2f} s of processor time, target {TARGET:.0f} s")
    print(f"JSON        {written - measured:6.2f} s   {len(body) / 1e6:.1f} MB")
    rows = sum(len(table.rows) for table in record.tables)
    print(f"{len(record.tables)} tables with {rows:,} rows, {len(record.matrices)} matrices")
    if chosen.figures:
        draw(record, chosen.processes)


def draw(record: Survey, processes: int | None) -> None:
    from modelkin.report.figures import draw_all, processors

    count = processes or processors()
    began, worked = time.perf_counter(), _worked()
    with tempfile.TemporaryDirectory() as folder:
        draw_all(record, Path(folder), processes=count)
        figures = len(list(Path(folder).rglob("*.png")))
    took, worked = time.perf_counter() - began, _worked() - worked
    print(f"figures     {took:6.2f} s   {worked:.2f} s of processor time, target {FIGURES_TARGET:.0f} s")
    print(f"{figures} figures, drawn by {count} process{'es' * (count != 1)}")


def _worked() -> float:
    """Processor seconds of this process and of those it started that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


if __name__ == "__main__":
    main()
