"""tokenizer.json, the file of the tokenizers library: one typed pass over the fields that a vocabulary needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from modelkin.vocabulary.files import MAX_ENTRIES, Id, Ids, TokenizerFile
from modelkin.vocabulary.record import Kind, Parts, listed
from modelkin.vocabulary.spelling import CONTINUATION, SPACE, Spelling, guessed_spelling

Scored = Annotated[list[tuple[str, float]], msgspec.Meta(max_length=MAX_ENTRIES)]
TYPES = ("BPE", "Unigram", "WordPiece", "WordLevel")
WORD_SPLITTERS = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer"}


class _Model(msgspec.Struct):
    vocab: Ids | Scored
    type: str | None = None
    merges: list[str | tuple[str, str]] | None = None
    unk_token: str | None = None
    unk_id: int | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    max_input_chars_per_word: Any = None


class _AddedToken(msgspec.Struct):
    id: Id
    content: str
    special: bool = False


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken] | None = None
    normalizer: Any = None
    pre_tokenizer: Any = None
    decoder: Any = None


def read_tokenizer_json(file: TokenizerFile) -> Parts:
    tokenizer = file.json(_Tokenizer)
    model = tokenizer.model
    kind = _model_type(file, model)
    scores: dict[int, float] = {}
    repeats: dict[int, str] = {}
    if isinstance(model.vocab, dict):
        base = model.vocab
    else:
        base, repeats = listed([name for name, _ in model.vocab])
        scores = dict(enumerate(score for _, score in model.vocab))
    spelling = _spelling(kind, tokenizer, base)
    added = tokenizer.added_tokens or []
    return Parts(
        kind=_kind(kind, spelling),
        spelling=spelling,
        base=base,
        repeats=repeats,
        added={token.content: token.id for token in added},
        special={token.content for token in added if token.special} | _unknown(model),
        merges=_merges(file, model.merges or []),
        scores=scores,
    )


def _model_type(file: TokenizerFile, model: _Model) -> str:
    """Files of before 2021 have no type: told from the fields, as the library does."""
    found = model.type
    if found is None and isinstance(model.vocab, list):
        found = "Unigram"
    elif found is None and model.merges is not None:
        found = "BPE"
    elif found is None:
        found = "WordLevel" if model.max_input_chars_per_word is None else "WordPiece"
    if found not in TYPES:
        raise file.lies(f"has a model of type {found!r}; known are {', '.join(TYPES)}")
    if (found == "Unigram") != isinstance(model.vocab, list):
        raise file.lies(f"has a {found} model with a vocabulary of the wrong shape")
    return found


def _kind(model_type: str, spelling: Spelling) -> Kind:
    if model_type == "BPE":
        return "byte-level-bpe" if spelling.byte_level else "sentencepiece-bpe" if spelling.space else "bpe"
    kinds: dict[str, Kind] = {"Unigram": "unigram", "WordPiece": "wordpiece", "WordLevel": "wordlevel"}
    return kinds[model_type]


def _spelling(model_type: str, tokenizer: _Tokenizer, base: dict[str, int]) -> Spelling:
    """From the steps around the model; from the tokens themselves where no step tells."""
    model = tokenizer.model
    if model_type == "WordPiece":
        mark = model.continuing_subword_prefix
        return Spelling(whole_words=True) if mark == "" else Spelling(continuation=mark or CONTINUATION)
    steps = list(_steps([tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder]))
    word_end = model.end_of_word_suffix or ""
    if any(step["type"] == "ByteLevel" for step in steps):
        return Spelling(byte_level=True, word_end=word_end)
    for step in steps:
        if step["type"] == "Metaspace":
            mark = step.get("replacement")
            return Spelling(space=mark if isinstance(mark, str) and mark else SPACE, word_end=word_end)
        if step["type"] == "Replace" and SPACE in (step.get("content"), _pattern(step)):
            return Spelling(space=SPACE, word_end=word_end)
    if model.continuing_subword_prefix:
        return Spelling(continuation=model.continuing_subword_prefix, word_end=word_end)
    if model_type == "WordLevel" and any(step["type"] in WORD_SPLITTERS for step in steps):
        return Spelling(whole_words=True)
    return Spelling(word_end=word_end) if word_end else guessed_spelling(base)


def _steps(trees: list[Any]) -> Iterator[dict[str, Any]]:
    """Every object that has a type, in the order of the file, however deep in sequences."""
    waiting = trees[::-1]
    while waiting:
        match waiting.pop():
            case {"type": str(), **rest} as step:
                yield step
                waiting += list(rest.values())[::-1]
            case dict() as other:
                waiting += list(other.values())[::-1]
            case list() as members:
                waiting += members[::-1]


def _pattern(step: dict[str, Any]) -> Any:
    pattern = step.get("pattern")
    return pattern.get("String") if isinstance(pattern, dict) else None


def _unknown(model: _Model) -> set[str]:
    if isinstance(model.vocab, list) and model.unk_id is not None and 0 <= model.unk_id < len(model.vocab):
        return {model.vocab[model.unk_id][0]}
    return {model.unk_token} if model.unk_token else set()


def _merges(file: TokenizerFile, merges: list[str | tuple[str, str]]) -> tuple[str, ...]:
    """Strings "left right" as in the older files; newer ones have pairs."""
    joined = tuple([merge if isinstance(merge, str) else f"{merge[0]} {merge[1]}" for merge in merges])
    for merge, line in zip(merges, joined, strict=True):
        if merge is line and line.count(" ") != 1:
            raise file.lies(f"has a merge that is not two tokens: {line[:80]!r}")
    return joined
