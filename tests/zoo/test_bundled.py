"""The bundled eight load everywhere and compute what the truth says; and what may not ship does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from zoo.checkpoints import Model, load, save, write_json
from zoo.corpus import load_tokenizer
from zoo.shapes import fresh, shape_config

import modelkin
from modelkin.demo import BASE, NAMES, bundled, truth
from modelkin.records import Role, Slot
from zoo import bundle, disguise

torch.set_num_threads(1)

MODELS = truth()["models"]
FIXED = bundle.FIXED.read_text("utf-8")
ZOO_ROLES = {Role.EMBEDDING: "embed"}
each = pytest.mark.parametrize("name", NAMES)


def restore(name: str, folder: Path) -> None:
    """A copy with the names that the family's files have, by the map in the truth."""
    shutil.copytree(bundled()[name], folder, dirs_exist_ok=True)
    if names := MODELS[name]["made_by"].get("names"):
        file = folder / "model.safetensors"
        stored = load_file(file)
        assert sorted(names.values()) == sorted(stored)
        save_file({theirs: stored[ours] for theirs, ours in names.items()}, file, metadata={"format": "pt"})


@cache
def measured_loss(name: str) -> float:
    """By transformers, in float32; it must find every tensor and no other."""
    with TemporaryDirectory() as folder:
        restore(name, Path(folder))
        network, found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        ids = AutoTokenizer.from_pretrained(folder)(FIXED, return_tensors="pt", verbose=False).input_ids[0]
    assert {kind: names for kind, names in found.items() if names} == {}
    length = bundle.PIECE + 1
    pieces = ids[: len(ids) // length * length].view(-1, length)
    with torch.no_grad():
        logits = network.eval()(pieces[:, :-1]).logits
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten()))


@each
def test_transformers_gives_the_recorded_loss(name: str) -> None:
    assert measured_loss(name) == pytest.approx(MODELS[name]["fixed_loss"], rel=0.01)


def test_the_disguised_copy_has_the_loss_of_what_it_was_copied_from() -> None:
    (disguised,) = (name for name, entry in MODELS.items() if entry["role"] == "disguised-copy")
    assert measured_loss(disguised) == pytest.approx(measured_loss(BASE), rel=0.005)


def test_the_disguised_copy_has_no_name_in_common_with_its_base() -> None:
    (disguised,) = (name for name, entry in MODELS.items() if entry["role"] == "disguised-copy")
    ours, theirs = (set(load_file(bundled()[name] / "model.safetensors")) for name in (disguised, BASE))
    assert not ours & theirs


@each
def test_the_tokenizer_that_transformers_opens_is_the_one_that_was_measured(name: str) -> None:
    folder = bundled()[name]
    ids = AutoTokenizer.from_pretrained(folder)(FIXED, verbose=False).input_ids
    description = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert ids == load_tokenizer(description).encode(FIXED).ids
    assert ids[0] == config["bos_token_id"]
    assert load_tokenizer(description).token_to_id("</s>") == config["eos_token_id"]


@each
def test_our_reader_finds_every_role_as_transformers_uses_it(name: str, tmp_path: Path) -> None:
    restore(name, tmp_path)
    expected = load(tmp_path).weights
    anatomy = modelkin.identify(modelkin.open(str(bundled()[name])))
    assert (anatomy.unmapped, dict(anatomy.apart), anatomy.notes) == ((), {}, ())
    found = {zoo_role(slot): torch.from_numpy(anatomy.read(slot)) for slot in anatomy.slots}
    if anatomy.facts.tied:
        found.pop("head", None)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[role], expected[role]) for role in expected)


def zoo_role(slot: Slot) -> str:
    role = ZOO_ROLES.get(slot.role, str(slot.role))
    expert = [] if slot.expert is None else ["experts", str(slot.expert)]
    return ".".join([*([] if slot.layer is None else [str(slot.layer)]), *expert, role])


@each
def test_our_reader_knows_the_facts(name: str) -> None:
    entry, config = MODELS[name], json.loads((bundled()[name] / "config.json").read_text("utf-8"))
    facts = modelkin.identify(modelkin.open(str(bundled()[name]))).facts
    assert (facts.norm, facts.norm_placement, facts.positions, facts.gain_offset) == ("rms", "pre", "rotary", 0.0)
    assert facts.family == entry["family"]
    assert (facts.hidden, facts.experts or 0) == (entry["hidden"], entry["experts"])
    assert (facts.heads, facts.kv_heads) == (config["num_attention_heads"], config["num_key_value_heads"])
    assert facts.tied == config["tie_word_embeddings"]


