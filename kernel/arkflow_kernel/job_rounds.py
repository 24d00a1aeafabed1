"""The rounds of a job in checkpoint mode: records, savepoints, the last round (B4-B6, T3, X4).

A part of `coordinator.py`, which asks it after every event what is to be done next (`step`) and
what chains are to know (`control`). One request to the log is under way at a time.

    open round ─all answered─▶ AppendRecord ─appended─▶ completed: chains publish and commit
         └─declined or too late─▶ failed: nothing is undone, the next one follows

When every chain is drained, a closing round follows: `FINAL` if the data ended by themselves. Its
completion lets the chains publish and end; what is left for the log then is the epilogue. The round
of a rescale closes the plan at work in the same way, while the data are held where they are (K2).
"""

from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace
from enum import Enum

from arkflow_kernel.barrier import BarrierCoordinator, Round
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import (
    ArkflowError,
    CheckpointError,
    CorruptObjectError,
    FencedError,
    StoreError,
)
from arkflow_kernel.ids import (
    NO_CHECKPOINT,
    ChainId,
    CheckpointId,
    Generation,
    MonotonicMs,
    RequestToken,
)
from arkflow_kernel.job_savepoints import JobSavepoints
from arkflow_kernel.limits import CLOSING_RETRY_MS
from arkflow_kernel.plan import CheckpointPlan
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    AppendRecord,
    ChainReport,
    CheckpointStatus,
    CollectGarbage,
    ControlState,
    CoordinatorCommand,
    Desired,
    LogFailed,
    RecordAppended,
    SavepointSaved,
    SaveSavepoint,
    deadline,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    CheckpointPhases,
    CheckpointRecord,
    Claim,
)


class RescaleRound(Enum):
    """The round of a rescale. `NONE`: there is none, or it has failed."""

    NONE = "none"
    WANTED = "wanted"
    OPEN = "open"
    RECORDED = "recorded"


