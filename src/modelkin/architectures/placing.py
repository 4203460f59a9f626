"""Every stored tensor into exactly one of three places: slots, set apart, left over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from modelkin.architectures.config import Dimensions
from modelkin.architectures.family import Family
from modelkin.architectures.plausible import doubt, out_of_place
from modelkin.architectures.templates import Placed, Rule, Table, dissect
from modelkin.architectures.views import CannotCut, View, cut
from modelkin.records import Role, Slot, TensorRef

EXTRA = "extra prediction layer"
TWICE = "another tensor has the same place"
OUTSIDE = (Role.FRONT_CONV, Role.FRONT_CONV_BIAS, Role.EMBEDDING_PROJECTION)  # numbered, but no layers
FLOATS = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
Parts = list[tuple[Role, int | None, View]]  # role, expert within a stack, view


class Names:
    """Stored names with their numbers taken out, once for all families."""

    def __init__(self, names: Iterable[str]) -> None:
        self.dissected: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.patterns: dict[str, int] = defaultdict(int)  # pattern -> how many names
        self.firsts: dict[str, str] = {}  # pattern -> one name
        for name in names:
            self.dissected[name] = found = dissect(name)
            self.patterns[found[0]] += 1
            self.firsts.setdefault(found[0], name)

    def sample(self, pattern: str) -> tuple[int, ...]:
        """The numbers of one name of a pattern."""
        return self.dissected[self.firsts[pattern]][1]


class Placing:
    """The work of placing one checkpoint's tensors, and its results."""

    def __init__(self, tensors: Mapping[str, TensorRef], family: Family, table: Table, dims: Dimensions) -> None:
        self.tensors = tensors
        self.family = family
        self.dims = dims
        self.slots: dict[Slot, View] = {}
        self.unmapped: list[str] = []
        self.apart: dict[str, str] = {}
        self.layers: defaultdict[str, set[int]] = defaultdict(set)
        self.notes: list[str] = []
        self._table = table
        self._refused: dict[tuple[str, str], list[str]] = {}
        self._copies: list[tuple[str, Placed]] = []
        self._ambiguous: set[Slot] = set()
        self._models: dict[tuple[str, tuple[int, ...], str], tuple[Rule, View]] = {}
        self._cuts: dict[tuple[int, tuple[int, ...]], Parts] = {}

    def run(self, names: Names, packed: Mapping[str, str]) -> None:
        marks, layered = self._table.extra_marks, self._table.layered
        extra = {numbers[0] for pattern, numbers in names.dissected.values() if pattern in marks}
        for name, (pattern, numbers) in names.dissected.items():
            if pattern in layered and numbers[0] in extra:
                self.apart[name] = EXTRA
                continue
            if name not in packed and self._put_alike(name, pattern, numbers):
                continue
            found = self._table.place(pattern, numbers)
            if isinstance(found, Placed):
                self._put(name, found, packed.get(name))
                self._remember(name, pattern, found)
            elif found or name in packed:
                self.apart[name] = found or f"packed weights ({packed[name]})"
            else:
                self.unmapped.append(name)
        for name, placed in self._copies:
            self._put_copy(name, placed)
        self._report_refused()

    def _remember(self, name: str, pattern: str, placed: Placed) -> None:
        """A tensor that became one slot, so that the ten thousand like it need not be looked at as closely."""
        rule, ref = placed.rule, self.tensors[name]
        view = self.slots.get(Slot(rule.roles[0], placed.layer, placed.expert, rule.stack))
        if view is not None and view.tensor == name and rule.binds == ("layer", "expert") and len(rule.roles) == 1:
            self._models[pattern, ref.shape, ref.dtype] = rule, view

    def _put_alike(self, name: str, pattern: str, numbers: tuple[int, ...]) -> bool:
        ref = self.tensors[name]
        model = self._models.get((pattern, ref.shape, ref.dtype))
        if model is None:
            return False
        rule, view = model
        slot = Slot(rule.roles[0], numbers[0], numbers[1], rule.stack)
        if slot in self.slots or slot in self._ambiguous:
            return False
        self.layers[rule.stack].add(numbers[0])
        self.slots[slot] = view.of(name)
        return True

    def _put(self, name: str, placed: Placed, scheme: str | None) -> None:
        ref = self.tensors[name]
        if scheme is not None:
            self.apart[name] = f"packed weights ({scheme})"
        elif ref.dtype not in FLOATS:
            self.apart[name] = f"stored as {ref.dtype}, no form of weights"
        elif 0 in ref.shape:
            self.apart[name] = "empty tensor"
        elif placed.rule.spec.copy:
            self._copies.append((name, placed))
        else:
            self._cut(name, ref, placed)

    def _cut(self, name: str, ref: TensorRef, placed: Placed) -> None:
        rule, layer, own = placed
        if layer is not None and rule.roles[0] not in OUTSIDE:
            self.layers[rule.stack].add(layer)
        try:
            parts = self._parts(placed, ref)
        except CannotCut as refusal:
            self._refuse(name, placed, str(refusal))
            return
        doubtful = out_of_place(name, placed.rule.spec, self.tensors)
        if doubtful:
            self._refuse(name, placed, doubtful)
            return
        done: list[Slot] = []
        for role, expert, cut_out in parts:
            slot, view = Slot(role, layer, own if expert is None else expert, rule.stack), cut_out.of(name)
            if slot in self._ambiguous or self.slots.setdefault(slot, view) is not view:
                for taken_back in done:
                    del self.slots[taken_back]
                self._put_twice(name, placed, slot)
                return
            done.append(slot)

    def _parts(self, placed: Placed, ref: TensorRef) -> Parts:
        """The cuts of a shape under a rule, made once: all experts of all layers share them."""
        key = (id(placed.rule), ref.shape)
        parts = self._cuts.get(key)
        if parts is None:
            parts = cut(placed, ref, self.dims)
            for role, _, view in parts:
                reason = doubt(role, view.shape, placed, self.dims, strict=self.family.suffixes)
                if reason:
                    raise CannotCut(reason)
            self._cuts[key] = parts
        return parts

    def _put_twice(self, name: str, placed: Placed, slot: Slot) -> None:
        if slot in self._ambiguous:
            self._refuse(name, placed, TWICE)
            return
        first = self.slots[slot].tensor
        if self.tensors[name].extent == self.tensors[first].extent and len(placed.rule.roles) == 1:
            self.apart[name] = f"the same bytes as {first}"
            return
        self._refuse(name, placed, TWICE)
        if self.family.suffixes:  # nobody knows which of the two is meant
            self._ambiguous.add(slot)
            del self.slots[slot]
            self._refuse(first, placed, TWICE)

    def _put_copy(self, name: str, placed: Placed) -> None:
        """A tied tensor's second place: the slot itself where the first is not stored."""
        slot = Slot(placed.rule.roles[0], placed.layer, placed.expert, placed.rule.stack)
        if slot not in self.slots:
            self._cut(name, self.tensors[name], placed)
        elif self.tensors[name].parameters == self.tensors[self.slots[slot].tensor].parameters:
            self.apart[name] = f"tied to {self.slots[slot].tensor}"
        else:
            self._refuse(name, placed, f"tied to {self.slots[slot].tensor}, but of another size")

    def _refuse(self, name: str, placed: Placed, reason: str) -> None:
        self.unmapped.append(name)
        roles = ", ".join(role.value for role in placed.rule.roles)
        self._refused.setdefault((roles, reason), []).append(name)

    def _report_refused(self) -> None:
        for (roles, reason), names in self._refused.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.notes.append(f"{roles} not taken from {names[0][:120]}{more}: {reason[:200]}")
