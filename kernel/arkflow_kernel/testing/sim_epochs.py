"""An exactly-once sink of the simulation, and the target that all its lanes publish to (X1).

Rows are numbers with the counts that stateful operators gave them. Staged epochs are objects of
the simulated store, so a collector that takes one away is found out by who publishes it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import StoreError
from arkflow_kernel.ids import MonotonicMs, OperatorId, Sequence
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken, StagedObject
from arkflow_kernel.testing.sim_rows import rows_of

COUNTS: Final = "n_"
"""Columns that begin so are running counts: `n_<operator>`."""

TOTALS: Final = "w_"
"""Columns that begin so are counts of a window: `w_<operator>`."""

ROWS_OF_OBJECT: Final = 7
"""Rows of one staged object: small, so that epochs have several."""

Counted = tuple[int, tuple[tuple[str, int], ...]]
"""A row, and by operator the count that it was given; of a window by its column."""

Lane = tuple[OperatorId, int]


def counted_rows(batch: pa.RecordBatch) -> list[Counted]:
    """The rows of a batch with their counts."""
    rows = rows_of(batch)
    names = [name for name in batch.schema.names if name.startswith((COUNTS, TOTALS))]
    if not names:
        return [(row, ()) for row in rows]
    columns = [batch.column(name).to_pylist() for name in names]
    operators = [name.removeprefix(COUNTS) for name in names]
    counts = zip(*columns, strict=True)
    return [
        (row, tuple(zip(operators, found, strict=True)))
        for row, found in zip(rows, counts, strict=True)
    ]


@dataclass
class _Sealed:
    epoch: Epoch
    rows: list[Counted]


class SimEpochSink:
    """Stages what it was told, publishes what it is given.

    `show` makes an epoch visible, and judges it. `stumbles`: whether staging or publishing fails
    half-way this time.
    """

    def __init__(
        self,
        operator: OperatorId,
        staging: Staging,
        on_write: Callable[[list[int]], None],
        show: Callable[[SinkToken, list[Counted]], None],
        stumbles: Callable[[str], bool],
    ) -> None:
        self._operator, self._staging = operator, staging
        self._on_write, self._show, self._stumbles = on_write, show, stumbles
        self._open: list[Counted] = []
        self._sealed: list[_Sealed] = []
        self._untold: list[SinkToken] = []
        self._objects = 0
        self._writes = 0

    def open(self) -> None:
        """Nothing to open."""

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Spool; nothing is confirmed by it."""
        del now_ms
        self._writes += 1
        assert sequence == self._writes, f"write {sequence} came as number {self._writes}"
        rows = counted_rows(batch)
        self._on_write([row for row, _ in rows])
        self._open += rows
        return WriteReceipt(Sequence(0))

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Nobody asks for it."""
        raise NotImplementedError

    def seal(self, epoch: Epoch) -> None:
        """End the epoch."""
        self._sealed.append(_Sealed(epoch, self._open))
        self._open = []

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        """Put the rows of sealed epochs into objects, a few in each."""
        while self._sealed and self._sealed[0].epoch <= upto:
            sealed = self._sealed[0]
            if sealed.rows:
                staged = [
                    self._staged(sealed.rows[first : first + ROWS_OF_OBJECT])
                    for first in range(0, len(sealed.rows), ROWS_OF_OBJECT)
                ]
                lane, epoch = self._staging.lane, sealed.epoch
                self._untold.append(SinkToken(self._operator, lane, epoch, tuple(staged)))
            self._sealed.pop(0)
        if self._stumbles("stage"):
            raise StoreError("injected: staging fails")
        told, self._untold = self._untold, []
        return tuple(told)

    def _staged(self, rows: list[Counted]) -> StagedObject:
        self._objects += 1
        name = f"{self._staging.name}-{self._objects}.sink"
        ref = self._staging.objects.put(name, [json.dumps(rows).encode()])
        return StagedObject(ref, len(rows))

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        """Show the rows of a token, all at once."""
        assert isinstance(permit, CommitPermit)
        rows: list[Counted] = []
        for staged in token.objects:
            data = self._staging.objects.read(staged.object)
            found = json.loads(data.to_pybytes())
            assert len(found) == staged.rows
            rows += [(row, tuple((op, n) for op, n in counts)) for row, counts in found]
        if self._stumbles("publish before"):
            raise StoreError("injected: publishing fails")
        self._show(token, rows)
        if self._stumbles("publish after"):
            raise StoreError("injected: publishing is not confirmed")

    def close(self) -> None:
        """What is not staged is gone."""


__all__ = ["COUNTS", "TOTALS", "Counted", "Lane", "SimEpochSink", "counted_rows"]
