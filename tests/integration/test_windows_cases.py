"""The acceptance cases of windows on a real Ray: at any parallelism and batch size, and with the
`kill -9` of a process, they write what they must (W6, W7, W9, N2, N3, X1).

`ARKFLOW_MATRIX=full` runs every parallelism with every batch size, which takes minutes: batches of
one row are 20,000 envelopes a case. Else a part of them runs, with small batches instead.
"""

import itertools
import os
import pathlib
import random
import signal
from typing import Any, Final

import pytest
import yaml

from arkflow_kernel.protocol import OutcomeKind
from tests.conformance.acceptance import CASES, compare
from tests.integration.running_jobs import Running, Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

WINDOWS: Final = ("tumbling", "sliding", "session", "late_update")
PARALLELISM: Final = (1, 2, 4)
BATCH_ROWS: Final = (1, 100, 8_192)
DIAGONAL: Final = ((1, 8_192), (2, 100), (4, 20))
CUTS: Final = (
    tuple(itertools.product(PARALLELISM, BATCH_ROWS))
    if os.environ.get("ARKFLOW_MATRIX") == "full"
    else DIAGONAL
)
KILLED_AFTER: Final = 2
"""Completed checkpoints before a process is killed."""

SECONDS: Final = 8
"""What the input of a job that loses a process lasts for."""

END_S: Final = 250.0
"""For 20,000 batches of one row, on a slow machine."""

Entry = dict[str, Any]


def edited(case: str, parallelism: int, **source: Any) -> str:
    """A case's job with its window at a parallelism, and more keys in its source's config."""
    config: Entry = yaml.safe_load((CASES / case / "pipeline.yaml").read_text())
    (job,) = config["jobs"]
    (window,) = (operator for operator in job["operators"] if operator["kind"] == "window")
    window["parallelism"] = parallelism
    (read,) = job["sources"]
    read["config"] |= source
    return yaml.safe_dump(config, allow_unicode=True)


def rows_of(case: str) -> int:
    """How many rows a case's input has."""
    config = yaml.safe_load((CASES / case / "pipeline.yaml").read_text())
    (read,) = config["jobs"][0]["sources"]
    if read["input_type"] == "memory":
        return len(read["config"]["messages"])
    return len((CASES / case / "bids.jsonl").read_text().splitlines())


@pytest.fixture
def out(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where a case writes."""
    monkeypatch.setenv("OUT_DIR", str(tmp_path / "out"))
    return tmp_path / "out"


@pytest.fixture
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a case, whose files are found."""
    name: str = request.param
    monkeypatch.setenv("CASE_DIR", str(CASES / name))
    return name


def assert_right(running: Running, case: str, out: pathlib.Path) -> None:
    assert running.jobs.wait(END_S), running.status
    running.ended(OutcomeKind.FINISHED)
    compare(case, out)


@pytest.mark.parametrize(("parallelism", "batch_rows"), CUTS)
@pytest.mark.parametrize("case", WINDOWS, indirect=True)
def test_a_case_writes_what_it_must_at_any_parallelism_and_batch_size(
    case: str, parallelism: int, batch_rows: int, start: Start, out: pathlib.Path
) -> None:
    source = {} if case == "late_update" else {"batch_rows": batch_rows}
    assert_right(start(edited(case, parallelism, **source)), case, out)


@pytest.mark.parametrize("case", WINDOWS, indirect=True)
def test_a_case_writes_what_it_must_although_a_process_is_killed(
    case: str, start: Start, out: pathlib.Path
) -> None:
    dice = random.Random(case)
    source: Entry = {"rows_per_second": rows_of(case) / SECONDS}
    if case != "late_update":
        source["batch_rows"] = 100
    running = start(edited(case, 2, **source))
    chains = len(running.job.graph.chains)
    running.until(lambda: running.completed >= KILLED_AFTER and len(running.status.usage) == chains)
    pids = {chain: usage.pid for chain, usage in running.status.usage.items()}
    os.kill(pids[dice.choice(sorted(pids))], signal.SIGKILL)
    assert_right(running, case, out)
    assert running.status.restarts == 1
