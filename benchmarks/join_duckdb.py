"""Rows per CPU second of an interval join, beside DuckDB's batch join of the same rows.

    python benchmarks/join_duckdb.py --rows 2000000 --keys 100000 --runs 3

Each side has `--rows` rows of an integer key, a time and a value; times go on by 1 ms a row, out of
order by up to a second; the window gives each row one match on average. Ours is the operator alone,
in a transaction a batch as in the lane, without snapshots: batches of both sides in turn, and a
watermark behind each two. DuckDB has all rows at once, in Arrow tables, with one thread, and gives
Arrow out. It knows nothing of time, state or rows that come later: this is what a batch engine
needs for the same pairs. Runs alternate; medians and the median of the runs' ratios are printed and
written to benchmarks/results/.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import time

import duckdb
import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import EventTimeMs, OperatorId, WallMs
from arkflow_kernel.join.building import join_operator
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT
from arkflow_kernel.plan import (
    ComponentPlan,
    JoinPlan,
    JoinSidePlan,
    OperatorPlan,
    StatePlan,
)
from arkflow_kernel.state_journal import CommitOnAck

BOUND_MS = 1_000
RESULTS = pathlib.Path(__file__).parent / "results"


def side(rows: int, keys: int, seed: int) -> pa.Table:
    """The rows of a side, in order of arrival."""
    random = np.random.default_rng(seed)
    times = np.arange(rows) - random.integers(0, BOUND_MS, rows)
    columns = {
        "k": random.integers(0, keys, rows),
        "ts": times,
        "v": random.integers(0, 1_000_000, rows),
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def joined(left: pa.Table, right: pa.Table, window_ms: int, outer: bool) -> tuple[int, float]:
    """Rows that leave our operator, and CPU seconds."""
    sides = JoinSidePlan("l", "k", "ts", outer=outer), JoinSidePlan("r", "k", "ts")
    join = JoinPlan(*sides, window_ms=window_ms)
    state = StatePlan("bench", ("k", "k"), memory_bytes=None)
    plan = OperatorPlan(OperatorId("j"), "join", ComponentPlan("", {}), None, state, join=join)
    journal = CommitOnAck(lambda: WallMs(0))
    operator = join_operator(plan, journal)
    pairs = zip(
        left.to_batches(BATCH_ROWS_DEFAULT), right.to_batches(BATCH_ROWS_DEFAULT), strict=True
    )
    start, leaving, read = time.process_time(), 0, 0
    for batches in pairs:
        for edge, batch in zip(("l", "r"), batches, strict=True):
            with journal.item():
                for result in operator.process_edge(edge, batch):
                    leaving += sum(each.num_rows for each in result.batches)
        read += batches[0].num_rows
        with journal.item():
            for result in operator.advance(EventTimeMs(read - 2 * BOUND_MS)):
                leaving += sum(each.num_rows for each in result.batches)
    with journal.item():
        for result in operator.end():
            leaving += sum(each.num_rows for each in result.batches)
    return leaving, time.process_time() - start


def batch_joined(left: pa.Table, right: pa.Table, window_ms: int, outer: bool) -> tuple[int, float]:
    """The same of DuckDB; the tables are found by their names."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("lefts", left)
    connection.register("rights", right)
    kind = "LEFT JOIN" if outer else "JOIN"
    query = (
        "SELECT l.k AS l_k, l.ts AS l_ts, l.v AS l_v, r.k AS r_k, r.ts AS r_ts, r.v AS r_v, "
        f"CAST(l.k AS VARCHAR) AS join_key FROM lefts l {kind} rights r ON l.k = r.k "
        f"AND r.ts BETWEEN l.ts - {window_ms} AND l.ts + {window_ms}"
    )
    start = time.process_time()
    found = connection.sql(query).to_arrow_table()
    return found.num_rows, time.process_time() - start


def measured(rows: int, keys: int, runs: int, outer: bool) -> dict[str, float]:
    """Medians of both, in million rows of both sides per CPU second, and of the ratios."""
    left, right = side(rows, keys, 1), side(rows, keys, 2)
    window_ms = keys // 2  # a key has a row in `keys` ms
    ours, peers = [], []
    for _ in range(runs):
        found, cpu_s = joined(left, right, window_ms, outer)
        due, peer_s = batch_joined(left, right, window_ms, outer)
        assert found == due, f"{found} rows left and {due} are due"
        ours.append(2 * rows / cpu_s / 1e6)
        peers.append(2 * rows / peer_s / 1e6)
    ratios = [mine / other for mine, other in zip(ours, peers, strict=True)]
    return {
        "rows_out": found,
        "million_rows_per_cpu_s": round(statistics.median(ours), 3),
        "duckdb_million_rows_per_cpu_s": round(statistics.median(peers), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_least": round(min(ratios), 3),
        "ratio_greatest": round(max(ratios), 3),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    pa.set_cpu_count(1)
    found = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows_of_a_side": given.rows,
        "keys": given.keys,
        "runs": given.runs,
        "duckdb": duckdb.__version__,
    }
    found["inner"] = measured(given.rows, given.keys, given.runs, outer=False)
    found["left_outer"] = measured(given.rows, given.keys, given.runs, outer=True)
    text = json.dumps(found, indent=2)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "join_duckdb.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
