"""What a coordinator is started with, and what its driver keeps of it. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.protocol import JobStatus
from arkflow_ray.runtime.chain_actor import ActorIdentity, ActorPlace


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How a job's actors are placed and what they are given.

    `channel_folder` names the folder of the job's sockets. `secrets` never appears in a repr; it
    goes to chain actors in their deploy call (M8). `checkpoint_root` is the URL below which the
    checkpoints of a job in checkpoint mode lie. `run` names this run of the job in its log. `ours`:
    the Ray was started for this run, so nobody else is there (P6).
    """

    num_cpus: float
    threads: int
    folder: str
    secrets: Mapping[str, str]
    channel_folder: str
    checkpoint_root: str | None = None
    run: str = ""
    ours: bool = False

    def __repr__(self) -> str:
        return f"JobSettings(num_cpus={self.num_cpus}, threads={self.threads})"


@dataclass(frozen=True, slots=True)
class Succession:
    """What coordinators of the same run did before this one: whether one of them made a claim, and
    whether the job was running under one of them.
    """

    continued: bool = False
    started: bool = False


FIRST = Succession()
"""There was none."""


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """What the driver keeps of a coordinator, to go on when it is gone (P8, D6).

    `chains` are all of its processes that could write; `deployed`: it has made a generation its
    own, so a successor begins at the newest record.
    """

    status: JobStatus
    place: ActorPlace
    chains: tuple[ActorIdentity, ...]
    deployed: bool


@dataclass(frozen=True, slots=True)
class StdoutActors:
    """Whose rows the driver prints in a generation (P9).

    `actors` holds the actor of each chain in `chains` that has one already; `living` are all actors
    of the job that were not killed, also those that print nothing.
    """

    generation: Generation
    actors: Mapping[ChainId, Any]
    chains: frozenset[ChainId]
    living: tuple[Any, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether each chain has its actor."""
        return self.actors.keys() == self.chains


__all__ = ["FIRST", "CoordinatorView", "JobSettings", "StdoutActors", "Succession"]
