"""What is known of a job, for its coordinator and for `status`: state, causes, what chains said.

A part of `coordinator.py`. Every change of state has a cause and is kept.
"""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, RequestToken, WallMs
from arkflow_kernel.limits import TRANSITIONS_KEPT_MAX
from arkflow_kernel.metrics import ChainStatistics, ChainUsage, Wait
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    ChainReport,
    CheckpointStatus,
    Desired,
    JobState,
    JobStatus,
    OutcomeKind,
    Transition,
)

_END_STATE = {kind: JobState(kind.value) for kind in OutcomeKind}
_NEVER = Moment(MonotonicMs(0), WallMs(0))


@dataclass
class JobFacts:
    """State of a job over all of its attempts. `started`: some attempt was running already.

    `claiming` is the request for the next generation that is under way, `restart_at_ms` when the
    next attempt begins, `wanted` what the user wants, `trouble` how the last attempt failed.
    """

    started: bool = False
    state: JobState = JobState.CREATED
    cause: str = "created"
    since: Moment = _NEVER
    error: ArkflowError | None = None
    trouble: str = ""
    wanted: Desired = Desired.RUN
    restarts: int = 0
    restart_at_ms: MonotonicMs | None = None
    claiming: RequestToken | None = None
    statistics: dict[ChainId, ChainStatistics] = field(default_factory=dict)
    usage: dict[ChainId, ChainUsage] = field(default_factory=dict)
    waits: dict[ChainId, tuple[Wait, ...]] = field(default_factory=dict)
    heard_at: dict[ChainId, MonotonicMs] = field(default_factory=dict)
    _transitions: deque[Transition] = field(
        default_factory=lambda: deque(maxlen=TRANSITIONS_KEPT_MAX)
    )
    _changes: int = 0

    def go(self, state: JobState, cause: str, at: Moment) -> None:
        """Change the state, for a reason."""
        self._changes += 1
        self._transitions.append(Transition(self._changes, at, self.state, state, cause))
        self.state, self.cause, self.since = state, cause, at

    def waits_for_restart(self, delay_ms: int, at: Moment) -> None:
        """The attempt is over, as `trouble` says, and another one follows."""
        self.restart_at_ms = MonotonicMs(at.now_ms + delay_ms)
        wait = f"in {delay_ms / 1000:g} s" if delay_ms else "at once"
        self.go(JobState.RESTARTING, f"{self.trouble}; the next attempt starts {wait}", at)

    def end(self, kind: OutcomeKind, cause: str, at: Moment, error: ArkflowError | None) -> None:
        """The job is over."""
        self.error, self.restart_at_ms, self.claiming = error, None, None
        self.go(_END_STATE[kind], cause, at)

    @property
    def ended(self) -> bool:
        """The job is over."""
        return self.state in _END_STATE.values()

    def keep(self, chains: Container[ChainId]) -> None:
        """Forget what chains said that are not in the plan any more."""
        for told in (self.statistics, self.usage, self.waits, self.heard_at):
            for gone in [chain for chain in told if chain not in chains]:
                del told[gone]

    def heard(self, report: ChainReport) -> None:
        """A chain said how it is."""
        self.statistics[report.chain] = report.statistics
        self.waits[report.chain] = report.waits
        self.heard_at[report.chain] = report.at.now_ms
        if report.usage is not None:
            self.usage[report.chain] = report.usage

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The last changes of state, oldest first."""
        return tuple(self._transitions)

    def status(
        self, generation: Generation, ready: int, checkpoints: CheckpointStatus | None
    ) -> JobStatus:
        """An immutable snapshot for users. Counters are those of the running attempt."""
        return JobStatus(
            self.state,
            self.cause,
            self.since,
            dict(self.statistics),
            dict(self.usage),
            ready,
            self.error,
            generation,
            self.restarts,
            {chain: waits for chain, waits in self.waits.items() if waits},
            self.transitions,
            checkpoints,
            heard_at=dict(self.heard_at),
        )


__all__ = ["JobFacts"]
