"""The machine of a job: state x event, and what a chain hears of it (B2, D1, D4, D5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ProtocolError, SourceError
from arkflow_kernel.ids import ChainId, CheckpointId, Generation, RequestToken
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainClosed,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    ChainReport,
    CloseChain,
    ControlState,
    CoordinatorEvent,
    DeployChain,
    Desired,
    EndJob,
    JobState,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
)
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)
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


class Job:
    def __init__(self, *names: str) -> None:
        graph = job_plan(*(chain_plan(name) for name in names))
        self.machine = JobCoordinator(graph, G1, teardown_timeout_ms=100)
        self.clock = VirtualClock()
        self.deploys: dict[ChainId, RequestToken] = {}
        self.closes: list[CloseChain] = []
        self.heard: dict[ChainId, ControlState] = {}
        self.end: EndJob | None = None

    def take(self, event: CoordinatorEvent) -> None:
        for command in self.machine.handle(event):
            assert self.end is None, "nothing follows the end"
            match command:
                case DeployChain():
                    self.deploys[command.plan.chain] = command.token
                case SendControl():
                    self.heard[command.chain] = command.state
                case CloseChain():
                    self.closes.append(command)
                case EndJob():
                    self.end = command
        self.machine.validate()

    def begin(self) -> None:
        self.take(Begin(self.clock.moment()))

    def ready(self, name: str) -> None:
        token = self.deploys.pop(ChainId(name))
        self.take(ChainReady(self.clock.moment(), token, ChainId(name)))

    def ended(self, name: str, kind: OutcomeKind = OutcomeKind.FINISHED) -> None:
        error = SourceError(f"{name} broke") if kind is OutcomeKind.FAILED else None
        outcome = ChainOutcome(kind, error)
        self.take(ChainEnded(self.clock.moment(), ChainId(name), outcome))

    def closed(self) -> None:
        command = self.closes.pop(0)
        self.take(ChainClosed(self.clock.moment(), command.token, command.chain))

    def report(self, name: str) -> None:
        report = ChainReport(self.clock.moment(), ChainId(name), ChainStatistics(ChainId(name)))
        self.take(report)

    def tick(self, by_ms: int) -> None:
        self.take(Tick(self.clock.advance(by_ms)))


script = st.lists(
    st.tuples(
        st.sampled_from(
            ["ready", "ended", "failed", "closed", "report", "stop", "cancel", "tick"],
        ),
        st.sampled_from(NAMES),
    ),
    max_size=40,
)


@given(script)
def test_any_legal_sequence_of_events_leads_to_a_legal_state(
    steps: list[tuple[str, str]],
) -> None:
    job = Job(*NAMES)
    job.begin()
    for what, name in steps:
        deployed = ChainId(name) not in job.deploys
        if what == "ready" and not deployed:
            job.ready(name)
        elif what == "ended" and deployed:
            job.ended(name)
        elif what == "failed":
            job.ended(name, OutcomeKind.FAILED)
        elif what == "closed" and job.closes:
            job.closed()
        elif what == "report" and deployed:
            job.report(name)
        elif what == "stop":
            job.take(StopRequested(job.clock.moment()))
        elif what == "cancel":
            job.take(CancelRequested(job.clock.moment()))
        elif what == "tick":
            job.tick(60)
    before = [transition.before for transition in job.machine.transitions]
    after = [transition.after for transition in job.machine.transitions]
    assert before == [JobState.CREATED, *after[:-1]]
    assert all(transition.cause for transition in job.machine.transitions)
    assert job.machine.ended == (job.end is not None)
    due = job.machine.next_deadline_ms()
    assert due is None or not job.machine.ended


@given(script)
def test_a_cancelled_job_ends_whatever_its_chains_do(steps: list[tuple[str, str]]) -> None:
    job = Job(*NAMES)
    job.begin()
    for what, name in steps:
        if what == "ready" and ChainId(name) in job.deploys:
            job.ready(name)
    job.take(CancelRequested(job.clock.moment()))
    job.tick(100)
    assert {close.chain for close in job.closes if close.kill} == set(NAMES)
    while job.closes:
        job.closed()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED


def test_no_chain_hears_anything_before_all_are_ready() -> None:
    job = Job("a", "b")
    job.begin()
    job.ready("a")
    job.report("a")
    assert job.heard == {}
    assert job.machine.status().ready == 1
    job.ready("b")
    assert set(job.heard) == {"a", "b"}
    assert job.machine.status().state is JobState.RUNNING


def test_the_first_failure_decides_and_the_others_are_cancelled() -> None:
    job = Job("a", "b")
    job.begin()
    job.ready("a")
    job.ready("b")
    job.ended("a", OutcomeKind.FAILED)
    assert job.heard[ChainId("b")].desired is Desired.CANCEL
    assert job.machine.status().state is JobState.STOPPING
    assert job.machine.status().cause == "chain 'a' failed"
    job.ended("b", OutcomeKind.FAILED)
    job.closed()
    job.closed()
    assert job.end is not None
    assert str(job.end.outcome.error) == "a broke"
    assert job.machine.status().cause == "a broke"


def test_a_process_that_goes_away_after_its_chain_finished_fails_nothing() -> None:
    job = Job("a")
    job.begin()
    job.ready("a")
    job.ended("a", OutcomeKind.FINISHED)
    job.ended("a", OutcomeKind.FAILED)
    job.closed()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FINISHED


def test_a_finished_chain_that_does_not_confirm_its_closing_is_killed_alone() -> None:
    job = Job("a", "b")
    job.begin()
    job.ready("a")
    job.ready("b")
    job.ended("a")
    assert job.machine.next_deadline_ms() == 100
    job.tick(99)
    assert [close.kill for close in job.closes] == [False]
    job.tick(1)
    assert [(close.chain, close.kill) for close in job.closes] == [("a", False), ("a", True)]
    assert job.machine.next_deadline_ms() is None


def test_a_lost_control_message_is_sent_again_with_the_next_report() -> None:
    job = Job("a")
    job.begin()
    job.ready("a")
    job.take(StopRequested(job.clock.moment()))
    job.heard.clear()
    job.report("a")
    assert job.heard[ChainId("a")].desired is Desired.STOP
    job.ended("a", OutcomeKind.STOPPED)
    job.heard.clear()
    job.report("a")
    assert job.heard == {}


def test_a_ready_answer_of_a_chain_that_already_died_is_ignored() -> None:
    job = Job("a", "b")
    job.begin()
    job.ended("a", OutcomeKind.FAILED)
    job.ready("a")
    assert job.heard == {}
    job.ready("b")
    assert job.heard[ChainId("b")].desired is Desired.CANCEL


def test_a_cancel_before_the_beginning_still_ends_the_job() -> None:
    job = Job("a")
    job.take(CancelRequested(job.clock.moment()))
    job.take(CancelRequested(job.clock.moment()))
    job.begin()
    job.ready("a")
    assert job.heard[ChainId("a")].desired is Desired.CANCEL
    job.ended("a", OutcomeKind.CANCELLED)
    job.closed()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED


def test_an_answer_that_nobody_asked_for_is_a_protocol_error_with_the_story() -> None:
    job = Job("a")
    with pytest.raises(ProtocolError, match="unasked answer"):
        job.take(ChainReady(job.clock.moment(), RequestToken(9), ChainId("a")))
    job.begin()
    with pytest.raises(ProtocolError, match="a job begins once") as failure:
        job.begin()
    assert failure.value.story[-1].startswith("Begin")
