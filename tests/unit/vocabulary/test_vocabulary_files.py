"""Which files are read, which of them is believed, and what becomes of odd entries."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from modelkin.errors import HeaderLies, UnsupportedFormat
from modelkin.records import Extent, FileFact
from modelkin.sources.memory import MemorySource
from modelkin.vocabulary import Vocabulary, facts, read_vocabulary


class CountingSource(MemorySource):
    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.calls: list[list[str]] = []

    def read(self, extents: Sequence[Extent], kind: str = "file") -> list[memoryview]:
        self.calls.append([extent.file for extent in extents])
        return super().read(extents, kind)


def as_bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def read(files: Mapping[str, Any]) -> Vocabulary:
    vocabulary = read_vocabulary(MemorySource({name: as_bytes(body) for name, body in files.items()}))
    assert vocabulary is not None
    return vocabulary


def bpe(vocab: Any, *, added: Sequence[Any] = (), byte_level: bool = True, **model: Any) -> dict[str, Any]:
    step = {"type": "ByteLevel"} if byte_level else {"type": "Metaspace", "replacement": "▁"}
    return {
        "added_tokens": list(added),
        "pre_tokenizer": step,
        "model": {"type": "BPE", "vocab": vocab, "merges": [], **model},
    }


SMALL = bpe({"a": 0, "b": 1})


def test_a_source_without_tokenizer_files_has_no_vocabulary() -> None:
    source = CountingSource({"config.json": b"{}", "model.safetensors": b"", "tokenizer_config.json": b"{}"})
    assert read_vocabulary(source) is None
    assert source.calls == []


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["tokenizer.json"], ["tokenizer.json"]),
        (
            [
                "vocab.json",
                "merges.txt",
                "tokenizer.model",
                "added_tokens.json",
                "tokenizer_config.json",
                "tokenizer.json",
            ],
            ["tokenizer.json", "tokenizer_config.json"],
        ),
        (["merges.txt", "vocab.json", "added_tokens.json"], ["vocab.json", "merges.txt", "added_tokens.json"]),
        (["vocab.txt", "special_tokens_map.json"], ["vocab.txt", "special_tokens_map.json"]),
        (["vocab.json"], ["vocab.json"]),
    ],
)
def test_the_fewest_files_come_in_one_read(present: list[str], expected: list[str]) -> None:
    bodies = {"tokenizer.json": as_bytes(SMALL), "vocab.json": b'{"a": 0}', "merges.txt": b"", "vocab.txt": b"a\n"}
    source = CountingSource({name: bodies.get(name, b"{}") for name in present})
    vocabulary = read_vocabulary(source)
    assert source.calls == [expected]
    assert vocabulary is not None
    assert vocabulary.files == tuple(expected)


def test_files_in_folders_are_not_this_models() -> None:
    assert read_vocabulary(MemorySource({"original/tokenizer.model": b"x", "sub/q.tiktoken": b"x"})) is None


def test_marian_ids_are_those_of_vocab_json(sentencepiece_unigram: bytes) -> None:
    vocab = {"</s>": 0, "<unk>": 1, "▁the": 7, "의": 3, "e": 5, "<pad>": 9}
    source = CountingSource(
        {"vocab.json": as_bytes(vocab), "source.spm": sentencepiece_unigram, "target.spm": b"not needed"}
    )
    vocabulary = read_vocabulary(source)
    assert vocabulary is not None
    assert source.calls == [["vocab.json", "source.spm"]]
    assert vocabulary.kind == "unigram"
    assert vocabulary.base == vocab
    assert vocabulary.ids == {"의".encode(): 3, b"e": 5, b" the": 7}
    assert list(vocabulary.special) == ["</s>", "<unk>", "<pad>"]
    assert 5 in vocabulary.scores
    assert facts(vocabulary).gaps == 4


@pytest.mark.parametrize("name", ["qwen.tiktoken", "tokenizer.model", "tiktoken.model"])
def test_tiktoken(name: str) -> None:
    contents = [bytes([byte]) for byte in range(256)] + [b" the", " 서울".encode(), " 서울".encode()[:3]]
    body = b"".join(base64.b64encode(content) + b" %d\n" % rank for rank, content in enumerate(contents))
    vocabulary = read({name: body, "tokenizer_config.json": {"added_tokens_decoder": {"300": {"content": "<|end|>"}}}})
    assert vocabulary.kind == "tiktoken"
    assert vocabulary.ids == {content: rank for rank, content in enumerate(contents)} | {b"<|end|>": 300}
    assert vocabulary.tokens[256] == "Ġthe"
    assert len(vocabulary.byte_ids) == 256
    assert facts(vocabulary).scripts["hangul"] == 1
    assert facts(vocabulary).merges_sha256_all is None


def test_tokens_added_beside_plain_files() -> None:
    vocabulary = read(
        {
            "vocab.json": {"a": 0, "Ġb": 1, "<|endoftext|>": 2, "unused": 5},
            "merges.txt": "#version: 0.2\na b\n# #\n",
            "added_tokens.json": {"<|user|>": 3, "plain": 4},
            "special_tokens_map.json": {"eos_token": {"content": "<|endoftext|>"}, "pad_token": "<absent>"},
            "tokenizer_config.json": {
                "additional_special_tokens": ["<|user|>"],
                "added_tokens_decoder": {
                    "3": {"content": "<|user|>", "special": True},
                    "5": {"content": "<|tool|>", "special": True},
                },
            },
        }
    )
    assert vocabulary.added == {"<|user|>": 3, "plain": 4, "<|tool|>": 5}
    assert vocabulary.special == {"<|endoftext|>": 2, "<|user|>": 3, "<|tool|>": 5}
    assert vocabulary.ids == {b"a": 0, b" b": 1, b"plain": 4}
    assert vocabulary.tokens[5] == "<|tool|>"
    assert vocabulary.aliases == {"unused": 5}
    assert vocabulary.merges == ("a b", "# #")


def test_an_added_token_that_the_model_lists_keeps_the_models_id() -> None:
    vocabulary = read({"tokenizer.json": bpe({"<s>": 3, "a": 0}, added=[{"id": 7, "content": "<s>", "special": True}])})
    assert vocabulary.added == {"<s>": 3}
    assert vocabulary.tokens == {0: "a", 3: "<s>"}


def test_an_added_token_is_plain_text_and_yields_to_the_models_own() -> None:
    added = [{"id": 2, "content": "  "}, {"id": 3, "content": "한국"}, {"id": 4, "content": "é"}]
    vocabulary = read({"tokenizer.json": bpe({"ĠĠ": 0, "Ã©": 1}, added=added)})
    assert vocabulary.ids == {b"  ": 0, "é".encode(): 1, "한국".encode(): 3}
    assert vocabulary.collided == {2: b"  ", 4: "é".encode()}
    assert vocabulary.collisions == 2


def test_text_that_is_not_in_the_byte_alphabet_stands_for_itself() -> None:
    vocabulary = read({"tokenizer.json": bpe({"한국": 0, "Ġ 한": 1, "Ġx": 2})})
    assert vocabulary.ids == {"한국".encode(): 0, "Ġ 한".encode(): 1, b" x": 2}


def test_huge_ids_and_gaps_allocate_nothing() -> None:
    vocabulary = read({"tokenizer.json": bpe({"a": 0, "b": 2**32 - 1})})
    assert vocabulary.ids == {b"a": 0, b"b": 2**32 - 1}
    assert facts(vocabulary).gaps == 2**32 - 2


def test_two_spellings_with_one_id_are_both_kept() -> None:
    vocabulary = read({"tokenizer.json": bpe({"a": 0, "b": 0, "c": 1})})
    assert vocabulary.base == {"a": 0, "b": 0, "c": 1}
    assert vocabulary.tokens == {0: "b", 1: "c"}
    assert vocabulary.aliases == {"a": 0}
    assert vocabulary.ids == {b"b": 0, b"c": 1}


def test_two_byte_pieces_with_one_id_are_one_token() -> None:
    vocabulary = read({"tokenizer.json": bpe({"<0x41>": 0, "<0x42>": 0, "▁a": 1}, byte_level=False)})
    assert vocabulary.ids == {b" a": 1, b"B": 0}
    assert vocabulary.byte_ids == {ord("B"): 0}
    assert vocabulary.aliases == {"<0x41>": 0}


def test_a_spelling_listed_twice_has_its_last_id() -> None:
    vocabulary = read({"vocab.txt": "[UNK]\nthe\n##s\n\nthe\n"})
    assert vocabulary.base == {"[UNK]": 0, "the": 4, "##s": 2}
    assert vocabulary.tokens == {0: "[UNK]", 1: "the", 2: "##s", 4: "the"}
    assert vocabulary.ids == {b"s": 2, b" the": 4}
    assert vocabulary.collided == {1: b" the"}


def test_lines_end_at_newlines_only() -> None:
    vocabulary = read({"vocab.txt": "a\u2028b\r\n\x85\n##c\n"})
    assert vocabulary.base == {"a\u2028b": 0, "\x85": 1, "##c": 2}


def test_word_ends_are_followed_by_a_space() -> None:
    model = bpe({"the</w>": 0, "th": 1, "</w>": 2}, end_of_word_suffix="</w>")
    model["pre_tokenizer"] = None
    vocabulary = read({"tokenizer.json": model})
    assert vocabulary.kind == "bpe"
    assert vocabulary.ids == {b"the ": 0, b"th": 1, b" ": 2}


def test_word_ends_are_told_from_plain_files() -> None:
    vocabulary = read({"vocab.json": {"t": 0, "h": 1, "the</w>": 2}, "merges.txt": "t h 25\nth e</w> 3\n"})
    assert vocabulary.ids == {b"t": 0, b"h": 1, b"the ": 2}
    assert vocabulary.merges == ("t h", "th e</w>")


@pytest.mark.parametrize(
    ("file", "config", "first"),
    [
        ("tokenizer.model", {}, ["<unk>", "<s>", "</s>"]),
        ("spiece.model", {"tokenizer_class": "T5Tokenizer"}, ["<unk>", "<s>", "</s>"]),
        ("sentencepiece.bpe.model", {}, ["<s>", "<pad>", "</s>", "<unk>"]),
        ("sentencepiece.bpe.model", {"tokenizer_class": "XLMRobertaTokenizer"}, ["<s>", "<pad>", "</s>", "<unk>"]),
        ("sentencepiece.bpe.model", {"tokenizer_class": "BarthezTokenizer"}, ["<unk>", "<s>", "</s>"]),
    ],
)
def test_fairseq_models_put_tokens_before_the_pieces(
    file: str, config: dict[str, Any], first: list[str], sentencepiece_unigram: bytes
) -> None:
    plain = read({"tokenizer.model": sentencepiece_unigram})
    vocabulary = read({file: sentencepiece_unigram, "tokenizer_config.json": config})
    moved = len(first) - 3
    assert [vocabulary.tokens[id] for id in range(len(first))] == first
    assert vocabulary.ids == {content: id + moved for content, id in plain.ids.items()}
    assert vocabulary.scores[50 + moved] == plain.scores[50]
    assert set(first) <= vocabulary.special.keys()


def test_fastbpe_is_refused_rather_than_misread() -> None:
    with pytest.raises(UnsupportedFormat, match=r"bpe\.codes"):
        read({"vocab.txt": "và 25\n", "bpe.codes": "v à 3\n"})


class ClaimingSource(MemorySource):
    def files(self) -> Mapping[str, FileFact]:
        return {"tokenizer.json": FileFact("tokenizer.json", 300 << 20)}


def test_a_giant_file_is_refused_before_it_is_read() -> None:
    source = ClaimingSource({})
    with pytest.raises(HeaderLies, match="at most 268435456"):
        read_vocabulary(source)
    assert source.ledger.exchanges == ()


def test_facts_are_json_and_merges_are_hashed_line_by_line() -> None:
    merges = [f"a b{n}" for n in range(1500)]
    vocabulary = read({"tokenizer.json": bpe({"a": 0, "Ġlongest": 4}, merges=merges)})
    known = facts(vocabulary)
    assert known.merges == 1500
    assert (
        known.merges_sha256_first1000 == hashlib.sha256("".join(m + "\n" for m in merges[:1000]).encode()).hexdigest()
    )
    assert known.merges_sha256_all == hashlib.sha256("".join(m + "\n" for m in merges).encode()).hexdigest()
    assert (known.entries, known.lowest_id, known.highest_id, known.gaps) == (2, 0, 4, 3)
    assert (known.longest, known.longest_bytes, known.byte_tokens) == (" longest", 8, 1)
    assert msgspec.json.decode(msgspec.json.encode(known), type=type(known)) == known
