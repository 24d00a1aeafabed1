"""Which sinks are exactly-once, and what inputs that repeat nothing mean for a job (X1, B7)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec, SinkSpec, SourceSpec, StreamSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.ports import ReplayKind
from arkflow_kernel.stream_compiler import compile_stream
from arkflow_kernel.testing.job_changes import CHECKPOINT, Change, all_of, set_at

Jobs = Callable[..., JobSpec]

WITH = set_at("checkpoint", to=CHECKPOINT)


def _files(sink: SinkSpec) -> bool:
    return sink.output_type == "file"


def _nothing(_: SourceSpec) -> ReplayKind:
    return ReplayKind.NONE


def _file(**config: bool) -> Change:
    entry = {"operator_id": "totals", "output_type": "file", "config": config}
    return set_at("sinks", 0, to=entry)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (all_of(WITH, _file()), True),
        (all_of(WITH, _file(exactly_once=True)), True),
        (all_of(WITH, _file(exactly_once=False)), False),
        (WITH, False),
        (_file(), False),
        (all_of(_file(), set_at("operators", 1, "stateful", to=True)), False),
    ],
)
def test_a_sink_is_exactly_once_with_a_checkpoint_block_where_it_can(
    job: Jobs, change: Change, expected: bool
) -> None:
    [sink] = [s for plan in build_graph(job(change), _files).chains for s in plan.sinks]
    assert sink.exactly_once is expected


def test_without_being_told_no_sink_is_exactly_once(job: Jobs) -> None:
    [chain] = build_graph(job(all_of(WITH, _file()))).chains
    assert [sink.exactly_once for sink in chain.sinks] == [False]


def test_a_stream_s_error_output_is_exactly_once_like_its_output(
    stream: Callable[..., StreamSpec],
) -> None:
    spec = stream(output={"type": "file"}, error_output={"type": "file"}, checkpoint=CHECKPOINT)
    [chain] = build_graph(compile_stream(spec, 0).job, _files).chains
    assert {sink.operator: sink.exactly_once for sink in chain.sinks} == {
        "sink": True,
        "error-sink": True,
    }


@pytest.mark.parametrize(("other", "told"), [("./out/", 1), ("out2", 0)])
def test_two_exactly_once_sinks_do_not_share_a_folder(
    stream: Callable[..., StreamSpec], other: str, told: int
) -> None:
    """X3: names of parts would be the same."""
    output = {"type": "file", "path": "out"}
    errors = {"type": "file", "path": other}
    job = compile_stream(stream(output=output, error_output=errors, checkpoint=CHECKPOINT), 0).job
    issues = [i for i in validate_job(job, _files) if "into one folder" in i.message]
    assert len(issues) == told


def test_insisting_is_right_where_the_sink_can(job: Jobs) -> None:
    spec = job(all_of(WITH, _file(exactly_once=True)))
    assert validate_job(spec, _files) == []
    [issue] = validate_job(spec)
    assert issue.path == "sinks[0].config.exactly_once"
    assert issue.message.startswith("sink 'totals' cannot be exactly-once: output 'file' cannot")


def test_an_input_that_repeats_nothing_is_a_warning_that_names_it(job: Jobs) -> None:
    """B7 without `delivery`."""
    [issue] = validate_job(job(), replays=_nothing)
    assert (issue.path, issue.warning) == ("sources[0].input_type", True)
    assert "input 'memory' of 'gates' cannot repeat rows" in issue.message


def test_best_effort_says_that_rows_may_be_lost(job: Jobs) -> None:
    assert validate_job(job(set_at("delivery", to="best_effort")), replays=_nothing) == []


def test_at_least_once_is_refused_for_an_input_that_repeats_nothing(job: Jobs) -> None:
    spec = job(set_at("delivery", to="at_least_once"))
    assert validate_job(spec) == []
    [issue] = validate_job(spec, replays=_nothing)
    assert (issue.path, issue.warning) == ("delivery", False)
    assert "say `best_effort`, or read from an input that can" in issue.message
