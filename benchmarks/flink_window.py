"""Tumbling windows on Ray beside Flink: rows per CPU second of every process that takes part.

    python benchmarks/flink_window.py --flink-python /opt/flink/bin/python --rows 4000000 --pairs 5

`--flink-python` is the interpreter of a virtual environment with `apache-flink`; if there is none,
it is made there (Python 3.11, about 1.5 GB, needs Java 11 or 17 on PATH):

    python3.11 -m venv /opt/flink && /opt/flink/bin/pip install apache-flink==2.3.0

The query: number, sum and maximum of the prices per auction in windows of 10 s, over a JSON file of
bids that are up to 0.9 s out of order, with a watermark 1 s behind, into JSON files. Parallelism 1
and a checkpoint every 10 s on both sides; ours reads 32,768 rows a batch (`batch_rows`), Flink
reuses objects and knows no Python but to submit.

Each run is a program of its own. While it reads the file from 30 % to 95 %, what all of its
processes use (children, JVM, Ray's own daemons) is read from /proc: start-up and warm-up are before
that. Pairs alternate; medians, and the median of the pairs' ratios, are printed and written to
benchmarks/results/. The results are compared row by row once.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator

import numpy as np

from arkflow_ray.bench.flink import FLINK, flink_command
from arkflow_ray.bench.ray_run import ray_command
from arkflow_ray.bench.steady_part import measured

START_MS, ROWS_PER_MS, DISORDER_MS = 1_760_000_000_000, 10, 900
AUCTIONS, ROWS_PER_WRITE = 10_000, 50_000
GOAL = 3.0

Figures = dict[str, float]


def generate(path: pathlib.Path, rows: int, seed: int = 7) -> None:
    """Write `rows` bids as JSON lines, 10,000 a second of event time."""
    random = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as out:
        for start in range(0, rows, ROWS_PER_WRITE):
            count = min(ROWS_PER_WRITE, rows - start)
            auction = random.integers(0, AUCTIONS, count)
            price = random.integers(100, 100_000_000, count)
            late = random.integers(0, DISORDER_MS, count)
            ts = START_MS + np.arange(start, start + count) // ROWS_PER_MS - late
            out.writelines(
                f'{{"auction":{auction[i]},"bidder":{price[i] % 9973},"price":{price[i]},'
                f'"channel":"Google","url":"https://www.nexmark.com/{auction[i]}/item.htm?query=1",'
                f'"ts":{ts[i]},"extra":"{"x" * 64}"}}\n'
                for i in range(count)
            )


def pipeline(source: pathlib.Path, out: pathlib.Path) -> str:
    """The job on Ray."""
    functions = (("count", None), ("sum", "price"), ("max", "price"))
    aggregates = [
        {"function": function, "as": function, **({"field": field} if field else {})}
        for function, field in functions
    ]
    totals = {
        "kind": "tumbling",
        "size_ms": 10_000,
        "timestamp_field": "ts",
        "key_fields": ["auction"],
        "aggregates": aggregates,
    }
    watermark = {"strategy": "bounded_out_of_orderness", "out_of_orderness_ms": 1_000}
    read = {
        "operator_id": "bids",
        "input_type": "file",
        "config": {"input_type": {"type": "json", "path": str(source)}, "batch_rows": 32_768},
        "time": {"mode": "event_time", "timestamp_field": "ts", "watermark": watermark},
    }
    write = {
        "operator_id": "out",
        "output_type": "file",
        "config": {"path": str(out), "format": "json"},
    }
    job = {
        "id": "flink-window",
        "version": 1,
        "operators": [
            {"id": "bids", "kind": "source"},
            {"id": "totals", "kind": "window", "stateful": True, "config": totals},
            {"id": "out", "kind": "sink"},
        ],
        "edges": [
            {"id": "by-auction", "from": "bids", "to": "totals", "partitioned": True},
            {"id": "results", "from": "totals", "to": "out"},
        ],
        "sources": [read],
        "sinks": [write],
        "checkpoint": {"object_store_uri": f"{out}.checkpoints", "interval_ms": 10_000},
    }
    return json.dumps({"jobs": [job]})


def peer_statements(source: pathlib.Path, out: pathlib.Path) -> list[str]:
    """The job on Flink."""
    return [
        f"""
    CREATE TABLE bids (
        auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts BIGINT,
        extra STRING, seen AS TO_TIMESTAMP_LTZ(ts, 3),
        WATERMARK FOR seen AS seen - INTERVAL '1' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{source}', 'format' = 'json')""",
        f"""
    CREATE TABLE totals (
        window_start TIMESTAMP(3), window_end TIMESTAMP(3), auction BIGINT,
        `count` BIGINT, `sum` BIGINT, `max` BIGINT
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'json')""",
        """
    INSERT INTO totals
    SELECT window_start, window_end, auction, COUNT(*), SUM(price), MAX(price)
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(seen), INTERVAL '10' SECONDS))
    GROUP BY window_start, window_end, auction""",
    ]


