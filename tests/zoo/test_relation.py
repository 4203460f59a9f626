"""What was done to a model, told from the weights: derivations with a known truth, on tiny and on trained models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from models import CONFIGS, tiny
from zoo.checkpoints import Model, load, save

from modelkin.alignment import align, disguises, rewritten
from modelkin.architectures import Anatomy, identify
from modelkin.demo import bundled
from modelkin.inspection import open_model
from modelkin.records.relation import Relation
from modelkin.relation.merges import unmixed
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.tokens import ascending, shared_tokens
from modelkin.relation.turned import axes_pvalue
from modelkin.sources import ReadOptions
from zoo import derive, disguise

torch.set_num_threads(1)
LLAMA = tiny("llama", vocab_size=256)
KEPT = TemporaryDirectory()


@cache
def trained(name: str) -> Model:
    return load(bundled()[name])


def opened(model: Model, dtype: torch.dtype = torch.bfloat16) -> Anatomy:
    folder = Path(KEPT.name) / str(len(list(Path(KEPT.name).iterdir())))
    save(model, folder, dtype)
    return identify(open_model(str(folder), ReadOptions(), lambda *_: None))


def told(a: Model, b: Model, dtype: torch.dtype = torch.bfloat16, **asked: Any) -> Relation:
    left, right = opened(a), opened(b, dtype)
    return relate(left, right, Inquiry(tokens=shared_tokens(left, right), **asked))


def kinds(found: Relation) -> list[str]:
    return [kind.kind for kind in found.kinds]


def stored(model: Model) -> Model:
    """As it is once it was saved: parents are read from files too."""
    return derive.cast(model, torch.bfloat16)


def layer_map(layers: list[int]) -> tuple[tuple[str, str], ...]:
    return tuple((str(new), str(old)) for new, old in enumerate(layers))


BASE = stored(LLAMA)


@pytest.mark.parametrize("scheme", ["int8", "int4", "fp8", "nf4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_quantised_copy_is_named_by_its_scheme(scheme: str, dtype: torch.dtype) -> None:
    found = told(BASE, derive.quantised(BASE, scheme), dtype)
    assert kinds(found) == ["re-encoded"]
    assert f"grid of {scheme}" in found.kinds[0].why
    assert found.direction == "a->b"


def test_a_little_training_takes_some_values_off_the_grid_and_puts_none_on_it() -> None:
    """Else a quantised model would seem to come from what was trained on it."""
    coarse = stored(derive.quantised(BASE, "int8"))
    rng = torch.Generator().manual_seed(4)
    trained_on = {
        name: w + 0.01 * torch.randn(w.shape, generator=rng).to(w.dtype) * (torch.rand(w.shape, generator=rng) < 0.03)
        for name, w in coarse.weights.items()
    }
    assert told(coarse, replace(coarse, weights=trained_on)).direction == "unknown"


def test_a_matrix_of_zeros_lies_on_no_grid() -> None:
    """A layer that adds nothing is how some models are made deeper."""
    dead = dict(BASE.weights)
    name = next(name for name in dead if "down" in str(name))
    dead[name] = torch.zeros_like(dead[name])
    assert kinds(told(BASE, replace(BASE, weights=dead)))


def test_a_pruned_copy() -> None:
    found = told(BASE, derive.pruned(BASE, 0.3))
    assert (kinds(found), found.direction) == (["re-encoded"], "a->b")
    assert "pruned: 30%" in found.kinds[0].why


def test_a_cast_copy() -> None:
    fine = opened(LLAMA, torch.float32)
    found = relate(fine, opened(LLAMA), Inquiry())
    assert (kinds(found), found.direction) == (["re-encoded"], "a->b")


def test_a_merged_adapter_with_its_rank() -> None:
    rng = torch.Generator().manual_seed(0)
    factors = {
        f"{layer}.{role}": (
            torch.randn(BASE.weights[f"{layer}.{role}"].shape[0], 4, generator=rng),
            torch.randn(4, BASE.weights[f"{layer}.{role}"].shape[1], generator=rng),
        )
        for layer in range(BASE.layers)
        for role in ("q", "v")
    }
    found = told(BASE, derive.merged_lora(BASE, factors, 0.005))
    assert kinds(found) == ["merged-lora"]
    assert "q 4, v 4" in found.kinds[0].why


def test_changes_of_depth() -> None:
    grown, cut = derive.overlap_map(BASE.layers, 2), [0, 3]
    up = told(BASE, derive.depth_upscale(BASE, grown), layers=layer_map(grown))
    down = told(BASE, derive.depth_prune(BASE, cut), layers=layer_map(cut))
    assert (kinds(up), up.direction) == (["depth-upscale"], "a->b")
    assert (kinds(down), down.direction) == (["depth-prune"], "unknown")  # or layers were put in
    assert "or put in between" in down.direction_reasons[0]
    assert up.drawing[1].endswith("0")


def test_a_change_of_width() -> None:
    found = told(BASE, derive.width_prune(BASE, hidden=48, neurons=80, kv_heads=1))
    assert (kinds(found), found.direction) == (["width-prune"], "unknown")
    assert "or the other was made wider" in found.direction_reasons[0]
    assert found.shared is not None
    assert found.shared.fraction == pytest.approx(1)


@pytest.mark.parametrize(
    ("how", "words", "order"),
    [
        ("upcycle_copied", "copies of the MLP:", "a->b"),
        ("upcycle_split", "parts of the MLP:", "unknown"),  # or an MLP was put together from experts
        ("upcycle_partly", "partly new", "unknown"),
    ],
)
def test_upcycling(how: str, words: str, order: str) -> None:
    found = told(BASE, getattr(derive, how)(BASE, seed=1))
    assert (kinds(found), found.direction) == (["moe-upcycle"], order)
    assert words in found.kinds[0].why


def test_parts_of_a_model_in_a_stranger() -> None:
    host = stored(tiny("llama", seed=1, vocab_size=256))
    found = told(BASE, derive.graft_layers(host, BASE, {2: 2}))
    assert kinds(found) == ["component-reuse"]
    assert found.shared is not None
    assert 0.1 < found.shared.fraction < 0.3


def test_added_tokens() -> None:
    dune = trained("dune")
    found = told(dune, derive.extend_vocabulary(dune, [f"token{i}" for i in range(40)], seed=1))
    # Their rows are the mean and a little noise: so are those that a trained model had before they were trimmed.
    assert (kinds(found), found.direction) == (["vocabulary-surgery"], "unknown")
    assert "lie near the mean" in found.direction_reasons[0]


def test_trained_relatives_by_degree() -> None:
    dune, heath = trained("dune"), trained("heath")
    found = told(dune, heath)
    assert set(kinds(found)) == {"fine-tune", "continued-pretraining"}
    assert found.shared is not None
    assert found.shared.low > 0.95


def test_a_swapped_tokenizer_is_found_on_top_of_training() -> None:
    found = told(trained("dune"), trained("birch"))
    assert kinds(found)[:2] == ["vocabulary-surgery", "continued-pretraining"]
    assert found.shared is not None
    assert found.shared.fraction < 0.95


def test_merge_weights_with_the_base_given() -> None:
    dune, heath = trained("dune"), trained("heath")
    other = stored(derive.sparse_update(dune, derive.slerp(dune, trained("grove"), 0.05), 0.5))
    sources = [("heath", opened(heath)), ("other", opened(other)), ("dune", opened(dune))]
    for merged, weights in (
        (derive.linear([heath, other], [0.6, 0.4]), [0.6, 0.4]),
        (derive.slerp(heath, other, 0.3), [0.7, 0.3]),
    ):
        found = unmixed(("new", opened(merged)), sources)
        assert found is not None
        assert found.sources == ("heath", "other")
        assert found.weights == pytest.approx(weights, abs=0.02)


def test_a_merge_among_candidates_is_a_kind_and_points_at_itself() -> None:
    other = stored(tiny("llama", seed=2, vocab_size=256))
    mother, merged = opened(BASE), opened(derive.linear([BASE, other], [0.7, 0.3]))
    found = relate(mother, merged, Inquiry(names=("mother", "new"), candidates=[("other", opened(other))]))
    assert (kinds(found), found.direction) == (["merge"], "a->b")


def unmasked(a: Anatomy, b: Anatomy) -> Relation:
    """As `compare` asks it: b in the coordinates of a, with what had to be undone."""
    found = align(a, b, np.random.default_rng(5))
    undone = disguises(found)
    asked = Inquiry(layers=found.layers, tokens=shared_tokens(a, b), disguises=undone)
    return relate(a, rewritten(found) if undone else b, asked)


def bundled_model(name: str) -> Anatomy:
    return identify(open_model(str(bundled()[name]), ReadOptions(), lambda *_: None))


def test_a_disguised_copy_is_a_copy_and_the_later_one_in_either_order() -> None:
    dune, fjord = bundled_model("dune"), bundled_model("fjord")
    one, other = unmasked(dune, fjord), unmasked(fjord, dune)
    assert kinds(one) == kinds(other) == ["obfuscated"]
    assert (one.direction, other.direction) == ("a->b", "b->a")
    for found in (one, other):
        assert found.shared is not None
        assert found.shared.fraction == pytest.approx(1)
        assert {each.role for each in found.not_compared} >= {"input_norm", "post_norm", "final_norm"}
        assert "was turned" in found.direction_reasons[0]
        assert "was renumbered" in found.direction_reasons[1]
    assert one.shared is not None
    assert other.shared is not None
    # The same is known whichever stands first.
    assert 0.99 < other.shared.low == pytest.approx(one.shared.low, abs=0.001)
    assert one.shared.low < 1


def test_training_under_a_disguise_is_still_named() -> None:
    dune, hidden = opened(trained("dune")), opened(disguise.composed(trained("heath"), 3))
    found = unmasked(dune, hidden)
    assert kinds(found)[:2] == ["obfuscated", "fine-tune"]
    assert found.direction == "unknown"  # a sibling, turned, would look the same
    assert any("B was turned" in why for why in found.direction_reasons)


def test_a_turned_parent_is_not_said_to_come_from_a_child_that_went_far() -> None:
    """Trained far from its parent the child keeps its axes; the parent, which somebody turned, came before it."""
    parent, child = opened(disguise.composed(trained("dune"), 4)), opened(trained("birch"))
    found = unmasked(child, parent)
    assert found.axes is not None
    assert found.axes.pvalue_b > 0.01 > found.axes.pvalue_a
    assert found.direction == "unknown"


def test_axes_of_trained_models_are_special_until_somebody_turns_them() -> None:
    for name in ("amber", "birch", "cobalt", "dune", "ember", "grove", "heath"):
        found = axes_pvalue(bundled_model(name))
        assert found is not None
        assert found[0] < 1e-8
    turned = [axes_pvalue(opened(disguise.rotate_hidden(trained("grove"), seed))) for seed in range(6)]
    assert min(found[0] for found in turned if found) > 0.01  # a chance of six in a hundred, at most


def test_only_a_renumbered_vocabulary_is_out_of_order() -> None:
    rises = {
        name: ascending(vocabulary) for name in bundled() if (vocabulary := bundled_model(name).checkpoint.vocabulary)
    }
    assert rises.pop("fjord") == pytest.approx(0.5, abs=0.1)
    assert all(rise is not None and rise > 0.99 for rise in rises.values())


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_every_family_is_told_of(family: str) -> None:
    model = stored(tiny(family))
    found = told(model, disguise.add_noise(model, 0.01, 1))
    assert kinds(found) == ["re-encoded"]
    assert found.shared is not None
    assert found.shared.fraction > 0.95
    assert msgspec.json.decode(msgspec.json.encode(found), type=Relation) == found


def test_every_kind_says_what_strangers_would_show() -> None:
    found = told(trained("dune"), trained("heath"))
    assert all(kind.strangers and kind.why for kind in found.kinds)
