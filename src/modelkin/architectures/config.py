"""A config read with suspicion: every number is checked, and what is wrong becomes a note."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from modelkin.architectures.family import Family, Paths, When

LARGEST = 10**9
NESTED = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config", "llm")
INHERITED = ("model_type", "architectures")
TIE = "tie_word_embeddings"
USUAL: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "d_kv", "kv_channels"),
    "intermediate": ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim", "encoder_ffn_dim"),
    "expert_intermediate": ("moe_intermediate_size",),
    "experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "vocabulary": ("vocab_size",),
    "activation": ("hidden_act", "hidden_activation", "activation_function", "activation", "feed_forward_proj"),
}


class Dimensions(NamedTuple):
    """The config's numbers; None where it is silent or wrong."""

    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None
    expert_intermediate: int | None = None
    experts: int | None = None
    vocabulary: int | None = None
    layers: Mapping[str, int] = MappingProxyType({})  # by stack; "" where there is one
    activation: str | None = None
    tied: bool | None = None
    stacked_shape: tuple[int, ...] | None = None  # measured: of one expert's down matrix in a stack
    widths: tuple[int, ...] = ()  # what the residual stream may measure: by the config, by the embedding
    latent: bool = False  # measured: queries, keys and values come out of latents, with sizes of their own


def text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's own config: the nested one of a multimodal model, with what it leaves to the outer one.

    Whether the head is tied is the outer model's to say, for the head is its own.
    """
    part = dict(config)
    for _ in range(3):  # thinker_config.text_config is the deepest seen
        inner = next((part[key] for key in NESTED if isinstance(part.get(key), Mapping) and part[key]), None)
        if inner is None:
            break
        tie = {TIE: part[TIE]} if part.get(TIE) is not None else {}
        part = {key: part[key] for key in INHERITED if key in part} | dict(inner) | tie
    return part


def lookup(config: Mapping[str, Any], path: str) -> Any:
    """A value by its dotted path; None where there is none."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def holds(change: When, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the config meets a condition (what is stored is asked elsewhere)."""
    if change.present is not None and lookup(config, change.present) is None:
        return False
    for path, wanted in change.config.items():
        found = lookup(config, path)
        found = defaults.get(path) if found is None else found
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if not any(type(found) is type(value) and found == value for value in allowed):
            return False
    return True


def read_dimensions(config: Mapping[str, Any], family: Family) -> tuple[Dimensions, list[str]]:
    """The numbers that splits and facts need, and notes on those that cannot be right."""
    if not config:
        return Dimensions(), []
    sheet = _Sheet(config, family)
    numbers = {field: sheet.number(field, getattr(family.keys, field)) for field in _NUMBERS}
    heads, hidden = numbers["heads"], numbers["hidden"]
    if not family.suffixes:  # of an unknown family nobody knows what silence means
        numbers["kv_heads"] = numbers["kv_heads"] or heads
    if numbers["head_dim"] is None and family.keys.head_dim is None and heads and hidden:
        if hidden % heads:
            sheet.notes.append(f"the config says {heads} heads, which do not divide its hidden size {hidden}")
        else:
            numbers["head_dim"] = hidden // heads
    dimensions = Dimensions(
        **numbers,
        layers=sheet.layers(),
        activation=sheet.text("activation", family.keys.activation),
        tied=sheet.flag(TIE),
        stacked_shape=None,
        widths=(),
        latent=False,
    )
    return dimensions, sheet.notes


_NUMBERS = ("hidden", "heads", "kv_heads", "head_dim", "intermediate", "expert_intermediate", "experts", "vocabulary")


class _Sheet:
    def __init__(self, config: Mapping[str, Any], family: Family) -> None:
        self._config = config
        self._family = family
        self.notes: list[str] = []

    def number(self, field: str, paths: Paths) -> int | None:
        """A count from 1 to LARGEST; a zero reads as absent (no experts)."""
        if isinstance(paths, int):
            return paths
        path, value = self._first(field, paths)
        if value is None or value == 0:
            return None
        if type(value) is not int or not 0 < value <= LARGEST:
            self.notes.append(f"the config's {path} is {_short(value)}, expected a whole number above zero")
            return None
        return value

    def layers(self) -> dict[str, int]:
        paths = self._family.keys.layers
        stacks = paths if isinstance(paths, dict) else {"": paths}
        counts = {stack: self.number("layers", path) for stack, path in stacks.items()}
        return {stack: count for stack, count in counts.items() if count is not None}

    def text(self, field: str, paths: str | tuple[str, ...] | None) -> str | None:
        _, value = self._first(field, paths)
        return value if isinstance(value, str) and len(value) <= 80 else None

    def flag(self, path: str) -> bool | None:
        _, value = self._first("", path)
        if value is not None and type(value) is not bool:
            self.notes.append(f"the config's {path} is {_short(value)}, expected true or false")
            return None
        return value

    def _first(self, field: str, paths: str | tuple[str, ...] | None) -> tuple[str, Any]:
        tried = USUAL[field] if paths is None else (paths,) if isinstance(paths, str) else paths
        for path in tried:
            value = lookup(self._config, path)
            if value is not None:
                return path, value
        for path in tried:
            if path in self._family.defaults:
                return path, self._family.defaults[path]
        return "", None


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > LARGEST:
        return "an enormous number"  # printing it could itself take forever
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:40]}…"
