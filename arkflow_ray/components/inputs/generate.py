"""Input `generate`: copies of one text, a batch at each interval; for trying and for tests.

The first batch comes at once. With `count`, the input ends as soon as the next full batch would
exceed it, as ArkFlow does: `count: 10, batch_size: 4` gives 8 rows. Intervals are met by
schedule: a late read is followed by the next at its own time. Below a millisecond, which no clock
of the kernel can tell, all batches that are due come as one, up to `batch_rows` rows.

With `splits: n` the batches are dealt to n splits, which subtasks share (K5): split k has the
batches k, k + n, k + 2n and so on, each at its own time. So the input as a whole yields the same
rows at the same rate, however many subtasks it has.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
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
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext, ComponentConfig
from arkflow_ray.components.inputs.dealt_splits import (
    DealtReader,
    DealtSplit,
    SplitCount,
    split_names,
)
from arkflow_ray.components.inputs.decoding import with_codec
from arkflow_ray.components.inputs.file_config import BATCH_ROWS_MAX, BatchRows
from arkflow_ray.components.inputs.memory import PAYLOAD_SCHEMA

SPLIT: Final = SplitId("generate")
"""The only split without `splits`."""

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
    splits: SplitCount = 1
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

    @property
    def names(self) -> tuple[SplitId, ...]:
        """Its splits, by number. They are other ones with another number of them."""
        return split_names(SPLIT, self.splits)


@dataclass(slots=True)
class _Part(DealtSplit):
    """`ticks`: batches made since the start."""

    ticks: int = 0


class GenerateReader(DealtReader[_Part]):
    """A position is `{"emitted": rows so far}`; after a restart a batch comes at once again."""

    def __init__(self, operator: str, config: GenerateConfig) -> None:
        self._operator = operator
        self._size = config.batch_size
        self._interval_ns = config.interval_ns
        self._ticks_max = 1
        if self._interval_ns < _NS_A_MS:
            self._ticks_max = max(1, config.batch_rows // config.batch_size)
        self._context = config.context.encode()
        self._copies: pa.RecordBatch | None = None
        self._start_ns: int | None = None
        self._step = config.splits
        super().__init__(
            [_Part(name, k, _rows_of(config, k)) for k, name in enumerate(config.names)]
        )

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """What is due, or when to ask again; until then there is nothing (W2)."""
        if self._start_ns is None:
            self._start_ns = now_ms * _NS_A_MS
        open_parts = self._open_parts()
        if not open_parts:
            return SourceEnded()
        part = min(open_parts, key=lambda part: (self._due_ns(part), part.ticks, part.number))
        due = self._batches_due(part, now_ms * _NS_A_MS)
        if due == 0:
            return NothingYet(MonotonicMs(-(-self._due_ns(part) // _NS_A_MS)))
        left = self._batches_left(part)
        taken = min(due, self._ticks_max, self._ticks_max if left is None else left)
        part.ticks += taken
        first = part.made
        part.made += taken * self._size
        return SourceBatch(
            part.split,
            self._rows(taken * self._size),
            {"emitted": part.made},
            Origin(part.split, offset=first),
            split_ended=self._ended(part),
        )

    def _ended(self, part: _Part) -> bool:
        return self._batches_left(part) == 0

    def _check(self, restored: Seq[SplitPosition]) -> dict[SplitId, int]:
        """Rows emitted so far, by split."""
        own, known = {part.split for part in self._parts}, dict[SplitId, int]()
        for place in restored:
            emitted = place.position.get("emitted")
            if not isinstance(emitted, int) or emitted < 0:
                raise SourceError(
                    f"input '{self._operator}': not a position of `generate`: {place.position}; "
                    "start the job without its positions"
                )
            if place.split not in own:
                raise SourceError(
                    f"input '{self._operator}': it has no split '{place.split}'; was `splits` "
                    "changed? Set it back, or start the job without its positions"
                )
            known[place.split] = emitted
        return known

    def _batches_left(self, part: _Part) -> int | None:
        return None if part.rows is None else max(0, part.rows - part.made) // self._size

    def _due_ns(self, part: _Part) -> int:
        """When the next batch of a split is due."""
        assert self._start_ns is not None
        return self._start_ns + (part.number + part.ticks * self._step) * self._interval_ns

    def _batches_due(self, part: _Part, now_ns: int) -> int:
        if self._interval_ns == 0:
            return self._ticks_max
        late_ns = now_ns - self._due_ns(part)
        return 0 if late_ns < 0 else late_ns // (self._step * self._interval_ns) + 1

    def _rows(self, count: int) -> pa.RecordBatch:
        if self._copies is None or self._copies.num_rows < count:
            values = pa.repeat(pa.scalar(self._context, pa.binary()), count)
            self._copies = pa.RecordBatch.from_arrays([values], schema=PAYLOAD_SCHEMA)
        return self._copies.slice(0, count)


def _rows_of(config: GenerateConfig, number: int) -> int | None:
    """Most rows of a split: its batches of all that fit into `count`."""
    if config.count is None or config.splits == 1:
        return config.count
    batches = range(number, config.count // config.batch_size, config.splits)
    return len(batches) * config.batch_size


def build(config: GenerateConfig, context: BuildContext) -> SourceReader:
    """Make the reader, with its codec if there is one."""
    return with_codec(GenerateReader(context.operator, config), context.codec, context.operator)


__all__ = [
    "SPLIT",
    "GenerateConfig",
    "GenerateReader",
    "build",
]
