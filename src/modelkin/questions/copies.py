"""Do tensors of one model stand in the other, number for number?

Neither names nor places matter, and a cast to another number format is seen through. That two tensors are equal says
nothing where the config determines them (positions, masks, rotary tables) or where they hold few different numbers
(gains that are all one, biases that are all zero): such tensors are listed and never count. So a tensor counts with
a thousand different numbers, a role that only training fills (or a name that no buffer has: see `stored_tensors`), and
no sign of a formula (see `formulas`). There is no p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from modelkin.questions.digests import TensorDigest, rounded, same_numbers
from modelkin.records import Answer, Assumption, Cut, Evidence, LayerFinding, Null, Role, Slot, Unanswered
from modelkin.sampling.readings import Floats, Readings

ID = "copies"
# What a config or a formula may fill, also under the name of something learned.
DETERMINED = frozenset({Role.FIXED_POSITION, Role.POSITION, Role.TOKEN_TYPE, Role.RELATIVE_BIAS, Role.FRONT_CONV})
WORDS = {Role.Q: "query", Role.K: "key", Role.V: "value", Role.O: "attention output"}
PROBE = 64
SHOWN_PLACES = 4
NULL = Null("no tensor of a model that was trained apart holds the same thousand numbers as one of the other")

Thing = Slot | str  # a stored name, where no role is known
Range = tuple[int | None, int | None, int, tuple[int, int] | None]


@dataclass(frozen=True)
class Copied:
    """A tensor of b, or the part of it that was read, whose numbers are those of one of a.

    `form` is the coarser number format where the two were stored in different ones, else empty.
    """

    a: Thing
    b: Thing
    values: int
    form: str
    counts: bool


@dataclass(frozen=True)
class Sighting:
    """Everything that was looked at of b, by how many numbers each, and what of it was found in a.

    `in_place`: numbers that are the same to the byte and in their place. `parameters`: of the larger model. `whole`:
    tensors were read to their end. `stored`: tensors of b from which those were sampled; 0 where all were meant.
    """

    looked_at: Mapping[Thing, int]
    copied: Sequence[Copied]
    in_place: int
    parameters: int
    whole: bool
    stored: int = 0

    @property
    def is_sample(self) -> bool:
        return self.stored > len(self.looked_at)


def equal_rows(a: Readings, b: Readings, parameters: int) -> Answer:
    """From what other questions have read: the largest part of every tensor, beside equal parts of all others."""
    mine, theirs = _parts(a), _parts(b)
    by_range: dict[tuple[Range, tuple[int, ...]], list[Slot]] = {}
    for slot, (cut, array) in mine.items():
        by_range.setdefault((_range(cut), array.shape), []).append(slot)
    looked_at: dict[Thing, int] = {}
    copied = []
    for slot, (cut, array) in theirs.items():
        beside = by_range.get((_range(cut), array.shape), [])
        if beside:
            looked_at[slot] = array.size
            copied += _first(slot, array, sorted(beside, key=lambda other: other != slot), mine)
    if not looked_at:
        return Unanswered(ID, "no tensors of the same shape were read of both models")
    in_place = sum(copy.values for copy in copied if copy.a == copy.b and not copy.form)
    return answered(Sighting(looked_at, copied, in_place, parameters, whole=False))


def _parts(readings: Readings) -> dict[Slot, tuple[Cut, Floats]]:
    """The largest array of every slot: parts that overlap are not counted twice."""
    found: dict[Slot, tuple[Cut, Floats]] = {}
    for cut, array in readings.arrays.items():
        if array.size and (cut.slot not in found or array.size > found[cut.slot][1].size):
            found[cut.slot] = (cut, array)
    return found


def _range(cut: Cut) -> Range:
    """Rows are listed for tokens alone, whose numbers differ between two vocabularies."""
    return cut.start, cut.stop, len(cut.rows), cut.columns


def _first(slot: Slot, array: Floats, beside: Iterable[Slot], mine: Mapping[Slot, tuple[Cut, Floats]]) -> list[Copied]:
    """The first of a's tensors, its own place before others, that is the same; nothing if none is."""
    for other in beside:
        candidate = mine[other][1]
        if not _start_alike(candidate, array):
            continue
        form = same_numbers(candidate, array)
        if form is not None:
            cast = "" if form == "F32" else form
            return [Copied(other, slot, array.size, cast, slot.role not in DETERMINED and _says_something(array, form))]
    return []


def _start_alike(a: Floats, b: Floats) -> bool:
    left, right = a.reshape(-1)[:PROBE], b.reshape(-1)[:PROBE]
    return any(rounded(left, form).tobytes() == rounded(right, form).tobytes() for form in ("F32", "F16", "BF16"))


