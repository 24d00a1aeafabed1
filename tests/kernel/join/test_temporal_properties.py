"""Cuts, interleavings, restarts and parallelism play no part in what leaves a temporal join (J9,
J10, W9).

`ARKFLOW_SEEDS=300 pytest tests/kernel/join` plays more cases.
"""

import pathlib
import random

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.join import version_state
from arkflow_kernel.join.join_runs import arranged
from arkflow_kernel.join.version_index import VersionIndex, needless
from tests.kernel.join.join_line import JoinLine
from tests.kernel.join.join_oracle import all_small, proved
from tests.kernel.join.temporal_oracle import expected, random_case
from tests.simulation.seeds import in_chunks


@in_chunks(15, chunk=5)
def test_any_interleaving_with_any_restarts_gives_the_versions_of_a_loop(seeds: list[int]) -> None:
    for seed in seeds:
        case = random_case(seed)
        proved(case, JoinLine(case.plan), expected(case))


@in_chunks(10, chunk=5)
def test_so_do_small_parts_small_runs_and_rows_in_files(
    seeds: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few rows are merged, swept, renumbered, spilled and written apart, as millions are."""
    all_small(monkeypatch)
    monkeypatch.setattr(version_state, "_SWEPT_ROWS_MIN", 4)
    for seed in seeds:
        case = random_case(1_000 + seed)
        proved(case, JoinLine(case.plan, spool=tmp_path, memory_bytes=2_000), expected(case))


@pytest.mark.parametrize("seed", range(20))
def test_exactly_what_no_row_can_need_any_more_is_needless(seed: int) -> None:
    """A version is needless if at every time from the low mark on it is not the answer."""
    dice = random.Random(seed)
    low, ttl = dice.randint(0, 20), dice.choice([None, 6])
    versions = [
        (dice.randint(1, 2), ts, n, max(ts, dice.randint(0, 25)))
        for n in range(dice.randint(1, 12))
        for ts in [dice.randint(0, 20)]
    ]
    keys, times, numbers, since = (np.array(column) for column in zip(*versions, strict=True))
    needed = set()
    for key in (1, 2):
        for time in range(low, 60):
            valid = [(ts, n) for k, ts, n, begin in versions if k == key and begin <= time]
            if valid and (ttl is None or time - max(valid)[0] <= ttl):
                needed.add(max(valid)[1])
    gone = needless(keys, since, times, numbers, low, ttl)
    kept = {n for _, _, n, _ in versions} - set(numbers[gone].tolist())
    assert needed <= kept
    if ttl is None:
        assert kept == needed


@pytest.mark.parametrize("cut", [None, 4])
def test_in_a_run_of_any_order_the_last_to_come_of_one_time_counts(cut: int | None) -> None:
    numbers = np.array([3, 9, 1, 7])
    count = len(numbers)
    rows = pa.record_batch({"n": numbers})
    same = np.ones(count, np.int64)
    cuts = None if cut is None else np.full(count, cut)
    run = arranged(rows, same, 2 * same, numbers, cuts, None, None)
    (place,) = VersionIndex.of(run).last(same[:1], np.array([6])).tolist()
    assert run.numbers[place] == 9