def results(out: pathlib.Path) -> Iterator[tuple[int, int, int, int, int]]:
    """Window start, auction, and its three figures, of every published row."""
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name[0] not in "._":
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                start = row["window_start"]
                if isinstance(start, str):
                    at = datetime.datetime.fromisoformat(start).replace(tzinfo=datetime.UTC)
                    start = round(at.timestamp() * 1000)
                yield start, row["auction"], row["count"], row["sum"], row["max"]


def make_flink(python: pathlib.Path) -> None:
    """Install Flink into a virtual environment whose interpreter this is to be."""
    folder = python.parent.parent
    print(f"installing {FLINK} into {folder}", flush=True)
    subprocess.run(["python3.11", "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", FLINK], check=True)


def _measured(command: list[str], source: pathlib.Path, rows: int) -> Figures:
    steady = measured(command, {source: rows})
    return {
        "rows_per_cpu_s": steady.rows_per_cpu_s,
        "rows_per_s": steady.rows_per_s,
        "wall_s": steady.wall_s,
    }


def pair(
    number: int, source: pathlib.Path, rows: int, flink: pathlib.Path, folder: pathlib.Path
) -> dict[str, Figures]:
    """Run both, the order alternating; results are compared in the first pair."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        ours, theirs = pathlib.Path(name) / "ours", pathlib.Path(name) / "flink"
        config = pathlib.Path(name) / "job.json"
        config.write_text(pipeline(source, ours))
        commands = {
            "ours": ray_command(config),
            "flink": flink_command(
                flink,
                peer_statements(source, theirs),
                pathlib.Path(f"{theirs}.checkpoints"),
                "10 s",
            ),
        }
        order = ["ours", "flink"] if number % 2 == 0 else ["flink", "ours"]
        found = {side: _measured(commands[side], source, rows) for side in order}
        if number == 0:
            left, right = sorted(results(ours)), sorted(results(theirs))
            assert sum(row[2] for row in left) == rows, "rows are missing in our results"
            assert left == right, "the results differ"
            print(f"results equal: {len(left):,} rows")
    return found


def main() -> None:
    """Run the pairs; print and keep what they say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="keep the input file here")
    parser.add_argument("--flink-python", type=pathlib.Path, help="see above")
    asked = parser.parse_args()
    if asked.flink_python is None:
        parser.error("--flink-python is needed: an interpreter with Flink, or where to put one")
    flink = asked.flink_python.absolute()
    if not flink.exists():
        make_flink(flink)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = (asked.folder or pathlib.Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"bids-{asked.rows}.jsonl"
        if not source.exists():
            generate(source, asked.rows)
        print(f"{asked.rows:,} rows, {source.stat().st_size / 2**20:,.0f} MiB")
        pairs = []
        for number in range(asked.pairs):
            pairs.append(pair(number, source, asked.rows, flink, folder))
            told = "; ".join(
                f"{side} {run['rows_per_cpu_s'] / 1000:,.0f} k rows/CPU s, "
                f"{run['rows_per_s'] / 1000:,.0f} k rows/s"
                for side, run in sorted(pairs[-1].items(), reverse=True)
            )
            print(f"  pair {number + 1}: {told}", flush=True)
    _report(pairs, asked.rows)


def _report(pairs: list[dict[str, Figures]], rows: int) -> None:
    median = {
        side: statistics.median(found[side]["rows_per_cpu_s"] for found in pairs)
        for side in ("ours", "flink")
    }
    ratios = [found["ours"]["rows_per_cpu_s"] / found["flink"]["rows_per_cpu_s"] for found in pairs]
    ratio = statistics.median(ratios)
    print(
        f"median: ours {median['ours'] / 1000:,.0f} k, flink {median['flink'] / 1000:,.0f} k rows "
        f"per CPU second; ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal {GOAL:g}"
    )
    result = {
        "benchmark": "flink_window",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "flink": FLINK,
        "rows": rows,
        "rows_per_cpu_s": median,
        "ratio_median": ratio,
        "pairs": pairs,
    }
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "flink_window.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
