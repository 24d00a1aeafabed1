"""Whole jobs on the inline driver, in virtual time (T3, T4, R3)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from arkflow_kernel.chain_work import with_close_errors
from arkflow_kernel.errors import ComponentError, SinkError, SourceError
from arkflow_kernel.ids import RequestToken
from arkflow_kernel.inline import InlineJob, InlineRunner
from arkflow_kernel.job_runner_adapter import JobRunner
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph, RestartPlan
from arkflow_kernel.protocol import (
    ChainEvent,
    ChainOutcome,
    JobState,
    OutcomeKind,
    RequestFailed,
)
from arkflow_kernel.testing.components import (
    ScriptedComponents,
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
)
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock


class World:
    """One chain of source, operator, two sinks; the job on it."""

    def __init__(self, **parts: Any) -> None:
        self.source = parts.pop("source", None) or ScriptedSource({"a": (3, 2), "b": (4,)})
        self.operator = parts.pop("operator", None) or ScriptedOperator()
        self.sink = parts.pop("sink", None) or ScriptedSink()
        self.errors = ScriptedSink()
        self.clock = VirtualClock()
        self.components = ScriptedComponents(
            {"source": self.source},
            {"op": self.operator},
            {"sink": self.sink, "errors": self.errors},
        )
        restart = RestartPlan(parts.pop("restart", "none"))
        chain = chain_plan(operators=("op",), error_sink="errors", **parts)
        self.graph: ExecutionGraph = replace(job_plan(chain), restart=restart)

    def job(self, **named: Any) -> InlineJob:
        return InlineJob(self.graph, self.components, self.clock, **named)

    def check_closed(self) -> None:
        for part in (self.source, self.operator, self.sink, self.errors):
            assert part.closed == part.opened <= 1


ALL = [("a", n) for n in range(5)] + [("b", n) for n in range(4)]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("sink", [ScriptedSink, lambda: ScriptedSink(roll_ms=70)])
def test_a_bounded_job_finishes_with_every_row(
    workers: int, sink: Callable[[], ScriptedSink]
) -> None:
    world = World(sink=sink(), workers=workers)
    runner: JobRunner = InlineRunner(world.components, world.clock)
    handle: KernelHandle = runner.run_job(world.graph)
    outcome = handle.wait()
    assert outcome.kind is OutcomeKind.FINISHED
    assert handle.wait() == outcome
    assert sorted(world.sink.published) == ALL
    assert world.errors.published == []
    status = handle.status()
    (statistics,) = status.chains.values()
    assert status.state is JobState.FINISHED
    assert (statistics.rows_in, statistics.settled_rows, statistics.rows_out) == (9, 9, 9)
    world.check_closed()


def test_a_paced_source_with_pauses_takes_its_virtual_time() -> None:
    world = World(
        source=ScriptedSource({"a": (10, 10, 10)}, pause_every=2, pause_ms=7),
        rows_per_second=10.0,
    )
    started = world.clock.moment().now_ms
    assert world.job().wait().kind is OutcomeKind.FINISHED
    assert world.clock.moment().now_ms - started >= 2_000
    assert len(world.sink.published) == 30


def test_bad_rows_and_failed_batches_reach_the_error_output_and_the_job_finishes() -> None:
    world = World(
        source=ScriptedSource({"a": (3, 3)}, bad=lambda _s, n: n == 1),
        operator=ScriptedOperator(fails=lambda _s, n: n == 3),
    )
    assert world.job().wait().kind is OutcomeKind.FINISHED
    assert world.sink.published == [("a", 0), ("a", 2)]
    assert world.errors.published == [("a", 1), ("a", 3), ("a", 4), ("a", 5)]


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({"source": ScriptedSource({"a": (1, 1)}, fail_read_at=2)}, SourceError),
        ({"source": ScriptedSource({"a": (1,)}, fail_open=True)}, SourceError),
        ({"operator": ScriptedOperator(fail_open=True)}, ComponentError),
        ({"sink": ScriptedSink(fail_write_at=1)}, SinkError),
    ],
)
def test_a_failure_ends_the_job_with_its_error_and_everything_closed(
    parts: dict[str, Any], kind: type[Exception]
) -> None:
    world = World(**parts)
    outcome = world.job().wait()
    assert outcome.kind is OutcomeKind.FAILED
    assert type(outcome.error) is kind
    world.check_closed()


def test_a_failed_attempt_continues_where_everything_was_settled() -> None:
    """D3: the first restart is immediate; what was written and not confirmed comes again (F1)."""
    source = ScriptedSource({"a": (1,) * 6}, fail_read_at=4)
    world = World(source=source, restart="exponential")
    job = world.job()
    assert job.wait().kind is OutcomeKind.FINISHED
    assert sorted(set(world.sink.published)) == [("a", n) for n in range(6)]
    status = job.status()
    assert (status.restarts, status.generation, source.opened) == (1, 2, 2)
    again = next(t.cause for t in status.transitions if t.cause.startswith("restart 1"))
    assert "source 'source' continues at the positions that it reported" in again


def test_a_stop_settles_what_was_read() -> None:
    world = World(source=ScriptedSource({"a": (1,) * 50}))
    job: InlineJob = world.job(
        observer=lambda machine, _e, _c: job.stop() if machine != "coordinator" else 0
    )
    assert job.wait().kind is OutcomeKind.STOPPED
    published = world.sink.published
    assert published == [("a", n) for n in range(len(published))]
    assert len(published) < 50
    world.check_closed()


def test_a_cancel_ends_the_job_without_a_flush() -> None:
    world = World(source=ScriptedSource({"a": (1,) * 50}), sink=ScriptedSink(roll_ms=10_000))
    job: InlineJob = world.job(
        observer=lambda machine, _e, _c: (
            job.cancel() if machine != "coordinator" and world.sink.writes else None
        )
    )
    assert job.wait().kind is OutcomeKind.CANCELLED
    assert world.sink.published == []
    world.check_closed()


def test_closing_that_fails_is_not_hidden() -> None:
    outcome = World(sink=ScriptedSink(fail_close=True)).job().wait()
    assert outcome.kind is OutcomeKind.FAILED
    assert "does not close" in str(outcome.error)


def test_errors_of_closing_are_noted_on_the_error_that_came_first() -> None:
    error = SourceError("gone")
    failed = ChainOutcome(OutcomeKind.FAILED, error)
    assert with_close_errors(failed, [OSError("stuck")]) is failed
    assert error.__notes__ == ["and while closing: stuck"]
    good = ChainOutcome(OutcomeKind.FINISHED)
    assert with_close_errors(good, []) is good
    own = SinkError("lost")
    assert with_close_errors(good, [own]).error is own


def test_a_caller_may_answer_instead_of_work_that_hangs() -> None:
    world = World()

    def caller(
        work: Callable[[], ChainEvent], overdue: Callable[[], ChainEvent | None]
    ) -> ChainEvent:
        assert overdue() is None
        event = work()
        token = getattr(event, "token", RequestToken(0))
        return RequestFailed(world.clock.moment(), token, SourceError("hung"))

    assert str(world.job(caller=caller).wait().error) == "hung"


def test_two_chains_of_a_job_end_together() -> None:
    world = World()
    other = ScriptedSource({"c": (1,) * 3})
    world.components.sources["other"] = other
    world.components.sinks["other-sink"] = ScriptedSink()
    chains = world.graph.chains
    world.graph = job_plan(*chains, chain_plan("chain-1", source="other", sinks=("other-sink",)))
    job = world.job()
    assert job.wait().kind is OutcomeKind.FINISHED
    assert len(job.status().chains) == 2
    assert other.closed == 1
