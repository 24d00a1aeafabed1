"""How long the sink of a job with a million keys stands still while it is rescaled (K2).

    python benchmarks/rescale.py --rescales 20

Three chains on Ray: one reads a parquet file at a given rate, one counts by key, one prints. The
first run sets up a million keys, stops, and the second one continues from its checkpoint. Then the
counting operator goes from one subtask to two and back, again and again. The pause is the longest
time without a printed row from the moment that a rescale was asked for to two seconds after its
end; the phases are those that the job tells.
"""

import argparse
import dataclasses
import datetime
import itertools
import json
import os
import pathlib
import statistics
import time
from typing import Any

import checkpoint  # type: ignore[import-not-found]  # the scripts beside this one
import recovery  # type: ignore[import-not-found]

GOAL_S = 3.0
AFTER_S = 2.0


def job(source: pathlib.Path, root: pathlib.Path, rate: int | None) -> dict[str, Any]:
    """The job of `recovery.py`, each operator in a chain of its own, rows divided by key."""
    spec: dict[str, Any] = recovery.job(source, root, rate)
    (found,) = spec["jobs"]
    found["operators"][1]["parallelism"] = 1
    for operator in found["operators"]:
        operator["chain"] = False
    found["edges"][0]["partitioned"] = True
    return spec


def rescale(running: Any, lines: Any, subtasks: int) -> dict[str, float]:
    """Rescale once; milliseconds of the pause and of each phase. `lines`: `recovery.Lines`."""
    last = running.status().checkpoints.last
    checkpoint.wait_for("a checkpoint", lambda: bool(running.status().checkpoints.last > last))
    asked_s = time.monotonic()
    asked = running.rescale({"count": subtasks})
    checkpoint.wait_for("the rescale", lambda: asked.end(running.status(), None) is not None)
    end = asked.end(running.status(), None)
    assert end.error is None, end.error
    seen_s = time.monotonic()
    checkpoint.wait_for("rows after it", lambda: time.monotonic() > seen_s + AFTER_S)
    times = [at for at in list(lines.times) if at > asked_s - 1.0]
    pause_s = max(after - at for at, after in itertools.pairwise(times))
    usage = running.status().usage.values()
    return {
        "pause_ms": pause_s * 1000,
        "asked_to_done_ms": (seen_s - asked_s) * 1000,
        **dataclasses.asdict(end.phases),
        "fetched_bytes": sum(each.fetched_bytes for each in usage),
        "reused_bytes": sum(each.reused_bytes for each in usage),
    }


def main() -> None:
    """Rescale again and again; print and keep what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rescales", type=int, default=20)
    parser.add_argument("--rate", type=int, default=20_000)
    asked = parser.parse_args()
    found: list[dict[str, float]] = []
    rows = 15 * asked.rescales * asked.rate
    with recovery.at_work(job, asked.rate, rows, 20_000) as (running, lines):
        for number in range(asked.rescales):
            found.append(rescale(running, lines, 1 + (number + 1) % 2))
            told = ", ".join(f"{key} {value:,.0f}" for key, value in found[-1].items())
            print(f"    rescale {number + 1}: {told}", flush=True)
    _report(found)


def _report(found: list[dict[str, float]]) -> None:
    pauses = sorted(each["pause_ms"] for each in found)
    median = {key: statistics.median(each[key] for each in found) for key in found[0]}
    p99 = pauses[min(len(pauses) - 1, int(len(pauses) * 0.99))]
    print("  medians: " + ", ".join(f"{key} {value:,.0f}" for key, value in median.items()))
    met = p99 <= GOAL_S * 1000
    print(
        f"  pause at the sink: p50 {statistics.median(pauses):,.0f} ms, p99 {p99:,.0f} ms "
        f"(goal {GOAL_S:g} s: {'met' if met else 'missed'})"
    )
    report = {
        "benchmark": "rescale",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "keys": checkpoint.KEYS,
        "rescales": found,
        "medians": median,
        "pause_p50_ms": statistics.median(pauses),
        "pause_p99_ms": p99,
        "met": met,
    }
    results = pathlib.Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "rescale.json").write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
