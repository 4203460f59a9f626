"""Scales beside narrow numbers: those that are understood, and those that only show that a weight is not plain."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from modelkin.formats.dtypes import FP8, INTEGERS
from modelkin.formats.parts import shown
from modelkin.records import TensorRef

FLOATS = frozenset({"F64", "F32", "BF16", "F16"})
_WORD = "scale"
_NARROW = INTEGERS - {"I64", "U64"}  # those are indices and counts; no scheme packs weights in them


def has_block_scale(ref: TensorRef, tensors: Mapping[str, TensorRef]) -> bool:
    """An FP8 weight beside the scales that it is to be multiplied with, stored in a form that is read."""
    scale = tensors.get(f"{ref.name}_scale_inv") if ref.dtype in FP8 else None
    return scale is not None and scale.dtype in FLOATS


def misfit(weight: TensorRef, scale: TensorRef, block: tuple[int, int]) -> str | None:
    """Why block scales cannot be those of a weight; None where they fit, one for all included."""
    if scale.shape in ((), (1,)):
        return None
    expected = tuple(weight.shape[:-2]) + tuple(-(-n // b) for n, b in zip(weight.shape[-2:], block, strict=False))
    if len(weight.shape) >= 2 and scale.shape == expected:
        return None
    return (
        f"FP8 whose scales do not fit: expected the shape {shown(expected)} for blocks of {block[0]} x {block[1]}, "
        f"or one number, found {shown(scale.shape)}"
    )


def is_unscaled(ref: TensorRef) -> bool:
    """FP8 that would be noted if no scale is found for it; scales and marks like ComfyUI's `scaled_fp8` would not."""
    return ref.dtype in FP8 and ref.parameters > 0 and _WORD not in ref.name.rpartition(".")[2].lower()


class ScaleNames:
    """Where in a model tensors lie that are called scales of some kind; gathered only when first asked."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names

    def scheme(self, ref: TensorRef) -> str | None:
        """What to call narrow numbers beside a scale that nothing here knows how to apply; None where there is none."""
        if not self._concerns(ref):
            return None
        # For FP8 any scale anywhere, or anything beside weight and bias, is enough to doubt that it is plain.
        doubtful = (self._any or self._has_company(ref.name)) if ref.dtype in FP8 else self._has_scale(ref.name)
        if not doubtful:
            return None
        return f"{'FP8' if ref.dtype in FP8 else ref.dtype} with a scale that is not understood"

    @staticmethod
    def _concerns(ref: TensorRef) -> bool:
        # FP8 of any shape is a weight; among integers only matrices are, the rest are buffers.
        return ref.dtype in FP8 or (ref.dtype in _NARROW and len(ref.shape) >= 2)

    def _has_scale(self, name: str) -> bool:
        stem = name.rpartition(".")[0]
        others = self._holders[stem] - list(_modules(name)).count(stem)
        return others > 0 or name in self._holders or self._is_above_one(name)

    def _has_company(self, name: str) -> bool:
        stem = name.rpartition(".")[0]
        return bool(self._leaves[stem] - {"weight", "bias", name.rpartition(".")[2]})

    @cached_property
    def _any(self) -> bool:
        return any(_WORD in name.lower() for name in self._names)

    @cached_property
    def _leaves(self) -> defaultdict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name in self._names:
            stem, _, leaf = name.rpartition(".")
            found[stem].add(leaf)
        return found

    def _is_above_one(self, name: str) -> bool:
        """Whether a scale lies anywhere below a name; sorted, the first candidate settles it."""
        place = bisect_left(self._sorted, f"{name}.")
        return place < len(self._sorted) and self._sorted[place].startswith(f"{name}.")

    @cached_property
    def _holders(self) -> Counter[str]:
        return Counter(module for name in self._names for module in _modules(name))

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._holders)


def _modules(name: str) -> Iterator[str]:
    """The modules that hold a scale by this name: `q` for q.w_scale, q.scale.0 and q.weight_scale.data alike."""
    stem, _, leaf = name.rpartition(".")
    if _WORD in leaf.lower():
        yield stem
    outer, _, inner = stem.rpartition(".")
    if _WORD in inner.lower():
        yield outer
