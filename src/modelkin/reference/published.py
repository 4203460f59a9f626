"""The published figures as rows. data/README.md says where each file comes from."""

from __future__ import annotations

import csv
import io
from functools import cache
from importlib.resources import files

Row = dict[str, str]

_SIONIC = "sionic-ai/solar-vs-glm"
_HYUNWOONGKO = "hyunwoongko/solar-vs-glm-vs-phi"
ORIGINS = {
    "layernorm_sanity": "ANLGBOY/solar-vs-glm-sanity-check",
    "layerwise_similarity": _SIONIC,
    "solar_vs_glm_detailed": _SIONIC,
    "solar_vs_glm45air_trunc": _SIONIC,
    "embedding_comparison": _SIONIC,
    "published_records": _SIONIC,
    "claim_tables": _SIONIC,
    "reanalysis_tables": _SIONIC,
    "per_layer_similarity_digitised": _SIONIC,
    "glm_intellect_change_digitised": _SIONIC,
    "solar_glm_phi_metrics": _HYUNWOONGKO,
    "within_model_cosine_screens": _HYUNWOONGKO,
    "toy_gpt2_init_cosine": _HYUNWOONGKO,
    "baseline_tables": "chahero/solar-vs-glm-critique",
    "model_facts": "configs and model cards",
    "contradictions": "modelkin",
    "contradicted_values": "modelkin",
}

ROLES = {
    "norm_pre": "input_norm",
    "norm_post": "post_norm",
    "router_or_gate": "router",
    "input_layernorm": "input_norm",
    "post_attention_layernorm": "post_norm",
    "mlp.gate": "router",
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "o_proj": "o",
    "embed_tokens": "embedding",
}
# The published short names, lower case, and the repository each stands for.
REPOSITORIES = {
    "solar": "upstage/Solar-Open-100B",
    "glm": "zai-org/GLM-4.5-Air",
    "intellect": "PrimeIntellect/INTELLECT-3",
    "phi": "microsoft/Phi-3.5-MoE-instruct",
    "mixtral": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "mistral-7b": "mistralai/Mistral-7B-Instruct-v0.3",
    "yi-1.5-6b": "01-ai/Yi-1.5-6B-Chat",
    "yi-1.5-9b": "01-ai/Yi-1.5-9B-Chat",
    "qwen1.5-7b": "Qwen/Qwen1.5-7B-Chat",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-14b": "Qwen/Qwen3-14B",
}


@cache
def rows(name: str) -> tuple[Row, ...]:
    text = files("modelkin.reference").joinpath(f"data/{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))


@cache
def records(file: str) -> dict[str, str]:
    """Field -> value of one published JSON file."""
    return {row["field"]: row["value"] for row in rows("published_records") if row["file"] == file}


def chosen(name: str, **values: str) -> list[Row]:
    """Rows of a file whose columns have these values."""
    return [row for row in rows(name) if all(row[column] == value for column, value in values.items())]


def half_a_digit(printed: str) -> float:
    """How far a number may lie from what was printed: half of the last digit, and the rounding of float32."""
    decimals = len(printed.partition(".")[2])
    return float(0.5 * 10.0**-decimals + 1e-6)
