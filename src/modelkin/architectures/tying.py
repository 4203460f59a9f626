"""A head that is the embedding counts once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from modelkin.architectures.config import Dimensions
from modelkin.architectures.placing import Placing
from modelkin.architectures.views import Floats
from modelkin.records import Role, Slot, TensorRef

HEAD = Slot(Role.HEAD)
EMBEDDINGS = (Slot(Role.EMBEDDING), Slot(Role.EMBEDDING, stack="decoder"))
COMPARED = 8  # rows, evenly spaced
TASK_HEAD = "task head"  # as common.toml and the families call it
SPEAKING = ("ForCausalLM", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration", "LMHead")
ReadMany = Callable[[Sequence[tuple[str, Sequence[int]]]], list[Floats]]


def settle_head(placing: Placing, dims: Dimensions, classes: object, read_many: ReadMany) -> bool:
    """Whether embedding and head are one tensor; its second place is then taken out of the slots.

    Configs say so of models that have a head of their own, so where both are stored a few rows are compared.
    """
    slots, tensors = placing.slots, placing.tensors
    claimed = placing.family.facts.tied if dims.tied is None else dims.tied
    embedding = next((slots[slot] for slot in EMBEDDINGS if slot in slots), None)
    head = slots.get(HEAD)
    if head is None:
        return claimed and embedding is not None and _speaks(placing, dims, classes)
    if embedding is None:
        if claimed:  # whoever saved it kept the other name of the pair
            slots[EMBEDDINGS[0]] = slots.pop(HEAD)
        return claimed
    first, second = tensors[embedding.tensor], tensors[head.tensor]
    if first.extent == second.extent and first.shape == second.shape:
        reason = f"the same bytes as {first.name}"
    elif claimed and _alike(first, second, read_many):
        reason = f"tied to {first.name} by the config"
    else:
        if claimed:
            placing.notes.append(f"the config ties head and embedding, but {second.name} is another tensor")
        return False
    del slots[HEAD]
    placing.apart[second.name] = reason
    return True


def _speaks(placing: Placing, dims: Dimensions, classes: object) -> bool:
    """Whether a model that stores no head has one at all: a classifier is tied to nothing."""
    named = [word for word in classes if isinstance(word, str)] if isinstance(classes, list) else []
    if any(part in word for word in named for part in SPEAKING):
        return True
    if any(slot.role in (Role.HEAD_BIAS, Role.HEAD_TRANSFORM) for slot in placing.slots):
        return True
    if TASK_HEAD in placing.apart.values():
        return False
    # `BertModel` and `MarianMTModel` say nothing about it, `BertForTokenClassification` does.
    return dims.tied is not None or not named or not all("For" in word for word in named)


def _alike(first: TensorRef, second: TensorRef, read_many: ReadMany) -> bool:
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    rows = np.unique(np.linspace(0, first.shape[0] - 1, COMPARED).astype(int)).tolist()
    here, there = read_many([(first.name, rows), (second.name, rows)])
    return np.array_equal(here, there, equal_nan=True)
