"""Short names for models, and models found again by whatever name the user gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelkin.errors import UsageError
from modelkin.records import KnownPair

EVERY = "all"  # the group that every model is in


@dataclass(frozen=True)
class Names:
    """Labels in the order of the models; `given` is what the user typed, `ids` what the models call themselves."""

    labels: tuple[str, ...]
    given: tuple[str, ...]
    ids: tuple[str, ...]

    def label(self, text: str, where: str) -> str:
        """The label of the model that `text` names; `where` says in which option it stood."""
        for names in (self.given, self.labels, self.ids):
            if text in names:
                return self.labels[names.index(text)]
        raise UsageError(f"{text!r} is none of the models", where=where, hint=f"they are {', '.join(self.labels)}")

    def repeated(self) -> tuple[str, ...]:
        """Models that were given more than once."""
        return tuple(dict.fromkeys(name for name in self.ids if self.ids.count(name) > 1))


def named(given: Sequence[str], ids: Sequence[str]) -> Names:
    """The last part of each id; where two are alike the owner goes in front, and a number behind if that is not enough.

    Two labels are alike if their file names would be.
    """
    different = [_last(name) for name in dict.fromkeys(ids)]
    owned = [_owned(name) if _alike(_last(name), different) > 1 else _last(name) for name in ids]
    unique: list[str] = []
    for label in owned:
        chosen, number = label, 1
        while _alike(chosen, unique):
            number += 1
            chosen = f"{label}-{number}"
        unique.append(chosen)
    return Names(tuple(unique), tuple(given), tuple(ids))


def known_pairs(names: Names, given: Sequence[KnownPair]) -> tuple[KnownPair, ...]:
    """By label, each pair once. Of two models one thing can be known, and of a model with itself nothing."""
    found: dict[frozenset[str], KnownPair] = {}
    for pair in given:
        a, b = names.label(pair.a, "--known"), names.label(pair.b, "--known")
        if a == b:
            raise UsageError(f"{a} is one model, and its relation to itself is no question", where="--known")
        said = found.setdefault(frozenset((a, b)), KnownPair(a, b, pair.relation))
        if said.relation != pair.relation:
            raise UsageError(f"{a} and {b} cannot be both derived and independent", where="--known")
    return tuple(found.values())


def group_members(
    names: Names, given: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """By label, in the order given."""
    found: dict[str, tuple[str, ...]] = {}
    for group, texts in given:
        if group == EVERY:
            raise UsageError(f"{EVERY} is the group of every model, and is always there", where="--group")
        if group in found:
            raise UsageError(f"{group} is named twice", where="--group", hint=f"--group {group}=M1,M2,M3")
        if not texts:
            raise UsageError(f"{group} has no models", where="--group")
        found[group] = _once(tuple(names.label(text, "--group") for text in texts), "--group")
    return tuple(found.items())


def mixed_layers(names: Names, given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """A layer by label: of at least two models, each once."""
    labels = _once(tuple(names.label(text, "--mixed") for text, _ in given), "--mixed")
    if len(labels) == 1:
        raise UsageError(f"{labels[0]} alone makes no matrix of models", where="--mixed", hint="name a second model")
    return {label: layer for label, (_, layer) in zip(labels, given, strict=True)}


def _once(labels: tuple[str, ...], where: str) -> tuple[str, ...]:
    twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if twice:
        raise UsageError(f"{', '.join(twice)} stands there twice", where=where)
    return labels


def safe(text: str) -> str:
    """`text` as part of a file name, and of a dotted name: letters and digits of any script, `-` and `_`."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text) or "none"


def _parts(name: str) -> list[str]:
    return [part for part in name.replace("\\", "/").split("/") if part] or ["model"]


def _last(name: str) -> str:
    return _parts(name)[-1].removesuffix(".safetensors")


def _owned(name: str) -> str:
    return "-".join(_parts(name.removesuffix(".safetensors"))[-2:])


def _alike(label: str, labels: Sequence[str]) -> int:
    return [safe(other).casefold() for other in labels].count(safe(label).casefold())
