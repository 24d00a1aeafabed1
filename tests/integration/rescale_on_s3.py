"""Rescales the job of a file twice, on a Ray of its own that has the environment of this process.

Run as a program, with the file and the operator; prints, after each rescale, the process of each
chain of that operator and the bytes of state that it fetched and that it had already, as JSON.
"""

import json
import sys
from pathlib import Path

from arkflow_ray.config.project import check_file
from arkflow_ray.runtime.launch import RunSettings, launch
from tests.integration.running_jobs import Printed, Running, causes


def main() -> None:
    """Rescale to two subtasks and back to one."""
    path, operator = Path(sys.argv[1]), sys.argv[2]
    jobs = launch(check_file(path).jobs, RunSettings(), Printed(), lambda _: None)
    try:
        running = Running(jobs)
        running.until_restorable()
        for subtasks in (2, 1):
            _rescale(running, operator, subtasks)
            print(json.dumps(_figures(running, operator)), flush=True)
        running.jobs.stop()
        running.end()
    finally:
        jobs.close()


def _rescale(running: Running, operator: str, subtasks: int) -> None:
    """And wait for checkpoints of the new plan."""
    end = running.rescaled({operator: subtasks})
    assert end.error is None, (end.error, running.job.outcome, causes(running.status))
    running.until_at_work()
    running.until_saved()


def _figures(running: Running, operator: str) -> dict[str, tuple[int, int, int]]:
    return {
        chain: (usage.pid, usage.fetched_bytes, usage.reused_bytes)
        for chain, usage in running.status.usage.items()
        if chain.startswith(operator)
    }


if __name__ == "__main__":
    main()
