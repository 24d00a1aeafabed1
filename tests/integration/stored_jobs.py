"""Jobs in checkpoint mode in this process and without Ray: cut short at a point, started again.

A job dies at a point by an error out of its observer: nothing of it goes on, and what its folder
holds then is what a crash would leave, with the names of files at work taken away.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, RecordAppended
from arkflow_kernel.snapshot import NEWEST, RestoreChoice
from arkflow_ray.config.project import check_file
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.components import RegistryComponents
from arkflow_ray.runtime.inline_stores import InlineStores

Point = Callable[[InlineJob, object], bool]
"""Whether a job dies here: asked after each event of its coordinator, before what follows it."""


class NoLines:
    """No output of these jobs prints."""

    def put(self, lines: bytes) -> None:
        """See `LineOutput.put`."""
        raise AssertionError(lines)


class _DiedError(Exception):
    """The job is at its point."""


@dataclass(frozen=True)
class Ran:
    """A run: its last status, and its end; None if it died at its point."""

    status: JobStatus
    outcome: JobOutcome | None

    @property
    def restored(self) -> str | None:
        """What its last attempt went on from, as users are told."""
        told = self.status.checkpoints
        return None if told is None else told.restored

    @property
    def error(self) -> ArkflowError:
        """Why it failed."""
        assert self.outcome is not None, self.story
        assert self.outcome.error is not None, self.story
        return self.outcome.error

    @property
    def story(self) -> str:
        """Why its state changed, all of it."""
        return "\n".join(change.cause for change in self.status.transitions)


def graph_of(path: Path) -> ExecutionGraph:
    """The plan of the one job of a file."""
    project = check_file(path)
    assert project.ok, "\n".join(str(issue) for issue in project.issues)
    (job,) = project.jobs
    assert job.graph is not None
    return job.graph


def run(graph: ExecutionGraph, *, choice: RestoreChoice = NEWEST, dies: Point | None = None) -> Ran:
    """Run a job to its end, or to the point where it dies."""
    clock = SystemClock()
    with closing(InlineStores()) as stores:
        components = RegistryComponents({}, NoLines(), graph.job)
        job: InlineJob

        def observe(machine: str, event: object, commands: list[object]) -> None:
            if dies is not None and machine == "coordinator" and dies(job, event):
                raise _DiedError

        job = InlineJob(
            graph, components, clock, store=stores.open(graph), choice=choice, observer=observe
        )
        try:
            outcome = job.wait()
        except _DiedError:
            return Ran(job.status(), None)
        return Ran(job.status(), outcome)


def when_running(job: InlineJob, event: object) -> bool:
    """Everything is restored and published, and the sources begin."""
    return job.status().state is JobState.RUNNING


def when_recorded(checkpoint: int) -> Point:
    """A record is in the log, and nothing of it is published yet."""

    def dies(job: InlineJob, event: object) -> bool:
        told = job.status().checkpoints
        return isinstance(event, RecordAppended) and told is not None and told.last >= checkpoint

    return dies


__all__ = ["NoLines", "Point", "Ran", "graph_of", "run", "when_recorded", "when_running"]
