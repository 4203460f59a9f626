"""A head that is the embedding counts once."""

from __future__ import annotations

from modelkin.architectures.config import Dimensions
from modelkin.architectures.placing import Placing
from modelkin.records import Role, Slot

HEAD = Slot(Role.HEAD)
EMBEDDINGS = (Slot(Role.EMBEDDING), Slot(Role.EMBEDDING, stack="decoder"))


def settle_head(placing: Placing, dims: Dimensions) -> bool:
    """Whether embedding and head are one tensor; its second place is then taken out of the slots."""
    slots, tensors = placing.slots, placing.tensors
    claimed = placing.family.facts.tied if dims.tied is None else dims.tied
    embedding = next((slots[slot] for slot in EMBEDDINGS if slot in slots), None)
    head = slots.get(HEAD)
    if head is None:
        return claimed and embedding is not None
    if embedding is None:
        if claimed:  # whoever saved it kept the other name of the pair
            slots[EMBEDDINGS[0]] = slots.pop(HEAD)
        return claimed
    first, second = tensors[embedding.tensor], tensors[head.tensor]
    if first.extent == second.extent and first.shape == second.shape:
        reason = f"the same bytes as {first.name}"
    elif claimed and placing.family.trust_tie and (first.shape, first.dtype) == (second.shape, second.dtype):
        reason = f"tied to {first.name} by the config"
    else:
        return False
    del slots[HEAD]
    placing.apart[second.name] = reason
    return True
