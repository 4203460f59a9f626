"""Small models in folders, opened as a survey opens them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from builders import CONFIG, Tensors, write_files
from modelkin.records import KnownPair, Table
from modelkin.records.survey import Value
from modelkin.survey.reading import Collected, SurveyOptions, collected

Row = dict[str, Value]


@contextmanager
def opened(
    folder: Path,
    models: Mapping[str, Tensors],
    roles: str,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    words: Mapping[str, list[str]] | None = None,
    known: tuple[KnownPair, ...] = (),
) -> Iterator[Collected]:
    """Models by label, all layers; `words` gives a model a vocabulary, a token a line."""
    for label, tensors in models.items():
        files = {
            "config.json": json.dumps((configs or {}).get(label, CONFIG)).encode(),
            "model.safetensors": save(tensors),
        }
        if words and label in words:
            files["vocab.txt"] = "\n".join(words[label]).encode()
        write_files(folder / label, files)
    options = SurveyOptions(roles=tuple(roles.split(",")), layers=("all",), known=known)
    with collected([str(folder / label) for label in models], options) as found:
        assert [model.label for model in found.models] == list(models)
        yield found


def rows_of(table: Table) -> list[Row]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def named(tables: list[Table], name: str) -> list[Row]:
    return rows_of(next(table for table in tables if table.name == name))


def number(value: Value) -> float:
    assert isinstance(value, float | int)
    return float(value)
