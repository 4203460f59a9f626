"""How each step of the plan begins: functions from the lab, the name of a base and a seed to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from zoo import derive, disguise
from zoo.checkpoints import Model
from zoo.lab import Lab, added_words
from zoo.shapes import fresh, plain_config, shape_config
from zoo.single import vocabulary_size

TWIN = shape_config(
    hidden_size=128,
    intermediate_size=224,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=1024,
)
MOE = shape_config(
    hidden_size=128,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=1024,
    experts=4,
)
PLAIN = plain_config(hidden=128, layers=4, heads=4, neurons=512, vocabulary=1024)
TINY = {"hidden_size": 32, "intermediate_size": 48, "n_embd": 32, "n_inner": 64}
SEEDS_FROM = {"twin": 0, "moe": 3000, "plain": 4000}
DRAW = 100_000  # seeds of one draw lie below those of the next
TWINS = tuple(f"twin-{i:02}" for i in range(80))
LARGE = ("large-llama", "large-llama-again")

Start = Callable[[Lab, str, int], Model]


def children(base: str, *steps: str) -> list[str]:
    return [f"{step}.{base}" for step in steps]


def same(lab: Lab, base: str, _: int) -> Model:
    return lab.load(base)


def by(function: Callable[..., Model], **arguments: Any) -> Start:
    """A derivation that needs no seed."""
    return lambda lab, base, _: function(lab.load(base), **arguments)


def seeded(function: Callable[..., Model], **arguments: Any) -> Start:
    return lambda lab, base, seed: function(lab.load(base), seed=seed, **arguments)


def stranger(twin: str) -> str:
    """Another twin, which has nothing to do with this one."""
    return TWINS[40 + (TWINS.index(twin) + 1) % 40]


def anew(config: Mapping[str, Any]) -> Start:
    """A new model of this shape; its name gives its seed."""
    return lambda lab, name, _: _new(lab, config, initial_seed(name, lab.draw))


def initial_seed(name: str, draw: int = 0) -> int:
    """Of a stranger, by its name. No two share one: equal seeds would give them equal embeddings to begin with."""
    family, _, number = name.partition("-")
    return SEEDS_FROM[family] + int(number) + DRAW * draw


def _new(lab: Lab, config: Mapping[str, Any], seed: int) -> Model:
    smaller = {key: value for key, value in TINY.items() if lab.tiny and key in config}
    return fresh({**config, **smaller}, seed, lab.corpus.tokenizer("first"))


def newborn(lab: Lab, base: str, seed: int) -> Model:
    return derive.reinitialise(lab.load(base), seed=seed)


def same_seed(lab: Lab, base: str, _: int) -> Model:
    return _new(lab, TWIN, initial_seed(base, lab.draw))


def narrow_newborn(lab: Lab, base: str, seed: int) -> Model:
    model = lab.load(base)
    narrow = {"hidden_size": model.hidden * 3 // 4, "intermediate_size": model.neurons * 3 // 4}
    return fresh(model.config | narrow | {"head_dim": model.head_dim}, seed, model.tokenizer)


def other_tokenizer(lab: Lab, base: str, seed: int) -> Model:
    tokenizer = lab.corpus.tokenizer("second")
    return derive.replace_vocabulary(lab.load(base), tokenizer, vocabulary_size(tokenizer), seed=seed)


def more_words(lab: Lab, base: str, seed: int) -> Model:
    model = lab.load(base)
    return derive.extend_vocabulary(model, added_words(lab.corpus, lab.tokenizer_name(model)), seed=seed)


def upscaled(lab: Lab, base: str, _: int) -> Model:
    model = lab.load(base)
    return derive.depth_upscale(model, derive.overlap_map(model.layers, 2 * (model.layers // 3)))


def shallower(lab: Lab, base: str, _: int) -> Model:
    """Without two of the middle layers."""
    model = lab.load(base)
    middle = model.layers // 2
    return derive.depth_prune(model, [i for i in range(model.layers) if i not in (middle - 1, middle)])


def narrower(lab: Lab, base: str, _: int) -> Model:
    model = lab.load(base)
    return derive.width_prune(model, hidden=model.hidden * 3 // 4, neurons=model.neurons * 3 // 4, kv_heads=None)


def more_heads(lab: Lab, base: str, seed: int) -> Model:
    model = lab.load(base)
    return derive.reinitialise_attention(model, 2 * model.heads, 2 * model.kv_heads, seed=seed)


def fewer_values(lab: Lab, base: str, _: int) -> Model:
    model = lab.load(base)
    return derive.pool_kv(model, model.kv_heads // 2)


def one_layer(lab: Lab, base: str, seed: int) -> Model:
    donor = lab.load(base)
    middle = donor.layers // 2
    return derive.graft_layers(newborn(lab, base, seed), donor, {middle: middle})


def some_neurons(lab: Lab, base: str, seed: int) -> Model:
    return derive.graft_neurons(newborn(lab, base, seed), lab.load(base), share=0.02, seed=seed)


def norms_and_tokenizer(lab: Lab, base: str, seed: int) -> Model:
    """Only the norms of another model of experts; even the tokenizer is another."""
    tokenizer = lab.corpus.tokenizer("second")
    kept = derive.keep_norms(lab.load(base), seed=seed)
    swapped = derive.replace_vocabulary(kept, tokenizer, vocabulary_size(tokenizer), seed=seed)
    return replace(swapped, truth={"steps": [kept.truth, swapped.truth]})


def grafted_layer(lab: Lab, base: str, _: int) -> Model:
    donor = lab.load(base)
    middle = donor.layers // 2
    return derive.graft_layers(lab.load(stranger(base)), donor, {middle: middle})


def grafted_neurons(lab: Lab, base: str, seed: int) -> Model:
    return derive.graft_neurons(lab.load(stranger(base)), lab.load(base), share=0.02, seed=seed)


def merge(function: Callable[..., Model], *steps: str, **arguments: Any) -> Start:
    return lambda lab, base, _: function([lab.load(child) for child in children(base, *steps)], **arguments)


def task_merge(function: Callable[..., Model], density: float) -> Start:
    """Of the changes that two children made to their base, half of each."""

    def start(lab: Lab, base: str, seed: int) -> Model:
        models = [lab.load(child) for child in children(base, "sft", "cpt-light")]
        chance = {"seed": seed} if function is derive.dare else {}
        return function(lab.load(base), models, weights=[0.5, 0.5], density=density, **chance)

    return start


def slerped(lab: Lab, base: str, _: int) -> Model:
    a, b = (lab.load(child) for child in children(base, "sft", "sft-prose"))
    return derive.slerp(a, b, t=0.4)


def stacked(lab: Lab, base: str, _: int) -> Model:
    """The lower layers of one sibling under the upper layers of another, two of them twice."""
    a, b = (lab.load(child) for child in children(base, "sft", "cpt-light"))
    cut = a.layers * 2 // 3
    return derive.passthrough([*((a, i) for i in range(cut)), *((b, i) for i in range(cut - 2, b.layers))])


def masked(lab: Lab, base: str, seed: int) -> Model:
    return disguise.composed(lab.load(base), seed)


def moved(name: str) -> Start:
    return lambda lab, base, seed: disguise.MOVES[name](lab.load(base), seed)


def masked_with_noise(lab: Lab, base: str, seed: int) -> Model:
    return disguise.add_noise(masked(lab, base, seed), 0.01, seed)


def with_noise(share: float) -> Start:
    return lambda lab, base, seed: disguise.add_noise(lab.load(base), share, seed)


def with_decoy(share: float) -> Start:
    return lambda lab, base, _: disguise.decoy_merge(lab.load(base), lab.load(stranger(base)), share)
