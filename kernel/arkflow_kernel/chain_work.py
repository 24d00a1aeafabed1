"""The driver's half of one chain: its built components, and the work that answers each request.

Every driver uses it; they differ only in where they call it. `perform` is synchronous and turns
any failure of a component into `RequestFailed`, so each request gets exactly one answer.
`lane_of` says which requests may overlap: those of different lanes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import cast

from arkflow_kernel.chain_clock import NO_SOURCE, OpenedSource
from arkflow_kernel.checkpoint_ports import EpochSink, ObjectStore, Staging
from arkflow_kernel.component_factory import ComponentFactory
from arkflow_kernel.errors import ArkflowError, ComponentError, SinkError, SourceError, StoreError
from arkflow_kernel.event_time_gate import EventTimeGate
from arkflow_kernel.ids import (
    FIRST_GENERATION,
    CheckpointId,
    Generation,
    OutputId,
    RequestToken,
    Sequence,
)
from arkflow_kernel.kernel_operators import kernel_operator
from arkflow_kernel.lane import ChainLane, LaneAnswer
from arkflow_kernel.object_names import object_stem
from arkflow_kernel.operators.running_count import counted
from arkflow_kernel.plan import ChainPlan, OperatorPlan, SinkPlan, Subtask
from arkflow_kernel.ports import (
    Clock,
    Operator,
    ReplayKind,
    SinkWriter,
    SourceBatch,
    SourceReader,
    WriteReceipt,
)
from arkflow_kernel.protocol import (
    AdvanceItem,
    ChainEvent,
    ChainOutcome,
    CommitPermit,
    CommitSource,
    FinishItem,
    FlushSink,
    ItemDone,
    LaneSlice,
    NextSlice,
    OutcomeKind,
    PublishFailed,
    PublishTokens,
    ReadSource,
    Request,
    RequestFailed,
    RollSink,
    RunItem,
    SealItem,
    SealSink,
    SnapshotUploaded,
    SourceCommitted,
    SourceRead,
    Submit,
    TickItem,
    TokensPublished,
    UploadFailed,
    UploadSnapshot,
    Write,
    WriteDone,
    WriteRequest,
)
from arkflow_kernel.resource_guard import Resource, ResourceGuard
from arkflow_kernel.snapshot import (
    NOTHING_RESTORED,
    ChainSnapshot,
    ObjectRef,
    RestoredChain,
    SinkToken,
)
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates


class LaneName(Enum):
    """Which of a chain's lanes does a request's work."""

    READ = "read"
    PROCESS = "process"
    WRITE = "write"
    UPLOAD = "upload"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class LaneKey:
    """A lane of a chain: requests of one key run one after the other, in order."""

    name: LaneName
    output: OutputId | None = None


NOTHING_CONFIRMED = Sequence(0)
"""What the receipts of an exactly-once sink confirm: its rows count when they are published."""

_READ, _PROCESS, _UPLOAD = (
    LaneKey(name) for name in (LaneName.READ, LaneName.PROCESS, LaneName.UPLOAD)
)


def lane_of(request: Request) -> LaneKey:
    """The lane that works the request off. Reads and commits share one (F3)."""
    match request:
        case ReadSource() | CommitSource():
            return _READ
        case Submit() | NextSlice():
            return _PROCESS
        case Write() | RollSink() | FlushSink() | SealSink():
            return LaneKey(LaneName.WRITE, request.output)
        case UploadSnapshot():
            return _UPLOAD
        case PublishTokens():
            return LaneKey(LaneName.PUBLISH, request.output)


class ChainWork:
    """Components of one chain, opened in guard order (R1).

    `objects` is the job's checkpoint store, None in ack mode.
    """

    def __init__(
        self,
        plan: ChainPlan,
        components: ComponentFactory,
        clock: Clock,
        *,
        generation: Generation = FIRST_GENERATION,
        objects: ObjectStore | None = None,
    ) -> None:
        self.plan = plan
        self._clock = clock
        self._generation = generation
        self._logged_upto: CheckpointId | None = None
        self._guard = ResourceGuard()
        self._source = None if plan.source is None else components.source(plan.source)
        self._gate = _gate(plan)
        self._opened = NO_SOURCE if self._source is None else OpenedSource(self._source.commits)
        self._journal = CommitOnAck(lambda: clock.moment().wall_ms)
        self._states = ChainStates(plan, generation, objects)
        self._operators = [self._operator(op, components) for op in plan.operators]
        self._sinks: dict[OutputId, SinkWriter] = {}
        self._epochs: dict[OutputId, EpochSink] = {}
        self._objects: list[ObjectRef] = []
        self._tokens: list[SinkToken] = []
        for sink in plan.sinks:
            self._make_sink(sink, components, objects)
        self._lane = ChainLane(plan, self._operators, lambda: clock.moment().now_ms, self._journal)

    def _make_sink(
        self, plan: SinkPlan, components: ComponentFactory, objects: ObjectStore | None
    ) -> None:
        subtask = Subtask(self.plan.subtask, self.plan.parallelism)
        if not plan.exactly_once:
            self._sinks[plan.output] = cast(SinkWriter, components.sink(plan, None, subtask))
            return
        assert objects is not None, "an exactly-once sink stages in the checkpoint store"
        name = object_stem(self._generation, self.plan.chain, plan.operator)
        lane = int(self.plan.subtask)
        staging = Staging(objects, self._generation, lane, name, lambda: self._logged_upto)
        self._epochs[plan.output] = cast(EpochSink, components.sink(plan, staging, subtask))

    def _operator(self, plan: OperatorPlan, components: ComponentFactory) -> Operator:
        """The component, behind what its keyed state adds, or one of the kernel's own."""
        own = kernel_operator(plan, self._journal, self._states)
        if own is not None:
            return own
        operator = components.operator(plan, self.plan.workers)
        if plan.state is None:
            return operator
        assert self.plan.workers == 1, "a chain that keeps state has one lane (T2)"
        return counted(operator, plan.operator, plan.state, self._journal, self._states)

    @property
    def opened(self) -> OpenedSource:
        """What the source said when it was opened."""
        return self._opened

    @property
    def replay(self) -> ReplayKind | None:
        """What the source can repeat after a failure; None without one."""
        return None if self._source is None else self._source.replay

    def open(self, restored: RestoredChain = NOTHING_RESTORED) -> None:
        """Restore and open everything, publish what the snapshot lists; or nothing, and raise
        `ArkflowError` (D1).
        """
        snapshot, self._logged_upto = restored.snapshot, restored.logged_upto
        resources = [Resource("state", lambda: self._restore(snapshot), self._states.close)]
        plan, source = self.plan.source, self._source
        if plan is not None and source is not None:
            opening = _opening(plan.operator, SourceError, lambda: self._open(source, restored))
            resources.append(Resource(f"source '{plan.operator}'", opening, source.close))
        for op, operator in zip(self.plan.operators, self._operators, strict=True):
            opening = _opening(op.operator, ComponentError, operator.open)
            resources.append(Resource(f"operator '{op.operator}'", opening, operator.close))
        sinks: dict[OutputId, SinkWriter | EpochSink] = {**self._sinks, **self._epochs}
        for output, sink in sinks.items():
            opening = _opening(output, SinkError, sink.open)
            resources.append(Resource(f"sink '{output}'", opening, sink.close))
        if snapshot is not None:
            publishing = Resource("tokens", lambda: self._publish_restored(restored), _nothing)
            resources.append(publishing)
        self._guard.open(resources)

    def _open(self, source: SourceReader, restored: RestoredChain) -> None:
        source.open(restored.sources, restored.assigned)
        self._opened = OpenedSource(source.commits, tuple(source.splits()))
        if self._gate is not None:
            self._gate.restore(restored.times)

    def _restore(self, snapshot: ChainSnapshot | None) -> None:
        if snapshot is not None:
            self._states.restore(snapshot.states, snapshot.objects)

    def _publish_restored(self, restored: RestoredChain) -> None:
        """Every token that the record lists, before any source starts (X1)."""
        assert restored.snapshot is not None
        permit = CommitPermit(f"checkpoint {restored.checkpoint} is in the log")
        for lane in restored.snapshot.lanes:
            for token in lane.tokens:
                self._publish(OutputId(token.sink), token, permit)

    def close(self) -> list[Exception]:
        """Close everything in reverse order. Returns the errors; none of them stops the rest."""
        return self._guard.close()

    def perform(self, request: Request) -> ChainEvent:
        """Do the work and answer. Blocks; never raises for a failure of a component."""
        try:
            match request:
                case ReadSource():
                    return self._read(request)
                case CommitSource():
                    return self._commit(request)
                case Submit(item=SealItem() as item):
                    self._states.seal(item.checkpoint)
                    return self._item_done(request.token, LaneAnswer(LaneSlice(), more=False))
                case Submit(item=RunItem() | AdvanceItem() | TickItem() | FinishItem() as item):
                    return self._item_done(request.token, self._lane.run(item))
                case NextSlice():
                    return self._item_done(request.token, self._lane.next_slice(request.token))
                case Write() | RollSink() | FlushSink() | SealSink():
                    return self._write(request)
                case UploadSnapshot():
                    return self._upload(request)
                case PublishTokens():
                    return self._publish_tokens(request)
        except ArkflowError as error:
            return RequestFailed(self._clock.moment(), request.token, error)
        raise AssertionError(request)

    def follow_up(self, request: Request) -> None:
        """What may wait until a request's answer is on its way; in the same lane. Never raises."""
        if isinstance(request, UploadSnapshot):
            self._states.maintain()

    def overdue(self) -> RequestFailed | None:
        """An operator that exceeded its time-out: the answer that its request gets instead (T1b).

        Its thread cannot be stopped; the process must end.
        """
        moment = self._clock.moment()
        late = self._lane.overdue(moment.now_ms)
        return None if late is None else RequestFailed(moment, *late)

    def _read(self, request: ReadSource) -> SourceRead:
        plan, source = self.plan.source, self._source
        assert plan is not None
        assert source is not None
        at, time = self._clock.moment(), None
        with _Failing(plan.operator, SourceError, "read"):
            result = source.read(at.now_ms)
            if self._gate is not None and isinstance(result, SourceBatch):
                result, time = self._gate.apply(result, at.wall_ms)
        size_bytes = result.batch.nbytes if isinstance(result, SourceBatch) else 0
        return SourceRead(self._clock.moment(), request.token, result, size_bytes, time)

    def _commit(self, request: CommitSource) -> SourceCommitted:
        plan, source = self.plan.source, self._source
        assert plan is not None
        assert source is not None
        with _Failing(plan.operator, SourceError, "commit"):
            source.commit(request.positions)
        return SourceCommitted(self._clock.moment(), request.token)

    def _write(self, request: WriteRequest) -> WriteDone:
        now_ms, epochs = self._clock.moment().now_ms, self._epochs.get(request.output)
        sink = epochs or self._sinks[request.output]
        receipt: WriteReceipt
        with _Failing(request.output, SinkError, "write"):
            match request:
                case Write():
                    receipt = sink.write(request.sequence, request.batch, now_ms)
                case RollSink():
                    receipt = sink.roll(now_ms)
                case SealSink() if epochs is not None:
                    epochs.seal(request.epoch)
                    receipt = WriteReceipt(NOTHING_CONFIRMED)
                case FlushSink() | SealSink():
                    receipt = self._sinks[request.output].flush(now_ms)
        return WriteDone(self._clock.moment(), request.token, receipt)

    def _upload(self, request: UploadSnapshot) -> SnapshotUploaded | UploadFailed:
        """What is durable already when a part fails is told with the next upload (B6)."""
        try:
            states, objects = self._states.upload(request.epoch)
            self._objects += objects
            for output, sink in self._epochs.items():
                with _Failing(output, SinkError, "stage"):
                    self._tokens += sink.stage(request.epoch)
        except StoreError as error:
            return UploadFailed(self._clock.moment(), request.token, error)
        tokens, self._tokens = tuple(self._tokens), []
        told, self._objects = tuple(self._objects), []
        return SnapshotUploaded(self._clock.moment(), request.token, states, tokens, told)

    def _publish_tokens(self, request: PublishTokens) -> TokensPublished | PublishFailed:
        try:
            for token in request.tokens:
                self._publish(request.output, token, request.permit)
        except ArkflowError as error:
            return PublishFailed(self._clock.moment(), request.token, error)
        return TokensPublished(self._clock.moment(), request.token)

    def _publish(self, output: OutputId, token: SinkToken, permit: CommitPermit) -> None:
        with _Failing(output, SinkError, "publish"):
            self._epochs[output].publish(token, permit)

    def _item_done(self, token: RequestToken, answer: LaneAnswer) -> ItemDone:
        timer = self._lane.timer()
        now, groups = self._clock.moment(), answer.key_groups
        return ItemDone(now, token, answer.slice, answer.more, answer.counts, timer, groups)


