"""Joins the Ray that is there, or starts a local one with our settings (K7, P5).

A Ray that the user started is used and never shut down. `ray.init` without an address would join
any cluster that the machine started last, so the local one is asked for by name.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import AuthenticationError

from arkflow_kernel.errors import ClusterError, ResourceError
from arkflow_kernel.limits import MIB
from arkflow_ray.runtime.channel_folder import short_folder
from arkflow_ray.runtime.ray_errors import first_line

OBJECT_STORE_BYTES: Final = 128 * MIB
SHARED_MEMORY: Final = "/dev/shm"
SHARED_MEMORY_MARGIN_BYTES: Final = 32 * MIB
CPUS_PER_CHAIN_LOCAL: Final = 0.01
CPUS_PER_CHAIN_CLUSTER: Final = 1.0

_INIT_ERRORS = (
    AuthenticationError,
    ConnectionError,
    RuntimeError,
    ValueError,
    OSError,
    TimeoutError,
)
"""What `ray.init` raises when it finds or starts no Ray."""

_UNAUTHENTICATED: Final = ("AuthenticationError", "InvalidAuthToken", "Unauthenticated")

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


@dataclass(slots=True)
class RaySession:
    """A connection to Ray. `started`: it is ours and ends with `close`."""

    started: bool
    connected: bool
    num_cpus: float
    folder: str | None = None

    def close(self) -> None:
        """Shut a Ray that we started down; leave one that we only joined; else do nothing."""
        if self.started or self.connected:
            ray.shutdown()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.started = self.connected = False


def open_session(address: str | None, on_phase: Callable[[str], None]) -> RaySession:
    """Use the Ray of this process, else join `address`, else start a local one.

    Raises `ClusterError` if the address cannot be reached, `ResourceError` if Ray cannot start.
    """
    if ray.is_initialized():
        if address is not None:
            on_phase(f"this process is connected to a Ray already: '{address}' is not joined")
        return RaySession(started=False, connected=False, num_cpus=CPUS_PER_CHAIN_CLUSTER)
    if address is not None and address != "local":
        return _join(address, on_phase)
    return _start(on_phase)


def join_session(
    address: str, runtime_env: Mapping[str, Any] | None, on_phase: Callable[[str], None]
) -> RaySession:
    """Use the Ray of this process, else join `address` with the code and packages of a job.

    Raises `ClusterError` if it cannot be reached or refuses us.
    """
    if ray.is_initialized():
        return open_session(address, on_phase)
    return _join(address, on_phase, runtime_env)


def _join(
    address: str, on_phase: Callable[[str], None], runtime_env: Mapping[str, Any] | None = None
) -> RaySession:
    on_phase(f"joining Ray at {address}")
    options: dict[str, Any] = {"runtime_env": dict(runtime_env)} if runtime_env else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except _INIT_ERRORS as error:
        raise ClusterError(f"cannot reach Ray at '{address}': {_refusal(error)}") from error
    return RaySession(started=False, connected=True, num_cpus=CPUS_PER_CHAIN_CLUSTER)


def _refusal(error: BaseException) -> str:
    """Why a Ray could not be joined, and what to do."""
    if isinstance(error, AuthenticationError):
        return (
            "RAY_AUTH_MODE=token is set and there is no token; put the cluster's into "
            "RAY_AUTH_TOKEN or ~/.ray/auth_token"
        )
    if any(word in f"{error} {error.__cause__}" for word in _UNAUTHENTICATED):
        if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
            return (
                "it refuses our token; put the cluster's into RAY_AUTH_TOKEN or ~/.ray/auth_token"
            )
        return (
            "it asks for a token, which Ray does not send to an address that is given; "
            "RAY_AUTH_MODE=token makes it send the one in RAY_AUTH_TOKEN or ~/.ray/auth_token"
        )
    return (
        f"{first_line(error)}; is it running, and does it listen "
        "there? `ray status` on the head node tells"
    )


def _start(on_phase: Callable[[str], None]) -> RaySession:
    on_phase("starting Ray")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    folder = tempfile.mkdtemp(prefix="afr-", dir=short_folder())
    options: dict[str, Any] = {"_temp_dir": folder}
    plasma = _plasma_folder(folder, on_phase)
    if plasma is not None:
        options["_plasma_directory"] = plasma
    try:
        ray.init(
            address="local",
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **options,
        )
    except BaseException as error:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        # A node that does not come up in time is a bare `Exception`.
        if not isinstance(error, _INIT_ERRORS) and type(error) is not Exception:
            raise
        raise ResourceError(
            f"cannot start a local Ray: {first_line(error)}; "
            "`arkflow-ray run --inline` runs without Ray"
        ) from error
    return RaySession(True, True, CPUS_PER_CHAIN_LOCAL, folder)


def _plasma_folder(folder: str, on_phase: Callable[[str], None]) -> str | None:
    """Where the object store goes if shared memory is too small for it; None: shared memory."""
    needed = OBJECT_STORE_BYTES + SHARED_MEMORY_MARGIN_BYTES
    free = shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else 0
    if free >= needed:
        return None
    on_phase(
        f"{SHARED_MEMORY} has {free // MIB} MiB free, {needed // MIB} are needed: Ray's object "
        f"store goes to {folder}; stream data do not pass through it"
    )
    return folder


__all__ = ["RaySession", "join_session", "open_session"]
