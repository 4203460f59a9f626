"""What two tokenizers have in common. It says which tokens can be compared, and never convicts."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from modelkin.errors import UnreadableError
from modelkin.questions.question import Pair
from modelkin.records import Json
from modelkin.vocabulary import Vocabulary
from modelkin.vocabulary.facts import FIRST_MERGES, merges_sha256
from modelkin.vocabulary.scripts import SCRIPTS, script_class

OFFSETS = 10
SHOWN = 64  # names of special and added tokens listed at most


def tokenizers_of(pair: Pair) -> Json | None:
    """Of two models; None where one has no tokenizer, or one that cannot be read."""
    try:
        a, b = pair.a.checkpoint.vocabulary, pair.b.checkpoint.vocabulary
    except UnreadableError:  # the question that needs them says why
        return None
    return tokenizer_facts(a, b) if a is not None and b is not None else None


def tokenizer_facts(a: Vocabulary, b: Vocabulary) -> Json:
    """Two vocabularies side by side, ordinary tokens by content, so that another spelling of a space is no difference.

    `id_offsets` are the commonest differences (id in b minus id in a) of shared tokens, each with its count: one that
    nearly all share is a block moved as a whole. The 256 single bytes are in every byte-level vocabulary in one order,
    so they are left out there.
    """
    shared = a.ids.keys() & b.ids.keys()
    smaller, union = min(len(a.ids), len(b.ids)), len(a.ids.keys() | b.ids.keys())
    offsets = Counter(b.ids[token] - a.ids[token] for token in shared if len(token) > 1)
    return {
        "kinds": [a.kind, b.kind],
        "sizes": [len(a.tokens), len(b.tokens)],
        "ordinary": [len(a.ids), len(b.ids)],
        "shared": len(shared),
        "jaccard": len(shared) / union if union else 0.0,
        "overlap": len(shared) / smaller if smaller else 0.0,
        "same_ids": sum(a.ids[token] == b.ids[token] for token in shared),
        "id_offsets": [[offset, count] for offset, count in _commonest(offsets)],
        "merges": _merges(a.merges, b.merges),
        "special": _names(a.special, b.special),
        "added": _names(a.added, b.added),
        "scripts_only_a": _scripts(a.ids.keys() - shared),
        "scripts_only_b": _scripts(b.ids.keys() - shared),
    }


def _commonest(offsets: Counter[int]) -> list[tuple[int, int]]:
    """Most frequent first, of equals the smallest: sets have no order that could be repeated."""
    return sorted(offsets.items(), key=lambda item: (-item[1], abs(item[0]), item[0]))[:OFFSETS]


def _merges(a: Sequence[str], b: Sequence[str]) -> Json:
    """`order` is the share of shared merges that stand in one order in both: the longest increasing run of places."""
    places = {merge: place for place, merge in enumerate(b)}
    common = [places[merge] for merge in dict.fromkeys(a) if merge in places]
    return {
        "lengths": [len(a), len(b)],
        "sha256_first1000": [merges_sha256(a[:FIRST_MERGES]), merges_sha256(b[:FIRST_MERGES])],
        "sha256_all": [merges_sha256(a), merges_sha256(b)],
        "shared": len(common),
        "same_start": _same_start(a, b),
        "order": _longest_increasing(common) / len(common) if common else None,
    }


def _same_start(a: Sequence[str], b: Sequence[str]) -> int:
    """Merges equal from the first on: an extended tokenizer keeps all of the shorter one's."""
    return next((i for i, (left, right) in enumerate(zip(a, b, strict=False)) if left != right), min(len(a), len(b)))


def _longest_increasing(values: Sequence[int]) -> int:
    """Length of the longest increasing subsequence. [Schensted 1961]"""
    ends: list[int] = []
    for value in values:
        place = bisect_left(ends, value)
        ends[place : place + 1] = [value]
    return len(ends)


def _names(a: dict[str, int], b: dict[str, int]) -> Json:
    common = sorted(a.keys() & b.keys())
    return {
        "counts": [len(a), len(b)],
        "shared": len(common),
        "same_ids": sum(a[name] == b[name] for name in common),
        "names": common[:SHOWN],
    }


def _scripts(tokens: Iterable[bytes]) -> dict[str, int]:
    counts = Counter(map(script_class, tokens))
    return {script: counts[script] for script in SCRIPTS if counts[script]}
