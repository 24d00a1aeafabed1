"""Windows that release their original rows (N10, B.4, W6, W10, N2, N5, S2-S4, B0)."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ConfigError, ProcessingError, ResourceError, RestoreError
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.plan import LatePolicy
from tests.kernel.window.rows_bench import RowsBench, id_lists, session, spool, tumbling


def test_a_processing_time_window_fires_at_its_end_by_the_wall_clock() -> None:
    bench = RowsBench(tumbling())
    bench.wall.ms = 1_003
    bench.ids(1, 2)
    bench.wall.ms = 1_009
    bench.ids(3)
    assert bench.operator.timer() == 1_010
    assert bench.tick(1_009) == []
    bench.wall.ms = 1_010
    bench.ids(4)
    assert id_lists(bench.tick(1_010)) == [[1, 2, 3]]
    assert bench.operator.timer() == 1_020
    assert bench.tick(1_019) == []
    assert id_lists(bench.tick(1_500)) == [[4]]
    assert bench.operator.timer() is None


def test_a_window_is_one_batch_of_the_rows_of_all_keys_in_order_of_arrival() -> None:
    bench = RowsBench(tumbling(keys=("k",)))
    for number in range(200):
        bench.ids(number, k=[f"k{number % 7}"])
    (window,) = bench.tick(2_000)
    (batch,) = window
    assert batch.column("id").to_pylist() == list(range(200))
    assert batch.schema.names == ["id", "k"], "nothing is added to the rows"


def test_a_session_ends_when_the_clock_is_more_than_the_gap_after_its_last_row() -> None:
    bench = RowsBench(session())
    for ms, row in ((1_000, 1), (1_005, 2), (1_010, 3)):
        bench.wall.ms = ms
        bench.ids(row)
    assert bench.operator.timer() == 1_016
    assert bench.tick(1_015) == []
    bench.wall.ms = 1_016
    bench.ids(4)
    assert id_lists(bench.tick(1_016)) == [[1, 2, 3]]
    assert id_lists(bench.tick(1_022)) == [[4]]


def test_each_key_has_sessions_of_its_own() -> None:
    bench = RowsBench(session(keys=("k",)))
    bench.ids(1, 2, 3, k=["a", "b", None])
    bench.wall.ms = 1_004
    bench.ids(4, 5, k=["a", None])
    assert id_lists(bench.tick(1_006)) == [[2]]
    assert id_lists(bench.tick(1_010)) == [[1, 4], [3, 5]]


def test_event_time_windows_fire_by_the_watermark_and_drop_late_rows() -> None:
    bench = RowsBench(tumbling(event_time=True))
    bench.ids(1, 2, 3, ts=[5, 15, -1])
    assert bench.operator.timer() is None
    assert bench.tick(10_000) == []
    assert id_lists(bench.advance(9)) == [[3]], "[-10, 0): floor division"
    assert id_lists(bench.advance(10)) == [[1]]
    bench.ids(4, 5, 6, ts=[9, 10, None])
    assert bench.late_rows == 2
    assert bench.late[0].to_pylist() == [
        {"id": 6, "ts": None, "__arkflow_invalid_timestamp_route": True}
    ]
    assert id_lists(bench.advance(20)) == [[2, 5]]
    assert bench.advance(20) == []


def test_late_rows_are_routed_and_the_columns_of_the_gate_go_no_further() -> None:
    bench = RowsBench(tumbling(event_time=True, late=LatePolicy.ROUTE))
    stamped = pa.record_batch(
        {"id": [1, 2], "ts": [5, 15], ROW_WATERMARK: pa.array([12, 16], pa.int64())}
    )
    result = bench.put(stamped)
    assert (result.late_rows, result.absorbed) == (1, 1)
    assert result.late is not None
    assert result.late.to_pylist() == [{"id": 1, "ts": 5, "__arkflow_late_event_route": True}]
    ((batch,),) = bench.end()
    assert batch.to_pylist() == [{"id": 2, "ts": 15}]


def test_event_time_sessions_merge_over_a_row_that_comes_between() -> None:
    bench = RowsBench(session(event_time=True, keys=("k",)))
    bench.ids(1, 2, 3, k=["a", "a", "b"], ts=[0, 10, 5])
    bench.ids(4, k=["a"], ts=[5])
    assert id_lists(bench.advance(11)) == [[3]]
    assert bench.advance(15) == []
    assert id_lists(bench.advance(16)) == [[1, 2, 4]]


def test_a_row_beside_a_session_that_was_released_begins_another() -> None:
    bench = RowsBench(session(event_time=True))
    bench.ids(1, ts=[0])
    assert id_lists(bench.advance(6)) == [[1]]
    bench.ids(2, 3, ts=[1, 4])
    assert bench.late_rows == 1, "[1, 6) has passed, [4, 9) has not"
    assert id_lists(bench.end()) == [[3]]


def test_the_end_of_the_data_releases_everything_once() -> None:
    """W10."""
    for plan in (tumbling(), session()):
        bench = RowsBench(plan)
        bench.ids(1)
        bench.wall.ms = 1_030
        bench.ids(2)
        assert id_lists(bench.end()) == [[1], [2]]
        assert bench.end() == []
        assert (bench.rows.live_keys, bench.rows.live_bytes) == (0, 0)


def test_a_failed_item_leaves_nothing_of_what_it_added_or_released() -> None:
    """S2."""
    bench = RowsBench(session(keys=("k",)))
    bench.ids(1, 2, k=["a", "b"])
    before = (bench.rows.live_keys, bench.rows.live_bytes, bench.operator.timer())

    def fails() -> None:
        bench.wall.ms = 1_100
        with bench.journal.item():
            for _ in bench.operator.tick(bench.journal.wall_ms):
                pass
            bench.operator.process(pa.record_batch({"id": [3], "k": ["c"]}), NOWHERE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    bench.wall.ms = 1_001
    after = (bench.rows.live_keys, bench.rows.live_bytes, bench.operator.timer())
    assert after == before
    bench.ids(4, k=["c"])
    assert id_lists(bench.end()) == [[1], [2], [4]]


def test_rows_beyond_max_bytes_fail_with_the_operator_and_its_budget() -> None:
    """S4: reaching the budget succeeds, passing it fails and nothing of the batch is kept."""
    batch = pa.record_batch({"id": [1, 2]})
    bench = RowsBench(tumbling(max_bytes=2 * batch.nbytes))
    bench.put(batch)
    bench.put(batch)
    with pytest.raises(ProcessingError, match=r"'w'.*48 bytes of the `max_bytes: 32`"):
        bench.put(batch)
    assert id_lists(bench.tick(2_000)) == [[1, 2, 1, 2]]
    bench.put(batch)


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ({"j": ["a"]}, "key field 'k' is missing"),
        ({"k": pa.array([["a"]])}, "cannot be a key"),
        ({"k": [True]}, "were of type string and are now bool"),
    ],
)
def test_a_key_that_is_missing_or_changes_is_an_error(column: dict[str, Any], match: str) -> None:
    """S10."""
    for plan in (tumbling(keys=("k",)), session(keys=("k",))):
        bench = RowsBench(plan)
        bench.ids(1, k=["a"])
        with pytest.raises(ProcessingError, match=match):
            bench.put(pa.record_batch({"id": [2], **column}))
        assert id_lists(bench.end()) == [[1]]


def test_what_released_rows_cannot_have_is_refused_when_the_operator_is_built() -> None:
    with pytest.raises(ConfigError, match="cannot correct"):
        RowsBench(tumbling(event_time=True, late=LatePolicy.UPDATE))


# --- snapshots -----------------------------------------------------------------------------------


def test_a_restored_window_whose_end_has_passed_fires_at_the_first_tick(tmp_path: Path) -> None:
    """B0: rows of open windows are in the cut."""
    for plan in (tumbling(), session()):
        bench = RowsBench(plan, spool(tmp_path))
        bench.ids(1, 2)
        other = bench.restored(bench.take())
        other.wall.ms = 99_000
        timer = other.operator.timer()
        assert timer is not None
        assert timer < 99_000
        assert id_lists(other.tick()) == [[1, 2]]
        assert id_lists(other.tick(199_000)) == []


def test_a_window_that_was_released_before_the_cut_does_not_come_back(tmp_path: Path) -> None:
    """N5: also if its rows were in the snapshot before."""
    bench = RowsBench(tumbling(keys=("k",)), spool(tmp_path))
    bench.ids(1, 2, k=["a", "b"])
    bench.take()
    bench.wall.ms = 1_010
    bench.ids(3, k=["a"])
    assert id_lists(bench.tick()) == [[1, 2]]
    other = bench.restored(bench.take())
    assert id_lists(other.end()) == [[3]]


def test_rows_that_were_sealed_twice_and_released_between_are_not_uploaded(
    tmp_path: Path,
) -> None:
    objects = spool(tmp_path)
    bench = RowsBench(tumbling(), objects)
    bench.ids(1)
    bench.tick(1_010)
    bench.seal()
    assert bench.upload().states[0].runs == ()
    bench.ids(2)
    bench.seal()
    bench.tick(1_020)
    bench.seal()
    bench.upload()
    assert id_lists(bench.restored(bench.take()).end()) == []


def test_a_clock_that_is_behind_the_restored_mark_does_not_reopen_a_window(
    tmp_path: Path,
) -> None:
    bench = RowsBench(tumbling(), spool(tmp_path))
    bench.wall.ms = 1_001
    bench.ids(1)
    bench.take()
    bench.tick(1_012)
    taken = bench.take()
    other = bench.restored(taken)
    other.wall.ms = 1_003
    other.ids(2)
    assert other.operator.timer() == 1_020
    again = other.restored(other.take())
    assert id_lists(again.tick(1_020)) == [[2]]


def test_another_window_size_takes_the_rows_by_their_own_times(tmp_path: Path) -> None:
    bench = RowsBench(tumbling(), spool(tmp_path))
    for ms in (1_001, 1_011, 1_021):
        bench.wall.ms = ms
        bench.ids(ms)
    taken = bench.take()
    wider = RowsBench(tumbling(), bench.objects, wall=bench.wall)
    wider.rows._windows = type(wider.rows._windows)(
        by_key=False, gap_ms=0, marks=lambda times: times - times % 20
    )
    wider.states.restore(taken.states, taken.objects)
    assert id_lists(wider.end()) == [[1_001, 1_011], [1_021]]


def test_a_snapshot_of_another_key_or_kind_of_window_is_refused(tmp_path: Path) -> None:
    """S9."""
    bench = RowsBench(tumbling(keys=("k",)), spool(tmp_path))
    bench.ids(1, k=["a"])
    taken = bench.take()
    for plan, match in (
        (tumbling(keys=("id",)), "rows by k, and the job now keys by id"),
        (tumbling(), "by no key"),
        (session(keys=("k",)), "rows of windows, and the job now keeps rows of sessions"),
    ):
        other = RowsBench(plan, bench.objects)
        with pytest.raises(RestoreError, match=match):
            other.states.restore(taken.states, taken.objects)


@pytest.mark.parametrize("oldest", [True, False])
def test_tombstones_stay_until_a_merge_begins_at_the_oldest_run(
    tmp_path: Path, oldest: bool
) -> None:
    """M7: an older run may still have the rows that they are for."""
    bench = RowsBench(session(keys=("k",)), spool(tmp_path))
    bench.ids(1, 2, k=["a", "b"])
    (first,) = bench.rows.written([bench.rows.seal()])
    bench.wall.ms = 1_004
    bench.ids(3, k=["b"])
    bench.tick(1_007)
    sealed = bench.rows.seal()
    (second,) = bench.rows.written([sealed])
    runs = [first, second] if oldest else [second]
    merged = bench.rows.merged(runs, sealed.layout, oldest=oldest, newest=True)
    assert merged is not None
    assert merged.num_rows == 2, "rows 2 and 3, or row 3 and the tombstone of row 1"
    other = RowsBench(session(keys=("k",)))
    other.rows.restore([sealed.layout], [merged] if oldest else [first, merged])
    assert id_lists(other.end()) == [[2, 3]]


def test_rows_survive_many_checkpoints_and_merges(tmp_path: Path) -> None:
    """M7: each window lies over several runs, and each checkpoint can be restored."""
    bench = RowsBench(tumbling(keys=("k",)), spool(tmp_path))
    released: list[list[Any]] = []
    for number in range(100):
        bench.wall.ms = 1_000 + 3 * number
        released += id_lists(bench.tick())
        bench.ids(number, k=[number % 5])
        taken = bench.take()
        assert sum(len(state.runs) for state in taken.states) < 40
        if number % 7 == 0:
            bench = bench.restored(taken)
    released += id_lists(bench.end())
    expected: dict[int, list[int]] = {}
    for number in range(100):
        expected.setdefault((1_000 + 3 * number) // 10, []).append(number)
    assert released == list(expected.values())


def test_subtasks_that_share_the_key_groups_share_the_rows(tmp_path: Path) -> None:
    """S6: of a run each restores the rows and the tombstones of its own groups."""
    bench = RowsBench(session(keys=("k",)), spool(tmp_path))
    keys = [f"k{n}" for n in range(40)]
    bench.ids(*range(40), k=keys)
    runs = [*bench.rows.written([bench.rows.seal()])]
    bench.wall.ms = 1_005
    bench.ids(*range(40, 60), k=keys[:20])
    bench.tick(1_006)
    sealed = bench.rows.seal()
    runs += bench.rows.written([sealed])
    found: list[list[Any]] = []
    for groups in ([0, 1], [2, 3]):
        part = RowsBench(session(keys=("k",)))
        mine = [
            run.filter(pa.array([g in groups for g in run.column("group").to_pylist()]))
            for run in runs
        ]
        part.rows.restore([sealed.layout, sealed.layout], mine)
        part.ids(100, k=["another"])
        found += id_lists(part.end())
    assert sorted(window for window in found if window != [100]) == [[n, n + 40] for n in range(20)]


# --- memory --------------------------------------------------------------------------------------


def test_rows_beyond_the_memory_budget_wait_in_files_without_names(tmp_path: Path) -> None:
    """S5."""
    objects = spool(tmp_path)
    bench = RowsBench(tumbling(keys=("k",), memory_bytes=100_000), objects)
    text = "x" * 100
    for number in range(200):
        ids = list(range(100 * number, 100 * number + 100))
        bench.put(pa.record_batch({"id": ids, "k": ids, "t": [text] * 100}))
        assert bench.rows.memory_bytes < 120_000
    assert bench.rows.live_bytes > 2_000_000
    assert list(objects.spool.iterdir()) == []
    other = bench.restored(bench.take())
    assert other.rows.memory_bytes < 120_000
    for each in (bench, other):
        assert id_lists(each.end()) == [list(range(20_000))]


def test_a_disk_that_refuses_rows_is_an_error_that_names_the_operator(tmp_path: Path) -> None:
    objects = spool(tmp_path)
    objects.spool.mkdir()
    bench = RowsBench(tumbling(memory_bytes=0), objects)
    objects.spool.rmdir()
    objects.spool.symlink_to("/proc/self/fdinfo")
    with pytest.raises(ResourceError, match="'w': the rows of its windows do not fit"):
        bench.ids(1)


def test_keys_without_rows_are_forgotten() -> None:
    bench = RowsBench(session(keys=("k",)))
    for number in range(80):
        bench.ids(*range(100), k=[f"{number}-{n}" for n in range(100)])
        bench.tick(1_000 + 10 * (number + 1))
    bench.ids(1, 2, k=["79-3", "new"])
    assert bench.rows._slots.size < 2_000
    assert id_lists(bench.end()) == [[1], [2]]


def test_many_small_batches_become_few_chunks() -> None:
    bench = RowsBench(tumbling())
    for number in range(1_000):
        bench.ids(number)
    assert len(bench.rows._fresh) < 130
    assert id_lists(bench.end()) == [list(range(1_000))]
