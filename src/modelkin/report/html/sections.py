"""What the sections of the page hold, taken from a comparison; no words and no markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

import msgspec

from modelkin.errors import UnreadableError
from modelkin.records import Assumption, Beside, Comparison, Evidence, Json, LayerFinding, Unanswered
from modelkin.records.relation import Merge, Relation, TensorFact
from modelkin.report.comparison_text import ORDINARY, UNMASKED, counts, fails, pvalue_text
from modelkin.report.lineage import rests_on

LAYER = re.compile(r"([A-Za-z_]+\.)?[0-9]{1,6}")
# Questions whose layers hold a count of parts that found themselves, and those that hold a mean correlation.
COUNTED = (UNMASKED, "neurons", "layer-map", "every-neuron", "attention", "experts")
COVERAGE = "coverage"
# What stands among the assumptions of a record and is none: how a thing was measured, what was left out.
REMARK = re.compile(r"for comparison only:|controls:|held against |extrapolated:|sha256 as |\d[\d,]* [a-z ]+ left out:")
CORRELATED = ("hidden-axes-by-gains", "pooled-rows")
HEADLINES = {
    "component-reuse": "related_in_part",
    "shared-init": "common_start",
    "shared-ancestor": "common_ancestor",
    "identical": "identical",
}
PLACES = ("hidden", "neurons", "heads", "experts", "layers")
Facts = TypeVar("Facts", bound=msgspec.Struct)
FITS = 0.5  # of a tensor that is left over when its free numbers are fitted; between strangers most of it
Standing = Literal["counts", "chance", "ordinary", "fails", "no_grade", "none"]


class TokenizerFacts(msgspec.Struct, frozen=True):
    """What the page says of two vocabularies, out of much more."""

    ordinary: tuple[int, int]
    shared: int
    same_ids: int


class Placing(msgspec.Struct, frozen=True):
    """Where the weights of b were found in a."""

    hidden: str | None = None
    neurons: str | None = None
    heads: str | None = None
    experts: str | None = None
    layers: str | None = None
    undone: tuple[str, ...] = ()


class Judged(msgspec.Struct, frozen=True):
    """A layer in which neurons were looked for with disguises undone: how many two and three ways agree on."""

    a: str
    b: str
    n: int
    blocks: int
    two: int
    three: int


class HeldOut(msgspec.Struct, frozen=True):
    layers: tuple[Judged, ...] = ()


class Undisguised(msgspec.Struct, frozen=True):
    held_out: HeldOut = HeldOut()

    @property
    def score(self) -> float | None:
        """Agreements a set, as the controls are counted."""
        sets = sum(layer.blocks for layer in self.held_out.layers)
        return sum(layer.two + layer.three for layer in self.held_out.layers) / sets if sets else None


@dataclass(frozen=True, slots=True)
class LayerMap:
    """Layers of b with the layer of a that each matches; `left_over` and `repeated` name layers of a."""

    pairs: tuple[tuple[str, str | None], ...]
    findings: dict[tuple[str, str], LayerFinding]
    diagonal: bool
    matched: int
    repeated: tuple[str, ...]
    left_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was answered: how its p is shown, and whether it counts."""

    answer: Evidence
    standing: Standing
    p: str

    @property
    def order(self) -> float:
        """For sorting by p: what has none comes last."""
        known = self.answer.log10_pvalue
        return 1.0 if known is None else known


def headline(comparison: Comparison) -> str:
    """The outcome in a word or two. The first kind may say that it is not descent, or not of the whole."""
    verdict = comparison.verdict
    if verdict.outcome != "related" or not verdict.kinds:
        return verdict.outcome
    return HEADLINES.get(verdict.kinds[0].kind, verdict.outcome)


def evidence(comparison: Comparison) -> list[Evidence]:
    return [answer for answer in comparison.answers if isinstance(answer, Evidence)]


def asked(comparison: Comparison) -> list[Asked]:
    found = []
    for answer in evidence(comparison):
        known, standing = answer.log10_pvalue, standing_of(answer)
        # What rests on nothing, or was only asked to inform, has no p that may be read as a chance.
        hidden = known is None or standing in ("fails", "no_grade")
        found.append(Asked(answer, standing, "" if known is None or hidden else pvalue_text(known)))
    return found


def standing_of(answer: Evidence) -> Standing:
    """What a p is worth: a small one that does not count needs a word beside it, lest it read as a suspicion."""
    if fails(answer):
        return "fails"
    if answer.log10_pvalue is None:
        return "none"
    if answer.log10_pvalue > ORDINARY:
        return "ordinary"
    if answer.grade is None:
        return "no_grade"
    return "counts" if counts(answer) else "chance"


def not_asked(comparison: Comparison) -> dict[str, list[str]]:
    """Reason to questions: what cannot be asked, often cannot be asked of several things at once."""
    reasons: dict[str, list[str]] = {}
    for answer in comparison.answers:
        if isinstance(answer, Unanswered):
            reasons.setdefault(answer.unanswered, []).append(answer.question)
    return reasons


def layer_map(comparison: Comparison) -> LayerMap | None:
    pairs = comparison.verdict.layer_map
    if not pairs:
        return None
    met = Counter(a for _, a in pairs if a is not None)
    findings = {
        (finding.b, finding.a): finding
        for answer in evidence(comparison)
        if answer.question in ("unmasked-neurons", "every-neuron", "layer-map") and rests_on(comparison, answer)
        for finding in answer.per_layer
    }
    return LayerMap(
        pairs=pairs,
        findings=findings,
        diagonal=comparison.a.layers == comparison.b.layers and all(a == b for b, a in pairs),
        matched=sum(met.values()),
        repeated=tuple(name for name, times in met.items() if times > 1),
        left_over=_left_over(met, comparison.a.layers),
    )


