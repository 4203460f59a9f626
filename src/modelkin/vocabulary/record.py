"""The vocabulary of one model: a frozen record, and how it is put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Literal

import msgspec

from modelkin.vocabulary.spelling import BYTE_PIECES, Spelling

Kind = Literal["byte-level-bpe", "sentencepiece-bpe", "bpe", "unigram", "wordpiece", "wordlevel", "tiktoken"]


class Vocabulary(msgspec.Struct, frozen=True):
    """Token strings and ids, as the files have them and as bytes that can be compared between tokenizers.

    `ids` holds every ordinary token by content (see `spelling`); special tokens are names, not text, and are left out.
    Where several tokens have the same content, `ids` has the one that the tokenizer would choose: a token of the
    model's own vocabulary, then an added token, then a byte piece; among equals the lowest id. The others are in
    `collided`. So b"A" is the piece "A" and not "<0x41>", which stays in `byte_ids`; b"\\xe2" is "<0xE2>".
    """

    kind: Kind
    spelling: Spelling
    files: tuple[str, ...]  # what was read, the authority first
    base: dict[str, int]  # the model's own vocabulary as spelled, without added tokens unless it lists them itself
    added: dict[str, int]  # tokens put on top, special or not
    special: dict[str, int]
    tokens: dict[int, str]  # spelling by id, of every token; an added token replaces the name it was put over
    aliases: dict[str, int]  # spellings of `base` whose id has another name in `tokens`
    ids: dict[bytes, int]
    byte_ids: dict[int, int]  # value of a byte -> the token for that one byte
    collided: dict[int, bytes]  # id -> content that another id has in `ids`
    merges: tuple[str, ...] = ()  # "left right", first merged first; also where the file has pairs
    scores: dict[int, float] = {}  # by id, for Unigram and SentencePiece

    @property
    def collisions(self) -> int:
        return len(self.collided)


class Parts(msgspec.Struct):
    """What a reader found in the files, before tokens are named and normalised.

    `added` holds declared ids; `special` holds names and may name tokens that do not exist.
    """

    kind: Kind
    spelling: Spelling
    base: dict[str, int]
    repeats: dict[int, str] = {}  # further ids of a spelling that `base` has already
    added: dict[str, int] = {}
    special: set[str] = set()
    merges: tuple[str, ...] = ()
    scores: dict[int, float] = {}


def listed(spellings: list[str]) -> tuple[dict[str, int], dict[int, str]]:
    """(base, repeats) where ids are positions. A spelling listed twice has its last id, as its encoder would give."""
    base = {spelling: position for position, spelling in enumerate(spellings)}
    if len(base) == len(spellings):
        return base, {}
    return base, {n: spelling for n, spelling in enumerate(spellings) if base[spelling] != n}


def assemble(parts: Parts, files: tuple[str, ...]) -> Vocabulary:
    # A token that the model lists itself keeps the model's id, whatever the added tokens declare.
    added = {name: parts.base.get(name, declared) for name, declared in parts.added.items()}
    tokens = dict(zip(parts.base.values(), parts.base, strict=True))
    tokens |= parts.repeats
    tokens |= {id: name for name, id in added.items()}
    known = parts.base | added
    special = {name: known[name] for name in sorted(parts.special & known.keys(), key=known.__getitem__)}
    contents = _contents(parts, added, tokens, frozenset(special.values()))
    return Vocabulary(
        kind=parts.kind,
        spelling=parts.spelling,
        files=files,
        base=parts.base,
        added=added,
        special=special,
        tokens=tokens,
        aliases={name: id for name, id in known.items() if tokens[id] != name},
        ids=contents.ids,
        byte_ids=contents.byte_ids,
        collided=contents.collided,
        merges=parts.merges,
        scores=parts.scores,
    )


class _Contents(msgspec.Struct):
    ids: dict[bytes, int]
    byte_ids: dict[int, int]
    collided: dict[int, bytes]


def _contents(parts: Parts, added: Mapping[str, int], tokens: Mapping[int, str], special: frozenset[int]) -> _Contents:
    """Ids by content, in the order of preference that Vocabulary promises."""
    byte_ids = {} if parts.spelling.byte_level else _byte_pieces(parts.base, tokens, special)
    apart = special.union(byte_ids.values())
    later = {id: content for id, content in _later_contents(parts, added, tokens) if id not in apart}
    own = [id for id in sorted(tokens) if id not in apart and id not in later]
    in_order = chain(
        zip(own, parts.spelling.contents(map(tokens.__getitem__, own)), strict=True),
        sorted(later.items()),
        ((id, bytes([byte])) for byte, id in byte_ids.items()),
    )
    ids: dict[bytes, int] = {}
    collided = {id: content for id, content in in_order if ids.setdefault(content, id) != id}
    if parts.spelling.byte_level:
        byte_ids = {content[0]: id for content, id in ids.items() if len(content) == 1}
    return _Contents(ids, byte_ids, collided)


def _later_contents(parts: Parts, added: Mapping[str, int], tokens: Mapping[int, str]) -> Iterator[tuple[int, bytes]]:
    """Of spellings listed twice and of added tokens, which are plain text but for the space mark."""
    yield from zip(parts.repeats, parts.spelling.contents(parts.repeats.values()), strict=True)
    literal = Spelling(space=parts.spelling.space)
    yield from zip(added.values(), literal.contents(tokens[id] for id in added.values()), strict=True)


def _byte_pieces(base: Mapping[str, int], tokens: Mapping[int, str], special: frozenset[int]) -> dict[int, int]:
    pieces = {byte: base[name] for name, byte in BYTE_PIECES.items() if name in base and tokens[base[name]] == name}
    return {byte: id for byte, id in pieces.items() if id not in special}
