"""Rows in, windows out, against a plain reading: each row once, in order, in its window (B0, S2).

Batches of several schemas, late rows, failed items, seals, uploads that lag behind, restarts from
them, and budgets that spill everything.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE
from tests.kernel.state.snapshot_bench import Objects
from tests.kernel.window.rows_bench import GAP_MS, SIZE_MS, RowsBench, session, tumbling

pytestmark = pytest.mark.thorough

KEYS = ("a", "b", None, "c")

SHAPES: list[dict[str, pa.DataType]] = [
    {},
    {"x": pa.int64()},
    {"x": pa.float64()},
    {"x": pa.null(), "y": pa.string()},
    {"y": pa.string_view(), "x": pa.int8()},
    {"x": pa.string()},
]
"""Columns beside the id, the key and the time."""


@dataclass
class Row:
    """A row as it was put in."""

    id: int
    key: Any
    time: int
    values: dict[str, Any]


@dataclass
class Oracle:
    """The same window, row by row."""

    by_key: bool
    event_time: bool
    mark: int = -(2**60)
    open: list[Row] = field(default_factory=list)

    def late(self, time: int) -> bool:
        """Whether a row has come too late (W6)."""
        return self.event_time and self.end(time, time) <= self.mark

    def end(self, first: int, last: int) -> int:
        """When a window ends."""
        return last + GAP_MS if self.by_key else first - first % SIZE_MS + SIZE_MS

    def windows(self) -> list[list[Row]]:
        """The open windows in order."""
        found: list[list[Row]] = []
        keyed: dict[Any, list[Row]] = {}
        for row in sorted(self.open, key=lambda each: each.time):
            mine = row.key if self.by_key else row.time // SIZE_MS
            window = keyed.get(mine)
            if window is None or (self.by_key and row.time - window[-1].time > GAP_MS):
                window = keyed[mine] = []
                found.append(window)
            window.append(row)
        return sorted(found, key=self.order)

    def order(self, rows: list[Row]) -> tuple[int, int, int]:
        """Windows leave by end, beginning, first row."""
        first, last = min(r.time for r in rows), max(r.time for r in rows)
        ids = min(r.id for r in rows)
        return (last, first, ids) if self.by_key else (first // SIZE_MS, 0, ids)

    def fire(self, upto: int) -> list[list[int]]:
        """What leaves."""
        self.mark = max(self.mark, upto) if self.event_time else self.mark
        fired = []
        for rows in self.windows():
            first, last = min(r.time for r in rows), max(r.time for r in rows)
            end = self.end(first, last)
            if end < upto if self.by_key else end <= upto:
                fired.append(sorted(row.id for row in rows))
                gone = {row.id for row in rows}
                self.open = [row for row in self.open if row.id not in gone]
        return fired


def _ids(batch: pa.RecordBatch) -> list[int]:
    ids: list[Any] = batch.column("id").to_pylist()
    return ids


row = st.tuples(st.sampled_from(KEYS), st.integers(-30, 30), st.integers(0, 9))
put = st.tuples(
    st.just("put"), st.integers(0, len(SHAPES) - 1), st.lists(row, max_size=5), st.booleans()
)
step = st.one_of(
    put,
    put,
    st.tuples(st.just("time"), st.integers(1, 25)),
    st.tuples(st.sampled_from(["seal", "upload", "restart"])),
)


class Model:
    """Both, side by side."""

    def __init__(self, bench: RowsBench, oracle: Oracle) -> None:
        self.bench = bench
        self.oracle = oracle
        self.rows: dict[int, Row] = {}
        self.now = 1_000

    def put(self, shape: int, rows: list[tuple[Any, int, int]], fails: bool) -> None:
        """One item; one that fails is forgotten."""
        if not rows:
            return
        event_time, first = self.oracle.event_time, len(self.rows)
        made = [
            Row(
                first + n, key, self.now + delta if event_time else self.now, self._of(shape, value)
            )
            for n, (key, delta, value) in enumerate(rows)
        ]
        columns: dict[str, Any] = {
            "id": [each.id for each in made],
            "k": pa.array([each.key for each in made], pa.string()),
            "ts": [each.time for each in made],
        }
        for name, kind in SHAPES[shape].items():
            columns[name] = pa.array([each.values[name] for each in made], kind)
        batch = pa.record_batch(columns)
        if fails:
            with pytest.raises(ZeroDivisionError), self.bench.journal.item():
                self._fail(batch)
            return
        self.bench.put(batch)
        for each in made:
            self.rows[each.id] = each
            if not self.oracle.late(each.time):
                self.oracle.open.append(each)

    def _fail(self, batch: pa.RecordBatch) -> None:
        self.bench.operator.process(batch, NOWHERE)
        raise ZeroDivisionError

    @staticmethod
    def _of(shape: int, value: int) -> dict[str, Any]:
        make: dict[str, Any] = {"x": value, "y": f"y{value}"}
        found = {name: make[name] for name in SHAPES[shape]}
        for name, kind in SHAPES[shape].items():
            if pa.types.is_null(kind):
                found[name] = None
            elif pa.types.is_string(kind) and name == "x":
                found[name] = f"x{value}"
        return found

    def time(self, delta: int) -> None:
        """The watermark, or the wall clock, goes on."""
        self.now += delta
        self.bench.wall.ms = self.now
        event_time = self.oracle.event_time
        fired = self.bench.advance(self.now) if event_time else self.bench.tick()
        self.check(fired, self.oracle.fire(self.now))

    def check(self, fired: list[list[pa.RecordBatch]], expected: list[list[int]]) -> None:
        """Windows, rows and values are those that came in."""
        found = []
        for batches in fired:
            ids: list[list[int]] = [_ids(batch) for batch in batches]
            assert all(each == sorted(each) for each in ids), "in order of arrival"
            assert [each[0] for each in ids] == sorted(each[0] for each in ids)
            found.append(sorted(i for each in ids for i in each))
            for batch in batches:
                for released in batch.to_pylist():
                    row = self.rows[int(released["id"])]
                    wanted = {"id": row.id, "k": row.key, "ts": row.time, **row.values}
                    assert {k: v for k, v in released.items() if v is not None} == {
                        k: v for k, v in wanted.items() if v is not None
                    }
            kinds = {self._kind(self.rows[i]) for i in found[-1]}
            assert len(batches) == len(kinds - {None} or {None}), "as few as fit together"
        assert found == expected

    @staticmethod
    def _kind(row: Row) -> str | None:
        """What of column `x` cannot stand beside another."""
        value = row.values.get("x")
        return None if value is None else "text" if isinstance(value, str) else "number"


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("event_time", [False, True])
@settings(max_examples=120)
@given(steps=st.lists(step, max_size=25), memory_bytes=st.sampled_from([None, 0, 300]))
def test_every_row_is_released_once_in_its_window_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    by_key: bool,
    event_time: bool,
    steps: list[tuple[Any, ...]],
    memory_bytes: int | None,
) -> None:
    make = session if by_key else tumbling
    objects = Objects(Path(tmp_path_factory.mktemp("spool")))
    plan = make(keys=("k",), event_time=event_time, memory_bytes=memory_bytes)
    model = Model(RowsBench(plan, objects), Oracle(by_key, event_time))
    for name, *values in steps:
        if name == "put":
            model.put(*values)
        elif name == "time":
            model.time(*values)
        elif name == "seal":
            model.bench.seal()
        elif name == "upload":
            model.bench.take()
        else:
            model.bench = model.bench.restored(model.bench.take())
        held = model.bench.rows
        assert held.live_keys == len(model.oracle.open)
        if memory_bytes == 0 and name == "put":
            assert held.memory_bytes == 0, "all are spilled"
    model.check(model.bench.end(), model.oracle.fire(10**9))
    assert (model.bench.rows.live_keys, model.bench.rows.live_bytes) == (0, 0)
    assert list(objects.spool.glob("*")) == [], "files have no name"
