"""Are the weights the same bytes? Answered from the hashes that the file listing gives; nothing is read for it."""

from __future__ import annotations

from modelkin.architectures import Anatomy
from modelkin.questions.question import Pair
from modelkin.records import Answer, Assumption, Evidence, Null, Unanswered

QUESTION = "identity"


def identical_files(pair: Pair) -> Answer:
    """Equal sha256 of every file of weights. Byte identity has no p-value."""
    a, b = _hashes(pair.a), _hashes(pair.b)
    if a is None or b is None:
        return Unanswered(QUESTION, "sha256 of some file of weights is not known without reading it whole")
    shared = sum(min(a.count(digest), b.count(digest)) for digest in set(a))
    total = max(len(a), len(b))
    return Evidence(
        question=QUESTION,
        index_set="files",
        grade="A" if shared == total else None,
        statistic=float(shared),
        pvalue=None,
        log10_pvalue=None,
        null=Null("two files of weights that were not copied differ"),
        n=total,
        effect=shared / total,
        observed=f"{shared} of {total} files of weights are the same to the byte",
        strangers="none",
        assumptions=(Assumption("sha256 as the host states it, or as computed here", None),),
    )


def _hashes(anatomy: Anatomy) -> list[str] | None:
    """Of the files that hold tensors; None if one has none."""
    files = anatomy.checkpoint.source.files()
    used = sorted({ref.file for ref in anatomy.checkpoint.tensors.values()})
    found = [files[name].sha256 for name in used]
    return None if not found or None in found else [digest for digest in found if digest]
