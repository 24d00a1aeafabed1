"""Whether and when a failed attempt is followed by another (D3). Pure: time comes as a number.

Rules
- The first restart after a quiet time, or after a checkpoint was completed, is immediate; the
  following ones wait, longer each time.
- What trying again cannot heal ends the job: a wrong configuration, a bad row that nobody takes, a
  reader of stdout that has gone, a memory budget that was exceeded (R2), a first deployment that
  fails (nothing was read, and whoever started the job reads the error), and one operator that fails
  three attempts in a row with the same error and no progress between.
- A lost process or a broken channel is never deterministic, nor is an object of a checkpoint that
  cannot be read: the next claim passes its record over, or refuses to go on (M2).
"""

from collections.abc import Hashable
from dataclasses import dataclass

from arkflow_kernel.errors import (
    ActorLostError,
    ArkflowError,
    BadRowError,
    ChannelError,
    ConfigError,
    CorruptObjectError,
    FencedError,
    MemoryBudgetError,
    OutputClosedError,
    ProcessingError,
    RestoreError,
)
from arkflow_kernel.ids import NO_CHECKPOINT, CheckpointId, MonotonicMs
from arkflow_kernel.limits import DETERMINISTIC_ATTEMPTS
from arkflow_kernel.plan import RestartPlan

_HOPELESS = (ConfigError, BadRowError, MemoryBudgetError, OutputClosedError, RestoreError)
_LOST = (ActorLostError, ChannelError, CorruptObjectError)


@dataclass(frozen=True, slots=True)
class Restart:
    """Try again after this time."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job ends; `reason` is a sentence without its full stop."""

    reason: str


class RestartStrategy:
    """Decides after each failure. One per run of a job."""

    def __init__(self, plan: RestartPlan) -> None:
        self._plan = plan
        self._last_ms: MonotonicMs | None = None
        self._in_a_row = 0
        self._culprit: tuple[str, str] | None = None
        self._repeats = 0
        self._progress: Hashable = None
        self._saved = NO_CHECKPOINT

    def failed(
        self,
        error: ArkflowError,
        now_ms: MonotonicMs,
        *,
        started: bool,
        progress: Hashable,
        saved: CheckpointId = NO_CHECKPOINT,
    ) -> Restart | GiveUp:
        """An attempt failed. `started`: some attempt of this run was running already;
        `progress`: a value that changes when the job gets on (its frontiers); `saved`: the last
        completed checkpoint.
        """
        quiet = self._last_ms is not None and now_ms - self._last_ms >= self._plan.reset_after_ms
        if quiet or saved > self._saved:
            self._in_a_row = 0
        self._saved = saved
        self._last_ms = now_ms
        self._note(error, (progress, saved))
        reason = self._hopeless(error, started=started)
        if reason is not None:
            return GiveUp(reason)
        self._in_a_row += 1
        return Restart(self._delay_ms())

    def _note(self, error: ArkflowError, progress: Hashable) -> None:
        culprit = None
        if isinstance(error, ProcessingError):
            culprit = (error.operator, error.error_class)
        same = culprit is not None and culprit == self._culprit and progress == self._progress
        self._repeats = self._repeats + 1 if same else 1
        self._culprit, self._progress = culprit, progress

    def _hopeless(self, error: ArkflowError, *, started: bool) -> str | None:
        plan = self._plan
        if plan.strategy == "none":
            return "`restart.strategy` is `none`"
        if isinstance(error, FencedError):
            return "another run of the job has taken over"
        if isinstance(error, _HOPELESS):
            return "a restart would meet the same error again"
        if not started and not isinstance(error, _LOST):
            return "the first deployment is not repeated"
        if self._culprit is not None and self._repeats >= DETERMINISTIC_ATTEMPTS:
            operator, _ = self._culprit
            return (
                f"operator '{operator}' ended {self._repeats} attempts in a row with the same "
                "error and without progress between them"
            )
        if plan.max_attempts is not None and self._in_a_row >= plan.max_attempts:
            return f"{self._in_a_row} restarts in a row (`restart.max_attempts`) did not help"
        return None

    def _delay_ms(self) -> int:
        """Wait before restart number `_in_a_row`, from 1."""
        plan, before = self._plan, self._in_a_row - 2
        if before < 0:
            return 0
        if plan.strategy == "fixed":
            return min(plan.initial_ms, plan.max_ms)
        delay = float(plan.initial_ms)
        for _ in range(before):
            delay = min(delay * plan.multiplier, float(plan.max_ms))
        return int(min(delay, plan.max_ms))


__all__ = ["GiveUp", "Restart", "RestartStrategy"]
