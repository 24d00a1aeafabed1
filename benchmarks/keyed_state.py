"""Rows per CPU second of the running count of a key, beside a loop over a dict of Python ints.

    python benchmarks/keyed_state.py --batches 200 --runs 3

Batches have 8,192 rows whose keys are drawn evenly from 1,000, 100,000 or 1,000,000 that are all
known already: the steady state. `fill` is the rate at which that many new keys come in, in batches
of as many. The dict's loop also takes Arrow in and gives Arrow out. Runs alternate; medians, and
the median of the runs' ratios, are printed and written to benchmarks/results/.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck

KEYS = (1_000, 100_000, 1_000_000)


class Ours:
    """A state in a transaction a batch, as the lane uses it."""

    def __init__(self) -> None:
        self.journal = CommitOnAck(lambda: WallMs(0))
        address = StateAddress("default", OperatorId("op"), "count")
        self.state = MemoryState(address, ("k",), pa.int64(), self.journal)
        self.journal.joined(self.state)

    def __call__(self, batch: pa.RecordBatch) -> AnyArray:
        """Counts of a batch's rows."""
        with self.journal.item():
            return self.state.increment(self.state.keys(batch))


class Peer:
    """A dict of Python ints."""

    def __init__(self) -> None:
        self.counts: dict[object, int] = {}

    def __call__(self, batch: pa.RecordBatch) -> AnyArray:
        """Counts of a batch's rows."""
        counts, told = self.counts, []
        for key in batch.column(0).to_pylist():
            counts[key] = count = counts.get(key, 0) + 1
            told.append(count)
        return pa.array(told, pa.int64())


def batches_of(kind: str, keys: int, batches: int) -> tuple[list[pa.RecordBatch], ...]:
    """Batches that bring every key once, and batches of keys drawn evenly."""
    random = np.random.default_rng(keys)
    names = random.permutation(keys) * 1_000_003

    def batch(numbers: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.RecordBatch:
        if kind == "int64":
            return pa.record_batch({"k": pa.array(names[numbers])})
        return pa.record_batch({"k": pa.array([f"sensor-{n:013d}" for n in names[numbers]])})

    rows = BATCH_ROWS_DEFAULT
    fill = [batch(np.arange(at, min(at + rows, keys))) for at in range(0, keys, rows)]
    return fill, [batch(random.integers(0, keys, rows)) for _ in range(batches)]


def rate(count: Callable[[pa.RecordBatch], AnyArray], batches: Iterable[pa.RecordBatch]) -> float:
    """Million rows per CPU second."""
    start, rows = time.process_time(), 0
    for batch in batches:
        rows += len(count(batch))
    return rows / (time.process_time() - start) / 1e6


def measured(kind: str, keys: int, batches: int, runs: int) -> dict[str, object]:
    """Medians of several runs, each with structures of its own, compared batch by batch once."""
    fill, steady = batches_of(kind, keys, batches)
    found: list[tuple[float, float, float]] = []
    memory = 0
    for _ in range(runs):
        ours, peer = Ours(), Peer()
        filled = rate(ours, fill)
        rate(peer, fill)
        found.append((filled, rate(ours, steady), rate(peer, steady)))
        assert ours(steady[0]).equals(peer(steady[0]))
        memory = ours.state.memory_bytes
    return {
        "keys": keys,
        "type": kind,
        "fill_m_rows_per_cpu_s": round(statistics.median(f for f, _, _ in found), 2),
        "m_rows_per_cpu_s": round(statistics.median(o for _, o, _ in found), 2),
        "dict_m_rows_per_cpu_s": round(statistics.median(p for _, _, p in found), 2),
        "ratio": round(statistics.median(o / p for _, o, p in found), 2),
        "bytes_per_key": round(memory / keys),
    }


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    results = []
    for kind in ("int64", "string"):
        for keys in KEYS:
            result = measured(kind, keys, arguments.batches, arguments.runs)
            results.append(result)
            print(
                f"{kind:7s} {keys:9,d} keys  {result['m_rows_per_cpu_s']:5.2f} M rows/CPU s"
                f"  dict {result['dict_m_rows_per_cpu_s']:5.2f}  ratio {result['ratio']:5.2f}"
                f"  fill {result['fill_m_rows_per_cpu_s']:5.2f}  {result['bytes_per_key']} B/key",
                flush=True,
            )
    out = pathlib.Path(__file__).parent / "results" / "keyed_state.json"
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    out.write_text(json.dumps({"date": day, "cases": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
