"""Window buffers of streams, end to end: every row is released once, with its window (B.4, B0).

In virtual time on the inline driver, and on a real Ray that loses the process of the window.
"""

import json
import os
import pathlib
import signal
from collections.abc import Callable
from contextlib import closing

import pytest

from arkflow_kernel.inline import InlineJob
from arkflow_kernel.protocol import JobOutcome, OutcomeKind
from arkflow_kernel.snapshot import NEWEST, RestoreChoice
from arkflow_kernel.testing.virtual_clock import VirtualClock
from arkflow_ray.runtime.components import RegistryComponents
from arkflow_ray.runtime.inline_stores import InlineStores
from tests.integration.published_rows import rows_in
from tests.integration.running_jobs import Printed, Start
from tests.integration.stored_jobs import graph_of

RESUME = RestoreChoice(must_exist=True)
ROWS = 1_200

GENERATED = """
streams:
  - id: readings
    input:
      type: generate
      context: '{{"sensor": "s1", "value": 2}}'
      interval: 100ms
      batch_size: 10
      count: 500
      codec: json
    buffer: {{{buffer}}}
    pipeline:
      processors:
        - type: sql
          query: "SELECT sensor, count(*) AS n, sum(value) AS total FROM flow GROUP BY sensor"
    output: {{type: stdout}}
    state: {{backend: embedded_kv, durability: ephemeral}}
"""

STORED = """
streams:
  - id: numbers
    input:
      type: file
      input_type: {{type: json, path: {folder}/in.jsonl}}
      batch_rows: 10
      rows_per_second: {rate}
    buffer: {{{buffer}}}
    pipeline:
      processors:
        - {{type: sql, query: "SELECT array_agg(n ORDER BY n) AS ns FROM flow"}}
    output: {{type: file, path: {folder}/out, format: json}}
    checkpoint: {{object_store_uri: {folder}/store, interval_ms: {interval}}}
"""

TUMBLING = "type: tumbling_window, interval: 1s"


def written(folder: pathlib.Path) -> list[list[int]]:
    """The numbers of each window, part by part."""
    return [row["ns"] for row in rows_in(folder / "out")]


def numbers(folder: pathlib.Path) -> list[int]:
    """The numbers of all windows, in order of the windows."""
    return [n for window in written(folder) for n in window]


def stored(folder: pathlib.Path, buffer: str, *, rate: int = 300, interval: int = 500) -> str:
    """A job from file to file, exactly once; with its input."""
    rows = (json.dumps({"n": n}) + "\n" for n in range(ROWS))
    (folder / "in.jsonl").write_text("".join(rows))
    return STORED.format(folder=folder, buffer=buffer, rate=rate, interval=interval)


# --- virtual time --------------------------------------------------------------------------------


class Virtual:
    """Runs of one job in virtual time, on one clock."""

    def __init__(self, folder: pathlib.Path, text: str) -> None:
        path = folder / "pipeline.yaml"
        path.write_text(text)
        self.graph = graph_of(path)
        self.clock = VirtualClock()
        self.printed = Printed()

    def run(
        self,
        choice: RestoreChoice = NEWEST,
        after: Callable[[InlineJob], None] = lambda _job: None,
    ) -> JobOutcome:
        """Run it to its end; `after` is called after every event of a machine."""
        with closing(InlineStores()) as stores:
            job = InlineJob(
                self.graph,
                RegistryComponents({}, self.printed, self.graph.job),
                self.clock,
                store=stores.open(self.graph),
                choice=choice,
                observer=lambda *_: after(job),
            )
            return job.wait()

    def when(self, now_ms: int, then: Callable[[InlineJob], None]) -> Callable[[InlineJob], None]:
        """Do something once, at a time of the clock."""
        waiting = [then]

        def after(job: InlineJob) -> None:
            if waiting and self.clock.now_ms >= now_ms:
                waiting.pop()(job)

        return after


def test_a_tumbling_buffer_shows_whole_windows_to_sql(tmp_path: pathlib.Path) -> None:
    job = Virtual(tmp_path, GENERATED.format(buffer=TUMBLING))
    assert job.run().kind is OutcomeKind.FINISHED
    assert job.printed.lines == [b'{"sensor":"s1","n":100,"total":200}'] * 5


