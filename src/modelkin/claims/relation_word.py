"""What a card says was done to its base (`base_model_relation`), beside what was found to have been done.

The Hub knows four words. Borne out is what the kinds say; contradicted only what they exclude: many things leave no
trace of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal

from modelkin.records import Side, Standing
from modelkin.records.relation import TensorFact

Stored = Literal["on a grid", "kept", "unclear"]
Finding = tuple[Standing, str]
TRAINED = frozenset({"fine-tune", "continued-pretraining", "merged-lora"})
MOST = 0.9  # of the matrices that changed
# Share of values that are the same to the bit. Rounding to eight bits, one scale for 32 values, leaves a quarter of
# normal bfloat16 numbers as they were, longer blocks and coarser grids fewer; training with small steps leaves most.
KEPT = 0.5
UNCHANGED: Finding = ("contradicted", "every tensor is the same to the bit, and nothing was changed")


def weighed_word(word: str, kinds: Collection[str], stored: Stored, order_is_told: bool) -> Finding:
    """`stored`: what the matrices of the claimant show of rounding. Without an order nothing is confirmed."""
    rule = RULES.get(_plain(word))
    if rule is None:
        return "cannot be told", "this is none of the words that the Hub has for it"
    standing, why = rule(frozenset(kinds), stored)
    if standing == "confirmed" and not order_is_told:
        return "not contradicted", f"{why}; which of the two came first is not told"
    return standing, why


def stored_by(facts: Sequence[TensorFact], side: Side) -> Stored:
    """Of the matrices of one side that differ from the other's."""
    changed = [fact for fact in facts if len(fact.shape) == 2 and fact.layer and fact.same < 1]
    if not changed:
        return "unclear"
    if sum(_is_on_a_grid(fact, side) for fact in changed) >= MOST * len(changed):
        return "on a grid"
    return "kept" if sum(map(_is_kept, changed)) >= MOST * len(changed) else "unclear"


def _is_on_a_grid(fact: TensorFact, side: Side) -> bool:
    mine, other = (fact.lattice_a, fact.lattice_b) if side == "a" else (fact.lattice_b, fact.lattice_a)
    cast = fact.cast_a if side == "a" else fact.cast_b
    return (mine is not None and other is None) or (cast or "").startswith("F8")


def _is_kept(fact: TensorFact) -> bool:
    """Neither rounded nor emptied, and many values as they were."""
    marks = (fact.lattice_a, fact.lattice_b, fact.cast_a, fact.cast_b)
    return not any(marks) and not (fact.emptied_a or fact.emptied_b) and fact.same >= KEPT


def _plain(word: str) -> str:
    return "".join(filter(str.isalpha, word.casefold()))


def _finetuned(kinds: frozenset[str], stored: Stored) -> Finding:
    del stored
    if "identical" in kinds:
        return UNCHANGED
    if "merge" in kinds:
        return "cannot be told", "it was found to be a mixture, which may have been trained as well"
    if kinds & TRAINED:
        return "confirmed", "what changed between the two is what training changes"
    if kinds == {"re-encoded"}:
        return "cannot be told", "values changed as rounding changes them; training that changes less would not be seen"
    return "cannot be told", "what was found does not show whether it was trained"


def _quantised(kinds: frozenset[str], stored: Stored) -> Finding:
    if "identical" in kinds:
        return UNCHANGED
    trained = kinds & TRAINED
    if stored == "on a grid" and not trained and "re-encoded" in kinds:
        return "confirmed", "its values are the other's, rounded to the grid of a quantiser"
    if stored == "on a grid":
        return (
            "not contradicted",
            "its values lie on the grid of a quantiser, but differ by more than rounding makes: training does that, "
            "and so do some quantisers",
        )
    if trained == kinds == {"merged-lora"}:
        return "contradicted", "what changed between the two has a low rank, which rounding never has"
    if trained and trained == kinds and stored == "kept":
        return (
            "contradicted",
            "many values are the same to the bit and the others lie on no grid, as training leaves them and rounding "
            "does not",
        )
    if "re-encoded" in kinds:
        return "cannot be told", "numbers are stored in another way, but on no grid of a quantiser that was seen"
    return "cannot be told", "its values lie on no grid that is known here: it was trained, or rounded in another way"


def _adapted(kinds: frozenset[str], stored: Stored) -> Finding:
    del stored
    if "merged-lora" in kinds:
        return "confirmed", "what changed between the two has a low rank, as a merged adapter leaves it"
    if "identical" in kinds:
        return "cannot be told", "every tensor is the same to the bit: an adapter, if there is one, is not merged in"
    return "cannot be told", "whole weights show an adapter only where nothing but changes of low rank was made"


def _merged(kinds: frozenset[str], stored: Stored) -> Finding:
    del stored
    if "identical" in kinds:
        return UNCHANGED
    if "merge" in kinds:
        return "confirmed", "the two and a candidate were found to be a mixture and its sources"
    return "cannot be told", "a mixture shows only beside its other sources (--candidates), and by rounding"


Rule = Callable[[frozenset[str], Stored], Finding]
RULES: dict[str, Rule] = {
    "finetune": _finetuned,
    "finetuned": _finetuned,
    "quantized": _quantised,
    "quantised": _quantised,
    "adapter": _adapted,
    "merge": _merged,
    "merged": _merged,
}
