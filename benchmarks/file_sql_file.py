"""File → sql (filter and projection) → file: rows per CPU second beside DataFusion alone.

    python benchmarks/file_sql_file.py --rows 5000000 --pairs 5
    python benchmarks/file_sql_file.py --rows 5000000 --pairs 5 --cut read

Both read the same JSON lines and write JSON lines; pairs alternate, medians and the median of the
pairs' ratios are printed and written to benchmarks/results/. CPU is user and system time: ours of
the chain actor from its first read to its last publish (Ray and start-up are printed apart),
DataFusion's of a process of its own from the query to the last byte, on one thread. The outputs
are compared by row count and by an order-independent hash. A last run reads a file twice as long:
the actor's memory must not follow it.

`--cut OPERATOR` (`read`, `query`, `write`; may be repeated) puts an operator into a chain of its
own, so rows cross a channel between two actors: one hop for `read` or for `write`, two for `query`.
CPU is then that of all actors together, memory that of the largest.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

QUERY = "SELECT auction, bidder, price * 2 AS doubled, channel FROM flow WHERE price > 50000000"
ROWS_PER_WRITE = 50_000


def generate(path: pathlib.Path, rows: int, seed: int = 7) -> int:
    """Write `rows` Nexmark-like bids (about 213 bytes each) as JSON lines; the size in bytes."""
    random = np.random.default_rng(seed)
    channels = ["Google", "Facebook", "Baidu", "Apple", "grün-kanal"]
    extra = "x" * 64
    with path.open("w", encoding="utf-8") as out:
        for start in range(0, rows, ROWS_PER_WRITE):
            count = min(ROWS_PER_WRITE, rows - start)
            auction = random.integers(1_000, 100_000, count)
            bidder = random.integers(1_000, 50_000, count)
            price = random.integers(100, 100_000_000, count)
            channel = random.integers(0, len(channels), count)
            out.writelines(
                f'{{"auction":{auction[i]},"bidder":{bidder[i]},"price":{price[i]},'
                f'"channel":"{channels[channel[i]]}",'
                f'"url":"https://www.nexmark.com/{auction[i]}/item.htm?query=1",'
                f'"ts":{1_760_000_000_000 + start + i},"extra":"{extra}"}}\n'
                for i in range(count)
            )
    return path.stat().st_size


def pipeline(source: pathlib.Path, out: pathlib.Path, cut: list[str]) -> str:
    """Our pipeline over the file; operators of `cut` are in chains of their own."""
    kinds = {"read": "source", "query": "map", "write": "sink"}
    operators = [
        {
            "id": name,
            "kind": kind,
            "chain": name not in cut,
            "config": {"type": "sql", "query": QUERY} if kind == "map" else {},
        }
        for name, kind in kinds.items()
    ]
    read = {
        "operator_id": "read",
        "input_type": "file",
        "config": {"input_type": {"type": "json", "path": str(source)}},
        "time": {"mode": "processing_time"},
    }
    write = {
        "operator_id": "write",
        "output_type": "file",
        "config": {"path": str(out), "format": "json"},
    }
    edges = [
        {"id": "read-query", "from": "read", "to": "query"},
        {"id": "query-write", "from": "query", "to": "write"},
    ]
    job = {"id": "bench", "version": 1, "operators": operators, "edges": edges}
    return json.dumps({"jobs": [{**job, "sources": [read], "sinks": [write]}]})


def run_ours(source: pathlib.Path, folder: pathlib.Path, cut: list[str]) -> dict[str, float]:
    """One run on a local Ray; figures of the chain actors."""
    from arkflow_ray.config.project import check_file
    from arkflow_ray.runtime.launch import RunSettings, launch

    config = folder / "pipeline.json"
    config.write_text(pipeline(source, folder / "out", cut))
    checked = check_file(config)
    assert checked.ok, checked.issues
    lines = _NoLines()
    started = time.perf_counter()
    jobs = launch(checked.jobs, RunSettings(), lines, lambda _: None)
    try:
        while not jobs.wait(1.0):
            pass
        wall = time.perf_counter() - started
        (outcome,) = jobs.outcomes().values()
        assert outcome.error is None, outcome
        (job,) = jobs.jobs.values()
        usages = list(job.status().usage.values())
    finally:
        jobs.close()
    return {
        "cpu_s": sum(usage.cpu_ms for usage in usages) / 1000,
        "rss_mib": max(usage.rss_peak_bytes for usage in usages) / 2**20,
        "wall_s": wall,
    }


class _NoLines:
    def put(self, lines: bytes) -> None:
        raise AssertionError(f"nothing prints here: {lines[:80]!r}")


PEER = """
import resource, sys, time
from datafusion import SessionConfig, SessionContext
source, out, query = sys.argv[1:]
context = SessionContext(SessionConfig().with_target_partitions(1))
before = resource.getrusage(resource.RUSAGE_SELF)
start = time.perf_counter()
context.register_json("flow", source, file_extension=".jsonl")
context.sql(query).write_json(out)
after = resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(cpu, after.ru_maxrss / 1024, time.perf_counter() - start)
"""


def run_peer(source: pathlib.Path, folder: pathlib.Path) -> dict[str, float]:
    """One run of DataFusion alone, on one thread, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PEER, str(source), str(folder / "out"), QUERY],
        env={**os.environ, "TOKIO_WORKER_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    cpu_s, rss_mib, wall_s = (float(figure) for figure in done.stdout.split())
    return {"cpu_s": cpu_s, "rss_mib": rss_mib, "wall_s": wall_s}


def digest(folder: pathlib.Path) -> tuple[int, int]:
    """Rows and an order-independent hash of all published lines below a folder."""
    rows = total = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith((".", "_")):
            with path.open("rb") as lines:
                for line in lines:
                    rows += 1
                    row = json.dumps(json.loads(line), sort_keys=True).encode()
                    total += int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big")
    return rows, total % 2**64


def main() -> None:
    """Run the pairs and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="keep the input file here")
    parser.add_argument("--cut", action="append", choices=["read", "query", "write"], default=[])
    arguments = parser.parse_args()
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"bids-{arguments.rows}.jsonl"
    size = source.stat().st_size if source.exists() else generate(source, arguments.rows)
    print(f"{arguments.rows:,} rows, {size / 2**20:,.0f} MiB, {os.cpu_count()} cores")
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(arguments.pairs):
        with (
            tempfile.TemporaryDirectory(dir=folder) as a,
            tempfile.TemporaryDirectory(dir=folder) as b,
        ):
            ours = run_ours(source, pathlib.Path(a), arguments.cut)
            peer = run_peer(source, pathlib.Path(b))
            if number == 0:
                left, right = digest(pathlib.Path(a) / "out"), digest(pathlib.Path(b) / "out")
                assert left == right, f"outputs differ: {left} {right}"
                print(f"outputs equal: {left[0]:,} rows")
        pairs.append((ours, peer))
        print(
            f"  pair {number + 1}: ours {_figures(ours, arguments.rows)}; "
            f"datafusion {_figures(peer, arguments.rows)}"
        )
    longer = folder / f"bids-{arguments.rows}-twice.jsonl"
    if not longer.exists():
        _write_twice(source, longer)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        twice = run_ours(longer, pathlib.Path(out), arguments.cut)
    print(f"  twice as long: ours {_figures(twice, 2 * arguments.rows)}")
    _report(pairs, twice, arguments.rows, size, arguments.cut)


def _write_twice(source: pathlib.Path, target: pathlib.Path) -> None:
    with target.open("wb") as out:
        for _ in range(2):
            with source.open("rb") as once:
                shutil.copyfileobj(once, out, 1 << 20)


def _figures(run: dict[str, float], rows: int) -> str:
    rate = rows / run["cpu_s"] / 1000
    return f"{rate:,.0f} k rows/CPU s, {run['rss_mib']:,.0f} MiB, {run['wall_s']:.1f} s wall"


def _report(
    pairs: list[tuple[dict[str, float], dict[str, float]]],
    twice: dict[str, float],
    rows: int,
    size: int,
    cut: list[str],
) -> None:
    ratios = [peer["cpu_s"] / ours["cpu_s"] for ours, peer in pairs]
    rss_mib = statistics.median(ours["rss_mib"] for ours, _ in pairs)
    median = {
        name: statistics.median(rows / run["cpu_s"] for run in runs)
        for name, runs in (("ours", [p[0] for p in pairs]), ("datafusion", [p[1] for p in pairs]))
    }
    result = {
        "benchmark": "file_sql_file",
        "cut": cut,
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "rows": rows,
        "bytes": size,
        "rows_per_cpu_s": median,
        "ratio_median": statistics.median(ratios),
        "rss_peak_mib": rss_mib,
        "rss_peak_mib_twice_as_long": twice["rss_mib"],
        "wall_s_median_with_start": statistics.median(ours["wall_s"] for ours, _ in pairs),
        "driver_cpu_s": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
        "pairs": [{"ours": ours, "datafusion": peer} for ours, peer in pairs],
    }
    print(
        f"median: ours {median['ours'] / 1000:,.0f} k, datafusion "
        f"{median['datafusion'] / 1000:,.0f} k rows per CPU second; "
        f"ratio {result['ratio_median']:.2f}; "
        f"peak RSS of the actor {rss_mib:,.0f} MiB, "
        f"{twice['rss_mib'] / rss_mib - 1:+.1%} for a file twice as long"
    )
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    name = "-".join(["file_sql_file", *(f"cut-{operator}" for operator in cut)])
    (folder / f"{name}.json").write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