def _gate(plan: ChainPlan) -> EventTimeGate | None:
    source = plan.source
    if source is None or source.time is None:
        return None
    return EventTimeGate(source.time, source.operator, late_route=plan.late_output is not None)


def with_close_errors(outcome: ChainOutcome, errors: list[Exception]) -> ChainOutcome:
    """An outcome that does not hide that closing failed: a good end becomes a failed one."""
    if not errors:
        return outcome
    if outcome.error is not None:
        for error in errors:
            outcome.error.add_note(f"and while closing: {error}")
        return outcome
    first = errors[0]
    error = first if isinstance(first, ArkflowError) else ComponentError(f"cannot close: {first}")
    return ChainOutcome(OutcomeKind.FAILED, error, outcome.frontier)


class _Failing:
    """Turns whatever a component raises into the typed error of its kind, naming it."""

    def __init__(self, operator: str, kind: type[ArkflowError], verb: str) -> None:
        self._operator = operator
        self._kind = kind
        self._verb = verb

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ArkflowError):
            message = f"'{self._operator}' failed to {self._verb}: {type(error).__name__}: {error}"
            raise self._kind(message) from error


def _nothing() -> None:
    """There is nothing to close."""


def _opening(
    operator: str, kind: type[ArkflowError], opening: Callable[[], None]
) -> Callable[[], None]:
    def guarded() -> None:
        with _Failing(operator, kind, "open"):
            opening()

    return guarded


__all__ = ["ChainWork", "ComponentFactory", "LaneKey", "LaneName", "lane_of", "with_close_errors"]
