"""Disguises of the zoo on every family that it makes, each move alone and all at once with noise: all are undone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from models import CONFIGS, tiny
from zoo.checkpoints import Model, save
from zoo.disguise import MOVES, NotLegal, add_noise, composed

from modelkin.alignment import Alignment, align, summary
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import open_checkpoint
from modelkin.sources import LocalSource

AXES = {"permute_hidden": "permutation", "flip_signs": "signed permutation", "rotate_hidden": "rotation"}


def opened(model: Model, folder: Path) -> Anatomy:
    save(model, folder, torch.float32)
    return identify(open_checkpoint(LocalSource(folder)))


def unmasked(model: Model, disguised: Model, folder: Path) -> Alignment:
    return align(opened(model, folder / "a"), opened(disguised, folder / "b"), np.random.default_rng(0))


def assert_all_found(found: Alignment, layers: int) -> None:
    assert found.layers == tuple((str(i), str(i)) for i in range(layers))
    assert all(layer.two == layer.n for layer in found.held_out), found.held_out


@pytest.mark.parametrize("move", [name for name in MOVES if name != "permute_experts"])
def test_each_move_alone_is_named(move: str, tmp_path: Path) -> None:
    model = tiny("llama")
    found = unmasked(model, MOVES[move](model, 3), tmp_path)
    assert_all_found(found, model.layers)
    told = summary(found)
    assert told["hidden"] == AXES.get(move, "identity")
    assert told["neurons"] == ("permutation" if move == "permute_neurons" else "identity")
    assert told["heads"] == ("permutation" if move == "permute_heads" else "identity")


@pytest.mark.parametrize("family", CONFIGS)
def test_all_moves_that_a_family_allows_are_undone(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    found = unmasked(model, add_noise(composed(model, 7), 0.01, 3), tmp_path)
    assert_all_found(found, model.layers)
    told = summary(found)
    try:
        MOVES["rotate_hidden"](model, 7)
    except NotLegal:
        assert told["hidden"] == "signed permutation"
    else:
        assert told["hidden"] == "rotation"
    assert told["neurons"] == "permutation"


def test_strangers_of_one_family_share_nothing(tmp_path: Path) -> None:
    found = unmasked(tiny("llama"), tiny("llama", seed=9), tmp_path)
    assert not found.found
    assert max(layer.two for layer in found.held_out) <= 6


def test_renumbered_experts_are_given_their_numbers_back(tmp_path: Path) -> None:
    model = tiny("mixtral")
    disguised = MOVES["permute_experts"](model, 3)
    found = unmasked(model, disguised, tmp_path)
    orders = disguised.truth["disguise"][0]["orders"]  # new[i] = old[order[i]]
    for cell in found.cells:
        assert cell.experts is not None
        assert {b: a for a, b in cell.experts} == dict(enumerate(orders[cell.found.b]))
    assert summary(found)["experts"] == "permutation"
