"""The entry point that every driver offers (R3): a planned job in, a handle out."""

from typing import Protocol

from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph


class JobRunner(Protocol):
    """Runs jobs: inline, simulated, or on Ray."""

    def run_job(self, graph: ExecutionGraph) -> KernelHandle:
        """Start the job. Raises `ArkflowError` if it cannot even begin; later trouble is in
        the outcome that `wait` returns."""
        ...


__all__ = ["JobRunner"]
