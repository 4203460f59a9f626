"""Files that lie: a clear error or a right answer, never another exception, never an allocation by what they claim."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkin.errors import HeaderLies, ModelkinError
from modelkin.sources.memory import MemorySource
from modelkin.vocabulary import facts, read_vocabulary

TOKENIZER = {
    "added_tokens": [{"id": 5, "content": "<s>", "special": True}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]},
    "model": {
        "type": "BPE",
        "unk_token": "<unk>",
        "vocab": {"<unk>": 0, "▁the": 1, "<0x41>": 2, "A": 3, "한": 4},
        "merges": ["▁ t", ["h", "e"]],
    },
}
UNIGRAM = {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁the", -1.5], ["의", -2]]}}
CONFIG = {"bos_token": "<s>", "added_tokens_decoder": {"9": {"content": "<x>", "special": True}}}


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def piece(name: bytes, kind: int) -> bytes:
    return field(1, field(1, name) + b"\x15" + struct.pack("<f", -1.0) + b"\x18" + varint(kind))


PIECES = [(b"<unk>", 2), (b"<s>", 3), (b"<0xED>", 6), ("▁the".encode(), 1), ("서울".encode(), 1), (b"x" * 200, 1)]
MODEL = b"".join(piece(name, kind) for name, kind in PIECES) + field(2, b"\x18\x02")
FILES: list[dict[str, bytes]] = [
    {"tokenizer.json": json.dumps(TOKENIZER).encode(), "tokenizer_config.json": json.dumps(CONFIG).encode()},
    {"tokenizer.json": json.dumps(UNIGRAM, ensure_ascii=False).encode()},
    {
        "vocab.json": b'{"a": 0, "\xc4\xa0b": 1}',
        "merges.txt": b"#version: 0.2\na b\n",
        "added_tokens.json": b'{"c": 2}',
    },
    {"vocab.txt": "[UNK]\nthe\n##ing\n의\n".encode(), "special_tokens_map.json": b'{"unk_token": "[UNK]"}'},
    {"tokenizer.model": MODEL, "tokenizer_config.json": b'{"tokenizer_class": "LlamaTokenizer"}'},
    {"vocab.json": b'{"</s>": 0, "x": 1}', "source.spm": MODEL},
    {"qwen.tiktoken": b"IQ== 0\nIg== 1\n7ISc 2\n"},
]


def read_or_refuse(files: dict[str, bytes]) -> None:
    try:
        vocabulary = read_vocabulary(MemorySource(files))
    except ModelkinError:
        return
    assert vocabulary is not None
    assert sum(facts(vocabulary).scripts.values()) == len(vocabulary.tokens)
    everything = [*vocabulary.ids.values(), *vocabulary.collided, *set(vocabulary.special.values())]
    assert sorted(everything) == sorted(vocabulary.tokens)


def refused(body: Any, file: str = "tokenizer.json") -> HeaderLies:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(HeaderLies) as caught:
        read_vocabulary(MemorySource({file: raw}, id="someone/model"))
    assert caught.value.where == "someone/model"
    assert caught.value.message.startswith(file)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("files", FILES)
def test_the_files_to_be_mutated_are_sound(files: dict[str, bytes]) -> None:
    vocabulary = read_vocabulary(MemorySource(files))
    assert vocabulary is not None
    assert len(vocabulary.tokens) >= 2


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_mutated_bytes_are_read_or_refused(data: st.DataObject) -> None:
    files = dict(data.draw(st.sampled_from(FILES)))
    name = data.draw(st.sampled_from(sorted(files)))
    body = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        stop = data.draw(st.integers(start, min(len(body), start + 6)))
        body[start:stop] = data.draw(st.binary(max_size=6))
    read_or_refuse(files | {name: bytes(body)})


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 7),
    st.sampled_from([2**31, 2**32, 2**63, 2**64, -(2**63)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", " ", "▁", "<0x41>", "##", "</w>", "ByteLevel", "Metaspace", "WordPiece", "WordLevel", "1"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["type", "content", "id", "a"]), st.integers(0, 3), max_size=2),
)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a tree of JSON."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    return [(tree, key) for key in keys] + [place for key in keys for place in places(tree[key])]


@given(data=st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_json_is_read_or_refused(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from([TOKENIZER, UNIGRAM, CONFIG]))
    tree = json.loads(json.dumps(original))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(tree)))
        if data.draw(st.booleans()) or isinstance(container, list):
            container[key] = data.draw(ODD)
        else:
            container[data.draw(st.sampled_from(["", "A", "type", "999", "<0x0A>"]))] = container.pop(key)
        if not places(tree):
            break
    body = json.dumps(tree).encode()
    if original is CONFIG:
        read_or_refuse(FILES[0] | {"tokenizer_config.json": body})
    else:
        read_or_refuse({"tokenizer.json": body})


@pytest.mark.parametrize("id", [-1, 2**32, 10**30, True, None, 1.5, 1.0, "1", [], {}])
def test_an_id_that_is_no_id_is_refused(id: Any) -> None:
    refused({"model": {"vocab": {"a": id}}})
    refused({"a": id}, "vocab.json")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"model": {"vocab": {"\xff": 0}}}',
        b'{"model": {"vocab": {"\\ud800": 0}}}',
        b'{"model": {"vocab": {"\\udc00abcd": 0}}}',
        b'{"x": ' + b"[" * 100_000,
        b'{"decoder": ' + b"[" * 100_000 + b"]" * 100_000 + b', "model": {"vocab": {"a": 0}}}',
        b'"a Keras tokenizer"',
        b"[]",
        b"{}",
        b'{"model": {}}',
        b'{"model": {"vocab": {}}}',
        b'{"model": {"vocab": []}}',
        b'{"model": {"type": "Magic", "vocab": {"a": 0}}}',
        b'{"model": {"type": "BPE", "vocab": [["a", 0]]}}',
        b'{"model": {"type": "Unigram", "vocab": {"a": 0}}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["abc"]}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b", "c"]]}}',
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    ],
)
def test_a_broken_tokenizer_json_is_refused(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no piece"),
        (b"\x0a\xff\xff\xff\xff\x0f", "claims 4294967295 bytes"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "does not end"),
        (b"\x0a\x04\x0a\x09ab", "claims 9 bytes"),
        (field(1, field(1, b"\xff") + b"\x15\0\0\0\0"), "utf-8"),
        (field(1, b"\x15\0\0\0\0"), "empty"),
        (b"\x0a\x00" * 1000, "empty"),
        (b"\x0b", "wire type 3"),
        (b"\x0d\0\0", "claims 4 bytes"),
        (piece(b"a", 1) + field(2, b"\x18\x63"), "model type 99"),
        (piece(b"a", 1) + b"\x80", "does not end"),
        (b"{}", "SentencePiece"),
    ],
)
def test_a_protobuf_that_lies_is_refused(body: bytes, reason: str) -> None:
    assert reason in refused(body, "tokenizer.model").message


@pytest.mark.parametrize(
    "body", [b"IQ==", b"IQ== x", b"IQ== -1", b"IQ== 9999999999", b"I Q 0", b"I 0", b"!!! 0", "é 0".encode()]
)
def test_broken_tiktoken_lines_are_refused(body: bytes) -> None:
    refused(body, "qwen.tiktoken")


@pytest.mark.parametrize("file", ["vocab.txt", "vocab.json"])
def test_plain_files_that_are_not_text_are_refused(file: str) -> None:
    refused(b"\xff\n", file)


@pytest.mark.parametrize("line", ["abc", "a b c", "a  b", " a", "a "])
def test_a_merge_that_is_not_two_tokens_is_refused(line: str) -> None:
    with pytest.raises(HeaderLies, match=r"merges\.txt has a line 2"):
        read_vocabulary(MemorySource({"vocab.json": b'{"a": 0}', "merges.txt": f"a b\n{line}\n".encode()}))


@pytest.mark.parametrize("key", ["-1", "1.0", "", "x", "٣", "9" * 5000, str(2**32)])
def test_an_id_in_the_config_that_is_no_id_is_refused(key: str) -> None:
    config = json.dumps({"added_tokens_decoder": {key: {"content": "<x>"}}}).encode()
    with pytest.raises(HeaderLies, match="added_tokens_decoder"):
        read_vocabulary(MemorySource({**FILES[0], "tokenizer_config.json": config}))


def test_special_tokens_without_a_vocabulary_do_not_stand_alone() -> None:
    """Names in a config are not tokens; tokens added on top of nothing are."""
    vocabulary = read_vocabulary(
        MemorySource({"tokenizer.json": b'{"model": {"vocab": {}}, "added_tokens": [{"id": 3, "content": "<s>"}]}'})
    )
    assert vocabulary is not None
    assert vocabulary.ids == {b"<s>": 3}
