"""Snapshots of a chain's states: what is uploaded, when, and what is not (S6, S9, B8, M2, M7)."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from arkflow_kernel.errors import CorruptObjectError, ProtocolError, RestoreError, StoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.snapshot import Epoch, RunRef
from arkflow_kernel.state import run_format
from arkflow_kernel.state.sorted_run import merge_due
from tests.kernel.state.snapshot_bench import Chain, Objects, Taken

pytestmark = pytest.mark.thorough


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "spool")


def _runs(taken: Taken) -> list[RunRef]:
    return [ref for state in taken.states for ref in state.runs]


def test_a_chain_in_ack_mode_takes_no_snapshots() -> None:
    chain = Chain(None)
    chain.count(["a", "b"])
    chain.states.seal(CheckpointId(1))
    assert chain.states.upload(Epoch(chain.generation, CheckpointId(1))) == ((), ())
    chain.states.restore(())
    chain.states.maintain()
    chain.states.close()
    assert chain.count(["a"]) == [2]


def test_an_unchanged_chain_lists_the_same_runs_and_writes_no_object(objects: Objects) -> None:
    """B8."""
    chain = Chain(objects)
    chain.count(["a", "b"])
    first = chain.take(1)
    assert chain.take(2).states == first.states
    assert len(objects.written) == 1


def test_a_snapshot_holds_what_was_sealed_for_it_and_nothing_later(objects: Objects) -> None:
    """B0: the upload of a checkpoint runs while later items, and a later seal, go on."""
    chain = Chain(objects)
    chain.count(["a"])
    chain.states.seal(CheckpointId(1))
    chain.count(["a", "b"])
    chain.states.seal(CheckpointId(2))
    chain.count(["a", "b", "c"])
    first, second = chain.upload(1), chain.upload(2)
    assert first.restored(Chain(objects, generation=2)).rows() == {"'a'": (1, 2**62)}
    rows = second.restored(Chain(objects, generation=3)).rows()
    assert rows == {"'a'": (2, 2**62), "'b'": (1, 2**62)}


def test_after_a_failed_upload_the_next_one_has_everything(objects: Objects) -> None:
    chain = Chain(objects)
    chain.count(["a"])
    objects.failures = 1
    with pytest.raises(StoreError):
        chain.take(1)
    chain.count(["a", "b"])
    taken = chain.take(2)
    assert len(objects.written) == 1, "the runs of both rounds are one object"
    rows = taken.restored(Chain(objects, generation=2)).rows()
    assert rows == {"'a'": (2, 2**62), "'b'": (1, 2**62)}


def test_all_new_runs_of_a_chain_are_in_one_object_at_aligned_offsets(objects: Objects) -> None:
    chain = Chain(objects, names=("a", "b", "c"))
    for part in (0, 2):
        chain.count([f"key-{part}"], part=part)
    taken = chain.take(1)
    assert [len(state.runs) for state in taken.states] == [1, 0, 1]
    assert len(objects.written) == 1
    assert all(ref.offset % 64 == 0 for ref in _runs(taken))
    restored = taken.restored(Chain(objects, generation=2, names=("a", "b", "c")))
    assert [list(restored.rows(part)) for part in range(3)] == [["'key-0'"], [], ["'key-2'"]]


def test_deletions_that_are_not_told_yet_survive_a_compaction(objects: Objects) -> None:
    """Slots of deleted keys are taken back when most are such; the runs still have the keys."""
    chain = Chain(objects)
    chain.count(range(5_000))
    chain.take(1)
    chain.delete(range(4_990))
    before = chain.state[0].memory_bytes
    chain.count([7_777])
    rows = chain.take(2).restored(Chain(objects, generation=2)).rows()
    assert sorted(map(int, rows)) == [*range(4_990, 5_000), 7_777]
    chain.count([7_777])
    assert chain.state[0].memory_bytes < before, "told: their slots are gone"


def test_what_a_failed_item_changed_is_not_in_the_next_run(objects: Objects) -> None:
    """S2."""
    chain = Chain(objects)
    chain.count(range(10))
    chain.take(1)

    def fails() -> None:
        with chain.journal.item():
            chain.state[0].increment(chain.state[0].keys(chain.batch(pa.array(range(20)))))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    chain.take(2)
    assert len(objects.written) == 1


def test_a_run_is_uploaded_once_and_its_id_is_never_used_again(objects: Objects) -> None:
    """S6. Merges and rewritten objects give new runs, or the same bytes."""
    chain = Chain(objects)
    checksums: dict[str, str] = {}
    for checkpoint in range(1, 40):
        chain.count(np.arange(checkpoint * 7, checkpoint * 7 + 50) % 300)
        for ref in _runs(chain.take(checkpoint)):
            assert checksums.setdefault(ref.run, ref.checksum) == ref.checksum


@pytest.mark.parametrize("moves", ["window", "random"])
def test_checkpoints_of_one_hundredth_of_the_keys_write_a_twentieth_of_the_state(
    objects: Objects, moves: str
) -> None:
    """M7, at 20,000 keys: any 50 checkpoints in a row, merges counted."""
    keys, changed = 20_000, 200
    random = np.random.default_rng(7)
    chain = Chain(objects)
    for start in range(0, keys, 5_000):
        chain.count(np.arange(start, start + 5_000))
    chain.take(1)
    full = objects.written[0].size
    sizes: list[int] = []
    taken = Taken((), ())
    for checkpoint in range(2, 132):
        start = checkpoint * changed
        window = np.arange(start, start + changed) % keys
        chosen = window if moves == "window" else random.choice(keys, changed, replace=False)
        chain.count(chosen)
        before = len(objects.written)
        taken = chain.take(checkpoint)
        sizes.append(sum(ref.size for ref in objects.written[before:]))
        assert len(_runs(taken)) <= 32
    windows = [sum(sizes[at : at + 50]) for at in range(len(sizes) - 49)]
    assert max(windows) <= 50 * full * 5 // 100
    assert taken.restored(Chain(objects, generation=2)).held() == chain.held()


def test_a_base_merge_leaves_out_what_is_deleted_or_expired(objects: Objects) -> None:
    chain = Chain(objects, ttl_ms=1_000)
    chain.count(range(100))
    chain.take(1)
    chain.wall.ms += 600
    chain.count(range(50, 90))
    chain.delete(range(40))
    chain.take(2)
    chain.wall.ms += 600
    chain.count(range(200, 240))
    chain.take(3)
    last = chain.take(4)
    assert [ref.rows for ref in _runs(last)] == [80]
    rows = last.restored(Chain(objects, generation=2, ttl_ms=1_000, wall=chain.wall)).rows()
    assert sorted(map(int, rows)) == [*range(50, 90), *range(200, 240)]


def test_an_object_that_is_mostly_dead_is_written_anew(objects: Objects) -> None:
    """The small state's runs would keep the large one's bytes alive for ever."""
    chain = Chain(objects, names=("large", "small"))
    chain.count(range(5_000), part=0)
    chain.count(range(10), part=1)
    chain.take(1)
    chain.count(range(5_000), part=0)
    chain.take(2)
    chain.take(3)
    taken = chain.take(4)
    listed = {ref.object for ref in _runs(taken)}
    sizes = {ref.name: ref.size for ref in objects.written}
    live = {name: sum(r.length for r in _runs(taken) if r.object == name) for name in listed}
    assert objects.written[0].name not in listed
    assert all(2 * live[name] >= sizes[name] for name in listed)
    restored = taken.restored(Chain(objects, generation=2, names=("large", "small")))
    assert [restored.held(part) for part in (0, 1)] == [chain.held(part) for part in (0, 1)]


def test_a_merge_that_cannot_read_is_put_off_and_loses_nothing(objects: Objects) -> None:
    chain = Chain(objects)
    chain.count(range(10))
    chain.take(1)
    chain.count(range(9))
    chain.states.seal(CheckpointId(2))
    chain.states.upload(Epoch(chain.generation, CheckpointId(2)))
    objects.failures = 1
    chain.states.maintain()
    assert len(_runs(chain.take(3))) == 2
    assert len(_runs(chain.take(4))) == 1


def test_a_restored_run_counts_only_for_its_key_groups(objects: Objects) -> None:
    """S6: as when two chains share what one had; rows outside vanish at the next merge."""
    chain = Chain(objects)
    chain.count(range(200))
    taken = chain.take(1)

    def limited(first: int, last: int) -> Taken:
        state = taken.states[0]
        runs = [dataclasses.replace(r, first_group=first, last_group=last) for r in state.runs]
        return Taken((dataclasses.replace(state, runs=tuple(runs)),), taken.objects)

    low = limited(0, 63).restored(Chain(objects, generation=2))
    high = limited(64, 127).restored(Chain(objects, generation=3))
    assert low.rows() | high.rows() == chain.rows()
    assert not low.rows().keys() & high.rows().keys()
    assert low.state[0].live_keys == len(low.rows())
    low.count(range(200))
    low.take(2)
    merged = low.take(3)
    assert [ref.rows for ref in _runs(merged)] == [200]
    assert merged.restored(Chain(objects, generation=4)).held() == low.held()


def test_parts_of_one_run_come_together_again_and_none_is_lost_by_merges(objects: Objects) -> None:
    """K4: as when two chains had one run, and one chain has both of its parts now."""
    chain = Chain(objects)
    chain.count(range(200))
    chain.take(1)
    chain.count(range(20))
    taken = chain.take(2)

    def parts(first: int, last: int) -> tuple[RunRef, ...]:
        runs = taken.states[0].runs
        return tuple(dataclasses.replace(r, first_group=first, last_group=last) for r in runs)

    state = dataclasses.replace(taken.states[0], runs=parts(0, 63) + parts(64, 127))
    again = Taken((state,), taken.objects).restored(Chain(objects, generation=2))
    assert again.held() == chain.held()
    for checkpoint in range(3, 60):  # through merges of new runs, and of all
        again.count([checkpoint, 300 + checkpoint])
        told = again.take(checkpoint)
        other = told.restored(Chain(objects, generation=checkpoint))
        assert other.held() == again.held()


def test_two_snapshots_of_one_state_are_joined(objects: Objects) -> None:
    """As when one chain takes over from two: other key groups, another type ledger."""
    one, other = Chain(objects), Chain(objects, generation=2)
    one.count([1, 2])
    other.count([0.5, 2.5])
    first, second = one.take(1), other.take(1)
    both = Taken(first.states + second.states, first.objects + second.objects)
    rows = both.restored(Chain(objects, generation=3)).rows()
    assert sorted(rows) == ["0.5", "1.0", "2.0", "2.5"]


def test_a_run_alone_in_its_object_is_a_table_that_others_read(objects: Objects) -> None:
    chain = Chain(objects, fields=("value", "k"), ttl_ms=50)
    chain.count(["a", "b"], [1.5, 2.0])
    chain.take(1)
    table = ipc.open_file(pa.py_buffer(objects.held[objects.written[0].name])).read_all()
    names = ["group", "hash", "key_value", "k", "value", "deadline_ms", "deleted"]
    assert table.schema.names == names
    rows = {row["key_value"]: row for row in table.to_pylist()}
    assert (rows["a"]["k"], rows["a"]["value"], rows["a"]["deadline_ms"]) == (1.5, 1, 1_050)
    groups = [group or 0 for group in table["group"].to_pylist()]
    assert groups == sorted(groups)


def test_any_flipped_byte_of_an_object_is_told_or_harmless(objects: Objects) -> None:
    """M2: never another state than the one that was written."""
    chain = Chain(objects, names=("a", "b"))
    chain.count([f"key-{n}" for n in range(300)], part=0)
    chain.count(range(300), part=1)
    taken = chain.take(1)
    name, size = taken.objects[0].name, taken.objects[0].size
    whole = objects.held[name]
    random = np.random.default_rng(3).integers(0, size, 200).tolist()
    told = 0
    for place in {*range(64), *range(size - 64, size), *random}:
        broken = bytearray(whole)
        broken[place] ^= 0x10
        objects.held[name] = bytes(broken)
        other = Chain(objects, generation=2, names=("a", "b"))
        try:
            taken.restored(other)
        except CorruptObjectError as error:
            told += f"object '{name}'" in str(error)
        else:  # between two runs
            assert [other.held(part) for part in (0, 1)] == [chain.held(part) for part in (0, 1)]
    assert told > 300
    objects.held[name] = whole[:-1]
    with pytest.raises(CorruptObjectError, match=name):
        taken.restored(Chain(objects, generation=2, names=("a", "b")))


def test_an_object_that_a_merge_finds_corrupt_fails_the_next_upload(objects: Objects) -> None:
    chain = Chain(objects)
    chain.count(range(10))
    chain.take(1)
    name = objects.written[0].name
    objects.held[name] = objects.held[name][:-8] + b"xxxxxxxx"
    chain.count(range(10))
    chain.take(2)
    with pytest.raises(CorruptObjectError, match=name):
        chain.take(3)


def test_a_format_version_that_is_not_known_blocks_the_restore(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: said by the snapshot, or by the run alone; a registered migration opens the way."""
    chain = Chain(objects)
    chain.count(["a"])
    monkeypatch.setattr(run_format, "FORMAT_VERSION", 7)
    taken = chain.take(1)
    monkeypatch.undo()
    with pytest.raises(RestoreError, match=r"format version 7 .*knows 1; use the release"):
        taken.restored(Chain(objects, generation=2))
    newer = dataclasses.replace(taken.states[0], format_version=7)
    with pytest.raises(RestoreError, match=r"operator 'count'.* format version 7"):
        Taken((newer,), taken.objects).restored(Chain(objects, generation=2))
    old = {7: lambda batch, meta: (batch, {**meta, "format_version": 1})}
    monkeypatch.setattr(run_format, "MIGRATIONS", old)
    assert taken.restored(Chain(objects, generation=2)).held() == chain.held()


