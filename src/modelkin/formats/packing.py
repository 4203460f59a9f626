"""Which tensors hold quantised or packed values, told by the config and by names; those are never plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from modelkin.errors import HeaderLies
from modelkin.formats.dtypes import FP8, INTEGERS, PACKED
from modelkin.formats.parts import shown
from modelkin.formats.scales import FLOATS, ScaleNames, has_block_scale, is_unscaled, misfit
from modelkin.records import TensorRef

DEFAULT_BLOCK = (128, 128)
HINT = "use the checkpoint that it was quantised from"

_CONFIG_KEYS = ("quantization_config", "compression_config", "quantization")
_GPTQ_PARTS = frozenset({"qweight", "qzeros", "scales", "g_idx"})
_PACK_PARTS = frozenset(
    {"weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx",
     "weight_global_scale", "input_global_scale"}
)  # fmt: skip
_BNB_PARTS = frozenset({"absmax", "quant_map", "nested_absmax", "nested_quant_map", "nested_offset"})
_SCALE_SUFFIXES = ("_scale", "_scales", "_scale_inv")
_SCALE_NEIGHBOURS = ("scales", "scale", "SCB", "weight_zero_point", "biases")


class Packing(msgspec.Struct, frozen=True):
    packed: dict[str, str]  # tensor name -> the scheme it belongs to
    scales: dict[str, str]  # FP8 weight -> its weight_scale_inv
    block: tuple[int, int]
    notes: tuple[str, ...] = ()


def find_packing(tensors: Mapping[str, TensorRef], config: Mapping[str, Any], where: str) -> Packing:
    quantisation = _quantisation(config)
    block = _block(quantisation, where)
    # Nearly every tensor of nearly every model is a plain weight or bias; the others are looked at.
    odd = [ref for ref in tensors.values() if ref.dtype not in FLOATS or not ref.name.endswith((".weight", ".bias"))]
    scales: dict[str, str] = {}
    packed: dict[str, str] = {}
    names = ScaleNames(tensors)
    for ref in odd:
        scale = f"{ref.name}_scale_inv" if has_block_scale(ref, tensors) else None
        scheme = misfit(ref, tensors[scale], block) if scale else _scheme(ref, tensors, quantisation, names)
        if scheme:
            packed[ref.name] = scheme
        elif scale:
            scales[ref.name] = scale
    unscaled = [ref for ref in odd if ref.name not in packed and ref.name not in scales and is_unscaled(ref)]
    return Packing(packed, scales, block, _notes(len(unscaled)))


def _notes(unscaled: int) -> tuple[str, ...]:
    if not unscaled:
        return ()
    return (f"{unscaled} FP8 {'tensor has' if unscaled == 1 else 'tensors have'} no scales; read as stored",)


def _scheme(
    ref: TensorRef, tensors: Mapping[str, TensorRef], quantisation: Mapping[str, Any] | None, names: ScaleNames
) -> str | None:
    """The scheme that a tensor is packed in, by what is known best; None for plain numbers."""
    return _scheme_by_name(ref.name, ref, tensors) or _scheme_by_dtype(ref, quantisation) or names.scheme(ref)


def _quantisation(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first quantisation record of the config, or of the text model inside it."""
    for place in (config, config.get("text_config")):
        if isinstance(place, Mapping):
            for key in _CONFIG_KEYS:
                if isinstance(place.get(key), Mapping):
                    return dict(place[key])
    return None


def _method(quantisation: Mapping[str, Any]) -> str:
    method = quantisation.get("quant_method")
    return ascii(method[:40])[1:-1] if isinstance(method, str) else "a method that is not named"


def _block(quantisation: Mapping[str, Any] | None, where: str) -> tuple[int, int]:
    size = (quantisation or {}).get("weight_block_size")
    if size is None:
        return DEFAULT_BLOCK
    if isinstance(size, list | tuple) and len(size) == 2 and all(type(n) is int and 0 < n < 1 << 31 for n in size):
        return int(size[0]), int(size[1])
    raise HeaderLies(f"weight_block_size: expected two positive numbers, found {shown(size)}", where=where)


def _scheme_by_name(name: str, ref: TensorRef, tensors: Mapping[str, TensorRef]) -> str | None:
    stem, _, leaf = name.rpartition(".")
    for scheme, belongs in (
        ("GPTQ or AWQ", leaf in _GPTQ_PARTS and f"{stem}.qweight" in tensors),
        ("compressed-tensors", leaf in _PACK_PARTS and f"{stem}.weight_packed" in tensors),
        ("bitsandbytes 4-bit", _is_bitsandbytes(name, stem, leaf, tensors)),
        ("bitsandbytes 8-bit", leaf in ("SCB", "weight_format") and f"{stem}.SCB" in tensors),
        ("MXFP4", _is_mxfp4(name, tensors)),
        ("HQQ", leaf == "W_q" or (leaf in ("scale", "zero") and f"{stem}.W_q" in tensors)),
        ("AQLM", leaf in ("codes", "codebooks", "scales") and {f"{stem}.codes", f"{stem}.codebooks"} <= tensors.keys()),
        ("scaled values", _is_scaled(name, stem, leaf, ref, tensors)),
        ("the scale of other values", _is_scale(name, tensors)),
    ):
        if belongs:
            return scheme
    return None


def _is_bitsandbytes(name: str, stem: str, leaf: str, tensors: Mapping[str, TensorRef]) -> bool:
    owner = name.partition(".quant_state.")[0] if ".quant_state." in name else stem
    return f"{name}.absmax" in tensors or (
        f"{owner}.absmax" in tensors and (leaf in _BNB_PARTS or ".quant_state." in name)
    )


def _is_mxfp4(name: str, tensors: Mapping[str, TensorRef]) -> bool:
    return (name.endswith("_blocks") and f"{name.removesuffix('_blocks')}_scales" in tensors) or (
        name.endswith("_scales") and f"{name.removesuffix('_scales')}_blocks" in tensors
    )


def _is_scaled(name: str, stem: str, leaf: str, ref: TensorRef, tensors: Mapping[str, TensorRef]) -> bool:
    """Integers or FP8 beside a scale. Floats beside one were already multiplied out."""
    if ref.dtype not in INTEGERS and ref.dtype not in FP8:
        return False
    beside = [f"{name}{suffix}" for suffix in _SCALE_SUFFIXES]
    if leaf == "weight":
        beside += [f"{stem}.{neighbour}" if stem else neighbour for neighbour in _SCALE_NEIGHBOURS]
    return any(other in tensors for other in beside)


def _is_scale(name: str, tensors: Mapping[str, TensorRef]) -> bool:
    for suffix in _SCALE_SUFFIXES:
        owner = tensors.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if owner is not None and (owner.dtype in INTEGERS or owner.dtype in FP8):
            return suffix != "_scale_inv" or owner.dtype not in FP8
    return False


def _scheme_by_dtype(ref: TensorRef, quantisation: Mapping[str, Any] | None) -> str | None:
    if ref.dtype in PACKED:
        return f"stored as {ref.dtype}"
    narrow = ref.dtype in FP8 or (ref.dtype in INTEGERS and ref.dtype not in ("I64", "U64"))
    if quantisation is not None and narrow and len(ref.shape) >= 2:
        return f"quantised by {_method(quantisation)} ({ref.dtype})"
    return None
