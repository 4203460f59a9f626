"""Which tokenizer files to read, in one go, and who reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from modelkin.errors import UnsupportedFormat
from modelkin.records import Extent, FileFact
from modelkin.sources.protocol import Source
from modelkin.vocabulary.companions import ADDED, CONFIG, SPECIAL_MAP, with_companions
from modelkin.vocabulary.files import LFS_POINTER, MAX_FILE, TokenizerFile
from modelkin.vocabulary.plain import (
    is_tiktoken,
    read_tiktoken,
    read_vocab_and_merges,
    read_vocab_json,
    read_vocab_txt,
)
from modelkin.vocabulary.record import Parts, Vocabulary, assemble
from modelkin.vocabulary.spm import read_spm
from modelkin.vocabulary.tokenizer_json import read_tokenizer_json

TOKENIZER = "tokenizer.json"
SENTENCEPIECE = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "spm.model",
    "sentencepiece.model",
)
TIKTOKEN = (".tiktoken", "tiktoken.model")


class Plan(msgspec.Struct, frozen=True):
    """The files that hold the vocabulary, the authority on ids first, and the small ones beside them."""

    main: tuple[str, ...]
    companions: tuple[str, ...]


def read_vocabulary(source: Source) -> Vocabulary | None:
    """The vocabulary of a source, or None where it has no tokenizer files. All files come in one read."""
    plan = plan_reading(source.files(), source.id)
    if plan is None:
        return None
    files = _fetched(source, (*plan.main, *plan.companions))
    config = files[CONFIG].json_object() if CONFIG in files else {}
    parts = _read(plan, files, config)
    with_companions(parts, files, config)
    if not parts.base and not parts.added:
        raise files[plan.main[0]].lies("holds no tokens")
    return assemble(parts, tuple(files))


def plan_reading(files: Mapping[str, FileFact], where: str) -> Plan | None:
    """tokenizer.json says everything; else plain files (their ids are the model's), SentencePiece, tiktoken."""
    if TOKENIZER in files:
        return Plan((TOKENIZER,), tuple(name for name in (CONFIG,) if name in files))
    main = _main_files(files)
    if main is None:
        return None
    if "bpe.codes" in files and main[0] == "vocab.txt":
        raise UnsupportedFormat(
            "vocab.txt with bpe.codes (fastBPE) is not read", where=where, hint=f"save the tokenizer as {TOKENIZER}"
        )
    return Plan(main, tuple(name for name in (ADDED, SPECIAL_MAP, CONFIG) if name in files))


def _main_files(files: Mapping[str, FileFact]) -> tuple[str, ...] | None:
    pieces = next((name for name in SENTENCEPIECE if name in files), None)
    tiktoken = next((name for name in sorted(files) if name.endswith(TIKTOKEN) and "/" not in name), None)
    if "vocab.json" in files and "merges.txt" in files:
        return "vocab.json", "merges.txt"
    if pieces == "tokenizer.model":
        return (pieces,)
    for vocab in ("vocab.json", "vocab.txt"):
        if vocab in files:
            return (vocab, pieces) if pieces else (vocab,)
    single = pieces or tiktoken
    return (single,) if single else None


def _fetched(source: Source, names: tuple[str, ...]) -> dict[str, TokenizerFile]:
    facts = source.files()
    for name in names:
        if facts[name].size > MAX_FILE:
            raise TokenizerFile(name, b"", source.id).lies(
                f"has {facts[name].size} bytes; at most {MAX_FILE} are read", hint="no known tokenizer is that large"
            )
    bodies = source.read([Extent(name, 0, facts[name].size) for name in names], "file")
    files = {name: TokenizerFile(name, bytes(body), source.id) for name, body in zip(names, bodies, strict=True)}
    for file in files.values():
        if file.body.startswith(LFS_POINTER):
            raise file.lies("is a Git LFS pointer, not the file", hint="fetch the file itself: git lfs pull")
    return files


def _read(plan: Plan, files: dict[str, TokenizerFile], config: dict[str, Any]) -> Parts:
    first = files[plan.main[0]]
    second = files[plan.main[1]] if len(plan.main) > 1 else None
    if first.name == TOKENIZER:
        return read_tokenizer_json(first)
    if first.name == "vocab.json":
        if second is not None and second.name == "merges.txt":
            return read_vocab_and_merges(first, second)
        return read_vocab_json(first, second)
    if first.name == "vocab.txt":
        return read_vocab_txt(first, second)
    if first.name.endswith(TIKTOKEN) or is_tiktoken(first.body):
        return read_tiktoken(first)
    tokenizer_class = config.get("tokenizer_class")
    return read_spm(first, tokenizer_class if isinstance(tokenizer_class, str) else "")
