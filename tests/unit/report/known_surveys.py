"""Surveys for the views: of bundled models, made once a run; and a large one, made up."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np

from modelkin.demo import bundled
from modelkin.records import Matrix, Survey, SurveyCost, SurveyModel, Table
from modelkin.survey import SurveyOptions, survey

ROLES = ("input_norm", "post_norm")
CURVES = ("a", "b", "role", "layer_a", "layer_b", "n", "cosine", "expected_cosine", "pearson", "pearson_p")
PAIRS = ("a", "b", "known", "role", "metric", "diagonal_mean", "off_mean", "diagonal_p")
GAINS = ("model", "role", "layer", "mean", "std", "min", "max")


@cache
def of_three() -> Survey:
    """A model, its fine-tune, and a stranger of the same shape."""
    return survey([str(bundled()[name]) for name in ("dune", "heath", "grove")])


@cache
def of_many_roles() -> Survey:
    """Vectors, matrices, routers and embeddings, of models with experts and without."""
    roles = ("input_norm", "post_norm", "v", "router", "embedding")
    return survey([str(bundled()[name]) for name in ("ember", "cobalt", "dune")], SurveyOptions(roles=roles))


@cache
def made_up(models: int = 20, layers: int = 48) -> Survey:
    rng = np.random.default_rng(0)
    labels = [f"a-model-with-a-long-name-{n}" for n in range(models)]
    both = [(a, b, role) for a, b in combinations(labels, 2) for role in ROLES]
    levels = {(a, b, role): float(rng.uniform(-0.1, 1)) for a, b, role in both}
    known = [
        (a, b, "derived", role, metric, levels[a, b, role], 0.1, 0.01)
        for a, b, role in both
        for metric in ("cosine", "pearson")
    ]
    curves = [
        (a, b, role, str(n), str(n), 4096, 0.99, 0.99, levels[a, b, role], 0.5)
        for a, b, role in both
        for n in range(layers)
    ]
    gains = [
        (model, role, str(n), float(rng.uniform(0.5, 2)), 0.1, 0.1, 3.0)
        for model in labels
        for role in ROLES
        for n in range(layers)
    ]
    names = [str(n) for n in range(layers)]
    matrices = [_matrix(rng, f"layers.{a}.{b}.{role}.pearson", role, names) for a, b, role in both[:40]]
    matrices += [_matrix(rng, f"models.{role}.{n}.centred_cosine", role, labels) for role in ROLES for n in range(9)]
    matrices += [_matrix(rng, f"models.{role}.{n}.cosine", role, labels) for role in ROLES for n in range(9)]
    return Survey(
        modelkin="0", seed=0, roles=ROLES, layers=("0",),
        models=tuple(
            SurveyModel(id=f"acme/{name}", label=name, revision="f" * 40, family="llama", parameters=10**9,
                        layers=layers, hidden=4096)
            for name in labels
        ),
        tables=tuple(
            Table(name=name, title=name, caption="Made up.", strangers="anything", columns=columns, rows=tuple(rows))
            for name, columns, rows in
            (("curves", CURVES, curves), ("layer-pairs", PAIRS, known), ("gains", GAINS, gains))
        ),
        matrices=tuple(matrices), cost=SurveyCost(bytes=0, tensor_bytes=0, requests=0, seconds=0.0),
    )  # fmt: skip


def _matrix(rng: np.random.Generator, name: str, role: str, labels: list[str]) -> Matrix:
    values = rng.uniform(-0.2, 1, (len(labels), len(labels)))
    return Matrix(
        name=name, title=name, caption="Made up.", strangers="0 on average", metric=name.rpartition(".")[2], role=role,
        rows=tuple(labels), columns=tuple(labels), values=tuple(tuple(float(v) for v in row) for row in values),
    )  # fmt: skip
