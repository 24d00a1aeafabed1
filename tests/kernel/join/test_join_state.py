"""What a join has in snapshots and in memory: marks, numbers, keys, formats (J2, S6, S9, B0)."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.join import join_keys
from arkflow_kernel.state.api import StateLayout
from tests.kernel.join.join_line import LEFT, RIGHT, JoinLine, join_of


def rows(*values: tuple[str, int], **more: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": [k for k, _ in values], "ts": [ts for _, ts in values], **more})


def left_outer(**state: Any) -> JoinLine:
    return JoinLine(join_of(kind="left_outer"), **state)


def test_a_row_that_matches_after_it_was_saved_does_not_leave_alone_after_a_restart() -> None:
    line = left_outer()
    line.batch(LEFT, rows(("a", 1), ("b", 1)))
    line.checkpoint()
    line.batch(RIGHT, rows(("a", 2)))
    line.restart(2)
    assert sorted((row["join_key"], row.get("r_ts")) for row in line.end()) == [
        ("a", 2),
        ("b", None),
    ]


def test_a_mark_of_a_row_that_is_gone_is_of_no_row_that_comes_after_a_restart() -> None:
    line = left_outer()
    line.batch(LEFT, rows(("a", 1)))
    line.checkpoint()
    line.batch(RIGHT, rows(("a", 2)))
    line.checkpoint()
    line.advance(100)
    line.restart(1)
    line.batch(LEFT, rows(("a", 101)))
    line.restart(1)
    assert [row["l_ts"] for row in line.end() if row.get("r_ts") is None] == [101]


def test_rows_that_have_left_and_their_marks_are_in_no_run_that_is_written_after() -> None:
    line = left_outer()
    line.batch(LEFT, rows(("a", 1), ("b", 50)))
    line.checkpoint()
    line.batch(LEFT, rows(("a", 2)))
    line.batch(RIGHT, rows(("a", 1), ("b", 51)))
    line.advance(20)
    written = line.checkpoint_rows()
    assert written == {"left": 2 + 1, "right": 1}  # the first run, and a mark of b


def test_keys_without_rows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_keys, "_COMPACT_KEYS_MIN", 16)
    line = left_outer()
    for n in range(200):
        line.batch(LEFT, rows((f"k{n}", 10 * n), ("all", 10 * n)))
        line.batch(RIGHT, rows(("all", 10 * n)))
        line.advance(10 * n)
    (task,) = line.tasks
    assert task.keys.size < 64
    found = line.end()
    assert sum(row["join_key"] != "all" for row in found) == 200
    assert sum(row["join_key"] == "all" for row in found) == 200 + 2 * 199


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"format_version": 99}, "format version 99"),
        ({"value_type": "rows of windows"}, "'left' has rows of windows"),
    ],
)
def test_a_state_of_another_format_or_kind_is_refused(change: dict[str, Any], phrase: str) -> None:
    line = left_outer()
    (task,) = line.tasks
    layout: StateLayout = replace(task.sides[0].layout, **change)
    with pytest.raises(RestoreError, match=phrase):
        task.sides[0].restore([layout], [])
