"""PyTorch .bin, .pt and .pth files: a zip of one pickle and one entry per storage, read without running anything."""

from __future__ import annotations

from typing import Any

import msgspec

from modelkin.errors import HeaderLies, UnsafePickle, UnsupportedFormat
from modelkin.formats.dtypes import BITS
from modelkin.formats.parts import MAX_AXIS, MAX_TENSORS, Part, Steps, checked_shape, is_text, shown
from modelkin.formats.pickle_machine import MAX_PICKLE, StoredTensor, run_pickle
from modelkin.formats.safetensors import LFS_POINTER
from modelkin.formats.zip_directory import HINT, Directory, Entry, Pieces, locate, read_directory
from modelkin.records import FileFact, TensorRef

MAX_DEPTH = 32
MAX_VALUES = 1 << 20
MAX_REPEATED = 1 << 28  # items of a view that repeats its storage, 1 GiB once read; a mask of 16384 x 16384
MAX_NAMES = 64 << 20  # characters of all names together
_LEGACY_MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")


def read_torch(fact: FileFact, where: str) -> Steps[Part]:
    """Head and tail in one round; then the rest of the pickle and the storages' local headers, where not yet held."""
    pieces = Pieces(fact, where)
    head = yield from pieces.open()
    _check_magic(bytes(head[:512]), where)
    directory = yield from read_directory(pieces)
    root = _root(directory, where)
    tree = yield from _read_pickle(pieces, directory, root)
    tensors, ignored = _flatten(tree, where)
    entries = _storages(tensors, directory, root, where)
    wanted = list(entries.values())
    spans = yield from locate(pieces, directory, wanted)
    starts = {entry.name: start for entry, (start, _) in zip(wanted, spans, strict=True)}
    refs = [
        _ref(name, tensor, starts[entries[tensor.storage.key].name], fact, where) for name, tensor in tensors.items()
    ]
    endless = [ref.name for ref, tensor in zip(refs, tensors.values(), strict=True) if _repeats_too_much(ref, tensor)]
    skipped = frozenset(endless)
    kept = tuple(ref for ref in refs if ref.name not in skipped)
    return Part(fact.name, kept, {}, _notes(ignored, endless, fact), skipped)


def _check_magic(head: bytes, where: str) -> None:
    if head.startswith(b"PK\3\4"):
        return
    if not head:
        raise UnsupportedFormat("the file is empty", where=where, hint="the download may be incomplete")
    if head.startswith(_LEGACY_MAGIC) or head[257:262] == b"ustar":
        raise UnsupportedFormat(
            "written by PyTorch before 1.6, in a form that can only be loaded by running it", where=where, hint=HINT
        )
    if head.startswith(b"\x80"):
        raise UnsafePickle("a bare pickle, not a PyTorch zip file", where=where, hint=HINT)
    if head.startswith(LFS_POINTER):
        raise UnsupportedFormat(
            "a Git LFS pointer lies where the weights should be", where=where, hint="fetch the file: git lfs pull"
        )
    raise UnsupportedFormat(f"expected a PyTorch zip file, found {head[:8]!r}", where=where, hint=HINT)


def _root(directory: Directory, where: str) -> str:
    """The folder inside the archive; TorchScript archives carry code beside their tensors and are refused."""
    roots = [name.removesuffix("data.pkl") for name in directory.entries if name.endswith("/data.pkl")]
    roots = [root for root in roots if root.count("/") == 1]
    if len(roots) != 1:
        raise UnsupportedFormat(
            f"expected one data.pkl in a folder of the zip file, found {len(roots)}", where=where, hint=HINT
        )
    root = roots[0]
    if any(name == f"{root}constants.pkl" or name.startswith(f"{root}code/") for name in directory.entries):
        raise UnsupportedFormat("a TorchScript archive: a program, not a list of tensors", where=where, hint=HINT)
    return root


def _read_pickle(pieces: Pieces, directory: Directory, root: str) -> Steps[Any]:
    pickled = directory.entries[f"{root}data.pkl"]
    if pickled.size > MAX_PICKLE:
        raise HeaderLies(f"data.pkl has {pickled.size} bytes; at most {MAX_PICKLE} are read", where=pieces.where)
    order = directory.entries.get(f"{root}byteorder")
    if order is not None and order.size > 16:
        raise HeaderLies(f"the byteorder entry has {order.size} bytes, expected 'little'", where=pieces.where)
    spans = yield from locate(pieces, directory, [pickled] if order is None else [pickled, order])
    views = yield from pieces.get(*spans)
    if order is not None and bytes(views[1]) != b"little":
        raise UnsupportedFormat(
            f"numbers are stored in the byte order {bytes(views[1])!r}; only little is read",
            where=pieces.where,
            hint=HINT,
        )
    return run_pickle(bytes(views[0]), f"{pieces.where} data.pkl")


class _Visit(msgspec.Struct, frozen=True):
    name: str
    depth: int
    value: Any


