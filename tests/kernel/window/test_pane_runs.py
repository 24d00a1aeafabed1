"""Panes as a state: budgets, seals, runs that others read, files, what is refused (S4 to S9)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

from arkflow_kernel.errors import CorruptObjectError, ProcessingError, ResourceError, RestoreError
from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, OperatorId, WallMs
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.plan import AggregatePlan, WindowKind, WindowPlan
from arkflow_kernel.snapshot import Epoch, ObjectRef, StateSnapshot
from arkflow_kernel.state.api import RunState, Settling, StateAddress
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.aggregates import Aggregates
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_sides import RawRows
from arkflow_kernel.window.pane_tables import PaneFile
from tests.kernel.state.snapshot_bench import PLAN, Objects

OPERATOR = OperatorId("per_key")


class Panes:
    """The panes of one operator, ten ms each, with sum and least value by key."""

    def __init__(
        self,
        objects: Objects,
        *,
        generation: int = 1,
        keys: tuple[str, ...] = ("k",),
        functions: tuple[str, ...] = ("sum", "min"),
        windows: str = "ten",
        **limits: Any,
    ) -> None:
        aggregates = tuple(AggregatePlan(name, "v", name) for name in functions)
        plan = WindowPlan(WindowKind.TUMBLING, "ts", 10, 10, aggregates=aggregates)
        self.generation = Generation(generation)
        self.aggregates = Aggregates(plan, OPERATOR)
        self.ledger = KeyLedger(keys, OPERATOR)
        self.journal = CommitOnAck(lambda: WallMs(0))
        self.runs = PaneRuns(
            self.aggregates.families[0],
            self.ledger,
            StateAddress("ns", OPERATOR, "panes"),
            self.journal,
            windows=windows,
            dead=lambda panes, watermark: panes + 10 <= watermark,
            values=self.aggregates,
            **limits,
        )
        self.objects = objects
        self.states = ChainStates(PLAN, self.generation, objects)
        self.journal.joined(self.runs)
        self.states.joined(self.runs)

    def add(self, panes: list[int], values: list[Any], *keys: list[Any]) -> None:
        """One item with one batch."""
        columns = dict(zip(self.ledger.fields, keys, strict=True))
        batch = pa.RecordBatch.from_pydict({**columns, "v": pa.array(values)})
        with self.journal.item():
            raw: dict[str, Any] = {"pane": pa.array(panes, pa.int64())}
            raw |= {**self.ledger.columns(batch), **self.aggregates.raw(batch)}
            self.runs.add(RawRows.of(raw))

    def advance(self, watermark: int) -> None:
        """One item that lets go of what ends by then."""
        with self.journal.item():
            self.runs.watermark = EventTimeMs(watermark)
            self.runs.drop_below(watermark // 10 * 10)

    def take(self, checkpoint: int) -> StateSnapshot:
        """Seal and upload."""
        self.states.seal(CheckpointId(checkpoint))
        epoch = Epoch(self.generation, CheckpointId(checkpoint))
        return self.states.upload(epoch)[0][0]

    def restore(self, *snapshots: StateSnapshot) -> "Panes":
        """Begin here."""
        listed = {ref.object for snapshot in snapshots for ref in snapshot.runs}
        refs = [ref for ref in self.objects.written if ref.name in listed]
        self.states.restore(snapshots, refs)
        return self

    def rows(self, first: int = -100, last: int = 100, *by: str) -> list[tuple[Any, ...]]:
        """Everything of some panes, sorted."""
        names = by or ("pane", *self.ledger.names)
        with self.journal.item():
            table = self.runs.rows(first, last, 0, 1, names)
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "spool")


def _read(objects: Objects, ref: ObjectRef) -> pa.Table:
    return ipc.open_file(pa.py_buffer(objects.held[ref.name])).read_all()


def test_panes_are_a_state_of_runs_and_of_transactions(objects: Objects) -> None:
    runs = Panes(objects).runs
    state: RunState = runs
    settling: Settling = runs
    assert state.operator == settling.operator == OPERATOR


def test_a_run_is_a_table_that_others_read(objects: Objects) -> None:
    """S6, S11: sorted by key group and pane, under the fields' own names."""
    panes = Panes(objects, keys=("k", "pane"))
    panes.add([10, 0, 0], [5, 7, 1], ["a", "a", None], [1, 1, 2])
    panes.take(1)
    table = _read(objects, objects.written[0])
    assert table.schema.names[:4] == ["group", "pane", "k", "key_pane"]
    assert {"v_sum", "v_min"} < set(table.schema.names)
    rows = table.to_pylist()
    fields = table.select(["k", "key_pane"]).rename_columns(["k", "pane"]).to_batches()[0]
    assert table["group"].to_pylist() == key_groups(fields, ("k", "pane"), 128).tolist()
    assert rows == sorted(rows, key=lambda row: (row["group"], row["pane"]))
    meta = json.loads((table.schema.metadata or {})[b"arkflow.panes"])
    assert (meta["operator"], meta["key_types"]) == ("per_key", ["string", "int64"])
    assert meta["format_version"] == 1


