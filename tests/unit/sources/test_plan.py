from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from modelkin.records import Extent
from modelkin.sources.plan import assemble, coalesced, covering

BODY = bytes(range(256)) * 40


def extents(n: int = len(BODY)) -> st.SearchStrategy[list[Extent]]:
    bounds = st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted)
    return st.lists(st.tuples(st.sampled_from("ab"), bounds).map(lambda t: Extent(t[0], *t[1])), max_size=30)


def test_near_extents_are_joined_and_far_ones_are_not() -> None:
    wanted = [Extent("f", 0, 10), Extent("f", 30, 40), Extent("f", 1000, 1010), Extent("g", 41, 50)]
    assert coalesced(wanted, gap=20, part=10_000) == [Extent("f", 0, 40), Extent("f", 1000, 1010), Extent("g", 41, 50)]


def test_a_long_extent_is_split_into_parts() -> None:
    assert coalesced([Extent("f", 5, 25)], gap=0, part=8) == [
        Extent("f", 5, 13),
        Extent("f", 13, 21),
        Extent("f", 21, 25),
    ]


def test_joining_never_grows_a_request_past_a_part() -> None:
    rows = [Extent("f", 10 * i, 10 * i + 5) for i in range(100)]
    assert max(e.size for e in coalesced(rows, gap=100, part=64)) <= 64
    assert len(coalesced(rows, gap=100, part=64)) < 20


@given(extents(), st.integers(0, 300), st.integers(1, 700))
def test_whatever_is_wanted_can_be_assembled_from_the_plan(wanted: list[Extent], gap: int, part: int) -> None:
    pieces = coalesced(wanted, gap, part)
    assert all(0 < piece.size <= part for piece in pieces)
    assert all(a.file != b.file or a.stop <= b.start for a, b in pairwise(pieces))
    bodies = {piece: BODY[piece.start : piece.stop] for piece in pieces}
    for extent in wanted:
        if extent.size:
            order = [piece for piece in pieces if piece.file == extent.file]
            assert assemble(extent, covering(extent, order), bodies) == BODY[extent.start : extent.stop]
