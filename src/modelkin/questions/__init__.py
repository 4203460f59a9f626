"""Lines of argument, in the order in which they are asked."""

from __future__ import annotations

from modelkin.questions import every_neuron
from modelkin.questions.attention import ATTENTION
from modelkin.questions.embeddings import EMBEDDINGS
from modelkin.questions.experts import EXPERTS
from modelkin.questions.gains import GAINS
from modelkin.questions.layers import LAYER_MAP
from modelkin.questions.neurons import NEURONS
from modelkin.questions.not_evidence import not_evidence
from modelkin.questions.pooled import POOLED
from modelkin.questions.question import QUICK_STAGES, CannotAsk, Cuts, Pair, Question
from modelkin.questions.tokenizer import tokenizers_of
from modelkin.questions.whole_tensors import copied_tensors

__all__ = [
    "QUESTIONS",
    "QUICK_STAGES",
    "CannotAsk",
    "Cuts",
    "Pair",
    "Question",
    "copied_tensors",
    "every_neuron",
    "not_evidence",
    "tokenizers_of",
]

QUESTIONS: tuple[Question, ...] = (GAINS, NEURONS, EMBEDDINGS, LAYER_MAP, ATTENTION, EXPERTS, POOLED)
