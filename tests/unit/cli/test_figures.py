"""Figures, rates and results of jobs."""

import json
from dataclasses import replace

import pytest

from arkflow_kernel.errors import (
    ActorLostError,
    ArkflowError,
    OperatorTimeoutError,
    ProcessingError,
    ProtocolError,
    RestoreError,
    SinkError,
    StoreError,
)
from arkflow_kernel.ids import ChainId, MonotonicMs, OperatorId, OutputId, WallMs
from arkflow_kernel.metrics import ChainStatistics, ChainUsage, ChannelStatistics, OperatorCounts
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, OutcomeKind
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan
from arkflow_ray.observability.figures import (
    CheckpointFigures,
    JobFigures,
    ProcessFigures,
    RateMeter,
    figures,
)
from arkflow_ray.observability.results import advice, job_result, results_json, results_text


def status(*chains: ChainStatistics) -> JobStatus:
    moment = Moment(MonotonicMs(0), WallMs(0))
    return JobStatus(JobState.RUNNING, "", moment, {chain.chain: chain for chain in chains})


def test_figures_are_summed_over_chains() -> None:
    first = ChainStatistics(
        ChainId("a-0"),
        rows_in=10,
        bad_rows=2,
        skipped_rows=1,
        operators=(OperatorCounts(OperatorId("sql"), errors=3),),
        rows_to=((OutputId("out"), 7), (OutputId("err"), 5)),
    )
    second = ChainStatistics(ChainId("a-1"), rows_in=1, rows_to=((OutputId("out"), 1),))
    graph = job_plan(
        chain_plan("a-0", sinks=("out",), error_sink="err"),
        chain_plan("a-1", sinks=("out",)),
        name="j",
    )
    assert figures(graph, status(first, second)) == JobFigures(
        "j", JobState.RUNNING, "", 2, 0, 14, {"out": 8, "err": 5}, 5, 1
    )


def test_rows_between_chains_are_neither_read_nor_written() -> None:
    channel = channel_plan("edge", "a-0", "b-0")
    graph = job_plan(
        chain_plan("a-0", sinks=(), channels=(channel,)),
        chain_plan("b-0", inputs=(channel,), sinks=("out",)),
        name="j",
    )
    sent = (ChannelStatistics(channel.channel, sent=3),)
    first = ChainStatistics(
        ChainId("a-0"), rows_in=10, rows_to=((channel.output, 10),), channels=sent
    )
    second = ChainStatistics(ChainId("b-0"), rows_in=10, rows_to=((OutputId("out"), 9),))
    found = figures(graph, replace(status(first, second), restarts=2))
    assert (found.read, dict(found.written), found.restarts) == (10, {"out": 9}, 2)
    assert found.channels == sent


def test_what_each_process_takes_is_shown_per_chain() -> None:
    chain = ChainId("a-0")
    held = ChainStatistics(chain, held_bytes=9)
    usage = {
        chain: ChainUsage(
            cpu_ms=5, rss_peak_bytes=7, pid=3, loop_lag_ms=2, refused_peers=1, throttled_ms=6
        )
    }
    graph = job_plan(chain_plan("a-0"))
    found = figures(graph, replace(status(held), usage=usage))
    assert found.processes == (ProcessFigures(chain, 3, 9, 7, 5, 2, 1, 6),)


def test_a_rate_is_the_mean_over_the_window() -> None:
    meter = RateMeter(window_s=5.0)
    rates = [meter.sample(float(second), second * 100) for second in range(20)]
    assert rates[0] == 0.0
    assert rates[1:] == [100.0] * 19


def test_a_counter_that_stands_still_has_no_rate() -> None:
    meter = RateMeter(window_s=5.0)
    meter.sample(0.0, 0)
    assert meter.sample(1.0, 100) == 100.0
    assert meter.sample(5.9, 100) > 0
    assert meter.sample(6.1, 100) == 0.0


FINISHED = JobFigures(
    "orders", JobState.FINISHED, "", 1, 1, 2000, {"out": 1990, "out-error": 1}, 1, 9
)


def test_a_result_is_told_in_lines() -> None:
    result = job_result(FINISHED, JobOutcome(OutcomeKind.FINISHED), 2.0)
    assert results_text([result], {"orders": {"out": "stdout"}}) == (
        "orders: finished after 2.0 s\n"
        "  read     2,000 rows, 1,000 rows/s\n"
        "  written  1,990 rows to out (stdout)\n"
        "  written  1 row to out-error\n"
        "  bad      1 row\n"
        "  skipped  9 rows\n"
    )


def test_a_result_after_restarts_says_whose_figures_it_shows() -> None:
    again = job_result(replace(FINISHED, restarts=2), JobOutcome(OutcomeKind.FINISHED), 2.0)
    assert "  restarts 2; the figures are those of the last attempt\n" in results_text([again])
    assert again.as_dict()["restarts"] == 2
    assert again.as_dict()["rows_per_s"] is None, "rows of one attempt in the time of all"
    assert "rows/s" not in results_text([again])


