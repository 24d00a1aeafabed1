"""Entries beyond the memory budget lie in local files, and nothing else changes (S4, S5, S7)."""

from pathlib import Path

import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError, ResourceError
from tests.kernel.state.snapshot_bench import Chain, Objects

KEYS = 20_000


def _range(start: int, end: int) -> "pa.Int64Array":
    return pa.array(range(start, end), pa.int64())


def test_a_state_keeps_to_its_memory_and_drops_nothing(tmp_path: Path) -> None:
    budget = 600_000
    chain = Chain(Objects(tmp_path), memory_bytes=budget)
    whole = Chain(None)
    for start in range(0, KEYS, 1_000):
        keys = [f"key-{n:010d}" for n in range(start, start + 1_000)]
        assert chain.count(keys) == whole.count(keys)
        assert chain.state[0].memory_bytes <= budget
    assert whole.state[0].memory_bytes > 2 * budget
    assert chain.held() == whole.held()
    assert chain.count([f"key-{n:010d}" for n in range(0, KEYS, 7)]) == [2] * len(range(0, KEYS, 7))


def test_spilled_files_have_no_name_that_could_be_left_behind(tmp_path: Path) -> None:
    chain = Chain(Objects(tmp_path), memory_bytes=1)
    chain.count(range(100))
    assert chain.count(range(100)) == [2] * 100
    assert list(tmp_path.iterdir()) == []


def test_a_chain_in_ack_mode_spills_when_it_is_given_a_folder(tmp_path: Path) -> None:
    chain = Chain(None, memory_bytes=1, spool=tmp_path / "new")
    for _ in range(3):
        chain.count(range(100))
        assert chain.state[0].memory_bytes < 100_000
    chain.delete(range(50))
    assert chain.count(range(100)) == [1] * 50 + [4] * 50


def test_a_budget_of_bytes_counts_spilled_entries_exactly(tmp_path: Path) -> None:
    """S4: reaching it succeeds, passing it fails and applies nothing."""
    chain = Chain(Objects(tmp_path), memory_bytes=1, max_bytes=17 * 100)
    chain.count(range(100))
    assert (chain.state[0].live_keys, chain.state[0].live_bytes) == (100, 1_700)
    with pytest.raises(ProcessingError, match="1717 bytes of the `max_bytes: 1700`"):
        chain.count([100])
    assert chain.count(range(100)) == [2] * 100
    chain.delete([3])
    assert chain.count([100]) == [1]


def test_expired_entries_in_files_make_room_before_the_budget_fails(tmp_path: Path) -> None:
    """S4, S7."""
    chain = Chain(Objects(tmp_path), memory_bytes=1, max_bytes=17 * 100, ttl_ms=1_000)
    chain.count(range(50))
    chain.wall.ms += 240  # no sweep yet when they expire
    chain.count(range(50, 100))
    chain.wall.ms += 770
    chain.count([50, 200])
    assert chain.state[0].live_bytes == 17 * 51
    assert sorted(map(int, chain.rows())) == [*range(50, 100), 200]


def test_a_sweep_forgets_expired_entries_in_files(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    chain = Chain(objects, memory_bytes=1, ttl_ms=1_000)
    chain.count(range(100))
    chain.take(1)
    chain.wall.ms += 1_100
    chain.count([7])
    assert (chain.state[0].live_keys, chain.state[0].live_bytes) == (1, 17)
    restored = chain.take(2).restored(Chain(objects, generation=2, ttl_ms=1_000))
    assert list(restored.rows()) == ["7"]


def test_a_state_larger_than_its_memory_is_restored_into_files(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    chain = Chain(objects)
    chain.count(range(KEYS))
    chain.delete(range(0, KEYS, 2))
    chain.take(1)
    chain.count(range(0, KEYS, 4))
    taken = chain.take(2)
    small = taken.restored(Chain(objects, generation=2, memory_bytes=100_000))
    assert small.state[0].memory_bytes < 100_000
    assert small.held() == chain.held()
    assert small.count(range(100)) == chain.count(range(100))
    small.delete(range(0, KEYS, 4))
    chain.delete(range(0, KEYS, 4))
    whole = small.take(3).restored(Chain(objects, generation=3))
    assert whole.held() == chain.held()


def test_an_item_that_fails_after_it_read_files_leaves_nothing(tmp_path: Path) -> None:
    """S2."""
    chain = Chain(Objects(tmp_path), memory_bytes=1)
    chain.count(range(10))
    held = chain.held()

    def fails() -> None:
        with chain.journal.item():
            state = chain.state[0]
            state.increment(state.keys(chain.batch(_range(0, 5))))
            state.get(state.keys(chain.batch(_range(3, 9))))
            state.delete(state.keys(chain.batch(_range(4, 12))))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert chain.held() == held
    assert chain.count(range(12)) == [2] * 10 + [1, 1]


def test_a_disk_that_takes_nothing_more_is_told_with_the_operator(tmp_path: Path) -> None:
    chain = Chain(Objects(tmp_path / "spool"), memory_bytes=1)
    chain.count([1])
    (tmp_path / "spool").rmdir()
    with pytest.raises(ResourceError, match=r"operator 'count'.*`memory_bytes`.*spool.*free space"):
        chain.count([2])
