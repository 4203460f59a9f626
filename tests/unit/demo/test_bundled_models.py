"""What ships with the package is a model that was really trained, and nothing of the machine that trained it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from modelkin.demo import DESCRIPTIONS, bundled
from modelkin.demo.listing import parameters, safetensors_header
from modelkin.demo.repository import Blob

FILES = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "truth.json"}
MODELS = sorted(bundled().items())
each = pytest.mark.parametrize("folder", [folder for _, folder in MODELS], ids=[name for name, _ in MODELS])


def test_every_model_is_described_and_there() -> None:
    assert bundled().keys() == DESCRIPTIONS.keys()
    assert {path.name for path in next(iter(bundled().values())).parent.iterdir()} == set(DESCRIPTIONS)


@each
def test_a_folder_is_complete_and_small(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_700_000


@each
def test_config_weights_and_truth_agree(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    counts = parameters([Blob("model.safetensors", folder / "model.safetensors")])
    assert counts == {"parameters": {"BF16": truth["parameters"]}, "total": truth["parameters"]}
    assert config["vocab_size"] == len(tokenizer["model"]["vocab"]) == truth["vocabulary"]
    assert config["model_type"] == "llama"
    assert config["tie_word_embeddings"] is False


@each
def test_it_learnt_something(folder: Path) -> None:
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    assert truth["held_out_loss"] < truth["unigram_entropy"] - 1


@each
def test_gains_moved_away_from_one_and_nothing_is_broken(folder: Path) -> None:
    blob = Blob("model.safetensors", folder / "model.safetensors")
    data = blob.read(8 + int.from_bytes(blob.read(0, 8), "little"), blob.size)
    values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    assert np.isfinite(values).all()
    header = safetensors_header(blob)
    gains = [entry["data_offsets"] for name, entry in header.items() if name.endswith("norm.weight")]
    assert len(gains) == 9
    assert all(values[start // 2 : stop // 2].std() > 0.01 for start, stop in gains)


@each
def test_no_file_names_a_place_on_a_machine(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "tokenizer.json":  # its merges are pieces of a public text, paths among them
            assert not re.search(rb"/(home|root|work|tmp|Users|usr)/|_name_or_path", path.read_bytes()), path
