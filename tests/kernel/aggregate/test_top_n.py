"""The best rows of each key: what leaves, ties, types, undo, TTL, restores (J7, S2, S7, S10)."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.plan import TopNPlan
from tests.kernel.aggregate.keyed_line import KeyedLine, Rows

TWO = TopNPlan("v", 2)


def batch(keys: list[Any], values: Any, **more: Any) -> pa.RecordBatch:
    """Rows of `k` and `v`."""
    columns: dict[str, Any] = {"k": pa.array(keys), "v": pa.array(values)}
    return pa.RecordBatch.from_pydict(columns | {k: pa.array(v) for k, v in more.items()})


def shown(rows: Rows) -> list[str]:
    """Key, value and rank of each."""
    return [f"{row['k']}{row['v']}#{row['rank']}" for row in rows]


def test_the_lists_that_a_batch_changed_leave_whole_best_row_first() -> None:
    line = KeyedLine(TWO)
    assert shown(line.batch(batch(["a", "b", "a", "a"], [1, 5, 3, 2]))) == ["a3#1", "a2#2", "b5#1"]
    assert shown(line.batch(batch(["a", "b"], [1, 9]))) == ["b9#1", "b5#2"]
    assert shown(line.batch(batch(["a"], [0]))) == []
    assert line.absorbed == 7


def test_the_least_are_the_best_if_that_is_said() -> None:
    line = KeyedLine(TopNPlan("v", 1, descending=False, rank_field="place"))
    [row] = line.batch(batch(["a", "a"], [3, 1]))
    assert row == {"k": "a", "v": 1, "place": 1}


def test_rows_with_no_value_take_no_part_and_nan_is_above_every_number() -> None:
    line = KeyedLine(TWO)
    rows = line.batch(batch(["a", "a", "a", "b"], [1.0, math.nan, 2.0, None]))
    assert shown(rows) == ["anan#1", "a2.0#2"]
    assert line.absorbed == 3


def test_of_equal_values_the_other_columns_decide_and_not_the_order_of_arrival() -> None:
    for names in (["x", "y", "z"], ["z", "y", "x"]):
        line = KeyedLine(TWO)
        made: Rows = []
        for name in names:
            made = line.batch(batch(["a"], [1], name=[name])) or made
        assert [row["name"] for row in made] == ["x", "y"]


def test_texts_and_columns_that_come_later_are_kept_over_a_restore() -> None:
    line = KeyedLine(TopNPlan("name", 2), subtasks=2)
    line.batch(batch(["a", "b"], [1, 2], name=["ann", "bo"]))
    line.save(3)
    rows = line.batch(batch(["a"], [2.5], name=["cy"], tag=[b"new"]))
    assert rows == [
        {"k": "a", "v": 2.5, "name": "cy", "tag": b"new", "rank": 1},
        {"k": "a", "v": 1.0, "name": "ann", "tag": None, "rank": 2},
    ]


def test_a_batch_that_fails_leaves_neither_rows_nor_types() -> None:
    line = KeyedLine(TWO)
    line.batch(batch(["a"], [1]))
    part = line.parts[0]

    def failing() -> None:
        with part.journal.item():
            part.operator.process(batch(["a", "b"], [7.5, 1.5]), NOWHERE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    rows = line.batch(batch(["a"], [3]))
    assert shown(rows) == ["a3#1", "a1#2"]


def test_any_row_of_a_key_keeps_its_list_from_being_forgotten() -> None:
    line = KeyedLine(TWO, state={"ttl_ms": 100})
    line.batch(batch(["a", "b"], [5, 5]))
    line.batch(batch(["a"], [6]))
    line.wall_ms = 60
    line.batch(batch(["a"], [0]))
    line.wall_ms = 120
    line.save()
    assert shown(line.batch(batch(["a", "b"], [7, 1]))) == ["a7#1", "a6#2", "b1#1"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (batch(["a"], [1]).select(["k"]), "the column 'v' by which rows are ranked is not in"),
        (batch(["a"], [1], rank=[1]), "set `rank_field`"),
        (batch(["a"], [[1]]), "cannot be kept"),
        (batch(["a"], ["x"]), "do not follow those of the rows before"),
    ],
)
def test_rows_that_cannot_be_ranked_are_an_error_that_says_why(
    given: pa.RecordBatch, words: str
) -> None:
    line = KeyedLine(TWO)
    if "follow" in words:
        line.batch(batch(["a"], [1]))
    with pytest.raises(ProcessingError, match=words), line.parts[0].journal.item():
        line.parts[0].operator.process(given, NOWHERE)


ROW = st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.sampled_from(["p", "q", ""]))
STEP = st.tuples(st.lists(ROW, min_size=1, max_size=8), st.none() | st.integers(1, 3))


@settings(max_examples=30)
@given(st.lists(STEP, min_size=1, max_size=6), st.integers(1, 4), st.booleans())
def test_the_lists_are_those_of_all_rows_so_far_whatever_the_batches_restores_and_subtasks(
    steps: list[tuple[list[tuple[str, int, str]], int | None]], count: int, descending: bool
) -> None:
    line = KeyedLine(TopNPlan("v", count, descending))
    known: dict[str, list[tuple[int, str]]] = {}
    sign = -1 if descending else 1

    def best(key: str) -> list[tuple[int, str]]:
        rows = sorted(known.get(key, []), key=lambda row: (sign * row[0], row[1]))
        return rows[:count]

    for rows, restored_by in steps:
        before = {key: best(key) for key in known}
        for key, value, name in rows:
            known.setdefault(key, []).append((value, name))
        keys, values, names = (list(column) for column in zip(*rows, strict=True))
        found: dict[str, list[tuple[int, str]]] = {}
        for row in line.batch(batch(keys, values, name=names)):
            found.setdefault(row["k"], []).append((row["v"], row["name"]))
            assert row["rank"] == len(found[row["k"]])
        for key, told in found.items():
            assert told == best(key)
        assert {key for key in known if best(key) != before.get(key)} <= set(found)
        if restored_by:
            line.save(restored_by)
