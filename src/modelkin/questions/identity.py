"""Are the weights the same bytes? From the hashes of the files that hold them, wherever these come from.

Hashes come with the listing of a Hub, and are computed for local files where that costs little. Where one is missing,
two paths may still lead to the same files; and where sizes agree and no row that was read differs, hashing the whole
would tell. All of this stands in the record, so that the answer can be given again without the models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from modelkin.records import Answer, Assumption, Cut, Evidence, FileFact, Null, Unanswered
from modelkin.sampling.readings import Readings

QUESTION = "identity"
NULL = Null("two files of weights that were not copied differ")
SAME_PLACE = Assumption("both names lead to the same files, so that nothing had to be hashed", True)
HASHED = Assumption("sha256 as the host states it, or as computed here")

# What decides which bytes of a file are a row of a role.
HOW_READ = ("family", "layers", "hidden", "neurons", "heads", "kv_heads", "head_dim", "experts", "gain_offset")

Weights = Sequence[FileFact]


def same_files(a: Weights, b: Weights, rows_alike: bool | None, *, one_place: bool = False) -> Answer:
    """Equal sha256 of every file of weights. Byte identity has no p-value.

    `rows_alike`: no row that was read of both differs; None where none was. `one_place`: the files of a are those of b.
    """
    if not a or not b:
        return Unanswered(QUESTION, "one of the models has no file of weights")
    if all(fact.sha256 for fact in (*a, *b)):
        return _counted([fact.sha256 for fact in a], [fact.sha256 for fact in b])
    if one_place:
        return _evidence(len(a), len(a), "the same file, in one place", SAME_PLACE)
    return Unanswered(QUESTION, _not_hashed(a, b, rows_alike))


def worth_hashing(a: Weights, b: Weights, rows_alike: bool) -> bool:
    """Only what has the same sizes and shows no difference can be the same to the last byte."""
    return _sizes(a) == _sizes(b) and rows_alike


def rows_alike(a: Readings, b: Readings) -> bool | None:
    """Whether every row that was read of one is the other's to the bit; None where no row was read of either."""
    if not a.arrays and not b.arrays:
        return None
    return a.arrays.keys() == b.arrays.keys() and all(
        mine.shape == b.arrays[cut].shape and mine.tobytes() == b.arrays[cut].tobytes()
        for cut, mine in a.arrays.items()
    )


def contradicting_row(a: Readings, b: Readings) -> Cut | None:
    """A range that the same files, read the same way, cannot show in two ways; None where there is none.

    Two configs may read one file in two ways, and then nothing follows.
    """
    if any(getattr(a.portrait, fact) != getattr(b.portrait, fact) for fact in HOW_READ):
        return None
    shared = (cut for cut in a.arrays if cut in b.arrays)
    return next((cut for cut in shared if a.arrays[cut].tobytes() != b.arrays[cut].tobytes()), None)


def _not_hashed(a: Weights, b: Weights, alike: bool | None) -> str:
    if _sizes(a) != _sizes(b):
        return "the files of weights differ in number or size, and not all of them were hashed"
    if alike is None:
        return (
            "the files of weights are of equal size, but nothing could be set beside each other by what it is for, and "
            "not all of them were hashed whole"
        )
    if not alike:
        return "the files of weights are of equal size, but rows that were read differ, so they were not hashed whole"
    return (
        "the files of weights are of equal size and every row that was read is the same to the bit; whether the rest "
        "is too shows only when the files are hashed whole, which standard and full do with files on this machine"
    )


def _sizes(weights: Weights) -> list[int]:
    return sorted(fact.size for fact in weights)


def _counted(a: Sequence[str | None], b: Sequence[str | None]) -> Evidence:
    return _evidence((Counter(a) & Counter(b)).total(), max(len(a), len(b)), "the same to the byte", HASHED)


def _evidence(shared: int, total: int, how: str, assumption: Assumption) -> Evidence:
    number = f"{shared} of {total} file{'' if total == 1 else 's'} of weights {'is' if 1 in (shared, total) else 'are'}"
    return Evidence(
        question=QUESTION,
        index_set="files",
        grade="A" if shared == total else None,
        statistic=float(shared),
        pvalue=None,
        log10_pvalue=None,
        null=NULL,
        n=total,
        effect=shared / total,
        observed=f"{number} {how}",
        strangers="none",
        assumptions=(assumption,),
    )
