"""The inert nouns: frozen, JSON-able, no input or output."""

from __future__ import annotations

from modelkin.records.evidence import Null, Significance
from modelkin.records.models import (
    AnatomyRow,
    Exchange,
    Extent,
    FileFact,
    GainStatistics,
    Identity,
    Inspection,
    InspectionCost,
    Json,
    LayerCheck,
    Origin,
    Role,
    SetApart,
    Slot,
    TensorRef,
)

__all__ = [
    "AnatomyRow",
    "Exchange",
    "Extent",
    "FileFact",
    "GainStatistics",
    "Identity",
    "Inspection",
    "InspectionCost",
    "Json",
    "LayerCheck",
    "Null",
    "Origin",
    "Role",
    "SetApart",
    "Significance",
    "Slot",
    "TensorRef",
]