class _Unfolding:
    """Opens containers one by one, and counts first: a short pickle can describe endless repetition."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.values = 0
        self.characters = 0

    def inside(self, visit: _Visit) -> list[_Visit]:
        self.values += len(visit.value)
        self._check(visit.depth)
        items = visit.value.items() if isinstance(visit.value, dict) else enumerate(visit.value)
        prefix = f"{visit.name}." if visit.name else ""
        found = []
        for key, value in items:
            label = str(key)
            self.characters += len(prefix) + len(label)
            self._check(visit.depth)
            found.append(_Visit(prefix + label, visit.depth + 1, value))
        return found

    def _check(self, depth: int) -> None:
        if self.values > MAX_VALUES or self.characters > MAX_NAMES or depth > MAX_DEPTH:
            raise HeaderLies("the pickle nests or repeats its values without end", where=self.where)


def _flatten(tree: Any, where: str) -> tuple[dict[str, StoredTensor], list[str]]:
    """Tensors by dotted name, and the names of values that are none."""
    if not isinstance(tree, dict | list | tuple):
        raise UnsupportedFormat("expected named tensors, found a single value", where=where, hint=HINT)
    tensors: dict[str, StoredTensor] = {}
    ignored: list[str] = []
    unfolding = _Unfolding(where)
    waiting = [_Visit("", 0, tree)]
    while waiting:
        visit = waiting.pop()
        if isinstance(visit.value, StoredTensor):
            _add(tensors, visit.name, visit.value, where)
        elif isinstance(visit.value, dict | list | tuple):
            waiting.extend(reversed(unfolding.inside(visit)))
        else:
            ignored.append(visit.name)
    return tensors, ignored


def _add(tensors: dict[str, StoredTensor], name: str, tensor: StoredTensor, where: str) -> None:
    if name in tensors:
        raise HeaderLies(f"two tensors are named {shown(name)}", where=where)
    if not is_text(name):
        raise HeaderLies(f"the tensor name {shown(name)} is not Unicode text", where=where)
    if len(tensors) == MAX_TENSORS:
        raise HeaderLies(f"more than {MAX_TENSORS} tensors in one file", where=where)
    tensors[name] = tensor


def _storages(tensors: dict[str, StoredTensor], directory: Directory, root: str, where: str) -> dict[str, Entry]:
    """The zip entry of each storage that a tensor uses, by the storage's key; sizes must agree."""
    entries: dict[str, Entry] = {}
    for name, tensor in tensors.items():
        storage = tensor.storage
        entry = directory.entries.get(f"{root}data/{storage.key}")
        if entry is None:
            raise HeaderLies(f"tensor {shown(name)}: there is no storage {shown(storage.key)}", where=where)
        if storage.elements * BITS[storage.dtype] != 8 * entry.size:
            raise HeaderLies(
                f"tensor {shown(name)}: {storage.elements} items of {storage.dtype} do not fill the "
                f"{entry.size} bytes of storage {shown(storage.key)}",
                where=where,
            )
        entries[storage.key] = entry
    return entries


def _ref(name: str, tensor: StoredTensor, storage_start: int, fact: FileFact, where: str) -> TensorRef:
    storage, shape = tensor.storage, checked_shape(tensor.shape, name, where)
    strides = _checked_strides(name, tensor, shape, where)
    size = BITS[storage.dtype] // 8
    ref = TensorRef(name, storage.dtype, shape, fact.name, 0, 0)
    reach = 1 + sum((axis - 1) * stride for axis, stride in zip(shape, strides, strict=True)) if ref.parameters else 0
    if tensor.offset + reach > storage.elements:
        raise HeaderLies(
            f"tensor {shown(name)}: shape {shown(shape)} with strides {shown(strides)} from item {tensor.offset} "
            f"does not fit the {storage.elements} items of its storage",
            where=where,
        )
    start = storage_start + tensor.offset * size
    kept = None if _is_row_major(shape, strides) else strides
    return msgspec.structs.replace(ref, start=start, stop=start + reach * size, strides=kept)


def _repeats_too_much(ref: TensorRef, tensor: StoredTensor) -> bool:
    """A view may show an item many times (`expand`), and so claim a size that nothing in the file bounds."""
    return ref.parameters > max(tensor.storage.elements, MAX_REPEATED)


def _checked_strides(name: str, tensor: StoredTensor, shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    offset, strides = tensor.offset, tensor.strides
    whole = isinstance(strides, tuple) and all(type(stride) is int and 0 <= stride < MAX_AXIS for stride in strides)
    if not whole or len(strides) != len(shape) or type(offset) is not int or not 0 <= offset < MAX_AXIS:
        raise HeaderLies(
            f"tensor {shown(name)}: expected an offset and {len(shape)} strides, found {shown(offset)} and "
            f"{shown(strides)}",
            where=where,
        )
    return tuple(strides)


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for axis, stride in zip(reversed(shape), reversed(strides), strict=True):
        if axis == 0:
            return True
        if axis > 1 and stride != expected:
            return False
        expected *= axis
    return True


def _notes(ignored: list[str], endless: list[str], fact: FileFact) -> tuple[str, ...]:
    notes = []
    if ignored:
        notes.append(f"{fact.name}: {len(ignored)} values that are no tensors were passed over ({_some(ignored)})")
    if endless:
        notes.append(
            f"{fact.name}: {len(endless)} tensors that repeat their storage into more than {MAX_REPEATED} items were "
            f"passed over ({_some(endless)})"
        )
    return tuple(notes)


def _some(names: list[str]) -> str:
    return ", ".join(shown(name, 40) for name in names[:4]) + (", …" if len(names) > 4 else "")
