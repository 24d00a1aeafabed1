"""What travels on an edge (E1): data and control share one FIFO channel.

`Reset` is the first envelope of every edge of an attempt. `EndOfStream` ends the *data* of an
edge, not the edge: after it only barriers flow; it implies a watermark of the maximum.
"""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, Sequence


class RoundKind(Enum):
    """Why a checkpoint round was opened."""

    PERIODIC = "periodic"
    SAVEPOINT = "savepoint"
    RESCALE = "rescale"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Data:
    """Rows with their number on this channel, from 1 and without gaps (E6).

    `pieces` are batches of one schema, in order, never empty. Whoever hands the envelope over to
    the receiver joins them: its lane runs one batch. `size_bytes` is what credit counts.
    """

    sequence: Sequence
    pieces: tuple[pa.RecordBatch, ...]
    size_bytes: int

    @property
    def num_rows(self) -> int:
        """Rows of all pieces."""
        return sum(piece.num_rows for piece in self.pieces)

    def joined(self) -> "Data":
        """The same rows in one piece; copies them if there are several."""
        if len(self.pieces) == 1:
            return self
        joined = pa.concat_batches(self.pieces)  # type: ignore[attr-defined]  # not in the stubs
        return Data(self.sequence, (joined,), self.size_bytes)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Cuts the stream: what precedes it on the edge belongs to checkpoint `round_id`."""

    round_id: CheckpointId
    generation: Generation
    kind: RoundKind


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row with an event time below `time_ms` follows, but for late ones."""

    time_ms: EventTimeMs


@dataclass(frozen=True, slots=True)
class Idle:
    """The edge is idle until its next Data or Watermark (W2)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Starts the edge anew for `generation`: sequence 1, watermark unknown, round none."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """No data follows on this edge; barriers still may (E1).

    `stopped`: the data did not end, a user stopped the job; operators are not finished (D5).
    """

    stopped: bool = False


Envelope = Data | Barrier | Watermark | Idle | Reset | EndOfStream

__all__ = [
    "Barrier",
    "Data",
    "EndOfStream",
    "Envelope",
    "Idle",
    "Reset",
    "RoundKind",
    "Watermark",
]
