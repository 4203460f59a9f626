"""Models in, one Survey out: open, read, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from modelkin import __version__
from modelkin.records import Matrix, Survey, SurveyCost, Table, Value
from modelkin.records.survey import sealed_survey
from modelkin.sources.protocol import TENSOR_KINDS, Progress, no_progress
from modelkin.survey import changes, embeddings, routers, windows
from modelkin.survey.baselines import baseline_table, group_table
from modelkin.survey.cells import cells
from modelkin.survey.gains import (
    difference_pair_table,
    difference_stack,
    difference_table,
    gain_table,
    model_table,
    survey_models,
)
from modelkin.survey.layer_pairs import (
    curve_rows,
    facing_pvalues,
    layer_pair_rows,
    matrices,
    null_of,
    pairs,
    renumberings,
    tables,
)
from modelkin.survey.matrices import model_matrices, within_matrices
from modelkin.survey.reading import Collected, SurveyOptions, collected
from modelkin.survey.shapes import pca_tables, quartile_rows, quartile_table, ridge_table, surface_table
from modelkin.survey.vectors import Stack, stacks

# Each looks for the roles it is about, and gives no table where none of them was asked for.
PARTS: tuple[Callable[[Collected], list[Table]], ...] = (
    windows.tables,
    routers.tables,
    changes.tables,
    embeddings.tables,
)


def survey(models: Sequence[str], options: SurveyOptions = SurveyOptions(), progress: Progress = no_progress) -> Survey:
    """Everything measured of a set of models; of one alone, what can be said of it without another."""
    began = time.perf_counter()
    with collected(models, options, progress) as found:
        return survey_of(found, began)


def survey_of(found: Collected, began: float) -> Survey:
    """The same of models that have been read already."""
    measured = stacks(found)
    listed = survey_models(found)
    tables, layer_matrices = vector_tables(found, measured)
    for number, part in enumerate(PARTS):
        found.progress("comparing", number, len(PARTS))
        tables += part(found)
    made = Survey(
        modelkin=__version__,
        seed=found.seed,
        models=listed,
        roles=tuple(role.value for role in found.roles),
        layers=found.layers,
        known=found.known,
        tables=(model_table(listed), *tables),
        matrices=(*model_matrices(found), *within_matrices(found), *layer_matrices),
        left_out=tuple(found.left_out),
        cost=_cost(found, time.perf_counter() - began),
    )
    return sealed_survey(made)


def vector_tables(found: Collected, measured: Sequence[Stack]) -> tuple[list[Table], list[Matrix]]:
    """What vectors give: within each model, and between every two of one width."""
    if not measured:
        return [], []
    made = [gain_table(measured), baseline_table(found, measured)]
    made += [ridge_table(found, measured), surface_table(measured)]
    made += pca_tables(found, measured)
    between, matrices = _between(found, measured) if len(found.models) > 1 else ([], [])
    return [*made, *between, *_differences(found, measured)], matrices


def _between(found: Collected, measured: Sequence[Stack]) -> tuple[list[Table], list[Matrix]]:
    curves: list[tuple[Value, ...]] = []
    summary: list[tuple[Value, ...]] = []
    bars: list[tuple[Value, ...]] = []
    squares: list[Matrix] = []
    draws = 0
    for number, stack in enumerate(measured):
        found.progress("comparing layers", number, len(measured))
        null = null_of(found, stack)
        draws = max(draws, renumberings(null))
        for it in pairs(found, stack, null):
            curves += curve_rows(it)
            summary += layer_pair_rows(it)
            bars += quartile_rows(found, it)
            squares += matrices(it)
    return [*tables(curves, summary, draws), group_table(found, measured), quartile_table(found, bars)], squares


def _differences(found: Collected, measured: Sequence[Stack]) -> list[Table]:
    """Input minus post gains: of each model, and of every two."""
    widths = dict.fromkeys(stack.width for stack in measured)
    made = [stack for width in widths if (stack := difference_stack(measured, width)) is not None]
    if not made:
        return []
    rows: list[tuple[Value, ...]] = []
    for stack in made:
        for it in pairs(found, stack, null_of(found, stack, "input minus post")):
            i, j = it.i[it.facing_a], it.j[it.facing_b]
            numbers = zip(cells(stack.pearsons[i, j]), cells(facing_pvalues(it)), strict=True)
            names = (it.a.label, it.b.label)
            rows += [
                (*names, stack.layers[n], *both, stack.layers[m]) for n, m, both in zip(i, j, numbers, strict=True)
            ]
    return [difference_table(made), *([difference_pair_table(rows)] if rows else [])]


def _cost(found: Collected, seconds: float) -> SurveyCost:
    ledgers = [model.anatomy.checkpoint.source.ledger for model in found.models]
    return SurveyCost(
        bytes=sum(ledger.bytes() for ledger in ledgers),
        tensor_bytes=sum(ledger.bytes(TENSOR_KINDS) for ledger in ledgers),
        requests=sum(ledger.requests for ledger in ledgers),
        seconds=seconds,
    )
