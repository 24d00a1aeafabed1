"""The machine of one job: deployment, stop, cancel, end (D1, D4, D5).

It takes one event and returns commands. Every transition has a cause and is kept for `status`.

    CREATED ─Begin─▶ DEPLOYING ─all ready─▶ RUNNING ─stop─▶ STOPPING
    DEPLOYING or RUNNING ─a chain failed, or a cancel─▶ STOPPING
    any of these ─all chains ended and closed─▶ FINISHED | STOPPED | FAILED | CANCELLED

Rules
- Sources start last: a chain reads after its first control state, which is sent when all chains
  are ready (D1).
- The first failure decides the job's error; the other chains are cancelled.
- The job ends when every chain is closed. A chain that is not closed within `teardown_timeout_ms`
  of a cancel, or of its own end, is killed (D4).
- Chains hear one level-triggered state, repeated with every report (B2): a lost message heals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arkflow_kernel.errors import ArkflowError, ProtocolError
from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, RequestToken, WallMs
from arkflow_kernel.limits import STORY_ENTRIES_MAX, TEARDOWN_TIMEOUT_MS
from arkflow_kernel.metrics import ChainStatistics, ChainUsage
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainClosed,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    ChainReport,
    CloseChain,
    ControlState,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    Desired,
    EndJob,
    JobOutcome,
    JobState,
    JobStatus,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
    deadline,
)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a job's state, and why."""

    at: Moment
    before: JobState
    after: JobState
    cause: str


@dataclass(slots=True)
class _Chain:
    ready: bool = False
    outcome: ChainOutcome | None = None
    closing: RequestToken | None = None
    closed: bool = False
    kill_at_ms: MonotonicMs | None = None
    statistics: ChainStatistics | None = None
    usage: ChainUsage | None = None


_NEVER = Moment(MonotonicMs(0), WallMs(0))


@dataclass(slots=True)
class _Job:
    state: JobState = JobState.CREATED
    cause: str = "created"
    since: Moment = _NEVER
    error: ArkflowError | None = None


_RANK = {
    OutcomeKind.FINISHED: 0,
    OutcomeKind.STOPPED: 1,
    OutcomeKind.CANCELLED: 2,
    OutcomeKind.FAILED: 3,
}
_END_STATE = {
    OutcomeKind.FINISHED: JobState.FINISHED,
    OutcomeKind.STOPPED: JobState.STOPPED,
    OutcomeKind.CANCELLED: JobState.CANCELLED,
    OutcomeKind.FAILED: JobState.FAILED,
}


