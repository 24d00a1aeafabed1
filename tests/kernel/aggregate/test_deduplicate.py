"""The first row of each key passes, the others do not (J6, S2, S7)."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.plan import DeduplicatePlan
from tests.kernel.aggregate.keyed_line import KeyedLine

Row = tuple[str | None, int]


def batch(rows: list[Row]) -> pa.RecordBatch:
    """Rows of `k` and `n`."""
    return pa.RecordBatch.from_pydict(
        {
            "k": pa.array([key for key, _ in rows], pa.string()),
            "n": pa.array([number for _, number in rows], pa.int64()),
        }
    )


def numbers(line: KeyedLine, rows: list[Row]) -> list[int]:
    """The `n` of the rows that pass."""
    return [row["n"] for row in line.batch(batch(rows))]


def test_the_first_row_of_a_key_passes_as_it_is_and_in_its_place() -> None:
    line = KeyedLine(DeduplicatePlan())
    assert numbers(line, [("a", 1), ("b", 2), ("a", 3), (None, 4), ("c", 5)]) == [1, 2, 4, 5]
    assert numbers(line, [("c", 6), (None, 7), ("d", 8)]) == [8]
    assert numbers(line, [("a", 9)]) == []
    assert line.absorbed == 0


def test_several_columns_are_one_key() -> None:
    line = KeyedLine(DeduplicatePlan(), keys=("k", "n"))
    assert numbers(line, [("a", 1), ("a", 2), ("a", 1), ("b", 1)]) == [1, 2, 1]


def test_a_key_is_forgotten_its_ttl_after_its_first_row_whatever_came_since() -> None:
    line = KeyedLine(DeduplicatePlan(), state={"ttl_ms": 100})
    assert numbers(line, [("a", 1)]) == [1]
    line.wall_ms = 99
    assert numbers(line, [("a", 2)]) == []
    line.save()
    line.wall_ms = 100
    assert numbers(line, [("a", 3), ("a", 4)]) == [3]


def test_a_batch_that_fails_behind_may_come_again() -> None:
    line = KeyedLine(DeduplicatePlan())
    part = line.parts[0]

    def failing() -> None:
        with part.journal.item():
            part.operator.process(batch([("a", 1)]), NOWHERE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert numbers(line, [("a", 1)]) == [1]


def test_a_missing_key_is_an_error_that_names_it() -> None:
    line = KeyedLine(DeduplicatePlan(), keys=("n",))
    with (
        pytest.raises(ProcessingError, match="key field 'n' is missing"),
        line.parts[0].journal.item(),
    ):
        line.parts[0].operator.process(batch([("a", 1)]).select(["k"]), NOWHERE)


KEYS = st.sampled_from(["a", "b", "c", "d", None])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=6), st.none() | st.integers(1, 3))))
def test_what_passes_does_not_depend_on_batches_restores_and_subtasks(
    steps: list[tuple[list[str | None], int | None]],
) -> None:
    line = KeyedLine(DeduplicatePlan())
    seen: set[str | None] = set()
    number = 0
    for keys, restored_by in steps:
        rows = [(key, number + i) for i, key in enumerate(keys)]
        number += len(rows)
        due = []
        for key, n in rows:
            if key not in seen:
                due.append(n)
                seen.add(key)
        assert sorted(numbers(line, rows)) == due
        if restored_by:
            line.save(restored_by)
