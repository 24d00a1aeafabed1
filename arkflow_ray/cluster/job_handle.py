"""A job of a cluster in a program's hands (D5, X4, K2)."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from arkflow_ray.cluster.cluster_jobs import ClusterJobs
from arkflow_ray.cluster.connection import Connection
from arkflow_ray.cluster.job_runner import OVER
from arkflow_ray.cluster.target import Target, the_target
from arkflow_ray.door.messages import DONE_WITHIN_S, Request, WaitedTooLongError

LOOK_S: Final = 0.5
"""Between two looks at a job that is waited for."""


class JobHandle:
    """Watches and ends a job that runs without this program.

    All methods raise `ClusterError` if the cluster cannot be reached, `NotReachableError` if it has
    no such job, and `RefusedError` or `BadRequestError` with what the job says. What was asked for
    stands, also when `WaitedTooLongError` is raised after `timeout_s`.
    """

    def __init__(self, job: str, target: Target) -> None:
        self.job = job
        self._target = target

    def __repr__(self) -> str:
        return f"JobHandle({self.job!r}, {self._target.address!r})"

    def status(self) -> dict[str, Any]:
        """State, rows, checkpoints and so on, as `arkflow-ray status --json` prints them."""
        return self._ask(Request("status"), None)

    def stop(
        self, *, drain: bool = False, savepoint: str | None = None, timeout_s: float = DONE_WITHIN_S
    ) -> dict[str, Any]:
        """Stop in order and wait for it; its `outcome`, `checkpoint`, and the savepoint's `url`."""
        return self._ask(Request("stop", drain, savepoint), timeout_s)

    def cancel(self, *, timeout_s: float = DONE_WITHIN_S) -> dict[str, Any]:
        """End it now and wait for it; `job`, `outcome`, `checkpoint`."""
        return self._ask(Request("cancel"), timeout_s)

    def savepoint(self, name: str, *, timeout_s: float = DONE_WITHIN_S) -> str:
        """Make a savepoint while the job goes on; its URL."""
        return str(self._ask(Request("savepoint", savepoint=name), timeout_s)["url"])

    def rescale(
        self, parallelism: Mapping[str, int], *, timeout_s: float = DONE_WITHIN_S
    ) -> dict[str, Any]:
        """Give operators another number of subtasks and wait until the new plan is at work."""
        return self._ask(Request("rescale", parallelism=dict(parallelism)), timeout_s)

    def logs(self) -> list[str]:
        """The lines of its log that are kept: what it said, and rows of `stdout` outputs."""
        with self._connected() as jobs:
            return list(_pages(jobs, self.job))

    def wait(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until it is over; its result as `arkflow-ray run --json` prints it.

        `outcome` is `finished`, `stopped`, `cancelled` or `failed`; then `error` says why.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._connected() as jobs:
            while (told := jobs.about(self.job))["phase"] != OVER:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise WaitedTooLongError(f"job '{self.job}' is not over after {timeout_s:g} s")
                time.sleep(LOOK_S)
        end: dict[str, Any] = told["end"]
        about = {"job": self.job, "outcome": end["outcome"], "error": end["error"]}
        return (end["result"] or {}) | about

    def forget(self) -> None:
        """Let the job go from the cluster's list when it is over; its checkpoints stay."""
        with self._connected() as jobs:
            jobs.forget(self.job)

    def _ask(self, request: Request, timeout_s: float | None) -> dict[str, Any]:
        with self._connected() as jobs:
            return jobs.ask(self.job, request, timeout_s)

    def _connected(self) -> Connection:
        return Connection(self._target)


def find_job(job: str, *, address: str | None = None, cluster: str | None = None) -> JobHandle:
    """A job of a cluster by its id, whoever submitted it. Nothing is asked before a method is.

    The cluster is named as for `Pipeline.submit`. Raises `ConfigError` if none is, `LoadError` for
    mistakes in the file of profiles.
    """
    return JobHandle(job, the_target(address, cluster))


def _pages(jobs: ClusterJobs, job: str) -> Iterator[str]:
    page = jobs.logs(job)
    newest = page["last"]
    while page["lines"]:
        yield from page["lines"]
        after = page["first"] - 1 + len(page["lines"])
        if after >= newest:
            return
        page = jobs.logs(job, after)


__all__ = ["JobHandle", "find_job"]
