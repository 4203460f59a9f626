"""What kind of model it is: the family's traits, the config's numbers, and what the tensors show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from modelkin.architectures.anatomy import Facts, Layers
from modelkin.architectures.config import Dimensions
from modelkin.architectures.family import Norm
from modelkin.architectures.placing import Placing
from modelkin.records import Role, Slot

STREAM_GAINS = (Role.INPUT_NORM, Role.POST_NORM, Role.ATTN_OUT_NORM, Role.MLP_OUT_NORM, Role.FINAL_NORM)
NORM_BIASES = (
    Role.INPUT_NORM_BIAS,
    Role.POST_NORM_BIAS,
    Role.ATTN_OUT_NORM_BIAS,
    Role.MLP_OUT_NORM_BIAS,
    Role.FINAL_NORM_BIAS,
)


def gather_facts(placing: Placing, config: Mapping[str, Any], dims: Dimensions, tied: bool) -> Facts:
    traits, model_type = placing.family.facts, config.get("model_type")
    shown = _Shown(placing)
    biased = shown.any(NORM_BIASES) if shown.any(STREAM_GAINS) else _known(traits.norm_bias)
    return Facts(
        family=placing.family.name,
        model_type=model_type[:80] if isinstance(model_type, str) else "",
        layers=_counts({stack: len(found) for stack, found in placing.layers.items()}),
        configured_layers=_counts(dims.layers),
        hidden=_hidden(shown, placing, dims),
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        head_dim=dims.head_dim or shown.head_dim(dims.heads),
        intermediate=dims.intermediate or shown.rows(Role.UP),
        expert_intermediate=dims.expert_intermediate or shown.rows(Role.UP, expert=True),
        experts=dims.experts or shown.experts,
        vocabulary=dims.vocabulary,
        norm=_norm(traits.norm, biased),
        gain_offset=_known(traits.gain_offset),
        norm_bias=biased,
        norm_placement=traits.norm_placement,
        stream_norm=_known(traits.stream_norm),
        positions=traits.positions,
        activation=dims.activation.removeprefix("gated-") if dims.activation else traits.activation,
        gated=_gated(shown, _known(traits.gated)),
        tied=tied,
        exchangeable_hidden=traits.exchangeable_hidden,
        why=placing.family.why,
    )


Value = TypeVar("Value", bool, float)


def _known(value: Value | str) -> Value | None:
    """What a family file says, None where it says that nobody knows."""
    return None if isinstance(value, str) else value


def _norm(said: Norm, biased: bool | None) -> Norm:
    """A stored bias shows a LayerNorm, or that the family does not fit; a missing one shows nothing."""
    if not biased:
        return said
    shown: dict[Norm, Norm] = {"unknown": "layer", "rms": "unknown"}
    return shown.get(said, said)


def _gated(shown: _Shown, said: bool | None) -> bool | None:
    """Stored gates decide; without any part of an MLP in the slots, the family."""
    if shown.any((Role.GATE, Role.SHARED_GATE)):
        return True
    return False if shown.any((Role.UP,)) else said


def _hidden(shown: _Shown, placing: Placing, dims: Dimensions) -> int | None:
    """The width of the residual stream: what its gains have, or what attention writes, or the embedding's."""
    for role in (*STREAM_GAINS, Role.O):
        rows = shown.rows(role)
        if rows is not None:
            return rows
    embedding = shown.first(Role.EMBEDDING)
    if embedding is None or shown.any((Role.EMBEDDING_PROJECTION,)):
        return dims.hidden
    width = placing.slots[embedding].shape[1]
    # Unknown families may widen their embeddings by a projection that has no place here.
    return (dims.hidden or width) if placing.family.suffixes else width


def _counts(layers: Mapping[str, int]) -> Layers:
    if not layers:
        return None
    return layers[""] if set(layers) == {""} else dict(sorted(layers.items(), key=lambda item: item[0] != "encoder"))


class _Shown:
    """What the slots show, gathered in one pass."""

    def __init__(self, placing: Placing) -> None:
        self._slots = placing.slots
        self._first: dict[tuple[Role, bool], Slot] = {}
        experts = set()
        for slot in placing.slots:
            self._first.setdefault((slot.role, slot.expert is not None), slot)
            experts.add(slot.expert)
        self.experts = len(experts - {None}) or None

    def first(self, role: Role, expert: bool = False) -> Slot | None:
        return self._first.get((role, expert))

    def any(self, roles: tuple[Role, ...]) -> bool:
        return any((role, expert) in self._first for role in roles for expert in (False, True))

    def rows(self, role: Role, expert: bool = False) -> int | None:
        slot = self.first(role, expert)
        return None if slot is None else self._slots[slot].shape[0]

    def head_dim(self, heads: int | None) -> int | None:
        """Rows of the query projection a head; for latent attention, which no single config key gives."""
        rows = self.rows(Role.Q_B) or self.rows(Role.Q)
        return rows // heads if rows and heads and rows % heads == 0 else None