def test_a_seal_hands_over_what_changed_and_nothing_twice(objects: Objects) -> None:
    panes = Panes(objects)
    panes.add([0, 0], [1, 2], ["a", "b"])
    first = panes.take(1)
    panes.add([0], [3], ["a"])
    second = panes.take(2)
    assert panes.take(3).runs == second.runs
    assert [run.rows for run in second.runs] == [2, 1]
    assert second.runs[0] == first.runs[0]
    assert len(objects.written) == 2
    assert Panes(objects, generation=2).restore(second).rows() == panes.rows()


def test_rows_that_wait_to_be_grouped_are_in_the_cut(objects: Objects) -> None:
    """As they came: the upload lane groups them."""
    panes = Panes(objects)
    for value in range(100):
        panes.add([0, 10], [value, value], ["a", "a"])
    (run,) = panes.take(1).runs
    assert run.rows == 2
    assert Panes(objects, generation=2).restore(panes.take(2)).rows() == panes.rows()


def test_a_run_leaves_out_what_was_let_go_of_before_the_cut(objects: Objects) -> None:
    panes = Panes(objects)
    panes.add([0, 10], [1, 2], ["a", "b"])
    panes.advance(10)
    snapshot = panes.take(1)
    assert snapshot.watermark == 10
    assert _read(objects, objects.written[0])["pane"].to_pylist() == [10]
    restored = Panes(objects, generation=2).restore(snapshot)
    assert restored.runs.watermark == 10
    assert restored.runs.panes().tolist() == [10]


def test_what_is_let_go_of_after_the_cut_is_still_in_it(objects: Objects) -> None:
    """The upload lane judges by the watermark of the cut, not by that of now."""
    panes = Panes(objects)
    panes.add([0, 10], [1, 2], ["a", "b"])
    panes.states.seal(CheckpointId(1))
    panes.advance(20)
    assert panes.runs.panes().tolist() == []
    (snapshot,) = panes.states.upload(Epoch(panes.generation, CheckpointId(1)))[0]
    restored = Panes(objects, generation=2).restore(snapshot)
    assert restored.runs.watermark is None
    assert restored.runs.panes().tolist() == [0, 10]


def test_merged_runs_lose_panes_that_are_dead(objects: Objects) -> None:
    """M7."""
    panes = Panes(objects)
    for checkpoint in range(1, 5):
        panes.add([0, 10], [1, checkpoint], ["a", f"b{checkpoint}"])
        panes.take(checkpoint)
    panes.advance(10)
    panes.take(5)
    panes.states.maintain()
    snapshot = panes.take(6)
    assert [run.rows for run in snapshot.runs] == [4]
    assert Panes(objects, generation=2).restore(snapshot).rows() == panes.rows()
    panes.advance(20)
    panes.add([20] * 3, [1] * 3, ["c", "d", "e"])
    panes.take(7)
    panes.states.maintain()
    assert [run.rows for run in panes.take(8).runs] == [3]


