"""Where the parts of a descendant come from: which layers, hidden axes and neurons of its ancestor they were.

Pure functions of the truths of a zoo, as in `zoo.lineage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo.lineage import Truth, Truths, handed_down, lineage

# Disguises after which axes or neurons no longer go by their numbers.
MOVERS = frozenset({"rotate_hidden", "permute_hidden", "permute_neurons", "permute_experts"})


@dataclass(frozen=True)
class Block:
    """Neurons of one feed-forward block: `neurons` by number, in order, or None for all as they are."""

    layer: int
    expert: int | None = None
    neurons: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Origins:
    """What every part of a descendant was in its ancestor."""

    layers: Sequence[int | None] | None  # None where all kept their numbers
    axes: tuple[int, ...] | None  # likewise
    blocks: Mapping[tuple[int, int | None], Block | None]  # by layer and expert of the descendant


def origins(truths: Truths, ancestor: str, descendant: str) -> Origins | None:
    """None where all parts kept their numbers.

    Where a disguise moved axes or neurons only the layers are told: comparing the rest by number would mean nothing.
    """
    layers, axes = layer_map(truths, ancestor, descendant), axis_map(truths, ancestor, descendant)
    blocks = neuron_map(truths, ancestor, descendant)
    if _disguised(truths, ancestor, descendant):
        axes, blocks = None, {place: block and replace(block, neurons=None) for place, block in blocks.items()}
    moved = any(block and block.neurons is not None for block in blocks.values())
    return Origins(layers, axes, blocks) if moved or layers is not None or axes is not None else None


def layer_map(truths: Truths, ancestor: str, descendant: str) -> list[int | None] | None:
    """The layer of the ancestor that each layer of the descendant was; None where all kept their numbers."""
    blocks = neuron_map(truths, ancestor, descendant)
    found = list({layer: None if block is None else block.layer for (layer, _), block in blocks.items()}.values())
    return None if found == list(range(truths[ancestor]["shape"]["layers"])) else found


def axis_map(truths: Truths, ancestor: str, descendant: str) -> tuple[int, ...] | None:
    """The hidden axis of the ancestor that each of the descendant was; None where all kept their numbers."""
    axes: tuple[int, ...] | None = None
    for name in _way(truths, ancestor, descendant):
        for step in _steps(truths[name]):
            if step.get("step") == "width_prune":
                axes = _chosen(step["details"]["hidden"], axes)
    return axes


def neuron_map(truths: Truths, ancestor: str, descendant: str) -> dict[tuple[int, int | None], Block | None]:
    """Where the neurons of each layer, or of each layer's experts, come from; None for a layer from elsewhere."""
    shape = truths[descendant]["shape"]
    experts = range(shape["experts"]) if shape.get("experts") else (None,)
    places = [(layer, expert) for layer in range(shape["layers"]) for expert in experts]
    return {place: _traced(truths, ancestor, descendant, Block(*place)) for place in places}


def _disguised(truths: Truths, ancestor: str, descendant: str) -> bool:
    moves = [move["move"] for name in _way(truths, ancestor, descendant) for move in _moves(truths[name])]
    return not MOVERS.isdisjoint(moves)


def _way(truths: Truths, ancestor: str, descendant: str) -> Iterator[str]:
    """From the descendant up to the child of the ancestor; by the first parent where several lead there."""
    while descendant != ancestor:
        yield descendant
        descendant = _towards(truths, ancestor, handed_down(truths[descendant])) or ancestor


def _towards(truths: Truths, ancestor: str, parents: Iterable[str]) -> str | None:
    return next((parent for parent in parents if ancestor in lineage(truths, parent)), None)


def _traced(truths: Truths, ancestor: str, name: str, block: Block) -> Block | None:
    while name != ancestor:
        truth = truths[name]
        parent = _parent_of_layer(truth, block.layer)
        block = _source(truth, block)
        above = _towards(truths, ancestor, [parent] if parent else handed_down(truth))
        if above is None:
            return None
        name = above
    return block


def _parent_of_layer(truth: Truth, layer: int) -> str | None:
    """Only where layers of several parents were stacked."""
    made = truth.get("made_by", {})
    return truth["parents"][made["details"]["layers"][layer][0]] if made.get("step") == "passthrough" else None


def _source(truth: Truth, block: Block) -> Block:
    """The block of the parent that this one was, one step after another from the last to the first."""
    for move in _moves(truth):
        if move["move"] == "shuffle_layers":
            block = replace(block, layer=move["layers"][block.layer])
    for step in _steps(truth):
        block = _before(step.get("step"), step.get("details", {}), block)
    return block


def _before(step: str | None, details: Mapping[str, Any], block: Block) -> Block:
    layer, expert = block.layer, block.expert
    if step == "passthrough":
        return replace(block, layer=details["layers"][layer][1])
    if step == "width_prune":
        kept = details["neurons"][str(layer) if expert is None else f"{layer}.experts.{expert}"]
        return replace(block, neurons=_chosen(kept, block.neurons))
    if step == "upcycle_split":
        dealt = details["neurons"][str(layer)][expert or 0]
        return Block(layer, None, _chosen(dealt, block.neurons))
    if step in ("upcycle_copied", "upcycle_partly"):
        return replace(block, expert=None)
    return replace(block, layer=details["layer_map"][layer]) if "layer_map" in details else block


def _chosen(kept: Sequence[int], some: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(kept if some is None else (kept[i] for i in some))


def _steps(truth: Truth) -> list[Mapping[str, Any]]:
    """The derivations that made a model, the last first."""
    made = truth.get("made_by", {})
    return [*reversed(made.get("steps", ())), *([made] if "step" in made else [])]


def _moves(truth: Truth) -> list[Mapping[str, Any]]:
    """The disguises put on a model, the last first."""
    return list(reversed(truth.get("made_by", {}).get("disguise", ())))
