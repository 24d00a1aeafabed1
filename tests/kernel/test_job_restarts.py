"""A failed attempt and the one that follows: who is cancelled, killed, restored (D2, D3, D4)."""

import pytest

from arkflow_kernel.errors import ActorLostError, ChannelError, ProcessingError, SourceError
from arkflow_kernel.ids import ChainId, Generation, SplitId
from arkflow_kernel.limits import HEARTBEAT_TIMEOUT_MS
from arkflow_kernel.metrics import Wait
from arkflow_kernel.plan import Mode, RestartPlan
from arkflow_kernel.ports import ReplayKind, SplitPosition
from arkflow_kernel.protocol import (
    ChainConnected,
    ChainReady,
    ControlState,
    Desired,
    JobOutcome,
    JobState,
    KillChain,
    OutcomeKind,
)
from arkflow_kernel.testing.hand_driven_job import G1, HandDrivenJob
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan

G2 = Generation(2)
A, B = ChainId("a"), ChainId("b")
CANCELLED = OutcomeKind.CANCELLED


def _two_chains(restart: RestartPlan | None = None, mode: Mode = Mode.ACK) -> HandDrivenJob:
    """Chain `a` reads a source and sends to chain `b`."""
    channel = channel_plan("e", "a", "b")
    first = chain_plan("a", sinks=(), channels=(channel,))
    graph = job_plan(first, chain_plan("b", inputs=(channel,)), restart=restart, mode=mode)
    return HandDrivenJob(graph=graph)


def _positions(row: int) -> tuple[SplitPosition, ...]:
    return (SplitPosition(SplitId("a"), {"row": row}),)


def _restarted() -> HandDrivenJob:
    """A job in its second attempt, which runs; the next failure waits a second."""
    job = _two_chains()
    job.run()
    job.lost("a")
    job.ended("b", CANCELLED)
    job.answer_all()
    assert job.machine.status().state is JobState.RUNNING
    return job


def test_a_failure_cancels_every_chain_and_deploys_all_again_where_the_source_was_settled() -> None:
    job = _two_chains()
    job.run()
    job.report("a", 40)
    job.tick(250)
    job.ended("b", OutcomeKind.FAILED)
    assert job.machine.status().state is JobState.RESTARTING
    assert job.heard[A] == ControlState(G1, Desired.CANCEL)
    assert job.generation == G1, "nothing is deployed before every chain has ended"
    job.ended("a", CANCELLED, row=60)
    assert job.generation == G2
    assert job.restored == {A: _positions(60), B: ()}
    status = job.machine.status()
    assert status.state is JobState.DEPLOYING
    assert (status.generation, status.restarts) == (G2, 1)
    assert status.cause == (
        "restart 1: source 'source' continues at the positions that it reported 0.0 s before: "
        "what was written beyond them is repeated"
    )
    assert job.heard == {}
    job.answer_all()
    assert job.heard == {A: ControlState(G2), B: ControlState(G2)}
    job.ended("a")
    job.ended("b")
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FINISHED
    assert job.end.outcome.error is None


def test_a_chain_whose_process_died_says_nothing_and_its_last_report_counts() -> None:
    job = _two_chains()
    job.run()
    job.report("a", 40)
    job.tick(1_500)
    job.lost("a")
    job.ended("b", CANCELLED)
    assert job.restored[A] == _positions(40)
    assert "that it reported 1.5 s before" in job.machine.status().cause


def test_the_first_restart_is_immediate_and_the_second_waits_for_its_tick() -> None:
    job = _restarted()
    job.ended("b", OutcomeKind.FAILED)
    job.ended("a", CANCELLED)
    now = job.clock.moment().now_ms
    assert job.machine.next_deadline_ms() == now + 1_000
    assert job.machine.status().state is JobState.RESTARTING
    assert job.machine.status().cause == (
        "chain 'b' failed: b broke; the next attempt starts in 1 s"
    )
    job.tick(999)
    assert job.generation == G2
    job.tick(1)
    assert job.generation == 3


