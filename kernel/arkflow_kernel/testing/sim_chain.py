"""One chain inside the simulation: its machine, its real work, and every step that it can take.

A driver like the others (`docs/protocol.md`), only that each duty is a step of its own, which
somebody else chooses: take an envelope off the wire, hand the head of a queue over, start to work
on a request, finish it, hand its answer over. Between any two of them the process may crash.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from arkflow_kernel.chain_work import ChainWork, lane_of
from arkflow_kernel.commit import SourceCuts
from arkflow_kernel.envelope import Data, EndOfStream, Envelope
from arkflow_kernel.errors import ArkflowError, ChannelError, ProcessingError
from arkflow_kernel.ids import Generation, RequestToken, SplitId
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.limits import REPORT_INTERVAL_MS
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    ChainCommand,
    ChainEvent,
    ChainOutcome,
    ChannelBroken,
    CommitSource,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    Emit,
    EndChain,
    GrantCredit,
    ItemDone,
    NextSlice,
    OutcomeKind,
    ReportSoon,
    Request,
    RequestFailed,
    RunItem,
    Submit,
    Tick,
    Write,
)
from arkflow_kernel.snapshot import RestoredChain
from arkflow_kernel.task import ChainTask, Phase
from arkflow_kernel.testing.checkers import check_conservation, check_held
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_channel import SimChannel
from arkflow_kernel.testing.sim_components import SimComponents
from arkflow_kernel.testing.sim_items import SimItems
from arkflow_kernel.testing.sim_rows import rows_of
from arkflow_kernel.testing.sim_world import World

Step = tuple[str, Callable[..., None], object]
"""Name, effect, and what the effect is called with (None: nothing)."""


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


class SimChain:
    """One attempt of one chain."""

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        restored: RestoredChain,
        world: World,
        inputs: list[SimChannel],
        outputs: list[SimChannel],
    ) -> None:
        self.plan, self.generation, self._world = plan, generation, world
        self._clock, self._parts = world.clock, self._made_parts()
        self.work = self._made_work(restored)
        self.task: ChainTask = world.machines.task(
            plan, generation, opened=self.work.opened, restored=restored
        )
        self.inputs, self.outputs = inputs, {channel.id: channel for channel in outputs}
        self._inputs_by_id = {channel.id: channel for channel in inputs}
        self._controls: deque[Control] = deque()
        self.mailbox: deque[ChainEvent] = deque()
        self.broken: ArkflowError | None = None
        self.outcome: ChainOutcome | None = None
        self.gone = False
        self.hung = False
        self.fail_next: Callable[[Request], ArkflowError] | None = None
        self.report_soon = False
        self.reported_ms: int = world.clock.moment().now_ms
        self._queues: dict[object, tuple[str, int, deque[Request]]] = {}
        self._schedule: Schedule = world.machines.schedule(plan.workers)
        self._in_work: list[Submit | NextSlice] = []
        self._items = SimItems(plan, world)
        self._stopped_input = False
        self._error_channels = self._side_channels()
        self._ordered = world.order.ordered(plan.chain)
        self.due_ms: int | None = None

    def _made_parts(self) -> SimComponents:
        return SimComponents(self.plan, self._world)

    def _made_work(self, restored: RestoredChain) -> ChainWork:
        work: ChainWork = self._world.machines.work(self.plan, self._parts, self._clock)
        work.open(restored)
        return work

    def _side_channels(self) -> set[str]:
        outlets = (o for o in self.plan.outlets if o.output == self.plan.error_output)
        return {channel.channel for outlet in outlets for channel in outlet.channels}

    # --- what may happen next ------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Every step of this chain that is possible now."""
        steps: list[Step] = []
        if self.hung:
            return steps
        task, ended = self.task, self.outcome is not None
        if self._controls or self.mailbox:
            steps += [("handle", self._handle_next, None)] * 2
        for channel in self.inputs:
            if channel.wire:
                steps.append(("arrive", channel.arrive, None))
            if channel.queue and not ended and not self._controls and task.takes(channel.id):
                steps.append(("deliver", self._deliver, channel))
        for channel in self.outputs.values():
            if channel.grants:
                steps.append(("grant", self._grant, channel))
        if self.broken is not None and not ended:
            steps.append(("hear of a break", self._hear_of_break, None))
        if ended:
            return steps
        for name, slow, queue in self._queues.values():
            if queue and (slow == 1 or self._world.dice.one_in(slow)):
                steps.append((name, self._work_off_head, queue))
        for request in self._in_work:
            steps.append(("process", self._work_off_item, request))
        if self.due_ms is not None and self._clock.now_ms >= self.due_ms:
            steps.append(("tick", self._tick, None))
        return steps

    def control(self, state: ControlState) -> None:
        """A control message arrived."""
        self._controls.append(Control(self._clock.moment(), state))

    def report_due(self) -> bool:
        """Whether a heartbeat is due."""
        late = self._clock.now_ms - self.reported_ms >= REPORT_INTERVAL_MS
        return late and not self.hung and self.outcome is None

    @property
    def alive(self) -> bool:
        """Its process is there."""
        return not self.gone

    def close(self) -> None:
        """Close the components in order (T4)."""
        self.gone = True
        errors = self.work.close()
        if errors:
            raise ViolationError(f"closing failed: {errors}")

    # --- steps ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._handle(Tick(self._clock.moment()))

    def _handle_next(self) -> None:
        event = self._controls.popleft() if self._controls else self.mailbox.popleft()
        if isinstance(event, ItemDone):
            self._items.heard(event)
        self._handle(event)

    def _hear_of_break(self) -> None:
        assert self.broken is not None
        error, self.broken = self.broken, None
        self._handle(ChannelBroken(self._clock.moment(), error))

    def _grant(self, channel: SimChannel) -> None:
        """The newest grant swallows the others, or they come one by one."""
        grants = channel.grants
        if len(grants) > 1 and self._world.dice.one_in(2):
            self._world.probes["grant swallowed"] += 1
            newest = grants[-1]
            grants.clear()
        else:
            newest = grants.popleft()
        channel.granted(newest)
        words = newest.taken_upto, newest.settled_upto
        self.mailbox.append(CreditGranted(self._clock.moment(), channel.id, *words))

    def _deliver(self, channel: SimChannel) -> None:
        self._check_fair(channel)
        envelope = channel.queue.popleft()
        if isinstance(envelope, Data):
            envelope = envelope.joined()
        fits = channel.delivered(envelope)
        if isinstance(envelope, Data) and fits:
            self._items.arrives(channel.id, envelope, self.task._flow.outstanding.token())
        if isinstance(envelope, EndOfStream):
            self._stopped_input |= envelope.stopped
        self._handle(Deliver(self._clock.moment(), channel.id, envelope))
        failed = self.outcome is not None and self.outcome.kind is OutcomeKind.FAILED
        if not fits and not failed:
            raise ViolationError(f"{channel.id} accepted {_short(envelope)} (E6)")

    def _check_fair(self, taken: SimChannel) -> None:
        """No input is kept waiting while another one is taken (T1)."""
        for channel in self.inputs:
            ended = self.task._flow.inlets._inlets[channel.id].ended
            waits = channel is not taken and channel.queue and not ended
            if waits and not self._paused(channel) and not self.task.takes(channel.id):
                raise ViolationError(f"{channel.id} starves beside {taken.id} (T1)")

    def _paused(self, channel: SimChannel) -> bool:
        """Whether an input waits for the barriers of others."""
        return self.task._flow.rounds.paused(channel.id)

    def _handle(self, event: ChainEvent) -> None:
        late = self.outcome is not None
        commands = self.task.handle(event)
        if late and commands:
            raise ViolationError(f"commands after the end: {commands}")
        for command in commands:
            self._perform(command)
        self.task.validate()
        self.due_ms = self.task.next_deadline_ms()
        if self.plan.source is not None:
            self._world.lineage.check_positions(self.task.frontier(), "frontier")

    def _perform(self, command: ChainCommand) -> None:
        match command:
            case Submit():
                self._submitted(command)
                self._schedule.put(command)
                self._start_items()
            case NextSlice():
                self._schedule.put(command)
                self._start_items()
            case Emit():
                self._emit(command)
            case GrantCredit():
                self._items.check_grant(command, self.task._flow.outputs.rows_to.values())
                self._inputs_by_id[command.channel].grants.append(command)
            case ReportSoon():
                self.report_soon = True
            case EndChain():
                self.outcome = command.outcome
                self._queues.clear()
                self._in_work.clear()
            case _:
                self._lane(command).append(command)

    def _lane(self, request: Request) -> deque[Request]:
        key = lane_of(request)
        known = self._queues.get(key)
        if known is None:
            sink = self._world.scenario.sinks.get(key.output) if key.output else None  # type: ignore[call-overload]
            known = key.name.value, 1 if sink is None else sink.slow, deque()
            self._queues[key] = known
        return known[2]

    def _submitted(self, command: Submit) -> None:
        item, upto = command.item, None
        if isinstance(item, RunItem) and self.plan.source is not None:
            assert item.origin.source is not None
            upto = self._read_upto(SplitId(item.origin.source))
        self._items.submitted(command, upto)

    def _read_upto(self, split: SplitId) -> SplitPosition:
        """Where a split continues behind what the machine has submitted."""
        commits = self.task._flow.commits
        if isinstance(commits, SourceCuts):
            return commits._read[split]
        return commits._frontiers[split]._pairs[-1][1]

    def _emit(self, command: Emit) -> None:
        channel, envelope = self.outputs[command.channel], command.envelope
        channel.emit(envelope)
        if isinstance(envelope, Data):
            if len(envelope.pieces) > 1:
                self._world.probes["coalesced"] += 1
            if command.channel not in self._error_channels:
                for piece in envelope.pieces:
                    self._world.order.passed(command.channel, self._ordered, rows_of(piece))

    # --- work ----------------------------------------------------------------------------------

    def _start_items(self) -> None:
        while (request := self._schedule.next()) is not None:
            self._items.starts(request)
            self._in_work.append(request)

    def _work_off_head(self, queue: deque[Request]) -> None:
        request = queue.popleft()
        if isinstance(request, CommitSource):
            self._world.lineage.check_positions(request.positions, "committed position")
        self.mailbox.append(self._answer(request))

    def _work_off_item(self, request: Submit | NextSlice) -> None:
        self._in_work.remove(request)
        answer = self._answer(request)
        self.mailbox.append(answer)
        more = isinstance(answer, ItemDone) and answer.more
        if isinstance(answer, ItemDone):
            self._items.yielded(answer)
        else:
            self._items.failed(request.token)
        if self._world.misuses:
            raise ViolationError(f"a port was misused: {self._world.misuses}")
        self._schedule.answered(request.token, more=more)
        self._start_items()

    def _answer(self, request: Request) -> ChainEvent:
        """Do the work; an injected fault strikes before it, or hides that it was done."""
        if self.fail_next is None:
            answer = self.work.perform(request)
            if isinstance(answer, RequestFailed) and not isinstance(answer.error, ProcessingError):
                raise ViolationError(f"work failed: {answer.error}") from answer.error
            return answer
        error, self.fail_next = self.fail_next(request), None
        if isinstance(request, Write):
            self.work.perform(request)
        return RequestFailed(self._clock.moment(), request.token, error)

    # --- checks --------------------------------------------------------------------------------

    def check_held(self, statistics: ChainStatistics) -> None:
        """The machine's account of its memory is right."""
        check_held(self.task, self._items.sizes(), statistics)

    @property
    def told(self) -> bool:
        """Whether control has reached it: every chain is connected."""
        return self.task.phase is not Phase.WAITING

    def check_end(self, *, faulty: bool) -> None:
        """At the end that the machine chose. `faulty`: something went wrong in this attempt."""
        assert self.outcome is not None
        kind, frontier = self.outcome.kind, self.outcome.frontier
        self._world.lineage.check_positions(frontier, "final frontier")
        fails = any(self._world.scenario.operators[op.operator].fails for op in self.plan.operators)
        if kind in (OutcomeKind.FINISHED, OutcomeKind.STOPPED):
            check_conservation(self.plan, self.task.statistics(), fails)
            self._world.lineage.check_stopped_at(frontier)
            self._check_last_commit()
            for channel in self.outputs.values():
                if channel.settled != channel.sent:
                    raise ViolationError(f"{channel.id} ended before all was settled (T3)")
        if kind is OutcomeKind.FAILED:
            error = self.outcome.error
            expected = faulty if isinstance(error, ChannelError) else "injected" in str(error)
            if not expected and not (fails and isinstance(error, ProcessingError)):
                raise ViolationError(f"{self.plan.chain} failed without a fault: {error}")
        finished = {part.finished for part in self._parts.operators}
        if (kind is OutcomeKind.STOPPED or self._stopped_input) and finished - {0}:
            raise ViolationError(f"{self.plan.chain} was stopped and finished its operators (D5)")
        if kind is OutcomeKind.FINISHED and finished - {1}:
            raise ViolationError(f"{self.plan.chain} finished without its operators (T3)")

    def _check_last_commit(self) -> None:
        assert self.outcome is not None
        source = self._parts.read
        if source is None or not source.commits:
            return
        if source.committed and source.committed[-1] != self.outcome.frontier:
            raise ViolationError("the source was not told the final frontier (F3)")
        if self.task.statistics().settled_rows and not source.committed:
            raise ViolationError("rows were settled and never committed (F3)")


def _short(envelope: Envelope) -> str:
    if isinstance(envelope, Data):
        return f"batch {envelope.sequence}"
    return str(envelope)


DEFAULT_SCHEDULE: Callable[[int], Schedule] = LaneSchedule

__all__ = ["DEFAULT_SCHEDULE", "Schedule", "SimChain", "Step"]