def test_dropped_panes_are_read_until_the_item_ends(objects: Objects) -> None:
    panes = Panes(objects)
    panes.add([0, 10], [1, 2], ["a", "b"])
    with panes.journal.item():
        panes.runs.drop_below(10)
        assert panes.runs.rows(0, 10, 0, 1, ["pane", "key0"]).num_rows == 1
        assert panes.runs.panes().tolist() == [10]
    assert [row[:2] for row in panes.rows()] == [(10, "b")]


def test_slices_are_grouped_by_less_than_they_are_kept_by(objects: Objects) -> None:
    panes = Panes(objects)
    panes.add([0, 10, 20, 0], [1, 2, 4, 8], ["a", "a", "a", "b"])
    panes.take(1)
    panes.add([10], [16], ["a"])
    assert panes.rows(0, 20, "key0") == [("a", 19, 1, *_rest(panes)), ("b", 8, 8, *_rest(panes))]


def _rest(panes: Panes) -> tuple[Any, ...]:
    """Columns of the family behind sum and min: of types, alike in all rows."""
    with panes.journal.item():
        table = panes.runs.rows(0, 20, 0, 1, ["key0"])
    return tuple(column[0].as_py() for column in table.columns[3:])


def test_after_is_kept_apart_and_missing_means_all(objects: Objects) -> None:
    """W7."""
    panes = Panes(objects)
    panes.add([0], [1], ["a"])
    with panes.journal.item():
        raw: dict[str, Any] = {"pane": [0, 0], "after": [5, 5], "key0": ["a", "b"], "v0": [2, 4]}
        panes.runs.add(RawRows.of({name: pa.array(column) for name, column in raw.items()}))
    by = ("pane", "after", "key0")
    found = [row[:4] for row in panes.rows(-100, 100, *by)]
    assert found == [(0, -(2**63), "a", 1), (0, 5, "a", 2), (0, 5, "b", 4)]
    restored = Panes(objects, generation=2).restore(panes.take(1))
    assert [row[:4] for row in restored.rows(-100, 100, *by)] == found
    plain = Panes(objects, generation=3)
    plain.add([0], [1], ["a"])
    assert [row[:3] for row in plain.rows(-100, 100, *by)] == [(0, "a", 1)]


def test_the_budget_counts_partials_once_they_are_merged(objects: Objects) -> None:
    """S4: rows of few keys never pass it, many keys do, and what was let go of makes room."""
    panes = Panes(objects, max_bytes=4_000)
    for value in range(200):
        panes.add([0] * 20, [value] * 20, [f"k{n}" for n in range(20)])
    before = panes.rows()
    many = [f"other-{n}" for n in range(500)]
    with pytest.raises(ProcessingError, match=r"per_key.*bytes of the `max_bytes: 4000`.*raise"):
        panes.add([0] * 500, [1] * 500, many)
    assert panes.rows() == before
    panes.add([0], [0], ["k0"])
    panes.advance(10)
    for pane in range(1, 9):
        panes.add([10 * pane] * 20, [1] * 20, [f"k{n}" for n in range(20)])
        panes.advance(10 * pane)
    assert len(panes.rows()) == 20


def test_gauges_rise_with_rows_and_fall_with_panes(objects: Objects) -> None:
    panes = Panes(objects)
    panes.add([0, 0, 10], [1, 2, 3], ["a", "b", "a"])
    assert panes.runs.live_keys == 3
    assert panes.runs.live_bytes > 0
    panes.advance(10)
    assert panes.runs.live_keys == 1
    panes.advance(20)
    assert (panes.runs.live_keys, panes.runs.live_bytes) == (0, 0)


