"""What an alignment would read of the weights, before it reads any."""

from __future__ import annotations

from collections.abc import Sequence

from modelkin.alignment.aligning import MOST_JUDGED, usable_layers
from modelkin.alignment.folding import Block, attention_slots, blocks, slot_of
from modelkin.alignment.sides import MOST_EXPERTS, evenly, is_small
from modelkin.alignment.tokens import MOST
from modelkin.architectures import Anatomy
from modelkin.architectures.anatomy import Wanted
from modelkin.records import Role


def bytes_needed(a: Anatomy, b: Anatomy) -> tuple[int, int]:
    """Bytes of weights of a and of b, each tensor counted once: attention of all layers, MLPs of those judged.

    At most: some neurons of a layer may do, some experts of a, for any may be the counterpart of those of b, and of
    embeddings the tokens that both know. Without the gains, which weigh nothing beside that.
    """
    facing = len(usable_layers(a)) == len(usable_layers(b))
    small = is_small(a) and is_small(b)
    return _bytes(a, facing and not small, True), _bytes(b, not small, is_small(b))


def _bytes(anatomy: Anatomy, few: bool, every_expert: bool) -> int:
    layers = usable_layers(anatomy)
    judged = evenly(layers, MOST_JUDGED) if few else layers
    attention = [slot for layer in layers for slot in attention_slots(anatomy, layer) or ()]
    mlp = [slot for layer in judged for block in _looked_at(anatomy, layer, every_expert) for slot in block.slots()]
    routers = [slot_of(Role.ROUTER, layer) for layer in judged]
    wanted: Sequence[Wanted] = [(slot, None) for slot in (*attention, *mlp, *routers) if slot in anatomy.slots]
    return anatomy.bytes_of(wanted) + _embedding(anatomy)


def _looked_at(anatomy: Anatomy, layer: str, every_expert: bool) -> list[Block]:
    known = blocks(anatomy, layer)
    routed = [block for block in known if block.expert >= 0]
    some = routed if every_expert else evenly(routed, MOST_EXPERTS)
    return [*(block for block in known if block.expert < 0), *some]


def _embedding(anatomy: Anatomy) -> int:
    slots = [slot for slot in anatomy.of(Role.EMBEDDING) if len(anatomy.shape(slot)) == 2][-1:]
    return sum(anatomy.bytes_of([(slot, slice(0, min(MOST, anatomy.shape(slot)[0])))]) for slot in slots)