def test_a_session_buffer_ends_with_the_data_or_after_its_gap(tmp_path: pathlib.Path) -> None:
    long = Virtual(tmp_path, GENERATED.format(buffer="type: session_window, gap: 100ms"))
    assert long.run().kind is OutcomeKind.FINISHED
    assert long.printed.lines == [b'{"sensor":"s1","n":500,"total":1000}']
    short = Virtual(tmp_path, GENERATED.format(buffer="type: session_window, gap: 99ms"))
    assert short.run().kind is OutcomeKind.FINISHED
    assert short.printed.lines == [b'{"sensor":"s1","n":10,"total":20}'] * 50


@pytest.mark.parametrize("buffer", [TUMBLING, "type: session_window, gap: 2s"])
def test_a_stop_in_the_middle_of_a_window_keeps_its_rows_for_the_resume(
    tmp_path: pathlib.Path, buffer: str
) -> None:
    """D5: nothing is released early, lost or repeated."""
    job = Virtual(tmp_path, stored(tmp_path, buffer))
    stopped = job.run(after=job.when(1_500, lambda job: job.stop()))
    assert stopped.kind is OutcomeKind.STOPPED
    before = numbers(tmp_path)
    assert before == list(range(len(before)))
    assert len(before) < 400, "the second window is open"
    job.clock.advance(60_000)
    assert job.run(RESUME).kind is OutcomeKind.FINISHED
    assert numbers(tmp_path) == list(range(ROWS))
    if before:
        assert len(before) == len(written(tmp_path)[0]), "the first window is as it was"


def test_a_window_that_ended_while_the_job_was_away_fires_alone(tmp_path: pathlib.Path) -> None:
    """Its rows do not join those that come after the resume."""
    job = Virtual(tmp_path, stored(tmp_path, TUMBLING, rate=100))
    job.run(after=job.when(500, lambda job: job.stop()))
    assert written(tmp_path) == []
    job.clock.advance(60_000)
    job.run(RESUME)
    first, *others = written(tmp_path)
    assert 40 < len(first) < 80
    assert first == list(range(len(first)))
    assert [n for window in others for n in window] == list(range(len(first), ROWS))


def test_a_drain_in_the_middle_of_a_window_releases_its_rows(tmp_path: pathlib.Path) -> None:
    job = Virtual(tmp_path, stored(tmp_path, "type: session_window, gap: 1h"))
    drained = job.run(after=job.when(1_500, lambda job: job.stop(drain=True)))
    assert drained.kind is OutcomeKind.FINISHED
    (window,) = written(tmp_path)
    assert window == list(range(len(window)))
    assert 400 < len(window) < 600


CHANGING = """
streams:
  - id: changing
    input:
      type: file
      input_type: {{type: json, path: {folder}/in.jsonl}}
      batch_rows: 2
    buffer: {{{buffer}}}
    pipeline:
      processors:
        - {{type: sql, query: "{query}"}}
    output: {{type: file, path: {folder}/out, format: json}}
    error_output: {{type: file, path: {folder}/bad, format: json}}
    state: {{backend: embedded_kv, durability: ephemeral}}
"""


