"""config.json as it is found: what Python writes is read, and what cannot be read says why."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from safetensors.numpy import save

from modelkin.checkpoint import MAX_JSON, open_checkpoint
from modelkin.errors import HeaderLies, UnsupportedFormat
from modelkin.sources.memory import MemorySource

WEIGHTS = save({"x": np.ones((2, 3), np.float32)})


def config_of(body):
    return open_checkpoint(MemorySource({"model.safetensors": WEIGHTS, "config.json": body}, id="some/model")).config


def refused(body, error=HeaderLies):
    with pytest.raises(error) as caught:
        config_of(body)
    assert caught.value.where == "some/model"
    return caught.value


def test_infinity_and_nan_are_read_as_python_writes_them():
    config = config_of(json.dumps({"a": math.inf, "b": -math.inf, "c": [math.nan], "층": "한"}).encode())
    assert (config["a"], config["b"], config["층"]) == (math.inf, -math.inf, "한")
    assert math.isnan(config["c"][0])


def test_a_git_lfs_pointer_is_recognised():
    error = refused(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", UnsupportedFormat)
    assert error.message == "a Git LFS pointer lies where config.json should be"
    assert "git lfs pull" in error.hint


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b'{"\\udc00b": 1}', b'{"a": [{"b": "x\\ud83dx"}], "c": NaN}'])
def test_half_a_character_is_called_so(body):
    assert "a lone surrogate" in refused(body).message


def test_a_whole_character_in_two_escapes_is_read():
    assert config_of(b'{"a": "\\ud83d\\ude00", "b": NaN}')["a"] == "😀"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "config.json is empty"),
        (b" \n", "config.json is empty"),
        (b"{", "config.json is not JSON: "),
        (b'{"a": 1,}', "line 1 column"),
        (b'{"a": nan}', "config.json is not JSON: "),
        (b'{"a": "\xff"}', "config.json is not UTF-8: invalid start byte at byte 7"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nests too deeply"),
        (b'{"b": NaN, "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nests too deeply"),
        (b'{"b": NaN, "a": 1' + b"0" * 10_000 + b"}", "config.json is not JSON: "),
        (b"[NaN]", "config.json holds list, expected an object"),
        (b"NaN", "config.json holds float, expected an object"),
    ],
)
def test_what_is_no_config_says_why(body, found):
    message = refused(body).message
    assert found in message
    assert len(message) < 300


def test_a_config_too_large_is_not_read():
    assert f"at most {MAX_JSON} are read" in refused(b"{}" + b" " * MAX_JSON).message


def test_a_source_without_a_config_has_an_empty_one():
    assert open_checkpoint(MemorySource({"model.safetensors": WEIGHTS})).config == {}
