"""A file is whole or not there: a full disk leaves an earlier result as it was, and no half of another."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from known_pairs import compared

from modelkin.cli import main
from modelkin.report.files import to_json
from modelkin.report.html import drawing
from modelkin.report.whole_files import replacing, write_whole


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes 1,000 bytes of anything, and then no more."""
    whole = Path.write_bytes

    def cut(path: Path, body: Any) -> int:
        if len(body) <= 1000:
            return whole(path, body)
        whole(path, body[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", cut)


@pytest.mark.usefixtures("full")
def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("earlier")
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path, {"a.txt": "short", "b.txt": "x" * 2000})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "earlier"}


def test_what_is_written_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("earlier")
    assert write_whole(tmp_path, {"a.txt": "가", "b.png": b"\0"}) == [tmp_path / "a.txt", tmp_path / "b.png"]
    assert (tmp_path / "a.txt").read_bytes() == "가".encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.png"]


def test_a_picture_that_fails_on_the_way_leaves_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("earlier")

    def draw() -> None:
        with replacing(tmp_path / "a.png") as path:
            path.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        draw()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.png": "earlier"}


@pytest.mark.usefixtures("full")
def test_the_command_says_so_and_keeps_the_earlier_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NEEDED", "a_module_that_nobody_has")
    file, out = tmp_path / "record.json", tmp_path / "out"
    file.write_text(to_json(compared("dune", "grove")), "utf-8")
    out.mkdir()
    (out / "report.html").write_text("earlier")
    done = CliRunner().invoke(main, ["report", str(file), "--out", str(out)])
    assert done.exit_code == 1
    assert "No space left on device" in done.stderr
    assert {path.name: path.read_text() for path in out.iterdir()} == {"report.html": "earlier"}


@pytest.mark.usefixtures("full")
def test_so_does_a_record_written_by_itself(tmp_path: Path) -> None:
    record, target = tmp_path / "record.json", tmp_path / "again.json"
    record.write_text(to_json(compared("dune", "grove")), "utf-8")
    target.write_text("earlier")
    assert CliRunner().invoke(main, ["report", str(record), "--json", str(target)]).exit_code == 1
    assert target.read_text() == "earlier"
