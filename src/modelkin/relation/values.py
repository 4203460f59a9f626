"""What changed the values of a model that goes on as a whole: encoding, an adapter, or training, which is a matter of
degree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.special import ndtri

from modelkin.records import Kind
from modelkin.records.relation import KindFound, TensorFact
from modelkin.relation.elementwise import half_step
from modelkin.relation.inheritance import COMPUTED, stored_step
from modelkin.relation.learned import (
    NOISE,
    ZEROS,
    Fitted,
    degree_features,
    excess_by_part,
    excesses,
    fitted,
    inherited,
    moved,
)
from modelkin.relation.reading import LINEAR
from modelkin.relation.rounding import is_cast, is_filled
from modelkin.relation.tensors import gains, linear

NEARLY_ALL = 0.9
LOW_RANK = 4  # times smaller than the matrix, at least
NAMED = 0.2  # least probability of a kind that is named
NEAREST = 0.95  # share of values whose nearest grid value is stored, in a plain copy
APART = "matrices differ by 1.4 of their size"
GRIDS = "no tensor that was only trained lies on a grid, and none is a cast of a stranger's"
OTHER_FORMAT = "the same values, but for tiny ones that only one of the two formats can hold"
REARRANGED = "rounding, noise or an adapter before it was rearranged would look much the same"
LEARNT = 1.6  # the same of what was turned back: up to 1.5 by rounding alone
# Beside what a grid or zeros leave once turned back (median over matrices). Set on copies of one model; on copies of
# six others (Llama of two widths, Qwen3, GPT-2; int8, int4, half emptied; int8 and emptied in either order) these alone
# measured 0.75 to 1.68, for the turn was found from rounded values and is not exact. Fine-tuned before and rounded to
# int8, four measured 2.99 to 3.24 with the base first. What reinforcement learning changes (1.33 to 1.37), and under
# int4 fine-tuning too (1.0), is not told from it.
AS_ROUNDED = 2
# Times what rounding leaves. Quantisers that make good each error in the values that follow [Frantar and others 2022]
# move these as well: one small model, brought to 4 and 3 bits so, was 1.4 and 1.6 times as far off beyond it (medians;
# single matrices up to 2.3), without that 1.0. A little training before it would not be seen.
FEEDBACK = 2.0
DROWNED = (
    "what differs beyond that is less than twice what rounding leaves, and quantisers that make good their own errors "
    "leave as much: training before it, if there was any, is not told from this"
)
FEW_VALUES = 0.25  # share of zeros up to which they may be a step of few bits; of half of a matrix, somebody emptied it
FINE = 2.0**-8  # half a step of bfloat16: what is the same to such a step was put on no grid in between
OF_WHOLES = (
    "fine-tuning and continued pretraining differ in degree alone, and how likely either is was measured on models "
    "that were trained as a whole"
)
TAKEN_AWAY = 0.5  # of a difference, left over where free numbers are all that it is
# In half steps: 0.42 is what rounding once leaves of normal values, 0.60 twice.
ONE_ROUNDING = 0.2, 0.7
ROUGHEST = 0.5  # of its size; rounding to two bits changes a matrix by as much


def values_kinds(facts: Sequence[TensorFact], turned_back: bool = False, narrowed: bool = False) -> list[KindFound]:
    """`turned_back`: one of the two was rearranged, and what storing it again changed is no change by anybody.

    `narrowed`: one is a part of the other, and what it lacks may stand as zeros: nobody emptied it.
    """
    changed = [fact for fact in linear(facts) if fact.same < 1]
    if turned_back and (only_stored(facts) or _is_rounding(_left_over(changed))):
        return []
    if changed and all(map(_in_another_format, changed)):
        return [KindFound("re-encoded", None, OTHER_FORMAT, GRIDS)]
    encoded = _re_encoded(linear(facts), narrowed)
    if encoded is not None and (not changed or _only_encoded(changed) or (turned_back and _within_grid(changed))):
        return [encoded]
    if encoded is not None and not turned_back and _drowned(changed):
        return [msgspec.structs.replace(encoded, why=f"{encoded.why}; {DROWNED}")]
    more = [encoded] if encoded is not None else []
    if not changed:
        rest = [fact for fact in facts if fact.same < 1]
        scaled = narrowed and all(fact.difference <= stored_step(fact) for fact in rest)  # as another width asks for
        return more or ([] if scaled or not rest else [_other_parts()])
    if same := _same_function(changed):
        return [same] if all(stored_step(fact) <= FINE for fact in changed) else more or [same]
    if noise := _noise(changed):
        return more or [noise]
    adapter = _lora(facts, changed)
    return [*more, adapter] if adapter is not None else [*more, *_degree(facts, turned_back)]


def only_stored(facts: Sequence[TensorFact]) -> bool:
    """Whether matrices that go on changed no more than writing turned numbers down again changes them.

    Half the matrices by half a step of the coarser format at most, as rounding does once; nearly all by a whole one,
    for where values were mixed inside heads, mixing them back makes more of it.
    """
    body = linear(inherited(facts))
    return _is_rounding([fact.difference / stored_step(fact) for fact in body])


def _is_rounding(steps: Sequence[float]) -> bool:
    """`steps`: by how many half steps of its format each matrix changed."""
    return bool(steps) and float(np.median(steps)) <= 1 and sum(step <= 2 for step in steps) >= NEARLY_ALL * len(steps)


def nothing_learnt(body: Sequence[TensorFact]) -> KindFound | None:
    """Matrices changed, and only as choosing free numbers, rounding or noise change them."""
    changed = [fact for fact in body if fact.same < 1]
    return _same_function(changed) or _noise(changed)


def _left_over(changed: Sequence[TensorFact]) -> list[float]:
    """In half steps: what is left of matrices that are the other's, scaled or mixed where that does not matter."""
    return [fact.refitted / stored_step(fact) for fact in changed if fact.refitted is not None]


def _same_function(changed: Sequence[TensorFact]) -> KindFound | None:
    """Every matrix is the other's, scaled or mixed where that does not matter, up to what storing it anew changes."""
    asked = [fact for fact in changed if fact.refitted is not None]
    free = [fact for fact in asked if _chosen_freely(fact)]
    if not free or sum(_chosen_freely(fact) or is_cast(fact) for fact in asked) < NEARLY_ALL * len(asked):
        return None
    roles = ", ".join(dict.fromkeys(fact.role.value for fact in free))
    why = (
        f"what differs ({roles}) is the other's with rows and columns scaled, or mixed inside heads, up to rounding: "
        "as gains moved into matrices leave it, and nothing that was learnt"
    )
    return KindFound("re-encoded", None, why, "nearly all is left over")


def _chosen_freely(fact: TensorFact) -> bool:
    """Whether choosing free numbers alike leaves rounding, and rounding alone: less than that was learnt, or nothing.

    It must take most of the difference away, or a little training would pass for it. What is left is the rounding of
    the finer format, for what was computed from the coarser; or that of the coarser, for what was rounded to it.
    """
    if fact.refitted is None or fact.refitted > TAKEN_AWAY * fact.difference:
        return False
    fine, coarse = sorted(half_step(form) for form in (fact.dtype_a, fact.dtype_b))
    low, high = ONE_ROUNDING
    return fact.refitted <= max(COMPUTED, high * fine) or low * coarse <= fact.refitted <= high * coarse


def _noise(changed: Sequence[TensorFact]) -> KindFound | None:
    """Nearly all values changed, and in no direction more than noise does: nothing was learnt."""
    seen = _excess(changed)
    if seen is None or max(seen, *excess_by_part(changed).values(), 0.0) > NOISE:
        return None
    size, same = (float(np.median([getattr(fact, name) for fact in changed])) for name in ("difference", "same"))
    if size > ROUGHEST or same > 0.5:
        return None
    why = (
        f"matrices changed by {size:.2g} of their size and in no direction, as rounding to few bits or added noise "
        f"does (largest singular value {seen:.2f} of what noise reaches; after training 1.06 or more)"
    )
    return KindFound("re-encoded", None, why, APART)


def _excess(changed: Sequence[TensorFact]) -> float | None:
    """The median of what `spectra.excess` says of matrices that go on; None where too few were taken apart."""
    seen = [each for _, each in excesses(changed)]
    return float(np.median(seen)) if len(seen) > 1 else None


