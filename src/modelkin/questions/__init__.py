"""Lines of argument, in the order in which they are asked."""

from __future__ import annotations

from modelkin.questions.embeddings import EMBEDDINGS
from modelkin.questions.gains import GAINS
from modelkin.questions.identity import identical_files
from modelkin.questions.layers import LAYER_MAP
from modelkin.questions.neurons import NEURONS
from modelkin.questions.not_evidence import not_evidence
from modelkin.questions.question import CannotAsk, Pair, Question

__all__ = ["QUESTIONS", "CannotAsk", "Pair", "Question", "identical_files", "not_evidence"]

QUESTIONS: tuple[Question, ...] = (GAINS, NEURONS, EMBEDDINGS, LAYER_MAP)
