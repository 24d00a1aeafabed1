"""The inline driver: a whole job in one process and one thread, in real or virtual time.

For `run --inline`, for tests and for embedding. It keeps the contract of every driver: events of
one machine one at a time, control first; each request answered by one later event; commands of
one target in order. Work is done one request at a time, from the outputs back to the source, so
that little waits in memory; batches pass from chain to chain by reference, under the same credit
as anywhere (H10). Nothing overlaps here: speed is the Ray driver's business.
"""

from collections import deque
from collections.abc import Callable

from arkflow_kernel.chain_work import ChainWork, ComponentFactory, with_close_errors
from arkflow_kernel.checkpoint_ports import JobStore
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError
from arkflow_kernel.ids import ChainId, ChannelId, MonotonicMs
from arkflow_kernel.inline_chain import InlineChain
from arkflow_kernel.job_runner_adapter import JobRunner
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.limits import REPORT_INTERVAL_MS
from arkflow_kernel.log_work import LogCommand, perform_log
from arkflow_kernel.plan import ChannelPlan, ExecutionGraph
from arkflow_kernel.ports import Clock
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainCommand,
    ChainConnected,
    ChainEnded,
    ChainEvent,
    ChainOutcome,
    ChainReady,
    ChainsPrepared,
    ConnectChain,
    Control,
    CoordinatorCommand,
    CoordinatorEvent,
    CreditGranted,
    DeployChain,
    Emit,
    EndChain,
    EndJob,
    GrantCredit,
    JobOutcome,
    JobStatus,
    KillChain,
    OutcomeKind,
    PrepareChains,
    ReleaseChains,
    ReportSoon,
    RescaleRequested,
    SavepointRequested,
    SendControl,
    StopRequested,
    Tick,
    deadline,
)
from arkflow_kernel.snapshot import NEWEST, RestoreChoice
from arkflow_kernel.split_dealing import SplitDealer
from arkflow_kernel.task import ChainTask

Caller = Callable[[Callable[[], ChainEvent], Callable[[], ChainEvent | None]], ChainEvent]
"""Calls the work and returns its event, or the second function's as soon as that has one."""

Observer = Callable[[str, object, list[object]], None]
"""Hears (machine, event, commands) after each event: transcripts, checkers."""


def call_directly(
    work: Callable[[], ChainEvent], overdue: Callable[[], ChainEvent | None]
) -> ChainEvent:
    """Call the work in this thread; time-outs of operators cannot be enforced so."""
    del overdue
    return work()


