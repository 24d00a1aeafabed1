"""The checkpoint stores of jobs that run in this process, opened before them and closed after."""

from typing import TYPE_CHECKING

from arkflow_kernel.checkpoint_ports import JobStore
from arkflow_kernel.plan import ExecutionGraph
from arkflow_ray.runtime.checkpoint_root import CheckpointRoot
from arkflow_ray.runtime.log_thread import open_job_log

if TYPE_CHECKING:  # a job in ack mode needs no store
    from arkflow_ray.checkpoint.open import StoreObjects


class InlineStores:
    """The stores of one launch; a `Session`. Roots that end with the run are taken away."""

    def __init__(self) -> None:
        self._roots: list[CheckpointRoot] = []
        self._objects: list[StoreObjects] = []

    def open(self, graph: ExecutionGraph) -> JobStore | None:
        """The store of a job; None in ack mode. Raises `StoreError` if its root is refused."""
        root = CheckpointRoot(graph)
        if root.url is None:
            return None
        from arkflow_ray.checkpoint.open import open_objects

        self._roots.append(root)
        objects = open_objects(root.url, graph.job)
        self._objects.append(objects)
        return JobStore(open_job_log(graph, root.url), objects)

    def close(self) -> None:
        """Release what was opened. The jobs are over."""
        for objects in self._objects:
            objects.close()
        for root in self._roots:
            root.close()


__all__ = ["InlineStores"]
