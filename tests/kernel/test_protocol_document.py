"""`docs/protocol.md` says what the code does: names by comparison, arrows by watching them."""

import pathlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, get_args

import pytest

from arkflow_kernel import protocol
from arkflow_kernel.chain_clock import OpenedSource
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ChannelError, FencedError, RestoreError, StoreError
from arkflow_kernel.ids import (
    ChainId,
    CheckpointId,
    Generation,
    RequestToken,
    Sequence,
    SplitId,
)
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph, Mode
from arkflow_kernel.ports import Moment, SourceBatch, SourceEnded, WriteReceipt
from arkflow_kernel.protocol import (
    AppendRecord,
    ChannelBroken,
    ClaimGeneration,
    Control,
    ControlState,
    Desired,
    ItemDone,
    JobState,
    LaneSlice,
    OutcomeKind,
    Piece,
    SnapshotUploaded,
    SourceCommitted,
    SourceRead,
    WriteDone,
)
from arkflow_kernel.snapshot import ChainSnapshot, RestoredChain, RestoredJob, RoundAnswer
from arkflow_kernel.task import ChainTask, Phase
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob, snapshot_of
from arkflow_kernel.testing.plans import chain_plan, job_plan, stage_plans
from arkflow_kernel.testing.virtual_clock import VirtualClock

pytestmark = pytest.mark.thorough

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
    finished = RestoredChain(snapshot=ChainSnapshot(ChainId("chain-0"), (), finished=True))
    ack = [(Mode.ACK, RestoredChain(), script) for script in _scripts(at)]
    rounds = [(Mode.CHECKPOINT, RestoredChain(), script) for script in _rounds(at)]
    again = [(Mode.CHECKPOINT, finished, [Control(at, ControlState(G1)), *_closing(at, 1)])]
    for mode, restored, script in (*ack, *rounds, *again):
        for length in range(len(script) + 1):
            for last in (broken, cancel):
                task = Watched(
                    chain_plan(mode=mode), G1, opened=OpenedSource(commits=True), restored=restored
                )
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


def _rounds(at: Moment) -> list[list[Any]]:
    """In checkpoint mode: the end of the data, a stop, a drain, each with its closing round."""
    start = Control(at, ControlState(G1))
    ended = SourceRead(at, RequestToken(1), SourceEnded())
    finish = ItemDone(at, RequestToken(2), LaneSlice())
    stop, drain = (Control(at, ControlState(G1, each)) for each in (Desired.STOP, Desired.DRAIN))
    return [
        [start, ended, finish, *_closing(at, 3)],
        [start, stop, ended, *_closing(at, 2)],
        [start, drain, ended, finish, *_closing(at, 3)],
    ]


