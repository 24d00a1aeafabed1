"""Acceptance cases on a real Ray: their jobs at any parallelism and batch size, and the `kill -9`
of one of their processes.

`ARKFLOW_MATRIX=full` runs every parallelism with every batch size, which takes minutes: batches of
one row are thousands of envelopes a case. Else a part of them runs, with small batches instead.
"""

import itertools
import os
import pathlib
import random
import signal
from typing import Any, Final

import yaml

from arkflow_kernel.protocol import OutcomeKind
from tests.conformance.acceptance import CASES, compare
from tests.integration.running_jobs import Running, Start

PARALLELISM: Final = (1, 2, 4)
BATCH_ROWS: Final = (1, 100, 8_192)
DIAGONAL: Final = ((1, 8_192), (2, 100), (4, 20))
FULL: Final = os.environ.get("ARKFLOW_MATRIX") == "full"
CUTS: Final = tuple(itertools.product(PARALLELISM, BATCH_ROWS)) if FULL else DIAGONAL
KILLED_AFTER: Final = 2
"""Completed checkpoints before a process is killed."""

SECONDS: Final = 8
"""What the input of a job that loses a process lasts for."""

END_S: Final = 250.0
"""For 20,000 batches of one row, on a slow machine."""

Entry = dict[str, Any]


def edited(case: str, kind: str, parallelism: int, **source: Any) -> str:
    """A case's job with its operator of a kind at a parallelism, and more keys in its sources'
    configs. `seconds` sets each one's rate, so that its input lasts so long.
    """
    config: Entry = yaml.safe_load((CASES / case / "pipeline.yaml").read_text())
    (job,) = config["jobs"]
    (operator,) = (each for each in job["operators"] if each["kind"] == kind)
    operator["parallelism"] = parallelism
    seconds = source.pop("seconds", None)
    for read in job["sources"]:
        read["config"] |= source
        if seconds is not None:
            read["config"]["rows_per_second"] = rows_of(case, read) / seconds
    return yaml.safe_dump(config, allow_unicode=True)


def rows_of(case: str, read: Entry) -> int:
    """How many rows a source of a case has."""
    if read["input_type"] == "memory":
        return len(read["config"]["messages"])
    path = read["config"]["input_type"]["path"].replace("${env:CASE_DIR}", str(CASES / case))
    return len(pathlib.Path(path).read_text().splitlines())


def assert_right(running: Running, case: str, out: pathlib.Path) -> None:
    """The job comes to its end, with the rows of the case."""
    assert running.jobs.wait(END_S), running.status
    running.ended(OutcomeKind.FINISHED)
    compare(case, out)


def assert_survives(start: Start, config: str, case: str, out: pathlib.Path) -> None:
    """The same, although one of its processes is killed."""
    dice = random.Random(case)
    running = start(config)
    chains = len(running.job.graph.chains)
    running.until(lambda: running.completed >= KILLED_AFTER and len(running.status.usage) == chains)
    pids = {chain: usage.pid for chain, usage in running.status.usage.items()}
    os.kill(pids[dice.choice(sorted(pids))], signal.SIGKILL)
    assert_right(running, case, out)
    assert running.status.restarts == 1


__all__ = ["CUTS", "FULL", "SECONDS", "assert_right", "assert_survives", "edited", "rows_of"]
