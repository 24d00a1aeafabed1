"""Where the time of a chain goes: how long a source was held back, and how long results waited for
room in an output (K6, R4)."""

from typing import Any

from arkflow_kernel.ids import Generation, OutputId, RequestToken, Sequence, SplitId
from arkflow_kernel.limits import LANE_ITEMS_QUEUED_MAX
from arkflow_kernel.ports import SourceBatch, WriteReceipt
from arkflow_kernel.protocol import (
    Control,
    ControlState,
    Desired,
    ItemDone,
    LaneSlice,
    Piece,
    ReadSource,
    Request,
    SourceRead,
    Submit,
    Write,
    WriteDone,
)
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

BATCH = SourceBatch(SplitId("a"), rows_batch("a", [1]), {"row": 1})


class Chain:
    """A chain from a source to a sink, one worker; the test answers its requests, oldest first."""

    def __init__(self) -> None:
        self.task, self.clock = ChainTask(chain_plan(), Generation(1)), VirtualClock()
        self.open: dict[RequestToken, Request] = {}
        self.written = 0
        self.take(Control(self.clock.moment(), ControlState(Generation(1), Desired.RUN)))

    def take(self, event: Any) -> None:
        for command in self.task.handle(event):
            assert isinstance(command, ReadSource | Submit | Write), "it asks for nothing else"
            self.open[command.token] = command
        self.task.validate()

    def _asked(self, kind: type[Request]) -> RequestToken:
        token = next(token for token, each in self.open.items() if isinstance(each, kind))
        del self.open[token]
        return token

    def reads(self, count: int = 1) -> None:
        for _ in range(count):
            self.take(SourceRead(self.clock.moment(), self._asked(ReadSource), BATCH, 10))

    def works(self, pieces: int) -> None:
        """The oldest item is done, and yields so many batches."""
        piece = Piece(OutputId("sink"), BATCH.batch, 10)
        slice_ = LaneSlice((piece,) * pieces)
        self.take(ItemDone(self.clock.moment(), self._asked(Submit), slice_))

    def writes(self) -> None:
        self.written += 1
        receipt = WriteReceipt(Sequence(self.written))
        self.take(WriteDone(self.clock.moment(), self._asked(Write), receipt))

    @property
    def times(self) -> tuple[int, int]:
        """How long its source was held back, and its results blocked."""
        told = self.task.report(self.clock.moment()).statistics
        return told.held_ms, told.blocked_ms


def test_a_source_is_held_back_while_what_it_read_finds_no_room_in_the_lane() -> None:
    chain = Chain()
    chain.reads(1 + LANE_ITEMS_QUEUED_MAX)
    chain.clock.advance(70)
    assert chain.times == (0, 0), "nothing was read that had to wait"
    chain.reads()
    chain.clock.advance(100)
    assert chain.times == (100, 0), "also while it goes on"
    chain.works(0)
    chain.clock.advance(50)
    assert chain.times == (100, 0)
    chain.reads()
    chain.clock.advance(5)
    assert chain.times == (105, 0)


def test_results_are_blocked_while_an_output_has_no_room_for_them() -> None:
    chain = Chain()
    chain.reads()
    chain.works(9)
    chain.clock.advance(30)
    assert chain.times == (0, 30)
    waiting = 0
    while chain.times[1] == 30 + waiting:
        chain.writes()
        chain.clock.advance(1)
        waiting += 1
    assert 1 < waiting < 9, "what the sink has taken is its own business"
    chain.clock.advance(50)
    assert chain.times == (0, 29 + waiting)


def test_a_source_that_is_stopped_is_held_back_no_longer() -> None:
    chain = Chain()
    chain.reads(2 + LANE_ITEMS_QUEUED_MAX)
    chain.clock.advance(10)
    chain.take(Control(chain.clock.moment(), ControlState(Generation(1), Desired.STOP)))
    chain.clock.advance(90)
    assert chain.times == (10, 0), "what was read ahead is forgotten"
