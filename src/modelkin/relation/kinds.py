"""What was done: the kinds that hold, those that change the shape first. More than one may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from modelkin.records.naming import short_names
from modelkin.records.relation import KindFound, Merge, PartShare, TensorFact, TokenFacts, Triplet
from modelkin.relation.depth import Depth
from modelkin.relation.experts import Upcycling
from modelkin.relation.learned import inherited
from modelkin.relation.narrowing import Narrowing
from modelkin.relation.reading import MLP
from modelkin.relation.tensors import gains, linear
from modelkin.relation.values import nothing_learnt, values_kinds

WHOLE = 0.75  # share of the body that must be inherited for the whole to count as continued
FEWEST_TOKENS, TOKENS = 8, 0.01  # tokens more or less, that are surgery
FREE = 0.1  # what is left of a matrix that is the other's but for numbers that may be any
SEED_GAINS = 0.35  # correlation of gains up to which only a seed may be shared
SOME_ROWS = 1e-6
EXPLAINED = 0.1  # of the way to the nearest source, left over by a mixture that is all there is
EVEN_ODDS = 0.5  # of two readings that nothing tells apart
UNMIXED = (
    "nothing is explained; by siblings without part in it a tenth, by checkpoints before and after it half or more"
)
IN_PART = "weights are near 0, and differ from matrix to matrix"
LAST = "its values are rounded where these put them and theirs are not, so that it was computed from them"
DROPPED = "entry by entry these give its values and it does not give theirs, so that it was computed from them"


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that kinds are told by. `body`: share of the matrices and gains inside the layers."""

    facts: Sequence[TensorFact]
    body: PartShare | None
    complete: bool  # every tensor of either model faces one of the other
    tokens: TokenFacts | None = None
    tokens_known: bool = False
    depth: Depth | None = None
    narrow: Narrowing | None = None
    experts: Upcycling | None = None
    merge: Merge | None = None
    triplets: Sequence[Triplet] = ()
    disguises: Sequence[str] = ()
    reordered: bool = False  # layers stand in another order


def kinds(found: Findings) -> tuple[KindFound, ...]:
    plain = found.complete and not found.disguises and not found.reordered
    if plain and all(fact.same == 1 for fact in found.facts):
        return (_renumbered(found.tokens) or _all_equal(found.facts),)
    shape = [kind for kind in (_merge(found), _obfuscated(found), *_structure(found)) if kind]
    if found.merge is not None and found.merge.last is not None and found.merge.unexplained < EXPLAINED:
        return tuple(shape)
    if found.merge is None and _shared_init(found):  # a tenth of a mixture looks like a shared beginning
        return (*shape, _seed(found))
    sibling = _shared_ancestor(found) if found.merge is None else None
    return (*([sibling] if sibling else []), *shape, *_body_kinds(found)) or (_undetermined(),)


def _body_kinds(found: Findings) -> list[KindFound]:
    """What became of the whole; or, where it was not taken over, of its parts."""
    words = _vocabulary(found)
    if not _continued(found) or (words is None and _some_replaced(found.facts)):
        return _component(found)
    values = values_kinds(found.facts, bool(found.disguises), found.narrow is not None)
    return [*([words] if words else []), *values]


def _some_replaced(facts: Sequence[TensorFact]) -> bool:
    """Some matrices are none of the other's, and all that are its are so to the bit: nothing was trained on."""
    matrices = [fact for fact in facts if len(fact.shape) == 2]
    kept = inherited(matrices)
    free = [fact for fact in matrices if fact.refitted is not None and fact.refitted <= FREE]
    is_all = len({id(fact) for fact in (*kept, *free)}) == len(matrices)
    return bool(kept) and not is_all and all(fact.same == 1 for fact in kept)


def _all_equal(facts: Sequence[TensorFact]) -> KindFound:
    strangers = "two models trained apart share no matrix"
    if all(fact.dtype_a == fact.dtype_b for fact in facts):
        return KindFound("identical", None, "every tensor is the same to the bit", strangers)
    formats = sorted({f"{fact.dtype_a} and {fact.dtype_b}" for fact in facts if fact.dtype_a != fact.dtype_b})
    return KindFound("re-encoded", None, f"the same values, stored as {', '.join(formats)}", strangers)


