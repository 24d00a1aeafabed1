"""A `JobCoordinator` driven by hand: answers come when a test says so, requests are remembered.

Every event is followed by `validate()` and goes into a transcript; nothing may follow the end.
"""

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError, ChannelError, SourceError
from arkflow_kernel.ids import ChainId, CheckpointId, Generation, RequestToken, SplitId
from arkflow_kernel.metrics import ChainStatistics, Wait
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import ReplayKind, SplitPosition
from arkflow_kernel.protocol import (
    AppendRecord,
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    ChainReport,
    ChainsPrepared,
    Claimed,
    ClaimGeneration,
    ConnectChain,
    ControlState,
    CoordinatorEvent,
    DeployChain,
    EndJob,
    KillChain,
    LogFailed,
    OutcomeKind,
    PrepareChains,
    RecordAppended,
    ReleaseChains,
    RescaleRequested,
    SavepointRequested,
    SavepointSaved,
    SaveSavepoint,
    SendControl,
    StopRequested,
    Tick,
    Transition,
)
from arkflow_kernel.snapshot import (
    NEWEST,
    ChainSnapshot,
    Claim,
    LaneSnapshot,
    RestoreChoice,
    RestoredJob,
    RoundAnswer,
    SinkToken,
)
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)


class HandDrivenJob:
    """A job of unrelated chains with these names, or of `graph`; in checkpoint mode with a log.

    `logged` is what the log was asked and has not answered, `prepares` the same of processes;
    `released` are those that may go, `hosts` where the chains of the attempt were put.
    """

    def __init__(
        self,
        *names: str,
        graph: ExecutionGraph | None = None,
        teardown_ms: int = 100,
        choice: RestoreChoice = NEWEST,
    ) -> None:
        planned = job_plan(*(chain_plan(name) for name in names)) if graph is None else graph
        self.machine = JobCoordinator(planned, G1, choice=choice, teardown_timeout_ms=teardown_ms)
        self.logs = planned.checkpoint is not None
        self.logged: list[ClaimGeneration | AppendRecord | SaveSavepoint] = []
        self._claimed = G1
        self.clock = VirtualClock()
        self.generation = G1
        self.deployed: set[ChainId] = set()
        self.deploys: dict[ChainId, RequestToken] = {}
        self.restored: dict[ChainId, tuple[SplitPosition, ...]] = {}
        self.connects: dict[ChainId, RequestToken] = {}
        self.hosts: dict[ChainId, ChainId | None] = {}
        self.prepares: list[PrepareChains] = []
        self.released: list[ChainId] = []
        self.kills: list[KillChain] = []
        self.heard: dict[ChainId, ControlState] = {}
        self.end: EndJob | None = None
        self.ends = 0
        self.log = Transcript()
        self._transitions: dict[int, Transition] = {}

    def take(self, event: CoordinatorEvent) -> None:
        """Hand an event over, remember what was ordered, and check the invariants."""
        commands = self.machine.handle(event)
        for command in commands:
            assert self.end is None, "nothing follows the end"
            match command:
                case DeployChain():
                    self._deploy(command)
                case PrepareChains():
                    self.prepares.append(command)
                case ReleaseChains():
                    self.released += command.chains
                case ConnectChain():
                    self.connects[command.chain] = command.token
                case SendControl():
                    assert command.state.generation == self.generation
                    self.heard[command.chain] = command.state
                case KillChain():
                    assert command.generation == self.generation
                    self.kills.append(command)
                case ClaimGeneration() | AppendRecord() | SaveSavepoint():
                    self.logged.append(command)
                case EndJob():
                    self.end = command
                    self.ends += 1
        self._transitions |= {each.number: each for each in self.machine.status().transitions}
        self.machine.validate()
        self.log.took(event, list(commands), self.machine.status().state.value)

    def _deploy(self, command: DeployChain) -> None:
        if command.generation != self.generation:
            assert command.generation in (self.generation + 1, self._claimed)
            self.generation = command.generation
            for requests in (self.deployed, self.deploys, self.connects, self.kills, self.heard):
                requests.clear()
            self.hosts.clear()
            self.restored.clear()
        self.deployed.add(command.plan.chain)
        self.deploys[command.plan.chain] = command.token
        self.hosts[command.plan.chain] = command.host
        self.restored[command.plan.chain] = command.restored.sources

    def all_transitions(self) -> list[Transition]:
        """Every change of state so far, also those that the machine has forgotten."""
        return list(self._transitions.values())

    # --- answers -------------------------------------------------------------------------------

    def begin(self) -> None:
        """The job begins."""
        self.take(Begin(self.clock.moment()))

    def ready(
        self, name: str, replay: ReplayKind = ReplayKind.POSITION, *, commits: bool = False
    ) -> None:
        """A chain is built and opened."""
        chain = ChainId(name)
        self.take(ChainReady(self.clock.moment(), self.deploys.pop(chain), chain, replay, commits))

    def connected(self, name: str) -> None:
        """A chain has its channels."""
        chain = ChainId(name)
        self.take(ChainConnected(self.clock.moment(), self.connects.pop(chain), chain))

    def answer_all(self) -> None:
        """Every chain that was asked is ready, then connected."""
        for name in list(self.deploys):
            self.ready(name)
        for name in list(self.connects):
            self.connected(name)

    def run(self) -> None:
        """Begin, and answer until the job runs; a log is new and gives the first generation."""
        self.begin()
        if self.logs:
            self.claimed(1)
        self.answer_all()

    def ended(
        self,
        name: str,
        kind: OutcomeKind = OutcomeKind.FINISHED,
        error: ArkflowError | None = None,
        *,
        row: int | None = None,
        generation: Generation | None = None,
    ) -> None:
        """A chain ended; `row` is how far its only split is settled."""
        if kind is OutcomeKind.FAILED and error is None:
            error = SourceError(f"{name} broke")
        outcome = ChainOutcome(kind, error, _frontier(row))
        attempt = self.generation if generation is None else generation
        self.take(ChainEnded(self.clock.moment(), ChainId(name), attempt, outcome))

    def lost(self, name: str, *, generation: Generation | None = None) -> None:
        """A chain's process died."""
        error = ActorLostError(f"the process of {name} died")
        self.ended(name, OutcomeKind.FAILED, error, generation=generation)

    def broken(self, name: str) -> None:
        """A chain ended by a broken channel."""
        self.ended(name, OutcomeKind.FAILED, ChannelError(f"a channel of {name} broke"))

    def report(
        self,
        name: str,
        row: int | None = None,
        *,
        generation: Generation | None = None,
        waits: tuple[Wait, ...] = (),
        answer: RoundAnswer | None = None,
        drained: bool = False,
        stopped: bool = False,
        published: int = 0,
    ) -> None:
        """A chain's heartbeat."""
        chain = ChainId(name)
        attempt = self.generation if generation is None else generation
        at, counters = self.clock.moment(), ChainStatistics(chain)
        self.take(
            ChainReport(
                at,
                chain,
                attempt,
                counters,
                _frontier(row),
                waits=waits,
                answer=answer,
                drained=drained,
                stopped=stopped,
                published_upto=CheckpointId(published),
            )
        )

    # --- the log and its rounds ----------------------------------------------------------------

    def claimed(self, generation: int, restored: RestoredJob | None = None, last: int = 0) -> None:
        """The log gave a generation, and says what it restores."""
        asked = self.logged.pop(0)
        assert isinstance(asked, ClaimGeneration)
        self._claimed = Generation(generation)
        claim = Claim(self._claimed, restored, CheckpointId(last))
        self.take(Claimed(self.clock.moment(), asked.token, claim))

    def appended(self) -> None:
        """The record is in the log."""
        asked = self.logged.pop(0)
        assert isinstance(asked, AppendRecord)
        self.take(RecordAppended(self.clock.moment(), asked.token))

    def saved(self, url: str = "memory://copy") -> None:
        """The savepoint's copy is written."""
        asked = self.logged.pop(0)
        assert isinstance(asked, SaveSavepoint)
        self.take(SavepointSaved(self.clock.moment(), asked.token, url))

    def log_failed(self, error: ArkflowError) -> None:
        """The log did not do what it was asked."""
        self.take(LogFailed(self.clock.moment(), self.logged.pop(0).token, error))

    def savepoint(self, name: str) -> None:
        """A user wants a savepoint."""
        self.take(SavepointRequested(self.clock.moment(), name))

    def answers(self, round_id: int, *names: str, **report: bool | int) -> None:
        """These chains answer a round with a snapshot."""
        for name in names:
            answer = RoundAnswer(CheckpointId(round_id), snapshot_of(name))
            self.report(name, answer=answer, **report)  # type: ignore[arg-type]

    # --- another plan --------------------------------------------------------------------------

    def rescale(self, graph: ExecutionGraph) -> None:
        """A user wants another parallelism."""
        self.take(RescaleRequested(self.clock.moment(), graph))

    def prepared(self, error: ArkflowError | None = None) -> None:
        """The additional processes are there, or cannot be had."""
        asked = self.prepares.pop(0)
        self.take(ChainsPrepared(self.clock.moment(), asked.token, error))

    # --- users and time ------------------------------------------------------------------------

    def ask(self, what: str, savepoint: str | None = None) -> None:
        """A user's `stop`, `drain` or `cancel`."""
        at = self.clock.moment()
        stop = StopRequested(at, what == "drain", savepoint)
        self.take(CancelRequested(at) if what == "cancel" else stop)

    def tick(self, by_ms: int) -> None:
        """Time passes."""
        self.take(Tick(self.clock.advance(by_ms)))


def snapshot_of(name: str, *tokens: SinkToken, finished: bool = False) -> ChainSnapshot:
    """A chain's part of a cut: these tokens of its only sink wait."""
    lanes = (LaneSnapshot(tokens[0].sink, tokens[0].lane, tokens),) if tokens else ()
    return ChainSnapshot(ChainId(name), (), finished=finished, lanes=lanes)


def _frontier(row: int | None) -> tuple[SplitPosition, ...]:
    return () if row is None else (SplitPosition(SplitId("a"), {"row": row}),)


__all__ = ["G1", "HandDrivenJob", "snapshot_of"]
