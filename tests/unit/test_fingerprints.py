"""Local files are hashed where they may be the same, in little memory; strangers without names are told before."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from modelkin.compare import CompareOptions, compare_pair, open_pair, plan
from modelkin.errors import NothingComparable
from modelkin.inspection import SMALL_FILE
from modelkin.questions.identity import rows_alike, same_files, worth_hashing
from modelkin.records import Comparison, Evidence, FileFact, Portrait, Unanswered
from modelkin.sampling.readings import Readings
from modelkin.sources import ReadOptions
from modelkin.sources.local import LocalSource
from modelkin.verify import verify, verify_fetched

WIDTH = 1024
ROWS = SMALL_FILE // (4 * WIDTH) // 4 + 64


def nameless(folder: Path, seed: int, changed: bool = False) -> str:
    """A model of names that say nothing, just too large to be hashed at once."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "odd"}))
    rng = np.random.default_rng(seed)
    tensors = {f"z{i}": rng.normal(size=(ROWS, WIDTH)).astype(np.float32) for i in range(4)}
    if changed:
        tensors["z3"][-1, -1] += 1
    save_file(tensors, folder / "model.safetensors")
    assert (folder / "model.safetensors").stat().st_size > SMALL_FILE
    return str(folder)


def compared(a: str, b: str, budget: Any) -> tuple[Comparison | None, int]:
    """The comparison, if there is one, and how many bytes were hashed of large files."""
    with open_pair(a, b, CompareOptions(budget, reading=ReadOptions(cache=False))) as pair:
        sources = [side.checkpoint.source for side in (pair.a, pair.b)]
        before = sum(source.ledger.bytes({"hash"}) for source in sources)
        try:
            found = compare_pair(pair, 0.0)
        except NothingComparable:
            found = None
        return found, sum(source.ledger.bytes({"hash"}) for source in sources) - before


def test_strangers_without_names_are_not_hashed_whole(tmp_path: Path) -> None:
    found, hashed = compared(nameless(tmp_path / "a", 0), nameless(tmp_path / "b", 1), "standard")
    assert (found, hashed) == (None, 0)


def test_a_copy_without_names_is_hashed_and_identical(tmp_path: Path) -> None:
    a, b = nameless(tmp_path / "a", 0), nameless(tmp_path / "b", 0)
    found, hashed = compared(a, b, "standard")
    assert found is not None
    assert [share.kind for share in found.verdict.kinds] == ["identical"]
    assert hashed == 2 * (tmp_path / "a" / "model.safetensors").stat().st_size
    assert verify(found) == verify_fetched(found) == ()
    line = next(line for line in plan(a, b, CompareOptions("standard")) if line.startswith("identity"))
    assert line == "identity: 64 blocks of the files, 262,144 + 262,144 bytes"


def test_one_number_that_no_block_shows_is_told_by_the_hash(tmp_path: Path) -> None:
    found, hashed = compared(nameless(tmp_path / "a", 0), nameless(tmp_path / "b", 0, changed=True), "standard")
    assert hashed > 0
    assert found is not None
    assert [share.kind for share in found.verdict.kinds] == ["component-reuse"]
    assert verify(found) == ()


def test_nothing_read_is_neither_alike_nor_different() -> None:
    none = Readings(portrait(), {})
    assert rows_alike(none, none) is None
    facts = [FileFact("model.safetensors", 10)]
    unread = same_files(facts, facts, None)
    assert isinstance(unread, Unanswered)
    assert "nothing could be set beside each other" in unread.unanswered
    assert "every row that was read is the same" not in unread.unanswered
    assert worth_hashing(facts, facts, True)
    assert isinstance(same_files(facts, facts, None, one_place=True), Evidence)


def portrait() -> Portrait:
    return Portrait(
        family="odd", layers=(), hidden=None, neurons=None, heads=None, kv_heads=None, head_dim=None, experts=None,
        norm="unknown", gain_offset=None, positions="unknown", tied=False, exchangeable_hidden=True, why="",
    )  # fmt: skip


# hashing


@pytest.mark.parametrize("size", [0, 1, 4096, (8 << 20) - 1, 8 << 20, (8 << 20) + 7])
def test_the_hash_is_that_of_the_bytes(tmp_path: Path, size: int) -> None:
    body = np.random.default_rng(size).bytes(size)
    (tmp_path / "weights.bin").write_bytes(body)
    source = LocalSource(tmp_path)
    heard: list[int] = []
    assert source.hash_file("weights.bin", heard.append) == sha256(body).hexdigest()
    assert sum(heard) == source.ledger.bytes({"hash"}) == size


def test_hashing_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """A file of holes: long to read through, and nothing on the disk."""
    with open(tmp_path / "large.bin", "wb") as file:
        file.truncate(1 << 29)
    program = (
        "import resource, sys\n"
        "from modelkin.sources.local import LocalSource\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "LocalSource(sys.argv[1]).hash_file('large.bin', lambda size: None)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit < 64 << 20