def _other_parts() -> KindFound:
    return KindFound("fine-tune", None, "every matrix inside the layers is the same to the bit", "none is")


def _re_encoded(body: Sequence[TensorFact], narrowed: bool) -> KindFound | None:
    grids = [fact.lattice_b or fact.lattice_a for fact in body if (fact.lattice_a is None) != (fact.lattice_b is None)]
    if len(grids) * 2 > len(body):
        (name, group), count = Counter((grid.name, grid.group) for grid in grids if grid).most_common(1)[0]
        why = f"{count} of {len(body)} matrices lie on the grid of {name}, one scale a {_group(group)}"
        return KindFound("re-encoded", None, why, GRIDS)
    casts = [fact.cast_b or fact.cast_a for fact in body if is_cast(fact)]
    if len(casts) * 2 > len(body):
        why = f"{len(casts)} of {len(body)} matrices are the other's rounded to {Counter(casts).most_common(1)[0][0]}"
        return KindFound("re-encoded", None, why, GRIDS)
    zeros = [abs(fact.zeros_b - fact.zeros_a) for fact in body]
    if zeros and not narrowed and float(np.median(zeros)) > ZEROS and _emptied(body):
        share = float(np.median(zeros))
        called = "pruned" if _plainly_emptied(body) or share > FEW_VALUES else "pruned, or rounded to few values"
        why = f"{called}: {share:.0%} of the values of one are zero and those of the other are not"
        return KindFound("re-encoded", None, why, "trained matrices hold no zeros")
    return None


def _group(group: str) -> str:
    return group if group in ("tensor", "row") else f"group of {group} values"


def _emptied(body: Sequence[TensorFact]) -> bool:
    """Set to zero, not grown from zero; or with so many zeros left that later training kept them."""
    return _plainly_emptied(body) or float(np.median([abs(fact.zeros_b - fact.zeros_a) for fact in body])) > 0.1


def _plainly_emptied(body: Sequence[TensorFact]) -> bool:
    return sum(fact.emptied_a or fact.emptied_b for fact in body) * 2 > len(body)


def _only_encoded(changed: Sequence[TensorFact]) -> bool:
    """Whether rounding or emptying is all that happened."""
    marks = [
        is_cast(fact)
        or (fact.nearest is not None and fact.nearest >= NEAREST and is_filled(fact))
        or (abs(fact.zeros_b - fact.zeros_a) > ZEROS and (fact.emptied_a or fact.emptied_b))
        for fact in changed
    ]
    return sum(marks) >= NEARLY_ALL * len(marks)


def _within_grid(changed: Sequence[TensorFact]) -> bool:
    """Whether what differs is no more than the grid or the zeros of the file leave once it is turned back."""
    body = inherited(changed)
    ratios = [fact.difference / fact.grid_noise for fact in body if fact.grid_noise]
    return len(ratios) * 2 > len(body) and float(np.median(ratios)) <= AS_ROUNDED


def _drowned(changed: Sequence[TensorFact]) -> bool:
    """Whether what is left beyond rounding to few values is too little beside it to be laid to training."""
    body = moved(changed)
    pairs = [(fact.beyond, noise) for fact in body if (noise := _rounding_noise(fact)) and fact.beyond is not None]
    return len(pairs) * 2 > len(body) and float(np.median([left / noise for left, noise in pairs])) < FEEDBACK


def _rounding_noise(fact: TensorFact) -> float | None:
    """What the grid leaves beside the size of the matrix; where none was found, what one with as many zeros would.

    Values of a normal law within half a step of zero become zero, and a step leaves its length over √12.
    """
    zeros = abs(fact.zeros_b - fact.zeros_a)
    if fact.grid_noise is not None or not ZEROS < zeros <= FEW_VALUES:
        return fact.grid_noise
    return 2 * float(ndtri((1 + zeros) / 2)) / math.sqrt(12)


