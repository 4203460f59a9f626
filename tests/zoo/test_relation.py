"""What was done to a model, told from the weights: derivations with a known truth, on tiny and on trained models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from models import tiny
from zoo.checkpoints import Model, load, save

from modelkin.architectures import Anatomy, identify
from modelkin.demo import bundled
from modelkin.inspection import open_model
from modelkin.records.relation import Relation
from modelkin.relation.merges import unmixed
from modelkin.relation.relating import Inquiry, relate
from modelkin.relation.tokens import shared_tokens
from modelkin.sources import ReadOptions
from zoo import derive

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
    assert (kinds(down), down.direction) == (["depth-prune"], "a->b")
    assert up.drawing[1].endswith("0")


def test_a_change_of_width() -> None:
    found = told(BASE, derive.width_prune(BASE, hidden=48, neurons=80, kv_heads=1))
    assert (kinds(found), found.direction) == (["width-prune"], "a->b")
    assert found.shared is not None
    assert found.shared.fraction == pytest.approx(1)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("upcycle_copied", "copies of the MLP:"),
        ("upcycle_split", "parts of the MLP:"),
        ("upcycle_partly", "partly new"),
    ],
)
def test_upcycling(how: str, words: str) -> None:
    found = told(BASE, getattr(derive, how)(BASE, seed=1))
    assert (kinds(found), found.direction) == (["moe-upcycle"], "a->b")
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
    assert (kinds(found), found.direction) == (["vocabulary-surgery"], "a->b")


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


def test_every_kind_says_what_strangers_would_show() -> None:
    found = told(trained("dune"), trained("heath"))
    assert all(kind.strangers and kind.why for kind in found.kinds)
