"""A machine that understands the pickles torch.save writes, and nothing else; it calls nothing and imports nothing.

It runs over `pickletools.genops`, so no opcode can do more than its line in the table below. A persistent id becomes a
`Storage`, a call of `_rebuild_tensor_v2` a `StoredTensor`; every other call is refused by name. Other harmless forms of
tensor are refused only at the end: to advise saving the file anew, it must be known to ask for nothing worse.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from modelkin.errors import HeaderLies, UnsafePickle, UnsupportedFormat
from modelkin.formats.dtypes import TORCH_STORAGES
from modelkin.formats.parts import shown

MAX_PICKLE = 64 << 20
MAX_OPCODES = 1 << 22
MAX_STACK = 1 << 18
MAX_MARKS = 256
MAX_MEMO = 1 << 22
HINT = "do not load this file with torch.load; ask for a safetensors copy"


class Call(msgspec.Struct, frozen=True):
    """A callable that is understood: never called, only recognised."""

    name: str


class StorageType(msgspec.Struct, frozen=True):
    dtype: str


class Storage(msgspec.Struct, frozen=True):
    dtype: str
    key: str
    elements: int


class StoredTensor(msgspec.Struct, frozen=True):
    """A view of a storage; nothing of it has been checked yet."""

    storage: Storage
    offset: Any
    shape: Any
    strides: Any


ORDERED_DICT = Call("collections.OrderedDict")
REBUILD_TENSOR = Call("torch._utils._rebuild_tensor_v2")
_KNOWN: dict[str, Call | StorageType] = {
    ORDERED_DICT.name: ORDERED_DICT,
    REBUILD_TENSOR.name: REBUILD_TENSOR,
    **{f"torch.{name}": StorageType(dtype) for name, dtype in TORCH_STORAGES.items()},
}
_OTHER_FORMS = frozenset(
    {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch._utils._rebuild_tensor_v3",
     "torch.nn.parameter.Parameter"}
)  # fmt: skip
_UNTYPED = Call("torch.storage.UntypedStorage")
_FORM_PARTS = frozenset(
    {_UNTYPED.name, "torch.uint16", "torch.uint32", "torch.uint64", "torch.float8_e4m3fn", "torch.float8_e5m2",
     "torch.float8_e4m3fnuz", "torch.float8_e5m2fnuz", "torch.float8_e8m0fnu", "torch.float4_e2m1fn_x2"}
)  # fmt: skip


def run_pickle(raw: bytes, where: str) -> Any:
    """The containers, plain values and `StoredTensor`s that a pickle describes."""
    if len(raw) > MAX_PICKLE:
        raise HeaderLies(f"the pickle has {len(raw)} bytes; at most {MAX_PICKLE} are read", where=where)
    machine = _Machine(where)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(raw)):
            if opcode.name == "STOP":
                return machine.result()
            if count >= MAX_OPCODES:
                raise HeaderLies(f"the pickle has more than {MAX_OPCODES} steps", where=where)
            machine.step(opcode.name, argument)
    except (ValueError, OverflowError, DeprecationWarning) as error:  # what pickletools has for malformed arguments
        raise HeaderLies(f"the pickle is malformed: {shown(str(error))}", where=where) from error
    raise HeaderLies("the pickle does not end", where=where)


class _Machine:
    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []  # the stacks below each open mark
        self.memo: dict[int, Any] = {}
        self.other_form: str | None = None  # the first form of tensor met that is harmless, but not read

    def step(self, name: str, argument: Any) -> None:
        action = _ACTIONS.get(name)
        if action is None:
            self.refuse(f"the opcode {name}, which torch.save never writes for plain tensors")
        action(self, argument)
        if len(self.stack) > MAX_STACK or len(self.marked) > MAX_MARKS:
            raise HeaderLies("the pickle nests deeper than any list of tensors", where=self.where)

    def result(self) -> Any:
        if len(self.stack) != 1 or self.marked:
            raise HeaderLies(f"the pickle ends with {len(self.stack)} values, expected one", where=self.where)
        if self.other_form is not None:
            raise UnsupportedFormat(
                f"the pickle holds {self.other_form}, a form of tensor that is not read",
                where=self.where,
                hint="save it again as safetensors",
            )
        return self.stack[0]

    def refuse(self, what: str) -> NoReturn:
        raise UnsafePickle(f"the pickle asks for {what}", where=self.where, hint=HINT)

    def pop(self) -> Any:
        if not self.stack:
            raise HeaderLies("the pickle takes a value where there is none", where=self.where)
        return self.stack.pop()

    def pop_marked(self) -> list[Any]:
        if not self.marked:
            raise HeaderLies("the pickle closes a group that it never opened", where=self.where)
        items, self.stack = self.stack, self.marked.pop()
        return items

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            self.refuse(f"filling something that is no {kind.__name__}")
        return self.stack[-1]

    # One method per kind of opcode; `argument` is what pickletools found behind it.

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def push_integer(self, value: int) -> None:
        if value.bit_length() > 63:
            raise HeaderLies(f"the pickle holds {shown(value)}", where=self.where)
        self.stack.append(value)

    def open_mark(self, _: Any) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def close_tuple(self, _: Any) -> None:
        items = self.pop_marked()
        self.stack.append(tuple(items))

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise HeaderLies("the pickle takes a value where there is none", where=self.where)
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def put(self, index: int) -> None:
        if not self.stack or not 0 <= index < MAX_MEMO:
            raise HeaderLies(f"the pickle remembers a value under {shown(index)}", where=self.where)
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise HeaderLies(f"the pickle recalls value {shown(index)}, which it never remembered", where=self.where)
        self.stack.append(self.memo[index])

    def append(self, _: Any) -> None:
        value = self.pop()
        self.top(list).append(value)

    def appends(self, _: Any) -> None:
        items = self.pop_marked()
        self.top(list).extend(items)

    def set_item(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._set(self.top(dict), key, value)

    def set_items(self, _: Any) -> None:
        items = self.pop_marked()
        if len(items) % 2:
            raise HeaderLies("the pickle gives a dictionary a key without a value", where=self.where)
        target = self.top(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._set(target, key, value)

    def _set(self, target: dict[Any, Any], key: Any, value: Any) -> None:
        # Hashing a deep tuple would recurse without a limit; names are text or numbers anyway.
        if not isinstance(key, str | int | float | None):
            self.refuse("a dictionary key that is neither text nor a number")
        target[key] = value

    def find_global(self, argument: str) -> None:
        self._recognise(argument.replace(" ", ".", 1))

    def find_stacked_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            self.refuse("a global whose name is not text")
        self._recognise(f"{module}.{name}")

    def _recognise(self, name: str) -> None:
        known = _KNOWN.get(name)
        if name in _OTHER_FORMS:
            self.other_form = self.other_form or name
            known = Call(name)
        elif self.other_form is not None and name in _FORM_PARTS:
            known = Call(name)
        if known is None:
            self.refuse(f"{shown(name)[1:-1]}, which is not part of a plain tensor")
        self.stack.append(known)

    def load_storage(self, _: Any) -> None:
        match self.pop():
            case ("storage", StorageType(dtype=dtype), str(key), str(), int(elements)) if elements >= 0:
                self.stack.append(Storage(dtype, key, elements))
            case ("storage", Call() as untyped, str(), str(), int()) if untyped == _UNTYPED:
                self.stack.append(untyped)
            case _:
                self.refuse("a persistent object that is not a typed storage")

    def reduce(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(arguments, tuple):
            self.refuse("a call without a tuple of arguments")
        if function is ORDERED_DICT and not arguments:
            self.stack.append({})
        elif function is REBUILD_TENSOR and len(arguments) in (6, 7) and isinstance(arguments[0], Storage):
            if len(arguments) == 7 and arguments[6]:
                self.refuse("a tensor with further marks (conjugated or negated)")
            self.stack.append(StoredTensor(*arguments[:4]))
        elif isinstance(function, Call) and function.name in _OTHER_FORMS:
            self.stack.append(function)  # stands for the tensor; nobody will look at it
        else:
            name = function.name if isinstance(function, Call) else "something that is not a function"
            self.refuse(f"calling {name} with {len(arguments)} unexpected arguments")

    def build(self, _: Any) -> None:
        """Attributes of a state dict (its `_metadata`) are passed over; no other object may have any."""
        if type(self.pop()) is not dict:
            self.refuse("an object state that is no dictionary")
        self.top(dict)


def _ignore(machine: _Machine, argument: Any) -> None:
    """PROTO and FRAME say nothing about values."""


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _ignore,
    "FRAME": _ignore,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "BINFLOAT": _Machine.push,
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine.push),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4"), _Machine.push_integer),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": _Machine.open_mark,
    "TUPLE": _Machine.close_tuple,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.find_global,
    "STACK_GLOBAL": _Machine.find_stacked_global,
    "BINPERSID": _Machine.load_storage,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
