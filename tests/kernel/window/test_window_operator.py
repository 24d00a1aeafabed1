"""Errors, results and transactions of the window operator (N3, N5, N6, S2, W5)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import EventTimeMs
from arkflow_kernel.plan import AggregatePlan
from arkflow_kernel.window.results import RESULT_ROWS_MAX
from tests.kernel.window.timeline import Timeline, rows_in, rows_of, window

PLAIN_COLUMNS: dict[str, pa.DataType] = {
    "window_start": pa.int64(),
    "window_end": pa.int64(),
    "key": pa.string(),
    "count": pa.uint64(),
    "sum": pa.int64(),
    "min": pa.int64(),
    "max": pa.int64(),
    "__arkflow_window_update": pa.bool_(),
}
PLAIN_SCHEMA = pa.schema(PLAIN_COLUMNS)


def many(rows: int, keys: int, *, step: int = 0) -> pa.RecordBatch:
    """Rows of many integer keys; `step` apart in time."""
    numbers = np.arange(rows)
    return pa.record_batch(
        {"k": pa.array(numbers % keys), "v": pa.array(numbers), "ts": pa.array(numbers * step)}
    )


def failing_behind(line: Timeline, batch: pa.RecordBatch) -> None:
    """An item of which an operator behind the window fails."""
    with line.journal.item():
        line.operator.process(batch, NOWHERE)
        raise ZeroDivisionError


def test_arkflows_columns_leave_in_arkflows_order_and_types() -> None:
    line = Timeline(window(1_000))
    line.play("a1@1")
    (batch,) = line.end()
    assert batch.schema.equals(PLAIN_SCHEMA)


def test_without_a_value_field_sums_are_null() -> None:
    line = Timeline(window(1_000, aggregates=(AggregatePlan("count", None, "count"),)))
    line.play("a?@1 a1@2")
    (batch,) = line.end()
    assert batch.schema.equals(PLAIN_SCHEMA)
    assert batch.select(["key", "count", "sum", "min", "max"]).to_pylist() == [
        {"key": "a", "count": 2, "sum": None, "min": None, "max": None}
    ]


def test_listed_aggregates_leave_under_their_names_and_keys_under_theirs() -> None:
    aggregates = (AggregatePlan("max", "v", "highest"), AggregatePlan("count", None, "n"))
    line = Timeline(window(10, aggregates=aggregates, plain=False), keys=("k", "v"))
    line.play("a1@1 a1@2 a2@3")
    (batch,) = line.end()
    names = ["window_start", "window_end", "k", "v", "highest", "n", "__arkflow_window_update"]
    assert batch.schema.names == names
    assert sorted((row["k"], row["v"], row["n"]) for row in batch.to_pylist()) == [
        ("a", 1, 2),
        ("a", 2, 1),
    ]


def test_a_large_window_leaves_in_pieces_each_made_when_it_is_asked_for() -> None:
    line = Timeline(window(1_000))
    keys = 3 * RESULT_ROWS_MAX
    for _ in range(2):
        line.batch(many(keys, keys))
    results = line.operator.advance(EventTimeMs(1_000))
    sizes = []
    while True:
        with line.journal.item():
            result = next(results, None)
        if result is None:
            break
        sizes += [batch.num_rows for batch in result.batches]
    assert sum(sizes) == keys
    assert len(sizes) >= 3
    assert max(sizes) <= RESULT_ROWS_MAX


def test_large_sliding_windows_leave_in_order_and_in_pieces_whatever_families_there_are() -> None:
    aggregates = (
        AggregatePlan("count_distinct", "v", "values"),
        AggregatePlan("sum", "v", "total"),
    )
    line = Timeline(window(10, 5, aggregates=aggregates, plain=False))
    keys = 2 * RESULT_ROWS_MAX
    for _ in range(2):
        line.batch(many(keys, keys))
    batches = line.end()
    assert max(batch.num_rows for batch in batches) <= RESULT_ROWS_MAX
    table = pa.Table.from_batches(batches)
    starts = np.asarray(table.column("window_start"))
    assert (np.diff(starts) >= 0).all()
    assert np.unique(starts, return_counts=True)[1].tolist() == [keys, keys]
    assert pc.sum(table.column("values")).as_py() == 2 * keys
    assert pc.sum(table.column("total")).as_py() == 4 * sum(range(keys))


def test_many_small_windows_leave_in_few_batches_in_order() -> None:
    line = Timeline(window(10))
    line.batch(many(5_000, 3, step=1))
    batches = line.end()
    starts = [row["window_start"] for batch in batches for row in batch.to_pylist()]
    assert starts == sorted(starts)
    assert len(starts) == 1_500
    assert len(batches) < 5


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"k": ["a"], "v": [1]}, "'ts'"),
        ({"v": [1], "ts": [1]}, "'k'"),
        ({"k": ["a"], "ts": [1]}, "'v'"),
        ({"k": ["a"], "v": ["x"], "ts": [1]}, "string"),
        ({"k": ["a"], "v": [1], "ts": ["1"]}, "timestamp"),
        ({"k": ["a"], "v": [1], "ts": [2**63 - 1]}, "fit"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_leaves_nothing(
    columns: dict[str, list[object]], told: str
) -> None:
    line = Timeline(window(1_000))
    line.play("a1@1")
    with pytest.raises(ProcessingError, match="operator 'per_key' failed") as caught:
        line.batch(pa.RecordBatch.from_pydict(columns))
    assert told in str(caught.value)
    assert line.play("a2@2 | end") == "- | a[0,1000)=3/2"


def test_what_a_batch_taught_of_types_goes_with_it() -> None:
    """The lane discards an item whose later operator fails (S2)."""
    line = Timeline(window(1_000))
    line.play("a1@1")
    floats = pa.RecordBatch.from_pydict({"k": [1.5], "v": [0.5], "ts": [2]})
    with pytest.raises(ProcessingError):
        line.batch(floats)
    texts = pa.RecordBatch.from_pydict({"k": ["a"], "v": [0.5], "ts": [2]})
    with pytest.raises(ZeroDivisionError):
        failing_behind(line, texts)
    (batch,) = line.end()
    assert batch.schema.equals(PLAIN_SCHEMA)


def test_values_that_widen_leave_as_the_wider_type_also_after_a_restore() -> None:
    line = Timeline(window(1_000))
    line.play("a1@1 b2@2")
    line.batch(pa.RecordBatch.from_pydict({"k": ["a"], "v": [0.5], "ts": [2]}))
    line.play("save")
    rows = rows_in(line.end())
    assert [(row["key"], row["sum"], row["max"]) for row in rows] == [("a", 1.5, 1.0), ("b", 2, 2)]
    assert [type(row["sum"]) for row in rows] == [float, float]


def test_a_sum_that_leaves_its_type_names_window_and_key() -> None:
    line = Timeline(window(1_000))
    line.batch(rows_of(f"a{2**63 - 1}@1 a1@2"))
    with pytest.raises(ProcessingError, match=r"window \[0, 1000\), key 'a'"):
        line.end()


def test_windows_that_leave_64_bits_are_an_error() -> None:
    line = Timeline(window(2**61))
    with pytest.raises(ProcessingError, match="make the windows smaller"):
        line.batch(rows_of(f"a1@{2**62 - 1}"))


def test_the_mark_of_what_has_fired_stands_before_the_first_piece() -> None:
    """So it is in the same transaction (N5)."""
    line = Timeline(window(1_000))
    line.play("a1@1 a1@1001")
    results = line.operator.advance(EventTimeMs(5_000))
    with line.journal.item():
        next(results)
    assert [snapshot.watermark for snapshot in line.snapshots()] == [5_000]


def test_results_of_a_window_are_of_its_last_millisecond_to_the_next_window() -> None:
    """The result of [0, 1000) is of 999, so it belongs to [0, 2000) (N7, W8)."""
    first = Timeline(window(1_000))
    totals = (AggregatePlan("sum", "sum", "total"), AggregatePlan("count", None, "n"))
    behind = window(2_000, timestamp_field="window_end", aggregates=totals, plain=False)
    second = Timeline(behind, keys=("key",))
    first.play("a1@1 a2@1001 a4@2001")
    for batch in first.end():
        second.batch(batch)
    rows = [(row["window_start"], row["total"], row["n"]) for row in rows_in(second.end())]
    assert rows == [(0, 3, 2), (2_000, 4, 1)]
