"""Policy: answers -> Verdict. What may convict, what may clear, and in which words."""

from __future__ import annotations

from modelkin.verdict.judging import judge
from modelkin.verdict.policy import ALPHA, ALPHA_B, BUDGET, POLICY, WEIGHTS, adjusted

__all__ = ["ALPHA", "ALPHA_B", "BUDGET", "POLICY", "WEIGHTS", "adjusted", "judge"]