def _says_something(array: Floats, form: str) -> bool:
    digest = TensorDigest([form])
    digest.update(array)
    return digest.says_something


def answered(seen: Sighting) -> Evidence:
    counting = [copy for copy in seen.copied if copy.counts]
    equal, looked_at = sum(copy.values for copy in counting), sum(seen.looked_at.values())
    return Evidence(
        question=ID,
        index_set="tensors",
        grade="A" if counting else None,
        statistic=float(equal),
        pvalue=None,
        log10_pvalue=None,
        null=NULL,
        n=looked_at,
        effect=seen.in_place / seen.parameters if seen.parameters else None,
        observed=_observed(seen, counting, equal / looked_at),
        strangers="none, but for constants and tables that a config fixes",
        per_layer=_by_layer(seen, counting),
        assumptions=tuple(_remarks(seen, counting)),
    )


def _observed(seen: Sighting, counting: Sequence[Copied], share: float) -> str:
    part = "" if seen.whole else " read in part"
    part += f" (a sample of {seen.stored:,})" if seen.is_sample else ""
    if counting and seen.in_place == seen.parameters:
        return f"all {len(seen.looked_at)} tensors are in both to the byte"
    if not counting:
        return f"none of {len(seen.looked_at)} tensors{part} is in the other model"
    forms = sorted({copy.form for copy in counting if copy.form})
    how = f"number for number after rounding to {' and '.join(forms)}" if forms else "to the byte"
    of = "parameters" if seen.whole and not seen.is_sample else "numbers read"
    places = _places(counting)
    number = f"{len(counting)} of {len(seen.looked_at)} tensors{part} {'is' if len(counting) == 1 else 'are'}"
    return f"{number} in both {how}, {_percent(share)} of the {of}{places}"


def _percent(share: float) -> str:
    """Rounded down: all is said of all alone."""
    return f"{math.floor(1000 * share) / 10:g} %" if share >= 0.001 else "under 0.1 %"


def _places(counting: Sequence[Copied]) -> str:
    """What is the same, outside of layers and in them; layers by name where they are few."""
    things = [copy.b for copy in counting]
    outside = dict.fromkeys(_name(thing) for thing in things if isinstance(thing, str) or thing.layer is None)
    inside = [thing for thing in things if isinstance(thing, Slot) and thing.layer is not None]
    roles, layers = dict.fromkeys(map(_name, inside)), dict.fromkeys(slot.layer_name for slot in inside)
    where = f"{len(layers)} layers" if len(layers) > SHOWN_PLACES else ", ".join(f"layer {name}" for name in layers)
    names = [*outside, *([f"{_joined(list(roles))} of {where}"] if inside and len(roles) <= SHOWN_PLACES else [])]
    names += [where] if len(roles) > SHOWN_PLACES else []
    return f": {', '.join(names)}"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _name(thing: Thing) -> str:
    if isinstance(thing, str):
        return "tensors of no known role"
    return WORDS.get(thing.role, thing.role.value.replace("_", " "))


def _layer(thing: Thing) -> str:
    if isinstance(thing, str):
        return "other"
    return thing.layer_name if thing.layer is not None else str(thing)


def _by_layer(seen: Sighting, counting: Sequence[Copied]) -> tuple[LayerFinding, ...]:
    """Layers that share something, the layer of a beside that of b; outside of layers the role stands for it."""
    sizes: dict[str, int] = {}
    for thing, values in seen.looked_at.items():
        sizes[_layer(thing)] = sizes.get(_layer(thing), 0) + values
    equal: dict[tuple[str, str], int] = {}
    for copy in counting:
        names = _layer(copy.a), _layer(copy.b)
        equal[names] = equal.get(names, 0) + copy.values
    return tuple(
        LayerFinding(a, b, float(values), sizes[b], None, values / sizes[b]) for (a, b), values in equal.items()
    )


def _remarks(seen: Sighting, counting: Sequence[Copied]) -> Iterable[Assumption]:
    idle = len(seen.copied) - len(counting)
    if idle:
        number = "1 equal tensor does" if idle == 1 else f"{idle} equal tensors do"
        yield Assumption(f"{number} not count: constants, fixed tables, or too few different numbers")
    elsewhere = sum(copy.a != copy.b for copy in counting)
    if elsewhere:
        number = "1 of the equal tensors stands" if elsewhere == 1 else f"{elsewhere} of the equal tensors stand"
        yield Assumption(f"{number} in another place, or under another name, in the other model")
    if seen.is_sample:
        yield Assumption(
            f"{len(seen.looked_at):,} of {seen.stored:,} tensors were looked at, spread evenly over those whose shape "
            "both models have; the rest is more than this budget reads, or of another shape"
        )
    if counting and not seen.whole:
        yield Assumption("only parts of the tensors were read; what was not read may differ")
