"""Which files hold the weights, whether two models are the same files, and the sha256 of local ones.

Hashing reads a file whole, so each is hashed once: a hash that an interrupted comparison had finished is in its
journal, under the path, size, time of change and inode of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from modelkin.architectures import Anatomy
from modelkin.errors import NotFound
from modelkin.journal import Journal
from modelkin.questions import Pair
from modelkin.questions.identity import same_files, worth_hashing
from modelkin.records import Answer, Extent, FileFact
from modelkin.sources.local import LocalSource
from modelkin.sources.protocol import NOTE, Progress

PROBES, PROBE = 64, 4096  # blocks of so many bytes, by which strangers of one size are told

Stamp = tuple[str, int, int, int, int]


def weights(anatomy: Anatomy) -> tuple[FileFact, ...]:
    """The files that hold tensors, by name."""
    files = anatomy.checkpoint.source.files()
    return tuple(files[name] for name in sorted({ref.file for ref in anatomy.checkpoint.tensors.values()}))


def identity(pair: Pair, alike: bool | None, journal: Journal, progress: Progress) -> Answer:
    """Are the files of weights the same? `alike`: no row that was read differs; None where none could be read by its
    role. Hashes what the budget allows to.

    At `full` every file is read anyway, so that all are hashed; at `standard` only what may well be the same.
    """
    one_place = is_one_place(pair)
    if not one_place and pair.budget == "full":
        hash_local(pair, [[*anatomy.checkpoint.source.files()] for anatomy in (pair.a, pair.b)], journal, progress)
    elif not one_place and pair.budget == "standard" and _may_be_same(pair, alike):
        names = [[fact.name for fact in weights(anatomy)] for anatomy in (pair.a, pair.b)]
        hash_local(pair, names, journal, progress)
    return same_files(weights(pair.a), weights(pair.b), alike, one_place=one_place)


def _may_be_same(pair: Pair, alike: bool | None) -> bool:
    """Where no row was read, a few blocks of the files tell strangers, for 256 kB a model."""
    a, b = weights(pair.a), weights(pair.b)
    if not worth_hashing(a, b, alike is not False) or all(fact.sha256 for fact in (*a, *b)):
        return False  # or nothing is left to be hashed
    return alike is True or _blocks(pair.a, a) == _blocks(pair.b, b)


def _blocks(anatomy: Anatomy, files: Iterable[FileFact]) -> list[bytes]:
    """Blocks at even distances, of all files in the order of their sizes; two files of one size may have changed
    places, and are then taken for different, which costs an answer and never makes a false one."""
    ordered = sorted(files, key=lambda fact: fact.size)
    total = sum(fact.size for fact in ordered)
    extents, before = [], 0
    for fact in ordered:
        places = [total * i // PROBES - before for i in range(PROBES)]
        wanted = [place for place in places if 0 <= place < fact.size]
        extents += [Extent(fact.name, place, min(place + PROBE, fact.size)) for place in wanted]
        before += fact.size
    return [bytes(view) for view in anatomy.checkpoint.source.read(extents, "tensor")]


def is_one_place(pair: Pair) -> bool:
    """The same commit of one repository, or paths that lead to the same files of weights."""
    a, b = pair.a.checkpoint, pair.b.checkpoint
    if a.revision is not None and b.revision is not None:
        return (a.id, a.revision) == (b.id, b.revision)
    mine, theirs = _inodes(pair.a), _inodes(pair.b)
    return mine is not None and mine == theirs


def _inodes(anatomy: Anatomy) -> list[tuple[int, int]] | None:
    """Device and inode of every file of weights: what os.path.samefile compares."""
    source = anatomy.checkpoint.source
    if not isinstance(source, LocalSource):
        return None
    stamps = [_stamp(source, fact.name) for fact in weights(anatomy)]
    return sorted((stamp[3], stamp[4]) for stamp in stamps)


def hash_local(pair: Pair, names: Iterable[Iterable[str]], journal: Journal, progress: Progress) -> None:
    """sha256 of these files of a and of b, as far as they are local and have none yet."""
    chosen = [
        (source, name)
        for source, some in zip((pair.a.checkpoint.source, pair.b.checkpoint.source), names, strict=True)
        for name in some
        if isinstance(source, LocalSource) and source.files()[name].sha256 is None
    ]
    total, done = sum(source.files()[name].size for source, name in chosen), 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        progress("hashing", done, total)

    for source, name in chosen:
        with suppress(NotFound):  # a file that may not be read keeps no hash; whoever needs it will hear why
            entry = f"sha256 of {_stamp(source, name)}"
            known = journal.recall(entry, str)
            if known is None:
                known = source.hash_file(name, count)
                journal.keep(entry, known)
            else:
                count(source.files()[name].size)
            source.know_hash(name, known)
    for note in journal.take_notes():
        progress(f"{NOTE}{note}", 0, 0)


def known_again(anatomy: Anatomy) -> object | None:
    """What a journal knows a model by; None where there is nothing that would show a change."""
    source = anatomy.checkpoint.source
    if source.revision is not None:
        return [source.id, source.revision, [*source.files().values()]]
    if not isinstance(source, LocalSource):
        return None
    try:
        return [source.id, [_stamp(source, name) for name in source.files()]]
    except NotFound:
        return None


def _stamp(source: LocalSource, name: str) -> Stamp:
    place = source.place(name)
    try:
        status = os.stat(place)
    except OSError as error:
        raise NotFound(f"{name} may not be read: {error.strerror}", where=source.id) from error
    return os.path.realpath(place), status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino
