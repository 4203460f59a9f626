"""Names in sentences are short, and never the same for two models."""

from __future__ import annotations

from modelkin.records.naming import short_names


def test_a_path_is_shown_by_its_last_part_and_a_name_on_a_hub_as_it_is() -> None:
    assert short_names(["/data/models/birch", "owner/name", None]) == {
        "/data/models/birch": "birch",
        "owner/name": "owner/name",
    }


def test_names_that_collide_keep_as_much_as_tells_them_apart() -> None:
    found = short_names(["/x/one/model", "/x/two/model", "/x/other"])
    assert list(found.values()) == ["one/model", "two/model", "other"]


def test_the_same_name_twice_is_one() -> None:
    assert short_names(["/x/model", "/x/model"]) == {"/x/model": "model"}
