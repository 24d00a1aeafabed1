"""A window of ten million keys in 128 MB: what is spilled, what its actor needs, what it says.

    python benchmarks/window_memory.py --keys 10000000

A parquet file has every key twice, in random order, all in one window; count, sum, least and
greatest value per key go to parquet files when the data end. On Ray, the window in an actor of its
own with `state: {memory_bytes: ...}`. Printed: bytes of the local files that the actor holds open
at most, its peak resident memory, rows per CPU second; every result row is checked.
"""

import argparse
import datetime
import json
import os
import pathlib
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GOAL_RSS_MB = 700
GROUP_ROWS = 65_536
SIZE_MS = 3_600_000
POLL_S = 0.2
NAMES = ("k", "count", "sum", "min", "max")
SPILLED = ".spill"
"""How the names of local files of spilled entries end."""


def generate(path: pathlib.Path, keys: int, seed: int = 7) -> None:
    """Write the rows `k`, `v`, `ts`: the values of key k are 2 k and 2 k + 1."""
    dice = np.random.default_rng(seed)
    names = ("k", "v", "ts")
    fields: list[pa.Field[Any]] = [pa.field(name, pa.int64()) for name in names]
    with pq.ParquetWriter(path, pa.schema(fields)) as out:
        for occurrence in (0, 1):
            order = dice.permutation(keys)
            for start in range(0, keys, GROUP_ROWS):
                key = order[start : start + GROUP_ROWS]
                ts = np.arange(start, start + len(key)) * (SIZE_MS // 2) // keys
                columns = [key, 2 * key + occurrence, ts]
                out.write_table(pa.table([pa.array(c) for c in columns], names=list(names)))


def pipeline(
    source: pathlib.Path, folder: pathlib.Path, memory_bytes: int, interval_ms: int
) -> dict[str, Any]:
    """The job."""
    totals = {
        "kind": "tumbling",
        "size_ms": SIZE_MS,
        "timestamp_field": "ts",
        "key_fields": ["k"],
        "aggregates": [
            {"function": "count", "as": "count"},
            {"function": "sum", "field": "v", "as": "sum"},
            {"function": "min", "field": "v", "as": "min"},
            {"function": "max", "field": "v", "as": "max"},
        ],
    }
    time_of_rows = {
        "mode": "event_time",
        "timestamp_field": "ts",
        "watermark": {"out_of_orderness_ms": SIZE_MS},
    }
    job = {
        "id": "window-memory",
        "version": 1,
        "operators": [
            {"id": "rows", "kind": "source"},
            {"id": "totals", "kind": "window", "stateful": True, "config": totals},
            {"id": "out", "kind": "sink", "chain": False},
        ],
        "edges": [
            {"id": "by-key", "from": "rows", "to": "totals", "partitioned": True},
            {"id": "results", "from": "totals", "to": "out"},
        ],
        "sources": [
            {
                "operator_id": "rows",
                "input_type": "file",
                "config": {"input_type": {"type": "parquet", "path": str(source)}},
                "time": time_of_rows,
            }
        ],
        "sinks": [
            {
                "operator_id": "out",
                "output_type": "file",
                "config": {"path": str(folder / "out"), "format": "parquet"},
            }
        ],
        "state": {"backend": "embedded_kv", "memory_bytes": memory_bytes},
        "checkpoint": {"object_store_uri": f"{folder}/checkpoints", "interval_ms": interval_ms},
    }
    return {"jobs": [job]}


def spilled_bytes(pid: int) -> int:
    """Bytes of all files of spilled entries that a process has open, removed ones too."""
    total = 0
    try:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if SPILLED in os.readlink(link):
                total += link.stat().st_size
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return total


class _NoLines:
    def put(self, lines: bytes) -> None:
        raise AssertionError(f"nothing prints here: {lines[:80]!r}")


def run(config: pathlib.Path, keys: int) -> dict[str, float]:
    """Run the job; the figures of its window's actor."""
    from arkflow_ray.config.project import check_file
    from arkflow_ray.runtime.launch import RunSettings, launch

    checked = check_file(config)
    assert checked.ok, checked.issues
    started = time.perf_counter()
    jobs = launch(checked.jobs, RunSettings(), _NoLines(), lambda _: None)
    spilled = 0
    try:
        (job,) = jobs.jobs.values()
        while not jobs.wait(POLL_S):
            usage = next((u for c, u in job.status().usage.items() if c.startswith("totals")), None)
            if usage is not None:
                spilled = max(spilled, spilled_bytes(usage.pid))
        wall_s = time.perf_counter() - started
        (outcome,) = jobs.outcomes().values()
        assert outcome.error is None, outcome
        usage = next(u for c, u in job.status().usage.items() if c.startswith("totals"))
    finally:
        jobs.close()
    return {
        "spilled_mb": spilled / 1e6,
        "rss_peak_mb": usage.rss_peak_bytes / 1e6,
        "rows_per_cpu_s": 2 * keys / (usage.cpu_ms / 1000),
        "wall_s": wall_s,
    }


def check(out: pathlib.Path, keys: int) -> None:
    """Every key once, with the right figures."""
    seen = np.zeros(keys, np.bool_)
    for path in sorted(out.glob("part-*")):
        for batch in pq.ParquetFile(path).iter_batches(columns=list(NAMES)):
            columns = {name: batch.column(name).to_numpy() for name in batch.schema.names}
            key = columns["k"]
            assert not seen[key].any(), "a key has two results"
            seen[key] = True
            right = {"count": 2, "sum": 4 * key + 1, "min": 2 * key, "max": 2 * key + 1}
            for name, values in right.items():
                assert (columns[name] == values).all(), f"{name} is wrong"
    assert seen.all(), f"{np.count_nonzero(~seen):,} keys have no result"


def main() -> None:
    """Run once; print and keep what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--memory-mb", type=int, default=128)
    parser.add_argument("--interval-ms", type=int, default=10_000, help="between checkpoints")
    parser.add_argument("--folder", type=pathlib.Path, help="work here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=asked.folder) as name:
        folder = pathlib.Path(name)
        source, config = folder / "rows.parquet", folder / "job.json"
        generate(source, asked.keys)
        memory_bytes = asked.memory_mb * 1_000_000
        job = pipeline(source, folder, memory_bytes, asked.interval_ms)
        config.write_text(json.dumps(job))
        found = run(config, asked.keys)
        check(folder / "out", asked.keys)
    print(
        f"{asked.keys:,} keys in {asked.memory_mb} MB: every result is right; "
        f"{found['spilled_mb']:,.0f} MB spilled, peak RSS {found['rss_peak_mb']:,.0f} MB "
        f"(goal {GOAL_RSS_MB}), {found['rows_per_cpu_s'] / 1000:,.0f} k rows/CPU s, "
        f"{found['wall_s']:.0f} s"
    )
    assert found["spilled_mb"] > 0, "nothing was spilled"
    result = {
        "benchmark": "window_memory",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "keys": asked.keys,
        "memory_mb": asked.memory_mb,
        "interval_ms": asked.interval_ms,
        **found,
    }
    results = pathlib.Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "window_memory.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
