"""What the chain actors of one job are given to build their chains (D1, M8, H1)."""

from dataclasses import dataclass
from typing import Any

import ray

from arkflow_kernel.ids import Generation, JobId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.snapshot import NOTHING_RESTORED, RestoredChain
from arkflow_ray.runtime.chain_actor import Deployment
from arkflow_ray.runtime.chain_process import ChainProcess
from arkflow_ray.runtime.job_settings import JobSettings


@dataclass(frozen=True, slots=True)
class Deployments:
    """Of one coordinator; `coordinator` is its actor, None without Ray.

    `by_calls`: chains of different nodes reach each other by calls of their actors (H6).
    """

    job: JobId
    settings: JobSettings
    coordinator: Any = None
    by_calls: bool = False

    def of(
        self,
        plan: ChainPlan,
        process: ChainProcess,
        generation: Generation,
        channel_secret: bytes = b"",
        restored: RestoredChain = NOTHING_RESTORED,
    ) -> Deployment:
        """For a chain on a process that has answered."""
        settings, identity = self.settings, process.identity
        assert identity is not None
        return Deployment(
            self.job,
            plan,
            generation,
            restored,
            settings.secrets,
            settings.folder,
            settings.threads,
            identity.node_ip,
            channel_secret,
            settings.channel_folder,
            # Looked at anew each time: the cluster may have grown to take this job in.
            tcp=bool(plan.inputs or plan.channels) and not self.by_calls and several_nodes(),
            tunnel=self.by_calls,
            checkpoint_root=settings.checkpoint_root,
            coordinator=self.coordinator,
        )


def own_handle() -> Any:
    """The handle of the actor that this process is, None for a process that is none."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return None if context.get_actor_id() is None else context.current_actor


def nodes_alive() -> int:
    """How many nodes there are now."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return len([node for node in nodes if node["Alive"]])


def several_nodes() -> bool:
    """Whether chains may be on different nodes: then they listen on the network too (H1)."""
    return nodes_alive() > 1


__all__ = ["Deployments", "nodes_alive", "own_handle", "several_nodes"]