def test_a_lost_process_restarts_even_the_first_deployment() -> None:
    job = _two_chains()
    job.begin()
    job.lost("a")
    job.ready("b")
    assert job.heard == {B: ControlState(G1, Desired.CANCEL)}
    job.ended("b", CANCELLED)
    assert job.generation == G2
    assert "source 'source' starts at its beginning" in job.machine.status().cause


def test_a_broken_channel_gives_way_to_the_failure_that_broke_it() -> None:
    for late in ("error", "process"):
        job = _two_chains()
        job.run()
        job.broken("a")
        assert job.machine.status().cause == "chain 'a' failed: a channel of a broke"
        if late == "error":
            job.ended("b", OutcomeKind.FAILED, SourceError("disk full"))
        else:
            job.lost("b")
        failure = "disk full" if late == "error" else "the process of b died"
        causes = [transition.cause for transition in job.machine.status().transitions]
        assert f"chain 'b' failed: {failure}; the next attempt starts at once" in causes


def test_a_silent_chain_is_killed_after_ten_seconds_and_the_attempt_restarted() -> None:
    job = _two_chains()
    job.run()
    job.tick(4_000)
    job.report("a", 7)
    assert job.machine.next_deadline_ms() == HEARTBEAT_TIMEOUT_MS, "nobody heard of b"
    job.tick(HEARTBEAT_TIMEOUT_MS - 4_000 - 1)
    assert job.kills == []
    job.tick(1)
    assert job.kills == [KillChain(B, G1)]
    job.tick(1_000)
    assert job.kills == [KillChain(B, G1)], "once"
    job.lost("b")
    assert job.heard[A].desired is Desired.CANCEL
    cause = job.machine.status().cause
    assert cause == (
        "chain 'b' failed: the process of chain 'b' did not answer for 10 s; it is killed"
    )
    job.ended("a", CANCELLED, row=9)
    assert job.generation == G2
    assert job.restored[A] == _positions(9)


def test_nobody_is_silent_before_all_are_connected() -> None:
    job = _two_chains()
    job.begin()
    job.ready("a")
    job.tick(3 * HEARTBEAT_TIMEOUT_MS)
    assert job.kills == []
    assert job.machine.next_deadline_ms() is None


def test_a_chain_that_does_not_follow_the_cancel_of_a_failed_attempt_is_killed() -> None:
    job = _two_chains()
    job.run()
    job.ended("a", OutcomeKind.FAILED, row=5)
    job.tick(100)
    assert job.kills == [KillChain(B, G1)]
    assert job.generation == G1
    job.lost("b")
    assert job.generation == G2
    causes = [transition.cause for transition in job.machine.status().transitions]
    assert "chain 'a' failed: a broke; the next attempt starts at once" in causes


@pytest.mark.parametrize("early", [True, False], ids=["in the teardown", "between attempts"])
def test_a_stop_after_a_failure_ends_the_job_as_stopped_with_the_cause(early: bool) -> None:
    job = _restarted()
    job.lost("a")
    if early:
        job.ask("stop")
        assert job.heard[B].desired is Desired.CANCEL
        assert job.end is None
    job.ended("b", CANCELLED)
    if not early:
        job.ask("stop")
    assert job.end is not None
    assert job.end.outcome == JobOutcome(OutcomeKind.STOPPED)
    assert job.generation == G2
    assert job.machine.next_deadline_ms() is None
    assert job.machine.status().cause == (
        "chain 'a' failed: the process of a died; it is not restarted: a stop was requested"
    )


def test_a_stop_does_not_hide_a_failure_that_ends_the_job_anyway() -> None:
    job = _two_chains(RestartPlan("none"))
    job.run()
    job.lost("a")
    job.ask("stop")
    job.ended("b", CANCELLED)
    assert job.end is not None
    assert isinstance(job.end.outcome.error, ActorLostError)
    assert job.machine.status().cause.endswith("`restart.strategy` is `none`")


