"""Sizes that a role can have: what the config and the embedding contradict is not placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelkin.architectures.config import Dimensions
from modelkin.architectures.family import Spec
from modelkin.architectures.templates import Placed
from modelkin.records import Role, TensorRef

LONGEST_VECTOR = 1 << 20  # the largest vocabularies have a quarter of that
STREAM = frozenset(
    {
        Role.INPUT_NORM,
        Role.POST_NORM,
        Role.CROSS_NORM,
        Role.ATTN_OUT_NORM,
        Role.MLP_OUT_NORM,
        Role.CROSS_OUT_NORM,
        Role.FINAL_NORM,
    }
)
READ_STREAM = frozenset({Role.Q, Role.K, Role.V, Role.GATE, Role.UP})
WRITE_STREAM = frozenset({Role.O, Role.DOWN})
Sample = tuple[Placed, TensorRef]


def measured(dims: Dimensions, samples: Sequence[Sample]) -> Dimensions:
    """What shapes tell: the stream's width, latent attention, and how stacked experts lie (by their down matrix)."""
    gain = embedding = None
    for (rule, _, _), ref in samples:
        role, shape = rule.roles[0], ref.shape
        if role is Role.INPUT_NORM and len(shape) == 1 and shape[0] <= LONGEST_VECTOR:
            gain = gain or shape[0]
        if role is Role.EMBEDDING and len(shape) == 2:
            embedding = embedding or shape[1]
        if rule.spec.stacked and rule.roles == (Role.DOWN,) and len(shape) == 3 and shape[1] != shape[2]:
            dims = dims._replace(stacked_shape=shape[1:])
        if role is Role.KV_A:
            dims = dims._replace(latent=True)
    if any(rule.roles[0] is Role.EMBEDDING_PROJECTION for (rule, _, _), _ in samples):
        embedding = None  # it has a width of its own
    widths = tuple(dict.fromkeys(width for width in (dims.hidden, embedding) if width))
    return dims._replace(hidden=dims.hidden or embedding or gain, widths=widths)


def doubt(role: Role, shape: tuple[int, ...], placed: Placed, dims: Dimensions, strict: bool) -> str | None:
    """Why a tensor of this shape cannot have the role; None where it can.

    `strict` is for unknown families, where a name is only a hint that sizes must bear out.
    """
    base = Role(role.value.removesuffix("_bias")) if role.is_bias else role
    if role.is_gain or role.is_bias:
        if shape[0] > LONGEST_VECTOR:
            return f"no vector of a model has {shape[0]} numbers"
        if base in STREAM and dims.widths and shape[0] not in dims.widths:
            return f"it has {shape[0]} numbers, the hidden size is {_either(dims.widths)}"
    if placed.rule.stack != "decoder":  # whose sizes the config may give apart
        rows = _rows(base, placed, dims, strict)
        if rows and shape[0] not in rows:
            return f"the config makes {_either(rows)} rows, the tensor has {shape[0]}"
    if strict and base is Role.ROUTER and dims.experts is None:
        return "the config gives no number of experts"
    if strict and role in READ_STREAM and dims.widths and shape[1] not in dims.widths:
        return f"it has {shape[1]} columns, the hidden size is {_either(dims.widths)}"
    return None


def _rows(role: Role, placed: Placed, dims: Dimensions, strict: bool) -> tuple[int, ...]:
    """How many rows a role may have by the config; none where it does not say."""
    if role in (Role.Q, Role.K, Role.V):
        return _head_rows(role, dims)
    if not strict:
        return ()
    if role in WRITE_STREAM:
        return dims.widths
    if role is Role.ROUTER:
        return (dims.experts,) if dims.experts else ()
    if role in (Role.GATE, Role.UP):
        sizes = (dims.intermediate, dims.expert_intermediate if placed.expert is not None else None)
        return tuple(size for size in sizes if size)
    return ()


def _head_rows(role: Role, dims: Dimensions) -> tuple[int, ...]:
    """Only where the head counts are sound: a config that contradicts itself proves nothing."""
    heads, kv_heads, head_dim = dims.heads, dims.kv_heads, dims.head_dim
    if dims.latent or heads is None or kv_heads is None or head_dim is None or heads % kv_heads:
        return ()
    return ((heads if role is Role.Q else kv_heads) * head_dim,)


def _either(sizes: tuple[int, ...]) -> str:
    return " or ".join(map(str, sizes))


def out_of_place(name: str, spec: Spec, tensors: Mapping[str, TensorRef]) -> str | None:
    """Why a name does not mean its role here: a neighbour that is missing, or one too many."""
    if not (spec.beside or spec.without):
        return None
    parent = name.rsplit(".", 2)[0]
    missing = [module for module in spec.beside if f"{parent}.{module}.weight" not in tensors]
    if missing:
        return f"there is no {missing[0]} beside it"
    extra = [module for module in spec.without if f"{parent}.{module}.weight" in tensors]
    return f"there is {extra[0]} beside it" if extra else None
