"""The machine of one job: deployment, restarts, stop, cancel, end (D1-D5).

It takes one event and returns commands. Every transition has a cause and is kept for `status`.

    CREATED ─Begin─▶ DEPLOYING ─all connected─▶ RUNNING ─stop─▶ STOPPING
    DEPLOYING or RUNNING ─a chain failed─▶ RESTARTING ─all ended, waited─▶ DEPLOYING
    RUNNING ─rescale─▶ RESCALING ─all ended─▶ DEPLOYING, or ─it failed─▶ RUNNING
    any of these ─cancel─▶ STOPPING
    any of these ─all chains ended, no restart─▶ FINISHED | STOPPED | FAILED | CANCELLED

Rules
- Chains are connected when all are ready, and hear their first control state when all are
  connected: nothing reads before that (D1).
- A failure ends the whole attempt: the other chains are cancelled, and one that does not end within
  `teardown_timeout_ms` is killed. The next attempt, of the next generation, is deployed after every
  chain has ended (D4) and the restart strategy's wait is over (D3).
- An attempt begins where the log says, or in ack mode where sources are settled; the transition's
  cause says which.
- A rescale puts another plan in the place of the one at work; `job_rescale` knows how far it is.
- Chains hear one level-triggered state, repeated with every report (B2): a lost message heals.
- A chain that is not heard of for `HEARTBEAT_TIMEOUT_MS` is killed (D2).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.errors import ArkflowError, CorruptObjectError
from arkflow_kernel.ids import FIRST_GENERATION, Generation, MonotonicMs
from arkflow_kernel.job_claims import JobClaims
from arkflow_kernel.job_facts import JobFacts
from arkflow_kernel.job_failures import JobEnd, JobFailures
from arkflow_kernel.job_requests import JobRequests
from arkflow_kernel.job_rescale import JobRescale
from arkflow_kernel.job_rounds import GARBAGE, JobRounds
from arkflow_kernel.limits import TEARDOWN_TIMEOUT_MS
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainReady,
    ChainReport,
    ChainsPrepared,
    Claimed,
    ConnectChain,
    CoordinatorCommand,
    CoordinatorEvent,
    Desired,
    EndJob,
    JobOutcome,
    JobState,
    JobStatus,
    LogFailed,
    OutcomeKind,
    RecordAppended,
    RescaleRequested,
    SavepointRequested,
    SavepointSaved,
    SendControl,
    StopRequested,
    Tick,
    deadline,
)
from arkflow_kernel.restart_positions import RestartPositions
from arkflow_kernel.snapshot import NEWEST, RestoreChoice


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
        self._keeps_nothing = graph.checkpoint is not None and graph.checkpoint.ephemeral
        self._teardown_timeout_ms = teardown_timeout_ms
        self._claims = JobClaims(graph, choice)
        self._rounds = None if graph.checkpoint is None else JobRounds(graph.checkpoint)
        self._attempt = Attempt(generation, () if self._rounds else graph.chains)
        self._positions = RestartPositions(graph)
        self._job = JobFacts(started)
        self._requests = JobRequests(f"coordinator of job '{graph.job}'")
        self._rescale = JobRescale(graph, self._job, self._requests, self._rounds)
        self._failures = JobFailures(
            graph.restart, self._job, self._rescale, self._rounds, self._positions
        )
        self._commands: list[CoordinatorCommand] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            ChainReady: self._on_chain_ready,
            ChainConnected: self._on_chain_connected,
            ChainReport: self._on_chain_report,
            ChainEnded: self._on_chain_ended,
            Claimed: self._on_claimed,
            RecordAppended: self._on_log_answer,
            SavepointSaved: self._on_log_answer,
            LogFailed: self._on_log_answer,
            SavepointRequested: self._on_savepoint_requested,
            RescaleRequested: lambda event: self._rescale.want(event.graph, event.at),
            ChainsPrepared: self._on_chains_prepared,
            StopRequested: self._on_stop_requested,
            CancelRequested: self._on_cancel_requested,
            Tick: self._on_tick,
        }

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorCommand]:
        """Take one event, return the commands that follow, in order. Nothing follows the end."""
        self._requests.tell(event)
        if self.ended:
            return []
        self._commands = []
        self._handlers[type(event)](event)
        if not self.ended:
            self._commands += self._rescale.begin(self._attempt, event.at)
        if self._rounds is not None and not self.ended:
            self._step(self._rounds, event.at)
        return self._commands

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        if self.ended:
            return None
        rounds = self._rounds.deadline_ms() if self._rounds and self._attempt.in_order else None
        return deadline(self._job.restart_at_ms, self._attempt.deadline_ms(), rounds)

    @property
    def ended(self) -> bool:
        """The job is over."""
        return self._job.ended

    def status(self) -> JobStatus:
        """An immutable snapshot for users. Counters are those of the running attempt."""
        checkpoints = None if self._rounds is None else self._rounds.status()
        attempt, rescale = self._attempt, self._rescale
        known = self._job.status(attempt.generation, attempt.ready_count, checkpoints)
        return replace(known, rescale=rescale.status, parallelism=rescale.parallelism)

    def validate(self) -> None:
        """Assert the invariants; called after every event in tests."""
        attempt, job = self._attempt, self._job
        if job.state in (JobState.RUNNING, JobState.RESCALING):
            assert attempt.all_ready
            assert attempt.all_connected
            assert attempt.failure is None
        if self.ended:
            assert attempt.over or not self._requests.any, "something deployed has not ended"
        if self._rounds is not None:
            self._rounds.validate()
        self._rescale.validate()
        assert (job.restart_at_ms is not None) <= (job.state is JobState.RESTARTING)
        assert attempt.generation == attempt.control.generation

    # --- events of a deployment ----------------------------------------------------------------

    def _on_begin(self, event: Begin) -> None:
        self._requests.require(self._job.state is JobState.CREATED, "a job begins once")
        if self._rounds is None:
            self._deploy(self._attempt.generation, event.at, "begin")
        else:
            self._claim(event.at, "begin")

    def _claim(self, at: Moment, cause: str) -> None:
        """Ask the log for the next generation; the chains of the one before have all ended."""
        self._job.go(JobState.DEPLOYING, f"{cause}: the log is asked where to begin", at)
        self._job.claiming = self._requests.token()
        self._rescale.claiming(at)
        graph = self._rescale.next_plan()
        self._commands.append(self._claims.claim(self._job.claiming, graph))

    def _on_claimed(self, event: Claimed) -> None:
        job, rounds = self._job, self._rounds
        if rounds is None or event.token != job.claiming:
            return
        job.claiming = None
        claims = self._claims
        claims.claimed(event.claim)
        rounds.claimed(event.claim, (plan.chain for plan in self._rescale.graph.chains))
        self._commands.append(GARBAGE)
        if claims.finished:
            self._end(
                JobEnd(OutcomeKind.FINISHED, f"already finished at {claims.source}"), event.at
            )
        elif job.wanted is not Desired.RUN and not self._rescale.goes_on:
            cause = "a stop was requested before it was deployed"
            self._end(JobEnd(OutcomeKind.STOPPED, cause), event.at)
        else:
            self._deploy(event.claim.generation, event.at, claims.sentence(event.at))

    def _deploy(self, generation: Generation, at: Moment, cause: str) -> None:
        """Start an attempt; the chains of the one before have all ended."""
        self._requests.begin_attempt()
        self._job.go(JobState.DEPLOYING, cause, at)
        graph = self._rescale.next_plan()
        self._attempt = Attempt(generation, graph.chains)
        self._attempt.note(self._job.wanted)
        self._job.keep(self._attempt.chains)
        self._positions.replanned(graph)
        begins = self._positions if self._rounds is None else self._claims
        self._commands += self._rescale.deployment(generation, begins.restored_chain, at)

    def _on_chain_ready(self, event: ChainReady) -> None:
        if not self._answered(event):
            return
        all_ready = self._attempt.ready(event.chain)
        self._positions.source_is(event.chain, event.replay, commits=event.commits)
        if self._attempt.given_up:
            self._commands.append(SendControl(event.chain, self._attempt.control))
        elif all_ready:
            for chain in self._attempt.chains:
                self._commands.append(ConnectChain(self._requests.ask(chain), chain))

    def _on_chain_connected(self, event: ChainConnected) -> None:
        news = self._answered(event)
        if not news or not self._attempt.connected(event.chain, event.at.now_ms):
            return
        self._job.started = True
        stopping = self._job.wanted is not Desired.RUN
        self._rescale.runs(event.at)
        cause = f"all {len(self._attempt.chains)} chains are ready"
        self._job.go(JobState.STOPPING if stopping else JobState.RUNNING, cause, event.at)
        if self._rounds is not None:
            self._rounds.began(event.at.now_ms)
        self._commands += self._attempt.tell(self._attempt.control)

    # --- events of running chains --------------------------------------------------------------

    def _on_chain_report(self, event: ChainReport) -> None:
        if not self._attempt.is_news(event):
            return
        to_be_told = self._attempt.heard(event)
        self._job.heard(event)
        self._positions.heard(event.chain, event.frontier, event.at.now_ms)
        if self._rounds is not None:
            self._rounds.heard(event)
        if to_be_told:
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
        self._commands += self._attempt.kills(event.at.now_ms, self._teardown_timeout_ms)

    # --- checkpoints ---------------------------------------------------------------------------

    def _step(self, rounds: JobRounds, at: Moment) -> None:
        """Let the rounds of the attempt go on, and tell chains what is new of them."""
        if not self._attempt.in_order:
            return
        self._commands += rounds.step(self._requests.token(), at.now_ms)
        if self._attempt.control.merged(rounds.control) != self._attempt.control:
            self._commands += self._attempt.tell(rounds.control)
        self._commands += self._rescale.look(at)
        if rounds.failure is not None:
            self._attempt.failed(rounds.failure)
            self._attempt_failed(at)

    def _on_log_answer(self, event: RecordAppended | SavepointSaved | LogFailed) -> None:
        job, rounds = self._job, self._rounds
        if rounds is None:
            return
        if isinstance(event, LogFailed) and event.token == job.claiming:
            job.claiming = None
            self._failed(event.error, str(event.error), event.at)
        elif rounds.answered(event, event.at):
            if isinstance(event, RecordAppended):
                self._commands.append(GARBAGE)
                self._rescale.proven()
            if self._attempt.over and not self._attempt.given_up:  # that was the epilogue
                self._attempt_over(event.at)

    # --- users ---------------------------------------------------------------------------------

    def _on_savepoint_requested(self, event: SavepointRequested) -> None:
        if self._rounds is not None:
            self._rounds.savepoints.want(event.name)

    def _on_chains_prepared(self, event: ChainsPrepared) -> None:
        self._commands += self._rescale.prepared(event, self._attempt)

    def _on_stop_requested(self, event: StopRequested) -> None:
        job, rounds = self._job, self._rounds
        if job.wanted >= Desired.STOP:
            return
        job.wanted = Desired.DRAIN if event.drain or self._keeps_nothing else Desired.STOP
        if rounds is not None:
            rounds.savepoints.want_at_end(event.savepoint)
        if job.state is JobState.RESCALING and self._rescale.goes_on:
            pass  # the next plan is told to stop
        elif job.state in (JobState.RUNNING, JobState.RESCALING):
            self._commands += self._rescale.fail("a stop was requested", event.at)
            job.go(JobState.STOPPING, "a stop was requested", event.at)
            self._commands += self._attempt.want(job.wanted)
        elif job.restart_at_ms is not None:
            self._end(self._failures.stopped(), event.at)
        elif not self._attempt.given_up and job.claiming is None:
            self._attempt.note(job.wanted)

    def _on_cancel_requested(self, event: CancelRequested) -> None:
        job = self._job
        if job.wanted is Desired.CANCEL:
            return
        job.wanted = Desired.CANCEL
        self._commands += self._rescale.fail("a cancel was requested", event.at)
        if self._attempt.over or job.state is JobState.CREATED:
            self._end(JobEnd(OutcomeKind.CANCELLED, "a cancel was requested"), event.at)
            return
        job.go(JobState.STOPPING, "a cancel was requested", event.at)
        self._attempt.failure = None  # whatever failed before, the user wants no more of the job
        self._commands += self._attempt.give_up(event.at.now_ms, self._teardown_timeout_ms)

    # --- the end of an attempt -----------------------------------------------------------------

    def _attempt_failed(self, at: Moment) -> None:
        self._commands += self._attempt.give_up(at.now_ms, self._teardown_timeout_ms)
        self._commands += self._rescale.fail(self._attempt.failure_text(), at)
        if self._job.state is not JobState.STOPPING:
            self._job.go(JobState.RESTARTING, self._attempt.failure_text(), at)

    def _attempt_over(self, at: Moment) -> None:
        rounds = self._rounds
        error = self._attempt.failure
        if rounds is not None and not self._attempt.given_up:
            error = rounds.failure
        if error is not None:
            self._failed(error, self._attempt.failure_text(), at)
            return
        worst, goes_on = self._attempt.worst(), self._rescale.goes_on
        if rounds is not None and worst is not OutcomeKind.CANCELLED:
            if not rounds.busy:
                self._commands += rounds.epilogue(self._requests.token(), goes_on=goes_on)
            if rounds.busy:
                return
        if goes_on and not (rounds is None and worst is OutcomeKind.FINISHED):
            self._begin_attempt(at, "a rescale")
        else:
            self._end(JobEnd(worst, f"every chain {worst.value}"), at)

    def _failed(self, error: ArkflowError, text: str, at: Moment) -> None:
        """An attempt failed and is over, or could not even begin."""
        if isinstance(error, CorruptObjectError):
            self._claims.broken(error)
        end = self._failures.judged(error, text, at)
        if end is not None:
            self._end(end, at)
        elif self._job.restart_at_ms == at.now_ms:
            self._restart(at)

    def _restart(self, at: Moment) -> None:
        self._job.restart_at_ms = None
        self._job.restarts += 1
        self._begin_attempt(at, f"restart {self._job.restarts}")

    def _begin_attempt(self, at: Moment, cause: str) -> None:
        """One more, where the log says, or where sources are settled."""
        if self._rounds is not None:
            self._claim(at, cause)
        else:
            cause = f"{cause}: {self._positions.sentence(at.now_ms)}"
            self._deploy(Generation(self._attempt.generation + 1), at, cause)

    def _end(self, end: JobEnd, at: Moment) -> None:
        self._job.end(end.kind, end.cause, at, end.error)
        self._rescale.ended(end.cause, at)
        if self._rounds is not None:
            self._rounds.savepoints.ended(end.cause)
        self._commands.append(EndJob(JobOutcome(end.kind, end.error)))

    def _answered(self, event: ChainReady | ChainConnected) -> bool:
        """Whether the answer is news: not of an attempt before, and its chain has not ended."""
        asked = self._requests.answered(event.token, event.chain)
        return asked and self._attempt.chains[event.chain].alive


__all__ = ["JobCoordinator"]