class JobRounds:
    """One per run of a job. `failure` is set when an attempt must end because rounds fail;
    `no_rescale` says why the last rescale that was wanted has no round.
    """

    def __init__(self, plan: CheckpointPlan) -> None:
        self._plan = plan
        self._chains: tuple[ChainId, ...] = ()
        self._drained_chains = self._published_chains = 0
        self._rounds = BarrierCoordinator((), timeout_ms=plan.timeout_ms)
        self._control = ControlState(Generation(0))
        self._next_ms: MonotonicMs | None = None
        self._reports: dict[ChainId, ChainReport] = {}
        self._asked: AppendRecord | SaveSavepoint | None = None
        self._appending: Round | None = None
        self._last: CheckpointRecord | None = None
        self._savepoints = JobSavepoints()
        self._closing_failed = False
        self._rescale = RescaleRound.NONE
        self._status = CheckpointStatus()
        self.no_rescale = ""
        self.failure: ArkflowError | None = None

    def claimed(self, claim: Claim, chains: Iterable[ChainId]) -> None:
        """The next attempt may be deployed; what is under way of the one before is forgotten."""
        self._chains = tuple(chains)
        self._savepoints.want_again()
        self._rounds = BarrierCoordinator(
            self._chains, last=claim.last_checkpoint, timeout_ms=self._plan.timeout_ms
        )
        self._control = ControlState(claim.generation)
        self._next_ms = self._asked = self._appending = self.failure = None
        self._closing_failed, self._rescale = False, RescaleRound.NONE
        self._reports.clear()
        self._drained_chains = self._published_chains = 0
        source = None if claim.restored is None else claim.restored.source
        self._status = replace(self._status, restored=source, failures=0, error=None)

    # --- what comes in -------------------------------------------------------------------------

    def began(self, now_ms: MonotonicMs) -> None:
        """Every chain runs: the first round follows after the interval."""
        self._next_ms = MonotonicMs(now_ms + self._plan.interval_ms)

    def heard(self, report: ChainReport) -> None:
        """A chain said how it is; an answer to another round than the open one changes nothing."""
        self._reports[report.chain] = report
        if report.answer is not None:
            self._rounds.answered(report.chain, report.answer)

    @property
    def savepoints(self) -> JobSavepoints:
        """What users want of them, and what became of it."""
        return self._savepoints

    def answered(self, event: RecordAppended | SavepointSaved | LogFailed, at: Moment) -> bool:
        """The log answered. False if that was to an attempt before, and counts for nothing."""
        asked = self._asked
        if asked is None or asked.token != event.token:
            return False
        self._asked = None
        if isinstance(asked, SaveSavepoint):
            assert asked.record.savepoint is not None
            saved = event.url if isinstance(event, SavepointSaved) else None
            failed = event.error if isinstance(event, LogFailed) else None
            self._savepoints.tell(asked.record.savepoint, failed or saved or "")
        elif isinstance(event, LogFailed):
            self._append_failed(event.error, at.now_ms)
        else:
            self._appended(asked.record, at)
        return True

    def _appended(self, record: CheckpointRecord, at: Moment) -> None:
        round_, self._appending = self._appending, None
        self._last = record
        self._status = replace(
            self._status,
            last=record.checkpoint,
            at=at,
            phases=record.phases,
            failures=0,
            error=None,
        )
        if round_ is None:  # the epilogue's: nobody waits for it
            return
        self._merge(completed_upto=record.checkpoint)
        self._savepoints.recorded(record)
        rescales = round_.kind is RoundKind.RESCALE and self._rescale is RescaleRound.OPEN
        if rescales:
            self._rescale = RescaleRound.RECORDED
        if round_.closing or rescales:
            self._merge(desired=Desired.END)
        due_ms = max(round_.opened_ms + self._plan.interval_ms, at.now_ms)
        self._next_ms = MonotonicMs(due_ms)

    def _append_failed(self, error: ArkflowError, now_ms: MonotonicMs) -> None:
        round_, self._appending = self._appending, None
        if isinstance(error, FencedError):
            self.failure = error
        if round_ is None:  # the epilogue's: the next start publishes again, which changes nothing
            self._last = None
        else:
            self._failed(round_, error, now_ms)

    # --- what follows --------------------------------------------------------------------------

    def step(self, token: RequestToken, now_ms: MonotonicMs) -> Iterator[CoordinatorCommand]:
        """What is to be ordered now; `token` is used once at most."""
        self._end_round(now_ms)
        if self._asked is not None or self._next_ms is None:
            return
        snapshots = self._rounds.snapshots()
        if snapshots is not None:
            self._appending = self._rounds.close()
            yield from self._ask(AppendRecord(token, self._record(snapshots, now_ms)))
        elif (due := self._savepoints.unsaved) and self._published(due.checkpoint):
            yield from self._save(token, due)
        else:
            self._open(now_ms)

    def _end_round(self, now_ms: MonotonicMs) -> None:
        """Fail the open round if a chain declined it, or its time is over (B5)."""
        declined = self._rounds.declined
        if declined is not None:
            chain, answer = declined
            assert answer.error is not None
            answer.error.add_note(f"(chain '{chain}')")
            self._failed(self._rounds.close(), answer.error, now_ms, chain)
        elif self._rounds.expired(now_ms):
            missing = ", ".join(f"'{chain}'" for chain in self._rounds.missing)
            text = f"no answer within {self._plan.timeout_ms / 1000:g} s from chains {missing}"
            self._failed(self._rounds.close(), CheckpointError(text), now_ms)

    def _failed(
        self, round_: Round, error: ArkflowError, now_ms: MonotonicMs, chain: ChainId | None = None
    ) -> None:
        self._merge(failed_upto=round_.number)
        where = "" if chain is None else f" in chain '{chain}'"
        text = f"checkpoint {round_.number} failed{where}: {error}"
        unreachable = isinstance(error, StoreError) and not isinstance(error, CorruptObjectError)
        failures = self._status.failures + (not unreachable)
        self._status = replace(self._status, failures=failures, error=text)
        self._closing_failed = round_.closing
        if round_.kind is RoundKind.RESCALE:
            self.forget_rescale(text)
        retry_ms = now_ms + CLOSING_RETRY_MS if round_.closing else round_.opened_ms
        interval_ms = 0 if round_.closing else self._plan.interval_ms
        self._next_ms = MonotonicMs(max(retry_ms + interval_ms, now_ms))
        if round_.savepoint is not None and not round_.closing:
            self._savepoints.tell(round_.savepoint, CheckpointError(text))
        if failures > self._plan.tolerable_failures and self.failure is None:
            self.failure = CheckpointError(f"{failures} checkpoints in a row failed; {text}")

    def _open(self, now_ms: MonotonicMs) -> None:
        assert self._next_ms is not None
        if self._rounds.current is not None or self._control.desired is Desired.END:
            return
        due = now_ms >= self._next_ms
        if self._drained:
            self.forget_rescale("the data have ended")
            if due or not self._closing_failed:
                kind, name = self._closing()
                self._opened(self._rounds.open(kind, now_ms, savepoint=name, closing=True))
        elif self._rescale is RescaleRound.WANTED:
            self._rescale = RescaleRound.OPEN
            self._opened(self._rounds.open(RoundKind.RESCALE, now_ms))
        elif (name := self._savepoints.next_wanted()) is not None:
            self._opened(self._rounds.open(RoundKind.SAVEPOINT, now_ms, savepoint=name))
        elif due:
            self._opened(self._rounds.open(RoundKind.PERIODIC, now_ms))

    def _closing(self) -> tuple[RoundKind, str | None]:
        name = self._savepoints.next_at_end()
        stopped = any(report.stopped for report in self._reports.values())
        if name is not None and stopped:
            return RoundKind.SAVEPOINT, name
        return (RoundKind.PERIODIC if stopped else RoundKind.FINAL), name

    def _opened(self, round_: Round) -> None:
        control = ControlState(
            self._control.generation, round_id=round_.number, round_kind=round_.kind
        )
        self._control = self._control.merged(control)

    def epilogue(self, token: RequestToken, *, goes_on: bool) -> Iterator[CoordinatorCommand]:
        """What is left for the log when every chain has ended in order: one request, or none.

        A savepoint's copy; and, unless the job `goes_on` with another attempt, a record that lists
        no token any more: the next start publishes nothing again, and knows when there is nothing
        left to do (T3).
        """
        last = self._last
        ends = self._control.desired is Desired.END and not goes_on
        if (due := self._savepoints.unsaved) is not None:
            yield from self._save(token, due)
        elif last is not None and last.tokens and ends:
            number = CheckpointId(last.checkpoint + 1)
            kind = RoundKind.FINAL if last.kind is RoundKind.FINAL else RoundKind.PERIODIC
            record = last.without_tokens()
            record = replace(record, checkpoint=number, kind=kind, savepoint=None)
            yield from self._ask(AppendRecord(token, record))

    @property
    def busy(self) -> bool:
        """The log owes an answer."""
        return self._asked is not None

    @property
    def rescale(self) -> RescaleRound:
        """What became of the round of a rescale."""
        return self._rescale

    def want_rescale(self) -> None:
        """The next round is that of a rescale; it does not wait for the interval (K2)."""
        self._rescale = RescaleRound.WANTED

    def forget_rescale(self, why: str) -> None:
        """Nothing is to follow such a round: one that is open is a round as any other."""
        self._rescale, self.no_rescale = RescaleRound.NONE, why

    # --- what others look at -------------------------------------------------------------------

    @property
    def control(self) -> ControlState:
        """What chains are to know of rounds."""
        return self._control

    def status(self) -> CheckpointStatus:
        """An immutable snapshot for users."""
        current = self._rounds.current or self._appending
        number = NO_CHECKPOINT if current is None else current.number
        return replace(
            self._status,
            under_way=number,
            missing=self._rounds.missing,
            savepoints=self._savepoints.told,
        )

    def deadline_ms(self) -> MonotonicMs | None:
        """When something is due though nothing else happens."""
        idle = self._rounds.current is None and self._asked is None
        ends = self._control.desired is Desired.END
        return deadline(self._rounds.deadline_ms(), self._next_ms if idle and not ends else None)

    def validate(self) -> None:
        """Assert that at most one round is under way, and that it is in the control state."""
        current = self._rounds.current
        assert current is None or self._appending is None
        assert current is None or current.number == self._control.round_id
        assert self._control.completed_upto <= self._control.round_id
        assert self._control.failed_upto <= self._control.round_id
        open_ = current or self._appending
        if self._rescale is RescaleRound.OPEN:
            assert open_ is not None, "its round is open, or its record is on its way"
            assert open_.kind is RoundKind.RESCALE
        if self._rescale is RescaleRound.RECORDED:
            assert self._control.desired is Desired.END
            assert open_ is None, "no round follows that of a rescale"

    @property
    def _drained(self) -> bool:
        """The data of every chain have ended. They are looked at in turn, each until it has: what a
        chain said once stays so.
        """
        while self._drained_chains < len(self._chains):
            report = self._reports.get(self._chains[self._drained_chains])
            if report is None or not report.drained:
                return False
            self._drained_chains += 1
        return True

    def _published(self, upto: CheckpointId) -> bool:
        """Every chain has published all tokens of a round; see `_drained`."""
        while self._published_chains < len(self._chains):
            report = self._reports.get(self._chains[self._published_chains])
            if report is None or report.published_upto < upto:
                return False
            self._published_chains += 1
        return True

    def _record(
        self, snapshots: tuple[ChainSnapshot, ...], now_ms: MonotonicMs
    ) -> CheckpointRecord:
        round_ = self._appending
        assert round_ is not None
        new_bytes = sum(answer.new_bytes for answer in round_.answers.values())
        parts = [astuple(answer.phases) for answer in round_.answers.values()]
        longest = (max(part) for part in zip(*parts, strict=True))
        phases = CheckpointPhases(now_ms - round_.opened_ms, new_bytes, *longest)
        generation = self._control.generation
        return CheckpointRecord(
            generation, round_.number, round_.kind, snapshots, round_.savepoint, phases
        )

    def _save(self, token: RequestToken, record: CheckpointRecord) -> Iterator[CoordinatorCommand]:
        self._savepoints.saving()
        self._published_chains = 0
        return self._ask(SaveSavepoint(token, record.without_tokens()))

    def _ask(self, request: AppendRecord | SaveSavepoint) -> Iterator[CoordinatorCommand]:
        self._asked = request
        yield request

    def _merge(
        self,
        *,
        desired: Desired = Desired.RUN,
        failed_upto: CheckpointId = NO_CHECKPOINT,
        completed_upto: CheckpointId = NO_CHECKPOINT,
    ) -> None:
        known = self._control
        told = ControlState(
            known.generation,
            desired,
            known.round_id,
            known.round_kind,
            failed_upto,
            completed_upto,
        )
        self._control = known.merged(told)


GARBAGE = CollectGarbage()
"""What follows a claim and every appended record."""

__all__ = ["GARBAGE", "JobRounds", "RescaleRound"]