def test_a_state_with_other_keys_or_values_is_refused(objects: Objects) -> None:
    chain = Chain(objects)
    chain.count(["a"])
    taken = chain.take(1)
    with pytest.raises(RestoreError, match=r"operator 'count'.*keys of k, .*now keys by other"):
        taken.restored(Chain(objects, generation=2, fields=("other",)))
    with pytest.raises(RestoreError, match=r"values of type int64.*keeps string"):
        taken.restored(Chain(objects, generation=2, value_type=pa.string()))
    with pytest.raises(ProtocolError, match="which it does not have"):
        Chain(objects, generation=2).states.restore(taken.states)


def test_the_type_ledger_is_restored_even_when_no_entry_is_left(objects: Objects) -> None:
    """S10: a key column never changes its hash form inside a job."""
    chain = Chain(objects)
    chain.count(["a"])
    chain.delete(["a"])
    taken = chain.take(1)
    assert taken.states[0].key_types == ("string",)
    assert _runs(taken) == []
    assert taken.restored(Chain(objects, generation=2)).held() == chain.held()


def test_a_growing_count_of_runs_is_bounded_whatever_their_sizes() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        sizes = [100_000]
        for size in random.integers(1, 10 ** random.integers(1, 5), 300).tolist():
            sizes.append(size)
            while (due := merge_due(sizes)) is not None:
                sizes[slice(*due)] = [sum(sizes[slice(*due)])]
            assert len(sizes) <= 32
