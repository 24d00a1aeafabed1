"""Input `generate`: copies of one text, a batch at each interval; for trying and for tests.

The first batch comes at once. With `count`, the input ends as soon as the next full batch would
exceed it, as ArkFlow does: `count: 10, batch_size: 4` gives 8 rows. Intervals are met by
schedule: a late read is followed by the next at its own time. Below a millisecond, which no clock
of the kernel can tell, all batches that are due come as one, up to `batch_rows` rows.
"""

from collections.abc import Sequence as Seq
from typing import Annotated, Final

import pyarrow as pa
from pydantic import Field, field_validator

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.durations import parse_duration_ns
from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT
from arkflow_kernel.ports import (
    NothingYet,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext, ComponentConfig
from arkflow_ray.components.inputs.decoding import with_codec
from arkflow_ray.components.inputs.file_config import BATCH_ROWS_MAX, BatchRows
from arkflow_ray.components.inputs.memory import PAYLOAD_SCHEMA

SPLIT: Final = SplitId("generate")
_NS_A_MS: Final = 1_000_000


class GenerateConfig(ComponentConfig):
    """Input `generate`."""

    context: Annotated[str, Field(description="The text of every row.", examples=['{"a": 1}'])]
    interval: Annotated[
        str, Field(description="Time between two batches, such as `1s`.", examples=["1s"])
    ]
    count: Annotated[
        int | None, Field(ge=0, description="Rows in total; without it there is no end.")
    ] = None
    batch_size: Annotated[
        int, Field(ge=1, le=BATCH_ROWS_MAX, description="Rows at each interval.")
    ] = 1
    batch_rows: BatchRows = BATCH_ROWS_DEFAULT

    @field_validator("interval")
    @classmethod
    def _a_duration(cls, value: str) -> str:
        parse_duration_ns(value)
        return value

    @property
    def interval_ns(self) -> int:
        """`interval` in nanoseconds; 0 means as fast as it can."""
        return parse_duration_ns(self.interval)


class GenerateReader:
    """The position is `{"emitted": rows so far}`; after a restart a batch comes at once again."""

    def __init__(self, operator: str, config: GenerateConfig) -> None:
        self._operator = operator
        self._size = config.batch_size
        self._count = config.count
        self._interval_ns = config.interval_ns
        self._ticks_max = 1
        if self._interval_ns < _NS_A_MS:
            self._ticks_max = max(1, config.batch_rows // config.batch_size)
        self._context = config.context.encode()
        self._copies: pa.RecordBatch | None = None
        self._emitted = 0
        self._start_ns: int | None = None
        self._ticks = 0

    @property
    def replay(self) -> ReplayKind:
        """Any row can be made again."""
        return ReplayKind.POSITION

    @property
    def commits(self) -> bool:
        """There is nobody to tell."""
        return False

    def open(self, restored: Seq[SplitPosition]) -> None:
        """Continue after the rows that were emitted. SourceError for a foreign position."""
        for place in restored:
            emitted = place.position.get("emitted")
            if not isinstance(emitted, int) or emitted < 0:
                raise SourceError(
                    f"input '{self._operator}': not a position of `generate`: {place.position}; "
                    "start the job without its positions"
                )
            self._emitted = emitted

    def splits(self) -> Seq[SplitId]:
        """The only one, until `count` is reached."""
        return () if self._batches_left() == 0 else (SPLIT,)

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """What is due, or when to ask again; until then there is nothing (W2)."""
        left = self._batches_left()
        if left == 0:
            return SourceEnded()
        due = self._batches_due(now_ms)
        if due == 0:
            return NothingYet(self._next_due_ms())
        taken = min(due, self._ticks_max, self._ticks_max if left is None else left)
        self._ticks += taken
        first = self._emitted
        self._emitted += taken * self._size
        return SourceBatch(
            SPLIT,
            self._rows(taken * self._size),
            {"emitted": self._emitted},
            Origin(SPLIT, offset=first),
            split_ended=self._batches_left() == 0,
        )

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Never called: `commits` is False."""

    def close(self) -> None:
        """Nothing to release."""

    def _batches_left(self) -> int | None:
        if self._count is None:
            return None
        return max(0, self._count - self._emitted) // self._size

    def _batches_due(self, now_ms: MonotonicMs) -> int:
        now_ns = now_ms * _NS_A_MS
        if self._start_ns is None:
            self._start_ns = now_ns
        if self._interval_ns == 0:
            return self._ticks_max
        return (now_ns - self._start_ns) // self._interval_ns + 1 - self._ticks

    def _next_due_ms(self) -> MonotonicMs:
        assert self._start_ns is not None
        due_ns = self._start_ns + self._ticks * self._interval_ns
        return MonotonicMs(-(-due_ns // _NS_A_MS))

    def _rows(self, count: int) -> pa.RecordBatch:
        if self._copies is None or self._copies.num_rows < count:
            values = pa.repeat(pa.scalar(self._context, pa.binary()), count)
            self._copies = pa.RecordBatch.from_arrays([values], schema=PAYLOAD_SCHEMA)
        return self._copies.slice(0, count)


def build(config: GenerateConfig, context: BuildContext) -> SourceReader:
    """Make the reader, with its codec if there is one."""
    return with_codec(GenerateReader(context.operator, config), context.codec, context.operator)


__all__ = ["SPLIT", "GenerateConfig", "GenerateReader", "build"]
