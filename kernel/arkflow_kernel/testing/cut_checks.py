"""What a coordinator in checkpoint mode may do, judged by its log and the ground truth."""

from typing import TYPE_CHECKING

from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    ChainReport,
    CoordinatorEvent,
    OutcomeKind,
    SavepointRequested,
    StopRequested,
)
from arkflow_kernel.testing.cut_oracle import Cut
from arkflow_kernel.testing.job_checks import JobCheck
from arkflow_kernel.testing.lineage import ViolationError

if TYPE_CHECKING:
    from arkflow_kernel.testing.cut_run import CutRun


class CutCheck(JobCheck):
    """What a coordinator in checkpoint mode may do: it begins where the log says."""

    def __init__(self, run: "CutRun") -> None:
        super().__init__(run.job.truth.scenario.graph)
        self._run = run

    def told(self, event: CoordinatorEvent) -> None:
        """Without a fault every round completes."""
        if isinstance(event, ChainReport) and event.answer is not None:
            error = event.answer.error
            if error is not None and not self._run.faulty:
                raise ViolationError(f"a round failed without a fault: {error}")

    def begins(self, generation: Generation, now_ms: int, alive: list[ChainId]) -> None:
        """An attempt is deployed: of the generation that was claimed last."""
        del now_ms
        if alive:
            raise ViolationError(f"an attempt starts while {alive} of the last are alive (D4)")
        if generation != self._run.process.generation:
            raise ViolationError(f"generation {generation} was not claimed (M1)")

    def check_restored(self, chain: ChainId, positions: tuple[SplitPosition, ...]) -> None:
        """Each source begins where the restored record has its cut."""
        if not Cut(self._run.restored.places).contains(positions):
            raise ViolationError(f"{chain} begins at {positions}, not at {self._run.restored}")

    def check_end(self, kind: OutcomeKind) -> None:
        """The job's end is judged by its records."""
        if kind in (OutcomeKind.STOPPED, OutcomeKind.CANCELLED) and self.asked is None:
            raise ViolationError(f"the job {kind.value}, and nobody asked for it")
        if kind is OutcomeKind.FAILED and not self._run.faulty:
            raise ViolationError(f"the run failed without a fault: {self._run.outcome}")

    def check_savepoints(self, unheard: list[CoordinatorEvent], names: list[str]) -> None:
        """What became of each savepoint that was asked for is told, and is true (X4)."""
        status = self._run.status().checkpoints
        assert status is not None
        if status.failures and not self._run.faulty:
            raise ViolationError(f"rounds failed without a fault: {status}")
        late = {event.name for event in unheard if isinstance(event, SavepointRequested)}
        late |= {event.savepoint or "" for event in unheard if isinstance(event, StopRequested)}
        for name in names:
            told = status.savepoints.get(name)
            if told is None and name not in late:
                raise ViolationError(f"what became of savepoint '{name}' is not told (X4)")
            if isinstance(told, str):
                self._run.job.truth.check_savepoint(name)


__all__ = ["CutCheck"]
