"""One checkpoint looked at: identity, anatomy, gains, vocabulary. Headers and norm vectors are all that is read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkin import __version__
from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint, open_checkpoint
from modelkin.errors import NotFound, UnreadableError
from modelkin.records import (
    AnatomyRow,
    GainStatistics,
    Identity,
    Inspection,
    InspectionCost,
    Json,
    LayerCheck,
    SetApart,
    Slot,
)
from modelkin.sources import ReadOptions, open_source
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import TENSOR_KINDS, Progress, Source, no_progress
from modelkin.vocabulary import facts as vocabulary_facts

LARGEST_BATCH = 16 << 20  # numbers
SMALL_FILE = 4 << 20  # local files up to here are hashed without being asked


def open_model(model: str, options: ReadOptions = ReadOptions(), progress: Progress = no_progress) -> Checkpoint:
    """`owner/name[@revision]`, a folder or a file -> its checkpoint; headers are read, weights are not."""
    source = open_source(model, options, progress)
    try:
        return open_checkpoint(source, progress)
    except BaseException:
        source.close()
        raise


def inspect(
    model: str,
    options: ReadOptions = ReadOptions(),
    *,
    vocabulary: bool = True,
    hashed: bool = False,
    progress: Progress = no_progress,
) -> Inspection:
    """Open `model` (see `open_source`), identify it, and describe it. `hashed`: sha256 of large local files as well."""
    began = time.perf_counter()
    source = open_source(model, options, progress)
    try:
        if isinstance(source, LocalSource):
            source.hash_files(None if hashed else SMALL_FILE, progress)
        return describe(source, began, vocabulary=vocabulary, progress=progress)
    finally:
        source.close()


def describe(source: Source, began: float, *, vocabulary: bool = True, progress: Progress = no_progress) -> Inspection:
    checkpoint = open_checkpoint(source, progress)
    anatomy = identify(checkpoint)
    words, unread = _vocabulary(checkpoint) if vocabulary else (None, "left unread as asked")
    return Inspection(
        modelkin=__version__,
        model=identity(checkpoint, anatomy),
        family=anatomy.facts.family,
        facts=msgspec.to_builtins(anatomy.facts),
        config=dict(checkpoint.config),
        anatomy=anatomy_rows(anatomy),
        layer_checks=layer_checks(anatomy),
        unmapped=anatomy.unmapped,
        apart=tuple(SetApart(name, reason) for name, reason in anatomy.apart.items()),
        gains=gain_statistics(anatomy),
        vocabulary=words,
        vocabulary_missing=unread,
        notes=(*checkpoint.layout.notes, *anatomy.notes, *source.notes),
        cost=cost(source, time.perf_counter() - began),
    )


def _vocabulary(checkpoint: Checkpoint) -> tuple[Json | None, str | None]:
    """Facts, or why there are none. A tokenizer that cannot be read leaves the tensors beside it none the worse."""
    try:
        words = checkpoint.vocabulary
    except (UnreadableError, NotFound) as error:
        return None, f"cannot be read: {error}"
    if words is None:
        return None, "no tokenizer file was found"
    return msgspec.to_builtins(vocabulary_facts(words)), None


def identity(checkpoint: Checkpoint, anatomy: Anatomy) -> Identity:
    facts = anatomy.facts
    return Identity(
        id=checkpoint.id,
        revision=checkpoint.revision,
        format=checkpoint.layout.format,
        parameters=checkpoint.parameters,
        layers=sum(check.found for check in layer_checks(anatomy)) or None,  # none recognised is not none there
        hidden=facts.hidden,
        vocabulary=facts.vocabulary,
        files=tuple(checkpoint.source.files().values()),
    )


def anatomy_rows(anatomy: Anatomy) -> tuple[AnatomyRow, ...]:
    """Slots gathered by role and stack, in the order in which they first occur."""
    groups: dict[tuple[str, str], list[Slot]] = defaultdict(list)
    for slot in anatomy.slots:
        groups[slot.role, slot.stack].append(slot)
    of_layers = {check.stack: check.found for check in layer_checks(anatomy)}
    return tuple(_row(anatomy, slots, of_layers) for slots in groups.values())


def _row(anatomy: Anatomy, slots: Sequence[Slot], of_layers: dict[str, int]) -> AnatomyRow:
    shapes = [anatomy.shape(slot) for slot in slots]
    return AnatomyRow(
        role=slots[0].role,
        stack=slots[0].stack,
        layers=len({slot.layer for slot in slots if slot.layer is not None}),
        of_layers=of_layers.get(slots[0].stack, 0),
        experts=max((slot.expert + 1 for slot in slots if slot.expert is not None), default=0),
        tensors=len(slots),
        shapes=tuple(dict.fromkeys(shapes)),
        dtypes=tuple(dict.fromkeys(anatomy.dtype(slot) for slot in slots)),
        parameters=sum(int(np.prod(shape, dtype=object)) for shape in shapes),
    )


def layer_checks(anatomy: Anatomy) -> tuple[LayerCheck, ...]:
    found: dict[str, set[int]] = defaultdict(set)
    for slot in anatomy.slots:
        if slot.layer is not None:
            found[slot.stack].add(slot.layer)
    configured = anatomy.facts.configured_layers
    announced = configured if isinstance(configured, dict) else {} if configured is None else {"": configured}
    return tuple(LayerCheck(stack, announced.get(stack), len(found[stack])) for stack in {**announced, **found})


def gain_statistics(anatomy: Anatomy) -> tuple[GainStatistics, ...]:
    """Every norm's gains, read side by side."""
    found: list[GainStatistics] = []
    for batch in _batches(anatomy, [slot for slot in anatomy.slots if slot.role.is_gain]):
        arrays = anatomy.read_many([(slot, None) for slot in batch])
        found += [statistics_of(slot, array) for slot, array in zip(batch, arrays, strict=True)]
    return tuple(found)


def _batches(anatomy: Anatomy, slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """All at once for any real model; in parts where a file claims norms of absurd size."""
    batch: list[Slot] = []
    numbers = 0
    for slot in slots:
        batch.append(slot)
        numbers += anatomy.shape(slot)[0]
        if numbers > LARGEST_BATCH:
            yield batch
            batch, numbers = [], 0
    if batch:
        yield batch


def statistics_of(slot: Slot, gains: NDArray[np.floating]) -> GainStatistics:
    values = np.asarray(gains, dtype=np.float64).ravel()
    finite = values[np.isfinite(values)]
    line = GainStatistics(slot.role, slot.layer_name, values.size, values.size - finite.size)
    if not finite.size:
        return line
    with np.errstate(over="ignore", invalid="ignore"):  # gains of 1e300 are somebody's joke, not our warning
        mean, std, norm = float(finite.mean()), float(finite.std()), float(np.linalg.norm(finite))
    return msgspec.structs.replace(
        line,
        mean=mean,
        std=std,
        min=float(finite.min()),
        max=float(finite.max()),
        l2=norm,
        cv=std / abs(mean) if mean else None,
    )


def cost(source: Source, seconds: float) -> InspectionCost:
    ledger = source.ledger
    hashed = ledger.bytes({"hash"})
    network = sum(e.bytes for e in ledger.exchanges if e.origin == "network")
    return InspectionCost(
        bytes=ledger.bytes() - hashed,
        tensor_bytes=ledger.bytes(TENSOR_KINDS),
        hashed_bytes=hashed,
        network_bytes=network,
        requests=ledger.requests,
        seconds=seconds,
    )
