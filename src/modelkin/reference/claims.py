"""Every published number as a claim: which measured cells it speaks of, how they are summed up, and how exactly.

A cell is a tuple of names, the same that `measured.py` makes of a survey:
("cosine", "input_norm", "solar", "10", "glm", "10"), ("gain mean", "post_norm", "glm", "3"), ("token", " the") …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from modelkin.reference.published import ROLES, Row, half_a_digit, records, rows

Cell = tuple[str, ...]
Statistic = Literal["value", "mean", "std", "mean_abs"]

METRICS = {
    "cosine": "cosine",
    "centered_cosine": "pearson",
    "pearson": "pearson",
    "mean_abs_diff": "mean_abs",
    "rel_l2": "rel_l2",
    "cv_diff": "cv",
    "p99_abs_diff": "p99_abs",
    "l2": "l2",
}
FLOAT32 = 1e-6
DIGITISED = 0.003
DECODER = tuple(str(layer) for layer in range(46))
MOE = ("solar", "glm", "phi", "mixtral")
DENSE = ("mistral-7b", "yi-1.5-6b", "yi-1.5-9b", "qwen1.5-7b")


@dataclass(frozen=True, slots=True)
class Claim:
    """`tolerance` is how far a right recomputation may lie; `disputed`: other published data say otherwise."""

    file: str
    where: str
    quantity: str
    cells: tuple[Cell, ...]
    value: float
    tolerance: float
    statistic: Statistic = "value"
    disputed: bool = False


def all_claims() -> list[Claim]:
    makers = (_sanity, _layerwise, _three_models, _screens, _baselines, _claim, _reanalysis, _digitised, _changes)
    return [claim for maker in (*makers, _tokens, _facts, _summaries) for claim in maker()]


def _facing(metric: str, role: str, layer: str, a: str = "solar", b: str = "glm") -> Cell:
    return (metric, role, a, layer, b, layer)


def _float32(value: float) -> float:
    return FLOAT32 * (1 + 2 * abs(value))


def _sanity() -> Iterator[Claim]:
    file = "layernorm_sanity"
    sides = {"A": "solar", "B": "glm"}
    for row in rows(file):
        role, layer = ROLES[row["category"]], row["layer"]
        where = f"layer {layer}, {role}"
        for column, metric in (("cosine", "cosine"), ("cosine_centered", "pearson")):
            value = float(row[column])
            yield Claim(file, where, metric, (_facing(metric, role, layer),), value, _float32(value))
        for side, model in sides.items():
            for statistic in ("mean", "std"):
                value = float(row[f"{side}_{statistic}"])
                cell = (f"gain {statistic}", role, model, layer)
                yield Claim(file, where, f"{statistic} of {model}", (cell,), value, _float32(value))


def _layerwise() -> Iterator[Claim]:
    file = "layerwise_similarity"
    for row in rows(file):
        role, layer = ROLES[row["category"]], row["layer_A"]
        for metric, column in (("cosine", "cosine"), ("pearson", "pearson"), ("aligned", "aligned_expert_cosine")):
            if row[column]:
                cell = _facing(metric, role, layer)
                yield Claim(
                    file, f"layer {layer}, {role}", metric, (cell,), float(row[column]), half_a_digit(row[column])
                )


def _three_models() -> Iterator[Claim]:
    file = "solar_glm_phi_metrics"
    for row in rows(file):
        role, metric = ROLES[row["tensor"]], METRICS[row["metric"]]
        if metric == "cv" and role in ("k", "v"):
            continue  # their means are near zero: the ratio says nothing
        value = float(row["value"])
        yield Claim(file, _where(row, role), row["metric"], (_cell(row, metric, role),), value, _float32(value))


def _cell(row: Row, metric: str, role: str) -> Cell:
    return (metric, role, row["model_a"].lower(), row["layer_a"], row["model_b"].lower(), row["layer_b"])


def _where(row: Row, role: str) -> str:
    return f"{row['model_a']} {row['layer_a']}, {row['model_b']} {row['layer_b']}, {role}".lower()


def _screens() -> Iterator[Claim]:
    file = "within_model_cosine_screens"
    for row in rows(file):
        model, role = row["model"].lower().split("-open")[0], ROLES[row["tensor"]]
        model = next((name for name in ("solar", "glm", "phi") if model.startswith(name)), model)
        cell = ("cosine", role, model, row["layer_a"], model, row["layer_b"])
        where, value = f"{model} {row['layer_a']}, {row['layer_b']}, {role}", float(row["cosine"])
        yield Claim(file, where, "cosine", (cell,), value, _float32(value))


def _baselines() -> Iterator[Claim]:
    file = "baseline_tables"
    for row in rows(file):
        cells = _baseline_cells(row)
        if cells:
            tolerance = 0.5 * 10 ** -int(row["decimals"]) + FLOAT32
            kind: Statistic = "std" if row["statistic"] == "std_pop" else "mean" if len(cells) > 1 else "value"
            where = f"{row['table']}: {_where(row, 'input_norm')}"
            yield Claim(file, where, f"{row['metric']} {row['statistic']}", cells, float(row["value"]), tolerance, kind)


def _baseline_cells(row: Row) -> tuple[Cell, ...]:
    """Empty for random vectors, and for a spread of means that no list of cells gives."""
    if row["model_a"].startswith("N(") or row["statistic"] == "std_of_layer_means":
        return ()
    metric = METRICS[row["metric"]]
    layers_a, layers_b = (_listed(row[name]) for name in ("layer_a", "layer_b"))
    longest = max(len(layers_a), len(layers_b))
    faced = zip(_stretched(layers_a, longest), _stretched(layers_b, longest), strict=True)
    pairs = _model_pairs(row["model_a"].lower(), row["model_b"].lower())
    return tuple((metric, "input_norm", a, layer_a, b, layer_b) for layer_a, layer_b in faced for a, b in pairs)


def _listed(layers: str) -> list[str]:
    return [str(layer) for layer in range(5, 31, 5)] if layers == "5-30" else layers.split("|")


def _stretched(layers: list[str], n: int) -> list[str]:
    return layers * n if len(layers) == 1 else layers


def _model_pairs(a: str, b: str) -> list[tuple[str, str]]:
    groups = {"moe(4)": MOE, "nonmoe(4)": DENSE}
    if a in groups and a == b:
        return list(combinations(groups[a], 2))
    return [(x, y) for x in groups.get(a, (a,)) for y in groups.get(b, (b,))]


def _claim() -> Iterator[Claim]:
    file = "claim_tables"
    for row in rows(file):
        cells = _claim_cells(row)
        printed, found = row["printed_value"], row["recomputed_value"]
        if not cells or not printed:
            continue
        disputed = bool(found) and abs(float(printed) - float(found)) > half_a_digit(printed) + FLOAT32
        kind: Statistic = "mean" if len(cells) > 1 else "value"
        where = _where(row, ROLES[row["tensor"]])
        yield Claim(file, where, row["quantity"], cells, float(printed), half_a_digit(printed), kind, disputed)


def _claim_cells(row: Row) -> tuple[Cell, ...]:
    role = ROLES[row["tensor"]]
    if row["quantity"] in ("cosine", "claimed_off_layer_cosine"):
        return (_cell(row, "cosine", role),)
    if row["quantity"] == "mean_cosine" and row["layer_a"] == "0-45":
        # Sampled windows of the matrices; whole tensors of the norms. The router starts at layer 1.
        layers = DECODER[1:] if role == "router" else DECODER
        return tuple(_facing("window cosine" if role in ("k", "v") else "cosine", role, layer) for layer in layers)
    return ()


def _reanalysis() -> Iterator[Claim]:
    file = "reanalysis_tables"
    for row in rows(file):
        cells = _reanalysis_cells(row)
        if not cells:
            continue
        kind: Statistic = "std" if row["statistic"].startswith("std") else "mean" if len(cells) > 1 else "value"
        printed, where = row["printed_value"], f"{row['table']}: {_where(row, ROLES[row['tensor']])}"
        quantity, disputed = f"{row['metric']} {row['statistic']}", row["agrees"] == "no"
        yield Claim(file, where, quantity, cells, float(printed), half_a_digit(printed), kind, disputed)


def _reanalysis_cells(row: Row) -> tuple[Cell, ...]:
    """Tables over 47 layers take GLM's extra prediction layer for a decoder layer: those are not repeated."""
    statistic, layers = row["statistic"], row["layer_a"]
    if statistic == "value":
        return () if "46" in (layers, row["layer_b"]) else (_cell(row, row["metric"], ROLES[row["tensor"]]),)
    models = (row["model_a"].lower(), row["model_b"].lower())
    if layers == "all" and statistic in ("mean", "mean_diagonal"):
        shared = DECODER[:32] if "phi" in models else DECODER
        return tuple(_facing(row["metric"], ROLES[row["tensor"]], layer, *models) for layer in shared)
    if statistic == "std_diagonal":
        return tuple(_facing(row["metric"], ROLES[row["tensor"]], layer, *models) for layer in DECODER)
    return ()


