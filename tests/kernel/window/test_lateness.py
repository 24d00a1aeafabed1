"""Which rows a window still takes (W6, W7): arrays against a loop over rows and windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.ids import EARLIEST
from arkflow_kernel.window.assign import FixedPanes, Times
from arkflow_kernel.window.lateness import judged


def array(*times: int) -> Times:
    """Times as the function takes them."""
    return np.array(times, np.int64)


def taking(
    shape: tuple[int, int, int], ts: int, w: int, watermark: int, lateness: int
) -> set[tuple[int, int]]:
    """The windows that take a row, by the words of W6 and W7."""
    size, slide, offset = shape
    start = ts - (ts - offset) % slide
    found = set()
    while start + size > ts:
        if start + size + lateness > max(w, watermark):
            found.add((start, start + size))
        start -= slide
    return found


shapes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(-50, 50)).map(
    lambda shape: (max(shape[:2]), min(shape[:2]), shape[2])
)
row = st.tuples(st.integers(-100, 100), st.integers(-100, 150) | st.just(EARLIEST))


@given(
    shapes,
    st.lists(row, min_size=1, max_size=12),
    st.integers(-100, 150) | st.just(EARLIEST),
    st.integers(0, 60),
    st.booleans(),
)
def test_a_row_is_in_the_windows_that_end_after_its_cut(
    shape: tuple[int, int, int],
    rows: list[tuple[int, int]],
    watermark: int,
    lateness: int,
    stamped: bool,
) -> None:
    windows = FixedPanes(*shape)
    times = array(*(ts for ts, _ in rows))
    marks = array(*(w for _, w in rows)) if stamped else None
    got = judged(windows, windows.panes(times), marks, watermark, lateness)
    for n, (ts, w) in enumerate(rows):
        expected = taking(shape, ts, w if stamped else EARLIEST, watermark, lateness)
        refused = got.refused is not None and bool(got.refused[n])
        assert refused == (not expected)
        if expected:
            after = EARLIEST if got.after is None else int(got.after[n])
            there = taking(shape, ts, EARLIEST, watermark, lateness)
            assert {window for window in there if window[1] > after} == expected


@pytest.mark.parametrize(
    ("ts", "watermark", "late"),
    [(999, 999, False), (999, 1_000, True), (1_000, 1_000, False), (0, 999, False)],
)
def test_only_the_end_of_the_window_decides_also_for_a_row_at_the_watermark(
    ts: int, watermark: int, late: bool
) -> None:
    windows = FixedPanes(1_000, 1_000)
    got = judged(windows, windows.panes(array(ts)), None, watermark, 0)
    assert (got.refused is not None) == late


def test_a_row_is_too_late_when_the_end_plus_the_lateness_is_reached() -> None:
    windows = FixedPanes(1_000, 1_000)
    pane = windows.panes(array(500))
    assert judged(windows, pane, None, 2_999, 2_000).refused is None
    assert judged(windows, pane, None, 3_000, 2_000).refused is not None


def test_cuts_between_two_ends_are_one_value() -> None:
    """So that few groups of rows differ in what windows they count in."""
    windows = FixedPanes(100, 10)
    panes = windows.panes(array(*[95] * 8))
    got = judged(windows, panes, np.arange(130, 138, dtype=np.int64), 100, 0)
    assert got.refused is None
    assert got.after is not None
    assert got.after.tolist() == [130] * 8


def test_a_row_that_only_the_operators_watermark_makes_late_needs_no_mark() -> None:
    """The windows that it is late for are gone: none of them fires again."""
    windows = FixedPanes(100, 10)
    got = judged(windows, windows.panes(array(95)), array(140), 140, 0)
    assert (got.refused, got.after) == (None, None)


def test_watermarks_at_the_limits_of_int64_do_not_wrap() -> None:
    windows = FixedPanes(10, 5)
    panes = windows.panes(array(0))
    assert judged(windows, panes, array(EARLIEST), EARLIEST, 2**62).refused is None
    assert judged(windows, panes, array(2**63 - 1), EARLIEST, 0).refused is not None