class JobCoordinator:
    """Machine of one attempt of a job."""

    def __init__(
        self,
        graph: ExecutionGraph,
        generation: Generation,
        *,
        teardown_timeout_ms: int = TEARDOWN_TIMEOUT_MS,
    ) -> None:
        self._graph = graph
        self._generation = generation
        self._teardown_timeout_ms = teardown_timeout_ms
        self._control = ControlState(generation)
        self._chains = {plan.chain: _Chain() for plan in graph.chains}
        self._deploy_tokens: dict[RequestToken, ChainId] = {}
        self._job = _Job()
        self._next_token = 1
        self._commands: list[CoordinatorCommand] = []
        self._transitions: list[Transition] = []
        self._story: list[str] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            ChainReady: self._on_chain_ready,
            ChainReport: self._on_chain_report,
            ChainEnded: self._on_chain_ended,
            ChainClosed: self._on_chain_closed,
            StopRequested: self._on_stop_requested,
            CancelRequested: self._on_cancel_requested,
            Tick: self._on_tick,
        }

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorCommand]:
        """Take one event, return the commands that follow, in order. Nothing follows the end."""
        self._story = [*self._story[1 - STORY_ENTRIES_MAX :], f"{event}"[:200]]
        if self.ended:
            return []
        self._commands = []
        self._handlers[type(event)](event)
        self._end_if_closed(event.at)
        return self._commands

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        return deadline(*(chain.kill_at_ms for chain in self._chains.values()))

    @property
    def ended(self) -> bool:
        """The job is over."""
        return self._job.state in _END_STATE.values()

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """Every change of state so far, oldest first."""
        return tuple(self._transitions)

    def status(self) -> JobStatus:
        """An immutable snapshot for users."""
        known = {c: s.statistics for c, s in self._chains.items() if s.statistics is not None}
        ready = sum(chain.ready for chain in self._chains.values())
        job = self._job
        usage = {c: s.usage for c, s in self._chains.items() if s.usage is not None}
        return JobStatus(job.state, job.cause, job.since, known, usage, ready, job.error)

    def validate(self) -> None:
        """Assert the invariants; called after every event in tests."""
        if self._job.state is JobState.RUNNING:
            assert all(chain.ready for chain in self._chains.values())
        if self.ended:
            assert all(chain.closed for chain in self._chains.values())
        for chain in self._chains.values():
            assert not chain.closed or chain.outcome is not None

    # --- events --------------------------------------------------------------------------------

    def _on_begin(self, event: Begin) -> None:
        self._require(self._job.state is JobState.CREATED, "a job begins once")
        self._go(JobState.DEPLOYING, "begin", event.at)
        for plan in self._graph.chains:
            token = self._token()
            self._deploy_tokens[token] = plan.chain
            self._commands.append(DeployChain(token, plan, self._generation))

    def _on_chain_ready(self, event: ChainReady) -> None:
        chain = self._deploy_tokens.pop(event.token, None)
        self._require(chain == event.chain, f"unasked answer {event}")
        if self._chains[event.chain].outcome is not None:
            return  # it died before its answer arrived
        self._chains[event.chain].ready = True
        if self._control.desired is Desired.CANCEL:
            self._commands.append(SendControl(event.chain, self._control))
        elif all(each.ready for each in self._chains.values()):
            stopping = self._control.desired is Desired.STOP
            state = JobState.STOPPING if stopping else JobState.RUNNING
            self._go(state, f"all {len(self._chains)} chains are ready", event.at)
            self._send_all()

    def _on_chain_report(self, event: ChainReport) -> None:
        chain = self._chains[event.chain]
        chain.statistics, chain.usage = event.statistics, event.usage
        if chain.outcome is None and self._started():
            self._commands.append(SendControl(event.chain, self._control))

    def _on_chain_ended(self, event: ChainEnded) -> None:
        chain = self._chains[event.chain]
        if chain.outcome is not None:
            return  # its process went after it had reported its end, or after it was killed
        chain.outcome = event.outcome
        if chain.closing is None:
            self._kill_by(chain, event.at)
            self._close(event.chain, kill=False)
        if event.outcome.kind is OutcomeKind.FAILED and self._job.error is None:
            self._job.error = event.outcome.error
            self._cancel(event.at, f"chain '{event.chain}' failed")

    def _on_chain_closed(self, event: ChainClosed) -> None:
        chain = self._chains[event.chain]
        if chain.closing != event.token:
            return  # the answer to a close that a kill has overtaken
        chain.closed, chain.kill_at_ms = True, None
        if chain.outcome is None:
            chain.outcome = ChainOutcome(OutcomeKind.CANCELLED)

    def _on_stop_requested(self, event: StopRequested) -> None:
        if self._control.desired >= Desired.STOP:
            return
        self._want(Desired.STOP)
        if self._job.state is JobState.RUNNING:
            self._go(JobState.STOPPING, "a stop was requested", event.at)
            self._send_all()

    def _on_cancel_requested(self, event: CancelRequested) -> None:
        self._cancel(event.at, "a cancel was requested")

    def _on_tick(self, event: Tick) -> None:
        for name, chain in self._chains.items():
            if chain.kill_at_ms is not None and event.at.now_ms >= chain.kill_at_ms:
                chain.kill_at_ms = None
                self._close(name, kill=True)

    # --- small things --------------------------------------------------------------------------

    def _started(self) -> bool:
        """Chains may hear the control state: all are ready, or the job is being cancelled."""
        running = self._job.state in (JobState.RUNNING, JobState.STOPPING)
        return running or self._control.desired is Desired.CANCEL

    def _cancel(self, at: Moment, cause: str) -> None:
        if self._control.desired is Desired.CANCEL:
            return
        self._want(Desired.CANCEL)
        if self._job.state is not JobState.CREATED:
            self._go(JobState.STOPPING, cause, at)
        for chain in self._chains.values():
            self._kill_by(chain, at)
        self._send_all()

    def _kill_by(self, chain: _Chain, at: Moment) -> None:
        """It must be closed within the teardown time-out (D4), counted from the first reason."""
        if not chain.closed and chain.closing is None and chain.kill_at_ms is None:
            chain.kill_at_ms = MonotonicMs(at.now_ms + self._teardown_timeout_ms)

    def _want(self, desired: Desired) -> None:
        self._control = self._control.merged(ControlState(self._generation, desired))

    def _send_all(self) -> None:
        for name, chain in self._chains.items():
            if chain.ready and chain.outcome is None:
                self._commands.append(SendControl(name, self._control))

    def _close(self, name: ChainId, *, kill: bool) -> None:
        token = self._token()
        self._chains[name].closing = token
        self._commands.append(CloseChain(token, name, kill))

    def _end_if_closed(self, at: Moment) -> None:
        if not self._chains or not all(chain.closed for chain in self._chains.values()):
            return
        kinds = [chain.outcome.kind for chain in self._chains.values() if chain.outcome]
        worst = max(kinds, key=_RANK.__getitem__)
        if self._job.error is not None:
            worst = OutcomeKind.FAILED
        cause = str(self._job.error) if self._job.error else f"every chain {worst.value}"
        self._go(_END_STATE[worst], cause, at)
        self._commands.append(EndJob(JobOutcome(worst, self._job.error)))

    def _go(self, state: JobState, cause: str, at: Moment) -> None:
        self._transitions.append(Transition(at, self._job.state, state, cause))
        self._job.state, self._job.cause, self._job.since = state, cause, at

    def _token(self) -> RequestToken:
        self._next_token += 1
        return RequestToken(self._next_token - 1)

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            story = tuple(self._story)
            raise ProtocolError(f"coordinator of job '{self._graph.job}': {message}", story)


__all__ = ["JobCoordinator", "Transition"]