def _closing(at: Moment, token: int) -> list[Any]:
    """A round over a drained chain whose next request has this token, its end, and the commit."""
    number = CheckpointId(1)
    opened = ControlState(G1, round_id=number, round_kind=RoundKind.FINAL)
    seal, sink, upload, commit = (RequestToken(token + i) for i in range(4))
    return [
        *(Control(at, opened), ItemDone(at, seal, LaneSlice())),
        *(WriteDone(at, sink, WriteReceipt(Sequence(0))), SnapshotUploaded(at, upload)),
        Control(at, ControlState(G1, Desired.END, number, RoundKind.FINAL, completed_upto=number)),
        SourceCommitted(at, commit),
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
    rare = (*_fenced_at_the_end().all_transitions(), *_cancelled_while_saving().all_transitions())
    seen = {(each.before.value, each.after.value) for each in rare}
    for seed in range(3_000):
        dice, job = Dice(seed), _job(logs=seed % 2 == 0)
        wishes = list(dice.pick(_WISHES))
        for _ in range(60):
            if job.end is not None:
                break
            if wishes and dice.one_in(6):
                _wish(job, wishes.pop(0))
            else:
                dice.pick(_possible(job, dice))()
        seen |= {(each.before.value, each.after.value) for each in job.all_transitions()}
    return seen


_STOPS = ((), ("stop",), ("cancel",), ("stop", "cancel"))
_WISHES = [*_STOPS, *(("rescale", *stop) for stop in (*_STOPS, ("drain",), ("rescale",)))]


def _wish(job: HandDrivenJob, what: str) -> None:
    if what == "rescale":
        job.rescale(_plan(1 if len(job.deployed) == 3 else 3, logs=job.logs))
    else:
        job.ask(what)


def _job(*, logs: bool) -> HandDrivenJob:
    """A job of two chains; in checkpoint mode if it `logs`."""
    return HandDrivenJob(graph=_plan(2, logs=logs))


def _plan(parallelism: int, *, logs: bool) -> ExecutionGraph:
    if not logs:
        return job_plan(*stage_plans("a", parallelism))
    chains = stage_plans("a", parallelism, mode=Mode.CHECKPOINT)
    return job_plan(*chains, checkpoint=CheckpointPlan("memory://x", interval_ms=100))


def _fenced_at_the_end() -> HandDrivenJob:
    """The data ended, the tokens are published, and the last record meets a later claim (D7)."""
    job = _job(logs=True)
    job.run()
    for _ in range(2):  # drained, then answered
        for name in sorted(job.deployed):
            _round(job, name)()
    job.appended()
    for name in sorted(job.deployed):
        job.ended(name)
    job.log_failed(FencedError("a later claim"))
    assert job.end is not None
    return job


def _cancelled_while_saving() -> HandDrivenJob:
    """The chains of a rescale have ended, and a savepoint's copy is on its way."""
    job = _job(logs=True)
    job.run()
    job.savepoint("now")
    job.answers(1, *sorted(job.deployed))
    job.appended()
    job.rescale(_plan(1, logs=True))
    job.answers(2, *sorted(job.deployed))
    job.appended()
    for name in sorted(job.deployed):
        job.ended(name, OutcomeKind.STOPPED)
    job.ask("cancel")
    return job


def _log(job: HandDrivenJob, dice: Dice) -> None:
    """The log answers what it was asked first: it does it, or fails."""
    asked = job.logged[0]
    if dice.one_in(5):
        error = dice.pick([StoreError("no"), FencedError("later"), RestoreError("no")])
        job.log_failed(error)
    elif isinstance(asked, ClaimGeneration):
        chains = tuple(snapshot_of(f"a-{i}", finished=True) for i in range(3))
        kind = dice.pick([RoundKind.PERIODIC, RoundKind.PERIODIC, RoundKind.FINAL])
        restored = RestoredJob(CheckpointId(3), kind, "checkpoint 3", chains)
        found = restored if dice.one_in(2) else None
        job.claimed(job.generation + 1, found, last=job.machine.status().generation * 99)
    elif isinstance(asked, AppendRecord):
        job.appended()
    else:
        job.saved()


def _round(job: HandDrivenJob, name: ChainId, *, drained: bool = True) -> Callable[[], None]:
    """A chain answers the round that it heard of, with all tokens published."""
    heard = job.heard[name]
    published, stopped = int(heard.completed_upto), heard.desired is Desired.STOP
    number = heard.round_id
    answer = RoundAnswer(number, snapshot_of(name, sink_token(number)))
    return lambda: job.report(
        name, answer=answer, drained=drained, stopped=stopped, published=published
    )


def _possible(job: HandDrivenJob, dice: Dice) -> list[Callable[[], None]]:
    steps: list[Callable[[], None]] = [lambda: job.tick(70)]
    if job.machine.status().state is JobState.CREATED:
        steps += [job.begin] * 9
    steps += [partial(job.ready, name) for name in job.deploys] * 2
    steps += [partial(job.connected, name) for name in job.connects] * 2
    steps += [partial(_log, job, dice)] * 3 if job.logged else []
    steps += [partial(job.prepared, dice.pick([None, None, StoreError("no")]))] * len(job.prepares)
    for name in sorted(job.deployed):
        if name in job.heard and job.logs:
            steps += [_round(job, name, drained=dice.one_in(2))] * 3
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
    if job.logs and heard.desired < Desired.END:
        return [OutcomeKind.FAILED]
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
    notified = {"Emit", "GrantCredit", "ReportSoon", "SendControl", "EndChain", "EndJob"}
    notified |= {"CollectGarbage", "ReleaseChains"}
    commands = {*get_args(protocol.ChainCommand), *get_args(protocol.CoordinatorCommand)}
    assert requests | notified == {command.__name__ for command in commands}
    tokens = {c.__name__ for c in commands if hasattr(c, "token") or "token" in c.__slots__}
    assert tokens == requests - {"KillChain"}, "a kill is answered by the end of the chain"
