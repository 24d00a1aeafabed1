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
    """A batch with its number on this edge, from 1 and without gaps (E6)."""

    sequence: Sequence
    batch: pa.RecordBatch


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
    """No data follows on this edge; barriers still may (E1)."""


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
