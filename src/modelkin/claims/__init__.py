"""What a model says of its own origin, and whether the evidence bears it out."""

from __future__ import annotations

from modelkin.claims.cards import NoClaim, front_matter, read_claims, same_model
from modelkin.claims.weighing import Judged, seen_from, weighed

__all__ = ["Judged", "NoClaim", "front_matter", "read_claims", "same_model", "seen_from", "weighed"]
