"""Which windows a time belongs to (N1, N2, N8, W6): arrays against a row-by-row loop."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.ids import EARLIEST, LATEST
from arkflow_kernel.window.assign import DUE_MAX, FixedPanes, Panes, Times, Windows
from arkflow_kernel.window.calendar import CalendarPanes

pytestmark = pytest.mark.thorough

HOUR, DAY = 3_600_000, 86_400_000
YEAR_1, YEAR_9999_END = -62_135_596_800_000, 253_402_300_799_999


def array(*times: int) -> Times:
    """Times as the functions take them."""
    return np.array(times, np.int64)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """Size, slide, offset; the slide need not divide the size."""
    size = draw(st.integers(1, 60) | st.sampled_from([1_000, 10_000, 7 * DAY]))
    slide = draw(st.integers(1, size) if size <= 60 else st.sampled_from([size, size // 4]))
    return size, slide, draw(st.integers(-200, 200))


times_of_all_ages = st.integers(-200, 200) | st.integers(-(2**62), 2**62)


def windows_with(ts: int, size: int, slide: int, offset: int) -> list[tuple[int, int]]:
    """Every window with start <= ts < end, the first first, in Python's integers."""
    start = ts - (ts - offset) % slide
    found = []
    while start + size > ts:
        found.append((start, start + size))
        start -= slide
    return found[::-1]


@given(shapes(), st.lists(times_of_all_ages, min_size=1, max_size=20))
def test_a_pane_lies_in_exactly_the_windows_of_each_of_its_times(
    shape: tuple[int, int, int], times: list[int]
) -> None:
    size, slide, offset = shape
    panes = FixedPanes(size, slide, offset)
    starts = panes.panes(array(*times))
    for n, ts in enumerate(times):
        expected = windows_with(ts, size, slide, offset)
        assert starts[n] <= ts < starts[n] + panes.width
        assert [panes.first_starts(starts)[n], panes.last_starts(starts)[n]] == [
            expected[0][0],
            expected[-1][0],
        ]
        assert [panes.first_ends(starts)[n], panes.last_ends(starts)[n]] == [
            expected[0][1],
            expected[-1][1],
        ]


def listed(pieces: Iterator[Windows]) -> list[tuple[int, int]]:
    """Windows of all pieces."""
    return [pair for piece in pieces for pair in zip(piece.starts, piece.ends, strict=True)]


@given(
    shapes(),
    st.lists(st.integers(-200, 200), max_size=12),
    st.integers(-300, 300) | st.just(EARLIEST),
    st.integers(-300, 300) | st.just(LATEST),
)
def test_due_are_the_windows_that_hold_a_row_and_end_between_two_watermarks(
    shape: tuple[int, int, int], times: list[int], above: int, upto: int
) -> None:
    size, slide, offset = shape
    panes = FixedPanes(size, slide, offset)
    held = {window for ts in times for window in windows_with(ts, size, slide, offset)}
    expected = sorted(window for window in held if above < window[1] <= upto)
    starts = np.unique(panes.panes(array(*times)))
    if len(held) < 3_000:
        assert listed(panes.due(starts, above, upto)) == expected
    later = [end for _, end in held if end > above]
    assert panes.next_end(starts, above) == min(later, default=None)


@given(shapes(), st.integers(-300, 300))
def test_the_last_end_up_to_a_limit_is_the_end_of_a_window(
    shape: tuple[int, int, int], limit: int
) -> None:
    size, slide, offset = shape
    end = int(FixedPanes(size, slide, offset).end_upto(array(limit))[0])
    assert limit - slide < end <= limit
    assert (end - size - offset) % slide == 0


def test_a_negative_time_is_in_the_window_below_zero() -> None:
    panes = FixedPanes(1_000, 1_000)
    assert panes.panes(array(-1, -1_000, -1_001, 0)).tolist() == [-1_000, -1_000, -2_000, 0]


def test_a_time_at_the_end_of_a_sliding_window_is_not_in_it() -> None:
    """Size 10, slide 5, time 10 exactly: windows [5, 15) and [10, 20), not [0, 10)."""
    panes = FixedPanes(10, 5)
    pane = panes.panes(array(10))
    assert listed(panes.due(pane, EARLIEST, LATEST)) == [(5, 15), (10, 20)]


def test_years_1_and_9999_have_windows_of_their_own() -> None:
    panes = FixedPanes(DAY, DAY)
    times = array(YEAR_1, YEAR_9999_END)
    assert panes.in_range(times) is None
    assert panes.panes(times).tolist() == [YEAR_1, YEAR_9999_END + 1 - DAY]


