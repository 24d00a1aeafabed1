"""All events and commands of the machines, as data.

A machine takes one event and returns a list of commands: `handle(event) -> list[Command]`. Events
are facts, commands are orders. A *request* carries a token and is answered by exactly one later
event with the same token, even if the work was instant; a *notification* is not answered. The
commands of one `handle` are performed in list order per target; different targets may overlap.

Which docstring says BEFORE or AFTER states a duty of the driver. `docs/protocol.md` shows the loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.envelope import Envelope, RoundKind
from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import (
    EARLIEST,
    FIRST_GENERATION,
    NO_CHECKPOINT,
    ChainId,
    ChannelId,
    CheckpointId,
    EdgeId,
    EventTimeMs,
    Generation,
    MonotonicMs,
    OperatorId,
    OutputId,
    RequestToken,
    Sequence,
    WallMs,
)
from arkflow_kernel.metrics import ChainStatistics, ChainUsage, KeyGroupRows, OperatorCounts, Wait
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import Moment, ReadResult, ReplayKind, SplitPosition, WriteReceipt
from arkflow_kernel.snapshot import (
    NO_PHASES,
    NOTHING_RESTORED,
    CheckpointPhases,
    CheckpointRecord,
    Claim,
    Epoch,
    ObjectRef,
    RestoreChoice,
    RestoredChain,
    RoundAnswer,
    SinkToken,
    StateSnapshot,
)

# --- control -----------------------------------------------------------------------------------


class Desired(IntEnum):
    """What the coordinator wants of a chain. Only grows (B2).

    `STOP`: read no further; what was read goes through, operators keep what they hold. `DRAIN`:
    the same, and the data count as ended, so operators are finished (D5). `END`, in checkpoint
    mode only: the last round is completed; publish its tokens and end.
    """

    RUN = 1
    STOP = 2
    DRAIN = 3
    END = 4
    CANCEL = 5


class Slowest(NamedTuple):
    """The lowest watermark of the job's sources that are not idle, and whose it is (W12)."""

    time_ms: EventTimeMs
    chain: ChainId


