"""Output `file`: rows in part files below a folder, each part published whole or not at all.

The invariant of this sink, which delivers at least once: a write is confirmed only when all its
rows are in published, durable parts; every row is in exactly one of them, in order. A part that
is open when the process dies was never confirmed, so its rows come again. A flush, which in
checkpoint mode comes at each barrier (F4), publishes the open part. `epoch_file.py` is the sink
that publishes exactly once; formats and folders are modules of their own.
"""

import pyarrow as pa

from arkflow_kernel.checkpoint_ports import EpochSink
from arkflow_kernel.errors import ConfigError, Issue, SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_kernel.ports import SinkWriter, WriteReceipt
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from arkflow_ray.components.outputs.hidden_files import owner_of
from arkflow_ray.components.outputs.part_folders import LocalFolder, PartFolder, part_stem
from arkflow_ray.components.outputs.part_writer import PartWriter


class FileSink:
    """The at-least-once writer of one sink lane. After an error it takes nothing more."""

    def __init__(self, config: FileOutputConfig, operator: str, folder: PartFolder) -> None:
        self._config, self._operator, self._folder = config, operator, folder
        self._parts = PartWriter(config, operator, folder, self._published)
        self._written = Sequence(0)
        self._confirmed = Sequence(0)

    def open(self) -> None:
        """Create the folder, prove that it can be written, look at which parts it holds."""
        if self._config.exactly_once:
            raise SinkError(
                f"output '{self._operator}': `exactly_once: true` needs a job with a "
                "`checkpoint:` block; add one, or set it to false"
            )
        self._folder.open()

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Add the batch to the open part; publish parts that reach a limit on the way."""
        self._parts.add(batch, now_ms)
        self._written = sequence
        return self._receipt()

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Publish the open part if its interval is over."""
        self._parts.roll(now_ms)
        return self._receipt()

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Publish the open part."""
        self._parts.finish()
        return self._receipt()

    def close(self) -> None:
        """Remove the open part; its writes were not confirmed."""
        self._parts.abandon()

    def _receipt(self) -> WriteReceipt:
        if self._parts.roll_at_ms is None:
            self._confirmed = self._written
        return WriteReceipt(self._confirmed, self._parts.roll_at_ms)

    def _published(self, name: str, rows: int) -> None:  # noqa: ARG002
        # The part may hold rows of the write at work, which is confirmed when it is all out.
        self._confirmed = self._written


def build(config: FileOutputConfig, context: BuildContext) -> SinkWriter | EpochSink:
    """The registry's factory: with `staging` an exactly-once sink, otherwise an at-least-once one.

    Raises `ConfigError` if no client for the URL is installed, or if it cannot stage.
    """
    owner = owner_of(context.job, context.operator, context.subtask)
    local = config.local_folder
    if context.staging is not None:
        from arkflow_ray.components.outputs.epoch_file import EpochFileSink

        if local is None:
            raise ConfigError([Issue("path", "an exactly-once `file` output needs a local folder")])
        return EpochFileSink(config, context.operator, local, context.staging, owner)
    if local is not None:
        stem, extension = _stem(context), config.extension
        folder: PartFolder = LocalFolder(context.operator, local, stem, extension, owner)
    else:
        folder = _store(config, context)
    return FileSink(config, context.operator, folder)


def _stem(context: BuildContext) -> str:
    """Subtasks number their parts apart: none takes a name that another one looks for."""
    return part_stem(generation=1, checkpoint=0, lane=context.subtask.index)


def _store(config: FileOutputConfig, context: BuildContext) -> PartFolder:
    from arkflow_ray.components.outputs.part_store import RemoteFolder, check_protocol

    check_protocol(config.path)
    return RemoteFolder(context.operator, config.path, _stem(context), config.extension)


__all__ = ["FileSink", "build"]
