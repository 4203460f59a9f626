"""Every exact move on every family: other weights, the same logits in transformers. Lossy ones cost a little."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from models import CONFIGS, VOCABULARY, folder_logits, logits, tiny
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from zoo.checkpoints import Model, by_name, load, save
from zoo.disguise import (
    MOVES,
    NotLegal,
    add_noise,
    composed,
    decoy_merge,
    flip_signs,
    hidden_rotation,
    permute_experts,
    permute_heads,
    permute_hidden,
    permute_neurons,
    permute_vocabulary,
    refactor_gains,
    rename_and_reshard,
    reshard,
    rotate_hidden,
    shuffle_layers,
)

TOLERANCE = 1e-4  # right moves stay below 1e-5, wrong ones cost about one
IDS = torch.randint(VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(7))
TEXT = "the quick brown fox jumps over the lazy dog, then does it again; naïve façade 123"
WITHOUT_EXPERTS = sorted(set(CONFIGS) - {"mixtral", "glm4_moe"})
NOT_LEGAL = {("permute_experts", family) for family in WITHOUT_EXPERTS}
NOT_LEGAL |= {(move, family) for move in ("flip_signs", "scale_neurons") for family in ("gpt2", "gpt_neox")}
NOT_LEGAL |= {("rotate_hidden", "olmo2")}
LEGAL = [(move, family) for family in CONFIGS for move in MOVES if (move, family) not in NOT_LEGAL]


@cache
def original_logits(family: str, **changes: Any) -> torch.Tensor:
    return logits(tiny(family, **changes), IDS)


def largest_difference(disguised: Model, **changes: Any) -> float:
    """From the logits of the tiny model it was made from, token by token, whatever ids the tokens have in each."""
    order = torch.arange(VOCABULARY)
    for step in disguised.truth.get("disguise", []):
        if step["move"] == "permute_vocabulary":
            order = order[step["order"]]
    new_ids = order.argsort()
    difference = logits(disguised, new_ids[IDS])[..., new_ids] - original_logits(disguised.family, **changes)
    return float(difference.abs().max())


def equal(a: Model, b: Model) -> bool:
    return a.weights.keys() == b.weights.keys() and all(torch.equal(a.weights[r], b.weights[r]) for r in a.weights)


def frozen(model: Model) -> Model:
    weights = {role: tensor.clone() for role, tensor in model.weights.items()}
    return Model(deepcopy(model.config), weights, deepcopy(model.tokenizer), deepcopy(model.truth))


@pytest.mark.parametrize(("move", "family"), LEGAL)
def test_exact_move_keeps_the_logits_and_changes_the_weights(move: str, family: str) -> None:
    model = tiny(family)
    before = frozen(model)
    disguised = MOVES[move](model, 3)
    assert largest_difference(disguised) < TOLERANCE
    assert not equal(model, disguised)
    assert equal(model, before)
    assert (model.config, model.truth) == (before.config, before.truth)


@pytest.mark.parametrize(("move", "family"), LEGAL)
def test_seed_decides(move: str, family: str) -> None:
    model = tiny(family)
    assert equal(MOVES[move](model, 3), MOVES[move](model, 3))
    assert MOVES[move](model, 3).truth == MOVES[move](model, 3).truth
    assert not equal(MOVES[move](model, 3), MOVES[move](model, 4))


@pytest.mark.parametrize(("move", "family"), sorted(NOT_LEGAL))
def test_move_that_would_change_the_logits_is_refused(move: str, family: str) -> None:
    with pytest.raises(NotLegal, match=family):
        MOVES[move](tiny(family), 3)


@pytest.mark.parametrize("family", CONFIGS)
def test_all_moves_together_keep_the_logits(family: str) -> None:
    model = tiny(family)
    disguised = composed(model, 5)
    assert largest_difference(disguised) < TOLERANCE
    assert [step["move"] for step in disguised.truth["disguise"]] == [m for m in MOVES if (m, family) not in NOT_LEGAL]
    assert equal(disguised, composed(model, 5))


@pytest.mark.parametrize("family", CONFIGS)
def test_composed_leaves_no_matrix_as_it_was(family: str) -> None:
    model = tiny(family)
    disguised = composed(model, 5)
    for role, tensor in model.weights.items():
        assert not torch.allclose(tensor, disguised.weights[role]), role


def test_composed_can_spare_the_vocabulary() -> None:
    spared = composed(tiny("llama"), 5, without=["permute_vocabulary"])
    assert "permute_vocabulary" not in [step["move"] for step in spared.truth["disguise"]]
    assert largest_difference(spared) < TOLERANCE


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"tie_word_embeddings": True}),
        ("phi3", {"partial_rotary_factor": 0.5}),
        ("gpt_neox", {"use_parallel_residual": False}),
        ("glm4_moe", {"use_qk_norm": False}),
        ("olmo2", {"num_key_value_heads": 4}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("gemma", {"attention_bias": True}),
        ("qwen3", {"attention_bias": True}),
        ("olmo2", {"attention_bias": True}),
    ],
)
def test_variants_of_a_family_keep_the_logits(family: str, changes: dict[str, Any]) -> None:
    model = tiny(family, **changes)
    assert largest_difference(composed(model, 6), **changes) < TOLERANCE


@pytest.mark.parametrize("move", [rotate_hidden, refactor_gains])
@pytest.mark.parametrize("family", ["gemma", "gpt2"])
def test_tied_head_is_untied_where_the_final_gain_changes(move: Any, family: str) -> None:
    assert tiny(family).tied
    disguised = move(tiny(family), 3)
    assert not disguised.tied
    assert disguised.config["tie_word_embeddings"] is False
    assert permute_hidden(tiny(family), 3).tied


def test_truth_is_that_of_the_disguise_and_grows_by_each_move() -> None:
    told = {"name": "twin-00", "kind": "unrelated", "parents": [], "loss": 2.8, "made_by": {"step": "reinitialise"}}
    model = replace(tiny("llama"), truth=told)
    twice = flip_signs(permute_hidden(model, 1), 2)
    assert twice.truth.keys() == {"kind", "disguise"}
    assert twice.truth["kind"] == "obfuscated"
    assert model.truth == told
    assert [(step["move"], step["seed"]) for step in twice.truth["disguise"]] == [
        ("permute_hidden", 1),
        ("flip_signs", 2),
    ]
    assert json.loads(json.dumps(twice.truth)) == twice.truth


def test_written_copy_does_not_claim_to_be_its_base(tmp_path: Path) -> None:
    base = replace(tiny("llama"), truth={"name": "twin-00", "kind": "unrelated", "parents": [], "loss": 2.8})
    save(add_noise(base, 0.01, 3), tmp_path / "noisy")
    reshard(base, tmp_path / "shards", 3)
    for folder in ("noisy", "shards"):
        truth = json.loads((tmp_path / folder / "truth.json").read_text("utf-8"))
        assert truth.keys() == {"kind", "disguise"}
        assert truth["kind"] == "obfuscated"


def test_two_moves_with_one_seed_draw_different_numbers() -> None:
    """For as many rows as axes; with one stream of numbers both orders would be the same."""
    model = tiny("llama", vocab_size=64)
    hidden, vocabulary = (move(model, 3).truth["disguise"][0]["order"] for move in (permute_hidden, permute_vocabulary))
    assert sorted(hidden) == sorted(vocabulary)
    assert hidden != vocabulary


def test_recorded_orders_undo_the_permutations() -> None:
    model = tiny("mixtral")
    hidden = permute_hidden(model, 1)
    assert torch.equal(hidden.weights["embed"], model.weights["embed"][:, hidden.truth["disguise"][0]["order"]])
    neurons = permute_neurons(model, 1)
    order = neurons.truth["disguise"][0]["orders"]["2.experts.1"]
    assert torch.equal(neurons.weights["2.experts.1.down"], model.weights["2.experts.1.down"][:, order])
    experts = permute_experts(model, 1)
    new, old = next(enumerate(experts.truth["disguise"][0]["orders"]["3"]))
    assert torch.equal(experts.weights[f"3.experts.{new}.up"], model.weights[f"3.experts.{old}.up"])
    heads = permute_heads(model, 1)
    order = heads.truth["disguise"][0]["heads"][2]
    by_head = model.weights["2.q"].unflatten(0, (model.heads, -1))
    assert torch.equal(heads.weights["2.q"].unflatten(0, (model.heads, -1)), by_head[order])


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_recorded_seed_gives_the_rotation_again(family: str) -> None:
    model = tiny(family)
    rotated = rotate_hidden(model, 8)
    step = rotated.truth["disguise"][0]
    turn = hidden_rotation(step["size"], step["seed"], step["fixes_ones"])
    torch.testing.assert_close(turn @ turn.T, torch.eye(model.hidden, dtype=torch.float64))
    torch.testing.assert_close(rotated.weights["embed"].double() @ turn, model.weights["embed"].double())


def test_rotation_under_layer_norm_leaves_the_mean() -> None:
    turn = hidden_rotation(64, 8, fixes_ones=True)
    torch.testing.assert_close(turn @ torch.ones(64, dtype=torch.float64), torch.ones(64, dtype=torch.float64))


def test_bias_behind_a_gain_of_zero_cannot_move() -> None:
    model = tiny("gpt2")
    gain = model.weights["1.input_norm"].clone()
    gain[0] = 0
    with pytest.raises(NotLegal, match="gains of zero"):
        refactor_gains(model.with_weights({"1.input_norm": gain}), 3)


def test_experts_routed_by_groups_keep_their_order() -> None:
    model = tiny("glm4_moe", n_group=2, topk_group=1)
    with pytest.raises(NotLegal, match="groups"):
        permute_experts(model, 3)


def bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<unk>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.add_special_tokens(["<pad>"])
    bos = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos])
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("</s>"), pad_token="</s>", length=80)
    return tokenizer


def with_tokenizer(tokenizer: Tokenizer) -> Model:
    plain = tiny("llama", vocab_size=320, pad_token_id=None)
    model = replace(plain, config=plain.config | {"eos_token_id": [2, 5]})
    return replace(model, tokenizer=json.loads(tokenizer.to_str()))


def renumbered(disguised: Model) -> tuple[Tokenizer, list[int]]:
    order = torch.tensor(disguised.truth["disguise"][-1]["order"])
    return Tokenizer.from_str(json.dumps(disguised.tokenizer)), order.argsort().tolist()


def test_permuted_vocabulary_goes_through_the_whole_tokenizer() -> None:
    original = bpe()
    model = with_tokenizer(original)
    before = frozen(model)
    disguised = permute_vocabulary(model, 3)
    tokenizer, new_ids = renumbered(disguised)
    expected = [new_ids[i] for i in original.encode(TEXT).ids]
    assert tokenizer.encode(TEXT).ids == expected != original.encode(TEXT).ids
    assert tokenizer.decode(expected) == original.decode(original.encode(TEXT).ids) == TEXT
    assert tokenizer.encode("<pad>x").ids == [new_ids[i] for i in original.encode("<pad>x").ids]
    assert disguised.config["bos_token_id"] == tokenizer.token_to_id("<s>") == new_ids[1]
    assert disguised.config["eos_token_id"] == [new_ids[2], new_ids[5]]
    assert disguised.config["pad_token_id"] is None
    assert (model.tokenizer, model.config) == (before.tokenizer, before.config)
    assert disguised.tokenizer["model"]["merges"] == model.tokenizer["model"]["merges"]


def test_permuted_vocabulary_computes_the_same_from_text() -> None:
    model = with_tokenizer(bpe())
    disguised = permute_vocabulary(model, 3)
    tokenizer, new_ids = renumbered(disguised)
    one = logits(model, torch.tensor([bpe().encode(TEXT).ids[:60]]))
    other = logits(disguised, torch.tensor([tokenizer.encode(TEXT).ids[:60]]))
    assert (other[..., new_ids] - one).abs().max() < TOLERANCE


def test_rows_outside_the_tokenizer_stay() -> None:
    order = permute_vocabulary(with_tokenizer(bpe()), 3).truth["disguise"][0]["order"]
    pad = bpe().token_to_id("<pad>")
    assert order[pad:] == list(range(pad, 320))


def test_permuted_unigram_and_bert_processor() -> None:
    pieces = [("<unk>", 0.0), *((letter, -float(i + 1)) for i, letter in enumerate("abcdefgh"))]
    original = Tokenizer(models.Unigram(pieces, unk_id=0))
    original.post_processor = processors.BertProcessing(("a", 1), ("b", 2))
    disguised = permute_vocabulary(with_tokenizer(original), 3)
    tokenizer, new_ids = renumbered(disguised)
    assert tokenizer.encode("fade?bad").ids == [new_ids[i] for i in original.encode("fade?bad").ids]


def stored(folder: Path) -> dict[str, torch.Tensor]:
    index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))["weight_map"]
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found = load_file(file)
        assert all(index[name] == file.name for name in found)
        tensors |= found
    assert tensors.keys() == index.keys()
    return tensors


@pytest.mark.parametrize("family", CONFIGS)
def test_renamed_shards_hold_the_same_tensors(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    names = rename_and_reshard(model, tmp_path, 3, shards=4, dtype=torch.float32)
    tensors, expected = stored(tmp_path), by_name(model)
    assert names.keys() == expected.keys()
    assert set(names.values()) == tensors.keys()
    assert not names.keys() & tensors.keys()
    assert all(torch.equal(tensors[names[name]], tensor) for name, tensor in expected.items())
    assert len(list(tmp_path.glob("*.safetensors"))) == 4
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["model_type"] == family
    assert json.loads((tmp_path / "truth.json").read_text("utf-8"))["disguise"][0]["names"] == names


def test_seed_decides_names_and_shards(tmp_path: Path) -> None:
    model = tiny("llama")
    names = [rename_and_reshard(model, tmp_path / str(i), seed) for i, seed in enumerate((1, 1, 2, 3, 4))]
    assert names[0] == names[1]
    assert len({tuple(found.values()) for found in names}) > 1


@pytest.mark.parametrize("family", ["llama", "gemma", "mixtral", "gpt2"])
def test_resharded_folder_still_loads(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    reshard(model, tmp_path, 3, dtype=torch.float32)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    assert torch.equal(folder_logits(tmp_path, IDS), original_logits(family))
    assert equal(load(tmp_path), model)


@pytest.mark.parametrize("family", ["llama", "glm4_moe", "gpt2"])
def test_lossy_ones_change_the_logits_a_little(family: str) -> None:
    model, decoy = tiny(family), tiny(family, seed=9)
    original = original_logits(family)
    far = (logits(decoy, IDS) - original).norm()
    for lossy in (add_noise(model, 0.02, 3), decoy_merge(model, decoy, 0.05), shuffle_layers(model, 3)):
        away = (logits(lossy, IDS) - original).norm()
        assert 1e-3 * far < away < 0.8 * far, lossy.truth


def test_noise_is_a_share_of_each_matrix() -> None:
    model = tiny("llama")
    noisy = add_noise(model, 0.1, 3)
    for role, tensor in model.weights.items():
        share = (noisy.weights[role] - tensor).std() / tensor.std()
        assert share == pytest.approx(0.1, rel=0.1) if tensor.dim() == 2 else share == 0
    assert equal(noisy, add_noise(model, 0.1, 3))


def test_shuffled_layers_follow_the_recorded_map() -> None:
    model = tiny("llama", num_hidden_layers=8)
    shuffled = shuffle_layers(model, 3, swaps=2)
    layers = shuffled.truth["disguise"][0]["layers"]
    assert (layers[0], layers[-1], sorted(layers)) == (0, 7, list(range(8)))
    assert sum(new != old for new, old in enumerate(layers)) == 4
    assert all(abs(new - old) <= 1 for new, old in enumerate(layers))
    for new, old in enumerate(layers):
        assert torch.equal(shuffled.weights[f"{new}.gate"], model.weights[f"{old}.gate"])


def test_more_swaps_than_fit_are_refused() -> None:
    with pytest.raises(NotLegal, match="room for 1"):
        shuffle_layers(tiny("llama"), 3, swaps=2)


def test_decoy_of_another_shape_is_refused() -> None:
    with pytest.raises(NotLegal, match="same shapes"):
        decoy_merge(tiny("llama"), tiny("qwen2"), 0.1)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda m, _: add_noise(m, float("nan"), 3), "share is nan: expected a finite number above 0"),
        (lambda m, _: add_noise(m, -0.1, 3), "share is -0.1: expected a finite number above 0"),
        (lambda m, _: decoy_merge(m, m, 1.5), "share is 1.5: expected above 0 and below 1"),
        (lambda m, _: decoy_merge(m, m, 0.0), "share is 0.0: expected above 0 and below 1"),
        (lambda m, _: shuffle_layers(m, 3, swaps=0), "swaps is 0: expected at least 1"),
        (lambda m, _: composed(m, 3, without=["rotate"]), "no move 'rotate'; known are permute_heads"),
        (lambda m, path: reshard(m, path, 3, shards=0), "shards is 0: expected 1 to 39, the number of tensors"),
        (lambda m, path: rename_and_reshard(m, path, 3, shards=40), "shards is 40: expected 1 to 39"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(act: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        act(tiny("llama"), tmp_path / "copy")
    assert not list(tmp_path.iterdir())
