"""Tiny tokenizers, trained here by the libraries that serve as oracles."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

LINES = [
    "the quick brown fox jumps over the lazy dog",
    "the weather in the north is cold in the winter",
    "대한민국의 수도는 서울이다",
    "한국어 모델은 한국어 문장을 읽는다",
    "the model reads the sentence and the reader reads the model",
    "서울의 봄은 따뜻하고 서울의 겨울은 춥다",
    "a model of 123 words, 456 sentences (and 7 pages)!",
    "그 모델은 the model 이다",
    "그 서울 이 서울 저 서울 또 서울 아 서울 와 서울",
]


@pytest.fixture(scope="session")
def lines() -> list[str]:
    return LINES


@pytest.fixture(scope="session")
def byte_level_bpe() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens(["  ", "모델카드"])
    tokenizer.add_special_tokens(["<|user|>"])
    return tokenizer


@pytest.fixture(scope="session")
def unigram() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def wordpiece() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=220, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def wordlevel() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(LINES, trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


@pytest.fixture(scope="session")
def train_sentencepiece() -> Callable[..., bytes]:
    import sentencepiece

    def train(**options: Any) -> bytes:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES * 4), model_writer=model, minloglevel=2, **options
        )
        return model.getvalue()

    return train


@pytest.fixture(scope="session")
def sentencepiece_bpe(train_sentencepiece: Callable[..., bytes]) -> bytes:
    options = {"user_defined_symbols": ["<|user|>", "▁▁"], "normalization_rule_name": "identity"}
    return train_sentencepiece(model_type="bpe", vocab_size=440, byte_fallback=True, **options)


@pytest.fixture(scope="session")
def sentencepiece_unigram(train_sentencepiece: Callable[..., bytes]) -> bytes:
    return train_sentencepiece(model_type="unigram", vocab_size=350, byte_fallback=True)