def _files(panes: Panes) -> int:
    sides = (panes.runs._sealed, panes.runs._fresh)
    return sum(isinstance(each, PaneFile) for side in sides for each in side.held)


def test_what_is_beyond_the_memory_goes_to_files_without_a_name(objects: Objects) -> None:
    """S5: nothing is dropped, and a process that dies leaves nothing behind."""
    panes = Panes(objects, memory_bytes=2_000)
    for turn in range(10):
        panes.add([0] * 100, [turn] * 100, [f"k{n}" for n in range(100)])
    assert panes.runs.memory_bytes <= 2_000
    assert _files(panes) > 0
    assert list(objects.spool.iterdir()) == []
    expected = sorted((0, f"k{n}", 45, 0) for n in range(100))
    assert sorted(row[:4] for row in panes.rows()) == expected
    restored = Panes(objects, generation=2, memory_bytes=2_000).restore(panes.take(1))
    assert _files(restored) > 0
    assert sorted(row[:4] for row in restored.rows()) == expected


def test_a_disk_that_refuses_names_operator_and_folder(objects: Objects) -> None:
    objects.spool.write_text("a file in place of the folder")
    panes = Panes(objects, memory_bytes=1)
    with pytest.raises(ResourceError, match=r"per_key.*`memory_bytes`.*spool"):
        panes.add([0], [1], ["a"])


def test_a_state_of_other_windows_keys_or_aggregates_is_refused(objects: Objects) -> None:
    """S9."""
    panes = Panes(objects)
    panes.add([0], [1], ["a"])
    taken = panes.take(1)
    for other, message in (
        (Panes(objects, windows="twenty"), "kept with windows ten, and the job now has twenty"),
        (Panes(objects, functions=("max",)), "kept with partials"),
        (Panes(objects, keys=("other",)), "have keys of k, and the job now keys by other"),
    ):
        with pytest.raises(RestoreError, match=f"operator 'per_key'.*{message}.*another id"):
            other.restore(taken)


def test_a_run_of_something_else_is_told(objects: Objects) -> None:
    panes = Panes(objects)
    panes.add([0], [1], ["a"])
    batch = pa.record_batch({"group": pa.array([1], pa.int32())})
    panes.runs.written = lambda sealed: iter([batch])  # type: ignore[method-assign]
    taken = panes.take(1)
    with pytest.raises(CorruptObjectError, match="says nothing of panes"):
        Panes(objects, generation=2).restore(taken)


def test_types_of_keys_and_values_are_those_of_the_cut(objects: Objects) -> None:
    """S10, also when no row is left."""
    panes = Panes(objects)
    panes.add([0], [1], [1])
    panes.add([0], [0.5], [0.5])
    panes.advance(100)
    snapshot = panes.take(1)
    assert snapshot.runs == ()
    restored = Panes(objects, generation=2).restore(snapshot)
    assert restored.ledger.types == (pa.float64(),)
    assert restored.aggregates.types == (pa.float64(),)


def test_cuts_of_two_chains_are_joined(objects: Objects) -> None:
    """As when one takes over from two; they have one watermark, if not the least counts."""
    one, other = Panes(objects), Panes(objects, generation=2)
    one.add([0, 10], [1, 2], [1, 2])
    other.add([10], [3], [0.5])
    one.advance(10)
    other.advance(5)
    both = Panes(objects, generation=3).restore(one.take(1), other.take(1))
    assert both.runs.watermark == 5
    assert both.runs.panes().tolist() == [10]
    assert both.ledger.types == (pa.float64(),)
    assert len(both.rows()) == 2


def test_without_keys_all_rows_are_of_one(objects: Objects) -> None:
    panes = Panes(objects, keys=())
    panes.add([0, 0, 10], [1, 2, 3])
    assert [row[:2] for row in panes.rows()] == [(0, 3), (10, 3)]
    restored = Panes(objects, generation=2, keys=()).restore(panes.take(1))
    assert restored.rows() == panes.rows()
