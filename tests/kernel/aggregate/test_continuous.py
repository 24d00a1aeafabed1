"""Continuous aggregates: what leaves, and when; undo, TTL, types, errors (J5, J8, S2, S7, S10)."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError, RestoreError
from arkflow_kernel.plan import AggregatePlan, ContinuousPlan
from tests.kernel.aggregate.keyed_line import KeyedLine

COUNT = AggregatePlan("count", None, "n")
SUM = AggregatePlan("sum", "v", "total")
DIFFERENT = AggregatePlan("count_distinct", "v", "different")
ALL = (
    COUNT,
    SUM,
    AggregatePlan("min", "v", "least"),
    AggregatePlan("max", "v", "most"),
    AggregatePlan("avg", "v", "mean"),
    AggregatePlan("stddev", "v", "spread"),
    AggregatePlan("first", "v", "first"),
    AggregatePlan("last", "v", "last"),
    DIFFERENT,
)


def rows(keys: list[Any], values: Any, times: list[int | None] | None = None) -> pa.RecordBatch:
    """A batch of `k`, `v` and, if they are given, `ts`."""
    columns = {
        "k": pa.array(keys),
        "v": values if isinstance(values, pa.Array) else pa.array(values),
    }
    if times is not None:
        columns["ts"] = pa.array(times, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def continuous(*aggregates: AggregatePlan, **more: Any) -> KeyedLine:
    """A line of a continuous aggregate; `state` and `subtasks` are the line's."""
    line = {name: more.pop(name) for name in ("state", "subtasks", "keys") if name in more}
    return KeyedLine(ContinuousPlan(aggregates, **more), **line)


def failing_behind(line: KeyedLine, batch: pa.RecordBatch) -> None:
    """An item of which an operator behind this one fails."""
    with line.parts[0].journal.item():
        line.parts[0].operator.process(batch, NOWHERE)
        raise ZeroDivisionError


def test_each_key_that_a_batch_changed_leaves_once_after_all_of_its_rows() -> None:
    line = continuous(COUNT, SUM)
    assert line.batch(rows(["a", "b", "a"], [1, 2, 3])) == [
        {"k": "a", "n": 2, "total": 4},
        {"k": "b", "n": 1, "total": 2},
    ]
    assert line.batch(rows(["b"], [10])) == [{"k": "b", "n": 2, "total": 12}]
    assert line.absorbed == 4


def test_all_functions_give_what_windows_give() -> None:
    line = continuous(*ALL, timestamp_field="ts")
    line.batch(rows(["a", "a"], [5, None], [20, 30]))
    (row,) = line.batch(rows(["a", "a", "a"], [1, 5, 7], [10, 40, 25]))
    assert row.pop("spread") == pytest.approx(2.516611478)
    assert row == {
        "k": "a",
        "n": 5,
        "total": 18,
        "least": 1,
        "most": 7,
        "mean": 4.5,
        "first": 1,
        "last": 5,
        "different": 3,
    }


def test_keys_leave_under_their_names_and_in_the_types_that_keys_have() -> None:
    line = continuous(COUNT, keys=("k", "v"))
    batch = pa.record_batch({"v": pa.array([1, 1], pa.int16()), "k": pa.array([None, "x"])})
    with line.parts[0].journal.item():
        (made,) = line.parts[0].operator.process(batch, NOWHERE).batches
    types = zip(made.schema.names, made.schema.types, strict=True)
    assert list(types) == [("k", pa.string()), ("v", pa.int64()), ("n", pa.uint64())]
    assert made.to_pylist() == [{"k": None, "v": 1, "n": 1}, {"k": "x", "v": 1, "n": 1}]


def test_with_an_interval_changed_keys_leave_together_when_it_is_over() -> None:
    line = continuous(SUM, emit_interval_ms=100)
    operator: Any = line.parts[0].operator
    assert operator.timer() is None
    assert line.batch(rows(["a", "b"], [1, 1])) == []
    assert line.tick(99) == []
    assert line.batch(rows(["a"], [5])) == []
    assert operator.timer() == 100
    assert sorted(row["total"] for row in line.tick(100)) == [1, 6]
    assert operator.timer() is None
    assert line.batch(rows(["b"], [1])) == []
    assert line.end() == [{"k": "b", "total": 2}]
    assert line.end() == []


def test_keys_that_waited_for_a_tick_leave_after_a_restore() -> None:
    line = continuous(SUM, emit_interval_ms=100)
    line.batch(rows(["a", "b"], [1, 2]))
    line.save()
    assert sorted(row["total"] for row in line.tick(1)) == [1, 2]
    line.save()
    assert line.end() == []


def test_an_item_that_fails_leaves_nothing_behind_types_and_distinct_values_included() -> None:
    line = continuous(COUNT, SUM, DIFFERENT)
    line.batch(rows(["a"], [1]))
    before = line.live_keys
    with pytest.raises(ZeroDivisionError):
        failing_behind(line, rows(["a", "c"], [2.5, 7.5]))
    assert line.live_keys == before
    (row,) = line.batch(rows(["a"], [2]))
    assert row == {"k": "a", "n": 2, "total": 3, "different": 2}
    assert isinstance(row["total"], int)


