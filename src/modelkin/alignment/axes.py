"""The hidden axes of one model written as those of another: what each role does when the stream is turned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkin.alignment.folding import slot_of
from modelkin.alignment.kinds import Hidden
from modelkin.alignment.matching import Rotation
from modelkin.architectures import Anatomy
from modelkin.records import Role, Slot

Floats = NDArray[np.float32]
# What multiplies the stream by a norm before it reads it; parallel blocks read behind the first norm.
READERS: dict[Role, tuple[Role, ...]] = {
    **dict.fromkeys((Role.Q, Role.K, Role.V), (Role.INPUT_NORM,)),
    **dict.fromkeys(
        (Role.GATE, Role.UP, Role.SHARED_GATE, Role.SHARED_UP, Role.ROUTER, Role.SHARED_ROUTER),
        (Role.POST_NORM, Role.INPUT_NORM),
    ),
    Role.HEAD: (Role.FINAL_NORM,),
}
WRITERS = frozenset({Role.O, Role.DOWN, Role.SHARED_DOWN, Role.O_BIAS, Role.DOWN_BIAS})  # rows are hidden axes
WRITING_COLUMNS = frozenset({Role.EMBEDDING, Role.POSITION, Role.TOKEN_TYPE})
GAINS = frozenset(
    {Role.INPUT_NORM, Role.POST_NORM, Role.FINAL_NORM, Role.ATTN_OUT_NORM, Role.MLP_OUT_NORM, Role.EMBEDDING_NORM}
)
NORM_BIASES = frozenset(
    {
        Role.INPUT_NORM_BIAS,
        Role.POST_NORM_BIAS,
        Role.FINAL_NORM_BIAS,
        Role.ATTN_OUT_NORM_BIAS,
        Role.MLP_OUT_NORM_BIAS,
        Role.EMBEDDING_NORM_BIAS,
    }
)
# Roles that do not touch the stream.
INNER = frozenset(
    {
        *(Role.Q_BIAS, Role.K_BIAS, Role.V_BIAS, Role.Q_NORM, Role.K_NORM, Role.Q_NORM_BIAS, Role.K_NORM_BIAS),
        *(Role.GATE_BIAS, Role.UP_BIAS, Role.ROUTER_BIAS, Role.HEAD_BIAS, Role.RELATIVE_BIAS),
    }
)
STREAM_NORMS = (Role.INPUT_NORM, Role.POST_NORM)
ALIKE = 0.5  # correlation: continued pretraining leaves 0.9, gains of strangers or drawn anew have none
TINY = 1e-6
READERS_READ = 16  # rows of every layer
AS_BEFORE = 0.05  # of their size; gains that were moved leave as much as they differ by


@dataclass(frozen=True, eq=False)
class Axes:
    """`rotation` (d of a, d of b) and its kind. Where only numbers and signs of axes changed, gains keep their places.

    Else, or where they are nothing like those of a (`gains_kept`), they cannot be told from what reads behind them, and
    readers of b are written as if their norms had the gains of a.

    `own`: b stays in its own axes, gains multiplied into its readers, as `OnAxesOf` puts a there: those of a narrower b
    are all that both have.
    """

    a: Anatomy
    b: Anatomy
    hidden: Hidden
    rotation: Rotation
    gains_kept: bool = True
    own: bool = False

    @property
    def keeps_gains(self) -> bool:
        return self.gains_kept and self.hidden in ("identity", "permutation", "signed permutation")

    def unwritable(self, slot: Slot) -> str | None:
        """Why a slot of b has no place in the coordinates of a."""
        if slot.role in GAINS | NORM_BIASES and not self.keeps_gains:
            return "the stream was turned or its norms drawn anew: this was folded into what reads behind it"
        known = (
            self.hidden == "identity"
            or slot.role in READERS
            or slot.role in WRITERS | WRITING_COLUMNS | GAINS | NORM_BIASES | INNER
        )
        return None if known else "what this role does when the stream is turned is not known here"

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """The slot's shape with the width of a, or its own."""
        return of_width(slot, self.b.shape(slot), self.rotation.shape[1 if self.own else 0])

    def read(self, slot: Slot, rows: Floats, layer_of_a: str | None) -> Floats:
        """Rows of a slot of b, as stored, in the coordinates of a. What is not finite stays so, for whoever asks."""
        stays = self.keeps_gains or slot.role not in READERS
        if slot.role in INNER or (self.hidden == "identity" and stays):
            return rows
        with np.errstate(invalid="ignore", over="ignore"):
            return self._turned(slot, rows, layer_of_a)

    def _turned(self, slot: Slot, rows: Floats, layer_of_a: str | None) -> Floats:
        if self.own:
            shown = self.rotation.T @ self.rotation  # all of them, but for a mean that layer norms hide
            return onto(shown, slot, rows, gain_before(self.b, slot, slot.layer_name or None))
        if slot.role in READERS:
            return self._reader(slot, rows, layer_of_a)
        if slot.role in WRITING_COLUMNS:
            return rows @ self.rotation.T
        if slot.role in GAINS:
            return np.asarray(np.abs(self.rotation) @ rows)
        return np.asarray(self.rotation @ rows)

    def _reader(self, slot: Slot, rows: Floats, layer_of_a: str | None) -> Floats:
        if self.keeps_gains:
            return np.asarray(rows @ self.rotation.T)
        folded = rows * gain_before(self.b, slot, slot.layer_name or None)
        turned = folded @ self.rotation.T
        if slot.layer is not None and layer_of_a is None:
            return np.asarray(turned, dtype=np.float32)  # a new layer has no gains of a to be written with
        gain = gain_before(self.a, slot, layer_of_a)
        return np.asarray(turned / np.where(np.abs(gain) > TINY, gain, 1), dtype=np.float32)


