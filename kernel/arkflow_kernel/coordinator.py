"""The machine of one job: deployment, restarts, stop, cancel, end (D1-D5).

It takes one event and returns commands. Every transition has a cause and is kept for `status`.

    CREATED ─Begin─▶ DEPLOYING ─all connected─▶ RUNNING ─stop─▶ STOPPING
    DEPLOYING or RUNNING ─a chain failed─▶ RESTARTING ─all ended, waited─▶ DEPLOYING
    any of these ─cancel─▶ STOPPING
    any of these ─all chains ended, no restart─▶ FINISHED | STOPPED | FAILED | CANCELLED

Rules
- Chains are connected when all are ready, and hear their first control state when all are
  connected: nothing reads before that (D1).
- A failure ends the whole attempt: the other chains are cancelled, and one that does not end within
  `teardown_timeout_ms` is killed. The next attempt, of the next generation, is deployed after every
  chain has ended (D4) and the restart strategy's wait is over (D3).
- A restarted source continues where the job last heard that everything is settled, else at the
  positions that its own system holds, else at its beginning; the transition's cause says which.
- Chains hear one level-triggered state, repeated with every report (B2): a lost message heals.
- A chain that is not heard of for `HEARTBEAT_TIMEOUT_MS` is killed (D2).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.errors import ActorLostError, ArkflowError, ProtocolError
from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, RequestToken, WallMs
from arkflow_kernel.limits import (
    HEARTBEAT_TIMEOUT_MS,
    STORY_ENTRIES_MAX,
    TEARDOWN_TIMEOUT_MS,
    TRANSITIONS_KEPT_MAX,
)
from arkflow_kernel.metrics import ChainStatistics, ChainUsage, Wait
from arkflow_kernel.plan import ExecutionGraph, Mode
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainReady,
    ChainReport,
    ConnectChain,
    ControlState,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    Desired,
    EndJob,
    JobOutcome,
    JobState,
    JobStatus,
    KillChain,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
    Transition,
    deadline,
)
from arkflow_kernel.restart import GiveUp, RestartStrategy
from arkflow_kernel.restart_positions import RestartPositions

_NEVER = Moment(MonotonicMs(0), WallMs(0))

_RANK = {kind: rank for rank, kind in enumerate(OutcomeKind)}  # the worst is the last
_END_STATE = {kind: JobState(kind.value) for kind in OutcomeKind}


@dataclass(slots=True)
class _Job:
    state: JobState = JobState.CREATED
    cause: str = "created"
    since: Moment = _NEVER
    error: ArkflowError | None = None
    wanted: Desired = Desired.RUN
    started: bool = False
    restarts: int = 0
    restart_at_ms: MonotonicMs | None = None


@dataclass(slots=True)
class _Heard:
    """What chains last said of themselves, over all attempts."""

    statistics: dict[ChainId, ChainStatistics] = field(default_factory=dict)
    usage: dict[ChainId, ChainUsage] = field(default_factory=dict)
    waits: dict[ChainId, tuple[Wait, ...]] = field(default_factory=dict)


class JobCoordinator:
    """Machine of one job, over all of its attempts; `generation` is that of the first."""

    def __init__(
        self,
        graph: ExecutionGraph,
        generation: Generation,
        *,
        teardown_timeout_ms: int = TEARDOWN_TIMEOUT_MS,
    ) -> None:
        self._graph = graph
        self._teardown_timeout_ms = teardown_timeout_ms
        self._attempt = Attempt.of(generation, [plan.chain for plan in graph.chains])
        self._control = ControlState(generation)
        self._strategy = RestartStrategy(graph.restart, keeps_state=graph.mode is Mode.CHECKPOINT)
        self._positions = RestartPositions(graph)
        self._heard = _Heard()
        self._job = _Job()
        self._asked: dict[RequestToken, ChainId] = {}
        self._next_token = 1
        self._first_token = 1
        self._commands: list[CoordinatorCommand] = []
        self._transitions: deque[Transition] = deque(maxlen=TRANSITIONS_KEPT_MAX)
        self._transition_count = 0
        self._story: deque[str] = deque(maxlen=STORY_ENTRIES_MAX)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            ChainReady: self._on_chain_ready,
            ChainConnected: self._on_chain_connected,
            ChainReport: self._on_chain_report,
            ChainEnded: self._on_chain_ended,
            StopRequested: self._on_stop_requested,
            CancelRequested: self._on_cancel_requested,
            Tick: self._on_tick,
        }

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorCommand]:
        """Take one event, return the commands that follow, in order. Nothing follows the end."""
        self._story.append(f"{event}"[:200])
        if self.ended:
            return []
        self._commands = []
        self._handlers[type(event)](event)
        return self._commands

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        if self.ended:
            return None
        return deadline(self._job.restart_at_ms, self._attempt.deadline_ms())

    @property
    def ended(self) -> bool:
        """The job is over."""
        return self._job.state in _END_STATE.values()

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The last changes of state, oldest first."""
        return tuple(self._transitions)

    def status(self) -> JobStatus:
        """An immutable snapshot for users. Counters are those of the running attempt."""
        job, heard = self._job, self._heard
        return JobStatus(
            job.state,
            job.cause,
            job.since,
            dict(heard.statistics),
            dict(heard.usage),
            self._attempt.ready_count,
            job.error,
            self._attempt.generation,
            job.restarts,
            {chain: waits for chain, waits in heard.waits.items() if waits},
            self.transitions,
        )

    def validate(self) -> None:
        """Assert the invariants; called after every event in tests."""
        attempt, job = self._attempt, self._job
        if job.state is JobState.RUNNING:
            assert attempt.all_ready
            assert attempt.all_connected
            assert attempt.failure is None
        if self.ended:
            assert attempt.over or self._next_token == 1, "something deployed has not ended"
        assert (job.restart_at_ms is not None) <= (job.state is JobState.RESTARTING)
        assert attempt.generation == self._control.generation

    # --- events of a deployment ----------------------------------------------------------------

    def _on_begin(self, event: Begin) -> None:
        self._require(self._job.state is JobState.CREATED, "a job begins once")
        self._deploy(event.at, "begin")

    def _deploy(self, at: Moment, cause: str) -> None:
        """Start an attempt; the chains of the one before have all ended."""
        self._go(JobState.DEPLOYING, cause, at)
        for plan in self._graph.chains:
            token = self._ask(plan.chain)
            restored = self._positions.restored(plan.chain)
            self._commands.append(DeployChain(token, plan, self._attempt.generation, restored))

    def _on_chain_ready(self, event: ChainReady) -> None:
        if not self._answered(event.token, event.chain):
            return
        self._attempt.chains[event.chain].ready = True
        self._positions.source_is(event.chain, event.replay, commits=event.commits)
        if self._attempt.given_up:
            self._commands.append(SendControl(event.chain, self._control))
        elif self._attempt.all_ready:
            for chain in self._attempt.chains:
                self._commands.append(ConnectChain(self._ask(chain), chain))

    def _on_chain_connected(self, event: ChainConnected) -> None:
        if not self._answered(event.token, event.chain):
            return
        self._attempt.chains[event.chain].connected = True
        if self._attempt.given_up or not self._attempt.all_connected:
            return
        for chain in self._attempt.chains.values():
            chain.heard_ms = event.at.now_ms
        self._job.started = True
        stopping = self._job.wanted is Desired.STOP
        cause = f"all {len(self._attempt.chains)} chains are ready"
        self._go(JobState.STOPPING if stopping else JobState.RUNNING, cause, event.at)
        self._send_all()

    # --- events of running chains --------------------------------------------------------------

    def _on_chain_report(self, event: ChainReport) -> None:
        chain = self._attempt.chains[event.chain]
        if event.generation != self._attempt.generation or not chain.alive:
            return
        if chain.heard_ms is not None:
            chain.heard_ms = event.at.now_ms
        heard = self._heard
        heard.statistics[event.chain] = event.statistics
        heard.waits[event.chain] = event.waits
        if event.usage is not None:
            heard.usage[event.chain] = event.usage
        self._positions.heard(event.chain, event.frontier, event.at.now_ms)
        if chain.heard_ms is not None or self._attempt.given_up:
            self._commands.append(SendControl(event.chain, self._control))

    def _on_chain_ended(self, event: ChainEnded) -> None:
        chain = self._attempt.chains[event.chain]
        if event.generation != self._attempt.generation or not chain.alive:
            return  # its process went after it had reported its end, or after it was killed
        self._positions.heard(event.chain, event.outcome.frontier, event.at.now_ms)
        self._heard.waits.pop(event.chain, None)
        if self._attempt.ended(event.chain, event.outcome):
            self._give_up(event.at)
            if self._job.state is not JobState.STOPPING:
                self._go(JobState.RESTARTING, self._failure_text(), event.at)
        if self._attempt.over:
            self._attempt_over(event.at)

    def _on_tick(self, event: Tick) -> None:
        job = self._job
        if job.restart_at_ms is not None and event.at.now_ms >= job.restart_at_ms:
            self._restart(event.at)
            return
        for name, chain in list(self._attempt.silent(event.at.now_ms)):
            seconds = HEARTBEAT_TIMEOUT_MS / 1000
            text = f"the process of chain '{name}' did not answer for {seconds:.0f} s; it is killed"
            chain.killed = ActorLostError(text)
            self._kill(name)
        for name, chain in list(self._attempt.overdue(event.at.now_ms)):
            chain.kill_at_ms = MonotonicMs(event.at.now_ms + self._teardown_timeout_ms)
            self._kill(name)

    # --- users ---------------------------------------------------------------------------------

    def _on_stop_requested(self, event: StopRequested) -> None:
        job = self._job
        if job.wanted >= Desired.STOP:
            return
        job.wanted = Desired.STOP
        if job.state is JobState.RUNNING:
            self._go(JobState.STOPPING, "a stop was requested", event.at)
            self._want(Desired.STOP)
            self._send_all()
        elif job.restart_at_ms is not None:
            self._stopped(event.at)
        elif not self._attempt.given_up:
            self._want(Desired.STOP)

    def _on_cancel_requested(self, event: CancelRequested) -> None:
        job = self._job
        if job.wanted is Desired.CANCEL:
            return
        job.wanted = Desired.CANCEL
        if job.restart_at_ms is not None or job.state is JobState.CREATED:
            self._end(OutcomeKind.CANCELLED, "a cancel was requested", event.at)
            return
        self._go(JobState.STOPPING, "a cancel was requested", event.at)
        self._attempt.failure = None  # whatever failed before, the user wants no more of the job
        self._give_up(event.at)

    # --- the end of an attempt -----------------------------------------------------------------

    def _give_up(self, at: Moment) -> None:
        """End the attempt: its chains are cancelled, and killed if they do not follow (D4)."""
        self._attempt.given_up = True
        self._want(Desired.CANCEL)
        for _, chain in self._attempt.alive():
            if chain.kill_at_ms is None:
                chain.kill_at_ms = MonotonicMs(at.now_ms + self._teardown_timeout_ms)
        self._send_all()

    def _attempt_over(self, at: Moment) -> None:
        error, job = self._attempt.failure, self._job
        if error is None:
            worst = max(self._attempt.kinds(), key=_RANK.__getitem__)
            worst = OutcomeKind.CANCELLED if worst is OutcomeKind.FAILED else worst
            self._end(worst, f"every chain {worst.value}", at)
            return
        if job.state is JobState.STOPPING:  # what was to end in order did not
            cause = f"{error}; it is not restarted: a {job.wanted.name.lower()} was requested"
            self._end(OutcomeKind.FAILED, cause, at, error)
            return
        verdict = self._strategy.failed(
            error, at.now_ms, started=job.started, progress=self._positions.progress()
        )
        if isinstance(verdict, GiveUp):
            if job.restarts or self._graph.mode is Mode.CHECKPOINT:  # else the error says it all
                error.add_note(f"the job ends: {verdict.reason}")
            self._end(OutcomeKind.FAILED, f"{error}; {verdict.reason}", at, error)
            return
        if job.wanted is Desired.STOP:
            self._stopped(at)
            return
        job.restart_at_ms = MonotonicMs(at.now_ms + verdict.delay_ms)
        wait = f"in {verdict.delay_ms / 1000:g} s" if verdict.delay_ms else "at once"
        self._go(JobState.RESTARTING, f"{self._failure_text()}; the next attempt starts {wait}", at)
        if not verdict.delay_ms:
            self._restart(at)

    def _restart(self, at: Moment) -> None:
        job, before = self._job, self._attempt
        job.restart_at_ms = None
        job.restarts += 1
        generation = Generation(before.generation + 1)
        self._attempt = Attempt.of(generation, before.chains)
        self._control = ControlState(generation)
        self._asked.clear()
        self._first_token = self._next_token
        self._deploy(at, f"restart {job.restarts}: {self._positions.sentence(at.now_ms)}")

    def _stopped(self, at: Moment) -> None:
        cause = f"{self._failure_text()}; it is not restarted: a stop was requested"
        self._end(OutcomeKind.STOPPED, cause, at)

    def _end(
        self, kind: OutcomeKind, cause: str, at: Moment, error: ArkflowError | None = None
    ) -> None:
        self._job.error, self._job.restart_at_ms = error, None
        self._go(_END_STATE[kind], cause, at)
        self._commands.append(EndJob(JobOutcome(kind, error)))

    # --- small things --------------------------------------------------------------------------

    def _failure_text(self) -> str:
        attempt = self._attempt
        return f"chain '{attempt.culprit}' failed: {attempt.failure}"

    def _want(self, desired: Desired) -> None:
        self._control = self._control.merged(ControlState(self._attempt.generation, desired))

    def _send_all(self) -> None:
        for name, chain in self._attempt.alive():
            if chain.ready:
                self._commands.append(SendControl(name, self._control))

    def _kill(self, name: ChainId) -> None:
        self._commands.append(KillChain(name, self._attempt.generation))

    def _go(self, state: JobState, cause: str, at: Moment) -> None:
        self._transition_count += 1
        self._transitions.append(
            Transition(self._transition_count, at, self._job.state, state, cause)
        )
        self._job.state, self._job.cause, self._job.since = state, cause, at

    def _ask(self, chain: ChainId) -> RequestToken:
        token = RequestToken(self._next_token)
        self._next_token += 1
        self._asked[token] = chain
        return token

    def _answered(self, token: RequestToken, chain: ChainId) -> bool:
        """Whether the answer is news: not of an attempt before, and its chain has not ended."""
        if token < self._first_token:
            return False
        self._require(self._asked.pop(token, None) == chain, f"unasked answer {token} of {chain}")
        return self._attempt.chains[chain].alive

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            story = tuple(self._story)
            raise ProtocolError(f"coordinator of job '{self._graph.job}': {message}", story)


__all__ = ["JobCoordinator"]
