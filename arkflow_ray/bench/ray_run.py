"""Runs the one job of a file on a local Ray to its end, and prints what it took as a JSON object.

    python -m arkflow_ray.bench.ray_run job.json

`rss_peak_bytes` is of the actors of all chains together, `actors_cpu_s` likewise; `checkpoints`
holds the newest ones that the job's log still lists, the closing one aside.
"""

import json
import pathlib
import sys
from typing import Any

from arkflow_kernel.log_view import read_log
from arkflow_kernel.protocol import OutcomeKind
from arkflow_ray.checkpoint.open import open_files
from arkflow_ray.config.project import CheckedJob, check_file
from arkflow_ray.runtime.launch import RunSettings, launch


class _NoLines:
    def put(self, lines: bytes) -> None:
        raise AssertionError(f"nothing prints here: {lines[:80]!r}")


def ray_command(config: pathlib.Path) -> list[str]:
    """The command that runs a file so, in a process of its own."""
    return [sys.executable, "-m", "arkflow_ray.bench.ray_run", str(config)]


def run_job(config: pathlib.Path) -> dict[str, Any]:
    """Run it; SystemExit with the reason if it is not right or does not finish."""
    checked = check_file(config)
    if not checked.ok:
        sys.exit("\n".join(str(issue) for issue in checked.issues))
    jobs = launch(checked.jobs, RunSettings(), _NoLines(), lambda _: None)
    try:
        while not jobs.wait(1.0):
            pass
        (outcome,) = jobs.outcomes().values()
        if outcome.kind is not OutcomeKind.FINISHED:
            sys.exit(f"the job ended as {outcome.kind}: {outcome.error}")
        (job,) = jobs.jobs.values()
        usage = job.status().usage.values()
        return {
            "actors_cpu_s": sum(each.cpu_ms for each in usage) / 1000,
            "rss_peak_bytes": sum(each.rss_peak_bytes for each in usage),
            "checkpoints": _checkpoints(checked.jobs[0]),
        }
    finally:
        jobs.close()


def _checkpoints(job: CheckedJob) -> list[dict[str, int]]:
    """Bytes that each one added, of all that it lists, and how long it and its pause took."""
    plan = None if job.graph is None else job.graph.checkpoint
    if job.graph is None or plan is None or plan.root is None:
        return []
    files = open_files(plan.root, job.graph.job)
    try:
        records = [slot.record for slot in read_log(files).slots if slot.record is not None]
    finally:
        files.close()
    return [
        {
            "new_bytes": record.new_bytes,
            "total_bytes": record.total_bytes,
            "took_ms": record.phases.acknowledged_ms,
            "pause_ms": record.phases.pause_ms,
        }
        for record in records
        if record.kind == "periodic"
    ]


if __name__ == "__main__":
    print(json.dumps(run_job(pathlib.Path(sys.argv[1]))))

__all__ = ["ray_command", "run_job"]
