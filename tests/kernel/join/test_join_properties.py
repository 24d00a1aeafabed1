"""Cuts, interleavings, restarts and parallelism play no part in what leaves a join (J1-J3, W9).

`ARKFLOW_SEEDS=300 pytest tests/kernel/join` plays more cases.
"""

import pathlib

import pytest

from tests.kernel.join.join_line import JoinLine
from tests.kernel.join.join_oracle import all_small, expected, proved, random_case
from tests.simulation.seeds import in_chunks


@in_chunks(15, chunk=5)
def test_any_interleaving_with_any_restarts_gives_the_pairs_of_a_loop(seeds: list[int]) -> None:
    for seed in seeds:
        case = random_case(seed)
        proved(case, JoinLine(case.plan), expected(case))


@in_chunks(10, kept=(231,), chunk=5)
def test_so_do_small_parts_small_runs_and_rows_in_files(
    seeds: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few rows are merged, renumbered, spilled and written apart, as millions are."""
    all_small(monkeypatch)
    for seed in seeds:
        case = random_case(1_000 + seed)
        proved(case, JoinLine(case.plan, spool=tmp_path, memory_bytes=2_000), expected(case))
