"""Where the zoo's models are made and kept: one folder a model, with a truth.json that says how it came about."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from zoo import checkpoints
from zoo.checkpoints import Model
from zoo.corpus import Corpus, new_words, unigram_entropy
from zoo.derive import extend_vocabulary
from zoo.single import vocabulary_size

SCHEMA = "modelkin.truth/1"
NEW_WORDS = 64
NAMES = ("first", "second", "wide", "first+", "wide+")


@dataclass
class Lab:
    """The models so far, under `root`, and the text to train more of them on."""

    root: Path
    corpus: Corpus
    device: str
    tiny: bool = False
    draw: int = 0  # which random numbers: another draw gives other models by the same names
    entropies: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def windows(self) -> int:
        """Pieces of held-out text that measure a loss."""
        return 4 if self.tiny else 256

    def has(self, name: str) -> bool:
        return (self.root / name / "truth.json").exists()

    def load(self, name: str) -> Model:
        """The model without its truth, so that a child does not inherit it."""
        return replace(checkpoints.load(self.root / name), truth={})

    def truth(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.root / name / "truth.json").read_text("utf-8")))

    def truths(self) -> dict[str, dict[str, Any]]:
        return {
            path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(self.root.glob("*/truth.json"))
        }

    def keep(self, model: Model, truth: Mapping[str, Any]) -> None:
        """Write the model's folder; it appears whole or not at all."""
        partial = self.root / f".{truth['name']}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        facts = {"family": model.family, "parameters": sum(tensor.numel() for tensor in model.weights.values())}
        made = {"made_by": model.truth} if model.truth else {}
        drawn = {"draw": self.draw} if self.draw else {}
        checkpoints.save(replace(model, truth={"schema": SCHEMA, **truth, **drawn, **facts, **made}), partial)
        shutil.rmtree(self.root / truth["name"], ignore_errors=True)  # a folder without a truth is no model
        os.replace(partial, self.root / truth["name"])

    def tokenizer_name(self, model: Model) -> str:
        """The name that the corpus has for the model's tokenizer; `renumbered` for one that a disguise changed."""
        text = json.dumps(model.tokenizer)
        return next((name for name in NAMES if json.dumps(self.corpus.tokenizer(name)) == text), "renumbered")

    def entropy(self, tokenizer: str, domain: str) -> float:
        """Of the held-out text's token frequencies: what the best guess that ignores context loses, in nats a token."""
        if (tokenizer, domain) not in self.entropies:
            size = vocabulary_size(self.corpus.tokenizer(tokenizer))
            ids = self.corpus.tokens(tokenizer, domain, "held_out")
            self.entropies[tokenizer, domain] = unigram_entropy(ids, size)
        return self.entropies[tokenizer, domain]


def extended(corpus: Corpus) -> Corpus:
    """With `first+` and `wide+` beside `first` and `wide`: frequent German words added."""
    tokenizers = {name: corpus.tokenizer(name) for name in ("first", "second", "wide")}
    for name in ("first", "wide"):
        words = new_words(corpus.texts, tokenizers[name], "german", NEW_WORDS)
        rows = Model({}, {"embed": torch.zeros(vocabulary_size(tokenizers[name]), 1)}, tokenizers[name])
        tokenizers[f"{name}+"] = extend_vocabulary(rows, words, seed=0).tokenizer or {}
    return Corpus(corpus.texts, corpus.folder, tokenizers)


def added_words(corpus: Corpus, name: str) -> list[str]:
    """The words that `first+` has and `first` has not."""
    before = len(corpus.tokenizer(name)["added_tokens"])
    return [token["content"] for token in corpus.tokenizer(f"{name}+")["added_tokens"][before:]]


def as_stored(model: Model) -> Model:
    """With the weights that a file will have."""
    return model.with_weights({role: tensor.bfloat16().float() for role, tensor in model.weights.items()})
