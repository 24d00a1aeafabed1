"""What a temporal join does with single rows, as timelines (J9, J10, J11).

A timeline is read from left to right: `v3` a version at 3, `r5` a row at 5, `w6` the watermark
rises to 6, `v3<8` and `r3<8` come when their partition's watermark was 8 already, `!` a restart.
All are of one key; behind `>` stands what has left since the one before: `5=3` a row at 5 with the
version at 3, `5=-` one without.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError, RestoreError
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from tests.kernel.join.join_line import LEFT, RIGHT, JoinLine, Rows, canonical, join_of
from tests.kernel.join.temporal_oracle import temporal

TIMELINES: list[tuple[str, str]] = [
    ("a version at exactly the row's time", "v5 r5 w6 > 5=5"),
    ("one ms later", "v3 v6 r5 w6 > 5=3"),
    ("the row waits until the watermark has passed it", "v3 r5 w5 > w6 > 5=3"),
    ("a version that comes after the row, before the watermark", "v3 r5 v4 w6 > 5=4"),
    ("no version", "r5 w6 > 5=-"),
    ("a version after the row only", "v6 r5 w9 > 5=-"),
    ("the newest by time, not by arrival", "v4 v2 r5 w6 > 5=4"),
    ("an old version stays for as long as none follows", "v1 w900 ! r950 w999 > 950=1"),
    ("each row has its own", "v1 v5 r4 r5 r9 v8 w10 > 4=1 5=5 9=8"),
    ("a late row is not joined", "v1 w6 r5 > w9 >"),
    ("nor is one that is behind its own partition", "v1 r5<6 w9 >"),
    ("a late version counts from its cut on", "v1 v5<8 r7 r8 w9 > 7=1 8=5"),
    ("also when its rows came first", "v1 r7 r8 v5<8 w9 > 7=1 8=5"),
    ("a late version that is older than the newest changes nothing", "v6 v5<8 r9 w10 > 9=6"),
    ("what has left stays as it was", "v1 r5 w6 > 5=1 v4<6 r6 w9 > 6=4"),
    ("restarts play no part", "v1 ! r5 ! v4 ! w6 > 5=4 ! v7 ! r8 ! w9 > 8=7"),
    ("the end lets everything leave", "v1 r5 e > 5=1"),
]


def played(timeline: str, line: JoinLine) -> None:
    """Go through a timeline; what leaves must be what it tells, and nothing besides."""
    steps, *rest = timeline.split(">")
    checked = 0
    for part in rest:
        _steps(steps.split(), line)
        left = sorted(line.totals.rows[checked:], key=lambda row: row["l_ts"])
        checked = len(line.totals.rows)
        wanted = [word for word in part.split() if "=" in word]
        assert [f"{row['l_ts']}={_or_dash(row.get('r_ts'))}" for row in left] == wanted, timeline
        steps = " ".join(word for word in part.split() if "=" not in word)
    assert not steps


def _or_dash(value: int | None) -> Any:
    return "-" if value is None else value


def _steps(words: list[str], line: JoinLine) -> None:
    for word in words:
        _step(word, line)


def _step(word: str, line: JoinLine) -> None:
    kind, (time, _, mark) = word[0], word[1:].partition("<")
    if kind in "vr":
        line.batch(RIGHT if kind == "v" else LEFT, rows(("a", int(time)), mark=mark))
    elif kind == "w":
        line.advance(int(time))
    elif kind == "!":
        line.restart(len(line.tasks) % 2 + 1)
    elif kind == "e":
        line.end()


def rows(*values: tuple[Any, int | None], mark: str = "", **more: Any) -> pa.RecordBatch:
    """Rows of a key and a time."""
    stamp = {ROW_WATERMARK: pa.array([int(mark)], pa.int64())} if mark else {}
    return pa.RecordBatch.from_pydict(
        {
            "k": pa.array([k for k, _ in values], pa.string()),
            "ts": pa.array([ts for _, ts in values], pa.int64()),
            **stamp,
            **more,
        }
    )


@pytest.mark.parametrize(("name", "timeline"), TIMELINES)
def test_timeline(name: str, timeline: str) -> None:
    played(timeline, JoinLine(temporal(keep=True)))


@pytest.mark.parametrize(
    ("name", "timeline"),
    [
        ("it holds so long", "v1 r6 w7 > 6=1"),
        ("and not 1 ms longer", "v1 r7 w8 > 7=-"),
        ("renewed it holds again", "v1 v4 r7 w8 > 7=4"),
        ("what is before it has expired, too", "v3 v1 r9 w10 > 9=-"),
        ("expired at a restart", "v1 w90 ! v89 r90 ! w91 > 90=89"),
    ],
)
def test_timeline_of_versions_that_hold_5_ms(name: str, timeline: str) -> None:
    played(timeline, JoinLine(temporal(keep=True, ttl_ms=5)))


def test_rows_without_a_version_are_left_out_or_kept_with_nulls() -> None:
    for keep in (False, True):
        line = JoinLine(temporal(keep=keep))
        line.batch(RIGHT, rows(("b", 1), name=pa.array(["x"])))
        line.batch(LEFT, rows(("a", 5), ("b", 5), (None, 5)))
        found = line.end()
        nulls: dict[str, Any] = {"l_ts": 5, "r_k": None, "r_ts": None, "r_name": None}
        lonely: Rows = [
            nulls | {"l_k": None, "join_key": None},
            nulls | {"l_k": "a", "join_key": "a"},
        ]
        matched: dict[str, Any] = {
            "l_k": "b",
            "l_ts": 5,
            "r_k": "b",
            "r_ts": 1,
            "r_name": "x",
            "join_key": "b",
        }
        assert canonical(found) == canonical([*(lonely if keep else []), matched])


def test_null_keys_match_nothing_and_rows_without_a_time_are_turned_away() -> None:
    line = JoinLine(temporal(late="route"))
    line.batch(RIGHT, rows((None, 1), ("a", None), ("a", 2)))
    line.batch(LEFT, rows((None, 5), ("a", None), ("a", 5)))
    assert [(row["l_ts"], row["r_ts"]) for row in line.end()] == [(5, 2)]
    assert line.totals.late_rows == 2
    assert [batch.num_rows for batch in line.totals.routed] == [1, 1]


def test_of_two_versions_of_one_time_the_last_to_come_counts_also_after_restarts() -> None:
    line = JoinLine(temporal())
    for n in range(6):
        line.batch(RIGHT, rows(("a", 1), ("a", 1), n=pa.array([2 * n, 2 * n + 1])))
        if n % 2:
            line.restart(1 + n % 3)
    line.batch(LEFT, rows(("a", 1)))
    assert [row["r_n"] for row in line.end()] == [11]


def test_columns_of_both_sides_widen() -> None:
    line = JoinLine(temporal())
    line.batch(RIGHT, rows(("a", 1), v=pa.array([1])))
    line.batch(LEFT, rows(("a", 2)))
    line.batch(RIGHT, rows(("a", 3), v=pa.array([0.5]), w=pa.array(["x"])))
    line.restart(2)
    line.batch(LEFT, rows(("a", 4), u=pa.array([7])))
    found = sorted((row["l_ts"], row["l_u"], row["r_v"], row["r_w"]) for row in line.end())
    assert found == [(2, None, 1.0, None), (4, 7, 0.5, "x")]


def test_more_rows_that_wait_than_may_be_fail_or_let_the_oldest_go() -> None:
    line = JoinLine(temporal(max_per_key=2))
    line.batch(RIGHT, rows(*(("a", n) for n in range(9))))
    line.batch(LEFT, rows(("a", 1), ("a", 2)))
    with pytest.raises(ProcessingError, match=r"left side: 3 rows.*`version_ttl_ms` smaller"):
        line.batch(LEFT, rows(("a", 3)))
    assert len(line.end()) == 2
    line = JoinLine(temporal(max_per_key=2, evicts_oldest=True, keep=True))
    line.batch(LEFT, rows(("a", 1), ("a", 2)))
    line.restart(1)
    line.batch(LEFT, rows(("a", 3)))
    assert sorted(row["l_ts"] for row in line.end()) == [2, 3]
    assert line.totals.evicted == 1


def test_versions_that_others_have_followed_are_no_part_of_the_budget_nor_of_snapshots() -> None:
    line = JoinLine(temporal(), max_bytes=2_000)
    for n in range(300):
        line.batch(RIGHT, rows(("a", n), ("b", n)))
        line.advance(n)
    assert line.checkpoint_rows()["right"] <= 4
    line.batch(LEFT, rows(("a", 299)))
    with pytest.raises(ProcessingError, match="`max_bytes: 2000`"):
        line.batch(RIGHT, rows(*(("a", 300 + n) for n in range(300))))
    assert [row["r_ts"] for row in line.end()] == [299]


def test_a_large_table_is_in_files_and_answers_from_there(tmp_path: Path) -> None:
    line = JoinLine(temporal(), spool=tmp_path, memory_bytes=1_000)
    for n in range(40):
        line.batch(RIGHT, rows(*((f"k{m}", n) for m in range(20))))
    (task,) = line.tasks
    assert task.sides[1].held_bytes <= 500
    line.batch(LEFT, rows(("k3", 30), ("k4", 50)))
    assert sorted((row["l_k"], row["r_ts"]) for row in line.end()) == [("k3", 30), ("k4", 39)]


def test_the_state_of_another_join_is_refused() -> None:
    layout = JoinLine(join_of()).tasks[0].sides[1].layout
    side = JoinLine(temporal()).tasks[0].sides[1]
    with pytest.raises(RestoreError, match="'right' has rows of the right side of a join"):
        side.restore([layout], [])
