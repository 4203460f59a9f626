"""SentencePiece models: the few fields of their protobuf that a vocabulary needs, from the wire format.

ModelProto      1 pieces (repeated)     2 trainer_spec
SentencePiece   1 piece: string         2 score: float          3 type: enum
TrainerSpec     3 model_type: enum
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from modelkin.vocabulary.files import MAX_ENTRIES, TokenizerFile
from modelkin.vocabulary.record import Kind, Parts, listed
from modelkin.vocabulary.spelling import SPACE, Spelling

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
KINDS: dict[int, Kind] = {1: "unigram", 2: "sentencepiece-bpe", 3: "wordlevel", 4: "wordlevel"}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}
FLOAT = struct.Struct("<f")
SPELLING = Spelling(space=SPACE)


class Pieces(msgspec.Struct):
    kind: Kind
    names: list[str]
    scores: list[float]
    special: set[str]


class Heading(msgspec.Struct, frozen=True):
    """Tokens that a model family puts before the pieces, and how many of the first pieces they replace."""

    tokens: tuple[str, ...]
    replaced: int


# A repository of these tokenizers has a SentencePiece file whose ids are not those of the model.
FAIRSEQ = Heading(("<s>", "<pad>", "</s>", "<unk>"), 3)
HEADINGS = {
    "Camembert": Heading(("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1),
    "SeamlessM4T": Heading(("<pad>", "<unk>", "<s>", "</s>"), 3),
    "Pegasus": Heading(("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{n}>" for n in range(2, 103))), 2),
    "Barthez": Heading((), 0),
}


def read_spm(file: TokenizerFile, tokenizer_class: str) -> Parts:
    """Ids are positions, moved where the family is known to put tokens before the pieces."""
    pieces = read_pieces(file)
    heading = _heading(file.name, tokenizer_class)
    base, repeats = listed([*heading.tokens, *pieces.names[heading.replaced :]])
    first = len(heading.tokens) - heading.replaced
    scores = {first + n: pieces.scores[n] for n in range(heading.replaced, len(pieces.names))}
    special = pieces.special.union(heading.tokens)
    return Parts(pieces.kind, SPELLING, base, repeats=repeats, special=special, scores=scores)


def _heading(file: str, tokenizer_class: str) -> Heading:
    for family, heading in HEADINGS.items():
        if tokenizer_class.startswith(family):
            return heading
    return FAIRSEQ if file == "sentencepiece.bpe.model" else Heading((), 0)


def read_pieces(file: TokenizerFile) -> Pieces:
    """Every piece in order. Lengths are checked before they are followed."""
    try:
        pieces = _model(file.body)
        if not pieces.names:
            raise ValueError("no piece is in it")
    except ValueError as error:
        raise file.lies(f"is not a SentencePiece model: {error}") from error
    return pieces


def _model(body: bytes) -> Pieces:
    names, scores, special = [], [], set()
    model_type = 1
    for number, wire, start, stop in _fields(body, 0, len(body)):
        if number == 1 and wire == BYTES:
            name, score, piece_type = _piece(body, start, stop)
            names.append(name)
            scores.append(score)
            if piece_type in (UNKNOWN, CONTROL):
                special.add(name)
            if len(names) > MAX_ENTRIES:
                raise ValueError(f"over {MAX_ENTRIES} pieces")
        elif number == 2 and wire == BYTES:
            model_type = _model_type(body, start, stop)
    return Pieces(KINDS[model_type], names, scores, special)


def _piece(body: bytes, start: int, stop: int) -> tuple[str, float, int]:
    name, score, piece_type = b"", 0.0, NORMAL
    # Nearly every piece is a short string and a score, which is worth its own path.
    size = stop - start - 7
    if 0 < size < 0x80 and body[start] == 0x0A and body[start + 1] == size and body[stop - 5] == 0x15:
        return body[start + 2 : stop - 5].decode(), FLOAT.unpack_from(body, stop - 4)[0], NORMAL
    for number, wire, first, last in _fields(body, start, stop):
        if number == 1 and wire == BYTES:
            name = body[first:last]
        elif number == 2 and wire == FIXED32:
            (score,) = FLOAT.unpack_from(body, first)
        elif number == 3 and wire == VARINT:
            piece_type = first
    if not name:
        raise ValueError(f"the piece at byte {start} is empty")
    return name.decode(), score, piece_type


def _model_type(body: bytes, start: int, stop: int) -> int:
    for number, wire, value, _ in _fields(body, start, stop):
        if number == 3 and wire == VARINT:
            if value not in KINDS:
                raise ValueError(f"model type {value} is none of {sorted(KINDS)}")
            return value
    return 1


def _fields(body: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, start, stop) of each field in body[position:end]; (number, 0, value, 0) for a varint."""
    while position < end:
        tag, position = _varint(body, position, end)
        number, wire = tag >> 3, tag & 7
        size_or_value = WIDTHS.get(wire, 0)
        if wire in (VARINT, BYTES):
            size_or_value, position = _varint(body, position, end)
        elif not size_or_value:
            raise ValueError(f"wire type {wire} before byte {position}")
        if wire == VARINT:
            yield number, wire, size_or_value, 0
            continue
        if size_or_value > end - position:
            raise ValueError(f"a field claims {size_or_value} bytes at byte {position}, {end - position} are left")
        yield number, wire, position, position + size_or_value
        position += size_or_value


def _varint(body: bytes, position: int, end: int) -> tuple[int, int]:
    """(value, position after it); at most ten bytes."""
    if position < end and body[position] < 0x80:
        return body[position], position + 1
    value = 0
    for n, byte in enumerate(body[position : min(end, position + 10)]):
        value |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return value, position + n + 1
    raise ValueError(f"a number at byte {position} does not end")
