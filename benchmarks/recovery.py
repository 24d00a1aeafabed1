"""How long a job is without results after `kill -9` of an actor with a large state (D2, P1, S6).

    python benchmarks/recovery.py --kills 20

Two chains on Ray: one reads a parquet file at a given rate, the other counts by key and prints. The
first run sets up a million keys, stops, and the second one continues from its checkpoint. Then the
counting actor is killed again and again, each time after a completed checkpoint. Printed per phase:
detect (kill to the failed attempt), claim (to the claim in the log), replace and restore (to all
chains connected), first row (to the first row printed by the new attempt).
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import checkpoint  # type: ignore[import-not-found]  # the script beside this one

from arkflow_kernel.protocol import JobState, JobStatus

GOAL_S = 5.0
PHASES = ("detect", "claim", "restore", "first row", "all")


class Lines:
    """Where rows are printed: when some came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, lines: bytes) -> None:
        """Take lines."""
        del lines
        self.times.append(time.monotonic())


def job(source: pathlib.Path, root: pathlib.Path, rate: int | None) -> dict[str, Any]:
    """The job of `checkpoint.py`, its counter in a chain of its own that prints."""
    spec: dict[str, Any] = checkpoint.job(source, root, 1_000)
    (found,) = spec["jobs"]
    found["operators"][0]["chain"] = False
    found["sinks"] = [{"operator_id": "write", "output_type": "stdout"}]
    if rate is not None:
        found["version"] = 2
        found["sources"][0]["config"]["rows_per_second"] = rate
    query = "SELECT k, n FROM flow WHERE n % 10 = 0"
    found["operators"][1]["config"]["query"] = query
    return spec


@contextmanager
def at_work(make: Any, rate: int, rows: int, per_window: int) -> Iterator[tuple[Any, Lines]]:
    """A job that continues from its keys, from its first printed row; cancelled in the end.

    `make` as `job`, `rows` and `per_window` as in `checkpoint.write_file`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = pathlib.Path(name)
        source, root = folder / "rows.parquet", folder / "checkpoints"
        checkpoint.write_file(source, rows, per_window, uniform=False)
        checkpoint.set_up(folder, make(source, root, None))
        lines = Lines()
        jobs = checkpoint.launched(folder, make(source, root, rate), lines)
        try:
            (running,) = jobs.jobs.values()
            checkpoint.wait_for("the first row", lambda: bool(lines.times))
            yield running, lines
            jobs.cancel()
        finally:
            jobs.close()


def moments(status: JobStatus, since_s: float) -> dict[str, float]:
    """When the last restart came to its steps, in seconds of the monotonic clock."""
    found: dict[str, float] = {}
    for change in status.transitions:
        at_s = change.at.now_ms / 1000
        if at_s < since_s - 0.1:
            continue
        if change.after is JobState.RESTARTING:
            found.setdefault("detect", at_s)
        elif change.after is JobState.DEPLOYING and "the log is asked" not in change.cause:
            found.setdefault("claim", at_s)
        elif change.after is JobState.RUNNING:
            found.setdefault("restore", at_s)
    return found


def kill(running: Any, lines: Lines) -> dict[str, float]:
    """Kill the counting actor once; seconds per phase."""
    before = running.status()
    last = before.checkpoints.last
    checkpoint.wait_for("a checkpoint", lambda: bool(running.status().checkpoints.last > last))
    usage = next(u for c, u in running.status().usage.items() if c.startswith("count"))
    os.kill(usage.pid, signal.SIGKILL)
    killed_s = time.monotonic()

    def back() -> bool:
        return "restore" in moments(running.status(), killed_s)

    checkpoint.wait_for("the next attempt", back)
    steps = moments(running.status(), killed_s)
    checkpoint.wait_for("a row", lambda: bool(lines.times) and lines.times[-1] > steps["restore"])
    first_s = next(at for at in lines.times if at > steps["restore"])
    order = [killed_s, steps["detect"], steps["claim"], steps["restore"], first_s]
    found = {name: after - at for name, at, after in zip(PHASES, order, order[1:], strict=False)}
    found["all"] = first_s - killed_s
    return found


def main() -> None:
    """Kill again and again; print and keep what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=int, default=50_000)
    asked = parser.parse_args()
    found: list[dict[str, float]] = []
    rows = 60 * asked.kills * asked.rate // 4
    with at_work(job, asked.rate, rows, 50_000) as (running, lines):
        for number in range(asked.kills):
            found.append(kill(running, lines))
            told = ", ".join(f"{phase} {found[-1][phase]:.2f}" for phase in PHASES)
            print(f"    kill {number + 1}: {told} s")
    _report(found)


def _report(found: list[dict[str, float]]) -> None:
    median = {phase: statistics.median(each[phase] for each in found) for phase in PHASES}
    took = sorted(each["all"] for each in found)
    p95 = took[max(0, int(len(took) * 0.95) - 1)]
    print("  medians: " + ", ".join(f"{phase} {median[phase]:.2f} s" for phase in PHASES))
    print(
        f"  95th percentile {p95:.2f} s (goal {GOAL_S:g} s: {'met' if p95 <= GOAL_S else 'missed'})"
    )
    report = {
        "benchmark": "recovery",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "kills": found,
        "medians": median,
        "p95_s": p95,
        "met": p95 <= GOAL_S,
    }
    results = pathlib.Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "recovery.json").write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
