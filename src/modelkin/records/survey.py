"""Many models side by side, or one small experiment: tables and matrices that every figure and file is made from."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

Value = float | int | str | None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one kind. `name` is its file name; `caption` is made from the data: which layers, which values, how many.

    `strangers` says what the numbers would be between models that have nothing in common. None is a value that does
    not exist.
    """

    name: str
    title: str
    caption: str
    strangers: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over two lists. `diagonal` says whether cell (i, i) sets like beside like."""

    name: str
    title: str
    caption: str
    strangers: str
    metric: str
    role: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    diagonal: bool = True


class SurveyModel(msgspec.Struct, frozen=True, kw_only=True):
    """`label` is the short name used in tables; `controls` names models that it is known to be related to or not."""

    id: str
    label: str
    revision: str | None
    family: str
    parameters: int
    layers: int
    hidden: int | None
    groups: tuple[str, ...] = ()


class KnownPair(msgspec.Struct, frozen=True):
    """What is known of two models of a survey without measuring: shown beside the numbers, never used for them."""

    a: str
    b: str
    relation: Literal["derived", "independent"]


class SurveyCost(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int
    tensor_bytes: int
    requests: int
    seconds: float


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured of a set of models. `left_out` says what was asked for and could not be had, and why.

    `made` says when, as 2026-01-31T12:00:00Z; None where the caller did not say. `sha256` seals the rest.
    """

    schema: str = "modelkin.survey/1"
    modelkin: str
    seed: int
    models: tuple[SurveyModel, ...]
    roles: tuple[str, ...]
    layers: tuple[str, ...]
    known: tuple[KnownPair, ...] = ()
    tables: tuple[Table, ...]
    matrices: tuple[Matrix, ...]
    left_out: tuple[str, ...] = ()
    cost: SurveyCost
    made: str | None = None
    sha256: str = ""

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


def seal_of_survey(survey: Survey) -> str:
    """sha256 of everything but the seal itself, written as for a comparison: JSON without spaces, keys in order."""
    body = msgspec.structs.replace(survey, sha256="")
    return sha256(msgspec.json.encode(body, order="sorted")).hexdigest()


def sealed_survey(survey: Survey, made: str | None = None) -> Survey:
    """With a seal, and with its date where one is given."""
    dated = msgspec.structs.replace(survey, made=made or survey.made)
    return msgspec.structs.replace(dated, sha256=seal_of_survey(dated))


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """A small experiment that teaches one thing. `text` is for readers who know nothing of the subject."""

    schema: str = "modelkin.study/1"
    modelkin: str
    name: str
    title: str
    text: str
    seed: int
    tables: tuple[Table, ...]
    matrices: tuple[Matrix, ...] = ()
    seconds: float
