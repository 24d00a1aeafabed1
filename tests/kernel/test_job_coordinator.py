"""The machine of a job: state x event, and what a chain hears of it (B2, D1, D2, D4, D5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ProtocolError, SourceError
from arkflow_kernel.ids import ChainId, CheckpointId, Generation, RequestToken
from arkflow_kernel.limits import TRANSITIONS_KEPT_MAX
from arkflow_kernel.protocol import (
    ChainConnected,
    ChainReady,
    ControlState,
    Desired,
    JobState,
    KillChain,
    OutcomeKind,
)
from arkflow_kernel.testing.hand_driven_job import G1, HandDrivenJob

NAMES = ("a", "b", "c")

rounds = st.integers(0, 5)
kinds = {n: list(RoundKind)[n % len(RoundKind)] for n in range(6)}
states = st.builds(
    lambda desired, round_id, failed, completed: ControlState(
        G1,
        desired,
        CheckpointId(round_id),
        kinds[round_id],
        CheckpointId(failed),
        CheckpointId(completed),
    ),
    st.sampled_from(Desired),
    rounds,
    rounds,
    rounds,
)


@given(states, states, states)
def test_control_states_merge_in_any_order_and_any_number(
    a: ControlState, b: ControlState, c: ControlState
) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))
    assert a.merged(a) == a
    assert a.merged(b).merged(b) == a.merged(b)
    assert a.merged(b).desired == max(a.desired, b.desired)


script = st.lists(
    st.tuples(
        st.sampled_from(
            ["ready", "connected", "ended", "failed", "report", "stale", "kill", "tick", "wait"]
            + ["ready", "connected", "up"] * 3
        ),
        st.sampled_from(NAMES),
    ),
    min_size=30,
)


def _step(job: HandDrivenJob, what: str, name: str) -> None:
    """One event that a driver may hand over now, if there is one of this kind."""
    chain = ChainId(name)
    built = chain in job.deployed and chain not in job.deploys
    match what:
        case "ready" if chain in job.deploys:
            job.ready(name)
        case "connected" if chain in job.connects:
            job.connected(name)
        case "up":
            job.answer_all()
        case "ended" if built and chain not in job.connects:
            job.ended(name)
        case "failed" if chain in job.deployed:
            job.ended(name, OutcomeKind.FAILED)
        case "report" if built:
            job.report(name)
        case "stale" if job.generation > 1:
            stale, before = Generation(job.generation - 1), job.machine.status()
            job.report(name, 99, generation=stale)
            job.ended(name, OutcomeKind.FAILED, generation=stale)
            assert job.machine.status() == before
        case "kill" if job.kills:
            killed = job.kills.pop(0)
            job.lost(killed.chain, generation=killed.generation)
        case "tick":
            job.tick(60)
        case "wait":
            job.tick(3_000)


@given(script, st.sampled_from(["", "stop", "cancel"]), st.integers(0, 60))
def test_any_legal_sequence_of_events_leads_to_a_legal_state_and_then_to_an_end(
    steps: list[tuple[str, str]], asked: str, at: int
) -> None:
    job = HandDrivenJob(*NAMES)
    job.begin()
    for number, (what, name) in enumerate(steps):
        if number == at and asked:
            job.ask(asked)
        _step(job, what, name)
    history = job.all_transitions()
    assert [transition.number for transition in history] == [*range(1, len(history) + 1)]
    after = [transition.after for transition in history]
    assert [transition.before for transition in history] == [JobState.CREATED, *after[:-1]]
    assert job.machine.status().transitions == tuple(history[-TRANSITIONS_KEPT_MAX:])
    assert all(transition.cause for transition in history)
    assert job.machine.ended == (job.end is not None)
    assert job.machine.next_deadline_ms() is None or not job.machine.ended
    assert job.generation == 1 + job.machine.status().restarts
    job.ask("cancel")
    for name in list(job.deployed):
        job.ended(name, OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.ends == 1


@given(script)
def test_a_cancelled_job_ends_whatever_its_chains_do(steps: list[tuple[str, str]]) -> None:
    job = HandDrivenJob(*NAMES)
    job.begin()
    for what, name in steps:
        if what in ("ready", "connected", "report"):
            _step(job, what, name)
    job.ask("cancel")
    job.tick(100)
    assert {kill.chain for kill in job.kills} == set(NAMES)
    while job.kills:
        job.lost(job.kills.pop(0).chain)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED
    assert job.end.outcome.error is None


def test_no_chain_is_connected_before_all_are_ready_and_none_hears_before_all_are_connected() -> (
    None
):
    job = HandDrivenJob("a", "b")
    job.begin()
    job.ready("a")
    job.report("a")
    assert job.connects == {}
    assert job.machine.status().ready == 1
    job.ready("b")
    assert set(job.connects) == {"a", "b"}
    job.connected("b")
    job.report("b")
    assert job.heard == {}
    assert job.machine.status().state is JobState.DEPLOYING
    job.connected("a")
    assert {name: state.desired for name, state in job.heard.items()} == {
        "a": Desired.RUN,
        "b": Desired.RUN,
    }
    assert job.machine.status().state is JobState.RUNNING


def test_a_failed_first_deployment_ends_the_job_and_names_the_error() -> None:
    job = HandDrivenJob("a", "b")
    job.begin()
    job.ready("b")
    job.ended("a", OutcomeKind.FAILED)
    assert job.heard == {ChainId("b"): ControlState(G1, Desired.CANCEL)}
    assert job.machine.status().state is JobState.RESTARTING
    assert job.machine.status().cause == "chain 'a' failed: a broke"
    job.ended("b", OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED
    assert str(job.end.outcome.error) == "a broke"
    assert job.machine.status().cause == "a broke; the first deployment is not repeated"
    assert getattr(job.end.outcome.error, "__notes__", []) == [], "its own words say it all"


def test_a_process_that_goes_away_after_its_chain_finished_fails_nothing() -> None:
    job = HandDrivenJob("a")
    job.run()
    job.ended("a", OutcomeKind.FINISHED)
    job.ended("a", OutcomeKind.FAILED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FINISHED


def test_the_worst_end_of_a_chain_is_the_end_of_the_job() -> None:
    job = HandDrivenJob("a", "b", "c")
    job.run()
    job.ask("stop")
    job.ended("a", OutcomeKind.FINISHED)
    job.ended("b", OutcomeKind.STOPPED)
    assert job.end is None
    job.ended("c", OutcomeKind.FINISHED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED


def test_a_cancelled_chain_that_does_not_end_is_killed_alone_and_again() -> None:
    job = HandDrivenJob("a", "b")
    job.run()
    job.ask("cancel")
    job.ended("b", OutcomeKind.CANCELLED)
    assert job.machine.next_deadline_ms() == 100
    job.tick(99)
    assert job.kills == []
    job.tick(1)
    assert job.kills == [KillChain(ChainId("a"), G1)]
    assert job.machine.next_deadline_ms() == 200
    job.tick(99)
    assert job.kills == [KillChain(ChainId("a"), G1)]
    job.tick(1)
    assert job.kills == [KillChain(ChainId("a"), G1)] * 2
    job.lost("a")
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED


def test_a_lost_control_message_is_sent_again_with_the_next_report() -> None:
    job = HandDrivenJob("a", "b")
    job.run()
    job.ask("stop")
    job.heard.clear()
    job.report("a")
    assert job.heard == {ChainId("a"): ControlState(G1, Desired.STOP)}
    job.ended("a", OutcomeKind.STOPPED)
    job.heard.clear()
    job.report("a")
    assert job.heard == {}


def test_answers_of_a_chain_that_already_died_are_ignored() -> None:
    job = HandDrivenJob("a", "b")
    job.begin()
    job.ended("a", OutcomeKind.FAILED)
    job.ready("a")
    assert job.heard == {}
    assert job.machine.status().ready == 0
    job.ready("b")
    assert job.heard[ChainId("b")].desired is Desired.CANCEL
    assert job.connects == {}


def test_a_stop_while_deploying_is_heard_when_all_are_connected() -> None:
    job = HandDrivenJob("a")
    job.begin()
    job.ask("stop")
    assert job.machine.status().state is JobState.DEPLOYING
    job.answer_all()
    assert job.heard[ChainId("a")].desired is Desired.STOP
    assert job.machine.status().state is JobState.STOPPING
    job.ended("a", OutcomeKind.STOPPED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED


def test_a_job_that_was_cancelled_before_it_began_deploys_nothing() -> None:
    job = HandDrivenJob("a")
    job.ask("cancel")
    job.ask("cancel")
    job.begin()
    assert job.deployed == set()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED


def test_an_answer_that_nobody_asked_for_is_a_protocol_error_with_the_story() -> None:
    job = HandDrivenJob("a", "b")
    at = job.clock.moment()
    with pytest.raises(ProtocolError, match="unasked answer"):
        job.take(ChainReady(at, RequestToken(9), ChainId("a")))
    job.begin()
    with pytest.raises(ProtocolError, match="unasked answer"):
        job.take(ChainReady(at, job.deploys[ChainId("a")], ChainId("b")))
    with pytest.raises(ProtocolError, match="unasked answer"):
        job.take(ChainConnected(at, RequestToken(9), ChainId("a")))
    with pytest.raises(ProtocolError, match="a job begins once") as failure:
        job.begin()
    assert failure.value.story[-1].startswith("Begin")


def test_a_failure_after_a_cancel_is_the_jobs_error_and_a_broken_channel_is_not() -> None:
    job = HandDrivenJob("a", "b", "c")
    job.run()
    job.ask("cancel")
    job.broken("a")
    job.ended("b", OutcomeKind.FAILED, SourceError("the source did not close"))
    job.ended("c", OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED
    assert str(job.end.outcome.error) == "the source did not close"
    assert job.machine.status().cause == (
        "the source did not close; it is not restarted: a cancel was requested"
    )
