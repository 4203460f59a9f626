"""What became of the values of one model in another: are tensors the same bytes, and what kind of change is there?

The four answers, by a rule that is printed with them:
    frozen    every stored value is equal, in one format
    cast      the values of one are those of the other written into another number format: equal but for the format,
              or rounded to, or cut off at, a format of fewer digits than the other's values need. Two tensors whose
              values need the same digits are no cast of each other, however small and regular their differences
    trained   correlated above one half, and neither of these
    unlike    not correlated above one half: no change of one into the other that values could show
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from modelkin.metrics import Unmeasurable, mean_abs_distance, spearman_similarity
from modelkin.records import Role, Table
from modelkin.records.survey import Value
from modelkin.survey.reading import Collected
from modelkin.survey.stored import (
    WINDOW_VALUES,
    WINDOWS,
    Beside,
    Numbers,
    beside,
    measurable,
    read_stored,
    read_windows,
    same_bytes,
)

FORMATS: Mapping[str, tuple[Any, Any]] = {
    "BF16": (ml_dtypes.bfloat16, np.int16),
    "F16": (np.float16, np.int16),
    "F32": (np.float32, np.int32),
}
NARROW: tuple[Any, ...] = (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
RELATED = 0.5  # correlation; strangers lie near 0 and derived tensors near 1
FIRST_LOOK = 64  # values that settle most questions of a cast
DISTINCT = 1000  # values that a tensor must have for its bytes to say anything
WHOLE_VALUES = 1 << 22  # larger tensors are compared in their windows alone
BYTES = ("a", "b", "role", "tensors", "equal", "counted", "why_not_counted")
CHANGES = (
    "a", "b", "role", "layer_a", "layer_b", "n", "changed", "mean_abs", "mean_ulps", "one_ulp", "largest_ulps",
    "smallest_update", "answer", "dtype_a", "dtype_b", "median_ulps",
)  # fmt: skip

CHANGED, SMALLEST, ANSWER = (CHANGES.index(name) for name in ("changed", "smallest_update", "answer"))
FEWEST = 6  # tensors from which a rank correlation is worth a sentence

Row = tuple[Value, ...]
Steps = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Read:
    """Two tensors of one shape, all finite, as far as they were read."""

    pair: Beside
    x: Numbers
    y: Numbers

    @property
    def models(self) -> tuple[str, str]:
        return self.pair.a.label, self.pair.b.label


def tables(collected: Collected, every_pair: bool = False) -> list[Table]:
    """`bytes` for all pairs; `changes` for those known as derived or alike in half of their tensors, or for all."""
    if len(collected.models) < 2:
        return []
    asked = {(a.label, b.label) for a, b in collected.pairs() if every_pair or collected.relation(a, b) == "derived"}
    equal: list[Row] = []
    found: dict[tuple[str, str], list[Row | Beside]] = {(a.label, b.label): [] for a, b in collected.pairs()}
    for number, role in enumerate(collected.roles):
        collected.progress("comparing values", number, len(collected.roles))
        read = _read(collected, beside(collected, role))
        equal += _bytes_rows(collected, role, read)
        for one in read:
            wanted = one.models in asked or alike(one.x, one.y)
            found[one.models].append(_change_row(one) if wanted else one.pair)
    rows = [row for entries in found.values() if _mostly_alike(entries) for row in _completed(collected, entries)]
    return [_bytes_table(equal), *([_changes_table(rows)] if rows else [])]


def _mostly_alike(entries: Sequence[Row | Beside]) -> bool:
    """What is not alike waits for this as a pair of slots: between strangers, most pairs, nothing more is done."""
    return 2 * sum(isinstance(entry, tuple) for entry in entries) >= len(entries) > 0


def _completed(collected: Collected, entries: Sequence[Row | Beside]) -> list[Row]:
    later = iter(_read(collected, [entry for entry in entries if isinstance(entry, Beside)]))
    return [_change_row(next(later)) if isinstance(entry, Beside) else entry for entry in entries]


def alike(x: Numbers, y: Numbers) -> bool:
    """Equal, or correlated above one half."""
    if np.array_equal(x, y):
        return True
    left, right = _centred(x), _centred(y)
    return bool(left @ right > RELATED * np.linalg.norm(left) * np.linalg.norm(right))


def _centred(values: Numbers) -> NDArray[np.float64]:
    """From one of the values first: a constant one becomes zero to the last bit."""
    moved = values.reshape(-1).astype(np.float64)
    moved -= moved[0]
    moved -= moved.mean()
    return moved


def _read(collected: Collected, pairs: Sequence[Beside]) -> list[Read]:
    arrays = read_windows(collected, pairs)
    fine = {key: measurable(array) for key, array in arrays.items()}
    found = []
    for pair in pairs:
        if pair.slots is None or not pair.alike:
            continue
        keys = (pair.a.label, pair.slots[0]), (pair.b.label, pair.slots[1])
        x, y = (arrays[key] for key in keys)
        if not x.size:
            continue
        if all(fine[key] for key in keys):
            found.append(Read(pair, x, y))
        else:
            collected.leave_out(f"{pair}: values that are not finite")
    return found


def _bytes_rows(collected: Collected, role: Role, read: Sequence[Read]) -> list[Row]:
    rows: list[Row] = []
    for a, b in collected.pairs():
        told = [(one, same_bytes(one.pair, one.x, one.y)) for one in read if one.models == (a.label, b.label)]
        compared = [one for one, answer in told if answer is not None]
        equal = [one for one, answer in told if answer and _whole_equal(one)]
        reasons = [reason for one in equal if (reason := why_not_counted(role, one.x, _fixed(one.pair)))]
        why = "; ".join(f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons)) or None
        if compared:
            rows.append((a.label, b.label, role.value, len(compared), len(equal), len(equal) - len(reasons), why))
    return rows


def _whole_equal(one: Read) -> bool:
    """Are they equal outside their windows too? Asked of tensors that are not too large, once their windows agree."""
    pair = one.pair
    size = int(np.prod(pair.shapes[0], dtype=np.int64))
    if pair.slots is None or size == one.x.size or size > WHOLE_VALUES:
        return True
    (x,) = read_stored(pair.a.anatomy, [(pair.slots[0], None)])
    (y,) = read_stored(pair.b.anatomy, [(pair.slots[1], None)])
    return x.tobytes() == y.tobytes()


def _fixed(pair: Beside) -> bool:
    return "fixed" in (pair.a.anatomy.facts.positions, pair.b.anatomy.facts.positions)


def why_not_counted(role: Role, values: Numbers, fixed_positions: bool = False) -> str | None:
    """Why equal bytes say nothing here; None where they do."""
    if role is Role.FIXED_POSITION or (role is Role.POSITION and fixed_positions):
        return "fixed by the config: a table of positions"
    distinct = np.unique(values).size
    if distinct == 1:
        return "constant: every value is the same"
    return f"with fewer than {DISTINCT:,} distinct values" if distinct < DISTINCT else None


def _bytes_table(rows: Sequence[Row]) -> Table:
    return Table(
        name="bytes",
        title="Tensors that are the same to the byte",
        caption=f"{len(rows)} roles of pairs of models: tensors in facing layers of one shape and one number format, "
        f"of experts one a layer. Tensors of more than {WHOLE_VALUES:,} values are compared in their windows alone "
        f"({WINDOWS} of about {WINDOW_VALUES:,} values), others whole. Of the equal ones those are counted that have "
        f"at least {DISTINCT:,} distinct values and that no config determines. Byte identity has no p-value.",
        strangers="none counted; equal ones only where values are constant (gains of one, biases of zero) or fixed by "
        "the config",
        columns=BYTES,
        rows=tuple(rows),
    )


def _change_row(one: Read) -> Row:
    pair, (dtype_a, dtype_b) = one.pair, one.pair.dtypes
    head = (*one.models, pair.role.value, pair.layer_a, pair.layer_b, one.x.size)
    changed = int(np.count_nonzero(one.x != one.y))
    steps = ulp_steps(one.x, one.y, dtype_a) if dtype_a == dtype_b and dtype_a in FORMATS else None
    taken = np.abs(steps[steps != 0]) if steps is not None else None
    in_ulps, median = _in_ulps(taken)
    updates = [smallest_update(one.x, dtype) for dtype in {dtype_a, dtype_b} if dtype in FORMATS]
    smallest = [update for update in updates if math.isfinite(update)]  # the last number of a format has no next one
    told = answer(one.x, one.y, one.pair.dtypes)
    shift = mean_abs_distance(one.x, one.y)
    return (*head, changed / one.x.size, shift, *in_ulps, max(smallest, default=None), told, dtype_a, dtype_b, median)


def _in_ulps(taken: Steps | None) -> tuple[Row, float | None]:
    """(mean_ulps, one_ulp, largest_ulps), median_ulps of the steps that changed values took."""
    if taken is None:
        return (None, None, None), None
    if not taken.size:
        return (None, None, 0), None
    return (float(taken.mean()), float(np.mean(taken == 1)), int(taken.max())), float(np.median(taken))


def ulp_steps(x: Numbers, y: Numbers, dtype: str) -> Steps:
    """Representable values from x to y, upwards positive, counted through zero; −0 and 0 are one value."""
    return _ordered(y, dtype) - _ordered(x, dtype)


def _ordered(values: Numbers, dtype: str) -> Steps:
    stored, bits = FORMATS[dtype]
    numbers = values.astype(stored).view(bits).astype(np.int64)
    return np.asarray(np.where(numbers < 0, np.iinfo(bits).min - numbers, numbers), dtype=np.int64)


def smallest_update(values: Numbers, dtype: str) -> float:
    """Half a step of the format at the median size of the values: a smaller update is lost by half of them."""
    stored, bits = FORMATS[dtype]
    middle = np.array([np.median(np.abs(values))]).astype(stored)
    above = (middle.view(bits) + 1).astype(bits).view(stored)
    return float(above.astype(np.float64)[0] - middle.astype(np.float64)[0]) / 2


def answer(x: Numbers, y: Numbers, dtypes: Sequence[str]) -> str:
    """frozen, cast, trained or unlike: see the top of this file."""
    if np.array_equal(x, y):
        return "frozen" if len(set(dtypes)) == 1 else "cast"
    if not alike(x, y):
        return "unlike"
    return "cast" if _coarser(x, y) or _coarser(y, x) else "trained"


def _coarser(fine: Numbers, coarse: Numbers) -> bool:
    """Is one the other in a format of fewer digits, rounded to it or cut off?"""
    mine, theirs = fine.reshape(-1), coarse.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return any(
            np.array_equal(written(mine[:FIRST_LOOK], narrow), theirs[:FIRST_LOOK])
            and np.array_equal(written(mine, narrow), theirs)
            for narrow in NARROW
            if np.array_equal(_rounded(theirs[:FIRST_LOOK], narrow), theirs[:FIRST_LOOK])
            for written in (_rounded, _cut_off)
        )


def _rounded(values: Numbers, narrow: Any) -> Numbers:
    return values.astype(narrow).astype(values.dtype)


def _cut_off(values: Numbers, narrow: Any) -> Numbers:
    """The next number of the format towards zero; of sign and magnitude, that is one less in the bits."""
    near = values.astype(narrow)
    bits = near.view(np.uint8 if near.dtype.itemsize == 1 else np.uint16)
    beyond = np.abs(near.astype(values.dtype)) > np.abs(values)
    return np.asarray((bits - beyond.astype(bits.dtype)).view(narrow).astype(values.dtype))


def _changes_table(rows: Sequence[Row]) -> Table:
    counts = {told: sum(row[ANSWER] == told for row in rows) for told in ("frozen", "cast", "trained", "unlike")}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return Table(
        name="changes",
        title="What became of the values",
        caption=f"{len(rows)} pairs of tensors as stored ({told}), matrices in their windows, of experts one a layer. "
        "frozen: every value equal in one format; cast: equal but for the format, or every value of one is that of the "
        "other rounded to, or cut off at, a format of fewer digits (BF16, F16, F8); trained: correlated above 0.5 and "
        "neither, so also where every value moved by one step of its own format; unlike: the rest. "
        "mean_ulps, median_ulps, one_ulp (the share that moved by exactly one "
        "step) and largest_ulps are over changed values, in steps of the format; a value that changes its sign counts "
        "every number between, some thousands. An update below smallest_update, half a step "
        f"at the median value of the first model, is not stored by half of the values. {_confound(rows)}",
        strangers="changed near 1; in BF16 thousands of steps where signs differ, tens where all are positive (gains), "
        "in F32 65,536 times as many; answer unlike",
        columns=CHANGES,
        rows=tuple(rows),
    )


def _confound(rows: Sequence[Row]) -> str:
    """Does the share of changed values follow the size of a step? Then few changes may only be coarse numbers."""
    # What is frozen beside trained tensors may have been trained by less than a step.
    kept = [row for row in rows if row[ANSWER] in ("trained", "frozen") and isinstance(row[SMALLEST], float)]
    shares, sizes = (np.array([row[i] for row in kept], dtype=np.float64) for i in (CHANGED, SMALLEST))
    try:
        found = spearman_similarity(shares, sizes) if len(kept) >= FEWEST else None
    except Unmeasurable:
        found = None
    if found is None:
        return "Where values are larger steps are coarser, so fewer of them change by the same training."
    return (
        f"Where values are larger steps are coarser: over {len(kept)} tensors, trained or frozen, the share changed "
        f"and the smallest update have rank correlation {found:.2f}, and one near −1 means that few changes show "
        "coarse numbers rather than little training."
    )
