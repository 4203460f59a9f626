"""The statements that other published data contradict, and the right numbers computed anew from those data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from modelkin.records import Table, Value
from modelkin.reference.published import chosen, records, rows
from modelkin.reference.recomputed import (
    HIDDEN,
    bf16_step,
    changed_rows,
    claimed_sigma,
    facing,
    gain_norms,
    means_only,
    off_diagonal,
    relative_to_other,
    windowed,
)

Recompute = Callable[[], float]


def _cosine(layer: int) -> Recompute:
    return lambda: float(facing("norm_pre", "cosine")[layer])


def _pearson(layer: int) -> Recompute:
    return lambda: float(facing("norm_pre", "pearson")[layer])


def _digitised(a: str, b: str, column: str) -> dict[int, float]:
    found = chosen("per_layer_similarity_digitised", model_a=a, model_b=b)
    return {int(row["layer"]): float(row[column]) for row in found}


def _mean_gains(side: str) -> list[float]:
    return [float(row[f"{side}_mean"]) for row in chosen("layernorm_sanity", category="norm_pre")]


def _parameters(model: str) -> float:
    fact = next(row for row in chosen("model_facts", model=model) if row["field"].startswith("params"))
    return int(fact["value"]) / 1e9


def _values_that_moved() -> float:
    """At the last layer: mean |difference| times the number of values, in bfloat16 steps of the mean gain."""
    difference, mean = changed_rows("mean_abs_diff")[45], changed_rows("glm_gamma_mean")[45]
    assert difference is not None
    assert mean is not None
    return difference * HIDDEN / bf16_step(mean)


def _table(statistic: str, table: str, **values: str) -> float:
    return float(chosen("baseline_tables", table=table, statistic=statistic, **values)[0]["value"])


def _embedding_standard_errors() -> float:
    found = np.array([float(row["cosine"]) for row in rows("embedding_comparison")])
    return float(found.mean() / found.std() * math.sqrt(found.size))


def _summary_standard_errors() -> float:
    summary = records("embedding_comparison")
    mean, std, n = (float(summary[name]) for name in ("mean_cosine", "std_cosine", "num_tokens"))
    return mean / std * math.sqrt(n)


def _smallest_of_phi() -> float:
    screens = [row for row in rows("within_model_cosine_screens") if row["model"].startswith("Phi")]
    return min(float(row["cosine"]) for row in screens if row["tensor"] == "post_attention_layernorm")


def _phi_relative_to_itself() -> float:
    values = {
        row["metric"]: float(row["value"])
        for row in chosen("solar_glm_phi_metrics", tensor="post_attention_layernorm", model_a="glm", model_b="phi")
        if (row["layer_a"], row["layer_b"]) == ("20", "20")
    }
    return relative_to_other(values["cosine"], values["rel_l2"])


def _models_in_the_map() -> float:
    cells = chosen("baseline_tables", table="exp5_heatmap")
    return float(len({row["model_a"] for row in cells} | {row["model_b"] for row in cells}))


def _dense_models() -> float:
    """From the counts behind the means: 4 × dense pairs of MoE and dense, dense (dense − 1) / 2 among dense."""
    mixed = chosen("baseline_tables", table="exp5", model_a="MoE(4)", model_b="nonMoE(4)", statistic="mean")
    dense = int(mixed[0]["n"]) // 4
    among = chosen("baseline_tables", table="exp5", model_a="nonMoE(4)", statistic="mean")
    assert dense * (dense - 1) // 2 == int(among[0]["n"])
    return float(dense)


def _fields_that_differ() -> float:
    config = records("config_compare")
    structural = (
        "partial_rotary_factor",
        "intermediate_size",
        "moe_intermediate_size",
        "first_k_dense_replace",
        "num_nextn_predict_layers",
    )
    sides = [[config.get(f"{side}.config_summary.{name}", "absent") for name in structural] for side in "AB"]
    return float(sum(a != b for a, b in zip(*sides, strict=True)))


def _tokenizer(field: str) -> float:
    return float(records("tokenizer_compare")[field])


# quantity, as in contradicted_values.csv -> the number from the published data
RECOMPUTED: dict[str, Recompute] = {
    **{f"cosine at layer {layer}": _cosine(layer) for layer in (0, 5, 10, 20, 45)},
    **{f"pearson at layer {layer}": _pearson(layer) for layer in (0, 5, 10, 30)},
    "std of cosine on the diagonal": lambda: float(facing("norm_pre", "cosine").std()),
    "std of pearson on the diagonal": lambda: float(facing("norm_pre", "pearson").std()),
    "std of cosine off the diagonal": lambda: float(off_diagonal(means_only("norm_pre")).std()),
    "cosine at (0 23)": lambda: float(means_only("norm_pre")[0, 23]),
    "cosine at (10 30)": lambda: float(means_only("norm_pre")[10, 30]),
    "cosine at (10 20)": lambda: float(means_only("norm_pre")[10, 20]),
    "share of cells below 0.90": lambda: float((means_only("norm_pre") < 0.90).mean()),
    "share of cells above 0.98": lambda: float((means_only("norm_pre") > 0.98).mean()),
    "mean cosine of the post norm": lambda: float(facing("norm_post", "cosine").mean()),
    "mean pearson of the post norm": lambda: float(facing("norm_post", "pearson").mean()),
    "mean cosine of Phi and Solar": lambda: float(np.mean(list(_digitised("Phi", "Solar", "cosine").values()))),
    "mean cosine of GLM and Phi": lambda: float(np.mean(list(_digitised("GLM", "Phi", "cosine").values()))),
    "decoder layers of GLM": lambda: float(records("config_compare")["B.config_summary.num_hidden_layers"]),
    "parameters of Phi-3.5-MoE in billions": lambda: _parameters("Phi-3.5-MoE-instruct"),
    "mean gain of GLM over layers": lambda: float(np.mean(_mean_gains("B"))),
    "largest mean gain of GLM": lambda: max(_mean_gains("B")),
    "mean gain of Solar over layers": lambda: float(np.mean(_mean_gains("A"))),
    "percent changed at layer 1": lambda: changed_rows("changed_percent")[1] or math.nan,
    "percent changed at layer 2": lambda: changed_rows("changed_percent")[2] or math.nan,
    "changed values at layer 45": _values_that_moved,
    "pearson of GLM and Phi at layer 28": lambda: _digitised("GLM", "Phi", "pearson")[28],
    "standard errors of pearson at layer 34": lambda: _pearson(34)() * math.sqrt(HIDDEN - 1),
    "sigma": claimed_sigma,
    "fair baseline inside Solar": lambda: _table("mean", "exp2", model_a="Solar"),
    "fair baseline inside GLM": lambda: _table("mean", "exp2", model_a="GLM"),
    "mean cosine of k": lambda: float(windowed("k_proj").mean()),
    "mean cosine of v": lambda: float(windowed("v_proj").mean()),
    "mean absolute cosine of k": lambda: float(np.abs(windowed("k_proj")).mean()),
    "lowest group mean of norm cosines": lambda: min(
        float(row["value"]) for row in chosen("baseline_tables", table="exp5", statistic="mean")
    ),
    "share of GLM tokens in Solar": lambda: _tokenizer("token_set_overlap.overlap_vs_smaller"),
    "tokens of Solar that GLM lacks": lambda: (
        _tokenizer("A_fingerprint.vocab_size") - _tokenizer("token_set_overlap.intersection")
    ),
    "difference of tokenizer entries": lambda: (
        _tokenizer("A_fingerprint.vocab_size") - _tokenizer("B_fingerprint.vocab_size")
    ),
    "embedding pairs with equal ids": lambda: float(
        sum(row["solar_id"] == row["glm_id"] for row in rows("embedding_comparison"))
    ),
    "mean over 300 tokens in standard errors": _embedding_standard_errors,
    "mean over 200 tokens in standard errors": _summary_standard_errors,
    "smallest cosine of Phi": _smallest_of_phi,
    "rel_l2 of GLM and Phi relative to Phi": _phi_relative_to_itself,
    "dense models measured": _dense_models,
    "models in the map": _models_in_the_map,
    "offset by the other convention": lambda: float(records("tokenizer_analysis")["dominant_id_shift"]),
    "config fields that differ": _fields_that_differ,
    "largest gain norm": lambda: float(gain_norms("norm_post", "B").max()),
}


def contradictions() -> Table:
    """The 28 statements, and beside each the right numbers as they come out of the published files."""
    found: dict[str, list[str]] = {}
    for row in rows("contradicted_values"):
        value = RECOMPUTED[row["quantity"]]()
        found.setdefault(row["number"], []).append(f"{row['quantity']}: {value:.4g} (printed {row['printed']})")
    columns = ("number", "source", "statement", "contradicted_by", "right", "how_we_know", "recomputed")
    body: list[tuple[Value, ...]] = [
        (int(row["number"]), *(row[name] for name in columns[1:-1]), "; ".join(found.get(row["number"], ())) or None)
        for row in rows("contradictions")
    ]
    return Table(
        name="contradictions",
        title="Published statements that other published data contradict",
        caption=f"{len(body)} statements, {len(found)} of them recomputed from published files.",
        strangers="These are facts about documents: no chance is involved.",
        columns=columns,
        rows=tuple(body),
    )
