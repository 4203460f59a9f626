"""Tokenizer files -> Vocabulary: which strings a model has a row for, and under which ids."""

from modelkin.vocabulary.facts import VocabularyFacts, facts
from modelkin.vocabulary.reading import read_vocabulary
from modelkin.vocabulary.record import Kind, Vocabulary
from modelkin.vocabulary.spelling import Spelling

__all__ = ["Kind", "Spelling", "Vocabulary", "VocabularyFacts", "facts", "read_vocabulary"]
