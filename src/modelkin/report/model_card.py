"""The lines of a model card that name the base, for the owner of the descendant to paste. A proposal, never a finding.

The Hub knows four relations: finetune, adapter, merge and quantized. An adapter has no weights that could be compared
without its base, so it is never proposed here.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelkin.records import Comparison, Kind, Party, Relation
from modelkin.report.lineage import HUB_ID, NO_DESCENT, Descent, descent, on_the_hub

TRAINED: frozenset[Kind] = frozenset(("fine-tune", "continued-pretraining", "merged-lora"))
NOT_RELATED = "the two models were not found to be related"
NO_ORDER = "which of the two came first cannot be told from this comparison"
IN_PART = "only a part was found to be shared, or a common origin: neither model was found to descend from the other"
NO_NAME = "a base was read from disk, and the Hub knows bases by owner/name alone"
NO_WORD = "the Hub has no relation for what was done: it knows finetune, adapter, merge and quantized"
OPEN_MERGE = "it may be a merge, and not all of its parents were found among the candidates"
SAID = "the card of the descendant says so already"


def model_card_patch(comparison: Comparison) -> str | None:
    """YAML for the front matter of the descendant's README.md; None where the evidence does not carry it."""
    found = descent(comparison)
    if found is None or why_no_patch(comparison) is not None:
        return None
    bases, relation = _bases(comparison, found), _relation(comparison, found)
    names = "".join(f"- {base}\n" for base in bases)
    return f"base_model:\n{names}base_model_relation: {relation}\n"


def card_text(comparison: Comparison) -> str:
    """What is printed for the owner: the lines, or that there are none and why."""
    reason = why_no_patch(comparison)
    return f"No lines are proposed for a model card: {reason}." if reason else str(model_card_patch(comparison))


def why_no_patch(comparison: Comparison) -> str | None:
    """In words, why nothing is proposed; None where something is."""
    found, verdict = descent(comparison), comparison.verdict
    if verdict.outcome != "related":
        return NOT_RELATED
    if any(share.kind in NO_DESCENT for share in verdict.kinds) or verdict.direction == "neither":
        return IN_PART
    if found is None:
        return NO_ORDER
    relation = _relation(comparison, found)
    if relation is None:
        return NO_WORD
    bases = _bases(comparison, found)
    if not bases:
        return OPEN_MERGE if relation == "merge" and not _is_closed(comparison, found.descendant) else NO_NAME
    claims = found.descendant.claims
    return SAID if claims.relation == relation and set(bases) <= set(claims.base_model) else None


def _relation(comparison: Comparison, found: Descent) -> str | None:
    """More than one kind may hold: a mixture is a merge whatever else it is, and what was trained is no mere copy."""
    kinds = {share.kind for share in comparison.verdict.kinds}
    if "merge" in kinds:
        return "merge"
    if kinds & TRAINED:
        return "finetune"
    return "quantized" if "re-encoded" in kinds and _on_a_grid(comparison, found) else None


def _on_a_grid(comparison: Comparison, found: Descent) -> bool:
    """Whether most matrices of the descendant, and not those of the ancestor, lie on a grid of quantised numbers.

    The same kind also holds for casts and for zeroed values, which the Hub has no word for.
    """
    matrices = [fact for fact in comparison.relation.tensors if len(fact.shape) > 1] if comparison.relation else []
    grids = [(fact.lattice_a, fact.lattice_b) for fact in matrices]
    if found.descendant is comparison.a:
        grids = [(ancestor, child) for child, ancestor in grids]
    return 2 * sum(child is not None and ancestor is None for ancestor, child in grids) > len(grids)


def _bases(comparison: Comparison, found: Descent) -> Sequence[str]:
    """The names to point to; none where one is missing, for half a list would be a false one."""
    if any(share.kind == "merge" for share in comparison.verdict.kinds):
        return _parents(comparison, comparison.relation, found.descendant)
    return (found.ancestor.id,) if on_the_hub(found.ancestor) else ()


def _is_closed(comparison: Comparison, child: Party) -> bool:
    """Whether the child is a mixture all of whose parents were given, wherever they were read from."""
    merge = comparison.relation.merge if comparison.relation else None
    return merge is not None and merge.merged == merge.last == child.id


def _parents(comparison: Comparison, relation: Relation | None, child: Party) -> Sequence[str]:
    merge = relation.merge if relation else None
    if merge is None or not _is_closed(comparison, child):
        return ()
    known = {party.id for party in (comparison.a, comparison.b) if on_the_hub(party)}
    known |= {one.id for one in comparison.candidates if one.revision is not None and HUB_ID.fullmatch(one.id)}
    parents = tuple(dict.fromkeys((*merge.sources, *([merge.base] if merge.base else []))))
    return parents if set(parents) <= known else ()