# --- what may not ship -----------------------------------------------------------------------------------------------

Zoo = Path
LEARNT = {"domain": "mixed", "tokenizer": "first", "seed": 7, "unigram_entropy": 5.0, "loss": 3.0}
TRAINED = LEARNT | {"steps": 10, "tokens_seen": 2_600_000, "optimiser": {"rate": 1e-3}}


def small(**shape: Any) -> Model:
    tokenizer = json.loads((bundled()[BASE] / "tokenizer.json").read_text("utf-8"))
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = shape_config(**{"num_hidden_layers": 2, "vocab_size": MODELS[BASE]["vocabulary"], **sizes, **shape})
    return fresh(config, 0, tokenizer)


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    """A zoo with the eight that are wanted, in the right shapes and wrong in all else."""
    dense, experts = small(), small(experts=4)
    models = {pick.zoo: experts if pick.role in ("experts", "borrowed-norms") else dense for pick in bundle.PICKS}
    models["masked.twin-00"] = disguise.composed(dense, 0)
    for name, model in models.items():
        parent = name.partition(".")[2]
        made = {"made_by": model.truth} if model.truth else {}
        facts = (LEARNT if made else TRAINED) | {"name": name, "parents": [parent] if parent else []} | made
        save(replace(model, truth=facts), tmp_path / "zoo" / name)
    return tmp_path / "zoo"


def change(zoo: Zoo, file: str, **values: Any) -> None:
    path = zoo / file
    write_json(path, json.loads(path.read_text("utf-8")) | values)


def told(out: Path) -> Mapping[str, Any]:
    return json.loads((out / "truth.json").read_text("utf-8"))


def test_the_eight_are_chosen_from_a_zoo(zoo: Zoo, tmp_path: Path) -> None:
    bundle.bundle(zoo, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out" / "models").iterdir()) == list(NAMES)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["models", "truth.json"]
    assert list(told(tmp_path / "out")["models"]) == list(NAMES)
    assert len(told(tmp_path / "out")["relations"]) == 28
    assert {entry["zoo"] for entry in told(tmp_path / "out")["models"].values()} == {pick.zoo for pick in bundle.PICKS}


def test_what_a_bundle_replaces_is_gone(zoo: Zoo, tmp_path: Path) -> None:
    (tmp_path / "out" / "models" / "older").mkdir(parents=True)
    bundle.bundle(zoo, tmp_path / "out")
    assert not (tmp_path / "out" / "models" / "older").exists()


def test_a_private_key_of_a_config_stays_behind(zoo: Zoo, tmp_path: Path) -> None:
    change(zoo, "twin-00/config.json", _name_or_path="somewhere")
    bundle.bundle(zoo, tmp_path / "out")
    assert "somewhere" not in (tmp_path / "out" / "models" / BASE / "config.json").read_text("utf-8")


def test_too_large_a_bundle_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    save(replace(small(hidden_size=2048, intermediate_size=512), truth=TRAINED | {"parents": []}), zoo / "twin-01")
    assert refused(zoo, tmp_path, r"bytes, 16,000,000 at most")


def test_a_model_that_learnt_too_little_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    change(zoo, "sft.twin-00/truth.json", loss=4.1)
    assert refused(zoo, tmp_path, r"sft\.twin-00.*only 0\.90 nats")


def test_a_tiny_zoo_can_be_bundled_unchecked(zoo: Zoo, tmp_path: Path) -> None:
    change(zoo, "sft.twin-00/truth.json", loss=4.1)
    bundle.bundle(zoo, tmp_path / "out", checked=False)
    assert (tmp_path / "out" / "truth.json").exists()


def test_a_file_that_names_a_folder_of_this_machine_is_refused(zoo: Zoo, tmp_path: Path) -> None:
    change(zoo, "twin-01/config.json", trained_at=f"{zoo}/twin-01")
    assert refused(zoo, tmp_path, "names a folder of this machine")


def refused(zoo: Zoo, tmp_path: Path, why: str) -> bool:
    """Refused for that reason, and what was there before is still there."""
    (tmp_path / "out" / "models" / "older").mkdir(parents=True)
    with pytest.raises(SystemExit, match=why):
        bundle.bundle(zoo, tmp_path / "out")
    return [path.name for path in (tmp_path / "out").rglob("*")] == ["models", "older"]
