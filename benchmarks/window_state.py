"""What the state of a window costs: adding rows, a seal, a run, and firing beyond its memory.

    python benchmarks/window_state.py --rows 5000000 --runs 3
    python benchmarks/window_state.py --spill 10000000

Rows are counted, summed and their least and greatest value taken by key, in panes that fill one
after the other. Added: `--rows` rows in batches of 8,192, then all panes are read; CPU time beside
that of one grouping of the same rows by pyarrow, medians of alternating runs. Seal: wall time in
the lane with a million keys that all changed, and the CPU time of the upload lane for their run.
Spilled: `--spill` keys in one pane with 128 MiB of memory; wall time and the highest RSS of this
process, which does nothing else. Printed as JSON and written to benchmarks/results/.
"""

import argparse
import datetime
import json
import pathlib
import resource
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT, MIB
from arkflow_kernel.plan import AggregatePlan, WindowKind, WindowPlan
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.window.aggregates import PANES, Aggregates
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_sides import RawRows

FUNCTIONS = ("count", "sum", "min", "max")
KEYS = (1_000, 100_000, 1_000_000)
PANE_ROWS = 1_000_000
PANE_MS = 60_000
SPILL_BYTES = 128 * MIB


class Window:
    """The panes of one operator, with a journal."""

    def __init__(self, memory_bytes: int | None = None, spool: pathlib.Path | None = None) -> None:
        functions = tuple(AggregatePlan(name, "v", name) for name in FUNCTIONS)
        plan = WindowPlan(WindowKind.TUMBLING, "ts", PANE_MS, PANE_MS, aggregates=functions)
        operator = OperatorId("w")
        self.aggregates = Aggregates(plan, operator)
        self.ledger = KeyLedger(("k",), operator)
        self.journal = CommitOnAck(lambda: WallMs(0))
        address = StateAddress("windows", operator, PANES)
        (family,) = self.aggregates.families
        self.runs = PaneRuns(family, self.ledger, address, self.journal, memory_bytes=memory_bytes)
        self.journal.joined(self.runs)
        if spool is not None:
            self.runs.spill_to(lambda: spool, "w")

    def add(self, batch: pa.RecordBatch) -> None:
        """One item."""
        with self.journal.item():
            columns = {"pane": batch.column("pane"), **self.ledger.columns(batch)}
            self.runs.add(RawRows.of({**columns, **self.aggregates.raw(batch)}))

    def read(self) -> int:
        """Read everything, part by part; rows."""
        rows = 0
        with self.journal.item():
            for pane in self.runs.panes().tolist():
                parts = self.runs.parts(pane, pane + 1)
                for part in range(parts):
                    table = self.runs.rows(pane, pane + 1, part, parts, ["pane", "key0"])
                    rows += table.num_rows
        return rows


def keys_of(kind: str, numbers: "np.ndarray[Any, Any]") -> "pa.Array[Any]":
    """Keys of these numbers."""
    made: pa.Array[Any] = pa.array(numbers * 1_003)
    if kind == "string":
        made = pa.array([f"sensor-{n:07d}" for n in numbers.tolist()])
    return made