def _renumbered(tokens: TokenFacts | None) -> KindFound | None:
    """The same model whose tokens have other numbers: the same rows, in another order."""
    if tokens is None or not tokens.moved_ids:
        return None
    why = f"every value is the same, but {tokens.moved_ids:,} of {tokens.shared:,} tokens have another number"
    return KindFound("obfuscated", None, why, "two models trained apart share no matrix")


def _continued(found: Findings) -> bool:
    """Whether the model as a whole goes on from the other."""
    if found.experts is not None and found.experts.holds:
        return True
    return found.body is not None and found.body.fraction >= WHOLE


# What changed the shape.


def _obfuscated(found: Findings) -> KindFound | None:
    if found.disguises:
        return KindFound("obfuscated", None, "; ".join(found.disguises), "no coordinates are found in which they agree")
    if found.reordered:
        return KindFound("obfuscated", None, "layers stand in another order", "no layer continues another")
    return None


def _structure(found: Findings) -> list[KindFound]:
    kinds = []
    if found.experts is not None and found.experts.holds:
        share, dense = found.experts.share, found.experts.dense_neurons
        words = {"copied": "copies of the MLP", "split": "parts of the MLP", "partly": "copies of the MLP, partly new"}
        why = f"experts are {words[found.experts.how]}: {share:.0%} of their neurons are recognised in it in two ways"
        kinds.append(KindFound("moe-upcycle", None, why, f"one in {dense} neurons is"))
    if found.depth is not None:
        kinds.append(KindFound(found.depth.kind, None, found.depth.why, "no layer continues another"))
    if found.narrow is not None:
        axes = len(found.narrow.axes)
        order = "in their order" if np.all(np.diff(found.narrow.axes) > 0) else "in another order"
        why = f"{found.narrow.found} of {axes} hidden axes are recognised in two ways in the wider model, {order}"
        if found.disguises:  # by then both have the axes of a
            why = "one has fewer neurons or hidden axes, and those are the other's"
        kinds.append(KindFound("width-prune", None, why, "about one axis is"))
    return kinds


def _vocabulary(found: Findings) -> KindFound | None:
    tokens = found.tokens
    if tokens is None:
        return None
    alone = tokens.only_a + tokens.only_b
    if not found.tokens_known:
        if not alone:
            return None
        why = f"{tokens.tokens_a} rows of the vocabulary beside {tokens.tokens_b}, and no tokenizer that says which"
        return KindFound("vocabulary-surgery", None, why, "sizes say nothing between strangers")
    if alone < max(FEWEST_TOKENS, TOKENS * min(tokens.tokens_a, tokens.tokens_b)):
        return None
    rows = "" if tokens.found is None else f"; of the rows of shared tokens {tokens.found:.0%} find each other"
    why = f"{tokens.shared:,} tokens shared, {tokens.only_a:,} only in A, {tokens.only_b:,} only in B{rows}"
    return KindFound("vocabulary-surgery", None, why, "of the rows of shared tokens one finds its own")


def _merge(found: Findings) -> KindFound | None:
    merge = found.merge
    if merge is None:
        return None
    called = short_names((merge.merged, merge.base, *merge.sources))
    if merge.missing_parent:
        return KindFound("merge", EVEN_ODDS, _in_part(merge, called), IN_PART)
    parts = ", ".join(f"{w:.2f} {called[name]}" for w, name in zip(merge.weights, merge.sources, strict=True))
    method = " or ".join((merge.method, *merge.same_as))
    if merge.last is None:
        return KindFound("merge", EVEN_ODDS, _either(merge, called[merge.merged], method, parts), UNMIXED)
    nearest = "the nearest" if merge.base is None else f"the base {called[merge.base]}"
    alike = "; at this angle the two methods are the same to rounding" if merge.same_as else ""
    taken_off = ", what weighs less than 0 was taken off" if min(merge.weights) < 0 else ""
    why = (
        f"{called[merge.merged]} is a mixture ({method}{taken_off}): {parts}; explains {merge.gain:.0%} of the way to "
        f"{nearest}{alike}; {DROPPED if merge.base else LAST}"
    )
    return KindFound("merge", None, why, UNMIXED)


