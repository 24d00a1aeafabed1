"""Faults of timestamps and lateness that users of stream processors have met, at the gate (W3-W5).

Each test is the smallest input that shows one of them, and what is right.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import ERROR_COLUMN
from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.event_time_gate import ROW_WATERMARK, EventTimeGate
from arkflow_kernel.ids import EventTimeMs, MonotonicMs, OperatorId, RequestToken, SplitId, WallMs
from arkflow_kernel.plan import ComponentPlan, SourcePlan, TimePlan
from arkflow_kernel.ports import SourceBatch, SourceEnded, SourceReader
from arkflow_kernel.protocol import BatchTime, ItemDone, ReadSource, RunItem, SourceRead, Submit
from arkflow_kernel.testing.components import (
    ScriptedComponents,
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
)
from arkflow_kernel.testing.plans import chain_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component

HOUR = 3_600_000
NOW = WallMs(1_700_000_000_000)


def gate(bound_ms: int = 0, **plan: Any) -> EventTimeGate:
    return EventTimeGate(TimePlan("ts", bound_ms, **plan), OperatorId("src"), late_route=False)


def passed(tested: EventTimeGate, columns: dict[str, Any]) -> tuple[SourceBatch, BatchTime]:
    return tested.apply(SourceBatch(SplitId("a"), pa.record_batch(columns), {}), NOW)


def behind(read: SourceBatch) -> list[bool]:
    """Which rows the gate found behind their watermark."""
    if ROW_WATERMARK not in read.batch.schema.names:
        return [False] * read.batch.num_rows
    return [w is not None for w in read.batch.column(ROW_WATERMARK).to_pylist()]


def messages_through(tested: EventTimeGate, texts: Seq[str], **codec: Any) -> list[SourceBatch]:
    """What the gate makes of JSON messages, one a batch."""
    plan = ComponentPlan("memory", {"messages": list(texts)}, {"type": "json", **codec})
    built = build_component(ComponentKind.INPUT, plan, BuildContext("src"))
    reader = cast(SourceReader, built)
    reader.open([])
    reads = []
    while not isinstance(result := reader.read(MonotonicMs(0)), SourceEnded):
        assert isinstance(result, SourceBatch)
        reads.append(tested.apply(result, NOW)[0])
    reader.close()
    return reads


def bad_of(reads: Seq[SourceBatch]) -> list[str]:
    """The reasons of all bad rows."""
    found: list[str] = []
    for read in reads:
        found += [] if read.bad is None else cast(list[str], read.bad[ERROR_COLUMN].to_pylist())
    return found


def good_of(reads: Seq[SourceBatch]) -> list[Any]:
    return [ms for read in reads if read.batch.num_rows for ms in read.batch["ts"].to_pylist()]


def test_times_outside_of_what_nanoseconds_can_hold_do_not_wrap() -> None:
    """They were cast to nanoseconds, which hold 1677 to 2262 only, and no cast said so."""
    first = datetime(1, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for unit in (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us")):
        times = [t if unit.tz else t.replace(tzinfo=None) for t in (first, last)]
        read, time = passed(gate(), {"ts": pa.array(times, unit)})
        assert (read.batch.num_rows, read.bad) == (2, None)
        assert time.max_ms == last.timestamp() * 1_000


def test_a_row_whose_time_fits_in_no_millisecond_is_bad_and_its_neighbours_are_not() -> None:
    seconds: Any = pa.array([1, 2**60, 2], pa.int64()).view(pa.timestamp("s"))
    read, time = passed(gate(), {"ts": seconds, "n": [0, 1, 2]})
    assert read.batch.column("n").to_pylist() == [0, 2]
    assert read.bad is not None
    assert read.bad.column("n").to_pylist() == [1]
    assert time.max_ms == 2_000


def test_a_row_of_the_greatest_integer_does_not_end_all_times() -> None:
    """Many write it for "none"; as a watermark it makes every later row late."""
    tested = gate()
    read, time = passed(tested, {"ts": [NOW, 2**63 - 1]})
    assert time.max_ms == int(NOW)
    assert read.bad is not None
    assert behind(passed(tested, {"ts": [NOW + 1]})[0]) == [False]


def test_a_row_from_the_future_does_not_make_those_behind_it_late() -> None:
    """One row dated two hours ahead pinned the watermark; all that followed were dropped."""
    times = [NOW, NOW + 2 * HOUR, NOW + 1_000]
    read, time = passed(gate(1_000, max_future_skew_ms=60_000), {"ts": times})
    assert read.batch.num_rows == 3, "it passes"
    assert behind(read) == [False, False, False]
    assert time == BatchTime(EventTimeMs(NOW + 1_000), ahead=1)


def test_without_a_limit_a_row_from_the_future_moves_the_watermark_and_the_late_are_marked() -> (
    None
):
    times = [NOW, NOW + 2 * HOUR, NOW + 1_000]
    read, time = passed(gate(1_000), {"ts": times})
    assert behind(read) == [False, False, True]
    assert time.max_ms == NOW + 2 * HOUR


def test_rows_in_order_are_never_behind_however_large_the_batches_are() -> None:
    """A batch moved the watermark before its own rows were judged: most of them were late."""
    tested = gate()
    for first in range(0, 60_000, 8_192):
        rows = range(first, min(first + 8_192, 60_000))
        read, _ = passed(tested, {"ts": pa.array([NOW + 5 * n for n in rows], pa.int64())})
        assert not any(behind(read))


def test_a_row_exactly_at_the_watermark_is_not_behind_it() -> None:
    read, _ = passed(gate(1_000), {"ts": [NOW, NOW - 1_000, NOW - 1_001]})
    assert behind(read) == [False, False, True]


def test_a_filter_that_keeps_nothing_does_not_hold_the_watermark() -> None:
    """Times were taken behind the filter: neither a watermark nor idleness came out of it."""
    plan = chain_plan(operators=("filter",))
    source = replace(cast(SourcePlan, plan.source), time=TimePlan("n"))
    filtering = ScriptedOperator(drops=lambda _split, _n: True)
    parts = ScriptedComponents(
        {source.operator: ScriptedSource({"a": (5,)})},
        {"filter": filtering},
        {"sink": ScriptedSink()},
    )
    work = ChainWork(replace(plan, source=source), parts, VirtualClock())
    work.open()
    read = work.perform(ReadSource(RequestToken(1)))
    assert isinstance(read, SourceRead)
    assert isinstance(read.result, SourceBatch)
    done = work.perform(Submit(RunItem(RequestToken(2), read.result.batch)))
    work.close()
    assert isinstance(done, ItemDone)
    assert (filtering.processed, done.slice.pieces) == (1, ())
    assert read.time == BatchTime(EventTimeMs(4))


def test_a_batch_in_which_no_row_has_a_time_keeps_its_columns() -> None:
    null: Any = pa.array([None, None], pa.timestamp("us"))
    read, time = passed(gate(), {"ts": null, "n": [1, 2]})
    assert read.batch.num_rows == 0
    assert read.batch.schema == pa.schema([("ts", pa.timestamp("us")), ("n", pa.int64())])
    assert time == BatchTime(None, invalid=2)


def test_a_json_integer_beyond_int64_is_a_bad_row_and_the_input_goes_on() -> None:
    texts = [f'{{"ts": {n}}}' for n in (5, 2**63, 2**70, 6)]
    reads = messages_through(gate(), texts)
    assert good_of(reads) == [5, 6]
    assert len(bad_of(reads)) == 2
    assert reads[-1].split_ended


def test_one_fraction_or_text_makes_one_bad_row_when_the_codec_is_told_the_type() -> None:
    """The type was inferred from the first block; a later value then failed all that followed."""
    texts = ['{"ts": 5}', '{"ts": 5.5}', '{"ts": "A"}', '{"ts": 6}', '{"n": 1}']
    tested = gate()
    reads = messages_through(tested, texts, types={"ts": "int"})
    assert good_of(reads) == [5, 6]
    assert len(bad_of(reads)) == 2


def test_without_being_told_the_error_says_how_to_tell_it() -> None:
    reads = messages_through(gate(), ['{"ts": 5}', '{"ts": 5.5}', '{"ts": 6}'])
    assert good_of(reads) == [5]
    errors = bad_of(reads)
    assert len(errors) == 2
    assert "column 'ts' of type double holds no event time" in errors[0]
    assert "`types: {ts: int}`" in errors[0]


@pytest.mark.parametrize("written", ["TS", "Ts", "ts "])
def test_a_name_that_is_written_otherwise_is_told_as_it_stands_in_the_data(written: str) -> None:
    read, _ = passed(gate(), {written: [1], "n": [2]})
    assert f"no column 'ts' for the event time; the batch has '{written}', 'n'" in bad_of([read])[0]


def test_more_than_1024_rows_of_a_batch_all_pass() -> None:
    read, _ = passed(gate(), {"ts": list(range(1_025))})
    assert read.batch.num_rows == 1_025
