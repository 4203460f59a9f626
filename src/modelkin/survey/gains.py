"""Which models there are, and what the gains of each are like, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from modelkin.inspection import identity
from modelkin.records import Role, SurveyModel, Table, Value
from modelkin.survey.cells import cells, counted, listed, turned
from modelkin.survey.reading import Collected
from modelkin.survey.vectors import Places, Stack

GAINS = ("model", "role", "layer", "n", "mean", "std", "min", "max", "l2", "l2_of_ones", "cv")
DIFFERENCE = ("model", "layer", "mean", "std")


def survey_models(collected: Collected) -> tuple[SurveyModel, ...]:
    found = []
    for model in collected.models:
        known = identity(model.anatomy.checkpoint, model.anatomy)
        found.append(
            SurveyModel(
                id=known.id,
                label=model.label,
                revision=known.revision,
                family=model.anatomy.facts.family,
                parameters=known.parameters,
                layers=known.layers or 0,
                hidden=known.hidden,
                groups=model.groups,
            )
        )
    return tuple(found)


def model_table(models: Sequence[SurveyModel]) -> Table:
    ids = [model.id for model in models]
    twice = [name for name in dict.fromkeys(ids) if ids.count(name) > 1]
    said = f" Given more than once, and compared with itself: {listed(twice)}." if twice else ""
    return Table(
        name="models",
        title="The models",
        caption=f"{counted(len(models), 'model')}, in the order given. Layers are those that hold tensors of the "
        f"decoder or encoder; extra prediction layers are none of them.{said}",
        strangers="names, families and sizes say nothing of descent",
        columns=("model", "id", "revision", "family", "parameters", "layers", "hidden", "groups"),
        rows=tuple(
            (m.label, m.id, m.revision, m.family, m.parameters, m.layers, m.hidden, " ".join(m.groups)) for m in models
        ),
    )


def gain_table(stacks: Sequence[Stack]) -> Table:
    rows = [row for stack in stacks for row in _gain_rows(stack)]
    roles = listed([stack.role.value for stack in stacks])
    return Table(
        name="gains",
        title="Gains by layer",
        caption=f"{counted(len(rows), 'vector')} ({roles}), as the models apply them, in float64; std is the "
        "population's, cv is std / |mean|, and l2_of_ones, √n, is the length of a vector of ones, where gains begin.",
        strangers="like means, spreads and lengths, which grow alike with depth: none of this is "
        "evidence, and a scale can be moved into the next matrix without changing the model",
        columns=GAINS,
        rows=tuple(rows),
    )


def _gain_rows(stack: Stack) -> list[tuple[Value, ...]]:
    count, ones = len(stack.layers), math.sqrt(stack.width)
    numbers = (stack.mean, stack.std, stack.rows.min(axis=1), stack.rows.max(axis=1), stack.l2)
    roles: list[Value] = [stack.role.value] * count
    head: list[Sequence[Value]] = [stack.owners, roles, stack.layers, [stack.width] * count]
    return turned([*head, *(cells(column) for column in numbers), [ones] * count, cells(stack.cv)])


def difference_stack(stacks: Sequence[Stack], width: int) -> Stack | None:
    """Input gains minus post gains inside each layer, of the models that have both at this width."""
    both = {stack.role: stack for stack in stacks if stack.width == width}
    if Role.INPUT_NORM not in both or Role.POST_NORM not in both:
        return None
    before, after = both[Role.INPUT_NORM], both[Role.POST_NORM]
    places = [
        (n, found)
        for n, (label, layer) in enumerate(zip(before.owners, before.layers, strict=True))
        if (found := after.place(label, layer)) is not None
    ]
    if not places:
        return None
    i, j = (np.array(side, dtype=np.intp) for side in zip(*places, strict=True))
    rows = before.rows[i] - after.rows[j]
    return Stack(Role.INPUT_NORM, _taken(before.owners, i), _taken(before.layers, i), rows)


def _taken(names: Sequence[str], places: Places) -> tuple[str, ...]:
    return tuple(names[n] for n in places)


def difference_table(stacks: Sequence[Stack]) -> Table:
    columns: list[list[Value]] = [[], [], [], []]
    for stack in stacks:
        parts: tuple[Sequence[Value], ...] = (stack.owners, stack.layers, cells(stack.mean), cells(stack.std))
        for column, part in zip(columns, parts, strict=True):
            column.extend(part)
    return Table(
        name="input-minus-post",
        title="Input gains minus post gains, inside each layer",
        caption=f"{counted(len(columns[0]), 'layer')}; mean and population std over all values of the difference.",
        strangers="like means and spreads; they follow the scales of the gains and are no evidence",
        columns=DIFFERENCE,
        rows=tuple(turned(columns)),
    )


def difference_pair_table(rows: Sequence[tuple[Value, ...]]) -> Table:
    return Table(
        name="input-minus-post-pairs",
        title="Input minus post gains of two models, correlated in facing layers",
        caption=f"{counted(len(rows), 'pair')} of layers; Pearson's r over all hidden axes; p by renumbering the axes "
        "of one model, the same for all layers, adjusted for all layers of the pair. `layer` is of a and "
        "faces layer_b.",
        strangers="r is 0 ± 1/√n",
        columns=("a", "b", "layer", "pearson", "p", "layer_b"),
        rows=tuple(rows),
    )
