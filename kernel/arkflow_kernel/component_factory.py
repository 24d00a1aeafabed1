"""Who builds the components of a chain from their plans: a port that each driver brings."""

from typing import Protocol

from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.plan import ONLY_SUBTASK, OperatorPlan, SinkPlan, SourcePlan, Subtask
from arkflow_kernel.ports import Operator, SinkWriter, SourceReader


class ComponentFactory(Protocol):
    """Builds a chain's components from their plans; built, not yet opened."""

    def source(self, plan: SourcePlan) -> SourceReader:
        """The source. Raises `ConfigError` or `ComponentError`."""
        ...

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """An operator; `workers` threads may call it at once (T2)."""
        ...

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """A sink; an `EpochSink` exactly if `staging` is given, which is if it is exactly-once.

        `subtask`: which of its parallel instances this is, so that they keep out of each other's
        way.
        """
        ...


__all__ = ["ComponentFactory"]
