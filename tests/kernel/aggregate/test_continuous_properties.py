"""What a continuous aggregate says of a key follows from the key's rows alone (J5, W9).

Neither the cuts of batches nor ticks, restores, subtasks, or a memory of a few bytes play a part:
after each step it is compared with plain loops over all rows so far.
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.plan import AggregatePlan, ContinuousPlan
from tests.kernel.aggregate.keyed_line import KeyedLine, Rows

pytestmark = pytest.mark.thorough

Value = int | float | None
Row = tuple[str | None, Value, int]
"""Key, value, time."""

FUNCTIONS = ("count", "sum", "min", "max", "avg", "stddev", "first", "last", "count_distinct")
PLANS = tuple(AggregatePlan(name, "v", name) for name in FUNCTIONS)
INTERVAL = 10

QUARTERS = st.integers(-40, 40).map(lambda number: number / 4)
"""Floats whose sums are exact in any order."""

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.none() | st.integers(-10, 10) | st.sampled_from([2**53 + 1, -(2**57)]),
    "double": st.none() | QUARTERS,
    "null": st.none(),
}


@dataclass(frozen=True)
class Step:
    """A batch, and whether a tick and a restore (by so many subtasks) follow it."""

    kind: str
    rows: list[Row]
    ticks: bool
    restored_by: int | None


@st.composite
def steps(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[Step]:
    """Any batches of few keys, each with values of one type."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(kinds))
        key = st.sampled_from(["a", "b", "c", None])
        row = st.tuples(key, VALUES[kind], st.integers(0, 5))
        rows = draw(st.lists(row, min_size=1, max_size=8))
        restored_by = draw(st.none() | st.integers(1, 3))
        made.append(Step(kind, rows, draw(st.booleans()), restored_by))
    return made


def batch_of(step: Step) -> pa.RecordBatch:
    """The rows of a step in the types that it says."""
    kind = {"int64": pa.int64(), "double": pa.float64(), "null": pa.null()}[step.kind]
    return pa.RecordBatch.from_pydict(
        {
            "k": pa.array([key for key, _, _ in step.rows], pa.string()),
            "v": pa.array([value for _, value, _ in step.rows], kind),
            "ts": pa.array([time for _, _, time in step.rows], pa.int64()),
        }
    )


def truth(rows: list[Row]) -> dict[str, Any]:
    """What is to be said of the rows of one key."""
    known = [(time, value) for _, value, time in rows if value is not None]
    values = [value for _, value in known]
    return {
        "count": len(values),
        "sum": sum(values) if values else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "avg": statistics.fmean(values) if values else None,
        "stddev": statistics.stdev(values) if len(values) > 1 else None,
        "first": min(known)[1] if known else None,
        "last": max(known)[1] if known else None,
        "count_distinct": len(set(values)),
    }


def alike(found: dict[str, Any], due: dict[str, Any]) -> bool:
    """Equal; means and deviations to the nearest 10^-9."""
    return all(
        found[name] == value
        or (
            name in ("avg", "stddev")
            and None not in (value, found[name])
            and math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-6)
        )
        for name, value in due.items()
    )


def run(played: list[Step], line: KeyedLine) -> None:
    """Play the steps, and compare what leaves with the truth of all rows so far."""
    waits = isinstance(line.plan, ContinuousPlan) and line.plan.timed
    by_key: dict[str | None, list[Row]] = {}
    waiting: set[str | None] = set()

    def compare(found: Rows) -> None:
        assert {row["k"] for row in found} == waiting
        assert len(found) == len(waiting)
        for row in found:
            assert alike(row, truth(by_key[row["k"]])), (row, truth(by_key[row["k"]]))
        waiting.clear()

    for step in played:
        for row in step.rows:
            by_key.setdefault(row[0], []).append(row)
            waiting.add(row[0])
        found = line.batch(batch_of(step))
        if not waits:
            compare(found)
        if step.restored_by:
            line.save(step.restored_by)
        if step.ticks and waits:
            compare(line.tick(line.wall_ms + INTERVAL))
    if waits:
        compare(line.end())
    assert line.absorbed == sum(len(step.rows) for step in played)


@pytest.mark.parametrize("interval", [None, INTERVAL])
@pytest.mark.parametrize("kinds", [("int64", "null"), ("double", "null"), ("int64",)])
@settings(max_examples=10)
@given(data=st.data(), small=st.booleans())
def test_what_leaves_for_a_key_is_what_its_rows_say(
    kinds: tuple[str, ...], interval: int | None, data: st.DataObject, small: bool
) -> None:
    played = data.draw(steps(kinds))
    with TemporaryDirectory() as folder:
        plan = ContinuousPlan(PLANS, "ts", interval)
        state = {"memory_bytes": 1 if small else None}
        run(played, KeyedLine(plan, folder=Path(folder), state=state))


@settings(max_examples=10)
@given(steps(("double",)), steps(("null", "double")))
def test_values_that_widen_on_the_way_end_as_if_they_had_been_wide_from_the_beginning(
    begun: list[Step], then: list[Step]
) -> None:
    whole = [
        Step("int64", [(k, None if v is None else round(v), t) for k, v, t in step.rows], False, 2)
        for step in begun
    ]
    plan = ContinuousPlan(PLANS, "ts")
    run([*whole, *then], KeyedLine(plan))
