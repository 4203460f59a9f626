"""The bundled models in words: what anybody may see of them, and, apart from that, what they really are."""

from __future__ import annotations

import json

from modelkin.demo import TRUTH, bundled, truth
from modelkin.demo.listing import parameters
from modelkin.demo.repository import Blob

HEADINGS = ("name", "family", "parameters", "layers", "hidden", "experts", "vocabulary", "size")
WORDS = 2  # columns to the left that hold words; the others hold numbers


def row(name: str) -> tuple[str, ...]:
    """One line of the table, from the model's own files."""
    folder = bundled()[name]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    stored = parameters([Blob("model.safetensors", folder / "model.safetensors")]) or {}
    size = sum(path.stat().st_size for path in folder.iterdir())
    numbers = (stored["total"], config["num_hidden_layers"], config["hidden_size"])
    experts, vocabulary = config.get("num_local_experts"), config["vocab_size"]
    shown = (*(f"{number:,}" for number in numbers), str(experts or "–"), f"{vocabulary:,}", f"{size / 1e6:.1f} MB")
    return (name, config["model_type"], *shown)


def table() -> str:
    rows = [HEADINGS, *(row(name) for name in bundled())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) if i < WORDS else cell.rjust(width) for i, (cell, width) in cells).rstrip()
        for cells in (enumerate(zip(line, widths, strict=True)) for line in rows)
    ]
    return "\n".join([*lines, "", f"What each really is: modelkin demo --truth, or {TRUTH}"])


def facts(name: str) -> str:
    """One model in a few words."""
    _, family, stored, layers, hidden, *_ = row(name)
    return f"{family}, {stored} parameters, {layers} layers, {hidden} wide"


def sentences() -> str:
    """A sentence a model."""
    models = truth()["models"]
    width = max(map(len, models))
    return "\n".join(f"{name:{width}}  {entry['sentence']}" for name, entry in models.items())
