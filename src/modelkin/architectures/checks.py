"""What the tensors should show and do not: notes, never errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from modelkin.architectures.config import Dimensions
from modelkin.architectures.placing import OUTSIDE, Placing
from modelkin.records import Role, Slot

LISTED = 8
COUNTABLE = 100_000  # layer numbers above are not counted up to
Place = tuple[str, int]  # stack, layer
Part = tuple[Role, bool]  # role, one of several experts?


def check_anatomy(placing: Placing, dims: Dimensions, hidden: int | None) -> list[str]:
    """Layers, tensors and experts that are missing, and shapes that contradict the config; `hidden` is measured."""
    parts = _parts_of_layers(placing.slots)
    return [
        *_layer_counts(placing, dims),
        *_missing_parts(parts),
        *_absent_everywhere(placing),
        *_expert_counts(placing.slots, dims),
        *_shapes(placing, dims, hidden),
    ]


def _layer_counts(placing: Placing, dims: Dimensions) -> Iterator[str]:
    for stack in sorted({*placing.layers, *dims.layers}):
        found, claimed = placing.layers.get(stack, set()), dims.layers.get(stack)
        which = f"{stack} layers" if stack else "layers"
        if claimed is not None and not found:
            yield f"the config says {claimed} {which}; none was recognised"
        elif claimed is not None and len(found) != claimed:
            yield f"the config says {claimed} {which}, the tensors show {len(found)}"
        if found and max(found) >= COUNTABLE:
            yield f"{which} are numbered up to {max(found)}"
        elif found and len(found) <= max(found):
            yield f"no tensors for {which} {listed(sorted(set(range(max(found))) - found))}"


def _parts_of_layers(slots: Iterable[Slot]) -> dict[Place, set[Part]]:
    parts: dict[Place, set[Part]] = defaultdict(set)
    for slot in slots:
        if slot.layer is not None and slot.role not in OUTSIDE:
            parts[slot.stack, slot.layer].add((slot.role, slot.expert is not None))
    return parts


def _missing_parts(parts: dict[Place, set[Part]]) -> Iterator[str]:
    """What most layers of a kind (dense or with experts) have and some do not."""
    kinds: dict[tuple[str, bool], list[Place]] = defaultdict(list)
    for place, found in parts.items():
        kinds[place[0], any(expert or role is Role.ROUTER for role, expert in found)].append(place)
    for (stack, _), places in kinds.items():
        having = Counter(part for place in places for part in parts[place])
        for part, count in sorted(having.items()):  # the order of a set differs from run to run
            if len(places) / 2 < count < len(places):
                lacking = sorted(layer for name, layer in places if part not in parts[name, layer])
                word = "layer" if len(lacking) == 1 else "layers"
                yield f"{stack} {word} {listed(lacking)} without {part[0].value}".strip()


def _absent_everywhere(placing: Placing) -> Iterator[str]:
    if not placing.layers:
        return
    roles = {slot.role for slot in placing.slots}
    needed = {"q": {Role.Q, Role.Q_B}, "k": {Role.K, Role.KV_B}, "o": {Role.O}, "up": {Role.UP}, "down": {Role.DOWN}}
    absent = [name for name, any_of in needed.items() if not any_of & roles]
    if absent:
        yield f"no layer has {', '.join(absent)}"


def _expert_counts(slots: Iterable[Slot], dims: Dimensions) -> Iterator[str]:
    counts = Counter((slot.stack, slot.layer, slot.role) for slot in slots if slot.expert is not None)
    if not counts:
        return
    usual = Counter(counts.values()).most_common(1)[0][0]
    if dims.experts is not None and usual != dims.experts:
        yield f"the config says {dims.experts} experts, the tensors show {usual}"
    for (stack, layer, role), count in counts.items():
        if count != usual:
            where = Slot(role, layer, None, stack).layer_name
            yield f"layer {where} has {role.value} for {count} experts, others for {usual}"


def _shapes(placing: Placing, dims: Dimensions, hidden: int | None) -> Iterator[str]:
    if dims.hidden is not None and hidden is not None and dims.hidden != hidden:
        yield f"the config says hidden size {dims.hidden}, the tensors show {hidden}"
    expected: dict[Role, int | None] = {Role.EMBEDDING: dims.vocabulary, Role.UP: dims.intermediate}
    wrong: dict[Role, list[Slot]] = defaultdict(list)
    for slot, view in placing.slots.items():
        rows = expected.get(slot.role) if slot.expert is None else None
        if rows is not None and slot.stack != "decoder" and view.shape[0] != rows:
            wrong[slot.role].append(slot)
    for role, bad in wrong.items():
        rows = placing.slots[bad[0]].shape[0]
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        yield f"the config makes {expected[role]} rows for {role.value}, {bad[0]}{more} has {rows}"


def listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:LISTED]))
    return shown if len(numbers) <= LISTED else f"{shown} and {len(numbers) - LISTED} more"
