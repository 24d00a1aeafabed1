"""A `ChainTask` driven by hand: answers come when a test says so, a transcript tells all of it.

Every event is followed by `validate()`. What the chain emits and grants is kept for the test, which
carries it to the peer when it likes.
"""

from collections import deque

from arkflow_kernel.chain_clock import OpenedSource
from arkflow_kernel.envelope import Data, Envelope, RoundKind
from arkflow_kernel.errors import ArkflowError, SinkError, StoreError
from arkflow_kernel.ids import (
    ChannelId,
    CheckpointId,
    EventTimeMs,
    Generation,
    MonotonicMs,
    OperatorId,
    OutputId,
    RequestToken,
    Sequence,
    SplitId,
    WallMs,
)
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import ReadResult, SourceBatch, SplitPosition, WriteReceipt
from arkflow_kernel.protocol import (
    BatchTime,
    ChainEvent,
    ChannelBroken,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    Desired,
    Emit,
    EndChain,
    GrantCredit,
    ItemDone,
    LaneSlice,
    Piece,
    PublishFailed,
    ReportSoon,
    Request,
    RequestFailed,
    SnapshotUploaded,
    SourceCommitted,
    SourceRead,
    Tick,
    TokensPublished,
    UploadFailed,
    WriteDone,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    Epoch,
    ObjectRef,
    RestoredChain,
    SinkToken,
    StagedObject,
    StateSnapshot,
)
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)


def sink_token(checkpoint: int, generation: int = 1, sink: str = "sink") -> SinkToken:
    """A sealed epoch of a sink: one object of 10 bytes and one row."""
    ref = ObjectRef(f"{generation}-{sink}-{checkpoint}.sink", 10, "")
    epoch = Epoch(Generation(generation), CheckpointId(checkpoint))
    return SinkToken(OperatorId(sink), 0, epoch, (StagedObject(ref, 1),))


