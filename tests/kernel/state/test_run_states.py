"""What a chain's snapshots ask of a state, whatever it keeps (`api.RunState`)."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from arkflow_kernel import state_snapshots
from arkflow_kernel.errors import ComponentError, CorruptObjectError, RestoreError, StoreError
from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, OperatorId
from arkflow_kernel.snapshot import Epoch, ObjectRef, StateSnapshot
from arkflow_kernel.state.api import RunState, Sealed, StateLayout
from arkflow_kernel.state_snapshots import ChainStates
from tests.kernel.state.snapshot_bench import PLAN, Objects

OPERATOR = OperatorId("numbers")


def _run(*rows: tuple[int, int]) -> pa.RecordBatch:
    groups, values = zip(*rows, strict=True)
    return pa.record_batch({"group": pa.array(groups, pa.int32()), "value": pa.array(values)})


@dataclass
class Numbers:
    """A state of numbers by key group, up to a watermark; it tells how it was asked."""

    operator: OperatorId = OPERATOR
    watermark: int = 0
    fresh: list[tuple[int, int]] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    merges: list[tuple[int, int | None, bool, bool]] = field(default_factory=list)
    tracked: bool = False
    spool: Path | None = None
    instead: pa.RecordBatch | None = None
    run_rows: int = 1_000
    merge_bytes_max: int | None = None

    @property
    def layout(self) -> StateLayout:
        """Its layout now."""
        return StateLayout("ns", "numbers", (), (), "int64", 1, EventTimeMs(self.watermark))

    def track(self) -> None:
        """Remember it."""
        self.tracked = True

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """Remember it."""
        self.spool = folder() / prefix

    def add(self, *rows: tuple[int, int]) -> None:
        """New numbers."""
        self.fresh += rows
        self.held += rows

    def seal(self) -> Sealed:
        """What is new."""
        fresh, self.fresh = tuple(self.fresh), []
        return Sealed(fresh, self.layout)

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """Sorted by group, in runs of `run_rows`; nothing of it if all are negative."""
        if self.instead is not None:
            yield self.instead
            return
        rows = sorted(row for each in sealed for row in each.changes if row[1] >= 0)
        for start in range(0, len(rows), self.run_rows):
            yield _run(*rows[start : start + self.run_rows])

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """Those that are above the layout's watermark."""
        self.merges.append((len(runs), layout.watermark, oldest, newest))
        assert layout.watermark is not None
        rows = sorted(
            (row["group"], row["value"])
            for run in runs
            for row in run.to_pylist()
            if row["value"] >= layout.watermark
        )
        return _run(*rows) if rows else None

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """Hold the rows."""
        runs = list(runs)
        if any(layout.value_type != "int64" for layout in layouts):
            raise RestoreError("not numbers")
        if any(run.schema.names != ["group", "value"] for run in runs):
            raise pa.ArrowInvalid("no numbers")
        self.watermark = min(layout.watermark or 0 for layout in layouts)
        self.held = [(row["group"], row["value"]) for run in runs for row in run.to_pylist()]


class Chain:
    """A chain with one such state."""

    def __init__(self, objects: Objects, generation: int = 1) -> None:
        self.objects = objects
        self.generation = Generation(generation)
        self.state = Numbers()
        self.states = ChainStates(PLAN, self.generation, objects)
        state: RunState = self.state
        self.states.joined(state)

    def upload(self, checkpoint: int) -> StateSnapshot:
        """Upload what was sealed; the snapshot."""
        return self.states.upload(Epoch(self.generation, CheckpointId(checkpoint)))[0][0]

    def take(self, checkpoint: int) -> StateSnapshot:
        """Seal and upload."""
        self.states.seal(CheckpointId(checkpoint))
        return self.upload(checkpoint)


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "spool")


def _listed(objects: Objects, snapshot: StateSnapshot) -> list[ObjectRef]:
    names = {ref.object for ref in snapshot.runs}
    return [ref for ref in objects.written if ref.name in names]


def test_the_states_of_a_chain_that_takes_snapshots_track_changes(objects: Objects) -> None:
    chain = Chain(objects)
    assert chain.state.tracked
    assert chain.state.spool == objects.spool / "1-counts-0-0"


def test_a_snapshot_says_what_the_layout_said_at_the_seal(objects: Objects) -> None:
    """N5: the watermark is of the cut, whatever the state fires before it is uploaded."""
    chain = Chain(objects)
    chain.state.add((3, 30), (1, 10))
    chain.state.watermark = 7
    chain.states.seal(CheckpointId(1))
    chain.state.watermark = 25
    chain.state.add((2, 20))
    chain.states.seal(CheckpointId(2))
    first = chain.upload(1)
    assert (first.namespace, first.name, first.value_type) == ("ns", "numbers", "int64")
    assert (first.watermark, [run.rows for run in first.runs]) == (7, [2])
    assert (first.runs[0].first_group, first.runs[0].last_group) == (1, 3)
    second = chain.upload(2)
    assert (second.watermark, [run.rows for run in second.runs]) == (25, [2, 1])


def test_a_merge_knows_the_last_layout_that_is_uploaded_and_what_is_around_it(
    objects: Objects,
) -> None:
    """A later seal that waits says nothing of what the uploaded runs may lose."""
    chain = Chain(objects)
    chain.state.add(*((n, 100 + n) for n in range(20)))
    chain.take(1)
    for checkpoint in range(2, 10):
        chain.state.watermark = checkpoint
        chain.state.add((1, checkpoint + 90))
        chain.take(checkpoint)
    chain.state.watermark = 95
    chain.states.seal(CheckpointId(10))
    chain.states.maintain()
    assert chain.state.merges == [(8, 9, False, True)]
    assert [run.rows for run in chain.upload(10).runs] == [20, 8]
    chain.state.add(*((n, 200) for n in range(5)))
    assert [run.rows for run in chain.take(11).runs] == [20, 8, 5]
    chain.states.maintain()
    assert chain.state.merges[1:] == [(3, 95, True, True)]
    assert [run.rows for run in chain.take(12).runs] == [30]


