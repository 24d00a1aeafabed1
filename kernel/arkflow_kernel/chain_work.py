"""The driver's half of one chain: its built components, and the work that answers each request.

Every driver uses it; they differ only in where they call it. `perform` is synchronous and turns
any failure of a component into `RequestFailed`, so each request gets exactly one answer.
`lane_of` says which requests may overlap: those of different lanes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from arkflow_kernel.errors import ArkflowError, ComponentError, SinkError, SourceError
from arkflow_kernel.ids import OutputId, RequestToken
from arkflow_kernel.lane import ChainLane, LaneAnswer
from arkflow_kernel.operators.running_count import counted
from arkflow_kernel.plan import ChainPlan, OperatorPlan, SinkPlan, SourcePlan
from arkflow_kernel.ports import (
    Clock,
    Operator,
    ReplayKind,
    SinkWriter,
    SourceBatch,
    SourceReader,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.protocol import (
    ChainEvent,
    CommitSource,
    FlushSink,
    ItemDone,
    NextSlice,
    ReadSource,
    Request,
    RequestFailed,
    RollSink,
    SourceCommitted,
    SourceRead,
    Submit,
    Write,
    WriteDone,
)
from arkflow_kernel.resource_guard import Resource, ResourceGuard
from arkflow_kernel.state_journal import CommitOnAck


class ComponentFactory(Protocol):
    """Builds a chain's components from their plans; built, not yet opened."""

    def source(self, plan: SourcePlan) -> SourceReader:
        """The source. Raises `ConfigError` or `ComponentError`."""
        ...

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """An operator; `workers` threads may call it at once (T2)."""
        ...

    def sink(self, plan: SinkPlan) -> SinkWriter:
        """A sink."""
        ...


class LaneName(Enum):
    """Which of a chain's lanes does a request's work."""

    READ = "read"
    PROCESS = "process"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class LaneKey:
    """A lane of a chain: requests of one key run one after the other, in order."""

    name: LaneName
    output: OutputId | None = None


_READ, _PROCESS = LaneKey(LaneName.READ), LaneKey(LaneName.PROCESS)


def lane_of(request: Request) -> LaneKey:
    """The lane that works the request off. Reads and commits share one (F3)."""
    match request:
        case ReadSource() | CommitSource():
            return _READ
        case Submit() | NextSlice():
            return _PROCESS
        case Write() | RollSink() | FlushSink():
            return LaneKey(LaneName.WRITE, request.output)


class ChainWork:
    """Components of one chain, opened in guard order (R1)."""

    def __init__(self, plan: ChainPlan, components: ComponentFactory, clock: Clock) -> None:
        self.plan = plan
        self._clock = clock
        self._guard = ResourceGuard()
        self._source = None if plan.source is None else components.source(plan.source)
        self._journal = CommitOnAck(lambda: clock.moment().wall_ms)
        self._operators = [self._operator(op, components) for op in plan.operators]
        self._sinks = {sink.output: components.sink(sink) for sink in plan.sinks}
        self._lane = ChainLane(plan, self._operators, lambda: clock.moment().now_ms, self._journal)

    def _operator(self, plan: OperatorPlan, components: ComponentFactory) -> Operator:
        """The component, behind what its keyed state adds."""
        operator = components.operator(plan, self.plan.workers)
        if plan.state is None:
            return operator
        assert self.plan.workers == 1, "a chain that keeps state has one lane (T2)"
        return counted(operator, plan.operator, plan.state, self._journal)

    @property
    def commits(self) -> bool:
        """Whether the source wants to hear what is settled."""
        return self._source is not None and self._source.commits

    @property
    def replay(self) -> ReplayKind | None:
        """What the source can repeat after a failure; None without one."""
        return None if self._source is None else self._source.replay

    def open(self, restored: tuple[SplitPosition, ...] = ()) -> None:
        """Open everything, or nothing and raise `ArkflowError`."""
        resources = []
        plan, source = self.plan.source, self._source
        if plan is not None and source is not None:
            opening = _opening(plan.operator, SourceError, lambda: source.open(restored))
            resources.append(Resource(f"source '{plan.operator}'", opening, source.close))
        for op, operator in zip(self.plan.operators, self._operators, strict=True):
            opening = _opening(op.operator, ComponentError, operator.open)
            resources.append(Resource(f"operator '{op.operator}'", opening, operator.close))
        for output, sink in self._sinks.items():
            opening = _opening(output, SinkError, sink.open)
            resources.append(Resource(f"sink '{output}'", opening, sink.close))
        self._guard.open(resources)

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
                case Submit():
                    return self._item_done(request.token, self._lane.run(request.item))
                case NextSlice():
                    return self._item_done(request.token, self._lane.next_slice(request.token))
                case Write() | RollSink() | FlushSink():
                    return self._write(request)
        except ArkflowError as error:
            return RequestFailed(self._clock.moment(), request.token, error)

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
        now_ms = self._clock.moment().now_ms
        with _Failing(plan.operator, SourceError, "read"):
            result = source.read(now_ms)
        size_bytes = result.batch.nbytes if isinstance(result, SourceBatch) else 0
        return SourceRead(self._clock.moment(), request.token, result, size_bytes)

    def _commit(self, request: CommitSource) -> SourceCommitted:
        plan, source = self.plan.source, self._source
        assert plan is not None
        assert source is not None
        with _Failing(plan.operator, SourceError, "commit"):
            source.commit(request.positions)
        return SourceCommitted(self._clock.moment(), request.token)

    def _write(self, request: Write | RollSink | FlushSink) -> WriteDone:
        sink = self._sinks[request.output]
        now_ms = self._clock.moment().now_ms
        receipt: WriteReceipt
        with _Failing(request.output, SinkError, "write"):
            match request:
                case Write():
                    receipt = sink.write(request.sequence, request.batch, now_ms)
                case RollSink():
                    receipt = sink.roll(now_ms)
                case FlushSink():
                    receipt = sink.flush(now_ms)
        return WriteDone(self._clock.moment(), request.token, receipt)

    def _item_done(self, token: RequestToken, answer: LaneAnswer) -> ItemDone:
        return ItemDone(self._clock.moment(), token, answer.slice, answer.more, answer.counts)


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


def _opening(
    operator: str, kind: type[ArkflowError], opening: Callable[[], None]
) -> Callable[[], None]:
    def guarded() -> None:
        with _Failing(operator, kind, "open"):
            opening()

    return guarded


__all__ = ["ChainWork", "ComponentFactory", "LaneKey", "LaneName", "lane_of"]
