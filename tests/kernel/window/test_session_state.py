"""What sessions leave in runs and files, and what they let go of (S4-S6, S8, S9)."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.plan import AggregatePlan, LatePolicy
from arkflow_kernel.testing.session_bench import Rows, SessionBench, session_plan
from arkflow_kernel.window import session_pieces, session_runs
from arkflow_kernel.window.key_numbers import KeyNumbers


def rows_at(*times: int, key: Any = "k") -> Rows:
    """A row of value 1 at each time."""
    return [{"k": key, "ts": ts, "v": 1} for ts in times]


def run_of(bench: SessionBench) -> pa.RecordBatch:
    """The run of what came since the last."""
    (run,) = bench.state.written([bench.state.seal()])
    return run


def test_a_run_is_readable_and_in_order_of_key_group() -> None:
    bench = SessionBench(session_plan(10))
    bench.rows([row for key in "abcdefgh" for row in rows_at(0, 5, 50, key=key)])
    run = run_of(bench)
    assert run.schema.names[:5] == ["group", "k", "first", "last", "corrects"]
    assert {"v_count", "v_sum", "v_min", "v_max"} <= set(run.schema.names)
    groups = np.asarray(run.column("group"))
    assert (groups[1:] >= groups[:-1]).all()
    assert groups.tolist() == key_groups(run, ["k"], 128).tolist()
    first = [row for row in run.to_pylist() if row["k"] == "a"]
    assert [(row["first"], row["last"], row["v_count"]) for row in first] == [
        (0, 5, 2),
        (50, 50, 1),
    ]


def test_key_fields_may_be_called_like_the_columns_of_a_run() -> None:
    bench = SessionBench(session_plan(10, key_fields=("first", "group"), aggregates=NAMED))
    bench.rows([{"first": "a", "group": 0.5, "ts": 0, "v": 1}])
    assert {"key_first", "key_group", "group_tag"} <= set(run_of(bench).schema.names)
    bench = SessionBench(bench.plan)
    bench.rows([{"first": "a", "group": 0.5, "ts": 0, "v": 1}])
    bench.crash()
    (row,) = bench.end()
    assert (row["first"], row["group"], row["values"]) == ("a", 0.5, 1)


NAMED = (AggregatePlan("count_distinct", "v", "values"),)


def test_fragments_of_one_session_are_one_row_of_a_run_and_sessions_of_a_merge() -> None:
    bench = SessionBench(session_plan(10))
    bench.rows(rows_at(0))
    bench.rows(rows_at(8))
    one = run_of(bench)
    assert one.num_rows == 1
    bench.rows(rows_at(16))
    two = run_of(bench)
    merged = bench.state.merged([one, two], bench.state.layout, oldest=False, newest=True)
    assert merged is not None
    assert merged.select(["first", "last", "v_count"]).to_pylist() == [
        {"first": 0, "last": 16, "v_count": 3}
    ]


@pytest.mark.parametrize(("oldest", "newest"), [(True, True), (True, False), (False, True)])
def test_only_a_merge_of_all_runs_leaves_out_what_no_row_can_reach(
    oldest: bool, newest: bool
) -> None:
    """A fragment that looks old may be connected through a run that is not there."""
    bench = SessionBench(session_plan(10))
    bench.rows([*rows_at(0, key="old"), *rows_at(30, key="new")])
    run = run_of(bench)
    bench.advance(21)
    layout = bench.state.layout
    merged = bench.state.merged([run], layout, oldest=oldest, newest=newest)
    assert merged is not None
    assert merged.num_rows == (1 if oldest and newest else 2)
    bench.advance(51)
    assert (
        bench.state.merged([run], bench.state.layout, oldest=oldest, newest=newest) is None
    ) is (oldest and newest)


def test_a_long_session_survives_merges_of_all_runs_whose_fragments_look_old() -> None:
    """Each fragment but the last is passed by more than it is kept, but the session is open."""
    bench = SessionBench(session_plan(10))
    for ts in range(0, 200, 10):
        bench.rows(rows_at(ts))
        bench.advance(ts)
        bench.crash()
    (row,) = bench.end()
    assert (row["window_start"], row["window_end"], row["count"]) == (0, 200, 20)


def test_a_session_is_found_whole_through_a_chain_of_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only its last fragments have just been passed; each leads to the one before it."""
    monkeypatch.setattr(session_pieces, "_FEW", 0)
    monkeypatch.setattr(session_runs, "_FAN_IN", 100)
    bench = SessionBench(session_plan(10, late=LatePolicy.UPDATE, lateness_ms=100))
    for ts in range(0, 70, 10):
        bench.rows([*rows_at(ts), *rows_at(3 * ts, key="other")])
        assert all(row["key"] == "other" for row in bench.advance(ts - 5))
    chain = [row for row in bench.advance(71) if row["key"] == "k"]
    assert [(row["window_start"], row["window_end"], row["count"]) for row in chain] == [(0, 70, 7)]
    (now,) = bench.rows(rows_at(59))
    assert (now["window_start"], now["window_end"], now["count"]) == (0, 70, 8)


