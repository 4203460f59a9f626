"""A model that is read at length: digests of all that was read are kept, for whoever reads it again.

Of a small model the numbers too, so that nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from modelkin.architectures import Anatomy
from modelkin.architectures.anatomy import Wanted
from modelkin.architectures.views import Columns, Floats, Rows, chosen
from modelkin.records import Cut, ReadDigest, Slot
from modelkin.sampling.budget import STANDARD_BYTES, whole
from modelkin.sampling.readings import digests


@dataclass(frozen=True, eq=False)
class Noted(Anatomy):
    """The same model. `reads` grows as it is read, each range once."""

    reads: dict[Cut, ReadDigest] = field(default_factory=dict, kw_only=True)
    _kept: dict[Cut, Floats] | None = field(default=None, kw_only=True)

    def read_many(self, wanted: Sequence[Wanted], kind: str = "tensor") -> list[Floats]:
        cuts = [self._cut(*part) for part in wanted]
        kept = {} if self._kept is None else self._kept
        missing = dict.fromkeys(cut for cut in cuts if cut not in kept)
        parts = dict(zip(cuts, wanted, strict=True))
        arrays = dict(zip(missing, super().read_many([parts[cut] for cut in missing], kind), strict=True))
        self.reads.update((digest.cut, digest) for digest in digests(arrays) if digest.cut not in self.reads)
        if self._kept is not None:
            self._kept.update((cut, array.copy()) for cut, array in arrays.items())
        return [arrays[cut] if cut in arrays else kept[cut].copy() for cut in cuts]

    def _cut(self, slot: Slot, rows: Rows, columns: Columns | None = None) -> Cut:
        if rows is None:
            return Cut(slot, columns=columns)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.shape(slot)[0])
            return Cut(slot, start, stop, columns=columns)
        return Cut(slot, rows=tuple(chosen(rows, self.shape(slot)[0]).tolist()), columns=columns)


def noted(anatomy: Anatomy) -> Noted:
    same = {each.name: getattr(anatomy, each.name) for each in fields(Anatomy)}
    return Noted(**same, _kept={} if whole(anatomy) <= STANDARD_BYTES else None)
