"""Lines of argument, in the order in which they are asked."""

from __future__ import annotations

from modelkin.questions.attention import ATTENTION
from modelkin.questions.embeddings import EMBEDDINGS
from modelkin.questions.experts import EXPERTS
from modelkin.questions.gains import GAINS
from modelkin.questions.identity import identical_files
from modelkin.questions.layers import LAYER_MAP
from modelkin.questions.neurons import NEURONS
from modelkin.questions.not_evidence import not_evidence
from modelkin.questions.pooled import POOLED
from modelkin.questions.question import CannotAsk, Cuts, Pair, Question

__all__ = ["QUESTIONS", "CannotAsk", "Cuts", "Pair", "Question", "identical_files", "not_evidence"]

QUESTIONS: tuple[Question, ...] = (GAINS, NEURONS, EMBEDDINGS, LAYER_MAP, ATTENTION, EXPERTS, POOLED)
