"""Where a command looks for running jobs: at the doors of this machine, or in a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

if TYPE_CHECKING:
    from arkflow_ray.door.messages import Request

AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Ask the jobs of this Ray cluster ($ARKFLOW_RAY_ADDRESS), not those of this machine.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="The same, by its name in clusters.yaml."),
]


@dataclass(frozen=True, slots=True)
class Where:
    """What the user said. Without both, the doors of this machine are meant."""

    address: str | None = None
    cluster: str | None = None

    @property
    def options(self) -> str:
        """The same as it is typed, to be put behind a command."""
        if self.cluster is not None:
            return f" --cluster {self.cluster}"
        return "" if self.address is None else f" --address {self.address}"


HERE: Final = Where()


class Jobs(Protocol):
    """Jobs that can be asked. `place` ends a sentence about them: `runs on this machine`."""

    @property
    def place(self) -> str:
        """Where they are."""
        ...

    def list(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What each job says of itself, and those that do not answer."""
        ...

    def ask(
        self,
        job: str,
        request: "Request",
        timeout_s: float | None,
        on_progress: Callable[[str], None] = ...,
    ) -> dict[str, Any]:
        """Ask a job and wait for the result. Raises `DoorError`."""
        ...


class DoorJobs:
    """The jobs that run on this machine as this user."""

    place: Final = "runs on this machine as this user"

    def list(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """See `Jobs.list`."""
        from arkflow_ray.door.client import ask, find_doors
        from arkflow_ray.door.messages import DoorError, Request

        found, silent = [], []
        for door in find_doors():
            try:
                found.append(ask(door, Request("status"), None))
            except DoorError as error:
                silent.append({"job": door.name.stem, "pid": door.pid, "error": error.message})
        return found, silent

    def ask(
        self,
        job: str,
        request: "Request",
        timeout_s: float | None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> dict[str, Any]:
        """See `Jobs.ask`."""
        from arkflow_ray.door.client import ask, find_door

        return ask(find_door(job), request, timeout_s, on_progress)


@contextmanager
def jobs_at(where: Where, on_phase: Callable[[str], None] = lambda _: None) -> Iterator[Jobs]:
    """The jobs of a place. Raises `ClusterError`, `ConfigError`."""
    from arkflow_ray.cluster.target import find_target

    target = find_target(where.address, where.cluster)
    if target is None:
        yield DoorJobs()
        return
    from arkflow_ray.cluster.connection import Connection

    with Connection(target, on_phase) as jobs:
        yield jobs


__all__ = ["HERE", "AddressOption", "ClusterOption", "DoorJobs", "Jobs", "Where", "jobs_at"]