def _digitised() -> Iterator[Claim]:
    file = "per_layer_similarity_digitised"
    for row in rows(file):
        if row["layer"] == "46":
            continue  # the extra prediction layer
        for metric in ("cosine", "pearson"):
            cell = _facing(metric, "input_norm", row["layer"], row["model_a"].lower(), row["model_b"].lower())
            where = f"{row['model_a']}, {row['model_b']}, layer {row['layer']}, input_norm".lower()
            yield Claim(file, where, metric, (cell,), float(row[metric]), DIGITISED)


def _changes() -> Iterator[Claim]:
    file = "glm_intellect_change_digitised"
    for row in rows(file):
        where = f"glm, intellect, layer {row['layer']}, input_norm"
        if row["changed_percent"]:
            cell, share = (
                _facing("changed", "input_norm", row["layer"], "glm", "intellect"),
                float(row["changed_percent"]),
            )
            yield Claim(file, where, "changed share", (cell,), share / 100, 0.003)
        cell, value = (
            _facing("change mean_abs", "input_norm", row["layer"], "glm", "intellect"),
            float(row["mean_abs_diff"]),
        )
        yield Claim(file, where, "mean absolute change", (cell,), value, 0.04 * value)


def _tokens() -> Iterator[Claim]:
    file = "embedding_comparison"
    for row in rows(file):
        token, value = row["token"].replace("Ġ", " "), float(row["cosine"])
        yield Claim(file, f"token {token!r}", "cosine of embedding rows", (("token", token),), value, _float32(value))


