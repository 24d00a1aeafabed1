"""Output `file` that publishes exactly once: staged epochs of part files (X1, X3).

Rows go into parts in the checkpoint store's spool; a barrier seals the epoch; staging moves its
parts into the store; and a token whose record is persisted becomes files of the target folder. A
crash leaves files in the spool and objects that no record lists, never a row that a reader sees.
"""

import pyarrow as pa

from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.ids import MonotonicMs, OperatorId, Sequence
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken
from arkflow_ray.components.outputs.epoch_publication import EpochPublication
from arkflow_ray.components.outputs.epoch_spool import EpochStage, SpoolPlace
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from arkflow_ray.components.outputs.hidden_files import HiddenOwner
from arkflow_ray.components.outputs.part_writer import PartWriter

_NOTHING = Sequence(0)


class EpochFileSink:
    """An `EpochSink` of one subtask. After a failed write it takes nothing more."""

    def __init__(
        self,
        config: FileOutputConfig,
        operator: str,
        folder: str,
        staging: Staging,
        owner: HiddenOwner | None = None,
    ) -> None:
        self._stage = EpochStage(OperatorId(operator), staging, config.extension)
        place = SpoolPlace(operator, staging)
        self._parts = PartWriter(config, operator, place, self._stage.add)
        self._publication = EpochPublication(operator, folder, staging, owner)

    def open(self) -> None:
        """Create the folder, prove that parts can be published there."""
        self._publication.open()

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Spool a batch."""
        self._parts.add(batch, now_ms)
        return self._receipt()

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Finish the open part if its interval is over; it stays in its epoch."""
        self._parts.roll(now_ms)
        return self._receipt()

    def seal(self, epoch: Epoch) -> None:
        """Finish the open part; the parts finished since the seal before are this epoch."""
        self._parts.finish()
        self._stage.seal(epoch)

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        """Put the parts of sealed epochs into the store. `StoreError`: call it again."""
        return self._stage.stage(upto)

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:  # noqa: ARG002
        """Show the files of a token. Needs no `open`; publishing again changes nothing."""
        self._publication.publish(token)

    def close(self) -> None:
        """Remove the open part and those that are not staged."""
        self._parts.abandon()
        self._stage.discard()

    def _receipt(self) -> WriteReceipt:
        return WriteReceipt(_NOTHING, self._parts.roll_at_ms)


__all__ = ["EpochFileSink"]
