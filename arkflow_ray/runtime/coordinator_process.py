"""One coordinator actor as the driver sees it: its start, its status, its certain end (P8, D6).

A coordinator that died, or does not answer, leaves chains behind that may still write. Those of
this node are killed here, and looked at until they are gone; of others nothing can be known, and
what follows them waits until their lease is over.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.client import ray as ray_client

from arkflow_kernel.errors import ActorLostError, ArkflowError, ResourceError
from arkflow_kernel.ids import JobId
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobStatus
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.runtime.chain_actor import ActorPlace
from arkflow_ray.runtime.coordinator_actor import CoordinatorActor
from arkflow_ray.runtime.job_settings import (
    FIRST,
    CoordinatorView,
    JobSettings,
    StdoutActors,
    Succession,
)
from arkflow_ray.runtime.ray_errors import first_line

ANSWER_TIMEOUT_S: Final = 30.0
"""How long the coordinator may take to answer before it counts as lost."""

START_TIMEOUT_S: Final = 120.0
"""How long the coordinator's process may take to come up."""

END_TIMEOUT_S: Final = 10.0
"""How long killed processes of this node may take to vanish."""

_log = logging.getLogger("arkflow_ray.run")


class CoordinatorProcess:
    """A coordinator actor of a job, from its creation to its end."""

    def __init__(
        self, graph: ExecutionGraph, choice: RestoreChoice, before: Succession = FIRST
    ) -> None:
        self._job = graph.job
        remote: Any = ray.remote(num_cpus=0, max_restarts=0)(CoordinatorActor)
        self.actor = remote.remote(graph, choice, before)
        self.run: Any = None
        self._view: CoordinatorView | None = None

    @property
    def place(self) -> ActorPlace | None:
        """Which process it is; None if it never answered."""
        return None if self._view is None else self._view.place

    @property
    def claimed(self) -> bool:
        """Whether a chain was deployed in a generation of its own."""
        return self._view is not None and self._view.deployed

    def start(self, settings: JobSettings, hold_ms: int) -> JobStatus:
        """Wait until it is up, and have it run the job. Raises `ArkflowError` if it does not come.

        Nothing is deployed for `hold_ms`: so long what is left of another one may write.
        """
        try:
            self._view = ray.get(self.actor.view.remote(), timeout=START_TIMEOUT_S)
        except RayError as error:
            raise not_started(self._job, error) from error
        self.run = self.actor.run.remote(settings, hold_ms)
        return self._view.status

    def status(self) -> JobStatus:
        """The newest status. Raises `RayError` if it does not answer."""
        self._view = ray.get(self.actor.view.remote(), timeout=ANSWER_TIMEOUT_S)
        return self._view.status

    def stdout_actors(self) -> StdoutActors:
        """Whose rows are to be printed now. Raises `RayError`."""
        found: StdoutActors = ray.get(self.actor.stdout_actors.remote(), timeout=ANSWER_TIMEOUT_S)
        return found

    def kill(self) -> None:
        """Give the order to end it."""
        with suppress(RayError):  # it is gone
            ray.kill(self.actor, no_restart=True)

    def end(self) -> bool:
        """Kill it and its chains. True if it is certain that none of them is left."""
        self.kill()
        view = self._view
        if view is None:
            return True  # it never deployed anything
        here = this_node()
        places = [view.place, *(identity.place for identity in view.chains)]
        near = [place for place in places if place.node_id == here]
        gone = asyncio.run(_end_all(near))
        if not gone:
            _log.warning(
                "job %s: killed processes are still there; their lease is waited out", self._job
            )
        return gone and len(near) == len(places)


async def _end_all(places: list[ActorPlace]) -> bool:
    return all(await asyncio.gather(*(place.process.end(END_TIMEOUT_S) for place in places)))


def this_node() -> str | None:
    """The node whose processes this one sees; None for a driver outside of the cluster."""
    if ray_client.is_connected():  # type: ignore[no-untyped-call]
        return None
    node_id: str = ray.get_runtime_context().get_node_id()
    return node_id


def not_started(job: JobId, error: RayError) -> ArkflowError:
    """Why a coordinator never answered: it is waited for too long, or it is gone."""
    coordinator = f"the coordinator of job '{job}'"
    if isinstance(error, GetTimeoutError):
        return ResourceError(
            f"{coordinator} did not start within {START_TIMEOUT_S:.0f} s; "
            "`ray status` shows what the cluster lacks"
        )
    return ActorLostError(f"{coordinator} died while it started: {first_line(error)}")


def coordinator_lost(job: JobId, error: RayError) -> ActorLostError:
    """Why a coordinator is given up: it is there and says nothing, or it is gone."""
    coordinator = f"the coordinator of job '{job}'"
    if isinstance(error, GetTimeoutError):
        return ActorLostError(f"{coordinator} did not answer for {ANSWER_TIMEOUT_S:.0f} s")
    return ActorLostError(f"{coordinator} died: {first_line(error)}")


__all__ = ["CoordinatorProcess", "coordinator_lost", "not_started", "this_node"]
