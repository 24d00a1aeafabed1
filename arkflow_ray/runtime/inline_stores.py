"""The checkpoint stores of jobs that run in this process, opened before them and closed after."""

from arkflow_kernel.checkpoint_ports import JobStore
from arkflow_kernel.plan import ExecutionGraph
from arkflow_ray.checkpoint.open import StoreObjects, open_objects
from arkflow_ray.runtime.ephemeral_root import EphemeralRoot
from arkflow_ray.runtime.log_thread import open_job_log


class InlineStores:
    """The stores of one launch; a `Session`. Roots that end with the run are taken away."""

    def __init__(self) -> None:
        self._roots: list[EphemeralRoot] = []
        self._objects: list[StoreObjects] = []

    def open(self, graph: ExecutionGraph) -> JobStore | None:
        """The store of a job; None in ack mode. Raises `StoreError` if its root is refused."""
        plan = graph.checkpoint
        if plan is None:
            return None
        root = plan.root
        if root is None:
            self._roots.append(EphemeralRoot())
            root = self._roots[-1].url
        objects = open_objects(root, graph.job)
        self._objects.append(objects)
        return JobStore(open_job_log(graph, root), objects)

    def close(self) -> None:
        """Release what was opened. The jobs are over."""
        for objects in self._objects:
            objects.close()
        for root in self._roots:
            root.close()


__all__ = ["InlineStores"]
