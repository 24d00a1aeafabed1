"""Cuts, interleavings, restarts and parallelism play no part in what leaves a join (J1-J3, W9).

`ARKFLOW_SEEDS=300 pytest tests/kernel/join` plays more cases.
"""

import pathlib

import pytest

from arkflow_kernel.join import join_keys, join_output, side_rows, side_state
from arkflow_kernel.plan import LatePolicy
from tests.kernel.join.join_line import JoinLine, canonical
from tests.kernel.join.join_oracle import Case, expected, played, random_case
from tests.simulation.seeds import in_chunks


def proved(case: Case, line: JoinLine) -> None:
    """Play a case and compare with the loop."""
    wanted, late = expected(case)
    found = played(case, line)
    assert canonical(found) == canonical(wanted)
    assert line.totals.late_rows == late
    routed = sum(batch.num_rows for batch in line.totals.routed)
    assert routed == (late if case.plan.late is LatePolicy.ROUTE else 0)
    assert line.totals.evicted == 0


@in_chunks(15, chunk=5)
def test_any_interleaving_with_any_restarts_gives_the_pairs_of_a_loop(seeds: list[int]) -> None:
    for seed in seeds:
        case = random_case(seed)
        proved(case, JoinLine(case.plan))


@in_chunks(10, kept=(231,), chunk=5)
def test_so_do_small_parts_small_runs_and_rows_in_files(
    seeds: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few rows are merged, renumbered, spilled and written apart, as millions are."""
    monkeypatch.setattr(join_output, "PART_ROWS_MAX", 3)
    monkeypatch.setattr(join_output, "_PART_ROWS_MIN", 1)
    monkeypatch.setattr(side_rows, "_COMPACT_ROWS_MIN", 4)
    monkeypatch.setattr(side_rows, "MERGED_AT_ONCE", 2)
    monkeypatch.setattr(join_keys, "_COMPACT_KEYS_MIN", 4)
    monkeypatch.setattr(side_state, "RUN_BYTES", 200)
    for seed in seeds:
        case = random_case(1_000 + seed)
        proved(case, JoinLine(case.plan, spool=tmp_path, memory_bytes=2_000))