def test_what_leaves_nothing_behind_lists_no_run(objects: Objects) -> None:
    chain = Chain(objects)
    chain.state.add((1, -1))
    assert chain.take(1).runs == ()
    assert objects.written == []
    chain.state.add((1, 5), (2, 6))
    chain.take(2)
    chain.state.add((1, 7), (1, 8))
    chain.state.watermark = 50
    chain.take(3)
    chain.states.maintain()
    assert chain.take(4).runs == ()


def _listed_rows(snapshot: StateSnapshot) -> list[int]:
    return [run.rows for run in snapshot.runs]


def test_a_large_seal_becomes_several_runs_in_several_objects(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_snapshots, "_OBJECT_BYTES", 1)
    chain = Chain(objects)
    chain.state.run_rows = 4
    chain.state.add(*((n, n) for n in range(10)))
    chain.states.seal(CheckpointId(1))
    states, told = chain.states.upload(Epoch(chain.generation, CheckpointId(1)))
    assert _listed_rows(states[0]) == [4, 4, 2]
    assert told == tuple(objects.written)
    assert len(told) == 3
    other = Chain(objects, generation=2)
    other.states.restore(states, told)
    assert other.state.held == [(n, n) for n in range(10)]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_upload_that_fails_in_the_middle_loses_and_repeats_nothing(
    objects: Objects, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """B6: what the store has is told with the next upload, and the rest of the seal follows."""
    monkeypatch.setattr(state_snapshots, "_OBJECT_BYTES", 1)
    chain = Chain(objects)
    chain.state.run_rows = 4
    chain.state.add(*((n, n) for n in range(10)))
    chain.states.seal(CheckpointId(1))
    put, count = objects.put, iter(range(1, 99))

    def sometimes(name: str, parts: Seq[pa.Buffer | bytes]) -> ObjectRef:
        if next(count) == failing:
            raise StoreError("the store is away")
        return put(name, parts)

    monkeypatch.setattr(objects, "put", sometimes)
    with pytest.raises(StoreError, match="away"):
        chain.upload(1)
    chain.states.maintain()
    chain.state.add((50, 50))
    chain.states.seal(CheckpointId(2))
    states, told = chain.states.upload(Epoch(chain.generation, CheckpointId(2)))
    assert sum(_listed_rows(states[0])) == 11
    assert told == tuple(objects.written)
    other = Chain(objects, generation=2)
    other.states.restore(states, told)
    assert sorted(other.state.held) == [*((n, n) for n in range(10)), (50, 50)]


def test_what_was_sealed_and_cannot_be_read_again_ends_the_attempt(objects: Objects) -> None:
    chain = Chain(objects)
    chain.state.add((1, 1))
    chain.states.seal(CheckpointId(1))

    def broken(sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        raise StoreError("a local file is gone")
        yield

    chain.state.written = broken  # type: ignore[method-assign]
    with pytest.raises(ComponentError, match="a local file is gone"):
        chain.upload(1)


def test_runs_too_large_to_merge_go_when_nothing_of_them_is_left(objects: Objects) -> None:
    chain = Chain(objects)
    chain.state.merge_bytes_max = 0
    for checkpoint in range(1, 6):
        chain.state.add((1, checkpoint), (2, checkpoint))
        chain.take(checkpoint)
    chain.state.watermark = 4
    chain.state.add((3, 9))
    chain.take(6)
    chain.states.maintain()
    assert _listed_rows(chain.take(7)) == [2, 2, 1], "those of 1 to 3 are below the watermark"


def test_only_rows_of_the_own_key_groups_are_restored(objects: Objects) -> None:
    """S6."""
    chain = Chain(objects)
    chain.state.add(*((n, n) for n in range(10)))
    chain.state.watermark = 3
    whole = chain.take(1)
    half = dataclasses.replace(whole.runs[0], first_group=4, last_group=6)
    other = Chain(objects, generation=2)
    other.states.restore([dataclasses.replace(whole, runs=(half,))], _listed(objects, whole))
    assert other.state.held == [(4, 4), (5, 5), (6, 6)]
    assert other.state.watermark == 3
    assert other.take(2).runs == (half,)


def test_a_restore_of_what_is_no_run_of_the_state_names_the_object(objects: Objects) -> None:
    chain = Chain(objects)
    chain.state.add((1, 1))
    taken = chain.take(1)
    batch = pa.record_batch({"group": pa.array([1], pa.int32()), "text": pa.array(["a"])})
    strange = Chain(objects, generation=2)
    strange.state.add((1, 1))
    strange.state.instead = batch
    other = strange.take(1)
    name = _listed(objects, other)[0].name
    with pytest.raises(CorruptObjectError, match=f"operator 'numbers' in objects '{name}'"):
        Chain(objects, generation=3).states.restore([other], _listed(objects, other))
    unfit = dataclasses.replace(taken, value_type="string")
    with pytest.raises(RestoreError, match="not numbers"):
        Chain(objects, generation=3).states.restore([unfit], _listed(objects, taken))


def test_a_run_begins_with_its_key_group(objects: Objects) -> None:
    chain = Chain(objects)
    chain.state.add((1, 1))
    strange = pa.record_batch({"group": pa.array([1], pa.int64())})
    chain.state.instead = strange
    taken = chain.take(1)
    with pytest.raises(CorruptObjectError, match="first column of a run is its key group"):
        Chain(objects, generation=2).states.restore([taken], _listed(objects, taken))