def of_width(slot: Slot, shape: tuple[int, ...], wide: int) -> tuple[int, ...]:
    """The shape of a slot on so many axes."""
    if slot.role in READERS or slot.role in WRITING_COLUMNS:
        return (shape[0], wide)
    return (wide, *shape[1:]) if slot.role in WRITERS | GAINS | NORM_BIASES else shape


def onto(rotation: Rotation, slot: Slot, rows: Floats, gain: Floats | np.float32) -> Floats:
    """Values of a slot on other axes, gains multiplied into what reads behind them; of what has no axes, as it is."""
    if slot.role in READERS:
        return np.asarray((rows * gain) @ rotation, dtype=np.float32)
    if slot.role in WRITING_COLUMNS:
        return np.asarray(rows @ rotation)
    return np.asarray(rotation.T @ rows) if slot.role in WRITERS else rows


def gains_agree(a: Anatomy, b: Anatomy, rotation: Rotation, continued: Mapping[str, str]) -> bool:
    """Whether the norms of b, axes set beside those of a, have gains like theirs; yes, where they cannot differ.

    For axes that were renumbered: who did that may have drawn gains anew as well, and made up for it in the readers.
    """
    pairs = [(slot_of(role, x), slot_of(role, y)) for y, x in continued.items() for role in STREAM_NORMS]
    known = [(left, right) for left, right in pairs if left in a.slots and right in b.slots]
    read = [(a.read(left), b.read(right)) for left, right in known]
    gains = [(x, np.abs(rotation) @ y) for x, y in read if np.isfinite(x).all() and np.isfinite(y).all()]
    centred = [(x - x.mean(), y - y.mean()) for x, y in gains if x.shape == y.shape and np.ptp(x) > 0 and np.ptp(y) > 0]
    cosines = [float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y))) for x, y in centred]
    return not cosines or float(np.median(cosines)) >= ALIKE


def readers_agree(a: Anatomy, b: Anatomy, continued: Mapping[str, str]) -> bool:
    """Whether the first neurons of facing layers read the same, number for number; no, where none can be compared."""
    pairs = [(slot_of(Role.UP, x), slot_of(Role.UP, y)) for y, x in continued.items()]
    known = [(x, y) for x, y in pairs if x in a.slots and y in b.slots and a.shape(x) == b.shape(y)]
    read = [(a.read(x, slice(0, READERS_READ)), b.read(y, slice(0, READERS_READ))) for x, y in known]
    off = [float(np.linalg.norm(y - x)) / size for x, y in read if (size := float(np.linalg.norm(x)))]
    return bool(off) and float(np.median(off)) <= AS_BEFORE


def gain_before(anatomy: Anatomy, slot: Slot, layer: str | None) -> Floats | np.float32:
    for role in READERS.get(slot.role, ()):
        norm = Slot(role, stack=slot.stack) if slot.layer is None or layer is None else slot_of(role, layer)
        if norm in anatomy.slots and len(anatomy.shape(norm)) == 1:
            return anatomy.read(norm)
    return np.float32(1)