def test_integers_that_become_floats_give_floats_and_nothing_else_follows_them() -> None:
    line = continuous(SUM)
    line.batch(rows(["a"], [1]))
    line.save()
    assert line.batch(rows(["a"], [0.5])) == [{"k": "a", "total": 1.5}]
    line.save()
    (row,) = line.batch(rows(["b"], [1]))
    assert isinstance(row["total"], float)
    with pytest.raises(ProcessingError, match="cannot be brought to one type"):
        line.batch(rows(["a"], ["x"]))


def test_the_ledger_survives_a_restore_of_a_state_without_keys() -> None:
    line = continuous(SUM, state={"ttl_ms": 10})
    line.batch(rows(["a"], [0.5]))
    line.wall_ms = 1_000
    line.save()
    (row,) = line.batch(rows(["b"], [1]))
    assert row == {"k": "b", "total": 1.0}
    assert isinstance(row["total"], float)


def test_a_key_that_is_not_touched_for_its_ttl_begins_anew() -> None:
    line = continuous(SUM, state={"ttl_ms": 100})
    line.batch(rows(["a", "b"], [1, 2]))
    line.wall_ms = 60
    line.batch(rows(["a"], [10]))
    line.wall_ms = 120
    line.save()
    assert line.batch(rows(["a", "b"], [100, 100])) == [
        {"k": "a", "total": 111},
        {"k": "b", "total": 100},
    ]


def test_rows_without_a_time_take_no_part_and_count_as_late() -> None:
    line = continuous(COUNT, AggregatePlan("last", "v", "last"), timestamp_field="ts")
    assert line.batch(rows(["a", "a", "b"], [1, 2, 3], [5, None, None])) == [
        {"k": "a", "n": 1, "last": 1}
    ]
    assert (line.late_rows, line.absorbed) == (2, 1)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (pa.record_batch({"v": pa.array([1])}), "key field 'k' is missing"),
        (pa.record_batch({"k": pa.array([1])}), "the field 'v' of its aggregates is not in"),
        (rows(["a", "a"], [2**63 - 1, 1]), "key 'a'"),
    ],
)
def test_what_cannot_be_aggregated_is_an_error_that_says_what_and_leaves_nothing(
    batch: pa.RecordBatch, words: str
) -> None:
    line = continuous(SUM)
    with pytest.raises(ProcessingError, match=words), line.parts[0].journal.item():
        line.parts[0].operator.process(batch, NOWHERE)
    assert line.live_keys == 0


def test_values_that_cannot_be_counted_apart_are_an_error_that_names_the_field() -> None:
    line = continuous(DIFFERENT)
    with pytest.raises(ProcessingError, match="the field 'v' of its aggregates is not in"):
        line.batch(rows(["a"], [1]).select(["k"]))
    line.batch(rows(["a"], [1]))
    with pytest.raises(ProcessingError, match="the field 'v' cannot be counted by its values"):
        line.batch(rows(["a"], ["x"]))


def test_sums_beyond_64_bits_are_null_if_that_is_said_and_are_right_again_afterwards() -> None:
    line = continuous(SUM, null_on_overflow=True)
    assert line.batch(rows(["a", "a"], [2**63 - 1, 1])) == [{"k": "a", "total": None}]
    line.save()
    assert line.batch(rows(["a"], [-5])) == [{"k": "a", "total": 2**63 - 5}]


def test_the_state_of_other_aggregates_is_refused() -> None:
    line = continuous(SUM, state={"shape": "sum(v)"})
    line.batch(rows(["a"], [1]))
    line.state = {"shape": "max(v)"}
    with pytest.raises(RestoreError, match=r"has sum\(v\), and the job now keeps max\(v\)"):
        line.save()


def test_rows_of_another_format_are_refused() -> None:
    line = continuous(SUM)
    line.batch(rows(["a"], [1]))
    [snapshot] = line.snapshots()
    other = snapshot.value_type.replace('"version": 1', '"version": 2')
    with pytest.raises(RestoreError, match="rows of format version 2 cannot be read"):
        continuous(SUM).parts[0].states.restore([replace(snapshot, value_type=other)])


def test_a_state_beyond_its_budget_fails_the_batch_and_names_it() -> None:
    line = continuous(SUM, state={"max_bytes": 200})
    with pytest.raises(ProcessingError, match="max_bytes"):
        line.batch(rows(list(range(100)), list(range(100))))
    assert line.live_keys == 0


def test_a_key_that_was_forgotten_counts_its_values_anew_and_the_old_ones_go() -> None:
    line = continuous(DIFFERENT, state={"ttl_ms": 100})
    line.batch(rows(["a", "a", "b", "b"], [1, 2, 1, 2]))
    line.wall_ms = 60
    assert line.batch(rows(["a"], [3])) == [{"k": "a", "different": 3}]
    line.wall_ms = 120
    line.save()
    assert line.batch(rows(["a", "b"], [1, 2])) == [
        {"k": "a", "different": 3},
        {"k": "b", "different": 1},
    ]
    assert line.live_keys == 2 + 4
    line.wall_ms = 1_000
    line.batch(rows(["c"], [1]))
    assert line.live_keys == 1 + 1
