"""One chain inside the simulation: its machine, its real work, and every step that it can take.

A driver like the others (`docs/protocol.md`), only that each duty is a step of its own, which
somebody else chooses: start to work on a request, finish it, hand its answer over. Between any two
of them the attempt may crash.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from arkflow_kernel.chain_work import ChainWork, LaneKey, LaneName, lane_of
from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import Generation, RequestToken
from arkflow_kernel.lane import LaneSchedule
from arkflow_kernel.limits import LANE_ITEMS_QUEUED_MAX, WRITES_QUEUED_MAX
from arkflow_kernel.ports import SourceBatch, SplitPosition
from arkflow_kernel.protocol import (
    ChainCommand,
    ChainEvent,
    ChainOutcome,
    CommitSource,
    Control,
    ControlState,
    EndChain,
    ItemDone,
    NextSlice,
    OutcomeKind,
    Request,
    RequestFailed,
    RunItem,
    SourceRead,
    Submit,
    Tick,
    Write,
)
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.checkers import ChainLedger, ViolationError, check_conservation
from arkflow_kernel.testing.components import (
    ScriptedComponents,
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
)
from arkflow_kernel.testing.scenario import ChainScript
from arkflow_kernel.testing.virtual_clock import VirtualClock

Step = tuple[str, int, Callable[[], None]]
"""Name, weight and effect of something that may happen next."""


class Schedule(Protocol):
    """What the simulation needs of a `LaneSchedule`, so a planted one fits too."""

    def put(self, request: Submit | NextSlice) -> None:
        """See `LaneSchedule`."""
        ...

    def next(self) -> Submit | NextSlice | None:
        """See `LaneSchedule`."""
        ...

    def answered(self, token: RequestToken, *, more: bool) -> None:
        """See `LaneSchedule`."""
        ...


@dataclass
class _Traffic:
    """What went through the driver: for the bounds."""

    submitted: set[RequestToken] = field(default_factory=set)
    partial: set[RequestToken] = field(default_factory=set)
    batches_read: int = 0
    batches_submitted: int = 0
    writes_done: int = 0


class SimChain:
    """One attempt of one chain."""

    def __init__(
        self,
        script: ChainScript,
        ledger: ChainLedger,
        clock: VirtualClock,
        restored: tuple[SplitPosition, ...],
        *,
        make_task: Callable[..., ChainTask],
        schedule: Callable[[int], Schedule],
        generation: Generation,
    ) -> None:
        self.script, self.ledger, self._clock = script, ledger, clock
        self.source: ScriptedSource = script.source()
        self.sinks = {sink.name: sink.make() for sink in script.sinks}
        for name, sink in self.sinks.items():
            sink.on_write = _bound(ledger.written, name)
            sink.on_publish = _bound(ledger.published, name)
        self.operators = script.operators()
        components = ScriptedComponents(
            {"source": self.source}, dict(self.operators), dict(self.sinks)
        )
        self.work = ChainWork(script.plan, components, clock)
        self.work.open(restored)
        self.task = make_task(script.plan, generation, commits=script.commits, restored=restored)
        self.controls: deque[Control] = deque()
        self.mailbox: deque[ChainEvent] = deque()
        self.outcome: ChainOutcome | None = None
        self.closed = False
        self.hung = False
        self.fail_next = False
        self._queues: dict[LaneKey, deque[Request]] = {}
        self._schedule = schedule(script.plan.workers)
        self._in_work: list[Submit | NextSlice] = []
        self._traffic = _Traffic()

    # --- what may happen next ------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Every step of this chain that is possible now."""
        if self.hung or self.closed:
            return []
        steps: list[Step] = []
        if self.controls or self.mailbox:
            steps.append(("handle", 6, self._handle_next))
        if self.outcome is not None:
            return steps
        for key, queue in self._queues.items():
            if queue:
                steps.append((key.name.value, 3, _call(self._work_off_head, queue)))
        for index, request in enumerate(self._in_work):
            steps.append(("process", 3, _call(self._work_off_item, index, request)))
        due_ms = self.task.next_deadline_ms()
        if due_ms is not None and self._clock.moment().now_ms >= due_ms:
            steps.append(("tick", 3, self._tick))
        return steps

    def control(self, state: ControlState) -> None:
        """A control message arrived."""
        self.controls.append(Control(self._clock.moment(), state))

    def close(self) -> None:
        """Close the components and check that nothing leaks (T4)."""
        self.closed = True
        errors = self.work.close()
        if errors:
            raise ViolationError(f"closing failed: {errors}")
        counts = [(self.source.opened, self.source.closed)]
        counts += [(part.opened, part.closed) for part in self.operators.values()]
        counts += [(part.opened, part.closed) for part in self.sinks.values()]
        if any(count != (1, 1) for count in counts):
            raise ViolationError("a component was not opened and closed exactly once")

    # --- steps ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._handle(Tick(self._clock.moment()))

    def _handle_next(self) -> None:
        self._handle(self.controls.popleft() if self.controls else self.mailbox.popleft())

    def _handle(self, event: ChainEvent) -> None:
        late = self.outcome is not None
        if isinstance(event, SourceRead) and isinstance(event.result, SourceBatch):
            self._traffic.batches_read += 1
        commands = self.task.handle(event)
        if late and commands:
            raise ViolationError(f"commands after the end: {commands}")
        for command in commands:
            self._perform(command)
        self.check()

    def _perform(self, command: ChainCommand) -> None:
        match command:
            case EndChain():
                self.outcome = command.outcome
                self._queues.clear()
                self._in_work.clear()
            case Submit() | NextSlice():
                if isinstance(command, Submit):
                    self._traffic.submitted.add(command.token)
                    self._traffic.batches_submitted += isinstance(command.item, RunItem)
                self._schedule.put(command)
                self._start_items()
            case _:
                self._queues.setdefault(lane_of(command), deque()).append(command)

    def _start_items(self) -> None:
        while (request := self._schedule.next()) is not None:
            partial = self._traffic.partial
            if isinstance(request, Submit) and partial and self.script.plan.workers == 1:
                raise ViolationError(
                    "an item started before the last slice of the one before (T1c)"
                )
            self._in_work.append(request)

    def _work_off_head(self, queue: deque[Request]) -> None:
        self._answer(queue.popleft())

    def _work_off_item(self, index: int, request: Submit | NextSlice) -> None:
        del self._in_work[index]
        event = self._answer(request)
        more = isinstance(event, ItemDone) and event.more
        if more:
            self._traffic.partial.add(request.token)
        else:
            self._traffic.partial.discard(request.token)
            self._traffic.submitted.discard(request.token)
        self._schedule.answered(request.token, more=more)
        self._start_items()

    def _answer(self, request: Request) -> ChainEvent:
        """Do the work; an injected fault strikes before it, or hides that it was done."""
        event: ChainEvent
        if self.fail_next:
            self.fail_next = False
            if isinstance(request, Write):
                self.work.perform(request)
            event = RequestFailed(self._clock.moment(), request.token, SourceError("injected"))
        else:
            event = self.work.perform(request)
        if isinstance(request, CommitSource):
            self.ledger.check_positions(request.positions, "committed position")
        self._traffic.writes_done += isinstance(request, Write)
        self.mailbox.append(event)
        return event

    # --- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        self.task.validate()
        parts: list[ScriptedOperator | ScriptedSink] = [*self.operators.values()]
        for part in (*parts, *self.sinks.values()):
            if part.violations:
                raise ViolationError(f"a port was misused: {part.violations}")
        self.ledger.check_positions(self.task.frontier(), "frontier")
        workers, traffic = self.script.plan.workers, self._traffic
        if len(traffic.submitted) > workers + LANE_ITEMS_QUEUED_MAX:
            raise ViolationError(f"{len(traffic.submitted)} items in the lane, {workers} workers")
        statistics = self.task.statistics()
        writes = statistics.batches_out - traffic.writes_done
        if writes > len(self.sinks) * (1 + WRITES_QUEUED_MAX):
            raise ViolationError(f"{writes} batches wait for {len(self.sinks)} sinks")
        if traffic.batches_read - traffic.batches_submitted > 1 and self.outcome is None:
            raise ViolationError("more than one batch was read ahead (B3)")
        for key, queue in self._queues.items():
            most = 2 if key.name is LaneName.READ else 1
            if len(queue) > most:
                raise ViolationError(f"{len(queue)} requests wait in {key}")

    def check_end(self) -> None:
        """At the end that the machine chose."""
        assert self.outcome is not None
        self.ledger.check_positions(self.outcome.frontier, "final frontier")
        match self.outcome.kind:
            case OutcomeKind.FINISHED:
                self.ledger.check_finished()
                check_conservation(self.script, self.task.statistics())
                self._check_last_commit()
            case OutcomeKind.STOPPED:
                self.ledger.check_stopped(self.outcome.frontier)
                check_conservation(self.script, self.task.statistics())
                self._check_last_commit()
            case OutcomeKind.FAILED:
                if "injected" not in str(self.outcome.error):
                    raise ViolationError(f"failed without a fault: {self.outcome.error}")
            case OutcomeKind.CANCELLED:
                pass

    def _check_last_commit(self) -> None:
        assert self.outcome is not None
        commits = self.source.committed
        if commits and commits[-1] != self.outcome.frontier:
            raise ViolationError("the source was not told the final frontier (F3)")
        settled = self.task.statistics().settled_rows
        if self.script.commits and settled and not commits:
            raise ViolationError("rows were settled and never committed (F3)")


def _bound(call: Callable[[str, list[tuple[str, int]]], None], name: str) -> Callable[..., None]:
    return lambda rows: call(name, rows)


def _call(step: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: step(*arguments)


DEFAULT_SCHEDULE: Callable[[int], Schedule] = LaneSchedule

__all__ = ["DEFAULT_SCHEDULE", "Schedule", "SimChain", "Step"]
