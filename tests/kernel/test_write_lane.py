"""What a chain orders of a sink, which receipts it believes, what stalls (T1, F2, F4, E5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import (
    CheckpointId,
    Generation,
    MonotonicMs,
    OutputId,
    RequestToken,
    Sequence,
)
from arkflow_kernel.limits import STALL_TIMEOUT_MS
from arkflow_kernel.metrics import Wait
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import FlushSink, RollSink, SealSink, Write, WriteRequest
from arkflow_kernel.snapshot import Epoch
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.write_lane import WriteLane

BATCH = rows_batch("a", [1])
SIZE = 10


def _next(lane: WriteLane, now_ms: int = 0) -> WriteRequest | None:
    return lane.next_request(RequestToken(1), MonotonicMs(now_ms))


def _receipt(upto: int, roll_at: int | None = None) -> WriteReceipt:
    return WriteReceipt(Sequence(upto), None if roll_at is None else MonotonicMs(roll_at))


def _give(lane: WriteLane, now_ms: int = 0) -> None:
    lane.give(BATCH, SIZE, MonotonicMs(now_ms))


def _answer(lane: WriteLane, receipt: WriteReceipt, now_ms: int = 0) -> None:
    lane.answered(receipt, MonotonicMs(now_ms))


def _lane(*, stages: bool = False) -> WriteLane:
    return WriteLane(OutputId("sink"), stages=stages)


def _epoch(number: int) -> Epoch:
    return Epoch(Generation(1), CheckpointId(number))


def test_one_write_is_outstanding_and_two_are_queued() -> None:
    lane = _lane()
    _give(lane)
    first = _next(lane)
    assert isinstance(first, Write)
    assert first.sequence == 1
    _give(lane)
    _give(lane)
    lane.validate()
    assert not lane.has_room
    assert _next(lane) is None
    _answer(lane, _receipt(1))
    second = _next(lane)
    assert isinstance(second, Write)
    assert second.sequence == 2


def test_held_bytes_are_those_that_wait_or_are_being_written() -> None:
    lane = _lane()
    for _ in range(2):
        _give(lane)
    assert lane.held_bytes == 2 * SIZE
    _next(lane)
    assert lane.held_bytes == 2 * SIZE
    _answer(lane, _receipt(0))
    assert lane.held_bytes == SIZE


def test_a_request_without_answer_is_told_after_thirty_seconds_and_goes_on_waiting() -> None:
    lane = _lane()
    _give(lane)
    assert lane.wait(MonotonicMs(STALL_TIMEOUT_MS)) is None, "nothing was ordered yet"
    _next(lane, 5)
    assert lane.wait(MonotonicMs(STALL_TIMEOUT_MS + 4)) is None
    wait = Wait("sink 'sink'", "a write has not returned", STALL_TIMEOUT_MS)
    assert lane.wait(MonotonicMs(STALL_TIMEOUT_MS + 5)) == wait
    lane.flush()
    _answer(lane, _receipt(0), STALL_TIMEOUT_MS + 6)
    assert lane.wait(MonotonicMs(3 * STALL_TIMEOUT_MS)) is None
    _next(lane, 3 * STALL_TIMEOUT_MS)
    late = lane.wait(MonotonicMs(5 * STALL_TIMEOUT_MS))
    assert late == Wait("sink 'sink'", "a flush has not returned", 2 * STALL_TIMEOUT_MS)


def test_a_roll_is_ordered_at_its_moment_and_not_before() -> None:
    lane = _lane()
    _give(lane)
    _next(lane)
    assert lane.deadline_ms() is None
    _answer(lane, _receipt(0, roll_at=30))
    assert lane.deadline_ms() == 30
    assert _next(lane, 29) is None
    assert isinstance(_next(lane, 30), RollSink)
    _answer(lane, _receipt(1))
    assert lane.settled


def test_a_due_roll_does_not_wait_for_a_quiet_moment() -> None:
    lane = _lane()
    for _ in range(2):
        _give(lane)
    _next(lane)
    _answer(lane, _receipt(0, roll_at=30))
    assert isinstance(_next(lane, 30), RollSink)
    _answer(lane, _receipt(1))
    assert isinstance(_next(lane, 30), Write)


def test_a_flush_passes_behind_the_writes_and_ends_the_rolls() -> None:
    lane = _lane()
    _give(lane)
    lane.flush()
    assert isinstance(_next(lane), Write)
    _answer(lane, _receipt(0, roll_at=5))
    assert isinstance(_next(lane, 99), FlushSink)
    _answer(lane, _receipt(1, roll_at=5))
    assert lane.settled
    assert lane.deadline_ms() is None
    assert _next(lane, 99) is None


def test_a_sink_that_was_given_nothing_is_not_flushed() -> None:
    lane = _lane()
    lane.flush()
    assert _next(lane) is None
    assert lane.settled


def test_a_batch_that_was_never_written_cannot_be_confirmed() -> None:
    lane = _lane()
    _give(lane)
    _give(lane)
    _next(lane)
    with pytest.raises(SinkError, match="outside of 0 to 1"):
        _answer(lane, _receipt(2))


def test_a_confirmation_never_goes_back() -> None:
    lane = _lane()
    for n in (1, 2):
        _give(lane)
        _next(lane)
        if n == 1:
            _answer(lane, _receipt(1))
    with pytest.raises(SinkError, match="outside of 1 to 2"):
        _answer(lane, _receipt(0))


def test_a_flush_that_confirms_too_little_is_the_sinks_fault() -> None:
    lane = _lane()
    _give(lane)
    lane.flush()
    _next(lane)
    _answer(lane, _receipt(0))
    _next(lane)
    with pytest.raises(SinkError, match="did not confirm all writes"):
        _answer(lane, _receipt(0))


@given(st.lists(st.sampled_from([*["give", "answer", "time"] * 9, "flush"]), min_size=40))
def test_whatever_happens_writes_keep_their_order_and_bounds(script: list[str]) -> None:
    lane, now_ms, given, flushed = _lane(), 0, 0, False
    outstanding: WriteRequest | None = None
    written: list[int] = []
    for step in script:
        if step == "give" and lane.has_room and not flushed:
            _give(lane)
            given += 1
        elif step == "time":
            now_ms += 10
        elif step == "flush":
            lane.flush()
            flushed = True
        elif step == "answer" and outstanding is not None:
            whole = not isinstance(outstanding, Write)
            upto = len(written) if whole else max(int(lane.confirmed_upto), len(written) - 2)
            _answer(lane, _receipt(upto, roll_at=now_ms + 15))
            outstanding = None
        request = _next(lane, now_ms)
        if request is not None:
            assert outstanding is None
            outstanding = request
            if isinstance(request, Write):
                written.append(request.sequence)
        lane.validate()
        assert given - len(written) <= 2
    assert written == list(range(1, len(written) + 1))


@pytest.mark.parametrize("stages", [False, True])
def test_a_seal_passes_behind_the_writes_before_it_and_before_those_after_it(stages: bool) -> None:
    lane, confirmed, sealed = _lane(stages=stages), 0, []
    _give(lane)
    lane.seal(_epoch(1))
    _give(lane)
    lane.validate()
    assert not lane.has_room, "two writes wait; a seal takes no room"
    lane.seal(_epoch(2))
    kinds: list[type] = []
    while (request := _next(lane)) is not None:
        kinds.append(type(request))
        if isinstance(request, Write) and not stages:
            confirmed = request.sequence
        epoch = lane.answered(_receipt(confirmed), MonotonicMs(0))
        sealed += [] if epoch is None else [epoch]
        lane.validate()
    assert kinds == [Write, SealSink, Write, SealSink]
    assert sealed == [_epoch(1), _epoch(2)]
    assert lane.settled is not stages, "what is staged is not confirmed"


def test_a_seal_that_confirms_too_little_is_the_sinks_fault() -> None:
    """An at-least-once sink confirms at the seal all that was written before it (F4)."""
    lane = _lane()
    _give(lane)
    _next(lane)
    _answer(lane, _receipt(0))
    lane.seal(_epoch(1))
    assert isinstance(_next(lane), SealSink)
    with pytest.raises(SinkError, match="did not confirm all writes"):
        _answer(lane, _receipt(0))


def test_what_a_staging_sink_says_it_confirmed_is_not_looked_at() -> None:
    lane = _lane(stages=True)
    _give(lane)
    lane.seal(_epoch(1))
    for upto in (99, 0):
        assert _next(lane) is not None
        _answer(lane, _receipt(upto))
        assert lane.confirmed_upto == 0
        lane.validate()
    assert _next(lane) is None


def test_a_seal_that_does_not_return_is_told_as_such() -> None:
    lane = _lane()
    lane.seal(_epoch(1))
    _next(lane)
    wait = lane.wait(MonotonicMs(STALL_TIMEOUT_MS))
    assert wait is not None
    assert wait.detail == "the seal of a checkpoint has not returned"


def test_a_due_roll_goes_before_a_seal_that_waits() -> None:
    lane = _lane(stages=True)
    _give(lane)
    _next(lane)
    _answer(lane, _receipt(0, roll_at=30))
    lane.seal(_epoch(1))
    assert isinstance(_next(lane, 30), RollSink)
    _answer(lane, _receipt(0))
    assert isinstance(_next(lane, 30), SealSink)
