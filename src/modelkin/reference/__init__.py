"""What others published about some checkpoints, kept as facts, and surveys of them checked against it."""

from modelkin.reference.checking import check
from modelkin.reference.contradictions import contradictions

__all__ = ["check", "contradictions"]