def test_a_result_is_told_in_json() -> None:
    failed = job_result(FINISHED, JobOutcome(OutcomeKind.FAILED, SinkError("full")), 2.0)
    told = json.loads(results_json([failed], 1))
    assert told == {
        "jobs": [
            {
                "job": "orders",
                "outcome": "failed",
                "rows_read": 2000,
                "rows_written": {"out": 1990, "out-error": 1},
                "bad_rows": 1,
                "skipped_rows": 9,
                "late_rows": 0,
                "untimed_rows": 0,
                "evicted_rows": 0,
                "duration_s": 2.0,
                "rows_per_s": 1000.0,
                "restarts": 0,
                "rescales": 0,
                "checkpoint": None,
                "error": {"type": "SinkError", "message": "full"},
            }
        ],
        "exit_code": 1,
    }


@pytest.mark.parametrize(
    ("kind", "checkpoint", "told"),
    [
        (
            OutcomeKind.STOPPED,
            CheckpointFigures(12, None, "file:///c"),
            "  saved    checkpoint 12 in file:///c; the next run of this file continues from it\n",
        ),
        (
            OutcomeKind.FINISHED,
            CheckpointFigures(12, None, "file:///c"),
            "  saved    checkpoint 12 in file:///c; the job is finished\n",
        ),
        (
            OutcomeKind.FAILED,
            CheckpointFigures(0, "checkpoint 9", "file:///c"),
            "  saved    nothing in this run; the next run of this file begins at checkpoint 9\n",
        ),
        (
            OutcomeKind.FAILED,
            CheckpointFigures(0, None, "file:///c"),
            "  saved    nothing in this run; the next run of this file begins at its beginning\n",
        ),
        (
            OutcomeKind.STOPPED,
            CheckpointFigures(3, None, None),
            "  saved    nothing: checkpoints ended with this run; with a `checkpoint:` block a "
            "later run continues\n",
        ),
        (
            OutcomeKind.FINISHED,
            CheckpointFigures(0, "checkpoint 3", "file:///c"),
            "  saved    checkpoint 3 in file:///c, as before\n",
        ),
        (OutcomeKind.FINISHED, CheckpointFigures(3, None, None), ""),
    ],
)
def test_a_result_says_what_is_left_for_a_later_run(
    kind: OutcomeKind, checkpoint: CheckpointFigures, told: str
) -> None:
    result = job_result(replace(FINISHED, checkpoint=checkpoint), JobOutcome(kind), 2.0)
    text = results_text([result])
    assert told in text
    assert ("  saved  " in text) == bool(told)


def test_a_start_that_was_refused_or_made_no_claim_promises_nothing_of_the_next_one() -> None:
    at_start = replace(FINISHED, read=0, checkpoint=CheckpointFigures(0, None, "file:///c"))
    refused = JobOutcome(OutcomeKind.FAILED, RestoreError("cannot be restored"))
    assert "  saved  " not in results_text([job_result(at_start, refused, 2.0)])
    unreached = JobOutcome(OutcomeKind.FAILED, StoreError("not there"))
    text = results_text([job_result(at_start, unreached, 2.0)])
    assert "its beginning" not in text
    told = "nothing in this run; `arkflow-ray checkpoints orders --config FILE` shows what there is"
    assert f"  saved    {told}\n" in text


def test_a_failure_is_told_with_its_notes_and_what_to_do() -> None:
    error = ProcessingError("sql", "division by zero")
    error.add_note("and while closing: x")
    result = job_result(FINISHED, JobOutcome(OutcomeKind.FAILED, error), 0.0)
    text = results_text([result])
    assert "  error    operator 'sql' failed: division by zero\n           and while" in text
    assert "  to do    correct the operator" in text
    assert result.rows_per_s == 0.0


@pytest.mark.parametrize(
    ("kind", "error", "told"),
    [
        (OutcomeKind.FINISHED, None, None),
        (OutcomeKind.STOPPED, None, None),
        (OutcomeKind.CANCELLED, None, "given; the last of it may not be confirmed"),
        (OutcomeKind.FAILED, SinkError("full"), "given; the last of it may not be confirmed"),
        (OutcomeKind.FAILED, ActorLostError("gone"), "the last that its process reported"),
    ],
)
def test_figures_of_a_job_that_was_cut_short_say_what_they_are(
    kind: OutcomeKind, error: ArkflowError | None, told: str | None
) -> None:
    text = results_text([job_result(FINISHED, JobOutcome(kind, error), 2.0)])
    assert ("  note " in text) == (told is not None)
    assert told is None or f"{told}\n" in text


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OperatorTimeoutError("x", 5), ""),
        (ProcessingError("x", "y"), "error_output"),
        (ProtocolError("x"), "report it"),
        (ActorLostError("x"), "out of memory"),
        (SinkError("x"), ""),
    ],
)
def test_advice_is_given_where_the_message_has_none(error: ArkflowError, told: str) -> None:
    assert told in advice(error)
    assert bool(advice(error)) is bool(told)
