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
from typing import Any

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ArkflowError, CorruptObjectError, ProtocolError
from arkflow_kernel.ids import (
    FIRST_GENERATION,
    ChainId,
    Generation,
    MonotonicMs,
    RequestToken,
)
from arkflow_kernel.job_facts import JobFacts
from arkflow_kernel.job_rounds import GARBAGE, JobRounds
from arkflow_kernel.limits import (
    STORY_ENTRIES_MAX,
    TEARDOWN_TIMEOUT_MS,
)
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainReady,
    ChainReport,
    Claimed,
    ConnectChain,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    Desired,
    EndJob,
    JobOutcome,
    JobState,
    JobStatus,
    LogFailed,
    OutcomeKind,
    RecordAppended,
    SavepointRequested,
    SavepointSaved,
    SendControl,
    StopRequested,
    Tick,
    Transition,
    deadline,
)
from arkflow_kernel.restart import GiveUp, RestartStrategy
from arkflow_kernel.restart_positions import RestartPositions
from arkflow_kernel.snapshot import NEWEST, RestoreChoice

_RANK = {kind: rank for rank, kind in enumerate(OutcomeKind)}  # the worst is the last
_END_STATE = {kind: JobState(kind.value) for kind in OutcomeKind}


class JobCoordinator:
    """Machine of one job, over all of its attempts.

    In ack mode generations count from `generation`; in checkpoint mode the log gives them, and
    `choice` says where the first attempt begins. `started`: the job was running already, under a
    coordinator that is gone.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        generation: Generation = FIRST_GENERATION,
        *,
        choice: RestoreChoice = NEWEST,
        started: bool = False,
        teardown_timeout_ms: int = TEARDOWN_TIMEOUT_MS,
    ) -> None:
        self._graph = graph
        self._teardown_timeout_ms = teardown_timeout_ms
        self._chains = [plan.chain for plan in graph.chains]
        plan = graph.checkpoint
        self._rounds = None if plan is None else JobRounds(plan, choice)
        self._attempt = Attempt.of(generation, [] if self._rounds else self._chains)
        self._strategy = RestartStrategy(graph.restart)
        self._positions = RestartPositions(graph)
        self._job = JobFacts(started)
        self._asked: dict[RequestToken, ChainId] = {}
        self._next_token = 1
        self._first_token = 1
        self._commands: list[CoordinatorCommand] = []
        self._story: deque[str] = deque(maxlen=STORY_ENTRIES_MAX)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            ChainReady: self._on_chain_ready,
            ChainConnected: self._on_chain_connected,
            ChainReport: self._on_chain_report,
            ChainEnded: self._on_chain_ended,
            Claimed: self._on_claimed,
            RecordAppended: self._on_log_answer,
            SavepointSaved: self._on_log_answer,
            LogFailed: self._on_log_failed,
            SavepointRequested: self._on_savepoint_requested,
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
        if self._rounds is not None and not self.ended:
            self._step(self._rounds, event.at)
        return self._commands

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        if self.ended:
            return None
        rounds = self._rounds.deadline_ms() if self._rounds and self._in_order else None
        return deadline(self._job.restart_at_ms, self._attempt.deadline_ms(), rounds)

    @property
    def ended(self) -> bool:
        """The job is over."""
        return self._job.state in _END_STATE.values()

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The last changes of state, oldest first."""
        return self._job.transitions

    def status(self) -> JobStatus:
        """An immutable snapshot for users. Counters are those of the running attempt."""
        attempt, rounds = self._attempt, self._rounds
        checkpoints = None if rounds is None else rounds.status()
        return self._job.status(attempt.generation, attempt.ready_count, checkpoints)

    def validate(self) -> None:
        """Assert the invariants; called after every event in tests."""
        attempt, job = self._attempt, self._job
        if job.state is JobState.RUNNING:
            assert attempt.all_ready
            assert attempt.all_connected
            assert attempt.failure is None
        if self.ended:
            assert attempt.over or self._next_token == 1, "something deployed has not ended"
        if self._rounds is not None:
            self._rounds.validate()
        assert (job.restart_at_ms is not None) <= (job.state is JobState.RESTARTING)
        assert attempt.generation == attempt.control.generation

    # --- events of a deployment ----------------------------------------------------------------

    def _on_begin(self, event: Begin) -> None:
        self._require(self._job.state is JobState.CREATED, "a job begins once")
        if self._rounds is None:
            self._deploy(event.at, "begin")
        else:
            self._claim(self._rounds, event.at, "begin")

    def _claim(self, rounds: JobRounds, at: Moment, cause: str) -> None:
        """Ask the log for the next generation; the chains of the one before have all ended."""
        self._job.go(JobState.DEPLOYING, f"{cause}: the log is asked where to begin", at)
        self._job.claiming = self._token()
        self._commands.append(rounds.claim(self._job.claiming))

    def _on_claimed(self, event: Claimed) -> None:
        job, rounds = self._job, self._rounds
        if rounds is None or event.token != job.claiming:
            return
        job.claiming = None
        rounds.claimed(event.claim, self._chains)
        self._commands.append(GARBAGE)
        restored = rounds.restored
        if restored is not None and restored.kind is RoundKind.FINAL and not restored.tokens:
            self._end(OutcomeKind.FINISHED, f"already finished at {restored.source}", event.at)
        elif job.wanted is not Desired.RUN:
            self._end(OutcomeKind.STOPPED, "a stop was requested before it was deployed", event.at)
        else:
            self._begin_attempt(event.claim.generation)
            self._deploy(event.at, rounds.sentence())

    def _begin_attempt(self, generation: Generation) -> None:
        self._attempt = Attempt.of(generation, self._chains)
        self._asked.clear()
        self._first_token = self._next_token

    def _deploy(self, at: Moment, cause: str) -> None:
        """Start an attempt; the chains of the one before have all ended."""
        self._job.go(JobState.DEPLOYING, cause, at)
        for plan in self._graph.chains:
            token = self._ask(plan.chain)
            if self._rounds is None:
                restored = self._positions.restored_chain(plan)
            else:
                restored = self._rounds.restored_chain(plan.chain)
            self._commands.append(DeployChain(token, plan, self._attempt.generation, restored))

    def _on_chain_ready(self, event: ChainReady) -> None:
        if not self._answered(event.token, event.chain):
            return
        self._attempt.chains[event.chain].ready = True
        self._positions.source_is(event.chain, event.replay, commits=event.commits)
        if self._attempt.given_up:
            self._commands.append(SendControl(event.chain, self._attempt.control))
        elif self._attempt.all_ready:
            for chain in self._attempt.chains:
                self._commands.append(ConnectChain(self._ask(chain), chain))

    def _on_chain_connected(self, event: ChainConnected) -> None:
        if not self._answered(event.token, event.chain):
            return
        if not self._attempt.connected(event.chain, event.at.now_ms):
            return
        self._job.started = True
        stopping = self._job.wanted is not Desired.RUN
        cause = f"all {len(self._attempt.chains)} chains are ready"
        self._job.go(JobState.STOPPING if stopping else JobState.RUNNING, cause, event.at)
        if self._rounds is not None:
            self._rounds.began(event.at.now_ms)
        self._commands += self._attempt.tell(self._attempt.control)

    # --- events of running chains --------------------------------------------------------------

    def _on_chain_report(self, event: ChainReport) -> None:
        if not self._attempt.is_news(event):
            return
        chain = self._attempt.chains[event.chain]
        if chain.heard_ms is not None:
            chain.heard_ms = event.at.now_ms
        self._job.heard(event)
        self._positions.heard(event.chain, event.frontier, event.at.now_ms)
        if self._rounds is not None:
            self._rounds.heard(event)
        if chain.heard_ms is not None or self._attempt.given_up:
            self._commands.append(SendControl(event.chain, self._attempt.control))

    def _on_chain_ended(self, event: ChainEnded) -> None:
        if not self._attempt.is_news(event):
            return  # its process went after it had reported its end, or after it was killed
        self._positions.heard(event.chain, event.outcome.frontier, event.at.now_ms)
        self._job.waits.pop(event.chain, None)
        if self._attempt.ended(event.chain, event.outcome):
            self._attempt_failed(event.at)
        if self._attempt.over:
            self._attempt_over(event.at)

    def _on_tick(self, event: Tick) -> None:
        job = self._job
        if job.restart_at_ms is not None and event.at.now_ms >= job.restart_at_ms:
            self._restart(event.at)
            return
        again_ms = MonotonicMs(event.at.now_ms + self._teardown_timeout_ms)
        self._commands += self._attempt.kills(event.at.now_ms, again_ms)

    # --- checkpoints ---------------------------------------------------------------------------

    def _step(self, rounds: JobRounds, at: Moment) -> None:
        """Let the rounds of the attempt go on, and tell chains what is new of them."""
        if not self._in_order:
            return
        self._commands += rounds.step(self._token(), at.now_ms)
        if self._attempt.control.merged(rounds.control) != self._attempt.control:
            self._commands += self._attempt.tell(rounds.control)
        if rounds.failure is not None:
            self._attempt.failed(rounds.failure)
            self._attempt_failed(at)

    @property
    def _in_order(self) -> bool:
        """Every chain runs, or has ended as it was told to."""
        running = self._job.state in (JobState.RUNNING, JobState.STOPPING)
        attempt = self._attempt
        return running and attempt.all_connected and not attempt.given_up and not attempt.over

    def _on_log_answer(self, event: RecordAppended | SavepointSaved) -> None:
        rounds = self._rounds
        if rounds is None or not rounds.answered(event, event.at):
            return
        if isinstance(event, RecordAppended):
            self._commands.append(GARBAGE)
        if self._attempt.over and self._attempt.failure is None:
            self._attempt_over(event.at)

    def _on_log_failed(self, event: LogFailed) -> None:
        job, rounds = self._job, self._rounds
        if rounds is None:
            return
        if event.token == job.claiming:
            job.claiming = None
            self._failed(event.error, str(event.error), event.at)
        elif rounds.answered(event, event.at) and self._attempt.over:
            self._attempt_over(event.at)

    def _on_savepoint_requested(self, event: SavepointRequested) -> None:
        if self._rounds is not None:
            self._rounds.savepoint(event.name)

    # --- users ---------------------------------------------------------------------------------

    def _on_stop_requested(self, event: StopRequested) -> None:
        job, rounds = self._job, self._rounds
        if job.wanted >= Desired.STOP:
            return
        ephemeral = self._graph.checkpoint is not None and self._graph.checkpoint.ephemeral
        job.wanted = Desired.DRAIN if event.drain or ephemeral else Desired.STOP
        if rounds is not None:
            rounds.stopping(event.savepoint)
        if job.state is JobState.RUNNING:
            job.go(JobState.STOPPING, "a stop was requested", event.at)
            self._commands += self._attempt.want(job.wanted)
        elif job.restart_at_ms is not None:
            self._stopped(event.at)
        elif not self._attempt.given_up and job.claiming is None:
            self._commands += self._attempt.want(job.wanted)

    def _on_cancel_requested(self, event: CancelRequested) -> None:
        job = self._job
        if job.wanted is Desired.CANCEL:
            return
        job.wanted = Desired.CANCEL
        if self._attempt.over or job.state is JobState.CREATED:
            self._end(OutcomeKind.CANCELLED, "a cancel was requested", event.at)
            return
        job.go(JobState.STOPPING, "a cancel was requested", event.at)
        self._attempt.failure = None  # whatever failed before, the user wants no more of the job
        self._give_up(event.at)

    # --- the end of an attempt -----------------------------------------------------------------

    def _attempt_failed(self, at: Moment) -> None:
        self._give_up(at)
        if self._job.state is not JobState.STOPPING:
            self._job.go(JobState.RESTARTING, self._failure_text(), at)

    def _give_up(self, at: Moment) -> None:
        kill_at_ms = MonotonicMs(at.now_ms + self._teardown_timeout_ms)
        self._commands += self._attempt.give_up(kill_at_ms)

    def _attempt_over(self, at: Moment) -> None:
        error, rounds = self._attempt.failure, self._rounds
        if error is not None:
            if isinstance(error, CorruptObjectError) and rounds is not None:
                rounds.broken(error)
            self._failed(error, self._failure_text(), at)
            return
        worst = max(self._attempt.kinds(), key=_RANK.__getitem__)
        worst = OutcomeKind.CANCELLED if worst is OutcomeKind.FAILED else worst
        if rounds is not None and worst is not OutcomeKind.CANCELLED:
            epilogue = rounds.epilogue(self._token())
            if epilogue is not None:
                self._commands.append(epilogue)
                return
        self._end(worst, f"every chain {worst.value}", at)

    def _failed(self, error: ArkflowError, text: str, at: Moment) -> None:
        """An attempt failed and is over, or could not even begin."""
        job, rounds = self._job, self._rounds
        if job.state is JobState.STOPPING:  # what was to end in order did not
            cause = f"{error}; it is not restarted: a {job.wanted.name.lower()} was requested"
            self._end(OutcomeKind.FAILED, cause, at, error)
            return
        progress = (self._positions.progress(), None if rounds is None else rounds.last)
        verdict = self._strategy.failed(error, at.now_ms, started=job.started, progress=progress)
        if isinstance(verdict, GiveUp):
            if job.restarts:  # else the error says it all
                error.add_note(f"the job ends: {verdict.reason}")
            self._end(OutcomeKind.FAILED, f"{error}; {verdict.reason}", at, error)
            return
        if job.wanted is not Desired.RUN:
            self._stopped(at)
            return
        job.restart_at_ms = MonotonicMs(at.now_ms + verdict.delay_ms)
        wait = f"in {verdict.delay_ms / 1000:g} s" if verdict.delay_ms else "at once"
        job.go(JobState.RESTARTING, f"{text}; the next attempt starts {wait}", at)
        if not verdict.delay_ms:
            self._restart(at)

    def _restart(self, at: Moment) -> None:
        job = self._job
        job.restart_at_ms = None
        job.restarts += 1
        if self._rounds is not None:
            self._claim(self._rounds, at, f"restart {job.restarts}")
            return
        self._begin_attempt(Generation(self._attempt.generation + 1))
        self._deploy(at, f"restart {job.restarts}: {self._positions.sentence(at.now_ms)}")

    def _stopped(self, at: Moment) -> None:
        cause = f"{self._job.cause}; it is not restarted: a stop was requested"
        self._end(OutcomeKind.STOPPED, cause, at)

    def _end(
        self, kind: OutcomeKind, cause: str, at: Moment, error: ArkflowError | None = None
    ) -> None:
        self._job.error, self._job.restart_at_ms, self._job.claiming = error, None, None
        self._job.go(_END_STATE[kind], cause, at)
        if self._rounds is not None:
            self._rounds.ended(cause)
        self._commands.append(EndJob(JobOutcome(kind, error)))

    # --- small things --------------------------------------------------------------------------

    def _failure_text(self) -> str:
        attempt = self._attempt
        who = "" if attempt.culprit is None else f"chain '{attempt.culprit}' failed: "
        return f"{who}{attempt.failure}"

    def _token(self) -> RequestToken:
        token = RequestToken(self._next_token)
        self._next_token += 1
        return token

    def _ask(self, chain: ChainId) -> RequestToken:
        token = self._token()
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