def test_runs_of_other_sessions_are_refused() -> None:
    bench = SessionBench(session_plan(10))
    bench.rows(rows_at(0))
    run, layout = run_of(bench), bench.state.layout
    for plan, told in (
        (session_plan(20), "gap_ms 10, and the job now has 20"),
        (session_plan(10, key_fields=("k", "l")), "keys of k, and the job now keys by k, l"),
        (session_plan(10, aggregates=NAMED), "partials"),
    ):
        with pytest.raises(RestoreError, match=told):
            SessionBench(plan).state.restore([layout], [run])


def test_a_run_of_an_unknown_version_is_refused() -> None:
    bench = SessionBench(session_plan(10))
    bench.rows(rows_at(0))
    run = run_of(bench)
    assert run.schema.metadata is not None
    meta = {
        name: value.replace(b'"format_version": 1', b'"format_version": 9')
        for name, value in run.schema.metadata.items()
    }
    with pytest.raises(RestoreError, match="format version 9"):
        SessionBench(session_plan(10)).state.restore(
            [bench.state.layout], [run.replace_schema_metadata(meta)]
        )


def test_types_are_restored_also_when_no_session_is_left() -> None:
    bench = SessionBench(session_plan(10))
    bench.rows([{"k": 1, "ts": 0, "v": 0.5}])
    bench.advance(100)
    bench.checkpoint()
    bench.crash()
    bench.rows([{"k": 2, "ts": 200, "v": 1}])
    (row,) = bench.end()
    assert isinstance(row["sum"], float)


def test_partials_of_large_sums_and_other_types_merge_over_runs() -> None:
    bench = SessionBench(session_plan(10))
    bench.rows([{"k": "k", "ts": ts, "v": 2**62} for ts in (0, 1)])
    bench.crash()
    bench.rows([{"k": "k", "ts": 2, "v": -(2**62)}])
    bench.crash()
    (row,) = bench.end()
    assert row["sum"] == 2**62


def test_rows_beyond_the_memory_budget_go_to_files_that_have_no_name(tmp_path: Path) -> None:
    plan = session_plan(10, late=LatePolicy.UPDATE, lateness_ms=1_000, memory_bytes=1)
    bench, held = SessionBench(plan, tmp_path), SessionBench(session_plan(10))
    many = [{"k": f"k{n}", "ts": n % 7, "v": n} for n in range(20_000)]
    for start in range(0, len(many), 5_000):
        bench.rows(many[start : start + 5_000])
        held.rows(many[start : start + 5_000])
    assert bench.state.live_bytes == held.state.live_bytes
    assert bench.state.memory_bytes < held.state.memory_bytes
    assert list(tmp_path.iterdir()) == []
    assert sorted(map(repr, bench.advance(12))) == sorted(map(repr, held.advance(12)))
    bench.crash()
    assert sorted(map(repr, bench.end())) == sorted(map(repr, held.end()))


def test_what_no_row_can_reach_goes_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_runs, "_COMPACT_ROWS_MIN", 4)
    bench = SessionBench(session_plan(10))
    for batch in range(50):
        bench.rows([{"k": f"{batch}-{n}", "ts": 100 * batch, "v": n} for n in range(5)])
        bench.advance(100 * batch)
    assert bench.state.live_keys <= 20
    assert bench.state._keys.size <= 20
    assert len(bench.results) == 49 * 5


def test_equal_keys_have_one_number_whatever_their_layout() -> None:
    numbers = KeyNumbers(1)
    plain = numbers.of_columns([pa.array(["a", "b", "a", None])], 4)
    assert plain.tolist() == [0, 1, 0, 2]
    coded = numbers.of_columns([pa.array([None, "b", "c"]).dictionary_encode()], 3)
    assert coded.tolist() == [2, 1, 3]
    numbers.keep(np.array([1, 3]))
    assert numbers.of_columns([pa.array(["c", "b", "a"])], 3).tolist() == [1, 0, 2]
