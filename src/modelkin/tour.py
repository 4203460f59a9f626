"""The demonstration: pairs of bundled models compared over HTTP, from a Hub on this machine."""

from __future__ import annotations

from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled, truth
from modelkin.demo.hub import LoopbackHub, Repository
from modelkin.records import Comparison
from modelkin.sources import ReadOptions
from modelkin.sources.protocol import Progress, no_progress

PAIRS = (
    ("dune", "heath"),
    ("dune", "birch"),
    ("dune", "grove"),
    ("ember", "cobalt"),
    ("dune", "amber"),
    ("dune", "fjord"),
)


def tour(progress: Progress = no_progress) -> tuple[Comparison, ...]:
    """Every pair of PAIRS, at the default budget, with nothing kept on disk."""
    with LoopbackHub({f"demo/{name}": Repository.from_folder(folder) for name, folder in bundled().items()}) as hub:
        options = CompareOptions(reading=ReadOptions(endpoint=hub.endpoint, cache=False, token=False))
        return tuple(compare(f"demo/{a}", f"demo/{b}", options, progress) for a, b in PAIRS)


def known() -> tuple[str, ...]:
    """What is true of every pair of PAIRS, in a sentence each."""
    told = {frozenset((entry["a"], entry["b"])): str(entry["sentence"]) for entry in truth()["relations"]}
    return tuple(told[frozenset(pair)] for pair in PAIRS)
