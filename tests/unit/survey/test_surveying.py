"""A survey as a whole: every table and matrix by brute force on small checkpoints, and what hostile ones give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from builders import CONFIG, HIDDEN, LAYERS, llama_tensors
from modelkin import metrics
from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.errors import NothingComparable, UsageError
from modelkin.metrics import Unmeasurable
from modelkin.records import KnownPair, Role, Survey, Value
from modelkin.report.files import to_json
from modelkin.report.survey_files import matrix_csv, table_csv, write_survey
from modelkin.report.survey_text import survey_page
from modelkin.report.text import render
from modelkin.sources.memory import MemorySource
from modelkin.survey import Collected, SurveyOptions, survey, survey_of
from modelkin.survey.labels import named
from modelkin.survey.reading import collect

BEFORE, AFTER = "input_layernorm", "post_attention_layernorm"


def tensors(seed: int, **changed: Any) -> dict[str, Any]:
    return {name: array.astype(np.float32) for name, array in llama_tensors(seed).items()} | changed


def collected(
    models: Sequence[dict[str, Any]], options: SurveyOptions = SurveyOptions(), *configs: dict[str, Any]
) -> Collected:
    """`configs`: what differs from the usual one, a model each."""
    names = [f"made/m{number}" for number in range(len(models))]
    anatomies = []
    for name, model, config in zip_longest(names, models, configs, fillvalue={}):
        files = {"config.json": json.dumps(CONFIG | config).encode(), "model.safetensors": save(model)}
        anatomies.append(identify(open_checkpoint(MemorySource(files, name))))
    return collect(anatomies, named(names, names), options)


def surveyed(
    models: Sequence[dict[str, Any]], options: SurveyOptions = SurveyOptions(), *configs: dict[str, Any]
) -> Survey:
    return survey_of(collected(models, options, *configs), 0.0)


def records(survey: Survey, name: str) -> list[dict[str, Value]]:
    table = survey.table(name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def gain(model: dict[str, Any], layer: object, norm: str = BEFORE) -> np.ndarray:
    return np.asarray(model[f"model.layers.{layer}.{norm}.weight"], dtype=np.float64)


@pytest.fixture(scope="module")
def three() -> tuple[list[dict[str, Any]], Survey]:
    models = [tensors(1), tensors(2), tensors(3)]
    groups = (("one", ("m0", "m1")), ("two", ("m2",)))
    options = SurveyOptions(layers=("all",), groups=groups, known=(KnownPair("m0", "m1", "independent"),))
    return models, surveyed(models, options)


def test_curves_hold_the_metrics_of_facing_layers(three):
    models, survey = three
    rows = records(survey, "curves")
    assert len(rows) == 3 * 2 * LAYERS
    asked = {
        "cosine": metrics.cosine_similarity,
        "pearson": metrics.centred_cosine_similarity,
        "spearman": metrics.spearman_similarity,
        "cosine_minus_one": metrics.cosine_minus_one_similarity,
        "mean_abs": metrics.mean_abs_distance,
        "l2": metrics.l2_distance,
        "rel_l2_to_a": metrics.rel_l2_to_a_distance,
        "rel_l2_to_b": metrics.rel_l2_to_b_distance,
        "rel_rmse": metrics.rel_l2_to_a_distance,
        "p99_abs": metrics.p99_abs_distance,
        "cv": metrics.cv_distance,
    }
    for row in rows:
        norm = BEFORE if row["role"] == "input_norm" else AFTER
        a, b = (gain(models[int(str(row[side])[1:])], row[f"layer_{side}"], norm) for side in "ab")
        for name, metric in asked.items():
            assert row[name] == pytest.approx(metric(a, b), rel=1e-9, abs=1e-12), name
        means = metrics.expected_cosine(mean_a=a.mean(), std_a=a.std(), mean_b=b.mean(), std_b=b.std())
        assert row["expected_cosine"] == pytest.approx(means, rel=1e-12)


def test_model_matrices_hold_every_metric_and_rows_are_denominators(three):
    models, survey = three
    matrix = next(m for m in survey.matrices if m.name == "models.post_norm.1.rel_l2")
    found = np.array(matrix.values)
    for i, a in enumerate(models):
        for j, b in enumerate(models):
            one, other = gain(a, 1, AFTER), gain(b, 1, AFTER)
            assert found[i, j] == pytest.approx(metrics.rel_l2_to_a_distance(one, other), rel=1e-12)
    assert not np.allclose(found, found.T)
    names = {m.name.rpartition(".")[2] for m in survey.matrices if m.name.startswith("models.input_norm.0.")}
    assert names == {"cosine", "centred_cosine", "mean_abs", "rel_l2", "cv", "p99_abs", "l2"}


def test_layer_pairs_by_brute_force(three):
    models, survey = three
    table = np.array(
        [
            [metrics.cosine_similarity(gain(models[0], i), gain(models[2], j)) for j in range(LAYERS)]
            for i in range(LAYERS)
        ]
    )
    matrix = next(m for m in survey.matrices if m.name == "layers.m0.m2.input_norm.cosine")
    assert np.array(matrix.values) == pytest.approx(table, rel=1e-12)
    key = ("m0", "m2", "input_norm", "cosine")
    rows = records(survey, "layer-pairs")
    (row,) = (row for row in rows if (row["a"], row["b"], row["role"], row["metric"]) == key)
    off = table[~np.eye(LAYERS, dtype=bool)]
    assert row["diagonal_mean"] == pytest.approx(np.diag(table).mean())
    assert row["off_mean"] == pytest.approx(off.mean())
    assert row["off_std"] == pytest.approx(off.std())
    assert row["dominance"] == pytest.approx(np.diag(table).mean() - off.mean())
    best = max(range(-1, 2), key=lambda k: np.diagonal(table, k).mean())
    assert row["best_offset"] == best
    assert row["best_offset_mean"] == pytest.approx(np.diagonal(table, best).mean())


def test_baselines_by_brute_force(three):
    models, survey = three
    rows = {(r["model"], r["role"], r["baseline"], r["distance"]): r for r in records(survey, "baselines")}
    first = [metrics.cosine_similarity(gain(models[1], 0), gain(models[1], layer)) for layer in range(1, LAYERS)]
    assert rows["m1", "input_norm", "layer-0", None]["cosine_mean"] == pytest.approx(np.mean(first))
    apart = [metrics.l2_distance(gain(models[1], i), gain(models[1], i + 1)) for i in range(LAYERS - 1)]
    assert rows["m1", "input_norm", "equal-distance", 1]["l2_mean"] == pytest.approx(np.mean(apart))
    assert rows["m1", "input_norm", "equal-distance", 1]["l2_std"] == pytest.approx(np.std(apart))
    across = [metrics.centred_cosine_similarity(gain(models[1], i), gain(models[1], i, AFTER)) for i in range(LAYERS)]
    found = rows["m1", "input_norm and post_norm", "input-vs-post", 0]
    assert found["pearson_mean"] == pytest.approx(np.mean(across))


def test_shuffled_and_drawn_vectors_come_out_as_means_alone_predict(three):
    """All three speak of strangers with these means; d = 32, so a cosine of CV 0.1 strays by less than 0.01."""
    rows = {(r["model"], r["baseline"]): r for r in records(three[1], "baselines") if r["role"] == "post_norm"}
    for label in ("m0", "m1", "m2"):
        means = rows[label, "means-only"]
        for other in ("shuffled", "random-normal"):
            assert rows[label, other]["cosine_mean"] == pytest.approx(means["cosine_mean"], abs=0.01)
        assert rows[label, "shuffled"]["l2_mean"] == pytest.approx(means["l2_mean"], rel=0.35)


def test_groups_count_every_pair_once(three):
    models, survey = three
    rows = {(r["layer"], r["group_a"], r["group_b"]): r for r in records(survey, "groups") if r["role"] == "input_norm"}
    assert rows["1", "all", "all"]["n"] == 3
    between = [metrics.cosine_similarity(gain(models[i], 1), gain(models[2], 1)) for i in (0, 1)]
    assert rows["1", "one", "two"]["n"] == 2
    assert rows["1", "one", "two"]["cosine_mean"] == pytest.approx(np.mean(between))
    assert ("1", "two", "two") not in rows


def test_what_is_known_stands_beside_the_numbers_and_changes_none(three):
    models, survey = three
    without = surveyed(models, SurveyOptions(layers=("all",)))
    assert {r["known"] for r in records(survey, "curves") if (r["a"], r["b"]) == ("m0", "m1")} == {"independent"}
    numbers = [[row[4:] for row in it.table("curves").rows] for it in (survey, without)]
    assert numbers[0] == numbers[1]


def test_principal_components_against_svd(three):
    models, survey = three
    rows = np.array([gain(m, i, norm) for norm in (BEFORE, AFTER) for m in models for i in range(LAYERS)])
    rows -= rows.mean(axis=0)
    singular = np.linalg.svd(rows, compute_uv=False)
    shares = [r["share"] for r in records(survey, "pca-explained") if r["centred"] == "no"]
    assert shares == pytest.approx((singular**2 / (singular**2).sum())[:3])
    scores = np.array([[r["pc1"], r["pc2"], r["pc3"]] for r in records(survey, "pca") if r["centred"] == "no"])
    assert np.linalg.norm(scores, axis=0) == pytest.approx(singular[:3])


def test_ridges_hold_every_value_and_integrate_to_one(three):
    models, survey = three
    rows = [r for r in records(survey, "ridges") if (r["model"], r["role"], r["layer"]) == ("m0", "input_norm", "2")]
    values = gain(models[0], 2)
    assert sum((r["right"] - r["left"]) * r["density"] for r in rows) == pytest.approx(1)
    assert [r["right"] for r in rows[:-1]] == [r["left"] for r in rows[1:]]
    for row in rows:
        on_an_edge = np.mean((values == row["left"]) | (values == row["right"]))
        inside = np.mean((values > row["left"]) & (values < row["right"])) + on_an_edge / 2
        assert (row["right"] - row["left"]) * row["density"] == pytest.approx(inside)
    # None is empty at an end: the axis runs from the least to the greatest value.
    assert rows[0]["density"] > 0
    assert rows[-1]["density"] > 0


def test_quartile_bars_come_from_the_layer_of_highest_cosine(three):
    models, survey = three
    rows = [r for r in records(survey, "quartiles") if (r["a"], r["b"], r["role"]) == ("m0", "m1", "input_norm")]
    cosines = [metrics.cosine_similarity(gain(models[0], i), gain(models[1], i)) for i in range(LAYERS)]
    assert {r["layer_a"] for r in rows} == {str(int(np.argmax(cosines)))}
    assert len({r["dimension"] for r in rows}) == len(rows) == 32
    a = gain(models[0], rows[0]["layer_a"])
    for row in rows:
        assert row["minus_mean_a"] == pytest.approx(a[row["dimension"]] - a.mean())


def test_input_minus_post_correlates_differences(three):
    models, survey = three
    rows = [r for r in records(survey, "input-minus-post-pairs") if (r["a"], r["b"]) == ("m1", "m2")]
    for row in rows:
        parts = [gain(models[n], row["layer"]) - gain(models[n], row["layer"], AFTER) for n in (1, 2)]
        assert row["pearson"] == pytest.approx(metrics.centred_cosine_similarity(*parts))


def test_a_copy_is_seen_and_strangers_are_not():
    """A copy with noise in facing layers: the smallest p there is. Strangers: no p below 1e-3 in twelve."""
    rng = np.random.default_rng(5)
    first = tensors(1)
    noisy = {name: (array + 0.02 * rng.normal(size=array.shape)).astype(np.float32) for name, array in first.items()}
    rows = records(surveyed([first, noisy, tensors(2)]), "layer-pairs")
    related = [r for r in rows if (r["a"], r["b"]) == ("m0", "m1")]
    assert all(r["diagonal_p"] < 0.001 and r["best_offset"] == 0 for r in related if r["metric"] == "pearson")
    assert all(r["diagonal_p"] > 0.001 for r in rows if r["b"] == "m2")


def test_matrix_roles_are_measured_whole_where_they_are_small():
    models = [tensors(1), tensors(2)]
    found = surveyed(models, SurveyOptions(roles=("k",), layers=("1",)))
    matrix = next(m for m in found.matrices if m.name == "models.k.1.centred_cosine")
    a, b = (model["model.layers.1.self_attn.k_proj.weight"] for model in models)
    assert matrix.values[0][1] == pytest.approx(metrics.centred_cosine_similarity(a, b), rel=1e-9)
    assert "every value used" in matrix.caption


def test_each_model_stands_at_a_layer_of_its_own():
    models = [tensors(1), tensors(2)]
    found = surveyed(models, SurveyOptions(roles=("input_norm", "v"), layers=("1",), mixed=(("m0", "0"), ("m1", "2"))))
    matrix = next(m for m in found.matrices if m.name == "mixed.v.cosine")
    assert matrix.rows == ("m0@0", "m1@2")
    a, b = (models[n][f"model.layers.{layer}.self_attn.v_proj.weight"] for n, layer in ((0, 0), (1, 2)))
    assert matrix.values[0][1] == pytest.approx(metrics.cosine_similarity(a, b), rel=1e-9)


def test_broken_vectors_give_empty_cells_and_a_sentence():
    broken = np.full(HIDDEN, np.nan, dtype=np.float32)
    vectors = (broken, np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32))
    odd = tensors(1, **{f"model.layers.{layer}.input_layernorm.weight": it for layer, it in enumerate(vectors)})
    found = surveyed([odd, tensors(2)])
    rows = {r["layer_a"]: r for r in records(found, "curves") if r["role"] == "input_norm"}
    asked = ("cosine", "pearson", "cosine_minus_one", "l2", "rel_l2_to_a")
    missing = {layer: {name for name in asked if row[name] is None} for layer, row in rows.items()}
    assert missing == {
        "0": set(asked),
        "1": {"pearson", "cosine_minus_one"},
        "2": {"cosine", "pearson", "rel_l2_to_a"},
    }
    assert any("not finite" in line for line in found.left_out)
    assert any("constant" in line for line in found.left_out)
    with pytest.raises(Unmeasurable):
        metrics.cosine_similarity(np.zeros(HIDDEN), gain(odd, 1))
    json.loads(to_json(found))


def test_zero_centred_gains_are_taken_as_applied():
    stored = {n: a - 1 if "norm" in n else a for n, a in tensors(1).items()}
    gemma = {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "head_dim": 8}
    plain = records(surveyed([tensors(1)]), "gains")[0]["mean"]
    zero_centred = records(surveyed([stored], SurveyOptions(), gemma), "gains")[0]["mean"]
    assert zero_centred == pytest.approx(plain, abs=1e-6)


def test_one_model_alone_has_its_own_parts():
    found = surveyed([tensors(1)])
    assert {table.name for table in found.tables} >= {"models", "gains", "baselines", "pca", "ridges", "surface"}
    assert "curves" not in {table.name for table in found.tables}
    assert all(matrix.name.startswith("within.") for matrix in found.matrices)
    assert "one model alone" in render(survey_page(found))


def test_other_widths_stand_apart_and_it_is_said():
    wide, narrow = ({n: a for n, a in tensors(seed).items() if "layernorm" in n} for seed in (1, 2))
    narrow = {n: a[: HIDDEN // 2] for n, a in narrow.items()}
    found = surveyed([wide, narrow], SurveyOptions(), {}, {"hidden_size": HIDDEN // 2})
    assert any("different widths" in line for line in found.left_out)
    assert found.table("curves").rows == ()
    assert len({r["model"] for r in records(found, "gains")}) == 2


def test_the_same_seed_gives_the_same_survey_and_a_model_more_moves_no_number():
    models = [tensors(1), tensors(2)]
    first, second = surveyed(models), surveyed(models)
    assert (first.tables, first.matrices) == (second.tables, second.matrices)
    more = surveyed([*models, tensors(3)])
    kept = tuple(row for row in more.table("curves").rows if row[:2] == ("m0", "m1"))
    assert kept == first.table("curves").rows


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (SurveyOptions(roles=("inputnorm",)), "no role inputnorm"),
        (SurveyOptions(layers=("99",)), "no model has layer 99"),
        (SurveyOptions(groups=(("x", ("nobody",)),)), "'nobody' is none of the models"),
        (SurveyOptions(mixed=(("m0", "17"), ("m1", "0"))), "no layer 17"),
    ],
)
def test_a_request_without_sense_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        collected([tensors(1), tensors(2)], options)


def test_roles_that_nobody_has_end_the_survey_and_a_missing_one_is_said():
    with pytest.raises(NothingComparable, match="router"):
        collected([tensors(1)], SurveyOptions(roles=("router",)))
    assert "no model has router" in collected([tensors(1)], SurveyOptions(roles=("router", "input_norm"))).left_out


def test_no_model_is_no_survey():
    with pytest.raises(UsageError, match="at least one"):
        survey([])


def test_the_files_hold_the_record(tmp_path: Path, three):
    _, found = three
    paths = write_survey(found, render(survey_page(found, str(tmp_path))), tmp_path)
    assert all(path.exists() for path in paths)
    assert len(list((tmp_path / "matrices").iterdir())) == len(found.matrices)
    assert (tmp_path / "tables" / "curves.csv").read_text().splitlines()[0] == ",".join(found.table("curves").columns)
    assert len(table_csv(found.table("gains")).splitlines()) == len(found.table("gains").rows) + 1
    lines = matrix_csv(found.matrices[0]).splitlines()
    assert lines[0] == "cosine of,m0,m1,m2"
    assert lines[1].startswith("m0,1.0")
    text = (tmp_path / "captions.txt").read_text()
    assert all(matrix.name in text for matrix in found.matrices)


def test_labels_tell_models_apart():
    ids = ["a/base", "b/base", "c/other", "c/other", "x/한국-모델"]
    names = named(ids, ids)
    assert names.labels == ("a-base", "b-base", "other", "other-2", "한국-모델")
    assert names.repeated() == ("c/other",)
    assert names.label("b/base", "--group") == "b-base"


def test_roles_of_the_survey_are_the_gains_of_every_layer(three):
    assert three[1].roles == (Role.INPUT_NORM, Role.POST_NORM)
