"""Runs the one job of a file, and tells its state as JSON lines; SIGTERM stops it in order.

On a local Ray of its own, or on the one at the address that is the second argument. A program of
its own: its Ray gets the test's environment, and processes that are killed in it are no other
test's. The last line has `outcome`.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.config.project import check_file
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.ray_job import RayJob
from arkflow_ray.runtime.running import RunningJob

TELL_S: Final = 0.2


class _NoLines:
    """No output of these jobs prints."""

    def put(self, lines: bytes) -> None:
        """See `LineOutput.put`."""
        raise AssertionError(lines)


def told(job: RunningJob) -> dict[str, Any]:
    """What a test has to know of a job that runs."""
    status = job.status()
    handle = job._handle
    assert isinstance(handle, RayJob)
    checkpoints = status.checkpoints
    return {
        "state": status.state.value,
        "restarts": status.restarts,
        "generation": int(status.generation),
        "checkpoint": 0 if checkpoints is None else int(checkpoints.last),
        "failures": None if checkpoints is None else checkpoints.error,
        "coordinator": handle.coordinator_pid,
        "chains": {chain: usage.pid for chain, usage in status.usage.items()},
        "rows": {chain: each.rows_in for chain, each in status.chains.items()},
    }


def ended(job: RunningJob) -> dict[str, Any]:
    """How it ended, and what became of it before."""
    outcome = job.outcome
    assert outcome is not None
    return {
        "outcome": outcome.kind.value,
        "error": None if outcome.error is None else f"{outcome.error}",
        "causes": [change.cause for change in job.status().transitions],
    }


def main(path: str, address: str | None = None) -> None:
    """Run, tell, and return after the end."""
    project = check_file(Path(path))
    assert project.ok, "\n".join(str(issue) for issue in project.issues)
    settings = RunSettings(address=address, choice=RestoreChoice(), environment=os.environ)
    jobs = launch(list(project.jobs), settings, _NoLines(), lambda _: None)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())  # Ray has set its own
    try:
        (job,) = jobs.jobs.values()
        while not jobs.wait(TELL_S):
            if asked.is_set():
                asked.clear()
                jobs.stop()
            print(json.dumps(told(job)), flush=True)
        print(json.dumps(ended(job)), flush=True)
    finally:
        jobs.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
