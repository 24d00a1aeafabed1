"""CPU seconds of the window operator alone, beside one grouping of the whole input by pyarrow.

    python benchmarks/window_operator.py --rows 5000000 --runs 3

Bids come in order, 10,000 a second, in batches of 8,192 rows (`--batch-rows`), and are counted,
summed and their maximum taken per key in tumbling windows of 10 seconds; the watermark rises behind
each batch. The keys are drawn evenly from 1,000, 100,000 or 1,000,000. The peer groups the same
columns, all rows at once, by window and key. Runs alternate; medians, and the median of the runs'
ratios, are printed and written to benchmarks/results/.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.ids import EventTimeMs, OperatorId, WallMs
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT
from arkflow_kernel.plan import (
    AggregatePlan,
    ComponentPlan,
    OperatorPlan,
    StatePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.window.building import window_operator

KEYS = (1_000, 100_000, 1_000_000)
SIZE_MS, ROWS_PER_MS = 10_000, 10
START_MS = 1_760_000_000_000

AGGREGATES = (
    AggregatePlan("count", None, "bids"),
    AggregatePlan("sum", "price", "total"),
    AggregatePlan("max", "price", "highest"),
)


def bids(rows: int, keys: int) -> pa.RecordBatch:
    """All rows, in order of time."""
    random = np.random.default_rng(keys)
    names = random.permutation(keys) * 1_003
    return pa.record_batch(
        {
            "auction": pa.array(names[random.integers(0, keys, rows)]),
            "price": pa.array(random.integers(1, 100_000, rows)),
            "ts": pa.array(START_MS + np.arange(rows) // ROWS_PER_MS),
        }
    )


def ours(table: pa.RecordBatch, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """What the operator yields: a transaction a batch, one a piece of a firing."""
    journal = CommitOnAck(lambda: WallMs(0))
    window = WindowPlan(
        WindowKind.TUMBLING,
        "ts",
        size_ms=SIZE_MS,
        slide_ms=SIZE_MS,
        aggregates=AGGREGATES,
        plain=False,
    )
    state = StatePlan("windows", ("auction",))
    plan = OperatorPlan(
        OperatorId("w"), "window", ComponentPlan("", {}), state=state, window=window
    )
    operator = window_operator(plan, journal)

    def drained(results: Iterator[OperatorResult]) -> Iterator[pa.RecordBatch]:
        while True:
            with journal.item():
                result = next(results, None)
            if result is None:
                return
            yield from result.batches

    for at in range(0, table.num_rows, batch_rows):
        batch = table.slice(at, batch_rows)
        with journal.item():
            yield from operator.process(batch, NOWHERE).batches
        newest = batch.column("ts")[batch.num_rows - 1].as_py()
        yield from drained(operator.advance(EventTimeMs(newest)))
    yield from drained(operator.end())


def peer(table: pa.RecordBatch) -> pa.Table:
    """One grouping."""
    times = np.asarray(table.column("ts"))
    whole = pa.table(
        {
            "window": pa.array(times - times % SIZE_MS),
            "auction": table.column("auction"),
            "price": table.column("price"),
        }
    )
    grouped = whole.group_by(["window", "auction"], use_threads=False)
    return grouped.aggregate([([], "count_all"), ("price", "sum"), ("price", "max")])


def run(table: pa.RecordBatch, batch_rows: int) -> tuple[float, float, tuple[list[int], list[int]]]:
    """CPU seconds of both, and both answers as sums: rows, bids, prices, highest prices."""
    start = time.process_time()
    batches = list(ours(table, batch_rows))
    middle = time.process_time()
    grouped = peer(table)
    end = time.process_time()
    results = pa.Table.from_batches(batches)
    told = [_total(results, name) for name in ("bids", "total", "highest")]
    known = [_total(grouped, name) for name in ("count_all", "price_sum", "price_max")]
    answers = [results.num_rows, *told], [grouped.num_rows, *known]
    return middle - start, end - middle, answers


def _total(table: pa.Table, name: str) -> int:
    total: int = pc.sum(table.column(name)).as_py()
    return total


def measured(rows: int, keys: int, runs: int, batch_rows: int) -> dict[str, object]:
    """Medians of several runs."""
    table = bids(rows, keys)
    found: list[tuple[float, float]] = []
    for _ in range(runs):
        mine, theirs, answers = run(table, batch_rows)
        assert answers[0] == answers[1], answers
        found.append((mine, theirs))
    return {
        "keys": keys,
        "m_rows_per_cpu_s": round(statistics.median(rows / o / 1e6 for o, _ in found), 2),
        "pyarrow_m_rows_per_cpu_s": round(statistics.median(rows / p / 1e6 for _, p in found), 2),
        "ratio": round(statistics.median(p / o for o, p in found), 3),
    }


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch-rows", type=int, default=BATCH_ROWS_DEFAULT)
    parser.add_argument("--keys", type=int, nargs="*", default=list(KEYS))
    arguments = parser.parse_args()
    results = []
    for keys in arguments.keys:
        result = measured(arguments.rows, keys, arguments.runs, arguments.batch_rows)
        results.append(result)
        print(
            f"{keys:9,d} keys  {result['m_rows_per_cpu_s']:6.2f} M rows/CPU s"
            f"  pyarrow {result['pyarrow_m_rows_per_cpu_s']:6.2f}  ratio {result['ratio']:5.3f}",
            flush=True,
        )
    if tuple(arguments.keys) == KEYS:
        out = pathlib.Path(__file__).parent / "results" / "window_operator.json"
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        told = {
            "date": day,
            "rows": arguments.rows,
            "batch_rows": arguments.batch_rows,
            "cases": results,
        }
        out.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
