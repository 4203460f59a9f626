"""A survey made of the published numbers agrees with them; one that is off differs; a document at odds is told."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from modelkin.records import Matrix, Survey, SurveyCost, SurveyModel, Table, Value
from modelkin.reference import check
from modelkin.reference.checking import disputed_claims
from modelkin.reference.claims import Claim, all_claims
from modelkin.reference.published import ROLES, chosen, rows

A, B = "Solar-Open-100B", "GLM-4.5-Air"
CURVES = (
    "a", "b", "known", "role", "layer_a", "layer_b", "n", "cosine", "expected_cosine", "pearson", "mean_abs", "l2",
    "p99_abs", "cv", "rel_l2_to_a", "rel_l2_to_b",
)  # fmt: skip


def table(name: str, columns: tuple[str, ...], body: list[tuple[Value, ...]]) -> Table:
    return Table(name=name, title=name, caption="", strangers="", columns=columns, rows=tuple(body))


def model(name: str, owner: str, layers: int) -> SurveyModel:
    return SurveyModel(
        id=f"{owner}/{name}", label=name, revision=None, family="f", parameters=1, layers=layers, hidden=4096
    )


def published_survey() -> Survey:
    curves: list[tuple[Value, ...]] = []
    gains: list[tuple[Value, ...]] = []
    for row in rows("layernorm_sanity"):
        role, layer = ROLES[row["category"]], row["layer"]
        numbers = (float(row["cosine"]), 0.9, float(row["cosine_centered"]))
        curves.append((A, B, None, role, layer, layer, 4096, *numbers, None, None, None, None, None, None))
        for label, side in ((A, "A"), (B, "B")):
            gains.append((label, role, layer, float(row[f"{side}_mean"]), float(row[f"{side}_std"])))
    models = (model(A, "upstage", 48), model(B, "zai-org", 46))
    described = [(it.label, it.layers, it.hidden) for it in models]
    return Survey(
        modelkin="0",
        seed=0,
        models=models,
        roles=("input_norm", "post_norm"),
        layers=(),
        tables=(
            table("models", ("model", "layers", "hidden"), described),
            table("curves", CURVES, curves),
            table("gains", ("model", "role", "layer", "mean", "std"), gains),
        ),
        matrices=(),
        cost=SurveyCost(bytes=0, tensor_bytes=0, requests=0, seconds=0.0),
    )


def verdicts(survey: Survey) -> dict[tuple[str, str, str], str]:
    found = check(survey)
    return {(str(row[0]).rpartition(", ")[2], str(row[1]), str(row[2])): str(row[-1]) for row in found.rows}


def test_the_published_numbers_agree_with_themselves() -> None:
    found = check(published_survey())
    assert found.columns == ("source", "where", "quantity", "published", "measured", "difference", "verdict")
    counts = Counter((str(row[0]).rpartition(", ")[2], row[-1]) for row in found.rows)
    assert counts["layernorm_sanity", "agree"] == 92 * 6
    assert counts["layerwise_similarity", "agree"] == 92 * 2
    assert counts["published_records", "differ"] == 0
    assert not [row for row in found.rows if row[-1] == "differ"]


def test_means_over_layers_are_compared_where_every_layer_was_measured() -> None:
    found = verdicts(published_survey())
    assert found["published_records", "statistics, input_norm", "cosine mean"] == "agree"
    assert found["published_records", "layer decay, both norms", "diagonal_mean"] == "agree"
    assert found["published_records", "layer decay, both norms", "off_diagonal_mean"] == "not measured"


def test_tables_typed_by_hand_contradict_their_own_source() -> None:
    found = verdicts(published_survey())
    typed = found["reanalysis_tables", "D-2.1: solar 0, glm 0, input_norm", "cosine value"]
    assert typed == "source contradicts itself"
    assert found["claim_tables", "solar 0-45, glm 0-45, input_norm", "mean_cosine"] == "agree"


def test_a_survey_that_is_off_differs_and_says_by_how_much() -> None:
    survey = published_survey()
    curves = survey.table("curves")
    shifted = tuple((*row[:7], row[7] + 1e-4, *row[8:]) for row in curves.rows)  # type: ignore[operator]
    others = tuple(it for it in survey.tables if it.name != "curves")
    off = msgspec.structs.replace(survey, tables=(*others, msgspec.structs.replace(curves, rows=shifted)))
    rows_of = [row for row in check(off).rows if str(row[0]).endswith("layernorm_sanity") and row[2] == "cosine"]
    assert {row[-1] for row in rows_of} == {"differ"}
    assert all(row[5] == pytest.approx(1e-4, abs=1e-9) for row in rows_of)


def test_what_has_to_be_looked_at_comes_first() -> None:
    order = list(dict.fromkeys(row[-1] for row in check(published_survey()).rows))
    assert order == ["source contradicts itself", "agree", "not measured"]


def test_other_models_leave_everything_unmeasured() -> None:
    survey = published_survey()
    renamed = tuple(msgspec.structs.replace(it, id=f"someone/else-{n}") for n, it in enumerate(survey.models))
    found = Counter(row[-1] for row in check(msgspec.structs.replace(survey, models=renamed)).rows)
    assert found.keys() == {"not measured", "source contradicts itself"}


def test_models_in_the_other_order_and_from_a_folder_are_found() -> None:
    survey = published_survey()
    local = tuple(msgspec.structs.replace(it, id=f"/data/{it.label}/") for it in reversed(survey.models))
    assert (
        verdicts(msgspec.structs.replace(survey, models=local))["layernorm_sanity", "layer 3, post_norm", "pearson"]
        == "agree"
    )


@pytest.mark.parametrize(
    ("name", "names", "key"),
    [
        ("layers.Solar-Open-100B.GLM-4-5-Air", ("10", "20"), ("claim_tables", "solar 10, glm 20, input_norm")),
        ("within.GLM-4-5-Air", ("0", "10"), ("baseline_tables", "exp1: glm 0, glm 10, input_norm")),
    ],
)
def test_matrices_of_layers_are_read_by_model_and_layer(
    name: str, names: tuple[str, str], key: tuple[str, str]
) -> None:
    cells = ((1.0, 0.3758), (0.3758, 1.0)) if name.startswith("within") else ((0.5, 0.38), (0.5, 0.5))
    matrix = Matrix(
        name=f"{name}.input_norm.cosine", title="", caption="", strangers="", metric="cosine", role="input_norm",
        rows=names, columns=names, values=cells,
    )  # fmt: skip
    found = check(msgspec.structs.replace(published_survey(), matrices=(matrix,)))
    row = next(row for row in found.rows if str(row[0]).endswith(key[0]) and row[1] == key[1])
    assert row[4] == cells[0][1]
    assert row[-1] == "agree"  # what is measured counts more than what other documents say


def test_matrices_over_models_are_read_with_the_row_as_denominator() -> None:
    published = chosen(
        "solar_glm_phi_metrics", scope="cross_same_layer", metric="rel_l2", tensor="post_attention_layernorm",
        model_a="solar", model_b="glm", layer_a="20",
    )[0]  # fmt: skip
    value = float(published["value"])
    matrix = Matrix(
        name="models.post_norm.20.rel_l2", title="", caption="", strangers="", metric="rel_l2", role="post_norm",
        rows=(A, B), columns=(A, B), values=((0.0, value), (0.66, 0.0)),
    )  # fmt: skip
    found = check(msgspec.structs.replace(published_survey(), matrices=(matrix,)))
    row = next(row for row in found.rows if row[1] == "solar 20, glm 20, post_norm" and row[2] == "rel_l2")
    assert (row[4], row[-1]) == (value, "agree")


def test_a_rougher_claim_at_odds_with_an_exacter_one_is_disputed() -> None:
    cell = (("cosine", "input_norm", "solar", "3", "glm", "3"),)
    turned = (("cosine", "input_norm", "glm", "3", "solar", "3"),)
    exact = Claim("f", "w", "q", cell, 0.5, 1e-6)
    near, far = Claim("f", "w", "q", turned, 0.504, 0.005), Claim("f", "w", "q", turned, 0.52, 0.005)
    assert disputed_claims([exact, near, far]) == {far}


def test_claims_name_no_layer_that_is_not_a_decoder_layer() -> None:
    assert not [
        claim for claim in all_claims() for cell in claim.cells if len(cell) == 6 and "46" in (cell[3], cell[5])
    ]
