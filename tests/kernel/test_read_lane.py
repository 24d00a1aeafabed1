"""When a chain reads: one outstanding, one ahead, paced, never after a stop (B3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.ids import MonotonicMs, RequestToken, SplitId, WallMs
from arkflow_kernel.ports import Moment, NothingYet, ReadResult, SourceBatch, SourceEnded
from arkflow_kernel.protocol import SourceRead
from arkflow_kernel.read_lane import ReadLane
from arkflow_kernel.testing.components import rows_batch

T = RequestToken(1)


def _batch(rows: int, split: str = "a") -> SourceBatch:
    return SourceBatch(SplitId(split), rows_batch(split, range(rows)), {"row": rows})


def _answer(result: ReadResult, size_bytes: int, now_ms: MonotonicMs) -> SourceRead:
    return SourceRead(Moment(now_ms, WallMs(0)), T, result, size_bytes)


def _read(lane: ReadLane, rows: int, now_ms: int) -> None:
    assert lane.wants_read(MonotonicMs(now_ms))
    lane.reading(T)
    lane.answered(_answer(_batch(rows), 10 * rows, MonotonicMs(now_ms)))
    lane.validate()


def test_one_read_is_outstanding_and_one_batch_is_ahead() -> None:
    lane = ReadLane()
    lane.reading(T)
    assert not lane.wants_read(MonotonicMs(0))
    lane.answered(_answer(_batch(1), 10, MonotonicMs(0)))
    assert not lane.wants_read(MonotonicMs(0))
    assert lane.waiting == 1
    assert lane.held_bytes == 10
    taken = lane.take()
    assert taken is not None
    assert taken[0].size_bytes == 10
    assert lane.held_bytes == 0
    assert lane.wants_read(MonotonicMs(0))
    assert lane.take() is None


def test_each_split_has_its_own_sequence() -> None:
    lane = ReadLane()
    numbers = []
    for split in "abaab":
        lane.reading(T)
        lane.answered(_answer(_batch(1, split), 10, MonotonicMs(0)))
        taken = lane.take()
        assert taken is not None
        numbers.append((split, taken[1]))
    assert numbers == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)]


def test_a_pause_delays_the_next_read_until_its_moment() -> None:
    lane = ReadLane()
    lane.reading(T)
    lane.answered(_answer(NothingYet(MonotonicMs(50)), 0, MonotonicMs(10)))
    assert lane.deadline_ms() == 50
    assert not lane.wants_read(MonotonicMs(49))
    assert lane.wants_read(MonotonicMs(50))


def test_a_stop_forgets_what_was_read_ahead_and_what_still_arrives() -> None:
    lane = ReadLane()
    _read(lane, 3, 0)
    lane.stop()
    lane.validate()
    assert lane.quiet
    assert lane.held_bytes == 0
    assert lane.take() is None

    lane = ReadLane()
    lane.reading(T)
    lane.stop()
    assert not lane.quiet, "the outstanding read has not answered"
    lane.answered(_answer(_batch(3), 10, MonotonicMs(0)))
    assert lane.quiet
    assert lane.take() is None
    assert not lane.wants_read(MonotonicMs(99))
    assert lane.deadline_ms() is None


def test_an_ended_source_is_exhausted_when_its_last_batch_is_taken() -> None:
    lane = ReadLane()
    _read(lane, 1, 0)
    assert not lane.exhausted
    lane.take()
    lane.reading(T)
    lane.answered(_answer(SourceEnded(), 0, MonotonicMs(0)))
    assert lane.exhausted
    assert not lane.wants_read(MonotonicMs(0))


def test_a_chain_without_a_source_reads_nothing_and_has_nothing_to_wait_for() -> None:
    lane = ReadLane(nothing=True)
    assert lane.exhausted
    assert lane.quiet
    assert not lane.wants_read(MonotonicMs(0))
    assert lane.deadline_ms() is None


@pytest.mark.parametrize("rate", [1.0, 250.0, 100_000.0])
@given(sizes=st.lists(st.integers(0, 500), min_size=1, max_size=30))
def test_pacing_never_reads_more_rows_than_the_rate_allows(rate: float, sizes: list[int]) -> None:
    lane, now_ms, rows = ReadLane(rate), 0, 0
    for size in sizes:
        due_ms = lane.deadline_ms()
        now_ms = max(now_ms, 0 if due_ms is None else due_ms)
        assert rows <= (now_ms + 1) * rate / 1000, (rows, now_ms)
        _read(lane, size, now_ms)
        lane.take()
        rows += size
