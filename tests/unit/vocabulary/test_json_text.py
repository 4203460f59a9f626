"""JSON beside models: NaN and Infinity pass, halves of characters do not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from modelkin.errors import HeaderLies
from modelkin.sources.memory import MemorySource
from modelkin.vocabulary import read_vocabulary

TOKENIZER = {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}}}
SCORED = {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", -math.inf], ["b", math.nan]]}}


def read(tokenizer: Any, **files: Any) -> Any:
    bodies = {"tokenizer": tokenizer, **files}
    return read_vocabulary(MemorySource({f"{name}.json": json.dumps(body).encode() for name, body in bodies.items()}))


def test_a_tokenizer_config_with_infinity_is_read() -> None:
    config = {"model_max_length": math.inf, "added_tokens_decoder": {"7": {"content": "<x>", "special": True}}}
    assert read(TOKENIZER, tokenizer_config=config).tokens[7] == "<x>"


def test_a_tokenizer_with_infinity_and_nan_is_read_like_any_other() -> None:
    assert read(TOKENIZER | {"truncation": {"max_length": math.inf}}) == read(TOKENIZER)
    assert read(SCORED).scores[0] == -math.inf
    assert math.isnan(read(SCORED).scores[1])


@pytest.mark.parametrize("id", [1.0, True, math.nan, -1, "1", 2**32])
def test_types_are_checked_as_strictly_as_without(id: Any) -> None:
    with pytest.raises(HeaderLies, match=r"tokenizer\.json is not laid out as expected"):
        read({"model": {"type": "WordLevel", "vocab": {"a": id}}, "truncation": math.nan})


@pytest.mark.parametrize("name", ["\ud800", "\udc00abcdef", "a\ud83d"])
def test_half_a_character_is_called_so(name: str) -> None:
    with pytest.raises(HeaderLies, match=r"tokenizer\.json is not Unicode text: .*a lone surrogate"):
        read({"model": {"type": "WordLevel", "vocab": {name: 0}}})
    with pytest.raises(HeaderLies, match=r"tokenizer_config\.json is not Unicode text: .*a lone surrogate"):
        read(TOKENIZER, tokenizer_config={"bos_token": name})
