"""Models with tokens added, or with another vocabulary altogether."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from zoo.checkpoints import Model
from zoo.derivation import chance, derived, initial_std, normal

NOISE = 0.01  # of the standard deviation of the old rows


def extend_vocabulary(model: Model, tokens: Sequence[str], *, seed: int) -> Model:
    """New tokens after the last of the tokenizer; their rows are the mean of the old ones and a little noise.

    Rows that only padded the embedding to a round size are taken first, as a tokenizer numbers without gaps.
    """
    if model.tokenizer is None:
        raise ValueError("no tokenizer to add tokens to")
    if known := sorted(_known(model.tokenizer).intersection(tokens)):
        raise ValueError(f"{known[0]!r} is a token already")
    if not tokens or "" in tokens or len(set(tokens)) < len(tokens):
        raise ValueError(f"{list(tokens)}: expected at least one new token, none empty, each once")
    rng, first = chance("extend_vocabulary", seed), _next_id(model.tokenizer)
    rows = {role: _extended(model.weights[role], first, len(tokens), rng) for role in _vocabulary_roles(model)}
    details = {"tokens": list(tokens), "first_id": first, "seed": seed, "noise": NOISE}
    grown = derived(
        model,
        "vocabulary-surgery",
        "extend_vocabulary",
        details,
        {**model.weights, **rows},
        vocab_size=len(rows["embed"]),
    )
    return Model(grown.config, grown.weights, _with_tokens(model.tokenizer, tokens, first), grown.truth)


def replace_vocabulary(model: Model, tokenizer: dict[str, Any], size: int, *, seed: int) -> Model:
    """Another tokenizer, and embeddings drawn anew for it."""
    if size < _next_id(tokenizer):
        raise ValueError(f"{size} rows for a tokenizer of {_next_id(tokenizer)} tokens")
    rng, std = chance("replace_vocabulary", seed), initial_std(model)
    rows = {role: normal((size, model.hidden), std, rng) for role in _vocabulary_roles(model)}
    config = {"vocab_size": size, **_ids_out_of_range(model, size)}
    weights = {**model.weights, **rows}
    details = {"size": size, "seed": seed, "std": std}
    other = derived(model, "vocabulary-surgery", "replace_vocabulary", details, weights, **config)
    return Model(other.config, other.weights, tokenizer, other.truth)


def _vocabulary_roles(model: Model) -> list[str]:
    return [role for role in ("embed", "head") if role in model.weights]


def _vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Unigram tokenizers list [token, score]; all others map a token to its number."""
    stored = tokenizer["model"]["vocab"]
    return {token: i for i, (token, _) in enumerate(stored)} if isinstance(stored, list) else stored


def _known(tokenizer: dict[str, Any]) -> set[str]:
    return {*_vocabulary(tokenizer), *(token["content"] for token in tokenizer.get("added_tokens", []))}


def _next_id(tokenizer: dict[str, Any]) -> int:
    added = (token["id"] for token in tokenizer.get("added_tokens", []))
    return 1 + max([*_vocabulary(tokenizer).values(), *added], default=-1)


def _extended(rows: torch.Tensor, first: int, count: int, rng: torch.Generator) -> torch.Tensor:
    old = rows[:first]
    new = old.mean(0) + normal((count, rows.shape[1]), NOISE * float(old.std()), rng)
    return torch.cat([old, new, rows[first + count :]])


def _with_tokens(tokenizer: dict[str, Any], tokens: Sequence[str], first: int) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    entries = [{"id": first + i, "content": token, **plain} for i, token in enumerate(tokens)]
    return {**tokenizer, "added_tokens": [*tokenizer.get("added_tokens", []), *entries]}


def _ids_out_of_range(model: Model, size: int) -> dict[str, None]:
    """Special tokens of the old vocabulary that the new one has no row for."""
    keys = ("bos_token_id", "eos_token_id", "pad_token_id")
    stored = {key: model.config.get(key) for key in keys}
    listed = {key: value if isinstance(value, list) else [value] for key, value in stored.items()}
    return {key: None for key, ids in listed.items() if any(i is not None and i >= size for i in ids)}
