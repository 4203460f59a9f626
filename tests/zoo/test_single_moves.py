"""One move alone leaves most things in their places: what was done is told all the same, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from zoo.checkpoints import Model, load, save

from modelkin import CompareOptions, ReadOptions, Verdict, compare
from modelkin.demo import bundled
from zoo import disguise

torch.set_num_threads(1)
BASE, CHILD, SWAPPED = (str(bundled()[name]) for name in ("dune", "heath", "birch"))  # a fine-tune, another tokenizer


def verdict_on(moved: Model, folder: Path) -> Verdict:
    save(moved, folder, torch.bfloat16)
    return compare(BASE, str(folder), CompareOptions(reading=ReadOptions(cache=False))).verdict


def kinds(verdict: Verdict) -> set[str]:
    return {share.kind for share in verdict.kinds}


@pytest.mark.parametrize(
    ("move", "said"),
    [
        (disguise.permute_heads, "heads renumbered"),
        (disguise.flip_signs, "signs of hidden axes flipped"),
        (disguise.permute_neurons, "neurons renumbered"),
    ],
)
def test_what_was_rearranged_is_named_and_the_rest_is_a_fine_tune(
    move: Callable[[Model, int], Model], said: str, tmp_path: Path
) -> None:
    verdict = verdict_on(move(load(Path(CHILD)), 1), tmp_path / "moved")
    assert said in verdict.sentence
    assert "obfuscated" in kinds(verdict)
    assert kinds(verdict) <= {"obfuscated", "fine-tune", "continued-pretraining"}
    assert verdict.layer_map == () or all(a == b for b, a in verdict.layer_map)
    assert verdict.shared is not None
    assert verdict.shared.fraction > 0.95


def test_gains_moved_into_matrices_are_neither_a_part_nor_a_common_start(tmp_path: Path) -> None:
    verdict = verdict_on(disguise.refactor_gains(load(Path(CHILD)), 1), tmp_path / "moved")
    assert kinds(verdict) <= {"fine-tune", "continued-pretraining"}
    assert all(a == b for b, a in verdict.layer_map)
    assert verdict.shared is not None
    assert verdict.shared.fraction > 0.95


def test_gains_that_were_changed_were_not_moved(tmp_path: Path) -> None:
    """Matrices stand as they did, so that nothing was put into them: what was learnt lies in the gains."""
    base, rng = load(Path(BASE)), torch.Generator().manual_seed(3)
    drawn = {
        role: x * (1 + 0.1 * torch.randn(x.shape, generator=rng)) for role, x in base.weights.items() if x.ndim == 1
    }
    save(base.with_weights(drawn), tmp_path / "tuned", torch.bfloat16)
    found = compare(BASE, str(tmp_path / "tuned"), CompareOptions(reading=ReadOptions(cache=False)))
    assert kinds(found.verdict) == {"fine-tune"}


def test_layers_of_two_models_stacked_are_a_part_of_either(tmp_path: Path) -> None:
    base, other = load(Path(BASE)), load(bundled()["grove"])
    two = {role: tensor for role, tensor in other.weights.items() if role.split(".")[0] in ("2", "3")}
    stacked = base.with_weights(two)
    save(stacked, tmp_path / "stacked", torch.bfloat16)
    for parent in (BASE, str(bundled()["grove"])):
        found = compare(parent, str(tmp_path / "stacked"), CompareOptions(reading=ReadOptions(cache=False)))
        assert found.verdict.sentence.startswith("The two models are related in part: ")


def test_layers_that_could_not_be_judged_are_mapped_all_the_same(tmp_path: Path) -> None:
    """Every second layer teaches the rotation that judges the others. If one half cannot, the other still shows all."""
    verdict = verdict_on(disguise.composed(load(Path(SWAPPED)), 7), tmp_path / "moved")
    assert kinds(verdict) >= {"obfuscated", "vocabulary-surgery"}
    assert "component-reuse" not in kinds(verdict)
    assert verdict.layer_map == tuple((str(layer), str(layer)) for layer in range(6))