class HandDrivenChain:
    """One chain. `log` and `clock` may be shared by the chains of one scenario.

    `waiting` holds the requests that are not answered yet, oldest first.
    """

    def __init__(
        self,
        plan: ChainPlan,
        *,
        commits: bool = False,
        splits: tuple[SplitId, ...] = (),
        restored: tuple[SplitPosition, ...] = (),
        snapshot: ChainSnapshot | None = None,
        log: Transcript | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self._name = "" if log is None else f"{plan.chain} "
        if snapshot is None:
            snapshot = ChainSnapshot(plan.chain, plan.tasks, sources=restored)
        self.task = ChainTask(
            plan,
            G1,
            opened=OpenedSource(commits, splits),
            restored=RestoredChain(snapshot=snapshot),
        )
        self.log = Transcript() if log is None else log
        self.clock = VirtualClock() if clock is None else clock
        self.emitted: deque[tuple[ChannelId, Envelope]] = deque()
        self.granted: deque[GrantCredit] = deque()
        self.waiting: dict[RequestToken, Request] = {}
        self.end: EndChain | None = None
        self._row = 0

    def note(self, text: str) -> None:
        """A heading in the transcript."""
        self.log.note(text)

    def take(self, event: ChainEvent) -> None:
        """Hand an event over."""
        self.waiting.pop(getattr(event, "token", RequestToken(0)), None)
        commands = self.task.handle(event)
        self.task.validate()
        for command in commands:
            assert self.end is None, "nothing follows the end"
            match command:
                case Emit():
                    self.emitted.append((command.channel, command.envelope))
                case GrantCredit():
                    self.granted.append(command)
                case EndChain():
                    self.end = command
                case ReportSoon():
                    pass
                case _:
                    self.waiting[command.token] = command
        self.log.took(event, list(commands), f"{self._name}{self.task.phase.value}")

    # --- control and time ----------------------------------------------------------------------

    def control(
        self,
        desired: Desired = Desired.RUN,
        generation: Generation = G1,
        *,
        round_id: int = 0,
        kind: RoundKind = RoundKind.PERIODIC,
        failed: int = 0,
        completed: int = 0,
    ) -> None:
        """The coordinator's state."""
        state = ControlState(
            generation,
            desired,
            CheckpointId(round_id),
            kind,
            CheckpointId(failed),
            CheckpointId(completed),
        )
        self.take(Control(self.clock.moment(), state))

    def tick(self, by_ms: int) -> None:
        """Time passes."""
        self.take(Tick(self.clock.advance(by_ms)))

    # --- answers -------------------------------------------------------------------------------

    def read(
        self,
        token: int,
        rows: int | ReadResult,
        *,
        ends: bool = False,
        max_ms: int | None = None,
    ) -> None:
        """The source answers: so many rows of split `a`, or something else.

        `max_ms`: the greatest event time of its split, where the source has event time.
        """
        result = rows if not isinstance(rows, int) else self._batch(rows, ends)
        time = None if max_ms is None else BatchTime(EventTimeMs(max_ms))
        self.take(SourceRead(self.clock.moment(), RequestToken(token), result, time=time))

    def _batch(self, rows: int, ends: bool) -> SourceBatch:
        self._row += rows
        batch = rows_batch("a", range(rows))
        return SourceBatch(SplitId("a"), batch, {"row": self._row}, split_ended=ends)

    def done(
        self,
        token: int,
        *rows: int,
        more: bool = False,
        output: str = "sink",
        timer: int | None = None,
    ) -> None:
        """The lane answers: batches of so many rows for one output, 10 bytes a row.

        `timer`: so many milliseconds from now an operator wants a tick.
        """
        pieces = (Piece(OutputId(output), rows_batch("a", range(n)), 10 * n) for n in rows)
        slice_ = LaneSlice(tuple(pieces))
        at, request = self.clock.moment(), RequestToken(token)
        wall = None if timer is None else WallMs(at.wall_ms + timer)
        self.take(ItemDone(at, request, slice_, more, timer=wall))

    def wrote(self, token: int, upto: int, roll_at: int | None = None) -> None:
        """A sink answers."""
        roll = None if roll_at is None else MonotonicMs(roll_at)
        receipt = WriteReceipt(Sequence(upto), roll)
        self.take(WriteDone(self.clock.moment(), RequestToken(token), receipt))

    def committed(self, token: int) -> None:
        """The source was told."""
        self.take(SourceCommitted(self.clock.moment(), RequestToken(token)))

    def sealed(self, token: int) -> None:
        """An exactly-once sink has sealed its epoch."""
        self.wrote(token, 0)

    def uploaded(
        self,
        token: int,
        *tokens: SinkToken,
        states: tuple[StateSnapshot, ...] = (),
        objects: tuple[ObjectRef, ...] = (),
    ) -> None:
        """Everything is durable."""
        at, request = self.clock.moment(), RequestToken(token)
        self.take(SnapshotUploaded(at, request, states, tokens, objects))

    def upload_failed(self, token: int) -> None:
        """The store does not take it."""
        error = StoreError("the store is full")
        self.take(UploadFailed(self.clock.moment(), RequestToken(token), error))

    def published(self, token: int) -> None:
        """Readers see it."""
        self.take(TokensPublished(self.clock.moment(), RequestToken(token)))

    def publish_failed(self, token: int, message: str = "no") -> None:
        """A sink cannot publish now."""
        error = SinkError(message)
        self.take(PublishFailed(self.clock.moment(), RequestToken(token), error))

    def failed(self, token: int, message: str) -> None:
        """Some request failed."""
        error = SinkError(message)
        self.take(RequestFailed(self.clock.moment(), RequestToken(token), error))

    # --- channels ------------------------------------------------------------------------------

    def deliver(self, sender: "HandDrivenChain") -> None:
        """The next envelope that the sender emitted arrives and is taken, in one piece."""
        channel, envelope = sender.emitted.popleft()
        assert self.task.takes(channel)
        whole = envelope.joined() if isinstance(envelope, Data) else envelope
        self.take(Deliver(self.clock.moment(), channel, whole))

    def credit(self, receiver: "HandDrivenChain") -> None:
        """The receiver's newest word arrives; those before it are lost, which harms nobody."""
        newest = receiver.granted.pop()
        receiver.granted.clear()
        at = self.clock.moment()
        self.take(CreditGranted(at, newest.channel, newest.taken_upto, newest.settled_upto))

    def broken(self, error: ArkflowError) -> None:
        """A channel broke."""
        self.take(ChannelBroken(self.clock.moment(), error))


__all__ = ["G1", "HandDrivenChain", "sink_token"]
