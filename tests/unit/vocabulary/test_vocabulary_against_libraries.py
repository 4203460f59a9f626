"""Every reader against the library that wrote the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from modelkin.sources.memory import MemorySource
from modelkin.vocabulary import Vocabulary, facts, read_vocabulary

HANGUL = re.compile(" ?[가-힣]+")


def read(**files: str | bytes) -> Vocabulary:
    bodies = {name: body.encode() if isinstance(body, str) else body for name, body in files.items()}
    vocabulary = read_vocabulary(MemorySource(bodies))
    assert vocabulary is not None
    return vocabulary


def joined(vocabulary: Vocabulary, ids: Iterable[int]) -> str:
    contents = {id: content for content, id in vocabulary.ids.items()} | vocabulary.collided
    return b"".join(contents[id] for id in ids).decode()


def test_byte_level_bpe_has_the_ids_of_the_library(byte_level_bpe: Any) -> None:
    vocabulary = read(**{"tokenizer.json": byte_level_bpe.to_str()})
    assert vocabulary.kind == "byte-level-bpe"
    assert vocabulary.base == byte_level_bpe.get_vocab(with_added_tokens=False)
    assert vocabulary.base | vocabulary.added == byte_level_bpe.get_vocab()
    assert {id: byte_level_bpe.id_to_token(id) for id in vocabulary.tokens} == vocabulary.tokens
    assert list(vocabulary.special) == ["<|endoftext|>", "<|user|>"]
    assert vocabulary.collisions == 0


def test_contents_of_byte_level_tokens_make_the_text_again(byte_level_bpe: Any, lines: list[str]) -> None:
    vocabulary = read(**{"tokenizer.json": byte_level_bpe.to_str()})
    for text in [*lines, "é ☃ 𝄞\t\n  모델카드 새 글자"]:
        assert joined(vocabulary, byte_level_bpe.encode(text).ids) == text


def test_each_content_is_what_the_library_decodes(byte_level_bpe: Any) -> None:
    vocabulary = read(**{"tokenizer.json": byte_level_bpe.to_str()})
    for content, id in vocabulary.ids.items():
        assert byte_level_bpe.decode([id]) == content.decode(errors="replace")
    assert len(vocabulary.byte_ids) == 256
    assert vocabulary.tokens[vocabulary.byte_ids[0x20]] == "Ġ"


def test_vocab_json_with_merges_reads_as_tokenizer_json(byte_level_bpe: Any, tmp_path: Path) -> None:
    byte_level_bpe.model.save(str(tmp_path))
    files = {name: (tmp_path / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    plain = read(**files)
    whole = read(**{"tokenizer.json": byte_level_bpe.to_str()})
    assert plain.kind == whole.kind
    assert plain.base == whole.base
    assert plain.merges == whole.merges
    assert plain.spelling == whole.spelling
    assert plain.special == {"<|endoftext|>": 0}


def test_merges_as_pairs_and_as_strings_are_the_same(byte_level_bpe: Any) -> None:
    tokenizer = json.loads(byte_level_bpe.to_str())
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in tokenizer["model"]["merges"]]
    tokenizer["model"]["merges"] = pairs
    with_pairs = read(**{"tokenizer.json": json.dumps(tokenizer)})
    tokenizer["model"]["merges"] = [" ".join(pair) for pair in pairs]
    with_strings = read(**{"tokenizer.json": json.dumps(tokenizer)})
    assert with_pairs.merges == with_strings.merges == tuple(" ".join(pair) for pair in pairs)
    assert len(pairs) > 100


@pytest.mark.parametrize("without_type", [False, True])
def test_unigram(unigram: Any, lines: list[str], without_type: bool) -> None:
    tokenizer = json.loads(unigram.to_str())
    expected = {id: score for id, (_, score) in enumerate(tokenizer["model"]["vocab"])}
    if without_type:
        del tokenizer["model"]["type"]
    vocabulary = read(**{"tokenizer.json": json.dumps(tokenizer)})
    assert vocabulary.kind == "unigram"
    assert vocabulary.base == unigram.get_vocab()
    assert vocabulary.scores == expected
    for text in lines:
        assert joined(vocabulary, unigram.encode(text).ids) == f" {text}"


@pytest.mark.parametrize("without_type", [False, True])
def test_wordpiece(wordpiece: Any, without_type: bool) -> None:
    tokenizer = json.loads(wordpiece.to_str())
    if without_type:
        del tokenizer["model"]["type"]
    vocabulary = read(**{"tokenizer.json": json.dumps(tokenizer)})
    assert vocabulary.kind == "wordpiece"
    assert vocabulary.base == wordpiece.get_vocab()
    assert list(vocabulary.special) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    text = "the reader reads 한국어 모델은 , words !"
    ids = wordpiece.encode(text).ids
    assert joined(vocabulary, ids) == f" {text}"
    assert wordpiece.decode(ids) == text
    assert vocabulary.collisions == 0


def test_vocab_txt_reads_as_tokenizer_json(wordpiece: Any, tmp_path: Path) -> None:
    wordpiece.model.save(str(tmp_path))
    plain = read(**{"vocab.txt": (tmp_path / "vocab.txt").read_bytes()})
    whole = read(**{"tokenizer.json": wordpiece.to_str()})
    assert (plain.kind, plain.base, plain.ids, plain.special) == (whole.kind, whole.base, whole.ids, whole.special)


def test_wordlevel(wordlevel: Any, lines: list[str]) -> None:
    vocabulary = read(**{"tokenizer.json": wordlevel.to_str()})
    assert vocabulary.kind == "wordlevel"
    assert vocabulary.base == wordlevel.get_vocab()
    assert joined(vocabulary, wordlevel.encode(lines[0]).ids) == f" {lines[0]}"


@pytest.mark.parametrize("model", ["sentencepiece_bpe", "sentencepiece_unigram"])
def test_sentencepiece(model: str, lines: list[str], request: pytest.FixtureRequest) -> None:
    body = request.getfixturevalue(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=body)
    vocabulary = read(**{"tokenizer.model": body})
    ids = range(library.vocab_size())
    assert vocabulary.kind == model.removeprefix("sentencepiece_").replace("bpe", "sentencepiece-bpe")
    assert vocabulary.tokens == {id: library.id_to_piece(id) for id in ids}
    assert vocabulary.scores == {id: library.get_score(id) for id in ids}
    assert set(vocabulary.special.values()) == {id for id in ids if library.is_control(id) or library.is_unknown(id)}
    assert set(vocabulary.byte_ids.values()) == {id for id in ids if library.is_byte(id)}
    for text in [*lines, "snow ☃ 새"]:
        assert joined(vocabulary, library.encode(text)) == f" {text}"


def test_a_piece_is_preferred_to_a_byte_of_the_same_content(sentencepiece_bpe: bytes) -> None:
    vocabulary = read(**{"tokenizer.model": sentencepiece_bpe})
    assert vocabulary.tokens[vocabulary.ids[b"a"]] == "a"
    assert vocabulary.tokens[vocabulary.byte_ids[ord("a")]] == "<0x61>"
    assert vocabulary.collided[vocabulary.byte_ids[ord("a")]] == b"a"
    assert vocabulary.tokens[vocabulary.ids[b"\xed"]] == "<0xED>"
    assert len(vocabulary.ids) + vocabulary.collisions + len(vocabulary.special) == len(vocabulary.tokens)


def test_tokenizers_of_one_text_meet_in_content(byte_level_bpe: Any, sentencepiece_bpe: bytes, wordpiece: Any) -> None:
    byte_level = read(**{"tokenizer.json": byte_level_bpe.to_str()})
    pieces = read(**{"tokenizer.model": sentencepiece_bpe})
    words = read(**{"tokenizer.json": wordpiece.to_str()})
    for text in (" the", " model", " 서울", "의", " "):
        assert text.encode() in byte_level.ids
        assert text.encode() in pieces.ids
    assert {b" the", b" model", " 서울".encode(), "의".encode()} <= words.ids.keys()
    assert not byte_level.base.keys() & {"▁the"}
    assert {bytes([byte]) for byte in range(256)} <= byte_level.ids.keys() & pieces.ids.keys()


def test_korean_is_counted_as_hangul_in_every_spelling(
    byte_level_bpe: Any, sentencepiece_bpe: bytes, wordpiece: Any
) -> None:
    for vocabulary in (
        read(**{"tokenizer.json": byte_level_bpe.to_str()}),
        read(**{"tokenizer.model": sentencepiece_bpe}),
        read(**{"tokenizer.json": wordpiece.to_str()}),
    ):
        hangul = [content for content in vocabulary.ids if HANGUL.fullmatch(content.decode(errors="replace"))]
        counted = facts(vocabulary)
        assert counted.scripts["hangul"] == len(hangul) > 15
        assert sum(counted.scripts.values()) == counted.entries
        assert counted.scripts["special"] == len(vocabulary.special)


def test_fast_form_of_a_sentencepiece_model_reads_the_same(sentencepiece_unigram: bytes) -> None:
    """What a converter writes: Unigram, Metaspace, byte fallback."""
    model = read(**{"tokenizer.model": sentencepiece_unigram})
    vocab = [[model.tokens[id], model.scores[id]] for id in sorted(model.tokens)]
    added = [{"id": id, "content": name, "special": True} for name, id in model.special.items()]
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    fast = {
        "added_tokens": added,
        "normalizer": normalizer,
        "model": {"type": "Unigram", "vocab": vocab, "unk_id": 0, "byte_fallback": True},
    }
    converted = read(**{"tokenizer.json": json.dumps(fast)})
    for field in ("kind", "spelling", "base", "special", "ids", "byte_ids", "collided", "scores"):
        assert getattr(converted, field) == getattr(model, field)
