"""A set of models opened once and read once: what every part of a survey is made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from modelkin.architectures import Anatomy, identify
from modelkin.checkpoint import Checkpoint
from modelkin.errors import NothingComparable, PackedTensor, UsageError
from modelkin.inspection import open_model
from modelkin.records import KnownPair, Role, Slot
from modelkin.sampling.facing import Facing, facing
from modelkin.sampling.offsets import offset
from modelkin.sources import ReadOptions
from modelkin.sources.protocol import Progress, no_progress
from modelkin.survey.labels import Names, group_members, known_pairs, mixed_layers, named

# Gains that stand on the residual stream, one a layer: what is surveyed unless roles are named.
USUAL = (
    Role.INPUT_NORM,
    Role.POST_NORM,
    Role.CROSS_NORM,
    Role.ATTN_OUT_NORM,
    Role.MLP_OUT_NORM,
    Role.CROSS_OUT_NORM,
)
# Read by the parts of a survey that need them, never whole.
BY_TOKEN = (Role.EMBEDDING, Role.HEAD)
MOST_VALUES = 4 << 20  # of one matrix: key and value projections of the usual sizes whole
MOST_TOGETHER = 96 << 20  # of all matrices of a survey, 384 MB
OPENED_TOGETHER = 4

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SurveyOptions:
    """`roles` empty: the gains of every layer. `layers` empty: three depths; ("all",): every layer.

    `groups`, `known` and `mixed` name models as they were given, or by label. Layers of vectors are always read all;
    `layers` chooses where models are set beside each other, and which layers of matrices are read.
    """

    roles: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    known: tuple[KnownPair, ...] = ()
    mixed: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    reading: ReadOptions = field(default_factory=ReadOptions)


@dataclass(frozen=True, eq=False)
class Model:
    """An open model. `arrays` holds, by slot, vectors whole and matrices as far as they were read (rows, in)."""

    label: str
    given: str
    anatomy: Anatomy
    arrays: Mapping[Slot, Floats]
    groups: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.anatomy.checkpoint.id

    def layers(self, role: Role) -> tuple[str, ...]:
        """The layers of this role that were read, in order."""
        return tuple(slot.layer_name for slot in self.arrays if slot.role is role)

    def array(self, role: Role, layer: str) -> Floats | None:
        return self.arrays.get(slot_of(role, layer))

    def shape(self, role: Role, layer: str) -> tuple[int, ...]:
        """Of the whole tensor, however much of it was read."""
        return self.anatomy.shape(slot_of(role, layer))


@dataclass(frozen=True, eq=False)
class Collected:
    """Models in the order given. `roles`: what was asked for and at least one model has.

    `layers` names the layers where models are set beside each other; `all_layers` says that they are simply all, and
    `narrowed` that the user named some.
    """

    models: tuple[Model, ...]
    roles: tuple[Role, ...]
    layers: tuple[str, ...]
    all_layers: bool
    known: tuple[KnownPair, ...]
    mixed: Mapping[str, str]  # layer by label
    seed: int
    progress: Progress = no_progress
    left_out: list[str] = field(default_factory=list)
    narrowed: bool = False

    def pairs(self) -> Iterator[tuple[Model, Model]]:
        """Every two models once, in the order given."""
        return combinations(self.models, 2)

    def relation(self, a: Model, b: Model) -> str | None:
        """What is known of two models without measuring: derived, independent, or None."""
        found = (pair.relation for pair in self.known if {pair.a, pair.b} == {a.label, b.label})
        return next(found, None)

    def facing(self, a: Model, b: Model) -> Facing:
        """Layers beside each other of which at least one was chosen: the order of the two models is no matter."""
        pairs = facing(a.anatomy.layers, b.anatomy.layers)
        return pairs if self.all_layers else tuple(pair for pair in pairs if {*pair} & {*self.layers})

    def leave_out(self, sentence: str) -> None:
        """Say once what was asked for and could not be had."""
        if sentence not in self.left_out:
            self.left_out.append(sentence)

    def rng(self, purpose: str) -> np.random.Generator:
        """One seed, split by purpose: a new table never moves the numbers of an old one."""
        return np.random.default_rng([self.seed, crc32(purpose.encode())])


def slot_of(role: Role, layer: str) -> Slot:
    stack, _, number = layer.rpartition(".")
    return Slot(role, layer=int(number), stack=stack) if number.isdigit() else Slot(role, stack=layer)


@contextmanager
def collected(
    models: Sequence[str], options: SurveyOptions = SurveyOptions(), progress: Progress = no_progress
) -> Iterator[Collected]:
    """The models, open until the block ends."""
    if not models:
        raise UsageError("a survey needs at least one model")
    _roles(options.roles)  # a misspelt role is told before anything is opened
    checkpoints = _opened(models, options.reading, progress)
    try:
        names = named(models, [checkpoint.id for checkpoint in checkpoints])
        yield collect([identify(checkpoint) for checkpoint in checkpoints], names, options, progress)
    finally:
        for checkpoint in checkpoints:
            checkpoint.source.close()


def collect(
    anatomies: Sequence[Anatomy], names: Names, options: SurveyOptions, progress: Progress = no_progress
) -> Collected:
    """Read, of models that are open already, everything that tables of vectors and matrices of metrics need."""
    left_out: list[str] = []
    roles = _present(_roles(options.roles), anatomies, left_out)
    layers = _layers(options.layers, anatomies)
    mixed = mixed_layers(names, options.mixed)
    groups = group_members(names, options.groups)
    known = known_pairs(names, options.known)
    share = _share(roles, layers, anatomies)
    models = []
    for number, (label, given, anatomy) in enumerate(zip(names.labels, names.given, anatomies, strict=True)):
        progress("reading models", number, len(anatomies))
        chosen = (*layers, *_own_layer(mixed.get(label), anatomy))
        arrays = _arrays(anatomy, roles, chosen, share, options.seed, left_out)
        models.append(Model(label, given, anatomy, arrays, tuple(name for name, inside in groups if label in inside)))
    found = Collected(
        models=tuple(models),
        roles=roles,
        layers=layers,
        all_layers="all" in options.layers,
        narrowed=bool(options.layers) and "all" not in options.layers,
        known=known,
        mixed=mixed,
        seed=options.seed,
        progress=progress,
        left_out=left_out,
    )
    if found.narrowed:
        _say_alone(found)
    return found


def _say_alone(found: Collected) -> None:
    """Layers that were asked for and that stand beside nothing."""
    for layer in found.layers if len(found.models) > 1 else ():
        having = [model.label for model in found.models if layer in model.anatomy.layers]
        if len(having) == 1:
            found.leave_out(f"layer {layer}: {having[0]} alone has it, so models are not set beside each other there")
    for a, b in found.pairs():
        if not found.facing(a, b):
            found.leave_out(f"{a.label} and {b.label}: no chosen layer of one faces a layer of the other")


def _opened(models: Sequence[str], reading: ReadOptions, progress: Progress) -> list[Checkpoint]:
    """Side by side, in the order given; if one cannot be opened the others are closed again."""
    with ThreadPoolExecutor(OPENED_TOGETHER) as pool:
        futures = [pool.submit(open_model, model, reading, progress) for model in models]
    if any(future.exception() for future in futures):
        for future in futures:
            if not future.exception():
                future.result().source.close()
    return [future.result() for future in futures]


def _roles(texts: Sequence[str]) -> tuple[Role, ...]:
    unknown = [text for text in texts if text not in {role.value for role in Role}]
    if unknown:
        hint = "such as input_norm, post_norm, q, k, v, o, gate, up, down, router, embedding"
        raise UsageError(f"there is no role {', '.join(unknown)}", where="--roles", hint=hint)
    return tuple(dict.fromkeys(Role(text) for text in texts))


def _present(asked: tuple[Role, ...], anatomies: Sequence[Anatomy], left_out: list[str]) -> tuple[Role, ...]:
    """Roles that at least one model has."""
    found = {role for anatomy in anatomies for role in anatomy.roles()}
    left_out += [f"no model has {role}" for role in asked if role not in found]
    present = tuple(role for role in asked or USUAL if role in found)
    if not present:
        wanted = ", ".join(asked or USUAL)
        raise NothingComparable(f"no model has any of {wanted}", hint="name others with --roles")
    return present


def _own_layer(layer: str | None, anatomy: Anatomy) -> tuple[str, ...]:
    if layer is None:
        return ()
    if layer not in anatomy.layers:
        raise UsageError(f"there is no layer {layer} in {anatomy.checkpoint.id}", where="--mixed")
    return (layer,)


def _layers(asked: tuple[str, ...], anatomies: Sequence[Anatomy]) -> tuple[str, ...]:
    """The names where models are set beside each other: as asked, else a quarter, half and three quarters deep."""
    every = tuple(dict.fromkeys(name for anatomy in anatomies for name in anatomy.layers))
    if "all" in asked:
        return every
    missing = [name for name in asked if name not in every]
    if missing:
        hint = f"their layers run from {every[0]} to {every[-1]}" if every else "none has layers that were recognised"
        raise UsageError(f"no model has layer {', '.join(missing)}", where="--layers", hint=hint)
    common = [name for name in every if all(name in anatomy.layers for anatomy in anatomies)]
    shown = common or every
    return asked or tuple(dict.fromkeys(shown[(len(shown) - 1) * part // 4] for part in (1, 2, 3) if shown))


def _share(roles: Sequence[Role], layers: Sequence[str], anatomies: Sequence[Anatomy]) -> int:
    """How many values of one matrix are read, so that all of them together stay small."""
    count = sum(
        _is_matrix(anatomy, slot, layers) for anatomy in anatomies for role in roles for slot in anatomy.of(role)
    )
    return min(MOST_VALUES, MOST_TOGETHER // max(1, count))


def _is_matrix(anatomy: Anatomy, slot: Slot, layers: Sequence[str]) -> bool:
    """Experts are no part of this: their numbers mean nothing between two models."""
    inside = slot.layer_name in layers and slot.expert is None and slot.role not in BY_TOKEN
    return inside and len(anatomy.shape(slot)) == 2


def _arrays(
    anatomy: Anatomy, roles: Sequence[Role], layers: Sequence[str], share: int, seed: int, left_out: list[str]
) -> dict[Slot, Floats]:
    """Vectors of every layer, matrices of the chosen ones, in one batch."""
    slots = [slot for role in roles for slot in anatomy.of(role)]
    vectors: list[tuple[Slot, slice | None]] = [(slot, None) for slot in slots if len(anatomy.shape(slot)) == 1]
    matrices = [(slot, _window(anatomy, slot, share, seed)) for slot in slots if _is_matrix(anatomy, slot, layers)]
    if any(slot.expert is not None for slot in slots):
        left_out.append(
            f"{anatomy.checkpoint.id}: experts are not set beside each other here, their numbers mean nothing"
        )
    try:
        return _read(anatomy, vectors + matrices)
    except PackedTensor as reason:
        left_out.append(f"matrices are left out: {reason}")
        return _read(anatomy, vectors)


def _read(anatomy: Anatomy, wanted: Sequence[tuple[Slot, slice | None]]) -> dict[Slot, Floats]:
    arrays = anatomy.read_many(wanted)
    return {slot: array for (slot, _), array in zip(wanted, arrays, strict=True)}


def _window(anatomy: Anatomy, slot: Slot, share: int, seed: int) -> slice | None:
    """The same rows of every layer, and of every model whose matrix has this shape."""
    rows, width = anatomy.shape(slot)
    some = max(1, min(rows, share // max(1, width)))
    start = offset(seed, slot.role, rows, some)
    return None if some == rows else slice(start, start + some)