def _lora(facts: Sequence[TensorFact], changed: Sequence[TensorFact]) -> KindFound | None:
    """Changes of one low rank a role, and nothing else that was changed but by storing it in another format."""
    rest = [fact for fact in facts if fact.role not in LINEAR and fact.correlation is not None]
    taken = [fact for fact in changed if fact.spectra is not None and not _stored_alike(fact)]
    if not all(map(_stored_alike, rest)) or len(taken) < 2:
        return None
    ranks: dict[str, list[int]] = {}
    for fact in taken:
        spectra = fact.spectra
        assert spectra is not None  # as chosen above
        ranks.setdefault(fact.role.value, []).append(10**9 if spectra.capped else spectra.rank)
        if spectra.capped or not spectra.rank:
            return None
    common = {role: Counter(found).most_common(1)[0] for role, found in ranks.items()}
    steady = sum(count for _, count in common.values()) >= NEARLY_ALL * len(taken)
    smallest = min(min(fact.shape) for fact in taken)
    if not steady or max(rank for rank, _ in common.values()) * LOW_RANK > smallest:
        return None
    told = ", ".join(f"{role} {rank}" for role, (rank, _) in common.items())
    alike = all(fact.same == 1 for fact in (*rest, *changed) if _stored_alike(fact))
    rest_is = (
        "every other tensor is the same to the bit" if alike else "every other tensor is the same but for its format"
    )
    why = f"differences have a rank above rounding of {told}, and {rest_is}"
    return KindFound("merged-lora", None, why, "the rank is full")


def _in_another_format(fact: TensorFact) -> bool:
    """One is the other rounded, to the bit, and to all that the finer format can say the same."""
    return bool(fact.cast_a or fact.cast_b) and _stored_alike(fact)


def _stored_alike(fact: TensorFact) -> bool:
    """The same to the bit, or as near as the finer of the two formats can say: tiny values have no place in float16."""
    return fact.same == 1 or fact.difference <= min(half_step(fact.dtype_a), half_step(fact.dtype_b)) / 2


def _degree(facts: Sequence[TensorFact], turned_back: bool) -> list[KindFound]:
    """Fine-tuned or trained on: one scale, cut where the odds are even.

    Noise that was turned back has directions of its own: then neither has a probability unless far more is seen.
    """
    features = degree_features(facts)
    if features is None:
        return []
    model = fitted()["degree"]
    more = model.probability(features)
    seen = f" and gains by {10 ** features[1]:.2g}" if gains(facts) else " (gains cannot be compared)"
    if all(fact.same == 1 for fact in gains(facts)) and _in_part(facts):
        seen = " (gains are the same)"
    lost = any(fact.beyond is not None for fact in linear(inherited(facts)))
    size = f"{10 ** features[0]:.2g} of their size{' beyond what zeros and grids account for' if lost else ''}"
    in_part = _in_part(facts)
    why = f"{_which(facts)} {size}{seen}; {OF_WHOLES if in_part else _boundary(model, features)}"
    excess = _excess(linear(facts)) if turned_back else None
    unsure = in_part or (turned_back and (excess is None or excess < LEARNT))
    why += f"; {REARRANGED}" if turned_back else ""
    both: list[tuple[Kind, float]] = [("fine-tune", 1 - more), ("continued-pretraining", more)]
    both.sort(key=lambda each: -each[1])
    return [KindFound(kind, None if unsure else odds, why, APART) for kind, odds in both if odds >= NAMED]


def _in_part(facts: Sequence[TensorFact]) -> bool:
    return len(moved(facts)) < len(linear(inherited(facts)))


def _which(facts: Sequence[TensorFact]) -> str:
    if not _in_part(facts):
        return "matrices changed by"
    few, count = moved(facts), len(linear(inherited(facts)))
    roles = ", ".join(dict.fromkeys(fact.role.value for fact in few))
    return f"{len(few)} of {count} matrices ({roles}) changed as training changes them, the others not: by"


def _boundary(model: Fitted, features: Sequence[float]) -> str:
    """That it is a matter of degree, and where the odds would be even with gains like these."""
    rest = model.log_odds((model.centre[0], *features[1:]))
    even = 10 ** (model.centre[0] - rest * model.scale[0] / model.weights[0])
    return (
        "fine-tuning and continued pretraining differ in degree alone, and with such gains both are as likely where "
        f"matrices changed by {even:.2g}"
    )
