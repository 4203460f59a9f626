"""What is known of one checkpoint."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec


class Extent(msgspec.Struct, frozen=True, order=True, gc=False):
    """Bytes [start, stop) of one file."""

    file: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class FileFact(msgspec.Struct, frozen=True):
    """A file of a model, known without reading it. `sha256` is None where nobody has computed it."""

    name: str
    size: int
    sha256: str | None = None


Origin = Literal["network", "cache", "hub-cache", "disk", "memory"]


class Exchange(msgspec.Struct, frozen=True):
    """One line of the ledger: a request on the network, or a read from disk or cache."""

    kind: str  # api, resolve, header, tensor, file
    file: str
    start: int
    stop: int
    status: int  # HTTP status; 0 where no server was asked or none answered
    bytes: int
    milliseconds: float
    origin: Origin


class TensorRef(msgspec.Struct, frozen=True, gc=False):
    """Where a stored tensor lies; no data. `strides` (in elements) only where it is not row-major."""

    name: str
    dtype: str  # safetensors spelling: F32, BF16, F8_E4M3, …
    shape: tuple[int, ...]
    file: str
    start: int
    stop: int
    strides: tuple[int, ...] | None = None

    @property
    def parameters(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def extent(self) -> Extent:
        return Extent(self.file, self.start, self.stop)


class Role(StrEnum):
    """What a tensor is for. Norm roles say who reads or wrote what they scale."""

    __hash__ = str.__hash__  # the enum's own is slow, and slots are hashed by the ten thousand

    EMBEDDING = "embedding"
    HEAD = "head"
    POSITION = "position"  # learned absolute positions
    FIXED_POSITION = "fixed_position"  # a stored table of fixed positions
    TOKEN_TYPE = "token_type"
    RELATIVE_BIAS = "relative_bias"  # T5, MPNet
    EMBEDDING_PROJECTION = "embedding_projection"  # OPT-350m, factorised embeddings
    FRONT_CONV = "front_conv"  # Whisper's convolutions

    EMBEDDING_NORM = "embedding_norm"
    INPUT_NORM = "input_norm"  # attention reads its output
    POST_NORM = "post_norm"  # the MLP reads its output (HF: post_attention_layernorm)
    CROSS_NORM = "cross_norm"  # cross-attention reads its output
    ATTN_OUT_NORM = "attn_out_norm"  # scales what attention wrote
    MLP_OUT_NORM = "mlp_out_norm"  # scales what the MLP wrote
    CROSS_OUT_NORM = "cross_out_norm"
    FINAL_NORM = "final_norm"
    Q_NORM = "q_norm"
    K_NORM = "k_norm"
    Q_A_NORM = "q_a_norm"
    KV_A_NORM = "kv_a_norm"
    HEAD_NORM = "head_norm"  # BERT's prediction transform

    Q = "q"
    K = "k"
    V = "v"
    O = "o"  # noqa: E741
    Q_A = "q_a"
    Q_B = "q_b"
    KV_A = "kv_a"
    KV_B = "kv_b"
    CROSS_Q = "cross_q"
    CROSS_K = "cross_k"
    CROSS_V = "cross_v"
    CROSS_O = "cross_o"

    GATE = "gate"
    UP = "up"
    DOWN = "down"
    ROUTER = "router"
    SHARED_GATE = "shared_gate"
    SHARED_UP = "shared_up"
    SHARED_DOWN = "shared_down"
    SHARED_ROUTER = "shared_router"
    POOLER = "pooler"
    HEAD_TRANSFORM = "head_transform"

    HEAD_BIAS = "head_bias"
    EMBEDDING_NORM_BIAS = "embedding_norm_bias"
    INPUT_NORM_BIAS = "input_norm_bias"
    POST_NORM_BIAS = "post_norm_bias"
    CROSS_NORM_BIAS = "cross_norm_bias"
    ATTN_OUT_NORM_BIAS = "attn_out_norm_bias"
    MLP_OUT_NORM_BIAS = "mlp_out_norm_bias"
    CROSS_OUT_NORM_BIAS = "cross_out_norm_bias"
    FINAL_NORM_BIAS = "final_norm_bias"
    HEAD_NORM_BIAS = "head_norm_bias"
    Q_NORM_BIAS = "q_norm_bias"
    K_NORM_BIAS = "k_norm_bias"
    Q_BIAS = "q_bias"
    K_BIAS = "k_bias"
    V_BIAS = "v_bias"
    O_BIAS = "o_bias"
    Q_A_BIAS = "q_a_bias"
    KV_A_BIAS = "kv_a_bias"
    CROSS_Q_BIAS = "cross_q_bias"
    CROSS_K_BIAS = "cross_k_bias"
    CROSS_V_BIAS = "cross_v_bias"
    CROSS_O_BIAS = "cross_o_bias"
    GATE_BIAS = "gate_bias"
    UP_BIAS = "up_bias"
    DOWN_BIAS = "down_bias"
    ROUTER_BIAS = "router_bias"
    POOLER_BIAS = "pooler_bias"
    HEAD_TRANSFORM_BIAS = "head_transform_bias"
    FRONT_CONV_BIAS = "front_conv_bias"

    @property
    def is_gain(self) -> bool:
        return self.value.endswith("_norm")

    @property
    def is_bias(self) -> bool:
        return self.value.endswith("_bias") and self is not Role.RELATIVE_BIAS


class Slot(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """A place in a model: a role, and where it applies the stack, layer and expert."""

    role: Role
    layer: int | None = None
    expert: int | None = None
    stack: str = ""  # "encoder" or "decoder" in models that have both

    @property
    def layer_name(self) -> str:
        """`3`, or `encoder.3`; empty where no layer applies."""
        if self.layer is None:
            return self.stack
        return f"{self.stack}.{self.layer}" if self.stack else str(self.layer)

    def __str__(self) -> str:
        parts = [self.layer_name, self.role.value, "" if self.expert is None else f"expert {self.expert}"]
        return " ".join(part for part in parts if part)


Json = dict[str, Any]


class Identity(msgspec.Struct, frozen=True):
    """Which model this is, exactly enough to fetch the same bytes again."""

    id: str
    revision: str | None
    format: str
    parameters: int
    layers: int | None
    hidden: int | None
    vocabulary: int | None
    files: tuple[FileFact, ...]


class AnatomyRow(msgspec.Struct, frozen=True):
    """One role of a model: where it occurs, and in which shapes."""

    role: Role
    stack: str
    layers: int  # layers that have it; 0 for what belongs to no layer
    of_layers: int
    experts: int  # most experts in any layer; 0 where there are none
    tensors: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    parameters: int


class SetApart(msgspec.Struct, frozen=True):
    """A tensor that belongs to no slot on purpose."""

    name: str
    reason: str


class GainStatistics(msgspec.Struct, frozen=True):
    """The effective gains of one norm (stored value plus the family's offset; as stored where the offset is not known).

    In float64, with the population's std.
    """

    role: Role
    layer: str  # "3", "encoder.3", or empty
    n: int
    nonfinite: int  # NaN and infinite values; the rest of the line leaves them out
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    l2: float | None = None
    cv: float | None = None  # std / |mean|; None where the mean is zero


class LayerCheck(msgspec.Struct, frozen=True):
    """Layers that the config announces beside layers that have tensors."""

    stack: str
    announced: int | None
    found: int

    @property
    def agrees(self) -> bool:
        return self.announced == self.found


class InspectionCost(msgspec.Struct, frozen=True):
    bytes: int  # everything read, from wherever, to learn what the record says
    tensor_bytes: int
    hashed_bytes: int  # read once more for sha256 alone
    network_bytes: int
    requests: int
    seconds: float


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What `modelkin inspect` found out about one checkpoint."""

    schema: str = "modelkin.inspection/1"
    modelkin: str
    model: Identity
    family: str
    facts: Json
    config: Json
    anatomy: tuple[AnatomyRow, ...]
    layer_checks: tuple[LayerCheck, ...]
    unmapped: tuple[str, ...]
    apart: tuple[SetApart, ...]
    gains: tuple[GainStatistics, ...]
    vocabulary: Json | None
    vocabulary_missing: str | None  # why `vocabulary` is None
    notes: tuple[str, ...]
    cost: InspectionCost
