"""Places of a key's rows in a span of time, and pairs in parts, against loops over all rows."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.join.pairs import Pairs
from arkflow_kernel.join.time_index import TimeIndex

FAR = 2**61


def times(far: bool) -> st.SearchStrategy[int]:
    near = st.integers(-20, 20)
    return st.builds(lambda a, b: a + b, st.sampled_from([-FAR, 0, FAR]), near) if far else near


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Entries of key and time, and what is asked: key, from when, until when."""
    time = times(draw(st.booleans()))
    entries = draw(st.lists(st.tuples(st.integers(0, 5), time), max_size=30))
    lows = time | st.just(-(2**63))
    asked = draw(st.lists(st.tuples(st.integers(0, 8), lows, time), max_size=10))
    return entries, asked


def column(values: list[int]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.array(values, np.int64)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_entries_of_a_key_in_a_span_are_found_at_any_distance_of_times(
    case: tuple[list[tuple[int, int]], list[tuple[int, int, int]]],
) -> None:
    entries, asked = case
    index, order = TimeIndex.of(column([k for k, _ in entries]), column([t for _, t in entries]))
    placed = [entries[place] for place in order]
    assert placed == sorted(entries)
    first, end = index.find(*(column([each[n] for each in asked]) for n in range(3)))
    for number, (key, low, high) in enumerate(asked):
        mine = [n for n, (k, t) in enumerate(placed) if k == key and low <= t <= high]
        assert list(range(first[number], end[number])) == mine


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 6))), st.integers(1, 9), st.integers(0, 3)
)
def test_parts_of_any_size_are_all_pairs_in_order(
    ranges: list[tuple[int, int]], size: int, offset: int
) -> None:
    first, ends = column([f for f, _ in ranges]), column([f + n for f, n in ranges])
    pairs = Pairs(first, ends, offset)
    wanted = [(r + offset, p) for r, (f, n) in enumerate(ranges) for p in range(f, f + n)]
    assert len(pairs) == len(wanted)
    found = []
    for start in range(0, len(pairs), size):
        rows, places = pairs.part(start, start + size)
        assert 0 < len(rows) <= size
        found += list(zip(rows.tolist(), places.tolist(), strict=True))
    assert found == wanted
