"""Named actors that outlive whoever made them, and what the cluster remembers of them (P8, D5).

They live in a namespace of their own. Ray makes one again elsewhere when its node or its process
is lost; what it must still know then stands in the cluster's key-value store, never the truth
about a job, which is in its log.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError
from ray.experimental import internal_kv

from arkflow_kernel.errors import ClusterError, ResourceError
from arkflow_ray.runtime.ray_errors import first_line

CALLS_AT_ONCE: Final = 32
"""Callers of one actor that are answered at the same time."""

ANSWER_TIMEOUT_S: Final = 10.0
"""How long an actor that is up may take for an answer: none of them needs work."""

START_TIMEOUT_S: Final = 120.0
"""How long its process may take to come up; `pip` of a `runtime_env` is part of that."""

FOREVER: Final = -1

_KV_NAMESPACE: Final = b"arkflow"


class NameTakenError(Exception):
    """There is an actor of this name."""


class SilentActorError(Exception):
    """An actor does not answer now. `gone`: it never will; else it is perhaps made again."""

    def __init__(self, reason: str, *, gone: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.gone = gone


class DetachedActor:
    """A named actor as its callers see it."""

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self._handle = handle

    @property
    def identity(self) -> str:
        """Tells it from others that have had its name; the same when it is made again."""
        found: str = self._handle._actor_id.hex()
        return found

    def call(self, method: str, *args: Any, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """What one of its methods answers. Raises `SilentActorError`."""
        try:
            return ray.get(getattr(self._handle, method).remote(*args), timeout=timeout_s)
        except RayError as error:
            raise _silence(error) from error

    def kill(self) -> None:
        """End it for good."""
        with suppress(RayError):  # it is gone
            ray.kill(self._handle, no_restart=True)


def make_actor(
    body: type[Any],
    name: str,
    namespace: str,
    args: Sequence[Any],
    runtime_env: Mapping[str, Any] | None = None,
) -> DetachedActor:
    """Make one, and wait until it is up. Raises `NameTakenError` or `ClusterError`."""
    options: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": FOREVER,
        "max_task_retries": 0,
        "max_concurrency": CALLS_AT_ONCE,
    }
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    try:
        handle = ray.remote(body).options(**options).remote(*args)
    except ValueError as error:
        if "already" in str(error):
            raise NameTakenError(name) from error
        raise ClusterError(f"the cluster refuses actor '{name}': {first_line(error)}") from error
    actor = DetachedActor(name, handle)
    try:
        ray.get(handle.__ray_ready__.remote(), timeout=START_TIMEOUT_S)
    except GetTimeoutError as error:
        actor.kill()
        raise ResourceError(
            f"the process of '{name}' did not start within {START_TIMEOUT_S:.0f} s; "
            "`ray status` shows what the cluster lacks"
        ) from error
    except RayError as error:
        actor.kill()
        raise ClusterError(f"the process of '{name}' does not start: {_cause(error)}") from error
    return actor


def find_actor(name: str, namespace: str) -> DetachedActor | None:
    """The actor of this name, or None."""
    try:
        return DetachedActor(name, ray.get_actor(name, namespace=namespace))
    except ValueError:
        return None


def actor_names(namespace: str) -> list[str]:
    """The names of all that are there, sorted."""
    listed: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["name"] for each in listed if each["namespace"] == namespace)


def remember(key: str, values: Mapping[str, Any]) -> None:
    """Keep something for the successor of an actor, as JSON. Within the cluster only.

    Raises `ClusterError` while the cluster's store does not answer, as the others do.
    """
    data = json.dumps(values).encode()
    with _store():
        internal_kv._internal_kv_put(key.encode(), data, overwrite=True, namespace=_KV_NAMESPACE)


def recall(key: str) -> dict[str, Any] | None:
    """What was kept under a key, or None. Within the cluster only."""
    with _store():
        data = internal_kv._internal_kv_get(key.encode(), namespace=_KV_NAMESPACE)
    found: dict[str, Any] | None = None if data is None else json.loads(data)
    return found


def forget(key: str) -> None:
    """Keep it no longer. Within the cluster only."""
    with _store():
        internal_kv._internal_kv_del(key.encode(), namespace=_KV_NAMESPACE)


@contextmanager
def _store() -> Iterator[None]:
    try:
        yield
    except RayError as error:
        raise ClusterError(f"the cluster's store does not answer: {first_line(error)}") from error


def this_place() -> str:
    """The node that this process runs on, as Ray names it."""
    node: str = ray.get_runtime_context().get_node_id()
    return node


def _silence(error: RayError) -> SilentActorError:
    if isinstance(error, GetTimeoutError):
        return SilentActorError(f"it said nothing for {ANSWER_TIMEOUT_S:.0f} s", gone=False)
    return SilentActorError(first_line(error), gone=isinstance(error, ActorDiedError))


def _cause(error: RayError) -> str:
    """Why a process did not start: the last line of a traceback says more than the first."""
    text = str(error).strip()
    if "No module named 'arkflow" in text:
        return "arkflow_ray is not installed on the cluster; its image needs the same release"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{first_line(error)} … {lines[-1]}" if len(lines) > 1 else first_line(error)


__all__ = [
    "ANSWER_TIMEOUT_S",
    "DetachedActor",
    "NameTakenError",
    "SilentActorError",
    "actor_names",
    "find_actor",
    "forget",
    "make_actor",
    "recall",
    "remember",
    "this_place",
]
