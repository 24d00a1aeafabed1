"""`docs/protocol.md` says what the code does: names by comparison, arrows by watching them."""

import pathlib
import re
from typing import Any, ClassVar, get_args

import pytest

from arkflow_kernel import protocol
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.ids import Generation, RequestToken, Sequence
from arkflow_kernel.ports import Moment, NothingYet, SourceEnded, WriteReceipt
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainClosed,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    CloseChain,
    Control,
    ControlState,
    DeployChain,
    Desired,
    ItemDone,
    JobState,
    LaneSlice,
    OutcomeKind,
    SourceRead,
    StopRequested,
    Tick,
    WriteDone,
)
from arkflow_kernel.task import ChainTask, Phase
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_kernel.testing.simulation import Machines, Simulation
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)
Arrows = set[tuple[str, str]]


@pytest.fixture(scope="module")
def document() -> str:
    return (pathlib.Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def _section(document: str, title: str) -> str:
    return document.split(f"\n## {title}")[1].split("\n## ")[0]


def _arrows(section: str) -> Arrows:
    return set(re.findall(r"^    (\w+) --> (\w+)$", section, re.MULTILINE))


def _first_column(section: str, heading: str) -> set[str]:
    rows = section.split(f"\n| {heading} |")[1].split("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip().strip("`") for row in rows}


class _WatchedTask(ChainTask):
    seen: ClassVar[Arrows]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_phase" and "_phase" in self.__dict__:
            self.seen.add((self._phase.value, value.value))
        object.__setattr__(self, name, value)


def _watch_chain() -> Arrows:
    class Watched(_WatchedTask):
        seen: ClassVar[Arrows] = set()

    Simulation(1, Machines(task=Watched)).run()
    at = VirtualClock().moment()
    for cancel_after in range(5):
        for desired in (Desired.RUN, Desired.STOP):
            task = Watched(chain_plan(), G1)
            for event in _finishing(at, desired)[: cancel_after + 1]:
                task.handle(event)
            task.handle(Control(at, ControlState(G1, Desired.CANCEL)))
    return Watched.seen


def _finishing(at: Moment, desired: Desired) -> list[Any]:
    """One finish item whose row the sink does not confirm before the flush."""
    row = LaneSlice(((chain_plan().outputs[0], rows_batch("a", [1])),))
    events: list[Any] = [Control(at, ControlState(G1))]
    if desired is Desired.STOP:
        stop = Control(at, ControlState(G1, desired))
        return [*events, stop, SourceRead(at, RequestToken(1), NothingYet())]
    events.append(SourceRead(at, RequestToken(1), SourceEnded()))
    events.append(ItemDone(at, RequestToken(2), row))
    return [*events, WriteDone(at, RequestToken(3), WriteReceipt(Sequence(0)))]


def test_the_phases_of_a_chain_are_those_of_the_document(document: str) -> None:
    section = _section(document, "Chain: phases")
    arrows = _arrows(section)
    phases = {phase.value for phase in Phase}
    assert {name for arrow in arrows for name in arrow} == phases
    assert _first_column(section, "phase") == phases
    assert _watch_chain() == arrows


def _watch_job() -> Arrows:
    seen: Arrows = set()

    class Watched(JobCoordinator):
        def _go(self, state: JobState, cause: str, at: Moment) -> None:
            seen.add((self._job.state.value, state.value))
            super()._go(state, cause, at)

    stop, cancel = StopRequested, CancelRequested
    finished, failed = OutcomeKind.FINISHED, OutcomeKind.FAILED
    for asked, end in (
        ([], finished),
        ([stop], finished),
        ([stop], OutcomeKind.STOPPED),
        ([stop, cancel], OutcomeKind.CANCELLED),
        ([], failed),
    ):
        for ready_first in (True, False):
            _one_job(Watched(job_plan(chain_plan()), G1), asked, end, ready_first=ready_first)
    _never_begun(Watched(job_plan(chain_plan()), G1, teardown_timeout_ms=0))
    return seen


def _one_job(
    machine: JobCoordinator, asked: list[Any], end: OutcomeKind, *, ready_first: bool
) -> None:
    at = VirtualClock().moment()
    (deploy,) = machine.handle(Begin(at))
    assert isinstance(deploy, DeployChain)
    ready = ChainReady(at, deploy.token, deploy.plan.chain)
    requests = [kind(at) for kind in asked]
    for event in [ready, *requests] if ready_first else [*requests, ready]:
        machine.handle(event)
    commands = machine.handle(ChainEnded(at, deploy.plan.chain, ChainOutcome(end)))
    close = next(command for command in commands if isinstance(command, CloseChain))
    machine.handle(ChainClosed(at, close.token, close.chain))
    assert machine.ended


def _never_begun(machine: JobCoordinator) -> None:
    at = VirtualClock().moment()
    machine.handle(CancelRequested(at))
    (close,) = machine.handle(Tick(at))
    assert isinstance(close, CloseChain)
    machine.handle(ChainClosed(at, close.token, close.chain))
    assert machine.ended


def test_the_states_of_a_job_are_those_of_the_document(document: str) -> None:
    section = _section(document, "Job: states")
    arrows = _arrows(section)
    states = {state.value for state in JobState}
    assert {name for arrow in arrows for name in arrow} == states
    assert _first_column(section, "state") == states
    assert _watch_job() == arrows


def _first_word(row: str) -> str:
    match = re.match(r"\w+", row)
    assert match, row
    return match.group()


@pytest.mark.parametrize(
    ("title", "events"),
    [("Chain: phases", protocol.ChainEvent), ("Job: states", protocol.CoordinatorEvent)],
)
def test_every_event_has_its_row(document: str, title: str, events: Any) -> None:
    rows = _first_column(_section(document, title), "event")
    assert {_first_word(row) for row in rows} == {kind.__name__ for kind in get_args(events)}


def test_every_command_is_a_request_with_its_answer_or_a_notification(document: str) -> None:
    requests = _first_column(_section(document, "Contract"), "request")
    notified = {"SendControl", "EndChain", "EndJob"}
    commands = {*get_args(protocol.ChainCommand), *get_args(protocol.CoordinatorCommand)}
    assert requests | notified == {command.__name__ for command in commands}
    tokens = {c.__name__ for c in commands if hasattr(c, "token") or "token" in c.__slots__}
    assert tokens == requests