NOBODY = Slowest(EARLIEST, ChainId(""))
"""Some source has not said yet."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """The one verb of the coordinator towards a chain (B2): level-triggered, all fields only grow.

    A chain takes the maximum of what it knows and what it is told, so a lost, repeated or
    reordered message is harmless. The first one starts the source.
    """

    generation: Generation
    desired: Desired = Desired.RUN
    round_id: CheckpointId = NO_CHECKPOINT
    round_kind: RoundKind = RoundKind.PERIODIC
    failed_upto: CheckpointId = NO_CHECKPOINT
    completed_upto: CheckpointId = NO_CHECKPOINT
    slowest: Slowest = NOBODY

    def merged(self, other: "ControlState") -> "ControlState":
        """The maximum of both, field by field; both must be of one generation."""
        assert self.generation == other.generation
        newer = self if self.round_id >= other.round_id else other
        return ControlState(
            self.generation,
            max(self.desired, other.desired),
            newer.round_id,
            newer.round_kind,
            max(self.failed_upto, other.failed_upto, key=int),
            max(self.completed_upto, other.completed_upto, key=int),
            max(self.slowest, other.slowest),
        )


class CommitPermit:
    """The right to a dangerous effect. Only the event that justifies it can make one.

    In ack mode an advance of the `CommitFrontier` makes it, for `CommitSource` only.
    """

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"CommitPermit({self.reason})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommitPermit) and other.reason == self.reason

    def __hash__(self) -> int:
        return hash(self.reason)


class OutcomeKind(Enum):
    """How a chain or a job ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChainOutcome:
    """The end of a chain: how, why, and how far its source is settled."""

    kind: OutcomeKind
    error: ArkflowError | None = None
    frontier: tuple[SplitPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The end of a job: the worst of its chains' ends."""

    kind: OutcomeKind
    error: ArkflowError | None = None


# --- items of the lane (T1b) -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunItem:
    """Run one batch through the chain's operators. `bad` goes straight to the error output,
    `untimed` to the late route. `edge`: by which edge it came, None from a source.
    """

    token: RequestToken
    batch: pa.RecordBatch
    bad: pa.RecordBatch | None = None
    origin: Origin = NOWHERE
    untimed: pa.RecordBatch | None = None
    edge: EdgeId | None = None


@dataclass(frozen=True, slots=True)
class AdvanceItem:
    """The chain's watermark has risen: its operators fire what is due. Only in a chain that is
    `timed`. The watermark leaves when all rows of the item have left (N5).
    """

    token: RequestToken
    watermark: EventTimeMs


@dataclass(frozen=True, slots=True)
class TickItem:
    """The moment that an operator asked for has come. Only in a chain that is `timed`."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class FinishItem:
    """The data have ended: flush every operator, once (T3)."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class SealItem:
    """Freeze the state of the chain for a checkpoint, between two items. Yields no rows (B3)."""

    token: RequestToken
    checkpoint: CheckpointId


LaneItem = RunItem | AdvanceItem | TickItem | FinishItem | SealItem


class Piece(NamedTuple):
    """A batch on its way to one output (a sink or a channel); `size_bytes` is the batch's size."""

    output: OutputId
    batch: pa.RecordBatch
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaneSlice:
    """Results of a lane item: at most 32,768 rows and 8 MiB, in order per output (T1c)."""

    pieces: tuple[Piece, ...] = ()


# --- events of a chain -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events: `at` is the driver's clocks when the event was put into the mailbox."""

    at: Moment


@dataclass(frozen=True, slots=True)
class Control(Event):
    """The coordinator's state. BEFORE any other waiting event is handled (T1)."""

    state: ControlState


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """`next_deadline_ms()` has passed."""


@dataclass(frozen=True, slots=True)
class SourceRead(Event):
    """Answer to `ReadSource`. `size_bytes`: what the batch takes, measured where it was read.

    `time` is what the gate found in it (W3); None without event time.
    """

    token: RequestToken
    result: ReadResult
    size_bytes: int = 0
    time: "BatchTime | None" = None


@dataclass(frozen=True, slots=True)
class BatchTime:
    """What the gate found in one batch. `max_ms`: the greatest event time of its split up to its
    end, None before the first; `invalid` rows without a valid time (W5), `ahead` rows too far in
    the future (W4).
    """

    max_ms: EventTimeMs | None
    invalid: int = 0
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class ItemDone(Event):
    """Answer to `Submit` and to `NextSlice`: a slice, and what was counted since the one before.

    `more`: another slice waits in the lane. `timer`: when an operator wants a tick, by the wall
    clock; None: never. The answers to several submitted items may come in any order (T2); the
    machine publishes them in the order in which it submitted.
    """

    token: RequestToken
    slice: LaneSlice
    more: bool = False
    counts: tuple[OperatorCounts, ...] = ()
    timer: WallMs | None = None
    key_groups: tuple[KeyGroupRows, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteDone(Event):
    """Answer to a `WriteRequest`: taken; the receipt says what is confirmed."""

    token: RequestToken
    receipt: WriteReceipt


@dataclass(frozen=True, slots=True)
class SourceCommitted(Event):
    """Answer to `CommitSource`."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class SnapshotUploaded(Event):
    """Answer to `UploadSnapshot`: everything is durable and verified.

    `states` is complete, `tokens` holds what was not staged before, `objects` what is new.
    """

    token: RequestToken
    states: tuple[StateSnapshot, ...] = ()
    tokens: tuple[SinkToken, ...] = ()
    objects: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class UploadFailed(Event):
    """Answer to `UploadSnapshot`: the store does not take it. The round fails, no more (B6)."""

    token: RequestToken
    error: ArkflowError


@dataclass(frozen=True, slots=True)
class TokensPublished(Event):
    """Answer to `PublishTokens`: readers see all of them."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class PublishFailed(Event):
    """Answer to `PublishTokens`: some are not published. It is tried again (X2)."""

    token: RequestToken
    error: ArkflowError


@dataclass(frozen=True, slots=True)
class RequestFailed(Event):
    """Answer to any request whose work raised. Ends the attempt (T5)."""

    token: RequestToken
    error: ArkflowError


@dataclass(frozen=True, slots=True)
class Deliver(Event):
    """The head of an input channel's queue, taken off it. Data come in one piece.

    Only while `ChainTask.takes(channel)`: until then the envelope stays in its queue, and holds
    its sender's credit (T1).
    """

    channel: ChannelId
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class CreditGranted(Event):
    """The receiver of an outgoing channel has taken everything up to `taken_upto` (E4, E8).

    Both numbers are cumulative, so the newest message says all that earlier ones did.
    """

    channel: ChannelId
    taken_upto: Sequence
    settled_upto: Sequence


@dataclass(frozen=True, slots=True)
class ChannelBroken(Event):
    """A connection broke, or its peer broke the channel's rules. Ends the attempt (H9)."""

    error: ArkflowError


ChainEvent = (
    Control
    | Tick
    | SourceRead
    | ItemDone
    | WriteDone
    | SourceCommitted
    | SnapshotUploaded
    | UploadFailed
    | TokensPublished
    | PublishFailed
    | RequestFailed
    | Deliver
    | CreditGranted
    | ChannelBroken
)

# --- commands of a chain -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadSource:
    """Request to the read lane. At most one outstanding (B3). Answer: `SourceRead`."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class Submit:
    """Request to the lane: work off the item AFTER all items submitted before it (T1b).

    A chain with several workers may start items early; it still starts them in order (T2), and
    `Finish` AFTER all items before it are worked off.
    """

    item: LaneItem

    @property
    def token(self) -> RequestToken:
        """The item's token."""
        return self.item.token


@dataclass(frozen=True, slots=True)
class NextSlice:
    """Request to the lane: the next slice of the item whose token this is (T1c)."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class Write:
    """Request to a sink's write lane, AFTER every earlier `Write` to it (T1)."""

    token: RequestToken
    output: OutputId
    sequence: Sequence
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class RollSink:
    """Request to a sink's write lane: the moment that its receipt asked for has come."""

    token: RequestToken
    output: OutputId


@dataclass(frozen=True, slots=True)
class FlushSink:
    """Request to a sink's write lane, AFTER every earlier `Write` to it: confirm all of them."""

    token: RequestToken
    output: OutputId


@dataclass(frozen=True, slots=True)
class SealSink:
    """Request to a sink's write lane, AFTER every earlier `Write` to it (T1).

    An exactly-once sink ends its epoch, any other one confirms every write (F4).
    """

    token: RequestToken
    output: OutputId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class UploadSnapshot:
    """Request to the upload lane: make durable what was sealed up to this epoch (S6, X1).

    AFTER the answers to its `SealItem` and to every `SealSink`. At most one outstanding. What an
    earlier, failed upload left is made durable too.
    """

    token: RequestToken
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class PublishTokens:
    """Request to a sink's publish lane: show these epochs to readers, in this order (X1)."""

    token: RequestToken
    output: OutputId
    permit: CommitPermit
    tokens: tuple[SinkToken, ...]


@dataclass(frozen=True, slots=True)
class ReportSoon:
    """Notification: the coordinator should hear a report now, not with the next heartbeat.

    Nothing is lost if it does not: reports hold all that a coordinator needs to know.
    """


@dataclass(frozen=True, slots=True)
class CommitSource:
    """Request to the read lane: everything below these positions is settled (F3)."""

    token: RequestToken
    permit: CommitPermit
    positions: tuple[SplitPosition, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Notification: send the envelope, AFTER every earlier `Emit` to the same channel (E6).

    Credit for it is there. The driver may join the pieces of data; it keeps nothing back.
    """

    channel: ChannelId
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class GrantCredit:
    """Notification to the sender of an input channel: see `CreditGranted`. A newer one will do."""

    channel: ChannelId
    taken_upto: Sequence
    settled_upto: Sequence


@dataclass(frozen=True, slots=True)
class EndChain:
    """Notification: the machine is done; it answers nothing more.

    The driver drops outstanding requests, closes the components in reverse order (R1, T4) and
    reports the outcome AFTER that. What was emitted and granted before goes out first, unless the
    chain failed or was cancelled.
    """

    outcome: ChainOutcome


WriteRequest = Write | RollSink | FlushSink | SealSink
Request = (
    ReadSource | Submit | NextSlice | WriteRequest | CommitSource | UploadSnapshot | PublishTokens
)
ChainCommand = Request | Emit | GrantCredit | ReportSoon | EndChain

# --- events of a coordinator -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin(Event):
    """Deploy the job. The first event, once."""


@dataclass(frozen=True, slots=True)
class ChainReady(Event):
    """Answer to `DeployChain`: built, opened, waiting for its channels and its control (D1).

    `replay` and `commits` are those of the chain's source, None and False without one.
    """

    token: RequestToken
    chain: ChainId
    replay: ReplayKind | None = None
    commits: bool = False


@dataclass(frozen=True, slots=True)
class ChainConnected(Event):
    """Answer to `ConnectChain`: every outgoing channel of the chain has its peer."""

    token: RequestToken
    chain: ChainId


@dataclass(frozen=True, slots=True)
class ChainReport(Event):
    """What a running chain says of itself, with every heartbeat and after a `ReportSoon`.

    Counters, how far its source is settled, what stalls (E5). In checkpoint mode also its answer
    to the last round, until it hears what became of that; `drained`: its data have ended, by
    themselves or (`stopped`) because a user stopped the job; `published_upto`: no token of a round
    up to this one is unpublished. All of it is level-triggered: a later report of a generation says
    what every earlier one did (P3).
    `number` rises from report to report of a generation; 0 if the driver keeps them in order.
    """

    chain: ChainId
    generation: Generation
    statistics: ChainStatistics
    frontier: tuple[SplitPosition, ...] = ()
    usage: ChainUsage | None = None
    waits: tuple[Wait, ...] = ()
    answer: RoundAnswer | None = None
    drained: bool = False
    stopped: bool = False
    published_upto: CheckpointId = NO_CHECKPOINT
    number: int = 0


@dataclass(frozen=True, slots=True)
class ChainEnded(Event):
    """A chain ended, by itself or because its process died (P1). Its parts are closed or gone.

    May be repeated; those of an older generation are dropped.
    """

    chain: ChainId
    generation: Generation
    outcome: ChainOutcome


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """A user wants the job stopped in order (D5). May be repeated.

    `drain`: its data count as ended. `savepoint`: the last round is for a savepoint of that name.
    """

    drain: bool = False
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class SavepointRequested(Event):
    """A user wants a savepoint; the job goes on (X4). May be repeated."""

    name: str


@dataclass(frozen=True, slots=True)
class RescaleRequested(Event):
    """A user wants the job to go on with another parallelism (K2, K3). May be repeated.

    `graph` is its new plan: the same job, operators and edges, with other subtasks. It is valid.
    """

    graph: ExecutionGraph


@dataclass(frozen=True, slots=True)
class ChainsPrepared(Event):
    """Answer to `PrepareChains`: the processes are there; or, with an `error`, cannot be had."""

    token: RequestToken
    error: ArkflowError | None = None


@dataclass(frozen=True, slots=True)
class Claimed(Event):
    """Answer to `ClaimGeneration`."""

    token: RequestToken
    claim: Claim


@dataclass(frozen=True, slots=True)
class RecordAppended(Event):
    """Answer to `AppendRecord`: it is in the log, for ever."""

    token: RequestToken


@dataclass(frozen=True, slots=True)
class SavepointSaved(Event):
    """Answer to `SaveSavepoint`: `url` is where the copy lies."""

    token: RequestToken
    url: str


@dataclass(frozen=True, slots=True)
class LogFailed(Event):
    """Answer to `ClaimGeneration`, `AppendRecord` or `SaveSavepoint`: it was not done.

    For an append: it is certain that the record is not there, and that it never will be.
    """

    token: RequestToken
    error: ArkflowError


@dataclass(frozen=True, slots=True)
class CancelRequested(Event):
    """A user wants the job gone now (D5). May be repeated."""


CoordinatorEvent = (
    Begin
    | ChainReady
    | ChainConnected
    | ChainReport
    | ChainEnded
    | Claimed
    | RecordAppended
    | SavepointSaved
    | LogFailed
    | StopRequested
    | SavepointRequested
    | RescaleRequested
    | ChainsPrepared
    | CancelRequested
    | Tick
)

# --- commands of a coordinator -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeployChain:
    """Request: create or reuse an actor, build and open the chain's components (D1, P1).

    AFTER the chain's end in the generation before. It restores state, and publishes the tokens that
    its snapshot lists. Answer: `ChainReady`, or `ChainEnded` with the failure.

    `host`: the process that is to run it, by the name that it has until then: that of the chain of
    the attempt before that most of its state is with, or one of `PrepareChains` (K2); a new one if
    there is none of that name. None: its own, or a new one. No two chains are given the same host,
    and from then on the process has the name of the chain that it runs.
    """

    token: RequestToken
    plan: ChainPlan
    generation: Generation
    restored: RestoredChain = NOTHING_RESTORED
    host: ChainId | None = None


@dataclass(frozen=True, slots=True)
class PrepareChains:
    """Request: have processes ready for chains that the next plan adds (K2). Answer:
    `ChainsPrepared`. The running attempt is not touched. A process is known by its plan's chain.
    """

    token: RequestToken
    plans: tuple[ChainPlan, ...]


@dataclass(frozen=True, slots=True)
class ReleaseChains:
    """Notification: processes that may go, by the names of the chains that they were for.
    Those of a `PrepareChains` that came to nothing; and, AFTER the `DeployChain`s of another plan,
    those of the attempt before that have no chain any more.
    """

    chains: tuple[ChainId, ...]


@dataclass(frozen=True, slots=True)
class SendControl:
    """Notification to a chain; may be lost or repeated, so it is sent with every heartbeat (B2)."""

    chain: ChainId
    state: ControlState


@dataclass(frozen=True, slots=True)
class ConnectChain:
    """Request: open the chain's outgoing channels. AFTER all chains of the attempt are ready (D1).

    Answer: `ChainConnected`, or `ChainEnded` with the failure.
    """

    token: RequestToken
    chain: ChainId


@dataclass(frozen=True, slots=True)
class KillChain:
    """Request: end the chain's process without asking it (D4). Answer: `ChainEnded`, if it has
    not come already; a `DeployChain` or `ConnectChain` that waits is answered by the same.
    """

    chain: ChainId
    generation: Generation


@dataclass(frozen=True, slots=True)
class EndJob:
    """Notification: the job is over; its processes may go. AFTER every chain has ended."""

    outcome: JobOutcome


@dataclass(frozen=True, slots=True)
class ClaimGeneration:
    """Request to the log: claim the next generation, and say what it restores (M1, M2).

    Answer: `Claimed` or `LogFailed`. `graph`: the plan that is claimed, if it is not that of the
    claim before (K2).
    """

    token: RequestToken
    choice: RestoreChoice
    unusable: Mapping[CheckpointId, str] = field(default_factory=dict)
    graph: ExecutionGraph | None = None


@dataclass(frozen=True, slots=True)
class AppendRecord:
    """Request to the log: append a checkpoint record. Answer: `RecordAppended` or `LogFailed`."""

    token: RequestToken
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class SaveSavepoint:
    """Request to the log: write a savepoint's own copy. AFTER all of the record's tokens are
    published (X4). Answer: `SavepointSaved` or `LogFailed`.
    """

    token: RequestToken
    record: CheckpointRecord


@dataclass(frozen=True, slots=True)
class CollectGarbage:
    """Notification to the log: drop what the retention leaves (M5). AFTER the append before it."""


CoordinatorCommand = (
    DeployChain
    | ConnectChain
    | PrepareChains
    | ReleaseChains
    | SendControl
    | KillChain
    | ClaimGeneration
    | AppendRecord
    | SaveSavepoint
    | CollectGarbage
    | EndJob
)


class JobState(Enum):
    """States of a job, as `status` shows them."""

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    RESCALING = "rescaling"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a job's state, and why. `number` counts them from 1."""

    number: int
    at: Moment
    before: JobState
    after: JobState
    cause: str


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The checkpoints of a job in checkpoint mode, for users.

    `last` is the newest completed round of this run, `at` when it was completed, `phases` what it
    cost; `restored` says what the running attempt began from, None for nothing. `under_way` is the
    round that is open, `missing` the chains that have not answered it. `failures` counts failed
    rounds in a row, `error` says why the last one failed. `savepoints`: URL by name, or the error.
    """

    last: CheckpointId = NO_CHECKPOINT
    at: Moment | None = None
    phases: CheckpointPhases = NO_PHASES
    restored: str | None = None
    under_way: CheckpointId = NO_CHECKPOINT
    missing: tuple[ChainId, ...] = ()
    failures: int = 0
    error: str | None = None
    savepoints: Mapping[str, str | ArkflowError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RescalePhases:
    """How long a rescale took, in milliseconds: until additional processes were there, until the
    record of its round was in the log, until the chains of the old plan had ended, until the new
    generation was claimed, and until all chains of the new plan ran.
    """

    prepare_ms: int = 0
    round_ms: int = 0
    end_ms: int = 0
    claim_ms: int = 0
    deploy_ms: int = 0


@dataclass(frozen=True, slots=True)
class RescaleStatus:
    """The last rescale of a run, for users. `number` counts them from 1.

    `parallelism` is what was asked for, by operator. `phase` is one of "prepare", "round", "end",
    "claim", "deploy" while it is under way, then "done", "failed" (nothing changed) or "taken back"
    (the new plan did not come to work, the old one runs again); `error` says why.
    """

    number: int
    parallelism: Mapping[OperatorId, int]
    phase: str
    began: Moment
    phases: RescalePhases = RescalePhases()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Snapshot of a job for users: its state, why it is in it, and its chains' counters.

    `generation` is the number of the attempt, `restarts` how many were made after failures;
    `waits` holds what stalls, per chain (E5), `transitions` the last changes of state.
    `parallelism` is that of each operator in the plan at work; `heard_at` when each chain's
    counters came, by the same clock as `since`.
    """

    state: JobState
    cause: str
    since: Moment
    chains: Mapping[ChainId, ChainStatistics] = field(default_factory=dict)
    usage: Mapping[ChainId, ChainUsage] = field(default_factory=dict)
    ready: int = 0
    error: ArkflowError | None = None
    generation: Generation = FIRST_GENERATION
    restarts: int = 0
    waits: Mapping[ChainId, tuple[Wait, ...]] = field(default_factory=dict)
    transitions: tuple[Transition, ...] = ()
    checkpoints: CheckpointStatus | None = None
    rescale: RescaleStatus | None = None
    parallelism: Mapping[OperatorId, int] = field(default_factory=dict)
    heard_at: Mapping[ChainId, MonotonicMs] = field(default_factory=dict)


def deadline(*candidates: MonotonicMs | None) -> MonotonicMs | None:
    """The earliest of the deadlines that are set."""
    return min((c for c in candidates if c is not None), default=None)


__all__ = [
    "NOBODY",
    "AdvanceItem",
    "AppendRecord",
    "BatchTime",
    "Begin",
    "CancelRequested",
    "ChainCommand",
    "ChainConnected",
    "ChainEnded",
    "ChainEvent",
    "ChainOutcome",
    "ChainReady",
    "ChainReport",
    "ChainsPrepared",
    "ChannelBroken",
    "CheckpointStatus",
    "ClaimGeneration",
    "Claimed",
    "CollectGarbage",
    "CommitPermit",
    "CommitSource",
    "ConnectChain",
    "Control",
    "ControlState",
    "CoordinatorCommand",
    "CoordinatorEvent",
    "CreditGranted",
    "Deliver",
    "DeployChain",
    "Desired",
    "Emit",
    "EndChain",
    "EndJob",
    "Event",
    "FinishItem",
    "FlushSink",
    "GrantCredit",
    "ItemDone",
    "JobOutcome",
    "JobState",
    "JobStatus",
    "KillChain",
    "LaneItem",
    "LaneSlice",
    "LogFailed",
    "NextSlice",
    "OutcomeKind",
    "Piece",
    "PrepareChains",
    "PublishFailed",
    "PublishTokens",
    "ReadSource",
    "RecordAppended",
    "ReleaseChains",
    "ReportSoon",
    "Request",
    "RequestFailed",
    "RescalePhases",
    "RescaleRequested",
    "RescaleStatus",
    "RollSink",
    "RunItem",
    "SaveSavepoint",
    "SavepointRequested",
    "SavepointSaved",
    "SealItem",
    "SealSink",
    "SendControl",
    "Slowest",
    "SnapshotUploaded",
    "SourceCommitted",
    "SourceRead",
    "StopRequested",
    "Submit",
    "Tick",
    "TickItem",
    "TokensPublished",
    "Transition",
    "UploadFailed",
    "UploadSnapshot",
    "Write",
    "WriteDone",
    "WriteRequest",
    "deadline",
]