def _left_over(met: Counter[str], layers: int | None) -> tuple[str, ...]:
    """Only where layers are numbered from 0: the names of two stacks are not known from their number."""
    if not all(name.isdecimal() for name in met) or (layers or 0) > 10_000:
        return ()
    return tuple(str(i) for i in range(layers or 0) if str(i) not in met)


def per_layer(comparison: Comparison, questions: Sequence[str]) -> Iterator[tuple[Evidence, LayerFinding]]:
    """Findings that belong to a layer, of answers that may count."""
    for answer in evidence(comparison):
        if answer.question in questions and standing_of(answer) != "fails":
            for finding in answer.per_layer:
                if finding.n > 0 and LAYER.fullmatch(finding.b):
                    yield answer, finding


def layer_order(names: Sequence[str]) -> list[str]:
    """By stack and number; what belongs to no layer first."""

    def place(name: str) -> tuple[str, int]:
        stack, _, number = name.rpartition(".")
        return stack, int(number) if number.isdecimal() else -1

    return sorted(dict.fromkeys(names), key=place)


def correlated_tensors(comparison: Comparison) -> list[TensorFact]:
    found = comparison.relation.tensors if comparison.relation else ()
    return [tensor for tensor in found if tensor.correlation is not None]


def stands_in_place(tensor: TensorFact, comparison: Comparison) -> bool:
    """Whether a correlation, place by place, says anything: not where a turn inside a head has hidden all likeness.

    Such rows are not found in place, and either nothing could be said of them or they fit once they are turned back.
    """
    left_out = {part.role for part in comparison.relation.not_compared} if comparison.relation else set()
    seen = tensor.found / tensor.rows if tensor.rows else abs(tensor.correlation or 0.0)
    fits = tensor.refitted is not None and tensor.refitted < FITS
    return seen > 0.5 or not (str(tensor.role) in left_out or fits)


def assumptions(comparison: Comparison) -> list[tuple[Assumption, list[str]]]:
    """Each once, with the questions that rest on it; those that do not hold first."""
    found: dict[Assumption, list[str]] = {}
    for assumption, question in _stated(comparison):
        if not REMARK.match(assumption.text):
            found.setdefault(assumption, []).append(question)
    return sorted(found.items(), key=lambda item: {False: 0, True: 1, None: 2}[item[0].held])


def remarks(comparison: Comparison) -> dict[str, list[str]]:
    """What the answers say beside their assumptions, with the questions that say it."""
    found: dict[str, list[str]] = {}
    for assumption, question in _stated(comparison):
        if REMARK.match(assumption.text):
            found.setdefault(assumption.text, []).append(question)
    return found


def _stated(comparison: Comparison) -> Iterator[tuple[Assumption, str]]:
    for answer in evidence(comparison):
        if answer.question != COVERAGE:
            yield from ((assumption, answer.question) for assumption in answer.assumptions)


def left_out(comparison: Comparison) -> list[str]:
    """What the questions did not look at: remarks, not assumptions, though a record keeps them in the same place."""
    answers = [answer for answer in evidence(comparison) if answer.question == COVERAGE]
    return [remark.text for answer in answers for remark in answer.assumptions]


def further_models(comparison: Comparison) -> list[str | None]:
    """Names that the relation gives to models."""
    found = comparison.relation
    merge = found.merge if found else None
    named = [] if merge is None else [merge.merged, merge.base, *merge.sources]
    return [*named, *(each.third for each in (found.triplets if found else ()))]


def agreement(found: Relation) -> dict[str, float]:
    """The middle correlation of matrices and of norm gains."""
    values = {
        "matrices": [fact.correlation for fact in found.tensors if len(fact.shape) == 2],
        "gains": [fact.correlation for fact in found.tensors if fact.role.is_gain],
    }
    known = {name: [value for value in some if value is not None] for name, some in values.items()}
    return {name: median(some) for name, some in known.items() if some}


def merge_rows(merge: Merge) -> list[tuple[str, str, str]]:
    """A source, its weight, and the least and most that it has in any layer; no weight while a parent is missing."""
    if merge.missing_parent:
        return [(source, "–", "–") for source in merge.sources]
    rows = []
    for place, (source, weight) in enumerate(zip(merge.sources, merge.weights, strict=False)):
        layers = [layer.weights[place] for layer in merge.layers if place < len(layer.weights)] or [weight]
        rows.append((source, f"{weight:.2f}", f"{min(layers):.2f} – {max(layers):.2f}"))
    return rows


def beside_questions(rows: Sequence[Beside]) -> dict[str, str]:
    """Questions that some row has a p for, with what strangers give."""
    given = [answer for row in rows for answer in row.answers if answer.log10_pvalue is not None]
    return {answer.question: answer.strangers or "" for answer in given}


def checked(comparison: Comparison) -> Comparison:
    """The same, once the parts that a record holds in free form are seen to be what `compare` writes."""
    tokenizer_facts(comparison)
    placing(comparison)
    undisguised(comparison)
    return comparison


def tokenizer_facts(comparison: Comparison) -> TokenizerFacts | None:
    return None if comparison.tokenizers is None else _converted(comparison.tokenizers, TokenizerFacts, "tokenizers")


def placing(comparison: Comparison) -> Placing | None:
    """None where nothing was found elsewhere than in its place."""
    if not comparison.alignment:
        return None
    found = _converted(comparison.alignment, Placing, "alignment")
    return None if found.hidden in (None, "none") else found


def undisguised(comparison: Comparison) -> Undisguised:
    return _converted(comparison.alignment or {}, Undisguised, "alignment")


def _converted(facts: Json, kind: type[Facts], where: str) -> Facts:
    try:
        return msgspec.convert(facts, kind)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"is no record of a comparison: {error}", where=where) from error
