"""What `--dry-run` promises: at most so many bytes, also from a Hub, where near ranges come with what is between."""

from __future__ import annotations

import re
from typing import Any

import pytest

from modelkin.compare import CompareOptions, compare, plan
from modelkin.demo import bundled
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.sources import ReadOptions


def promised(line: str) -> list[int]:
    found = re.findall(r"([\d,]+)(?: bytes of the weights| of those)", line)
    return [int(number.replace(",", "")) for number in found]


@pytest.mark.parametrize("budget", ["quick", "standard", "full"])
@pytest.mark.parametrize("other", ["heath", "ember", "grove", "dune"])
def test_a_hub_sends_no_more_than_was_said(budget: Any, other: str) -> None:
    models = bundled()
    names = {"dune", other}
    with LoopbackHub({f"demo/{name}": Repository.from_folder(models[name]) for name in names}) as hub:
        options = CompareOptions(budget, reading=ReadOptions(endpoint=hub.endpoint, cache=False, token=False))
        lines = plan("demo/dune", f"demo/{other}", options)
        cost = compare("demo/dune", f"demo/{other}", options).cost
    read = [cost.tensor_bytes_a, cost.tensor_bytes_b]
    assert all(bytes_read <= most for bytes_read, most in zip(read, promised(lines[-1]), strict=True))
    assert "at most" in lines[-1]
    assert any(line.startswith("between near ranges, sent along by the Hub") for line in lines)
    if budget == "quick":
        assert read == promised(lines[-1])


def test_a_disk_sends_nothing_along() -> None:
    models = bundled()
    lines = plan(str(models["dune"]), str(models["heath"]), CompareOptions("quick"))
    assert not any("between near ranges" in line for line in lines)
    assert "at most" not in lines[-1]
