"""Queries of Nexmark on a real Ray, with a checkpoint each second: they write what DuckDB finds.

`ARKFLOW_MATRIX=full` runs all of them, with one subtask and with two; else some run.
"""

import os
import pathlib
from typing import Any, Final

import pytest
import yaml

from arkflow_kernel.protocol import OutcomeKind
from arkflow_ray.components.inputs.nexmark_rows import TABLES
from tests.conformance.nexmark_oracle import QUERIES, assert_right, edited
from tests.integration.running_jobs import Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

SOME: Final = [("q5", 2), ("q9", 2)]
RUNS: Final = (
    [(query, parallelism) for query in QUERIES for parallelism in (1, 2)]
    if os.environ.get("ARKFLOW_MATRIX") == "full"
    else SOME
)

SECONDS: Final = 3
"""What the events of a job last for, so that there are checkpoints in between."""


def paced(text: str) -> str:
    """The job with sources that end together, after about so many seconds."""
    config: Any = yaml.safe_load(text)
    for source in config["jobs"][0]["sources"]:
        read = source["config"]
        rows = TABLES[read["kind"]].rows_of(read["events"])
        read |= {"rows_per_second": rows / SECONDS, "batch_rows": max(1, rows // 20)}
    return yaml.safe_dump(config)


@pytest.mark.parametrize(("query", "parallelism"), RUNS)
def test_a_query_of_nexmark_writes_what_it_must(
    query: str, parallelism: int, start: Start, tmp_path: pathlib.Path
) -> None:
    text = paced(edited(query, tmp_path, parallelism))
    running = start(text)
    running.ended(OutcomeKind.FINISHED)
    assert running.completed > 1
    assert_right(query, tmp_path, text)
