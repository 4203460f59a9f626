"""Which hidden axis, layer, neuron, head and expert of one model is which of another, whatever was done to hide it."""

from __future__ import annotations

from modelkin.alignment.aligning import Alignment, align
from modelkin.alignment.cost import bytes_needed
from modelkin.alignment.heads import HeadMap
from modelkin.alignment.judging import HeldOut
from modelkin.alignment.rewriting import Rewritten, keeps_gains, keeps_readers, rewritten
from modelkin.alignment.summary import disguises, steps_back, summary
from modelkin.alignment.tokens import ByTokens

__all__ = [
    "Alignment",
    "ByTokens",
    "HeadMap",
    "HeldOut",
    "Rewritten",
    "align",
    "bytes_needed",
    "disguises",
    "keeps_gains",
    "keeps_readers",
    "rewritten",
    "steps_back",
    "summary",
]
