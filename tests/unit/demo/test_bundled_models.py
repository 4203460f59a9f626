"""What ships with the package are models that were really trained, and nothing of the machine that trained them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from modelkin.demo import BASE, NAMES, TRUTH, bundled, truth
from modelkin.demo.listing import parameters, safetensors_header
from modelkin.demo.repository import Blob

FILES = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
TELLING = re.compile(
    r"base|copy|twin|child|parent|sib|kin|tun|sft|chat|swap|mask|disguis|rotat|up|deep|expert|moe|mix|norm|llama|\d"
)
KINDS = {
    "base": [],
    "fine-tune": ["fine-tune"],
    "new-tokenizer": ["continued-pretraining", "vocabulary-surgery"],
    "disguised-copy": ["obfuscated"],
    "deeper-child": ["depth-upscale"],
    "twin": [],
    "experts": [],
    "borrowed-norms": ["component-reuse"],
}
MODELS = truth()["models"]
each = pytest.mark.parametrize("folder", list(bundled().values()), ids=list(bundled()))
# A stand-in from a tiny zoo has the files and the names, and has learnt next to nothing.


def test_eight_models_are_there_and_told_of() -> None:
    assert list(NAMES) == sorted(NAMES) == list(MODELS)
    assert {path.name for path in (TRUTH.parent / "models").iterdir()} == set(NAMES)
    assert len(NAMES) == 8


def test_names_do_not_give_the_answer_away() -> None:
    assert [name for name in NAMES if TELLING.search(name)] == []
    roles = [MODELS[name]["role"] for name in NAMES]
    assert roles not in (sorted(roles), sorted(roles, reverse=True), list(KINDS))


def test_all_of_them_fit_in_sixteen_megabytes() -> None:
    files = [TRUTH, *(path for folder in bundled().values() for path in folder.iterdir())]
    assert sum(path.stat().st_size for path in files) <= 16_000_000


def test_every_role_is_there_once_with_its_kinds() -> None:
    assert {entry["role"]: entry["kinds"] for entry in MODELS.values()} == KINDS
    assert MODELS[BASE]["role"] == "base"


def test_every_pair_is_told_once() -> None:
    assert [(pair["a"], pair["b"]) for pair in truth()["relations"]] == list(combinations(NAMES, 2))


@pytest.mark.parametrize("pair", truth()["relations"], ids=lambda pair: f"{pair['a']}-{pair['b']}")
def test_a_pair_is_related_as_its_models_were_made(pair: dict[str, str]) -> None:
    a, b = pair["a"], pair["b"]
    parents = {name: set(MODELS[name]["parents"]) for name in (a, b)}
    if a in parents[b]:
        expected = ("related", MODELS[b]["kinds"], "a->b")
    elif b in parents[a]:
        expected = ("related", MODELS[a]["kinds"], "b->a")
    elif parents[a] & parents[b]:
        expected = ("related", ["shared-ancestor"], "neither")
    else:
        expected = ("unrelated", [], "neither")
    assert (pair["outcome"], pair["kinds"], pair["direction"]) == expected
    assert a in pair["sentence"]
    assert b in pair["sentence"]


def test_five_models_are_one_family_and_three_stand_outside() -> None:
    (base,) = (name for name, entry in MODELS.items() if entry["role"] == "base")
    outside = {name for name, entry in MODELS.items() if base not in [name, *entry["parents"]]}
    assert {MODELS[name]["role"] for name in outside} == {"twin", "experts", "borrowed-norms"}


@each
def test_a_folder_is_complete_and_says_nothing_of_the_truth(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES
    assert sum(path.stat().st_size for path in folder.iterdir()) == MODELS[folder.name]["bytes"]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert [key for key in config if key.startswith("_") or "name" in key or "version" in key] == []
    assert safetensors_header(blob_of(folder))["__metadata__"] == {"format": "pt"}


@each
def test_config_weights_and_truth_agree(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    entry = MODELS[folder.name]
    counts = parameters([blob_of(folder)])
    assert counts == {"parameters": {"BF16": entry["parameters"]}, "total": entry["parameters"]}
    assert config["vocab_size"] == len(tokenizer["model"]["vocab"]) == entry["vocabulary"]
    keys = ("model_type", "num_hidden_layers", "hidden_size")
    assert [config[key] for key in keys] == [entry[key] for key in ("family", "layers", "hidden")]


@each
def test_nothing_is_broken(folder: Path) -> None:
    assert np.isfinite(values_of(folder)).all()


@each
def test_it_learnt_something(folder: Path) -> None:
    entry = MODELS[folder.name]
    assert entry["held_out_loss"] < entry["unigram_entropy"] - 1
    gains = [e["data_offsets"] for n, e in safetensors_header(blob_of(folder)).items() if re.search("norm.*weight", n)]
    values = values_of(folder)
    assert len(gains) == 2 * entry["layers"] + 1
    assert all(values[start // 2 : stop // 2].std() > 0.01 for start, stop in gains)


@each
def test_no_file_names_a_place_on_a_machine(folder: Path) -> None:
    for path in (TRUTH, *folder.iterdir()):
        if path.name != "tokenizer.json":  # its merges are pieces of a public text, paths among them
            assert not re.search(rb"/(home|root|work|tmp|Users|usr)/|_name_or_path", path.read_bytes()), path


def blob_of(folder: Path) -> Blob:
    return Blob("model.safetensors", folder / "model.safetensors")


def values_of(folder: Path) -> np.ndarray:
    blob = blob_of(folder)
    data = blob.read(8 + int.from_bytes(blob.read(0, 8), "little"), blob.size)
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
