"""`docs/protocol.md` says what the code does: names by comparison, arrows by watching them."""

import pathlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, get_args

import pytest

from arkflow_kernel import protocol
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId, Generation, RequestToken, Sequence, SplitId
from arkflow_kernel.ports import Moment, SourceBatch, SourceEnded, WriteReceipt
from arkflow_kernel.protocol import (
    ChannelBroken,
    Control,
    ControlState,
    Desired,
    ItemDone,
    JobState,
    LaneSlice,
    OutcomeKind,
    Piece,
    SourceCommitted,
    SourceRead,
    WriteDone,
)
from arkflow_kernel.task import ChainTask, Phase
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob
from arkflow_kernel.testing.plans import chain_plan
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

    at = VirtualClock().moment()
    broken = ChannelBroken(at, ChannelError("gone"))
    cancel = Control(at, ControlState(G1, Desired.CANCEL))
    for script in _scripts(at):
        for length in range(len(script) + 1):
            for last in (broken, cancel):
                task = Watched(chain_plan(), G1, commits=True)
                for event in (*script[:length], last):
                    task.handle(event)
                assert task.phase is Phase.ENDED
    return Watched.seen


def _scripts(at: Moment) -> list[list[Any]]:
    """A batch and the end of the data, and the same with a stop; the sink confirms in its flush."""
    sink = chain_plan().outputs[0]
    row = LaneSlice((Piece(sink, rows_batch("a", [1]), 10),))
    batch = SourceBatch(SplitId("a"), rows_batch("a", [1]), {"row": 1})
    start = [Control(at, ControlState(G1)), SourceRead(at, RequestToken(1), batch)]
    finish = [SourceRead(at, RequestToken(3), SourceEnded()), ItemDone(at, RequestToken(2), row)]
    stop = Control(at, ControlState(G1, Desired.STOP))
    written = WriteReceipt(Sequence(0))
    flushed = WriteReceipt(Sequence(1))
    return [
        [
            *(*start, *finish, WriteDone(at, RequestToken(5), written)),
            *(ItemDone(at, RequestToken(4), LaneSlice()), WriteDone(at, RequestToken(6), flushed)),
            SourceCommitted(at, RequestToken(7)),
        ],
        [
            *(*start, stop, *finish, WriteDone(at, RequestToken(4), written)),
            *(WriteDone(at, RequestToken(5), flushed), SourceCommitted(at, RequestToken(6))),
        ],
    ]


def test_the_phases_of_a_chain_are_those_of_the_document(document: str) -> None:
    section = _section(document, "Chain: phases")
    arrows = _arrows(section)
    phases = {phase.value for phase in Phase}
    assert {name for arrow in arrows for name in arrow} == phases
    assert _first_column(section, "phase") == phases
    assert _watch_chain() == arrows


def _watch_job() -> Arrows:
    """Jobs of two chains that live through whatever seeded dice say a driver and a user may do."""
    seen: Arrows = set()
    for seed in range(1_500):
        dice, job = Dice(seed), HandDrivenJob("a", "b")
        wishes = list(dice.pick([(), ("stop",), ("cancel",), ("stop", "cancel")]))
        for _ in range(60):
            if job.end is not None:
                break
            if wishes and dice.one_in(6):
                job.ask(wishes.pop(0))
            else:
                dice.pick(_possible(job, dice))()
        seen |= {(each.before.value, each.after.value) for each in job.all_transitions()}
    return seen


def _possible(job: HandDrivenJob, dice: Dice) -> list[Callable[[], None]]:
    steps: list[Callable[[], None]] = [lambda: job.tick(70)]
    if job.machine.status().state is JobState.CREATED:
        steps += [job.begin] * 9
    steps += [partial(job.ready, name) for name in job.deploys] * 2
    steps += [partial(job.connected, name) for name in job.connects] * 2
    for name in sorted(job.deployed):
        if name not in job.deploys and dice.one_in(2):
            steps += [partial(job.report, name)]
            steps += [partial(job.ended, name, kind) for kind in _ends(job, name)]
        if dice.one_in(9):
            steps += [partial(job.lost, name), partial(job.broken, name)]
    return steps


def _ends(job: HandDrivenJob, name: ChainId) -> list[OutcomeKind]:
    """How a chain may end by what it has heard."""
    heard = job.heard.get(name)
    if heard is None:
        return [OutcomeKind.FAILED]
    own = {Desired.STOP: OutcomeKind.STOPPED, Desired.CANCEL: OutcomeKind.CANCELLED}
    usual = [OutcomeKind.FINISHED, own.get(heard.desired, OutcomeKind.FINISHED)]
    return [*usual, *usual, OutcomeKind.FAILED]


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
    notified = {"Emit", "GrantCredit", "SendControl", "EndChain", "EndJob"}
    commands = {*get_args(protocol.ChainCommand), *get_args(protocol.CoordinatorCommand)}
    assert requests | notified == {command.__name__ for command in commands}
    tokens = {c.__name__ for c in commands if hasattr(c, "token") or "token" in c.__slots__}
    assert tokens == requests - {"KillChain"}, "a kill is answered by the end of the chain"