def rows_of(kind: str, rows: int, keys: int) -> pa.RecordBatch:
    """All rows; a pane after the other."""
    random = np.random.default_rng(keys)
    names = keys_of(kind, random.permutation(keys))
    drawn: Any = pa.array(random.integers(0, keys, rows))
    return pa.record_batch(
        {
            "pane": pa.array(np.arange(rows) // PANE_ROWS * PANE_MS),
            "k": names.take(drawn),
            "v": pa.array(random.integers(1, 100_000, rows)),
        }
    )


def added(kind: str, rows: int, keys: int, runs: int) -> dict[str, object]:
    """CPU time of adding and reading, beside one grouping."""
    table = rows_of(kind, rows, keys)
    adds, reads, groups, ratios = [], [], [], []
    for _ in range(runs):
        window = Window()
        start = time.process_time()
        for at in range(0, rows, BATCH_ROWS_DEFAULT):
            window.add(table.slice(at, BATCH_ROWS_DEFAULT))
        adds.append(time.process_time() - start)
        start = time.process_time()
        found = window.read()
        reads.append(time.process_time() - start)
        start = time.process_time()
        grouped = pa.TableGroupBy(pa.table(table), ["pane", "k"], use_threads=False).aggregate(
            [("v", "count"), ("v", "sum"), ("v", "min"), ("v", "max")]
        )
        groups.append(time.process_time() - start)
        assert found == grouped.num_rows
        ratios.append(groups[-1] / (adds[-1] + reads[-1]))
    return {
        "type": kind,
        "keys": keys,
        "rows": rows,
        "add_cpu_s": round(statistics.median(adds), 2),
        "read_cpu_s": round(statistics.median(reads), 2),
        "one_grouping_cpu_s": round(statistics.median(groups), 2),
        "rows_per_cpu_s_added": round(rows / statistics.median(adds)),
        "of_one_grouping": round(statistics.median(ratios), 2),
    }


def sealed(kind: str, keys: int, runs: int) -> dict[str, object]:
    """Pauses of a seal in the lane, and the upload lane's work."""
    pauses, cpus, size = [], [], 0
    table = rows_of(kind, keys, keys).set_column(
        1, "k", keys_of(kind, np.random.default_rng(1).permutation(keys))
    )
    for _ in range(runs):
        window = Window()
        window.runs.track()
        for at in range(0, keys, BATCH_ROWS_DEFAULT):
            window.add(table.slice(at, BATCH_ROWS_DEFAULT))
        start = time.perf_counter()
        cut = window.runs.seal()
        pauses.append((time.perf_counter() - start) * 1e3)
        start = time.process_time()
        made = list(window.runs.written([cut]))
        cpus.append(time.process_time() - start)
        assert sum(run.num_rows for run in made) == keys
        size = sum(run.nbytes for run in made)
    return {
        "type": kind,
        "keys": keys,
        "seal_ms_max": round(max(pauses), 2),
        "written_cpu_s": round(statistics.median(cpus), 2),
        "run_bytes": size,
    }


def spilled(keys: int) -> dict[str, object]:
    """All keys, twice over, in one pane that does not fit."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as folder:
        window = Window(SPILL_BYTES, pathlib.Path(folder))
        start, cpu = time.perf_counter(), time.process_time()
        for turn in range(2):
            for at in range(0, keys, BATCH_ROWS_DEFAULT):
                numbers = (np.arange(at, min(at + BATCH_ROWS_DEFAULT, keys)) * 7_919) % keys
                panes = pa.array(np.zeros(len(numbers), np.int64))
                columns = {"pane": panes, "k": pa.array(numbers), "v": pa.array(numbers + turn)}
                window.add(pa.record_batch(columns))
        filled, filled_cpu = time.perf_counter() - start, time.process_time() - cpu
        start, cpu = time.perf_counter(), time.process_time()
        found = window.read()
        fired, fired_cpu = time.perf_counter() - start, time.process_time() - cpu
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert found == keys
    return {
        "keys": keys,
        "rows": 2 * keys,
        "memory_mib": SPILL_BYTES // MIB,
        "fill_wall_s": round(filled, 1),
        "fill_cpu_s": round(filled_cpu, 1),
        "fire_wall_s": round(fired, 1),
        "fire_cpu_s": round(fired_cpu, 1),
        "rss_mib_before": before,
        "rss_mib_highest": highest,
    }


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--spill", type=int, default=0, help="keys; only this is measured then")
    parser.add_argument("--types", nargs="+", default=["int64", "string"])
    arguments = parser.parse_args()
    results: dict[str, object] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    name = "window_state.json"
    if arguments.spill:
        name = "window_state_spill.json"
        results["spilled"] = spilled(arguments.spill)
    else:
        kinds, runs = arguments.types, arguments.runs
        results["added"] = [added(k, arguments.rows, n, runs) for k in kinds for n in KEYS]
        results["sealed"] = [sealed(kind, 1_000_000, runs) for kind in kinds]
    text = json.dumps(results, indent=2)
    print(text)
    out = pathlib.Path(__file__).parent / "results" / name
    out.parent.mkdir(exist_ok=True)
    out.write_text(text + "\n")


if __name__ == "__main__":
    main()
