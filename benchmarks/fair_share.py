"""What a job keeps of its throughput beside one that burns all the CPU that it gets (R2).

    .venv/bin/python benchmarks/fair_share.py [--rounds 3] [--seconds 10]

Two jobs on one local Ray. One of them reads and filters as fast as it can. Beside it, in every
second window, runs one whose Python operator has two processes that do nothing but burn CPU, first
with `cpu_millicores: 125` each, in the end without any. The ratio is that of rates within one
round, so a machine that is busy with something else slows both; each round begins with the job
alone.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

MILLICORES = 125
"""Of each of the two processes that burn."""
GOAL = 0.8
WAIT_S = 300.0
RESULTS = pathlib.Path(__file__).parent / "results" / "fair_share.json"

VICTIM = """
streams:
  - id: victim
    input: {type: generate, context: '{"n": 1, "price": 2.5}', interval: 0ms, batch_size: 8192,
            codec: json}
    pipeline: {processors: [{type: sql, query: "SELECT n, price * 2 AS p FROM flow WHERE n > 0"}]}
    output: {type: drop}
"""

BURNER = """
jobs:
  - id: burner
    version: 1
    resources: {num_cpus: 0.01}
    operators:
      - {id: in, kind: source, parallelism: 1}
      - id: burn
        kind: map
        parallelism: 2
        RESOURCES
        config:
          type: python
          function: burn
          script: |
            import time
            def burn(batch):
                end = time.thread_time() + 0.05
                while time.thread_time() < end:
                    pass
                return batch
      - {id: out, kind: sink, parallelism: 1}
    edges:
      - {id: a, from: in, to: burn, type: rebalance}
      - {id: b, from: burn, to: out}
    sources:
      - operator_id: in
        input_type: generate
        config: {context: '{"n": 1}', interval: 20ms}
        codec: json
        time: {mode: processing_time}
    sinks: [{operator_id: out, output_type: drop}]
"""
LIMITED = BURNER.replace(
    "RESOURCES", f"resources: {{num_cpus: 0.01, cpu_millicores: {MILLICORES}}}"
)
FREE = BURNER.replace("RESOURCES", "resources: {num_cpus: 0.01}")


def launched(folder: pathlib.Path, text: str) -> Any:
    """Start the jobs of a text on Ray, which the first one starts."""
    from arkflow_ray.config.project import check_file
    from arkflow_ray.observability.rows import StdoutRows
    from arkflow_ray.runtime.launch import RunSettings, launch

    path = folder / "jobs.yaml"
    path.write_text(text)
    checked = check_file(path)
    assert checked.ok, checked.issues
    return launch(checked.jobs, RunSettings(), StdoutRows(), lambda _: None)


def rows(jobs: Any) -> int:
    """What its chains have read so far, all together."""
    (job,) = jobs.jobs.values()
    return sum(chain.rows_in for chain in job.status().chains.values())


def wait_for(what: str, test: Callable[[], bool]) -> None:
    """Until it is so; an error after `WAIT_S`."""
    give_up_s = time.monotonic() + WAIT_S
    while not test():
        if time.monotonic() > give_up_s:
            raise TimeoutError(what)
        time.sleep(0.05)


def rate(jobs: Any, seconds: float) -> float:
    """Rows a second over a window; reports come once a second, so it begins and ends with one."""

    def next_report() -> tuple[float, int]:
        before = rows(jobs)
        wait_for("a report", lambda: rows(jobs) != before)
        return time.monotonic(), rows(jobs)

    begun_s, first = next_report()
    time.sleep(seconds)
    ended_s, last = next_report()
    return (last - first) / (ended_s - begun_s)


def beside(folder: pathlib.Path, victim: Any, text: str, seconds: float) -> tuple[float, float]:
    """The job's rate while the other one runs, and the cores that the other one took."""
    burner = launched(folder, text)
    try:
        (job,) = burner.jobs.values()
        wait_for("the burner", lambda: rows(burner) > 0 or job.outcome is not None)
        assert job.outcome is None, job.outcome
        begun_s, before_ms = time.monotonic(), _cpu_ms(job)
        found = rate(victim, seconds)
        took = (_cpu_ms(job) - before_ms) / 1000 / (time.monotonic() - begun_s)
        burner.cancel()
        wait_for("its end", lambda: job.outcome is not None)
    finally:
        burner.close()
    return found, took


def _cpu_ms(job: Any) -> int:
    return sum(usage.cpu_ms for usage in job.status().usage.values())


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = pathlib.Path(name)
        victim = launched(folder, VICTIM)
        try:
            wait_for("the first row", lambda: rows(victim) > 0)
            for number in range(asked.rounds):
                alone = rate(victim, asked.seconds)
                limited, took = beside(folder, victim, LIMITED, asked.seconds)
                free, took_free = beside(folder, victim, FREE, asked.seconds)
                kept, kept_free = limited / alone, free / alone
                print(
                    f"  round {number + 1}: alone {alone:,.0f} rows/s; beside {took:.2f} cores "
                    f"(limited) {kept:.0%}, beside {took_free:.2f} cores (free) {kept_free:.0%}"
                )
                rounds.append(
                    {
                        "alone": alone,
                        "kept": kept,
                        "burner_cores": took,
                        "kept_beside_free": kept_free,
                        "free_burner_cores": took_free,
                    }
                )
            victim.cancel()
        finally:
            victim.close()
    report(rounds)


def report(rounds: list[dict[str, float]]) -> None:
    """Print the median, write the JSON."""
    kept = statistics.median(each["kept"] for each in rounds)
    verdict = "met" if kept >= GOAL else "missed"
    print(f"  kept {kept:.0%} of its own throughput (goal {GOAL:.0%}: {verdict})")
    told = {
        "benchmark": "fair_share",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "cpu_millicores": MILLICORES,
        "rounds": rounds,
        "kept": kept,
        "met": kept >= GOAL,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
