"""The entry point that every driver offers (R3): a planned job in, a handle out."""

from typing import Protocol

from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import NEWEST, RestoreChoice


class JobRunner(Protocol):
    """Runs jobs: inline, simulated, or on Ray."""

    def run_job(self, graph: ExecutionGraph, choice: RestoreChoice = NEWEST) -> KernelHandle:
        """Start the job where `choice` says (M2), which is of no account in ack mode.

        Raises `ArkflowError` if it cannot even begin; later trouble is in the outcome that `wait`
        returns, `RestoreError` too.
        """
        ...


__all__ = ["NEWEST", "JobRunner"]
