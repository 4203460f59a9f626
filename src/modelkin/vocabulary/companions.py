"""The small files beside a vocabulary: tokens added later, and which tokens are special."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modelkin.vocabulary.files import MAX_ID, Ids, TokenizerFile
from modelkin.vocabulary.record import Parts

ADDED = "added_tokens.json"
SPECIAL_MAP = "special_tokens_map.json"
CONFIG = "tokenizer_config.json"
NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
FIELDS = (*(f"{name}_token" for name in NAMED), "additional_special_tokens", "extra_special_tokens")


def with_companions(parts: Parts, files: dict[str, TokenizerFile], config: dict[str, Any]) -> None:
    """Adds to `parts` what the files say. An id given earlier stays: tokenizer.json, added_tokens.json, the config."""
    if ADDED in files:
        parts.added = files[ADDED].json(Ids) | parts.added
    if SPECIAL_MAP in files:
        parts.special.update(_special_names(files[SPECIAL_MAP].json_object()))
    parts.special.update(_special_names(config))
    for id, name, special in _decoder_entries(files, config):
        parts.added.setdefault(name, id)
        if special:
            parts.special.add(name)


def _special_names(fields: dict[str, Any]) -> Iterator[str]:
    """A name is a string, or an object with the string as its content; some fields hold a list or object of them."""
    waiting = [fields.get(field) for field in FIELDS]
    while waiting:
        match waiting.pop():
            case str(name) | {"content": str(name)}:
                yield name
            case list() as members:
                waiting += members
            case dict() as members:
                waiting += members.values()


def _decoder_entries(files: dict[str, TokenizerFile], config: dict[str, Any]) -> Iterator[tuple[int, str, bool]]:
    entries = config.get("added_tokens_decoder")
    if entries is None:
        return
    if not isinstance(entries, dict):
        raise files[CONFIG].lies("has added_tokens_decoder that is not an object")
    for key, entry in entries.items():
        match entry:
            case {"content": str(name)} if key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= MAX_ID:
                yield int(key), name, entry.get("special") is True
            case _:
                raise files[CONFIG].lies(f"has {key[:80]!r} in added_tokens_decoder that is not an id and a token")