def test_batches_of_several_schemas_are_one_table(tmp_path: pathlib.Path) -> None:
    """N10: integers, then floats, then another column."""
    rows: list[dict[str, object]] = [{"x": 1}, {"x": 2}, {"x": 0.5}, {"x": 1.5}, {"y": "a"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query = "SELECT array_agg(x) AS ns, count(y) AS ys FROM flow"
    job = Virtual(tmp_path, CHANGING.format(folder=tmp_path, buffer=TUMBLING, query=query))
    assert job.run().kind is OutcomeKind.FINISHED
    assert written(tmp_path) == [[1.0, 2.0, 0.5, 1.5, None]]


def test_rows_of_a_window_that_sql_fails_on_go_to_the_error_output_together(
    tmp_path: pathlib.Path,
) -> None:
    """S2: the window has left its state, and the job goes on."""
    rows = [{"n": n, "x": "1" if n != 3 else "one"} for n in range(5)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query = "SELECT array_agg(CAST(x AS INT)) AS ns FROM flow"
    job = Virtual(tmp_path, CHANGING.format(folder=tmp_path, buffer=TUMBLING, query=query))
    assert job.run().kind is OutcomeKind.FINISHED
    assert written(tmp_path) == []
    assert [row["n"] for row in rows_in(tmp_path / "bad")] == [0, 1, 2, 3, 4]


EVENTS = """
jobs:
  - id: events
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: together
        kind: window
        key_field: k
        config:
          {{kind: {kind}, timestamp_field: at, key_field: k, legacy_payload: true}}
      - id: table
        kind: map
        config: {{type: sql, query: "SELECT array_agg(n ORDER BY n) AS ns FROM flow"}}
      - {{id: kept, kind: sink}}
      - {{id: late, kind: sink}}
    edges:
      - {{id: a, from: rows, to: together}}
      - {{id: b, from: together, to: table}}
      - {{id: c, from: table, to: kept}}
    state: {{backend: embedded_kv, durability: ephemeral}}
    sources:
      - operator_id: rows
        input_type: file
        config: {{input_type: {{type: json, path: {folder}/in.jsonl}}, batch_rows: 2}}
        time:
          mode: event_time
          timestamp_field: at
          watermark: {{out_of_orderness_ms: 2}}
          late_event_policy: route
          late_event_route: late
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/out, format: json}}}}
      - {{operator_id: late, output_type: file, config: {{path: {folder}/late, format: json}}}}
"""


@pytest.mark.parametrize(
    ("kind", "windows"),
    [
        ("tumbling, size_ms: 10", [[0, 1, 2, 4], [3, 5, 6], [8]]),
        ("session, gap_ms: 5", [[0, 2], [1, 3, 4], [6], [5], [8]]),
    ],
)
def test_a_job_releases_rows_by_event_time_and_routes_late_ones(
    tmp_path: pathlib.Path, kind: str, windows: list[list[int]]
) -> None:
    """Rows 6 and 7 are beyond the bound. The window of 7 has ended when it comes. 6 is not late,
    but the session beside it was released, so it is one of its own.
    """
    times = [(1, "a"), (8, "b"), (3, "a"), (10, "b"), (9, "b"), (19, "a"), (14, "b"), (0, "a")]
    rows = [{"n": n, "at": at, "k": key} for n, (at, key) in enumerate([*times, (40, "a")])]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = Virtual(tmp_path, EVENTS.format(folder=tmp_path, kind=kind))
    assert job.run().kind is OutcomeKind.FINISHED
    assert written(tmp_path) == windows
    (late,) = rows_in(tmp_path / "late")
    assert (late["n"], late["__arkflow_late_event_route"]) == (7, True)


# --- a real Ray ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("buffer", [TUMBLING, "type: session_window, gap: 5s"])
def test_a_killed_process_of_a_window_costs_and_repeats_no_row(
    buffer: str, start: Start, tmp_path: pathlib.Path
) -> None:
    running = start(stored(tmp_path, buffer, interval=200))
    os.kill(running.until_restorable()["source-0"], signal.SIGKILL)
    running.until_at_work(1)
    running.ended(OutcomeKind.FINISHED)
    assert numbers(tmp_path) == list(range(ROWS))
    told = running.status.checkpoints
    assert told is not None
    assert (told.restored or "").startswith("checkpoint ")


@pytest.mark.usefixtures("shared_ray")
@pytest.mark.timeout(300)
def test_a_stop_on_ray_keeps_the_rows_of_the_open_window(
    start: Start, tmp_path: pathlib.Path
) -> None:
    text = stored(tmp_path, "type: session_window, gap: 3s")
    running = start(text)
    running.until_restorable()
    running.jobs.stop()
    running.ended(OutcomeKind.STOPPED)
    assert written(tmp_path) == []
    again = start(text, choice=RESUME)
    again.ended(OutcomeKind.FINISHED)
    assert numbers(tmp_path) == list(range(ROWS))
