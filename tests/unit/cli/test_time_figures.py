"""Where a job is in event time, and what was late: figures, results, displays, status."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from arkflow_kernel.ids import ChainId, EventTimeMs, MonotonicMs, OperatorId, WallMs
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.metrics import ChainStatistics, OperatorCounts
from arkflow_kernel.plan import ExecutionGraph, SourcePlan, TimePlan
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, OutcomeKind
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan
from arkflow_ray.cli.doors import TIMES_SHOWN_MAX, status_text
from arkflow_ray.door.job_status import status_values
from arkflow_ray.observability.display import LogDisplay
from arkflow_ray.observability.figures import JobFigures, figures
from arkflow_ray.observability.frame import jobs_frame
from arkflow_ray.observability.results import job_result, results_text
from arkflow_ray.observability.time_figures import TimeFigures, time_text
from arkflow_ray.observability.time_story import AHEAD_MS, TimeStory
from arkflow_ray.runtime.running import RunningJob

NOON = 1_772_366_400_000
"""2026-03-01T12:00:00Z."""

READ = ChainStatistics(
    ChainId("a-0"),
    rows_in=10,
    invalid_times=2,
    ahead_rows=1,
    watermark=EventTimeMs(NOON),
    operators=(OperatorCounts(OperatorId("m"), rows_in=10, rows_out=10),),
)
FIRED = ChainStatistics(
    ChainId("b-0"),
    rows_in=10,
    idle=True,
    operators=(OperatorCounts(OperatorId("w"), late=3, evicted=4),),
)


def _graph(*, event_time: bool = True) -> ExecutionGraph:
    channel = channel_plan("e", "a-0", "b-0")
    first = chain_plan("a-0", sinks=(), channels=(channel,))
    assert isinstance(first.source, SourcePlan)
    if event_time:
        first = replace(first, source=replace(first.source, time=TimePlan("at")))
    return job_plan(first, chain_plan("b-0", inputs=(channel,), operators=("w",)), name="j")


def _status() -> JobStatus:
    moment = Moment(MonotonicMs(0), WallMs(0))
    return JobStatus(JobState.RUNNING, "", moment, {c.chain: c for c in (READ, FIRED)})


SHOWN = (
    TimeFigures(ChainId("a-0"), NOON, idle=False, untimed_rows=2, ahead_rows=1),
    TimeFigures(ChainId("b-0"), None, idle=True, late_rows=3, evicted_rows=4),
)


def test_figures_tell_watermarks_and_what_no_window_took() -> None:
    found = figures(_graph(), _status())
    assert (found.late, found.untimed, found.evicted, found.times) == (3, 2, 4, SHOWN)
    assert found.read == 12, "rows without a time were read, too"


def test_chains_in_processing_time_have_no_event_time() -> None:
    assert figures(_graph(event_time=False), _status()).times == ()


def _late(late: int, untimed: int) -> JobFigures:
    return replace(figures(_graph(), _status()), late=late, untimed=untimed)


def test_a_result_tells_late_rows_and_rows_without_a_time() -> None:
    text = results_text([job_result(_late(1, 2), JobOutcome(OutcomeKind.FINISHED), 1.0)])
    assert "  late     1 row\n  no time  2 rows\n  evicted  4 rows\n" in text
    none = results_text([job_result(_late(0, 0), JobOutcome(OutcomeKind.FINISHED), 1.0)])
    assert "late" not in none
    assert "no time" not in none


def test_log_lines_tell_late_rows_and_where_chains_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "arkflow_ray")
    now_s = [0.0]
    display = LogDisplay(lambda: now_s[0])
    display.update([_late(5, 0)])
    now_s[0] = 60.0
    display.update([_late(5, 0)])
    assert caplog.messages[-1].endswith("0 bad, 5 late, 4 evicted")
    fields = vars(caplog.records[-1])["fields"]
    assert (fields["late_rows"], fields["untimed_rows"]) == (5, 0)
    assert fields["event_time"]["a-0"] == {
        "watermark": NOON,
        "idle": False,
        "late_rows": 0,
        "untimed_rows": 2,
        "ahead_rows": 1,
        "evicted_rows": 0,
    }


def test_the_live_table_has_a_column_for_late_rows_once_there_are_some() -> None:
    def titles(job: JobFigures) -> str:
        return jobs_frame([job], {}, 0.0, (120, 24))[0]

    assert "late" not in titles(_late(0, 0))
    assert "late" in titles(_late(7, 0))
    assert any("7" in line for line in jobs_frame([_late(7, 0)], {}, 0.0, (120, 24))[1:])


class _Told(RunningJob):
    """A job of which only the status is asked."""

    def __init__(self, graph: ExecutionGraph) -> None:
        super().__init__(graph, cast("KernelHandle", None))

    def status(self) -> JobStatus:
        return _status()

    @property
    def outcome(self) -> JobOutcome | None:
        return None


def _values(**job: Any) -> dict[str, Any]:
    return status_values(_Told(_graph(**job)), "2026-03-01T00:00:00Z", WallMs(NOON + 90_000))


def test_the_status_as_json_has_the_event_time_of_each_chain_and_its_lag() -> None:
    told = _values()
    assert (told["late_rows"], told["untimed_rows"], told["evicted_rows"]) == (3, 2, 4)
    assert told["event_time"] == [
        {
            "chain": "a-0",
            "watermark": NOON,
            "idle": False,
            "late_rows": 0,
            "untimed_rows": 2,
            "ahead_rows": 1,
            "evicted_rows": 0,
            "lag_ms": 90_000,
        },
        {
            "chain": "b-0",
            "watermark": None,
            "idle": True,
            "late_rows": 3,
            "untimed_rows": 0,
            "ahead_rows": 0,
            "evicted_rows": 4,
            "lag_ms": None,
        },
    ]


def test_the_status_for_a_person_says_how_far_each_chain_is() -> None:
    lines = status_text(_values()).splitlines()
    assert (
        "  time      a-0: 2026-03-01T12:00:00.000Z, 90 s behind the clock, 2 rows without a time, "
        "1 row ahead" in lines
    )
    assert "  time      b-0: no watermark yet, idle, 3 rows late" in lines
    assert "  evicted   4 rows of windows with too many keys" in lines
    assert "time " not in status_text(_values(event_time=False))


def test_a_status_of_many_chains_shows_some_and_counts_the_others() -> None:
    told = _values()
    told["event_time"] = [told["event_time"][0]] * (TIMES_SHOWN_MAX + 2)
    lines = status_text(told).splitlines()
    assert sum(line.startswith("  time ") for line in lines) == TIMES_SHOWN_MAX
    assert "            and 2 more chains" in lines


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (NOON + 1, "2026-03-01T12:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**61, "2,305,843,009,213,693,952 ms since 1970"),
        (-(2**61), "-2,305,843,009,213,693,952 ms since 1970"),
    ],
)
def test_a_moment_is_told_by_the_calendar_where_there_is_one(time_ms: int, text: str) -> None:
    assert time_text(time_ms) == text


def test_a_watermark_ahead_of_the_clock_is_told_once_with_what_to_do() -> None:
    story = TimeStory("orders")
    times = [TimeFigures(ChainId("a-0"), NOON), TimeFigures(ChainId("b-0"), NOON + 1)]
    assert story.news(times, WallMs(NOON)) == []
    assert story.news(times, WallMs(NOON + 1 - AHEAD_MS)) == []
    [event] = story.news(times, WallMs(NOON - 7_200_000))
    assert event.warning
    assert event.text.startswith("job orders: chain 'a-0' has a watermark 2 h ahead of the clock: ")
    assert "`watermark.max_future_skew_ms`" in event.text
    assert event.fields["ahead_ms"] == 7_200_000
    assert story.news(times, WallMs(NOON - 7_200_000)) == []


LATE = """\
jobs:
  - id: late
    version: 1
    state: {backend: embedded_kv, durability: ephemeral}
    operators:
      - {id: in, kind: source}
      - id: w
        kind: window
        config: {kind: tumbling, size_ms: 10, timestamp_field: t, key_field: k}
      - {id: out, kind: sink}
    edges: [{id: a, from: in, to: w}, {id: b, from: w, to: out}]
    sources:
      - operator_id: in
        input_type: memory
        codec: json
        config:
          messages: ['{"t": 5, "k": 1}', '{"t": 25, "k": 1}', '{"t": 6, "k": 1}', '{"k": 1}']
        time: {mode: event_time, timestamp_field: t, watermark: {}}
    sinks: [{operator_id: out, output_type: drop}]
"""


def test_a_run_says_what_was_late_and_what_had_no_time(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "late.yaml"
    path.write_text(LATE)
    ran = cli("run", "--inline", path)
    assert ran.code == 0
    lines = ran.err.splitlines()
    assert "  read     4 rows" in "\n".join(lines)
    assert "  late     1 row" in lines
    assert "  no time  1 row" in lines
    assert "ahead of the clock" not in ran.err


def test_a_run_warns_of_rows_from_the_future(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "ahead.yaml"
    path.write_text(LATE.replace('"t": 25', f'"t": {2**50}'))
    told = cli("run", "--inline", path).err
    assert told.count("chain 'in-0' has a watermark") == 1
    assert "days ahead of the clock" in told
