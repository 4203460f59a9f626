"""Two vocabularies side by side, a fact a row. It says which tokens can be compared, and never convicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from modelkin.metrics import Unmeasurable, centred_cosine_similarity, spearman_similarity
from modelkin.questions.tokenizer import tokenizer_facts
from modelkin.records import Table
from modelkin.records.survey import Value
from modelkin.survey.reading import Collected, Model
from modelkin.vocabulary import Vocabulary, facts
from modelkin.vocabulary.scripts import SCRIPTS, script_class

COLUMNS = ("a", "b", "fact", "value")
SIDES = ("a", "b")

Row = tuple[Value, ...]
Fact = tuple[str, Value]


def vocabulary_table(collected: Collected) -> list[Table]:
    """`vocabulary`, of pairs that both have a tokenizer; no table where none has."""
    rows: list[Row] = []
    for a, b in collected.pairs():
        mine, theirs = _vocabulary(collected, a), _vocabulary(collected, b)
        if mine is not None and theirs is not None:
            rows += [(a.label, b.label, *fact) for fact in vocabulary_facts(mine, theirs)]
    if not rows:
        return []
    pairs = len({row[:2] for row in rows})
    return [
        Table(
            name="vocabulary",
            title="Vocabularies",
            caption=f"{pairs} pairs of vocabularies, ordinary tokens matched by their bytes, so that another spelling "
            "of a space is no difference; scripts are told from decoded bytes. id_offset.N: shared tokens of two bytes "
            "and more whose id in b is N higher; longest_run: the longest run of such tokens with neighbouring ids in "
            "both. high_ids: tokens of the larger vocabulary beyond the last id of the smaller.",
            strangers="vocabularies learnt apart from like text share a third to a half of their tokens, and ids of "
            "shared tokens correlate (0.45 has been published), because frequent tokens come first in both; the same "
            "tokenizer may be taken over without a weight: no fact here speaks for descent",
            columns=COLUMNS,
            rows=tuple(rows),
        )
    ]


def _vocabulary(collected: Collected, model: Model) -> Vocabulary | None:
    found = model.anatomy.checkpoint.vocabulary
    if found is None or not found.tokens:
        collected.leave_out(f"{model.label} has no tokenizer, so its vocabulary is not compared")
        return None
    return found


def vocabulary_facts(a: Vocabulary, b: Vocabulary) -> list[Fact]:
    found = tokenizer_facts(a, b)
    offsets = found.pop("id_offsets")
    return [
        *_flat(found),
        *((f"id_offset.{offset:+d}", count) for offset, count in offsets),
        *_ids(a, b),
        *(fact for side, it in zip(SIDES, (a, b), strict=True) for fact in _own(side, it)),
        *_high_ids(a, b),
    ]


def _flat(found: Mapping[str, Any], before: str = "") -> Iterator[Fact]:
    """Nested facts with dotted names; of two values in a list the first is a's."""
    for name, value in found.items():
        full = f"{before}{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{full}.")
        elif name == "names":
            yield full, " ".join(value)
        elif isinstance(value, list):
            yield from ((f"{full}.{side}", one) for side, one in zip(SIDES, value, strict=True))
        else:
            yield full, value


def _ids(a: Vocabulary, b: Vocabulary) -> Iterator[Fact]:
    """Single bytes are in every byte-level vocabulary in one order, so they do not count."""
    shared = sorted((a.ids[token], b.ids[token]) for token in a.ids.keys() & b.ids.keys() if len(token) > 1)
    places = np.array(shared, dtype=np.float64).reshape(-1, 2)
    for name, measure in (("id_pearson", centred_cosine_similarity), ("id_spearman", spearman_similarity)):
        try:
            yield name, measure(places[:, 0], places[:, 1])
        except Unmeasurable:
            yield name, None
    yield "longest_run", longest_run(shared)


def longest_run(ids: Iterable[tuple[int, int]]) -> int:
    """How many pairs at most follow each other, both ids rising by one.  Sorted pairs of ids."""
    longest = length = 0
    before: tuple[int, int] | None = None
    for one in ids:
        length = length + 1 if before is not None and one == (before[0] + 1, before[1] + 1) else 1
        longest, before = max(longest, length), one
    return longest


def _own(side: str, vocabulary: Vocabulary) -> Iterator[Fact]:
    own = facts(vocabulary)
    yield f"highest_id.{side}", own.highest_id
    yield f"gaps.{side}", own.gaps
    yield f"byte_tokens.{side}", own.byte_tokens
    yield from ((f"scripts.{side}.{script}", count) for script, count in own.scripts.items() if count)


def _high_ids(a: Vocabulary, b: Vocabulary) -> Iterator[Fact]:
    ends = max(a.tokens), max(b.tokens)
    if ends[0] == ends[1]:
        return
    side, larger, end = ("a", a, ends[1]) if ends[0] > ends[1] else ("b", b, ends[0])
    high = [token for token, id in larger.ids.items() if id > end]
    counts = Counter(map(script_class, high))
    yield f"high_ids.{side}", len(high)
    yield from ((f"high_ids.{side}.{script}", counts[script]) for script in SCRIPTS if counts[script])
