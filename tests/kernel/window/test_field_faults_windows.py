"""Faults of time, windows and late rows that other systems were seen with, one test each.

Of the list, proved elsewhere:
- one row two hours ahead pins the watermark: the gate's `max_future_skew_ms` (W4)
- a source that is idle from the start, and stalls of this side: watermarks of the machine (W2)
- all rows filtered before their times are looked at: the gate stands before every operator (W8)
- a session that depends on which side was written first: the merge of sessions (N2)
- a watermark, or the end, that overtakes the rows of a firing: the order of lane items (W11); here
  only that a firing is finished before the next call is taken
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa

from arkflow_kernel.plan import WindowKind
from tests.kernel.window.timeline import Timeline, rows_in, window

HOUR = 3_600_000


def ms(text: str, zone: str) -> int:
    """A local time as an instant."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def test_a_negative_time_goes_to_the_window_below_not_to_the_next() -> None:
    line = Timeline(window(1_000))
    assert line.play("a1@-1 | end") == "- | a[-1000,0)=1/1"


def test_a_day_on_which_the_clocks_go_on_has_all_of_its_rows_once() -> None:
    zone = "America/Los_Angeles"
    line = Timeline(window(kind=WindowKind.CALENDAR, unit="day", timezone=zone))
    times = [ms(f"2021-03-14T{hour}", zone) for hour in ("00:00", "01:30", "03:30", "23:59")]
    start, end = times[0], ms("2021-03-15T00:00", zone)
    assert end - start == 23 * HOUR
    given = " ".join(f"a1@{ts}" for ts in (*times, end, start - 1))
    before, after = start - 24 * HOUR, end + 24 * HOUR
    assert line.play(f"{given} | w={end - 1} | w={end} | end") == (
        f"- | a[{before},{start})=1/1 | a[{start},{end})=4/4 | a[{end},{after})=1/1"
    )


def test_a_day_of_a_zone_without_summer_time_begins_at_its_own_midnight() -> None:
    zone = "Asia/Shanghai"
    line = Timeline(window(kind=WindowKind.CALENDAR, unit="day", timezone=zone))
    start = ms("2021-03-14T00:00", zone)
    assert line.play(f"a1@{start - 1} a2@{start} a4@{start + 24 * HOUR - 1} | end") == (
        f"- | a[{start - 24 * HOUR},{start})=1/1 a[{start},{start + 24 * HOUR})=6/2"
    )


def test_times_outside_of_1677_to_2262_keep_their_unit_and_do_not_wrap() -> None:
    line = Timeline(window(24 * HOUR))
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]
    for unit in ("s", "ms", "us"):
        batch = pa.RecordBatch.from_pydict(
            {
                "k": [unit, unit],
                "v": [1, 2],
                "ts": pa.array(times).cast(pa.timestamp(unit, "UTC"), safe=False),
            }
        )
        assert line.batch(batch) == []
    starts = {row["window_start"] for row in rows_in(line.end())}
    assert starts == {-62_135_596_800_000, 253_402_300_800_000 - 24 * HOUR}


def test_a_row_at_the_end_of_a_sliding_window_is_not_in_it() -> None:
    line = Timeline(window(10, 5))
    assert line.play("a1@10 | end") == "- | a[5,15)=1/1 a[10,20)=1/1"


def test_the_last_window_of_a_quiet_key_closes_and_a_sparse_key_is_not_late() -> None:
    line = Timeline(window(1_000))
    given = "b7@10 a1@20 | w=900 | a1@1500 | w=1400 | b8@1450 | w=2000"
    fired = "- | - | - | a[0,1000)=1/1 b[0,1000)=7/1 | - | a[1000,2000)=1/1 b[1000,2000)=8/1"
    assert line.play(given) == fired


def test_a_row_exactly_at_the_watermark_is_not_late_while_its_window_is_open() -> None:
    line = Timeline(window(1_000))
    given = "a1@1500 | w=1500 | a2@1500 | a4@1499 | a8@999 | end"
    assert line.play(given) == "- | - | - | - | late:1 | a[1000,2000)=7/3"


def test_a_firing_leaves_whole_before_its_watermark_is_done() -> None:
    """All that a watermark fires is yielded by its own call; the next one has nothing of it."""
    line = Timeline(window(1_000))
    line.play("a1@1 b1@2 a1@1001")
    assert len(rows_in(line.advance(2_000))) == 3
    assert line.advance(2_001) == []
    assert line.end() == []
