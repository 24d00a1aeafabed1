"""Items answer in any order and leave in the order of submission (T1b, T1c, T2, B3, E5)."""

from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.ids import (
    CheckpointId,
    MonotonicMs,
    OutputId,
    RequestToken,
    Sequence,
    SplitId,
    WallMs,
)
from arkflow_kernel.item_queue import BatchRef, ItemQueue
from arkflow_kernel.limits import STALL_TIMEOUT_MS
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import ItemDone, LaneSlice, Piece
from arkflow_kernel.testing.components import rows_batch

NOW = MonotonicMs(0)
AT = Moment(NOW, WallMs(0))


def _done(token: int, *, more: bool = False) -> ItemDone:
    return ItemDone(AT, RequestToken(token), LaneSlice(), more)


def _submit(queue: ItemQueue, token: int) -> None:
    queue.submitted(RequestToken(token), BatchRef(SplitId("a"), Sequence(token), 1, 10), NOW)


@given(st.integers(1, 4), st.data())
def test_items_leave_in_the_order_of_submission(workers: int, data: st.DataObject) -> None:
    queue, submitted = ItemQueue(workers), 0
    left: list[int] = []
    slices: dict[int, int] = {}
    at_work: list[int] = []
    for _ in range(60):
        if queue.has_room and (not at_work or data.draw(st.booleans())):
            submitted += 1
            _submit(queue, submitted)
            slices[submitted] = data.draw(st.integers(1, 3))
            at_work.append(submitted)
        else:
            token = at_work.pop(data.draw(st.integers(0, len(at_work) - 1)))
            slices[token] -= 1
            queue.answered(_done(token, more=slices[token] > 0))
        while (head := queue.head()) is not None and head.slice is not None:
            asked = queue.slice_taken(NOW)
            if asked is not None:
                at_work.append(asked)
            done = queue.pop_done()
            if done is not None:
                left.append(done.token or 0)
        queue.validate()
        assert left == list(range(1, len(left) + 1))
        assert all(slices[token] == 0 for token in left)


def test_a_later_answer_waits_for_the_head() -> None:
    queue = ItemQueue(4)
    _submit(queue, 1)
    _submit(queue, 2)
    queue.answered(_done(2))
    head = queue.head()
    assert head is not None
    assert head.token == 1
    assert queue.pop_done() is None
    queue.answered(_done(1))
    for token in (1, 2):
        assert queue.slice_taken(NOW) is None
        done = queue.pop_done()
        assert done is not None
        assert done.token == token


def test_an_item_with_more_slices_stays_at_the_head() -> None:
    queue = ItemQueue(1)
    _submit(queue, 1)
    queue.answered(_done(1, more=True))
    assert queue.slice_taken(NOW) == 1
    assert queue.pop_done() is None
    queue.answered(_done(1))
    assert queue.slice_taken(NOW) is None
    assert queue.pop_done() is not None
    assert queue.head() is None


def test_the_lane_holds_the_workers_items_and_two_more() -> None:
    queue = ItemQueue(3)
    for token in range(1, 6):
        assert queue.has_room
        _submit(queue, token)
    assert not queue.has_room


def test_held_bytes_are_batches_in_work_and_slices_that_have_not_left() -> None:
    queue = ItemQueue(1)
    _submit(queue, 1)
    _submit(queue, 2)
    assert queue.held_bytes == 20
    pieces = tuple(Piece(OutputId("sink"), rows_batch("a", [1]), size) for size in (3, 4))
    queue.answered(ItemDone(AT, RequestToken(1), LaneSlice(pieces)))
    assert queue.held_bytes == 27
    head = queue.head()
    assert head is not None
    head.taken = 1
    assert queue.held_bytes == 24
    queue.slice_taken(NOW)
    queue.pop_done()
    assert queue.held_bytes == 10


def test_a_lane_that_does_not_answer_is_told_after_thirty_seconds() -> None:
    queue = ItemQueue(1)
    assert queue.wait(MonotonicMs(10**9)) is None, "nothing is at work"
    queue.submitted(RequestToken(1), None, MonotonicMs(1_000))
    queue.submitted(RequestToken(2), None, MonotonicMs(30_000))
    assert queue.wait(MonotonicMs(1_000 + STALL_TIMEOUT_MS - 1)) is None
    wait = queue.wait(MonotonicMs(1_000 + STALL_TIMEOUT_MS))
    assert wait is not None
    assert wait.waited_ms == STALL_TIMEOUT_MS
    queue.answered(ItemDone(Moment(MonotonicMs(40_000), WallMs(0)), RequestToken(1), LaneSlice()))
    assert queue.wait(MonotonicMs(10**9)) is None, "it waits for room in an output, not for a lane"
    queue.slice_taken(MonotonicMs(90_000))
    queue.pop_done()
    assert queue.wait(MonotonicMs(90_000 + STALL_TIMEOUT_MS - 1)) is None, (
        "the next one has just begun"
    )
    assert queue.wait(MonotonicMs(90_000 + STALL_TIMEOUT_MS)) is not None


def test_a_full_lane_takes_a_seal_and_a_seal_takes_no_room() -> None:
    queue = ItemQueue(1)
    for token in range(1, 4):
        _submit(queue, token)
    assert not queue.has_room
    queue.sealing(RequestToken(4), CheckpointId(7), NOW)
    queue.sealing(RequestToken(5), CheckpointId(8), NOW)
    queue.validate()
    queue.answered(_done(1))
    queue.slice_taken(NOW)
    assert queue.pop_done() is not None
    assert queue.has_room


def test_a_seal_leaves_in_its_place_and_a_lane_with_seals_alone_is_idle() -> None:
    queue = ItemQueue(2)
    _submit(queue, 1)
    queue.sealing(RequestToken(2), CheckpointId(7), NOW)
    _submit(queue, 3)
    for token in (2, 3):
        queue.answered(_done(token))
        assert queue.pop_done() is None, "the first item is still at work"
    queue.answered(_done(1))
    left: list[int] = []
    while (head := queue.head()) is not None:
        assert head.answered
        assert not queue.idle
        queue.slice_taken(NOW)
        done = queue.pop_done()
        assert done is not None
        assert (done.checkpoint is None) == (done.token != 2)
        left.append(done.token or 0)
        queue.validate()
    assert left == [1, 2, 3]
    queue.sealing(RequestToken(9), CheckpointId(8), NOW)
    assert queue.idle
    assert len(queue) == 1
