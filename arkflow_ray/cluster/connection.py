"""Connects this process to a cluster."""

import os
from collections.abc import Callable
from types import TracebackType

from arkflow_ray.cluster.cluster_jobs import ClusterJobs
from arkflow_ray.cluster.target import Target
from arkflow_ray.config.profiles import Profile
from arkflow_ray.runtime.ray_address import check_address
from arkflow_ray.runtime.ray_session import RaySession, join_session


class Connection:
    """A cluster that this process is connected to while it is entered.

    `submits`: the code that the profile names is uploaded.
    """

    def __init__(
        self,
        target: Target,
        on_phase: Callable[[str], None] = lambda _: None,
        *,
        submits: bool = False,
    ) -> None:
        self.profile = target.profile or Profile()
        self._address = target.address
        self._on_phase = on_phase
        self._submits = submits
        self._session: RaySession | None = None

    def __enter__(self) -> ClusterJobs:
        """Raises `ClusterError` if it cannot be reached or refuses us."""
        os.environ.update(self.profile.auth.variables())
        check_address(self._address)
        runtime_env = self.profile.runtime_env if self._submits else None
        self._session = join_session(self._address, runtime_env, self._on_phase)
        return ClusterJobs(self._address, self.profile.namespace)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            self._session.close()


__all__ = ["Connection"]
