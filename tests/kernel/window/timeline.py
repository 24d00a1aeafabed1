"""Pictures of what a window operator is given, item by item, and of what it answers.

    given       a1@100 a2@900 | w=1500 | a10@500
    answered    -             | a[0,1000)=3/2 | a[0,1000)=13/3!

A batch is rows of key, value and time; `a1@100^900` was stamped by the gate with the row watermark
900. `_` is a null key, `?` a null value or time. `w=` advances the watermark, `t=` the wall clock
and ticks, `end` is the end of the data, `save` takes a snapshot and goes on in a new operator that
was restored from it. A result is key, window, sum and count; `!` marks an update. `late:2` are rows
that were late, `routed:2` those of them that left for the late route, `evicted:2` rows that went
for want of room.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, OperatorId, WallMs
from arkflow_kernel.plan import (
    AggregatePlan,
    ComponentPlan,
    LatePolicy,
    OperatorPlan,
    StatePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import OperatorResult, TimedOperator
from arkflow_kernel.snapshot import Epoch, StateSnapshot
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.testing.session_bench import PLAIN
from arkflow_kernel.window.building import window_operator
from tests.kernel.state.snapshot_bench import PLAN, Objects

_ROW = re.compile(r"(?P<key>[a-z_])(?P<value>-?\d+|\?)@(?P<ts>-?\d+|\?)(?:\^(?P<mark>-?\d+))?")


def window(
    size: int = 1_000,
    slide: int = 0,
    *,
    late: str = "drop",
    lateness: int = 0,
    offset: int = 0,
    aggregates: tuple[AggregatePlan, ...] = PLAIN,
    **more: Any,
) -> WindowPlan:
    """A window over rows of `k`, `v` and `ts`; tumbling unless it has a slide."""
    kind = WindowKind.SLIDING if slide else WindowKind.TUMBLING
    shape: dict[str, Any] = {"size_ms": size, "slide_ms": slide or size, "offset_ms": offset}
    shape |= {"kind": kind, "aggregates": aggregates, "late": LatePolicy(late)}
    shape |= {"timestamp_field": "ts", "allowed_lateness_ms": lateness}
    return WindowPlan(**(shape | more))


def rows_of(text: str) -> pa.RecordBatch:
    """A batch of rows `k`, `v`, `ts`, and the gate's column if some row is stamped."""
    rows = []
    for part in text.split():
        match = _ROW.fullmatch(part)
        assert match is not None, part
        rows.append(match.groupdict())
    columns: dict[str, Any] = {
        "k": pa.array([None if row["key"] == "_" else row["key"] for row in rows], pa.string()),
        "v": pa.array([_number(row["value"]) for row in rows], pa.int64()),
        "ts": pa.array([_number(row["ts"]) for row in rows], pa.int64()),
    }
    if any(row["mark"] for row in rows):
        marks = [row["mark"] and int(row["mark"]) for row in rows]
        columns[ROW_WATERMARK] = pa.array(marks, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def _number(text: str) -> int | None:
    return None if text == "?" else int(text)


def in_slices(journal: CommitOnAck, results: Iterator[OperatorResult]) -> Iterator[OperatorResult]:
    """As the lane does it: a transaction lasts for one slice of the results."""
    while True:
        with journal.item():
            result = next(results, None)
        if result is None:
            return
        yield result


@dataclass
class Timeline:
    """One operator and its answers so far. `keys` are its key fields."""

    plan: WindowPlan
    keys: tuple[str, ...] = ("k",)
    wall_ms: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    late_rows: int = 0
    absorbed: int = 0
    evicted: int = 0
    routed: list[pa.RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._objects = Objects(Path())
        self._saves = 0
        self._start()

    def _start(self) -> None:
        self.journal = CommitOnAck(lambda: WallMs(self.wall_ms))
        self._states = ChainStates(PLAN, Generation(self._saves + 1), self._objects)
        state = StatePlan("windows", self.keys, **self.state)
        plan = OperatorPlan(
            OperatorId("per_key"), "window", ComponentPlan("", {}), None, state, self.plan
        )
        self.operator: TimedOperator = window_operator(plan, self.journal, self._states)

    def snapshots(self) -> tuple[StateSnapshot, ...]:
        """What a checkpoint says of the operator's states now."""
        self._saves += 1
        number = CheckpointId(self._saves)
        self._states.seal(number)
        return self._states.upload(Epoch(Generation(self._saves), number))[0]

    def save(self) -> None:
        """Go on in an operator that was restored from a snapshot."""
        snapshots = self.snapshots()
        self._start()
        self._states.restore(snapshots, self._objects.written)

    def batch(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """What the operator answers to a batch."""
        with self.journal.item():
            return list(self._taken(self.operator.process(batch, NOWHERE)))

    def advance(self, watermark: int) -> list[pa.RecordBatch]:
        """What fires."""
        return self._drained(self.operator.advance(EventTimeMs(watermark)))

    def tick(self, wall_ms: int) -> list[pa.RecordBatch]:
        """What fires by the wall clock."""
        self.wall_ms = wall_ms
        return self._drained(self.operator.tick(WallMs(wall_ms)))

    def end(self) -> list[pa.RecordBatch]:
        """What fires at the end of the data."""
        return self._drained(self.operator.end())

    def _drained(self, results: Iterator[OperatorResult]) -> list[pa.RecordBatch]:
        slices = in_slices(self.journal, results)
        return [batch for result in slices for batch in self._taken(result)]

    def _taken(self, result: OperatorResult) -> tuple[pa.RecordBatch, ...]:
        self.late_rows += result.late_rows
        self.absorbed += result.absorbed
        self.evicted += result.evicted
        if result.late is not None:
            self.routed.append(result.late)
        return result.batches

    def play(self, picture: str) -> str:
        """What the operator answers to each item of a picture."""
        return " | ".join(self._item(item.strip()) for item in picture.split("|"))

    def _item(self, item: str) -> str:
        late, routed = self.late_rows, sum(each.num_rows for each in self.routed)
        evicted = self.evicted
        name, _, value = item.partition("=")
        match name:
            case "w":
                batches = self.advance(int(value))
            case "t":
                batches = self.tick(int(value))
            case "end":
                batches = self.end()
            case "save":
                self.save()
                batches = []
            case _:
                batches = self.batch(rows_of(item))
        told = [shown(row) for row in rows_in(batches)]
        if self.late_rows > late:
            told.append(f"late:{self.late_rows - late}")
        if self.evicted > evicted:
            told.append(f"evicted:{self.evicted - evicted}")
        left = sum(each.num_rows for each in self.routed) - routed
        if left:
            told.append(f"routed:{left}")
        return " ".join(told) or "-"


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All result rows, of one window in order of the key."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["window_end"], row["window_start"], str(row["key"])))


def shown(row: dict[str, Any]) -> str:
    """A result row as pictures show it."""
    update = "!" if row["__arkflow_window_update"] else ""
    bounds = f"[{row['window_start']},{row['window_end']})"
    return f"{row['key']}{bounds}={row['sum']}/{row['count']}{update}"


__all__ = ["PLAIN", "Timeline", "in_slices", "rows_in", "rows_of", "shown", "window"]
