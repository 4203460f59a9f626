from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from modelkin.errors import UsageError
from modelkin.records import Extent
from modelkin.sources.cache import CacheError, RangeCache, clear_cache, open_cache

BODY = os.urandom(4096)


def test_a_kept_range_answers_every_range_inside_it(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    cache.put("hub/a", "c1", [(Extent("f", 100, 4196), BODY)])
    inside, across = Extent("f", 150, 160), Extent("f", 90, 110)
    assert cache.get("hub/a", "c1", [inside, across]) == {inside: BODY[50:60]}
    cache.close()


@pytest.mark.parametrize("key", [("hub/b", "c1", "f"), ("hub/a", "c2", "f"), ("hub/a", "c1", "g")])
def test_another_repository_commit_or_file_is_another_key(tmp_path: Path, key: tuple[str, str, str]) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    cache.put("hub/a", "c1", [(Extent("f", 0, 4096), BODY)])
    repository, commit, file = key
    assert cache.get(repository, commit, [Extent(file, 0, 10)]) == {}
    cache.close()


def test_what_was_used_longest_ago_goes_first_when_the_cap_is_reached(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite", cap=10_000)
    for i in range(4):
        cache.put("hub/a", "c1", [(Extent("f", i * 4096, (i + 1) * 4096), BODY)])
    held = cache.get("hub/a", "c1", [Extent("f", i * 4096, (i + 1) * 4096) for i in range(4)])
    assert sum(map(len, held.values())) <= 10_000
    assert Extent("f", 3 * 4096, 4 * 4096) in held
    assert Extent("f", 0, 4096) not in held
    cache.close()


def test_clearing_one_model_leaves_the_others(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    for name in ("https://hub/acme/a", "https://hub/acme/b"):
        cache.put(name, "c1", [(Extent("f", 0, 4096), BODY)])
        cache.remember_ref(name, "main", "c1")
    assert cache.clear("acme/a") == 4096
    assert [model.repository for model in cache.models()] == ["https://hub/acme/b"]
    assert cache.ref("https://hub/acme/a", "main") is None
    assert cache.ref("https://hub/acme/b", "main") == "c1"
    cache.close()


def test_a_file_that_is_no_cache_says_so_and_can_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIN_CACHE", str(tmp_path))
    tmp_path.joinpath("ranges.sqlite").write_bytes(b"this is not a database" * 1000)
    with pytest.raises(CacheError, match="cannot be used") as caught:
        open_cache()
    assert "cache clear" in caught.value.hint
    assert clear_cache() > 0
    open_cache().close()


def test_a_cap_that_is_no_number_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODELKIN_CACHE", str(tmp_path))
    monkeypatch.setenv("MODELKIN_CACHE_GB", "plenty")
    with pytest.raises(UsageError, match="plenty"):
        open_cache()


def _write_and_read(path: Path, worker: int, rounds: int) -> None:
    cache = RangeCache(path, cap=200_000)
    for i in range(rounds):
        extent = Extent(f"file{worker}", i * 4096, (i + 1) * 4096)
        cache.put("hub/a", "c1", [(extent, bytes([worker]) * 4096)])
        for other in range(2):
            key = Extent(f"file{other}", i * 4096, (i + 1) * 4096)
            for body in cache.get("hub/a", "c1", [key]).values():
                assert body == bytes([other]) * 4096
    cache.close()


def test_two_processes_may_use_one_cache_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_and_read, args=(tmp_path / "c.sqlite", w, 100)) for w in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0


def test_a_row_that_another_process_evicts_meanwhile_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = RangeCache(tmp_path / "c.sqlite"), RangeCache(tmp_path / "c.sqlite")
    extent = Extent("file", 0, 4)
    mine.put("hub/a", "c1", [(extent, b"body")])
    is_sound = mine._is_sound

    def after_eviction(rowid: int, crc: int) -> bool:
        other.clear()
        other.put("hub/a", "c1", [(Extent("another", 0, 4), b"else")])  # takes the number of the row that is gone
        return is_sound(rowid, crc)

    monkeypatch.setattr(mine, "_is_sound", after_eviction)
    assert mine.get("hub/a", "c1", [extent]) == {}
    assert other.get("hub/a", "c1", [Extent("another", 0, 4)])
    mine.close()
    other.close()


def _open_and_close(path: Path, rounds: int) -> None:
    for i in range(rounds):
        RangeCache(path.with_name(f"c{i}.sqlite")).close()


def test_several_processes_may_open_a_new_cache_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_open_and_close, args=(tmp_path / "c.sqlite", 60)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0


def test_a_cache_of_another_version_is_refused(tmp_path: Path) -> None:
    import sqlite3

    db = sqlite3.connect(tmp_path / "c.sqlite")
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(CacheError, match="schema 99"):
        RangeCache(tmp_path / "c.sqlite")


def test_a_name_is_cleared_to_the_letter(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    cache.put("https://hub/demo/m", "c1", [(Extent("f", 0, 4096), BODY)])
    for near in ("demo_m", "demo/M", "%", "emo/m", "hub/demo/x"):
        assert cache.clear(near) == 0
    assert cache.clear("demo/m") == 4096
    cache.close()


def test_a_body_of_another_length_than_its_range_is_not_kept(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    cache.put("hub/a", "c1", [(Extent("f", 0, 100), BODY)])
    assert cache.models() == []
    cache.close()


def test_a_body_that_has_changed_is_forgotten(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    cache.put("hub/a", "c1", [(Extent("f", 0, 4096), BODY)])
    cache._db.execute("UPDATE extents SET body = ?", (bytes(4096),))
    assert cache.get("hub/a", "c1", [Extent("f", 0, 10)]) == {}
    cache.put("hub/a", "c1", [(Extent("f", 0, 4096), BODY)])
    assert cache.get("hub/a", "c1", [Extent("f", 0, 10)]) == {Extent("f", 0, 10): BODY[:10]}
    cache.close()


def test_a_short_name_is_not_everybodys(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c.sqlite")
    cache.put("https://hub/owner/gpt2", "c1", [(Extent("f", 0, 4096), BODY)])
    assert cache.clear("gpt2") == 0
    cache.put("https://hub/gpt2", "c1", [(Extent("f", 0, 4096), BODY)])
    assert cache.clear("gpt2") == 4096
    cache.close()
