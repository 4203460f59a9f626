from __future__ import annotations

import os
from pathlib import Path

import pytest

from modelkin.errors import HeaderLies, NotFound
from modelkin.records import Extent
from modelkin.sources.local import LocalSource

BODY = os.urandom(10_000)


def test_reading_a_row_of_a_huge_file_touches_only_its_pages(tmp_path: Path) -> None:
    sparse = tmp_path / "big.safetensors"
    with open(sparse, "wb") as handle:
        handle.truncate(200 << 30)
        handle.seek(150 << 30)
        handle.write(b"here")
    source = LocalSource(sparse)
    start = 150 << 30
    assert source.read([Extent("big.safetensors", start, start + 4)], "tensor")[0] == b"here"
    assert source.ledger.bytes() == 4
    assert sparse.stat().st_blocks * 512 < 1 << 20
    source.close()


def test_a_file_that_shrinks_while_it_is_read_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(BODY)
    source = LocalSource(path)
    source.read([Extent("m.bin", 0, 10)])
    os.truncate(path, 100)
    with pytest.raises(HeaderLies, match="shorter"):
        source.read([Extent("m.bin", 5000, 5010)])
    source.close()


def test_views_are_read_only_and_outlive_the_source(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(BODY)
    source = LocalSource(tmp_path)
    view = source.read([Extent("m.bin", 10, 20)])[0]
    source.close()
    assert view == BODY[10:20]
    assert view.readonly


def test_a_path_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such") as caught:
        LocalSource(tmp_path / "nothing")
    assert caught.value.exit_code == 3


def test_a_device_is_no_model() -> None:
    with pytest.raises(NotFound, match="neither"):
        LocalSource("/dev/null")


def test_hashes_are_computed_on_request(tmp_path: Path) -> None:
    import hashlib

    (tmp_path / "m.bin").write_bytes(BODY)
    source = LocalSource(tmp_path)
    assert source.files()["m.bin"].sha256 is None
    source.hash_files()
    assert source.files()["m.bin"].sha256 == hashlib.sha256(BODY).hexdigest()
    source.close()


def test_links_that_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    source = LocalSource(tmp_path)
    assert list(source.files()) == ["config.json"]
    assert [note.partition(" ")[0] for note in source.notes] == ["gone", "loop"]


def test_a_file_that_may_not_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(BODY)
    source = LocalSource(tmp_path)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(NotFound, match=r"m\.bin may not be read"):
        source.read([Extent("m.bin", 0, 10)])
    source.hash_files()
    assert source.files()["m.bin"].sha256 is None
