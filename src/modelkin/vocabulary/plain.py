"""Vocabularies in plain files: vocab.json with merges.txt, vocab.txt, and tiktoken's base64 lines."""

from __future__ import annotations

import binascii
import re

from modelkin.vocabulary.files import MAX_ENTRIES, Ids, TokenizerFile
from modelkin.vocabulary.record import Kind, Parts, listed
from modelkin.vocabulary.spelling import Spelling, byte_spelled, guessed_spelling
from modelkin.vocabulary.spm import SPELLING, read_pieces

# Files of this age do not always say which tokens are special; these names are never text.
WELL_KNOWN = frozenset({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"}) | {
    "<|endoftext|>",
    "<|startoftext|>",
}
TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\s*(\n|\Z)")


def read_vocab_and_merges(vocab: TokenizerFile, merges: TokenizerFile) -> Parts:
    """GPT-2's pair of files; also of BPE tokenizers that spell characters, with "</w>" at the ends of words."""
    base = vocab.json(Ids)
    spelling = guessed_spelling(base)
    kind: Kind = "byte-level-bpe" if spelling.byte_level else "sentencepiece-bpe" if spelling.space else "bpe"
    return Parts(kind, spelling, base, special=set(WELL_KNOWN), merges=_merges(merges))


def _merges(file: TokenizerFile) -> tuple[str, ...]:
    merges = []
    for number, line in enumerate(file.lines(), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        match line.split(" "):
            case [left, right] if left and right:
                merges.append(line)
            case [left, right, count] if left and right and count.isdecimal():  # XLM's have how often it was seen
                merges.append(f"{left} {right}")
            case _:
                raise file.lies(f"has a line {number} that is not two tokens: {line[:80]!r}")
    return tuple(merges)


def read_vocab_json(vocab: TokenizerFile, pieces: TokenizerFile | None) -> Parts:
    """Marian, M2M100: the ids are those of vocab.json; its SentencePiece model gives the kind and the scores."""
    return _with_pieces(vocab.json(Ids), {}, pieces)


def read_vocab_txt(vocab: TokenizerFile, pieces: TokenizerFile | None) -> Parts:
    """WordPiece: one token a line, ids are line numbers. Empty lines count, but are no tokens."""
    lines = vocab.lines()
    if len(lines) > MAX_ENTRIES:
        raise vocab.lies(f"has {len(lines)} lines; at most {MAX_ENTRIES} are read")
    base, repeats = listed(lines)
    base.pop("", None)
    return _with_pieces(base, {id: name for id, name in repeats.items() if name}, pieces)


def _with_pieces(base: dict[str, int], repeats: dict[int, str], file: TokenizerFile | None) -> Parts:
    spelling = guessed_spelling(base)
    parts = Parts("wordlevel", spelling, base, repeats=repeats, special=set(WELL_KNOWN))
    if spelling.continuation:
        parts.kind = "wordpiece"
    elif file is not None:
        pieces = read_pieces(file)
        parts.kind, parts.spelling = pieces.kind, SPELLING
        parts.special |= pieces.special
        by_name = zip(pieces.names, pieces.scores, strict=True)
        parts.scores = {base[name]: score for name, score in by_name if name in base}
    elif spelling.space:
        parts.kind = "unigram"
    return parts


def is_tiktoken(body: bytes) -> bool:
    return TIKTOKEN_LINE.match(body) is not None


def read_tiktoken(file: TokenizerFile) -> Parts:
    """Lines of base64 and a rank; the rank is the id. Spelled in GPT-2's alphabet, as converters do."""
    base: dict[str, int] = {}
    for number, line in enumerate(file.body.splitlines(), 1):
        if not line:
            continue
        encoded, _, rank = line.partition(b" ")
        if not rank.isdigit() or len(rank) > 9:
            raise file.lies(f"has a line {number} that is not base64 and a rank: {line[:80]!r}")
        try:
            base[byte_spelled(binascii.a2b_base64(encoded, strict_mode=True))] = int(rank)
        except binascii.Error as error:
            raise file.lies(f"has a line {number} that is not base64: {error}") from error
        if len(base) > MAX_ENTRIES:
            raise file.lies(f"has over {MAX_ENTRIES} tokens")
    return Parts("tiktoken", Spelling(byte_level=True), base)
