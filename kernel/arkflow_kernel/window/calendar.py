"""Windows of the calendar: days, weeks and months of a time zone (N2).

A window begins at the first instant at which the zone's clocks show its first midnight or later,
plus `offset_ms` by those clocks, and ends where the next one begins. So days have 23 or 25 hours
where the clocks change, a day without midnight begins when the clocks go on, a midnight that comes
twice begins at the first, and a date that a zone left out has no window. Weeks begin on Monday.

A zone is asked once for each window's begin, whatever the number of rows.
"""

import bisect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.assign import Times, Windows, within

_DAY_MS = 86_400_000
_MARGIN_MS = 400 * _DAY_MS
_NEAR_DAYS = 62
_KNOWN_MAX = 1 << 16
"""Begins that are remembered; all are forgotten beyond."""

_CYCLE_MS = 146_097 * _DAY_MS
"""400 years: after them the calendar repeats, weekdays included."""

_EPOCH = datetime(1970, 1, 1)
_YEAR_2_MS = -62_104_060_800_000
_YEAR_9998_MS = 253_339_228_800_000
"""Python's dates hold a few days more on both sides, so no time zone leads out of them."""

_MONDAY = 3
"""1969-12-29, three days before day 0, was a Monday."""


class CalendarPanes:
    """Days, weeks or months of a zone; each is a pane of its own.

    `zone` is a name of the IANA database; `ZoneInfoNotFoundError` if it has none of that name.
    """

    def __init__(self, unit: str, zone: str, offset_ms: int = 0) -> None:
        assert unit in ("day", "week", "month")
        self._unit = unit
        self._zone = ZoneInfo(zone)
        self._offset = offset_ms
        self._margin = _MARGIN_MS + abs(offset_ms)
        self._begins: dict[int, int] = {}

    @property
    def overlapping(self) -> bool:
        """No instant is of two of them."""
        return False

    def in_range(self, times: Times) -> Mask | None:
        """Which times are far enough from the limits of int64; None: all of them."""
        return within(times, INT64_MIN + self._margin, INT64_MAX - self._margin)

    def panes(self, times: Times) -> Times:
        """The start of the window of each time."""
        begins = self._around(times)
        return begins[np.searchsorted(begins, times, side="right") - 1]

    def first_ends(self, panes: Times) -> Times:
        """The end of each window."""
        begins = self._around(panes)
        return begins[np.searchsorted(begins, panes, side="right")]

    def last_ends(self, panes: Times) -> Times:
        """The end of each window."""
        return self.first_ends(panes)

    def due(self, panes: Times, above: int, upto: int) -> Iterator[Windows]:
        """Windows of these panes with above < end <= upto, in order."""
        ends = self.first_ends(panes)
        due = (ends > above) & (ends <= upto)
        if due.any():
            yield Windows(panes[due], ends[due])

    def next_end(self, panes: Times, above: int) -> int | None:
        """The end of the first of these panes that ends after `above`."""
        for end in self.first_ends(panes):
            if end > above:
                return int(end)
        return None

    def _around(self, times: Times) -> Times:
        """The begins of all windows near any of the times, without gaps near each, rising."""
        if not len(times):
            return np.zeros(1, np.int64)
        first, last = ((int(t) - self._offset) // _DAY_MS for t in (times.min(), times.max()))
        if last - first <= _NEAR_DAYS:
            days: Times = np.arange(first, last + 1, dtype=np.int64)
        else:
            days = np.unique((times - self._offset) // _DAY_MS)
        # A zone is less than two days away from UTC; the next window's begin is the end.
        lows, highs = self._number(days - 2), self._number(days + 2) + 1
        steps = range(int((highs - lows).max()) + 1)
        numbers = np.unique(np.concatenate([np.minimum(lows + step, highs) for step in steps]))
        if len(self._begins) > _KNOWN_MAX:
            self._begins.clear()
        known = self._begins
        for number in numbers.tolist():
            if number not in known:
                known[number] = self._begin(number)
        # Two windows begin at once where a zone left out a date.
        return np.unique(np.array([known[number] for number in numbers.tolist()], np.int64))

    def _number(self, days: Times) -> Times:
        """The number of the window that each day since 1970 is in."""
        if self._unit == "day":
            return days
        if self._unit == "week":
            return (days + _MONDAY) // 7
        return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)

    def _begin(self, number: int) -> int:
        """The instant at which a window begins."""
        if self._unit == "day":
            day = number
        elif self._unit == "week":
            day = 7 * number - _MONDAY
        else:
            day = int(np.datetime64(number, "M").astype("datetime64[D]").astype(np.int64))
        shown = day * _DAY_MS + self._offset
        cycles = 0
        if shown >= _YEAR_9998_MS:
            cycles = (shown - _YEAR_9998_MS) // _CYCLE_MS + 1
        elif shown < _YEAR_2_MS:
            cycles = (shown - _YEAR_2_MS) // _CYCLE_MS
        return self._first_instant(shown - cycles * _CYCLE_MS) + cycles * _CYCLE_MS

    def _first_instant(self, shown: int) -> int:
        """The first instant at which the zone's clocks show this or later; both in ms."""
        local = _EPOCH + timedelta(milliseconds=shown)
        earlier = shown - self._ahead(local.replace(tzinfo=self._zone))
        if earlier + self._ahead_at(earlier) == shown:
            return earlier
        # The clocks leave it out. They jump between the two instants that it would be.
        later = shown - self._ahead(local.replace(tzinfo=self._zone, fold=1))
        low, high = min(earlier, later), max(earlier, later)
        instants = range(low, high + 1)
        return instants[bisect.bisect_left(instants, shown, key=lambda t: t + self._ahead_at(t))]

    def _ahead_at(self, instant: int) -> int:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant)
        return self._ahead(moment.astimezone(self._zone))

    def _ahead(self, moment: datetime) -> int:
        """How far the zone's clocks are ahead of UTC, in milliseconds."""
        ahead = moment.utcoffset()
        assert ahead is not None
        return ahead // timedelta(milliseconds=1)


__all__ = ["CalendarPanes"]
