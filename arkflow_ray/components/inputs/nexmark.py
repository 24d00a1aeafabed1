"""Input `nexmark`: the persons, auctions or bids of the Nexmark benchmark, made as they are read.

Rows depend on the seed and the number of their event alone, so three sources of one seed are one
auction house, and any row can be made again.

With `splits: n` blocks of 1,000 events are dealt to n splits, which subtasks share (K5): split k
has the blocks k, k + n, k + 2n and so on. A reader reads the split that is furthest behind, so
all of them stay close in event time.
"""

from collections.abc import Sequence as Seq
from typing import Final

import numpy as np

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import (
    ReadResult,
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.inputs.counted_draws import Numbers
from arkflow_ray.components.inputs.dealt_splits import DealtReader, DealtSplit
from arkflow_ray.components.inputs.nexmark_config import NexmarkConfig
from arkflow_ray.components.inputs.nexmark_rows import TABLES, Events

ROUNDS_A_BLOCK: Final = 20
_NO_ROWS_SHOWN: Final = "date_time"


class NexmarkReader(DealtReader[DealtSplit]):
    """A position is `{"rows": so many of the split's, "of": fingerprint of the settings}`."""

    def __init__(
        self, operator: str, config: NexmarkConfig, columns: frozenset[str] | None = None
    ) -> None:
        self._operator = operator
        self._config = config
        self._table = TABLES[config.kind]
        known = self._table.columns
        looked_at = tuple(name for name in known if columns is None or name in columns)
        self._columns = looked_at or (_NO_ROWS_SHOWN,)
        self._block = ROUNDS_A_BLOCK * self._table.count
        parts = [DealtSplit(name, k, self._rows_of(k)) for k, name in enumerate(config.names)]
        super().__init__(parts)

    def read(self, now_ms: MonotonicMs) -> ReadResult:  # noqa: ARG002
        """The next rows of the split that is furthest behind, or the end."""
        parts = self._open_parts()
        if not parts:
            return SourceEnded()
        part = min(parts, key=lambda part: (part.made, part.number))
        first, count = part.made, self._config.batch_rows
        if part.rows is not None:
            count = min(count, part.rows - first)
        part.made += count
        numbers = self._table.numbers(self._rows(part, first, count))
        return SourceBatch(
            part.split,
            Events(self._config, numbers).batch(self._table, self._columns),
            {"rows": part.made, "of": self._config.fingerprint},
            Origin(part.split, offset=first),
            split_ended=self._ended(part),
        )

    def _rows(self, part: DealtSplit, first: int, count: int) -> Numbers:
        """Which rows of the table these rows of a split are."""
        blocks, within = np.divmod(np.arange(first, first + count, dtype=np.int64), self._block)
        return (blocks * self._config.splits + part.number) * self._block + within

    def _rows_of(self, number: int) -> int | None:
        """All rows of a split: its whole blocks, and the last one if that is its own."""
        if self._config.events is None:
            return None
        whole, rest = divmod(self._table.rows_of(self._config.events), self._block)
        splits = self._config.splits
        own = len(range(number, whole, splits)) * self._block
        return own + (rest if whole % splits == number else 0)

    def _ended(self, part: DealtSplit) -> bool:
        return part.rows is not None and part.made >= part.rows

    def _check(self, restored: Seq[SplitPosition]) -> dict[SplitId, int]:
        """Rows made so far, by split."""
        own, known = {part.split for part in self._parts}, dict[SplitId, int]()
        for place in restored:
            rows = place.position.get("rows")
            if place.split not in own:
                raise self._foreign(f"it has no split '{place.split}'; were `splits` changed?")
            if not isinstance(rows, int) or rows < 0:
                raise self._foreign(f"not a position of `nexmark`: {place.position};")
            if place.position.get("of") != self._config.fingerprint:
                raise self._foreign(
                    f"the rows of '{place.split}' that were read are not those of its settings; "
                    "was one of them changed (all but `events` and `batch_rows` matter)?"
                )
            known[place.split] = rows
        return known

    def _foreign(self, told: str) -> SourceError:
        return SourceError(
            f"input '{self._operator}': {told} Set it back, or start the job without its positions"
        )


def build(config: NexmarkConfig, context: BuildContext) -> SourceReader:
    """Make the reader."""
    return NexmarkReader(context.operator, config, context.columns)


__all__ = ["ROUNDS_A_BLOCK", "NexmarkReader", "build"]
