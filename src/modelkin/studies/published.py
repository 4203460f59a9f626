"""Means and standard deviations of the gains of two large models, as published."""

from __future__ import annotations

from dataclasses import dataclass

from modelkin.reference.published import ROLES, rows

MODELS = {"A": "Solar-Open-100B", "B": "GLM-4.5-Air"}  # the columns of the published table
WIDTH = 4096


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one gain vector of `WIDTH` values."""

    model: str
    role: str
    layer: int
    mean: float
    std: float


def published_moments() -> tuple[Moments, ...]:
    """Both norms of layers 0 to 45 of both models."""
    return tuple(
        Moments(model, ROLES[row["category"]], int(row["layer"]), float(row[f"{side}_mean"]), float(row[f"{side}_std"]))
        for side, model in MODELS.items()
        for row in rows("layernorm_sanity")
    )
