"""JSON as it is found beside models: Python writes `NaN` and `Infinity` into it, which the standard does not have."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


class NotJson(ValueError):
    """Says of a file, whose name goes before it, what is wrong; the caller makes it an error of its own."""


def decoded(body: bytes | memoryview, type: type[T]) -> T:
    """A JSON text as `type`, or NotJson; the caller has bounded its size."""
    try:
        return _strictly_or_not(body, type)
    except msgspec.ValidationError as error:
        raise NotJson(f"is not laid out as expected: {error}") from error
    except RecursionError as error:
        raise NotJson("is not JSON that can be read: it nests too deeply") from error


def _strictly_or_not(body: bytes | memoryview, type: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(_as_python_reads(bytes(body)), type=type)


def _as_python_reads(body: bytes) -> Any:
    if not body.strip():
        raise NotJson("is empty")
    try:
        tree = json.loads(body.decode())
    except UnicodeDecodeError as error:
        raise NotJson(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise NotJson(f"is not JSON: {error}") from error
    half = _half_a_character(tree)
    if half is not None:
        raise NotJson(f"is not Unicode text: {half[:80]!a} has half a character in it (a lone surrogate)")
    return tree


def _half_a_character(tree: Any) -> str | None:
    """The first text found that no encoding can write out again: it would fail later, and far from here."""
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case str(text):
                if _SURROGATE.search(text):
                    return text
            case list() as members:
                waiting += members
            case dict() as members:
                waiting += [*members, *members.values()]
    return None
