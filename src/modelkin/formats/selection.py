"""Which files of a source are its weights, told by their names alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn

import msgspec

from modelkin.errors import NotFound, NothingComparable, UnsupportedFormat
from modelkin.formats.parts import shown
from modelkin.records import Extent, FileFact
from modelkin.sources.protocol import Source, read_file

MAX_ADAPTER_CONFIG = 4 << 20
_SHARD = re.compile(r"(.+)-(\d{5,6})-of-(\d{5,6})(\.safetensors|\.bin|\.pt|\.pth)\Z")
_TORCH_SUFFIXES = (".bin", ".pt", ".pth")
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "openvino_")
_UNREAD = {
    ".gguf": "GGUF", ".ggml": "GGML", ".onnx": "ONNX", ".onnx_data": "ONNX", ".h5": "TensorFlow", ".keras": "Keras",
    ".pb": "TensorFlow", ".tflite": "TensorFlow Lite", ".msgpack": "Flax", ".nemo": "NeMo", ".ckpt": "pickle",
    ".pkl": "pickle", ".pickle": "pickle", ".joblib": "pickle", ".npz": "NumPy", ".npy": "NumPy", ".ot": "Rust tch",
    ".mlmodel": "Core ML", ".mlpackage": "Core ML", ".engine": "TensorRT", ".tar": "archive", ".zip": "archive",
    ".params": "MXNet", ".pdparams": "Paddle", ".distcp": "PyTorch distributed", ".exl2": "EXL2",
}  # fmt: skip


class Choice(msgspec.Struct, frozen=True):
    """The weights files; `files` is empty where only the index can tell their names."""

    format: Literal["safetensors", "torch"]
    files: tuple[str, ...]
    index: str | None = None
    notes: tuple[str, ...] = ()


class _AdapterConfig(msgspec.Struct, frozen=True):
    base_model_name_or_path: str | None = None


def choose_files(source: Source) -> Choice:
    files = source.files()
    if len(files) == 1 and not next(iter(files)).endswith(".json"):
        return _single_file(source, next(iter(files.values())))
    top = sorted(name for name in files if "/" not in name)
    choice = _safetensors(top, source.id) or _torch(top, source.id)
    if choice is None:
        _refuse(source, top)
    return choice


def _single_file(source: Source, fact: FileFact) -> Choice:
    """A file that was named itself: taken whatever its name, unless the name or the first bytes speak against it."""
    base = fact.name.rpartition("/")[2]
    if _is_adapter(base):
        _refuse_adapter(source)
    kind = _kind_by_suffix(base) or _kind_by_magic(source, fact)
    if kind is None:
        _refuse(source, [fact.name])
    shard = _SHARD.match(base)
    notes = (f"{fact.name} is one shard of {int(shard[3])}",) if shard and int(shard[3]) > 1 else ()
    return Choice(kind, (fact.name,), notes=notes)


def _kind_by_suffix(name: str) -> Literal["safetensors", "torch"] | None:
    if name.endswith(".safetensors"):
        return "safetensors"
    return "torch" if name.endswith(_TORCH_SUFFIXES) else None


def _kind_by_magic(source: Source, fact: FileFact) -> Literal["safetensors", "torch"] | None:
    if _unread_kind(fact.name) or fact.size < 9:
        return None
    start = bytes(source.read([Extent(fact.name, 0, 9)], "header")[0])
    if start[8:] == b"{" and int.from_bytes(start[:8], "little") <= fact.size - 8:
        return "safetensors"
    return "torch" if start.startswith(b"PK\3\4") else None


def _safetensors(top: Sequence[str], where: str) -> Choice | None:
    found = [name for name in top if name.endswith(".safetensors")]
    whole = [name for name in found if not _is_adapter(name)]
    weights = [name for name in whole if not name.startswith("consolidated")] or whole
    left_out = _left_out([name for name in found if name not in weights])
    if "model.safetensors.index.json" in top:
        return Choice("safetensors", _complete_shards(weights, "model"), "model.safetensors.index.json", left_out)
    if "model.safetensors" in weights:
        return Choice("safetensors", ("model.safetensors",), notes=left_out)
    return _every_file("safetensors", weights, left_out, where)


def _torch(top: Sequence[str], where: str) -> Choice | None:
    found = [name for name in top if name.endswith(_TORCH_SUFFIXES)]
    weights = [name for name in found if not _is_adapter(name) and not name.startswith(_NOT_WEIGHTS)]
    if "pytorch_model.bin.index.json" in top:
        return Choice("torch", _complete_shards(weights, "pytorch_model"), "pytorch_model.bin.index.json")
    if "pytorch_model.bin" in weights:
        return Choice("torch", ("pytorch_model.bin",))
    others = [name for name in weights if not name.startswith("consolidated")] or weights
    return _every_file("torch", others, _left_out([name for name in found if name not in others]), where)


def _left_out(names: Sequence[str]) -> tuple[str, ...]:
    return (f"left out: {', '.join(names)}",) if names else ()


def _every_file(
    format: Literal["safetensors", "torch"], names: Sequence[str], notes: tuple[str, ...], where: str
) -> Choice | None:
    if not names:
        return None
    _check_complete(names, where)
    return Choice(format, tuple(names), notes=notes)


def _shard_sets(names: Sequence[str]) -> Mapping[tuple[str, int, str], dict[int, str]]:
    """Numbered files by (stem, total, suffix), and in each set by number."""
    sets: dict[tuple[str, int, str], dict[int, str]] = defaultdict(dict)
    for name in names:
        if shard := _SHARD.match(name):
            sets[shard[1], int(shard[3]), shard[4]][int(shard[2])] = name
    return sets


def _complete_shards(names: Sequence[str], stem: str) -> tuple[str, ...]:
    """All shards in order, if the names leave no doubt which they are; else nothing, and the index must tell."""
    sets = [(total, held) for (found, total, _), held in _shard_sets(names).items() if found == stem]
    if len(sets) != 1:
        return ()
    total, held = sets[0]
    return tuple(held[number] for number in sorted(held)) if _missing(total, held) == 0 else ()


def _check_complete(names: Sequence[str], where: str) -> None:
    for (stem, total, suffix), held in _shard_sets(names).items():
        if _missing(total, held):
            first = next(number for number in range(1, total + 1) if number not in held)
            raise NotFound(
                f"{stem}-{first:05}-of-{total:05}{suffix} is missing; {len(held)} of {total} shards are there",
                where=where,
                hint="the download may be incomplete; name a single shard to look at that alone",
            )


def _missing(total: int, held: Mapping[int, str]) -> int:
    return total - sum(1 <= number <= total for number in held)


def _is_adapter(name: str) -> bool:
    return name.startswith(("adapter_model.", "adapter_model-"))


def _unread_kind(name: str) -> str | None:
    return next((kind for suffix, kind in _UNREAD.items() if name.lower().endswith(suffix)), None)


def _refuse(source: Source, top: Sequence[str]) -> NoReturn:
    """Say what is there instead of weights."""
    files = sorted(source.files())
    if any(_is_adapter(name) for name in top):
        _refuse_adapter(source)
    inner = [name for name in files if "/" in name and _kind_by_suffix(name)]
    kinds = sorted({kind for name in (top if inner else files) if (kind := _unread_kind(name))})
    if kinds:
        found = [name for name in files if _unread_kind(name)]
        raise UnsupportedFormat(
            f"expected safetensors or a PyTorch zip file, found only {', '.join(kinds)} ({_some(found)})",
            where=source.id,
            hint="use a copy of the model in safetensors",
        )
    if inner:
        raise NotFound(
            f"no weights at the top level; folders hold some ({_some(inner)})",
            where=source.id,
            hint="name one of these folders or files",
        )
    raise NotFound(f"no weights; the files are: {_some(files) or 'none'}", where=source.id)


def _refuse_adapter(source: Source) -> NoReturn:
    base = _adapter_base(source)
    named = f"its base is {shown(base)[1:-1]}" if base else "it does not say of which model"
    raise NothingComparable(
        f"only an adapter, not a whole model; {named}",
        where=source.id,
        hint="compare the base, or merge the adapter into it first",
    )


def _adapter_base(source: Source) -> str | None:
    fact = source.files().get("adapter_config.json")
    if fact is None or fact.size > MAX_ADAPTER_CONFIG:
        return None
    try:
        config = msgspec.json.decode(read_file(source, fact.name), type=_AdapterConfig)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return config.base_model_name_or_path


def _some(names: Sequence[str]) -> str:
    return ", ".join(shown(name)[1:-1] for name in names[:20]) + (", …" if len(names) > 20 else "")
