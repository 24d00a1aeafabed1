"""A job that changes its own parallelism on a real Ray, and one that only says what it would do
(K6)."""

import json
import pathlib
from collections import Counter

import pytest

from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_ray.door.job_status import status_values
from arkflow_ray.runtime.autoscaling import Decided
from tests.integration.numbered_rows import FILES, expected, write_input, written
from tests.integration.running_jobs import Running, Start, causes

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

ROWS, KEYS = 40_000, 61
"""More rows than are read before a test stops its job, however busy the machine is."""

RATE, ROW_S = 200, 0.0055
"""Rows per second that the source offers, and how long a subtask works on each: one cannot do it,
also where a busy machine keeps the source from its rate."""

TWO = {"numbered": 2, "slow": 2, "kept": 2}
"""They share a chain, so they change together."""

JOB = (
    """
jobs:
  - id: {mode}-it
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: numbered
        kind: map
        chain: false
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}
      - id: slow
        kind: map
        config:
          type: python
          function: slow
          script: |
            import time

            def slow(batch):
                time.sleep(batch.num_rows * {row_s})
                return batch
      - {{id: kept, kind: sink}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: then, from: numbered, to: slow}}
      - {{id: to-file, from: slow, to: kept}}
    autoscale: {{mode: "{mode}", max: 2, cooldown_ms: 600000}}
    channel: {{capacity: 8}}
    checkpoint: {{object_store_uri: "{folder}/store", interval_ms: 500}}
"""
    + FILES
)


def begun(start: Start, folder: pathlib.Path, mode: str) -> Running:
    """The job in this mode, with an input and a store of its own."""
    folder.mkdir()
    write_input(folder, ROWS, KEYS)
    return start(JOB.format(mode=mode, folder=folder, rate=RATE, row_s=ROW_S))


def until_decided(running: Running, outcome: str) -> Decided:
    """The first decision, once this has come of it."""

    def last() -> Decided | None:
        told = running.job.autoscale()
        assert told is not None
        assert told.fault is None, told.fault
        return told.last

    running.until(lambda: (found := last()) is not None and found.outcome == outcome)
    decided = last()
    assert decided is not None
    assert decided.number == 1
    return decided


def test_a_stage_that_is_too_busy_gets_another_subtask_and_one_that_is_observed_only_a_sentence(
    start: Start, tmp_path: pathlib.Path
) -> None:
    observed = begun(start, tmp_path / "observed", "observe")
    scaled = begun(start, tmp_path / "scaled", "on")

    done = until_decided(scaled, "done")
    assert done.decision.parallelism == TWO, done.decision.sentence
    assert "'numbered' 1 -> 2: " in done.decision.sentence
    scaled.until(lambda: scaled.status.state is JobState.RUNNING)
    assert scaled.status.parallelism == {"rows": 1, **TWO}
    scaled.until_saved()
    scaled.jobs.stop()
    scaled.ended(OutcomeKind.STOPPED)
    rows = written(tmp_path / "scaled")
    assert [row for row, count in Counter(rows).items() if count > 1] == []
    assert RATE < len(rows) < ROWS
    assert sorted(rows) == expected(len(rows), KEYS), "those that were read, without a gap"
    assert scaled.status.restarts == 0, causes(scaled.status)

    told = until_decided(observed, "told")
    assert told.decision.parallelism == TWO, told.decision.sentence
    shown = json.loads(json.dumps(status_values(observed.job, "", told.at)))
    assert shown["autoscale"]["decision"]["text"].endswith("in mode `observe` nothing is done")
    assert shown["rescale"] is None
    assert {each["operator"]: each["parallelism"] for each in shown["operators"]} == {
        "rows": 1, "numbered": 1, "slow": 1, "kept": 1,
    }  # fmt: skip
    assert observed.status.generation == 1, causes(observed.status)
