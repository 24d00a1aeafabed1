"""Output `drop`: discards every row. Confirms at once; never fails."""

import pyarrow as pa

from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_kernel.ports import SinkWriter, WriteReceipt
from arkflow_ray.components.api import BuildContext, ComponentConfig


class DropConfig(ComponentConfig):
    """`drop` has no fields. A codec is accepted and unused, as in ArkFlow."""


class DropWriter:
    """Counts as delivered what it throws away."""

    def __init__(self) -> None:
        self._last = Sequence(0)

    def open(self) -> None:
        """Nothing to connect."""

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Confirm the batch."""
        self._last = sequence
        return WriteReceipt(sequence)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Never asked for; everything is confirmed."""
        return WriteReceipt(self._last)

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Everything is confirmed."""
        return WriteReceipt(self._last)

    def close(self) -> None:
        """Nothing to release."""


def build(config: DropConfig, context: BuildContext) -> SinkWriter:  # noqa: ARG001
    """The registry's factory."""
    return DropWriter()


__all__ = ["DropConfig", "DropWriter", "build"]
