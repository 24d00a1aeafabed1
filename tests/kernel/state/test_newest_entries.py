"""Which entry of a key is the newest of many runs: one answer, however it is found (S6)."""

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.state import sorted_run
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.state.key_form import canonical, combined_hashes
from arkflow_kernel.state.run_format import RunOwner
from arkflow_kernel.state.run_rows import RunRows
from arkflow_kernel.state.sorted_run import SortedRun, live_rows, merged, newest

OWNER = RunOwner("ns", "op", "count", ("k",), pa.int64())


def run(keys: list[str | None], value: int, *, alike: bool = False) -> SortedRun:
    """A run with these keys; of those that begin with `-` a tombstone. `alike`: of one hash."""
    names = [None if key is None else key.removeprefix("-") for key in keys]
    part = canonical(pa.array(names, pa.string()))
    hashes = combined_hashes((part,))
    groups = (hashes % np.uint64(5)).astype(np.int32)
    if alike:
        hashes, groups = np.zeros_like(hashes), np.zeros_like(groups)
    deleted = np.array([key is not None and key.startswith("-") for key in keys])
    values = pa.array([value] * len(keys), pa.int64())
    return SortedRun.of(
        RunRows((pa.string(),), groups, hashes, (part,), values, None, deleted), OWNER
    )


def random_runs(seed: int, count: int) -> list[SortedRun]:
    dice = np.random.default_rng(seed)
    runs = []
    for value in range(count):
        drawn = dice.choice(200, int(dice.integers(1, 60)), replace=False)
        runs.append(run([f"{'-' if dice.random() < 0.2 else ''}k{key}" for key in drawn], value))
    return runs


def found(masks: list[Mask]) -> list[list[bool]]:
    return [mask.tolist() for mask in masks]


@pytest.mark.parametrize("seed", range(30))
def test_sorting_and_searching_find_the_same_newest_entries(seed: int) -> None:
    runs = random_runs(seed, count=1 + seed % 9)
    sorting = sorted_run._by_sorting(runs)
    assert sorting is not None
    assert found(sorting) == found(sorted_run._by_search(runs)) == found(newest(runs))


def test_different_keys_of_one_hash_are_told_apart() -> None:
    runs = [run(["a", "b", None], 0, alike=True), *(run(["b", "c"], n, alike=True) for n in (1, 2))]
    assert sorted_run._by_sorting(runs) is None
    masks = newest(runs)
    assert [int(mask.sum()) for mask in masks] == [2, 0, 2]


def test_the_live_entries_are_the_newest_without_those_that_were_deleted() -> None:
    runs = [run(["a", "b", "c", None], 0), run(["-b", "c"], 1), run(["b", "-a"], 2)]
    live = {
        (key, value)
        for rows in live_rows(runs)
        for key, value in zip(rows.parts[0].data or (), rows.values.to_pylist(), strict=True)
    }
    told = {(None if key is None else key.as_py(), value) for key, value in live}
    assert told == {(b"", 0), (b"c", 1), (b"b", 2)}, "the null has no bytes"
    assert len(merged(runs, keep_deleted=False)) == 3


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "", None, "b" * 200]),
        pa.array([b"\x00", None], pa.binary()),
        pa.array([1, None, 7], pa.decimal128(20, 2)),
    ],
    ids=["text", "binary", "decimals"],
)
def test_keys_that_come_out_of_a_run_are_those_that_went_in(values: AnyArray) -> None:
    """Bytes are not hashed again: their words follow from the hashes of the run."""
    part = canonical(values)
    again = canonical(values, combined_hashes((part,)))
    assert again.words.tolist() == part.words.tolist()
    assert again.tags.tolist() == part.tags.tolist()
