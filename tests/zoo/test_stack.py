"""Many models in one step: what transformers computes for each, and the step that each would take alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from models import logits
from zoo.checkpoints import Model
from zoo.shapes import fresh, plain_config, shape_config
from zoo.stack import Recipe, Stack, clip, held_out_losses, train

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
CONFIGS = {
    "llama": shape_config(**SHAPE),
    "untied": shape_config(**SHAPE, tie_word_embeddings=False),
    "mixtral": shape_config(**SHAPE, experts=4),
    "gpt2": plain_config(hidden=32, layers=2, heads=4, neurons=48, vocabulary=64),
}
TEXT = np.tile(np.arange(64, dtype=np.uint16), 40)
SHORT = Recipe("counting", steps=30, rate=3e-3, batch=4, length=16, warmup=4)


def trained_like(config: dict[str, Any], seed: int) -> Model:
    """Nothing at a value that could hide a mistake: gains off 1, biases off 0."""
    model, rng = fresh(config, seed), torch.Generator().manual_seed(seed)
    return model.with_weights({r: w + 0.1 * torch.randn(w.shape, generator=rng) for r, w in model.weights.items()})


@pytest.mark.parametrize("name", CONFIGS)
def test_a_stack_computes_what_transformers_computes(name: str) -> None:
    models = [trained_like(CONFIGS[name], seed) for seed in range(3)]
    stack, ids = Stack(models, "cpu"), torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(1))
    together = stack.logits(stack.weights, stack.states(stack.weights, ids)[0][-1])
    for model, mine in zip(models, together, strict=True):
        assert torch.allclose(logits(model, ids).flatten(0, 1), mine, atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_in_a_stack_is_trained_as_if_alone(name: str) -> None:
    models = [fresh(CONFIGS[name], seed) for seed in range(3)]
    recipe = replace(SHORT, steps=5)
    together = train(Stack(models, "cpu"), recipe, TEXT)
    for model, mine in zip(models, together, strict=True):
        (alone,) = train(Stack([model], "cpu"), recipe, TEXT)
        # Products of another batch size may round differently, and storing as bfloat16 widens that to one step.
        assert all(torch.allclose(alone.weights[r], w, rtol=2**-6, atol=1e-4) for r, w in mine.weights.items())


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    a, b, c = (train(Stack([fresh(CONFIGS["llama"], seed)], "cpu"), SHORT, TEXT)[0] for seed in (0, 0, 1))
    assert all(torch.equal(a.weights[role], b.weights[role]) for role in a.weights)
    assert not torch.equal(a.weights["0.q"], c.weights["0.q"])


@pytest.mark.parametrize("name", CONFIGS)
def test_training_lowers_the_held_out_loss(name: str) -> None:
    models = [fresh(CONFIGS[name], seed) for seed in range(2)]
    before = held_out_losses(Stack(models, "cpu"), TEXT, length=16, windows=8)
    after = held_out_losses(Stack(train(Stack(models, "cpu"), SHORT, TEXT), "cpu"), TEXT, length=16, windows=8)
    assert all(abs(loss - np.log(64)) < 0.2 for loss in before)  # a new model guesses evenly
    assert all(b - a > 0.5 for b, a in zip(before, after, strict=True))


def test_lora_changes_only_what_it_adapts_and_by_its_rank() -> None:
    base = fresh(CONFIGS["llama"], 0)
    (tuned,) = train(Stack([base], "cpu"), replace(SHORT, lora_rank=2, decay=0.0), TEXT)
    exact = {role: tensor.to(torch.bfloat16).float() for role, tensor in base.weights.items()}
    for role, tensor in tuned.weights.items():
        if role.rpartition(".")[2] in ("q", "k", "v", "o", "gate", "up", "down"):
            singular = torch.linalg.svdvals(tensor - base.weights[role])
            assert singular[1] > 5 * singular[2]  # the third and later are the rounding to bfloat16
        else:
            assert torch.equal(tensor, exact[role])


def test_the_adapters_of_a_model_do_not_depend_on_its_neighbours() -> None:
    recipe = replace(SHORT, steps=5, lora_rank=2, decay=0.0)
    bases = [fresh(CONFIGS["llama"], seed) for seed in range(3)]
    together = train(Stack(bases, "cpu", [7, 8, 9]), recipe, TEXT)
    (alone,) = train(Stack(bases[2:], "cpu", [9]), recipe, TEXT)
    for role, tensor in alone.weights.items():
        assert torch.allclose(together[2].weights[role], tensor, rtol=2**-6, atol=1e-4)


def test_adapters_begin_with_numbers_that_no_initial_weights_have() -> None:
    base = fresh(CONFIGS["llama"], 0)
    (tuned,) = train(Stack([base], "cpu", [3]), replace(SHORT, lora_rank=2, decay=0.0), TEXT)
    change = tuned.weights["0.down"] - base.weights["0.down"].to(torch.bfloat16).float()
    for seed in range(80):
        width = change.shape[1]
        drawn = torch.randn(2 * width, generator=torch.Generator().manual_seed(seed)).view(2, width)
        inside = torch.linalg.qr(drawn.T)[0]
        assert (change @ inside).norm() < 0.7 * change.norm()  # by chance about sqrt(2 / 48) = 0.2


@pytest.mark.parametrize("what", ["logits", "hidden"])
def test_a_student_comes_to_say_what_its_teacher_says(what: str) -> None:
    teacher = train(Stack([fresh(CONFIGS["llama"], 0)], "cpu"), SHORT, TEXT)
    students = [fresh(CONFIGS["llama"], 7)]
    far = held_out_losses(Stack(students, "cpu"), TEXT, length=16, windows=8)[0]
    taught = train(Stack(students, "cpu"), replace(SHORT, distil=what), TEXT, Stack(teacher, "cpu"))
    assert held_out_losses(Stack(taught, "cpu"), TEXT, length=16, windows=8)[0] < far - 0.5


def test_every_model_is_clipped_by_its_own_norm() -> None:
    weight = torch.zeros(3, 2, 2, requires_grad=True)
    weight.grad = torch.stack([torch.full((2, 2), size) for size in (0.1, 1.0, 100.0)])
    clip([weight])
    assert torch.allclose(weight.grad.flatten(1).norm(dim=1), torch.tensor([0.2, 1.0, 1.0]), atol=1e-4)


def test_models_of_several_shapes_or_unknown_families_are_refused() -> None:
    other = fresh(shape_config(**{**SHAPE, "intermediate_size": 40}), 0)
    with pytest.raises(ValueError, match="one shape"):
        Stack([fresh(CONFIGS["llama"], 0), other], "cpu")
    with pytest.raises(ValueError, match="bert"):
        Stack([replace(other, config={**other.config, "model_type": "bert"})], "cpu")


def test_progress_is_told() -> None:
    lines: list[str] = []
    train(Stack([fresh(CONFIGS["llama"], 0)], "cpu"), replace(SHORT, steps=3), TEXT, say=lines.append)
    assert lines[0].startswith("step 1 of 3")
    assert lines[-1].startswith("step 3 of 3")