class InlineJob(KernelHandle):
    """A job on the inline driver; a `KernelHandle`. `wait` does all the work.

    `stop` and `cancel` may be called from a signal handler or another thread.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        components: ComponentFactory,
        clock: Clock,
        *,
        store: JobStore | None = None,
        choice: RestoreChoice = NEWEST,
        caller: Caller = call_directly,
        observer: Observer | None = None,
    ) -> None:
        assert (store is None) == (graph.checkpoint is None), "checkpoints need a store"
        self._store = store
        self._components = components
        self._dealer = SplitDealer()
        self._clock = clock
        self._caller = caller
        self._observer = observer
        self._coordinator = JobCoordinator(graph, choice=choice)
        self._chains: dict[ChainId, InlineChain] = {}
        self._ends: dict[ChannelId, ChannelPlan] = {}
        self._mailbox: deque[CoordinatorEvent] = deque([Begin(clock.moment())])
        self._outcome: JobOutcome | None = None
        self._report_at_ms = MonotonicMs(clock.moment().now_ms + REPORT_INTERVAL_MS)

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """See `KernelHandle.stop`."""
        self._mailbox.append(StopRequested(self._clock.moment(), drain, savepoint))
        self._clock.wake()

    def savepoint(self, name: str) -> None:
        """See `KernelHandle.savepoint`."""
        self._mailbox.append(SavepointRequested(self._clock.moment(), name))
        self._clock.wake()

    def rescale(self, graph: ExecutionGraph) -> None:
        """See `KernelHandle.rescale`."""
        self._mailbox.append(RescaleRequested(self._clock.moment(), graph))
        self._clock.wake()

    def cancel(self) -> None:
        """See `KernelHandle.cancel`."""
        self._mailbox.append(CancelRequested(self._clock.moment()))
        self._clock.wake()

    def status(self) -> JobStatus:
        """See `KernelHandle.status`."""
        return self._coordinator.status()

    def wait(self) -> JobOutcome:
        """Run the job to its end."""
        try:
            while self._outcome is None:
                if not self._step():
                    self._clock.wait_until(self._next_deadline_ms())
        finally:
            for chain in self._chains.values():
                chain.work.close()
            if self._store is not None:
                self._store.log.close()
        return self._outcome

    # --- one step ------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Handle one event or do one request's work. False if nothing is left to do now."""
        if self._mailbox:
            self._handle(self._mailbox.popleft())
            return True
        self._tick()
        moved = False
        for chain in list(self._chains.values()):
            moved |= self._advance(chain)
        return moved or bool(self._mailbox)

    def _advance(self, chain: InlineChain) -> bool:
        """Handle one event of a chain, else work off one of its requests."""
        if chain.outcome is not None:
            return False
        event = chain.next_event(self._clock.moment())
        if event is None:
            request = chain.next_request()
            if request is None:
                return False
            answer = self._caller(lambda: chain.work.perform(request), chain.work.overdue)
            chain.answered(answer, request)
            chain.work.follow_up(request)
            return True
        commands = chain.task.handle(event)
        self._observe(chain.plan.chain, event, list(commands))
        for command in commands:
            self._perform_of(chain, command)
        return True

    def _perform_of(self, chain: InlineChain, command: ChainCommand) -> None:
        """A chain's command; a channel's other end is in the same process."""
        match command:
            case EndChain():
                self._ended(chain, command.outcome)
            case Emit():
                peer = self._chains[self._ends[command.channel].target]
                peer.arrived(command.channel, command.envelope)
            case ReportSoon():
                self._report(chain)
            case GrantCredit():
                peer = self._chains[self._ends[command.channel].source]
                moment, channel = self._clock.moment(), command.channel
                peer.events.append(
                    CreditGranted(moment, channel, command.taken_upto, command.settled_upto)
                )
            case _:
                chain.order(command)

    def _tick(self) -> None:
        moment = self._clock.moment()
        for chain in self._chains.values():
            due_ms = chain.task.next_deadline_ms()
            if due_ms is not None and moment.now_ms >= due_ms and not chain.events:
                chain.events.append(Tick(moment))
        if moment.now_ms >= self._report_at_ms:  # before the tick: long work is no silence (D2)
            self._report_at_ms = MonotonicMs(moment.now_ms + REPORT_INTERVAL_MS)
            for chain in self._chains.values():
                self._report(chain)
        due_ms = self._coordinator.next_deadline_ms()
        if due_ms is not None and moment.now_ms >= due_ms:
            self._mailbox.append(Tick(moment))

    def _report(self, chain: InlineChain) -> None:
        self._mailbox.append(chain.task.report(self._clock.moment()))

    def _next_deadline_ms(self) -> MonotonicMs | None:
        chains = (chain.task.next_deadline_ms() for chain in self._chains.values())
        return deadline(self._coordinator.next_deadline_ms(), self._report_at_ms, *chains)

    # --- the coordinator's commands ------------------------------------------------------------

    def _handle(self, event: CoordinatorEvent) -> None:
        commands = self._coordinator.handle(event)
        self._observe("coordinator", event, list(commands))
        for command in commands:
            self._perform(command)

    def _perform(self, command: CoordinatorCommand) -> None:
        match command:
            case DeployChain():
                self._mailbox.append(self._deploy(command))
            case ConnectChain():
                connected = ChainConnected(self._clock.moment(), command.token, command.chain)
                self._mailbox.append(connected)
            case PrepareChains():  # a chain needs no process here
                self._mailbox.append(ChainsPrepared(self._clock.moment(), command.token))
            case ReleaseChains():
                pass
            case SendControl():
                control = Control(self._clock.moment(), command.state)
                self._chains[command.chain].controls.append(control)
            case KillChain():
                lost = ActorLostError(f"chain '{command.chain}' was given up")
                self._ended(self._chains[command.chain], ChainOutcome(OutcomeKind.FAILED, lost))
            case EndJob():
                self._outcome = command.outcome
            case _:
                self._call_log(command)

    def _call_log(self, command: LogCommand) -> None:
        """The log's work, at once: nothing else goes on meanwhile."""
        assert self._store is not None
        try:
            answer = perform_log(self._store.log, command, self._clock)
        except ArkflowError:  # only a collection raises it, and comes again (M5)
            return
        if answer is not None:
            self._mailbox.append(answer)

    def _deploy(self, command: DeployChain) -> ChainReady | ChainEnded:
        plan = command.plan
        if any(chain.generation != command.generation for chain in self._chains.values()):
            self._chains.clear()  # all of them have ended; another plan may have others
            self._ends.clear()
        self._ends |= {channel.channel: channel for channel in plan.inputs}
        try:
            command = self._dealer.deal(command, self._components)
            plan = command.plan
            objects = None if self._store is None else self._store.objects
            work = ChainWork(
                plan,
                self._components,
                self._clock,
                generation=command.generation,
                objects=objects,
            )
            work.open(command.restored)
        except ArkflowError as error:
            outcome = ChainOutcome(OutcomeKind.FAILED, error)
            return ChainEnded(self._clock.moment(), plan.chain, command.generation, outcome)
        task = ChainTask(plan, command.generation, opened=work.opened, restored=command.restored)
        self._chains[plan.chain] = InlineChain(plan, command.generation, work, task)
        moment = self._clock.moment()
        return ChainReady(moment, command.token, plan.chain, work.replay, work.opened.commits)

    def _ended(self, chain: InlineChain, outcome: ChainOutcome) -> None:
        """Close the chain's components, then report (T4)."""
        outcome = with_close_errors(outcome, chain.work.close())
        chain.outcome = outcome
        self._report(chain)
        moment = self._clock.moment()
        self._mailbox.append(ChainEnded(moment, chain.plan.chain, chain.generation, outcome))

    def _observe(self, machine: str, event: object, commands: list[object]) -> None:
        if self._observer is not None:
            self._observer(machine, event, commands)


class InlineRunner(JobRunner):
    """Runs jobs in the calling thread; a `JobRunner`."""

    def __init__(
        self,
        components: ComponentFactory,
        clock: Clock,
        *,
        store: JobStore | None = None,
        caller: Caller = call_directly,
    ) -> None:
        self._components = components
        self._clock = clock
        self._store = store
        self._caller = caller

    def run_job(self, graph: ExecutionGraph, choice: RestoreChoice = NEWEST) -> InlineJob:
        """See `JobRunner.run_job`. `store` is the job's, in checkpoint mode."""
        return InlineJob(
            graph,
            self._components,
            self._clock,
            store=self._store,
            choice=choice,
            caller=self._caller,
        )


__all__ = [
    "Caller",
    "InlineJob",
    "InlineRunner",
    "Observer",
    "call_directly",
]
