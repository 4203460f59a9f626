"""What had to be put back is said in words, and nothing is said of models that nobody disguised."""

from __future__ import annotations

import numpy as np
import pytest
from planted import (
    MOVES,
    NEURONS,
    WIDTH,
    Arrays,
    anatomy,
    composed,
    drawn,
    flip_signs,
    noisy,
    permute_experts,
    permute_hidden,
    permute_neurons,
    restacked,
)

from modelkin.alignment import align, disguises
from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled
from modelkin.sources import LocalSource

ROTATED = "hidden axes are a rotation of A's"
SAID = {
    "rotate_hidden": (ROTATED,),
    "permute_hidden": ("hidden axes renumbered",),
    "flip_signs": ("signs of hidden axes flipped",),
    "permute_neurons": ("neurons renumbered",),
    "permute_heads": ("heads renumbered",),
}


def said(a: Arrays, b: Arrays) -> tuple[str, ...]:
    return disguises(align(anatomy(a), anatomy(b), np.random.default_rng(0)))


def narrowed(arrays: Arrays) -> Arrays:
    """Every eighth axis and the last twelve neurons left out; all others in their order."""
    axes, rows = np.setdiff1d(np.arange(WIDTH), np.arange(0, WIDTH, 8)), np.arange(NEURONS - 12)
    found = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            found[name] = array[axes]
        elif "o_proj" in name or "down_proj" in name:
            found[name] = array[axes][:, rows] if "down" in name else array[axes]
        else:
            found[name] = array[rows][:, axes] if "gate_proj" in name or "up_proj" in name else array[:, axes]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_attention_of_a_stranger_has_no_order(seed: int) -> None:
    """Of a few heads two ways of looking agree on half by chance."""
    a, other = drawn(1), drawn(10 + seed)
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    assert said(a, {name: other[name] if any(p in name for p in attention) else x for name, x in a.items()}) == ()


@pytest.mark.parametrize("move", MOVES)
def test_each_move_is_named_and_no_other(move: str) -> None:
    a = drawn(1)
    assert said(a, noisy(MOVES[move](a, np.random.default_rng(2)), 0.01)) == SAID.get(move, ())


def test_all_moves_together() -> None:
    a = drawn(1)
    assert said(a, composed(a, np.random.default_rng(2))) == (ROTATED, "neurons renumbered", "heads renumbered")


def test_axes_with_other_numbers_and_signs() -> None:
    a, rng = drawn(1), np.random.default_rng(2)
    assert said(a, permute_hidden(flip_signs(a, rng), rng)) == (
        "hidden axes renumbered and signs of hidden axes flipped",
    )


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_nothing_is_said_of_a_plain_relative(share: float) -> None:
    a = drawn(1)
    assert said(a, noisy(a, share)) == ()


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 1, 2, 3, 4, 5], [0, 2, 3, 5]], ids=["repeated", "dropped"])
def test_other_depths_in_order_are_no_disguise(order: list[int]) -> None:
    a = drawn(1, layers=6)
    b = restacked(a, order)
    assert said(a, b) == ()
    assert said(b, a) == ()


@pytest.mark.parametrize("order", [[0, 2, 1, 3, 4, 5], [3, 4, 5, 0, 1, 2], [0, 1, 4, 5, 2]])
def test_layers_out_of_order_are(order: list[int]) -> None:
    a = drawn(1, layers=6)
    assert said(a, restacked(a, order)) == ("layers moved",)


def test_a_narrower_model_in_order_is_no_disguise() -> None:
    a = drawn(1)
    b = narrowed(a)
    assert said(a, b) == ()
    assert said(b, a) == ()
    rng = np.random.default_rng(2)
    assert said(a, permute_neurons(permute_hidden(b, rng), rng)) == ("hidden axes renumbered", "neurons renumbered")
    turned = composed(b, rng)
    assert said(a, turned)[0] == "hidden axes are a rotation of some of A's"
    assert said(turned, a)[0] == "hidden axes are a rotation of A's and others"


def test_renumbered_experts_are_named() -> None:
    a = drawn(1, neurons=32, experts=4)
    assert said(a, permute_experts(a, np.random.default_rng(3))) == ("experts renumbered",)
    assert said(a, noisy(a, 0.1)) == ()


def test_experts_cut_from_one_mlp_are_no_disguise() -> None:
    """Which expert got which neuron is how it was done."""
    dense, experts = drawn(1), 3
    size = NEURONS // experts
    b = drawn(2, neurons=size, experts=experts) | {name: array for name, array in dense.items() if ".mlp." not in name}
    rng = np.random.default_rng(4)
    for layer in range(4):
        dealt = rng.permutation(NEURONS).reshape(experts, size)
        for expert, rows in enumerate(dealt):
            for part in ("gate", "up", "down"):
                old = dense[f"model.layers.{layer}.mlp.{part}_proj.weight"]
                name = f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"
                b[name] = old[:, rows] if part == "down" else old[rows]
    assert said(dense, b) == ()
    assert said(dense, permute_hidden(b, rng)) == ("hidden axes renumbered",)


def test_experts_that_are_copies_of_one_mlp_have_no_numbers_to_lose() -> None:
    """Siblings made of one model, with routers of their own: every expert is recognised in every other."""

    def upcycled(seed: int) -> dict[str, np.ndarray]:
        made = drawn(seed, experts=4) | {name: array for name, array in dense.items() if ".mlp." not in name}
        for name in [name for name in made if ".experts." in name]:
            layer, part = name.split(".")[2], name.split(".")[-2]
            made[name] = dense[f"model.layers.{layer}.mlp.{part}.weight"]
        return noisy(made, 0.05)

    dense = drawn(1)
    a, b = upcycled(2), upcycled(3)
    assert said(a, b) == ()
    assert said(a, permute_experts(a, np.random.default_rng(3))) == ("experts renumbered",)


def test_nothing_is_said_of_strangers() -> None:
    assert said(drawn(1), drawn(2)) == ()


@pytest.mark.parametrize(("name", "expected"), [("fjord", (ROTATED, "neurons renumbered", "heads renumbered")),
                                                ("amber", ()), ("grove", ())])  # fmt: skip
def test_models_of_the_demo(name: str, expected: tuple[str, ...]) -> None:
    a, b = (identify(open_checkpoint(LocalSource(bundled()[each]))) for each in ("dune", name))
    assert disguises(align(a, b, np.random.default_rng(0))) == expected