def _in_part(merge: Merge, called: Mapping[str, str]) -> str:
    """What opposed directions and even weights say while something is left over, whoever came first."""
    return (
        f"either {called[merge.merged]} is a mixture that those given do not explain in full, with "
        f"{', '.join(called[name] for name in merge.sources)} or near relatives in it (a parent is missing, changes "
        "were dropped, or it was trained on after merging); or nothing was mixed: it is a checkpoint on the way from "
        "one model to another that was trained in one direction, or it was trained for long and every matrix shrank "
        "alike; "
        f"{'; '.join(merge.marks)}; {merge.unexplained:.0%} of the way to the nearest is left over, which is more than "
        "rounding; which it is cannot be told from this, nor an order, nor any weights while a part is left over"
    )


def _either(merge: Merge, name: str, method: str, parts: str) -> str:
    """What equal layers and places on one line say, whoever came first."""
    if merge.method == "passthrough":
        return (
            f"every layer of {name} is a layer of one of the others ({parts}): either it was stacked from them "
            "(passthrough), or these come from it and had other layers trained; that layers are equal does not tell "
            "which"
        )
    return (
        f"some of the models lie on one line or in one plane: either {name} is a mixture ({method}): {parts}; or one "
        "of these was made from it, as one is that was trained on in one direction, moved on or had a task taken off; "
        "how their values are rounded does not tell which"
    )


def _shared_ancestor(found: Findings) -> KindFound | None:
    star = next((t for t in found.triplets if t.shape == "star"), None)
    if star is None:
        return None
    why = f"A, B and {short_names([star.third])[star.third]} come from a model that is none of the three"
    return KindFound("shared-ancestor", None, why, "strangers have no common point")


def _shared_init(found: Findings) -> bool:
    """Rows agree and constants do not: gains start at one in every model, so a seed cannot make them alike."""
    body, ones = linear(found.facts), gains(found.facts)
    spectra = [fact.spectra for fact in body if fact.spectra is not None]
    if not spectra or not ones or any(fact.correlation is None for fact in ones) or nothing_learnt(body):
        return False
    if any(fact.same == 1 for fact in body):  # training apart leaves no matrix the same
        return False
    alike = float(np.median([fact.correlation or 0.0 for fact in body]))
    bulk, outliers = (float(np.median([getattr(s, name) for s in spectra])) for name in ("bulk", "outliers"))
    same = float(np.median([fact.correlation or 0.0 for fact in ones]))
    return alike > 0.02 and same < min(SEED_GAINS, alike + 0.1) and bulk >= outliers - 0.02 and _many_rows(body)


def _many_rows(body: Sequence[TensorFact]) -> bool:
    rows = [fact.found / fact.rows for fact in body if fact.rows >= 2 and fact.role in MLP]
    return bool(rows) and float(np.median(rows)) > 0.1


def _seed(found: Findings) -> KindFound:
    ones = float(np.median([fact.correlation or 0.0 for fact in gains(found.facts)]))
    bulk = float(np.median([f.spectra.bulk for f in linear(found.facts) if f.spectra is not None]))
    why = f"matrices agree in their bulk (cosine {bulk:.2f}), gains, which no seed can share, do not (r {ones:.2f})"
    return KindFound("shared-init", None, why, "both are near zero; new gains would look the same")


def _component(found: Findings) -> list[KindFound]:
    """Parts alone: whole tensors, or rows of them that are too many for chance."""
    by_role: dict[str, list[TensorFact]] = {}
    for fact in found.facts:
        by_role.setdefault(fact.role.value, []).append(fact)
    whole = {fact.role.value for fact in inherited(found.facts)}
    parts = [role for role, facts in by_role.items() if role in whole or _beyond_chance(facts)]
    if not parts:
        return []
    share = 0.0 if found.body is None else found.body.fraction
    why = f"{share:.1%} of what is inside the layers is shared; found are {', '.join(sorted(parts))}"
    return [KindFound("component-reuse", None, why, "nothing: of the rows of a tensor one finds its own")]


def _beyond_chance(facts: Sequence[TensorFact]) -> bool:
    """More rows than one a tensor, by Poisson's law."""
    asked = [fact for fact in facts if fact.rows >= 2]
    count = sum(fact.found for fact in asked)
    return bool(asked) and count > 0 and float(gammainc(count, len(asked))) < SOME_ROWS


def _undetermined() -> KindFound:
    return KindFound("undetermined", None, "nothing that was read tells what was done", "the same")
