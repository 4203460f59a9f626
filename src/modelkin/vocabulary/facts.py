"""What can be said of one vocabulary in a few lines of JSON."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from modelkin.vocabulary.record import Kind, Vocabulary
from modelkin.vocabulary.scripts import SCRIPTS, script_class

FIRST_MERGES = 1000
SHOWN_BYTES = 256


class VocabularyFacts(msgspec.Struct, frozen=True):
    kind: Kind
    files: tuple[str, ...]
    entries: int  # ids that have a token
    base: int  # of the model's own vocabulary, before tokens were added
    added: int
    special: tuple[str, ...]  # by id
    merges: int
    merges_sha256_first1000: str | None  # None where there are no merges
    merges_sha256_all: str | None
    lowest_id: int
    highest_id: int
    gaps: int  # ids below the highest that have no token
    longest: str  # the longest ordinary token, its first 256 bytes
    longest_bytes: int
    byte_tokens: int  # of the 256 bytes, how many have a token of their own
    collisions: int
    scripts: dict[str, int]  # how many tokens of each class; they add up to `entries`


def facts(vocabulary: Vocabulary) -> VocabularyFacts:
    highest = max(vocabulary.tokens)
    longest = max(vocabulary.ids, key=len, default=b"")
    return VocabularyFacts(
        kind=vocabulary.kind,
        files=vocabulary.files,
        entries=len(vocabulary.tokens),
        base=len(vocabulary.base),
        added=len(vocabulary.added),
        special=tuple(vocabulary.special),
        merges=len(vocabulary.merges),
        merges_sha256_first1000=merges_sha256(vocabulary.merges[:FIRST_MERGES]),
        merges_sha256_all=merges_sha256(vocabulary.merges),
        lowest_id=min(vocabulary.tokens),
        highest_id=highest,
        gaps=highest + 1 - len(vocabulary.tokens),
        longest=longest[:SHOWN_BYTES].decode(errors="replace"),
        longest_bytes=len(longest),
        byte_tokens=len(vocabulary.byte_ids),
        collisions=vocabulary.collisions,
        scripts=_scripts(vocabulary),
    )


def merges_sha256(merges: Sequence[str]) -> str | None:
    """Over each merge and a newline, as the published figures were made."""
    if not merges:
        return None
    return hashlib.sha256(("\n".join(merges) + "\n").encode()).hexdigest()


def _scripts(vocabulary: Vocabulary) -> dict[str, int]:
    ordinary: Iterable[bytes] = chain(vocabulary.ids, vocabulary.collided.values())
    counts = Counter(map(script_class, ordinary))
    counts["special"] = len(set(vocabulary.special.values()))
    return {script: counts[script] for script in SCRIPTS}
