"""Layer map: which layer of a does every layer of b match? Every layer of both is called against every other.

A cell of the table is a roll call of neurons: at one offset the same neurons of layer i of a and of layer j of b. So
layers that were inserted, dropped, repeated or moved are found wherever they went. Which cells may count is decided by
Holm's correction over the whole table; a dynamic programme then chooses the likeliest way through them, once for the
layers of b and once for those of a: of layers that a repeats, a layer of b can match but one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from modelkin.architectures import Anatomy
from modelkin.questions.exchangeability import (
    DOUBTED,
    MOST_SETS,
    described,
    follow_no_index,
    in_no_order,
    index_means_nothing,
    most_found,
    zeros,
    zeros_apart,
)
from modelkin.questions.gains import evenly
from modelkin.questions.layer_cells import (
    MOST_ROWS,
    PARTS,
    Cell,
    Layer,
    Raw,
    Rows,
    call_all,
    common_rows,
    expert_number,
    ready,
)
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question, weighed
from modelkin.records import Assumption, Cut, Evidence, LayerFinding, Null, Role, Significance, Slot
from modelkin.sampling.facing import facing
from modelkin.sampling.offsets import offset
from modelkin.sampling.readings import Readings
from modelkin.stats import better_of, holm, total_fixed_points, traits
from modelkin.stats.layer_path import ALPHA, Table, cell_scores, layer_path
from modelkin.stats.rencontres import even_quantiles, largest_law, total_law

FEWEST_ROWS = 8
STANDARD_BYTES = 26_000_000  # of the 64 MB a model that all questions together may read
MOST_CHECKED = 12  # layers


def layer_map(evidence: Evidence) -> tuple[tuple[str, str | None], ...]:
    """(layer of b, the layer of a that it matches, or None) for every layer of b that was read.

    The first finding of a layer of b is its match; later ones are further layers of a that match it.
    """
    found: dict[str, str | None] = {}
    for finding in evidence.per_layer:
        found.setdefault(finding.b, finding.a or None)
    return tuple(found.items())


# What to read.


def _cuts(pair: Pair) -> Cuts:
    a, b = _slots(pair.a), _slots(pair.b)
    if not a or not b:
        raise CannotAsk("a model has no MLP neurons that were recognised")
    widths = {side.shape(slot)[1] for side, slots in ((pair.a, a), (pair.b, b)) for slot in slots}
    if len(widths) > 1:
        raise CannotAsk(f"the rows of neurons have different widths: {', '.join(map(str, sorted(widths)))}")
    both = {slot.role for slot in a} & {slot.role for slot in b}
    for roles in (both, {Role.UP}):
        mine, theirs = ([slot for slot in slots if slot.role in roles] for slots in (a, b))
        size = min(side.shape(slot)[0] for side, slots in ((pair.a, mine), (pair.b, theirs)) for slot in slots)
        rows = min(MOST_ROWS, size, _affordable(pair, mine, theirs))
        if rows >= min(MOST_ROWS, size) or (roles == {Role.UP} and rows >= FEWEST_ROWS):
            start = offset(pair.seed, "neurons", size, rows)
            return [Cut(slot, start, start + rows) for slot in mine], [
                Cut(slot, start, start + rows) for slot in theirs
            ]
    raise CannotAsk(f"{FEWEST_ROWS} neurons of every layer do not fit into {STANDARD_BYTES // 1_000_000} MB a model")


def _slots(anatomy: Anatomy) -> list[Slot]:
    """Up, gate and shared up of every layer; of experts the first."""
    first: dict[tuple[Role, str], Slot] = {}
    for role in PARTS:
        for slot in sorted(anatomy.of(role), key=expert_number):
            if slot.layer is not None and len(anatomy.shape(slot)) == 2:
                first.setdefault((role, slot.layer_name), slot)
    return list(first.values()) if any(slot.role is Role.UP for slot in first.values()) else []


def _affordable(pair: Pair, a: Sequence[Slot], b: Sequence[Slot]) -> int:
    """Rows of every slot that fit the budget; tensors stored by columns are read whole."""
    if pair.budget == "full":
        return MOST_ROWS
    return min(_rows_for(pair.a, a), _rows_for(pair.b, b))


def _rows_for(anatomy: Anatomy, slots: Sequence[Slot]) -> int:
    whole, by_row = (math.fsum(parts) for parts in zip(*(bytes_of(anatomy, slot) for slot in slots), strict=True))
    left = STANDARD_BYTES - whole
    return 0 if left < 0 else int(min(MOST_ROWS, left / by_row if by_row else MOST_ROWS))


def bytes_of(anatomy: Anatomy, slot: Slot) -> tuple[float, float]:
    """What a slot costs however few rows are read (where it is not stored by rows), and what a row costs."""
    view = anatomy.view(slot)
    ref = anatomy.checkpoint.tensors[view.tensor]
    row = math.prod(view.shape[1:]) * ref.extent.size / max(1, ref.parameters)
    return (0.0, row) if view.axis == "rows" else (row * view.shape[0], 0.0)


# The answer.


def _answer(a: Readings, b: Readings, rng: np.random.Generator) -> Evidence:
    raw_a, raw_b = common_rows(a, b)
    mine, theirs = ready(raw_a, None), ready(raw_b, rng)
    cells = call_all(mine, theirs)
    if not any(cell.significance.n for row in cells for cell in row):
        raise CannotAsk("no neuron can be told from the others: its rows are constant or equal")
    beside = [cells[list(raw_a).index(i)][list(raw_b).index(j)] for i, j in facing(list(raw_a), list(raw_b))]
    significance = _significance(cells, beside)
    if significance.log10_pvalue <= DOUBTED and _repeats(raw_a, rng) and _repeats(raw_b, rng):
        significance = _significance(cells, [])
    assumptions = _assumptions(raw_a, raw_b, rng)
    if significance.log10_pvalue <= DOUBTED:
        assumptions += (_followed(raw_a, raw_b, cells, rng),)
    scores = _scores(cells)
    path = layer_path(scores)
    found = [cells[i][j] for j, i in enumerate(path) if i is not None]
    further = [(i, j) for i, j in enumerate(layer_path(scores.T)) if j is not None and path[j] not in (None, i)]
    matches = [*((i, j) for j, i in enumerate(path)), *further]
    findings = tuple(_finding(cells, mine, theirs[j].name, j, i) for i, j in matches)
    return weighed(
        LAYER_MAP.id,
        LAYER_MAP.index_set,
        significance,
        assumptions,
        effect=float(np.median([cell.effect for cell in found or beside])) if found or beside else None,
        observed=f"{len(found)} of {len(path)} layers of B match a layer of A{_left_out(a, raw_a, b, raw_b)}",
        strangers="none does: of the neurons of any two layers one finds itself",
        per_layer=findings,
    )


def _left_out(a: Readings, raw_a: Raw, b: Readings, raw_b: Raw) -> str:
    missing = [len(side.portrait.layers) - len(raw) for side, raw in ((a, raw_a), (b, raw_b))]
    return f"; left out were {missing[0]} layers of A and {missing[1]} of B" if any(missing) else ""


def _significance(cells: Sequence[Sequence[Cell]], beside: Sequence[Cell]) -> Significance:
    """The best cell of the table, or the sum over layers that face each other before a row was looked at."""
    asked = [cell.significance for row in cells for cell in row if cell.significance.n]
    best = _best(asked)
    if not any(cell.significance.n for cell in beside):
        return best
    total = total_fixed_points([cell.fixed for cell in beside], [cell.significance.n for cell in beside])
    return better_of([total, best], "facing layers together, the best pair of layers alone")


def _best(asked: Sequence[Significance]) -> Significance:
    """With the law of the best of so many as its picture: that of one alone would make it look like a find."""
    best = better_of(asked, "layers of A by layers of B")
    picture = even_quantiles(largest_law(total_law([best.n]), len(asked)))
    return msgspec.structs.replace(best, null=Null(best.null.text, picture))


def _repeats(raw: Raw, rng: np.random.Generator) -> bool:
    """Does a model have layers twice? If both do, equal pairs of layers count alike and must not be added up."""
    plain, renumbered = ready(raw, None), ready(raw, rng)
    calls = [cell for i, layer in enumerate(plain) for cell in call_all([layer], renumbered[i + 1 :])[0]]
    return min(holm([cell.significance.log10_pvalue for cell in calls]), default=0.0) <= ALPHA


def _scores(cells: Sequence[Sequence[Cell]]) -> Table:
    """(layers of a, layers of b): -log10 p after Holm where that may count, else -inf."""
    return cell_scores(holm([cell.significance.log10_pvalue for row in cells for cell in row]), len(cells))


def _finding(cells: Sequence[Sequence[Cell]], mine: Sequence[Layer], b: str, j: int, i: int | None) -> LayerFinding:
    """One layer of b; where it is new, beside the layer of a that came nearest."""
    column = [row[j] for row in cells]
    cell = min(column, key=lambda cell: cell.significance.log10_pvalue) if i is None else column[i]
    return LayerFinding(
        a="" if i is None else mine[i].name,
        b=b,
        statistic=float(cell.fixed),
        n=cell.significance.n,
        log10_pvalue=cell.significance.log10_pvalue,
        effect=cell.effect,
    )


def _assumptions(a: Raw, b: Raw, rng: np.random.Generator) -> tuple[Assumption, ...]:
    ups = [_some([parts[Role.UP] for parts in raw.values()]) for raw in (a, b)]
    roles = [role for role in (Role.UP, Role.GATE) if all(role in parts for raw in (a, b) for parts in raw.values())]
    some = [evenly(list(raw.values()), MOST_SETS) for raw in (a, b)]
    own = [[described([parts[role] for role in roles]) for parts in layers] for layers in some]
    beside = [
        (a[i][role], b[j][role]) for i, j in facing(list(a), list(b)) for role in PARTS if role in a[i].keys() & b[j]
    ]
    return (
        in_no_order(ups[0], ups[1], rng),
        index_means_nothing(own[0], own[1], rng),
        *zeros_apart(zeros(left, right) for left, right in beside),
    )


def _followed(a: Raw, b: Raw, cells: Sequence[Sequence[Cell]], rng: np.random.Generator) -> Assumption:
    """Layers of each model in which most neurons were found, wherever in the other."""
    fixed = np.array([[cell.fixed for cell in row] for row in cells])
    sides = [
        [traits(list(layers[i].values())) for i in most_found(best.tolist())]
        for layers, best in ((list(a.values()), fixed.max(axis=1)), (list(b.values()), fixed.max(axis=0)))
    ]
    return follow_no_index(sides[0], sides[1], rng)


def _some(layers: Sequence[Rows]) -> Sequence[Rows]:
    """Evenly spaced: the check draws thousands of times, and a model sorts all of its layers or none."""
    return layers[:: -(-len(layers) // MOST_CHECKED)]


LAYER_MAP = Question(
    id="layer-map",
    asks="Which layer of a does every layer of b match?",
    index_set="neurons",
    stage=4,
    weight=0.10,
    null="The neurons of every layer could be numbered in any order: of those of any two layers one finds itself.",
    cuts=_cuts,
    answer=_answer,
)