def _facts() -> Iterator[Claim]:
    file = "published_records"
    config, tokenizer = records("config_compare"), records("tokenizer_compare")
    for side, model in (("A", "solar"), ("B", "glm")):
        for field, fact in (("num_hidden_layers", "layers"), ("hidden_size", "hidden")):
            value = float(config[f"{side}.config_summary.{field}"])
            yield Claim(file, f"config of {model}", field, (("model", model, fact),), value, 0.0)
    facts = {"token_set_overlap.intersection": "shared", "token_set_overlap.jaccard": "jaccard"}
    facts["same_id_exact_matches.matches"] = "same_ids"
    merges = float(records("tokenizer_analysis")["merges_common"])
    yield Claim(file, "tokenizers of solar and glm", "merges_common", (("vocabulary", "merges.shared"),), merges, 0.0)
    for field, fact in facts.items():
        value = float(tokenizer[field])
        yield Claim(file, "tokenizers of solar and glm", field, (("vocabulary", fact),), value, FLOAT32)


def _summaries() -> Iterator[Claim]:
    """Means and spreads over the decoder layers, and over all pairs of layers."""
    file = "published_records"
    statistics, decay = records("statistics_comprehensive"), records("layer_decay_results")
    for name, layers in (("norm_pre", DECODER), ("norm_post", DECODER), ("router_or_gate", DECODER[1:])):
        cells = tuple(_facing("cosine", ROLES[name], layer) for layer in layers)
        for kind in ("mean", "std"):
            value = float(statistics[f"{name}.{kind}"])
            statistic: Statistic = "mean" if kind == "mean" else "std"
            yield Claim(file, f"statistics, {ROLES[name]}", f"cosine {kind}", cells, value, FLOAT32, statistic)
    both = ("input_norm", "post_norm")
    off = tuple(("cosine", r, "solar", i, "glm", j) for r in both for i in DECODER for j in DECODER if i != j)
    facing = tuple(_facing("cosine", role, layer) for role in both for layer in DECODER)
    for field, cells in (("diagonal_mean", facing), ("off_diagonal_mean", off)):
        yield Claim(file, "layer decay, both norms", field, cells, float(decay[field]), FLOAT32, "mean")