@pytest.mark.parametrize(
    "panes",
    [FixedPanes(1_000, 300, 7), FixedPanes(DAY, DAY), CalendarPanes("month", "UTC")],
    ids=["sliding", "tumbling", "calendar"],
)
def test_times_whose_windows_leave_int64_are_told_and_the_others_do_not_wrap(panes: Panes) -> None:
    low, high = EARLIEST, LATEST
    for limit, step in ((low, 1), (high, -1)):
        near = array(*(limit + step * n for n in range(3)))
        mask = panes.in_range(near)
        assert mask is not None
        assert not mask.any()
    edges = array(low // 2, high // 2)
    assert panes.in_range(edges) is None
    starts = panes.panes(edges)
    assert (starts <= edges).all()
    assert (panes.last_ends(starts) > edges).all()


@pytest.mark.parametrize("edge", [EARLIEST, LATEST])
def test_the_first_time_in_range_has_windows_that_do_not_wrap(edge: int) -> None:
    panes = FixedPanes(1_000, 300, 7)
    inner = 1 if edge == EARLIEST else -1
    near = array(*(edge + inner * n for n in range(1_990, 2_020)))
    mask = panes.in_range(near)
    assert mask is not None
    assert mask.any()
    inside = near[mask]
    expected = [windows_with(int(ts), 1_000, 300, 7) for ts in inside]
    assert panes.first_ends(panes.panes(inside)).tolist() == [found[0][1] for found in expected]
    assert panes.last_ends(panes.panes(inside)).tolist() == [found[-1][1] for found in expected]


def test_due_windows_come_in_pieces() -> None:
    """Ten thousand windows a slice would be millions at once."""
    panes = FixedPanes(100_000, 1)
    pieces = list(panes.due(np.arange(0, 30_000, dtype=np.int64), EARLIEST, LATEST))
    assert [len(piece) for piece in pieces] == [DUE_MAX, 129_999 - DUE_MAX]
    assert (pieces[0].part(0, 2).ends == array(1, 2)).all()


# --- calendar ----------------------------------------------------------------------------------

ZONES = [
    *("UTC", "America/Los_Angeles", "America/Sao_Paulo", "Asia/Beirut", "Asia/Shanghai"),
    *("Pacific/Apia", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"),
]


def opening(unit: str, day: date, step: int = 0) -> date:
    """The first date of a unit, `step` units after the one of a day."""
    if unit == "day":
        return day + timedelta(days=step)
    if unit == "week":
        return day - timedelta(days=day.weekday()) + timedelta(days=7 * step)
    months = 12 * day.year + day.month - 1 + step
    return date(months // 12, months % 12 + 1, 1)


def first_instant(day: date, offset: int, zone: ZoneInfo) -> int:
    """The first instant whose local time is a date's midnight plus an offset, or later.

    It steps through the instants minute by minute: no clock changes in between.
    """
    target = datetime.combine(day, time()) + timedelta(milliseconds=offset)
    instant = (target - timedelta(hours=30)).replace(tzinfo=UTC)
    while instant.astimezone(zone).replace(tzinfo=None) < target:
        instant += timedelta(minutes=1)
    return round(instant.timestamp() * 1000)


def expected_window(unit: str, ts: int, offset: int, zone: ZoneInfo) -> tuple[int, int]:
    """The window of a time, by looking at the clocks minute by minute."""
    shown = datetime.fromtimestamp(ts / 1000, UTC).astimezone(zone).replace(tzinfo=None)
    day = (shown - timedelta(milliseconds=offset)).date()
    begins = sorted({first_instant(opening(unit, day, n), offset, zone) for n in (-2, -1, 0, 1, 2)})
    start = max(begin for begin in begins if begin <= ts)
    return start, min(begin for begin in begins if begin > ts)


def ms(text: str, zone: str = "UTC") -> int:
    """A local time as an instant."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


CHANGES = [
    *("2021-03-14", "2021-11-07", "2018-11-04", "2018-02-17", "2021-03-28", "2011-12-29"),
    *("2006-10-29", "2006-04-02", "2023-10-01", "2040-03-11", "1969-12-31"),
]
"""Days around which some clock of the zones changes."""


@given(
    st.sampled_from(["day", "week", "month"]),
    st.sampled_from(ZONES),
    st.sampled_from([0, 6 * HOUR, -90 * 60_000, 2 * HOUR + 1_800_000]),
    st.lists(
        st.tuples(st.sampled_from(CHANGES), st.integers(-2 * 1440, 3 * 1440)),
        min_size=1,
        max_size=3,
    ),
)
def test_calendar_windows_are_those_that_the_clocks_show(
    unit: str, name: str, offset: int, moments: list[tuple[str, int]]
) -> None:
    times = array(*(ms(day) + minutes * 60_000 for day, minutes in moments))
    panes = CalendarPanes(unit, name, offset)
    starts = panes.panes(times)
    got = list(zip(starts.tolist(), panes.last_ends(starts).tolist(), strict=True))
    zone = ZoneInfo(name)
    assert got == [expected_window(unit, int(ts), offset, zone) for ts in times]
    assert (panes.panes(starts) == starts).all()


def window_of(panes: CalendarPanes, ts: int) -> tuple[int, int]:
    """The window of one time."""
    start = panes.panes(array(ts))
    return int(start[0]), int(panes.first_ends(start)[0])


@pytest.mark.parametrize(("day", "hours"), [("2021-03-14", 23), ("2021-11-07", 25)])
def test_a_day_of_los_angeles_has_23_or_25_hours_and_no_row_is_lost(day: str, hours: int) -> None:
    zone = "America/Los_Angeles"
    start = ms(f"{day}T00:00", zone)
    panes = CalendarPanes("day", zone)
    times = array(*(start + n * HOUR for n in range(-1, hours + 1)))
    starts = panes.panes(times)
    assert (starts == start).tolist() == [False, *[True] * hours, False]
    assert window_of(panes, ms(f"{day}T03:30", zone)) == (start, start + hours * HOUR)
    assert starts[-1] == start + hours * HOUR


@pytest.mark.parametrize(
    ("zone", "day"), [("America/Sao_Paulo", "2018-11-04"), ("Asia/Beirut", "2021-03-28")]
)
def test_a_day_without_midnight_begins_at_one(zone: str, day: str) -> None:
    begin = ms(f"{day}T01:00", zone)
    panes = CalendarPanes("day", zone)
    assert window_of(panes, begin) == (begin, begin + 23 * HOUR)
    assert window_of(panes, begin - 1)[1] == begin


def test_a_date_that_a_zone_left_out_has_no_window() -> None:
    """Samoa went from 2011-12-29 to 2011-12-31."""
    zone = "Pacific/Apia"
    last = ms("2011-12-29T23:59:59", zone)
    panes = CalendarPanes("day", zone)
    start, end = window_of(panes, last)
    assert (start, end) == (ms("2011-12-29T00:00", zone), ms("2011-12-31T00:00", zone))
    assert end - start == DAY
    assert window_of(panes, end)[0] == end


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    zone = "America/Los_Angeles"
    noon = ms("2021-03-14T12:00", zone)
    week = ms("2021-03-08T00:00", zone), ms("2021-03-15T00:00", zone)
    assert window_of(CalendarPanes("week", zone), noon) == week
    assert week[1] - week[0] == 7 * DAY - HOUR
    month = ms("2021-03-01T00:00", zone), ms("2021-04-01T00:00", zone)
    assert window_of(CalendarPanes("month", zone), noon) == month


def test_an_offset_moves_the_begin_by_the_zones_clocks() -> None:
    """A business day from 06:00 stays one on the day on which the clocks change."""
    zone = "America/Los_Angeles"
    panes = CalendarPanes("day", zone, 6 * HOUR)
    begin = ms("2021-03-14T06:00", zone)
    assert window_of(panes, begin) == (begin, begin + DAY)
    assert window_of(panes, begin - 1) == (begin - 23 * HOUR, begin)


def test_days_of_the_years_1_and_9999_and_beyond_have_windows() -> None:
    panes = CalendarPanes("day", "UTC")
    assert window_of(panes, YEAR_1) == (YEAR_1, YEAR_1 + DAY)
    assert window_of(panes, YEAR_9999_END) == (YEAR_9999_END + 1 - DAY, YEAR_9999_END + 1)
    far = DAY * 40_000_000
    assert window_of(panes, far + 5) == (far, far + DAY)
    assert window_of(panes, -far - 5) == (-far - DAY, -far)


@given(st.integers(1, 9_998), st.integers(-3, 3), st.sampled_from(["week", "month"]))
def test_the_calendar_repeats_after_400_years_also_beyond_pythons_dates(
    year: int, cycles: int, unit: str
) -> None:
    ts, cycle = ms("2000-01-01") + year * 365 * DAY + 7, 146_097 * DAY
    panes = CalendarPanes(unit, "UTC")
    start, end = window_of(panes, ts)
    shift = cycles * cycle * 30
    assert window_of(panes, ts + shift) == (start + shift, end + shift)


def test_summer_time_goes_on_for_ever() -> None:
    """The rule at the end of a zone's data holds for every later year."""
    zone = "America/New_York"
    panes = CalendarPanes("day", zone)
    july = ms("2100-07-04T12:00", zone)
    assert window_of(panes, july)[0] == july - 12 * HOUR
    far = july + 146_097 * DAY * 25  # the year 12,100
    assert window_of(panes, far)[0] == far - 12 * HOUR


def test_calendar_windows_are_due_by_their_own_ends() -> None:
    panes = CalendarPanes("day", "America/Los_Angeles")
    times = array(*(ms(f"2021-03-{day}T12:00") for day in (13, 14, 15)))
    starts = panes.panes(times)
    ends = panes.first_ends(starts)
    assert listed(panes.due(starts, int(ends[0]), int(ends[1]))) == [(starts[1], ends[1])]
    assert listed(panes.due(starts, int(ends[2]), LATEST)) == []
    assert panes.next_end(starts, int(ends[0])) == ends[1]
    assert panes.next_end(starts, int(ends[2])) is None
    assert panes.panes(array()).tolist() == []
