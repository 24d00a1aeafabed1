"""Where the checkpoints of one run lie: where the user said, or in a folder of the run (F0)."""

from arkflow_kernel.plan import ExecutionGraph
from arkflow_ray.runtime.ephemeral_root import EphemeralRoot


class CheckpointRoot:
    """The checkpoint root of a job, by one URL for all of its processes.

    Raises `StoreError` for a root that cannot be used.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self._ephemeral: EphemeralRoot | None = None
        self.url: str | None = None
        plan = graph.checkpoint
        if plan is None:
            return
        if plan.root is None:
            self._ephemeral = EphemeralRoot()
            self.url = self._ephemeral.url
            return
        from arkflow_ray.checkpoint.roots import parse_root

        self.url = parse_root(plan.root).url  # a relative path starts where the driver is (C8)

    def close(self) -> None:
        """Take a folder of the run away. May be called again."""
        if self._ephemeral is not None:
            self._ephemeral.close()


__all__ = ["CheckpointRoot"]