def test_a_chain_that_fails_while_the_job_stops_makes_the_job_fail() -> None:
    job = _two_chains()
    job.run()
    job.ask("stop")
    job.ended("a", OutcomeKind.FAILED)
    job.ended("b", CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED
    assert job.machine.status().cause == "a broke; it is not restarted: a stop was requested"


def test_a_stop_while_the_next_attempt_is_deployed_is_heard_by_it() -> None:
    job = _two_chains()
    job.run()
    job.lost("a")
    job.ended("b", CANCELLED)
    job.ask("stop")
    job.answer_all()
    assert job.heard == dict.fromkeys((A, B), ControlState(G2, Desired.STOP))
    assert job.machine.status().state is JobState.STOPPING


def test_a_cancel_between_two_attempts_ends_the_job_at_once() -> None:
    job = _restarted()
    job.lost("a")
    job.ended("b", CANCELLED)
    job.ask("cancel")
    assert job.end is not None
    assert job.end.outcome.kind is CANCELLED
    assert job.end.outcome.error is None


def test_a_cancel_while_a_failed_attempt_is_torn_down_wins_over_the_failure() -> None:
    job = _two_chains()
    job.run()
    job.ended("a", OutcomeKind.FAILED)
    job.ask("cancel")
    assert job.machine.status().state is JobState.STOPPING
    job.ended("b", CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is CANCELLED
    assert job.generation == G1


def test_words_of_an_attempt_before_change_nothing() -> None:
    job = _two_chains()
    job.run()
    job.report("a", 40)
    job.lost("a")
    tokens = dict(job.deploys)
    assert tokens == {}
    job.ended("b", CANCELLED)
    before = job.machine.status()
    at = job.clock.moment()
    stale = min(job.deploys.values())
    for token in range(1, stale):
        job.take(ChainReady(at, type(stale)(token), A))
        job.take(ChainConnected(at, type(stale)(token), B))
    job.report("a", 99, generation=G1)
    job.ended("a", OutcomeKind.FAILED, row=99, generation=G1)
    job.ended("b", OutcomeKind.FINISHED, generation=G1)
    assert job.machine.status() == before
    assert job.heard == {}
    job.answer_all()
    job.lost("b")
    job.ended("a", CANCELLED)
    job.tick(1_000)
    assert job.restored[A] == _positions(40), "99 was never settled in an attempt that counts"


def test_an_operator_that_fails_three_attempts_in_a_row_without_progress_ends_the_job() -> None:
    job = _two_chains(RestartPlan("fixed", initial_ms=10))
    job.run()
    error = ProcessingError("sum", "division by zero", error_class="ZeroDivisionError")
    for attempt in (1, 2, 3):
        assert job.generation == attempt
        job.report("a", 40)
        job.ended("b", OutcomeKind.FAILED, error)
        job.ended("a", CANCELLED, row=40)
        job.tick(10)
        job.answer_all()
    assert job.end is not None
    assert job.end.outcome.error is error
    assert "operator 'sum' ended 3 attempts in a row" in job.machine.status().cause


def test_an_operator_that_fails_at_another_place_each_time_is_tried_again() -> None:
    job = _two_chains(RestartPlan("fixed", initial_ms=10))
    job.run()
    error = ProcessingError("sum", "division by zero", error_class="ZeroDivisionError")
    for attempt in range(1, 8):
        assert job.generation == attempt
        job.ended("b", OutcomeKind.FAILED, error)
        job.ended("a", CANCELLED, row=attempt)
        job.tick(10)
        job.answer_all()
    assert job.end is None


def test_a_source_that_repeats_nothing_says_so_in_the_cause() -> None:
    job = _two_chains()
    job.begin()
    job.ready("a", ReplayKind.NONE)
    job.answer_all()
    job.ended("a", OutcomeKind.FAILED, ChannelError("gone"))
    job.ended("b", CANCELLED)
    assert "cannot repeat anything" in job.machine.status().cause


def test_what_stalls_is_shown_until_its_chain_ends_or_says_otherwise() -> None:
    job = _two_chains()
    job.run()
    wait = Wait("channel e[0-0]", "chain 'b' gives no credit", 31_000)
    job.report("a", waits=(wait,))
    assert job.machine.status().waits == {A: (wait,)}
    job.report("a")
    assert job.machine.status().waits == {}
    job.report("a", waits=(wait,))
    job.lost("a")
    assert job.machine.status().waits == {}
