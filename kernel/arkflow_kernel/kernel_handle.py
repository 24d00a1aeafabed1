"""What a user of the kernel holds of a running job (R3), whatever driver runs it."""

from typing import Protocol

from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobOutcome, JobStatus


class KernelHandle(Protocol):
    """A job that was started. All methods may be called again, from any thread, also at the end."""

    def wait(self) -> JobOutcome:
        """Return when the job is over; how it ended. The inline driver works only in here."""
        ...

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """Stop in order: read no further, settle what was read, end (D5). Returns at once.

        `drain`: the data count as ended, so windows fire and sinks get all. `savepoint`: the last
        round is for a savepoint of that name (X4), told in `status().checkpoints.savepoints`.
        """
        ...

    def savepoint(self, name: str) -> None:
        """Make a savepoint while the job goes on (X4). Returns at once.

        `status().checkpoints.savepoints` holds its URL when it is there, or why it is not.
        """
        ...

    def rescale(self, graph: ExecutionGraph) -> None:
        """Go on with this plan: the same job with another parallelism (K2, K3). Returns at once.

        It is valid. `status().rescale` tells how that goes; it begins when the job runs.
        """
        ...

    def cancel(self) -> None:
        """End now; what is not confirmed is given up. Returns at once."""
        ...

    def status(self) -> JobStatus:
        """State, cause and counters, as far as this side knows."""
        ...


__all__ = ["KernelHandle"]
