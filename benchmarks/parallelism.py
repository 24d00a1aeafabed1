"""What a second subtask adds to a keyed stage on two cores (K1).

    .venv/bin/python benchmarks/parallelism.py [--pairs 5] [--seconds 10]

One column with 8,192 keys goes from a source over a partitioned edge to a stage, and to a sink that
drops them. The stage is a Python function that burns 5 ms of CPU for each 1,000 rows, and in a
second job tumbling windows with five aggregates for each key. All on one local Ray, library thread
pools of one thread. Each pair measures the stage with parallelism 1 and then with 2, the next one
with 2 first; the ratio is that of the rates within one pair. The source has to feed two subtasks
with what is left of two cores, so the cores that it takes are printed beside each rate.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fair_share  # type: ignore[import-not-found]  # the script beside this one

BURNT_MS = 5.0
"""CPU of the function for each 1,000 rows."""
GOAL = 1.7
KEYS = 8_192
RESULTS = pathlib.Path(__file__).parent / "results" / "parallelism.json"

JOB = """
jobs:
  - id: JOBID
    version: 1
    resources: {num_cpus: 0.01}
    operators:
      - {id: in, kind: source, parallelism: 1}
      - id: keyed
        kind: map
        parallelism: 1
        config:
          type: python
          function: keyed
          script: |
            import numpy as np
            import pyarrow as pa
            ROWS = pa.record_batch({"k": np.random.default_rng(7).permutation(KEYS)})
            def keyed(batch):
                return ROWS.slice(0, batch.num_rows)
      - STAGE
      - {id: out, kind: sink, parallelism: PARALLELISM}
    edges:
      - {id: a, from: in, to: keyed}
      - {id: b, from: keyed, to: stage, partitioned: true}
      - {id: c, from: stage, to: out}
    sources:
      - operator_id: in
        input_type: generate
        config: {context: "x", interval: 0ms, batch_size: KEYS}
        time: {mode: processing_time}
    sinks: [{operator_id: out, output_type: drop}]
"""

BURN = f"""
import time
def burn(batch):
    end = time.thread_time() + batch.num_rows * {BURNT_MS / 1e6}
    while time.thread_time() < end:
        pass
    return batch
"""

AGGREGATES = [
    {"function": "count", "as": "n"},
    *({"function": name, "field": "k", "as": name} for name in ("sum", "avg", "stddev", "max")),
]

STAGES: dict[str, dict[str, Any]] = {
    "python": {
        "kind": "map",
        "key_field": "k",
        "config": {"type": "python", "function": "burn", "script": BURN},
    },
    "windows": {
        "kind": "window",
        "config": {
            "kind": "tumbling",
            "trigger": "processing_time",
            "size_ms": 1_000,
            "timestamp_field": "at",
            "key_fields": ["k"],
            "aggregates": AGGREGATES,
        },
    },
}


def text(stage: str, parallelism: int) -> str:
    """The job with one stage, as YAML."""
    operator = {"id": "stage", "parallelism": parallelism, **STAGES[stage]}
    found = JOB.replace("STAGE", json.dumps(operator)).replace("JOBID", f"{stage}-{parallelism}")
    return found.replace("PARALLELISM", str(parallelism)).replace("KEYS", str(KEYS))


def measured(folder: pathlib.Path, stage: str, parallelism: int, seconds: float) -> dict[str, Any]:
    """Rows a second of the stage, and the cores that each chain took meanwhile."""
    with _running(folder, text(stage, parallelism)) as jobs:
        (job,) = jobs.jobs.values()
        # Windows need two seconds until the first has fired; the function needs none of it.
        fair_share.wait_for("rows", lambda: _rows(job) > 2 * KEYS or job.outcome is not None)
        assert job.outcome is None, job.outcome
        warm = _rate(job, 3.0)
        rate, cores = _rate_and_cores(job, seconds)
        subtasks = [chain.rows_in for name, chain in job.status().chains.items() if _own(name)]
    skew = max(subtasks) * len(subtasks) / sum(subtasks)
    return {"rate": rate, "warm_up": warm, "cores": cores, "skew": skew}


@contextmanager
def _running(folder: pathlib.Path, yaml: str) -> Iterator[Any]:
    jobs = fair_share.launched(folder, yaml)
    try:
        yield jobs
        (job,) = jobs.jobs.values()
        jobs.cancel()
        fair_share.wait_for("its end", lambda: job.outcome is not None)
    finally:
        jobs.close()


def _own(chain: str) -> bool:
    return chain.startswith("stage-")


def _rows(job: Any) -> int:
    return sum(chain.rows_in for name, chain in job.status().chains.items() if _own(name))


def _rate(job: Any, seconds: float) -> float:
    return _rate_and_cores(job, seconds)[0]


def _rate_and_cores(job: Any, seconds: float) -> tuple[float, dict[str, float]]:
    """Between two reports, which come once a second."""
    begun_s, first, before = _next_report(job)
    time.sleep(seconds)
    ended_s, last, after = _next_report(job)
    took_s = ended_s - begun_s
    cores = {name: (after[name] - before[name]) / 1000 / took_s for name in after}
    return (last - first) / took_s, cores


def _next_report(job: Any) -> tuple[float, int, dict[str, int]]:
    before = _rows(job)
    fair_share.wait_for("a report", lambda: _rows(job) != before)
    usage = {str(name): each.cpu_ms for name, each in job.status().usage.items()}
    return time.monotonic(), _rows(job), usage


def main() -> None:
    """Measure, print, write."""
    from arkflow_ray.runtime.ray_session import open_session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {stage: [] for stage in STAGES}
    session = open_session("local", lambda _: None)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            for number in range(asked.pairs):
                for stage, pairs in found.items():
                    order = (1, 2) if number % 2 == 0 else (2, 1)
                    pair = {
                        str(each): measured(pathlib.Path(name), stage, each, asked.seconds)
                        for each in order
                    }
                    pairs.append({**pair, "ratio": pair["2"]["rate"] / pair["1"]["rate"]})
                    _print_pair(number, stage, pairs[-1])
    finally:
        session.close()
    _report(found)


def _print_pair(number: int, stage: str, pair: dict[str, Any]) -> None:
    for each in ("1", "2"):
        one = pair[each]
        cores = ", ".join(f"{name} {took:.2f}" for name, took in one["cores"].items())
        print(
            f"  pair {number + 1}, {stage}, parallelism {each}: {one['rate']:,.0f} rows/s; "
            f"skew {one['skew']:.2f}; cores: {cores}",
            flush=True,
        )
    print(f"  pair {number + 1}, {stage}: {pair['ratio']:.2f} times", flush=True)


def _report(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the medians, write the JSON."""
    medians: dict[str, dict[str, float]] = {}
    for stage, pairs in found.items():
        medians[stage] = {
            "one": statistics.median(pair["1"]["rate"] for pair in pairs),
            "two": statistics.median(pair["2"]["rate"] for pair in pairs),
            "ratio": statistics.median(pair["ratio"] for pair in pairs),
        }
        one, two, ratio = medians[stage].values()
        print(f"  {stage}: {one:,.0f} and {two:,.0f} rows/s, {ratio:.2f} times", end="")
        goal = f" (goal {GOAL}: {'met' if ratio >= GOAL else 'missed'})"
        print(goal if stage == "python" else "")
    told = {
        "benchmark": "parallelism",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "burnt_ms_per_1000_rows": BURNT_MS,
        "keys": KEYS,
        "pairs": found,
        "medians": medians,
        "met": medians["python"]["ratio"] >= GOAL,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
