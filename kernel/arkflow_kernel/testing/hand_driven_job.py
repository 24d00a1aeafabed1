"""A `JobCoordinator` driven by hand: answers come when a test says so, requests are remembered.

Every event is followed by `validate()` and goes into a transcript; nothing may follow the end.
"""

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError, ChannelError, SourceError
from arkflow_kernel.ids import ChainId, Generation, RequestToken, SplitId
from arkflow_kernel.metrics import ChainStatistics, Wait
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import ReplayKind, SplitPosition
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    ChainReport,
    ConnectChain,
    ControlState,
    CoordinatorEvent,
    DeployChain,
    EndJob,
    KillChain,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
    Transition,
)
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)


class HandDrivenJob:
    """A job of unrelated chains with these names, or of `graph`."""

    def __init__(
        self, *names: str, graph: ExecutionGraph | None = None, teardown_ms: int = 100
    ) -> None:
        planned = job_plan(*(chain_plan(name) for name in names)) if graph is None else graph
        self.machine = JobCoordinator(planned, G1, teardown_timeout_ms=teardown_ms)
        self.clock = VirtualClock()
        self.generation = G1
        self.deployed: set[ChainId] = set()
        self.deploys: dict[ChainId, RequestToken] = {}
        self.restored: dict[ChainId, tuple[SplitPosition, ...]] = {}
        self.connects: dict[ChainId, RequestToken] = {}
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
                case ConnectChain():
                    self.connects[command.chain] = command.token
                case SendControl():
                    assert command.state.generation == self.generation
                    self.heard[command.chain] = command.state
                case KillChain():
                    assert command.generation == self.generation
                    self.kills.append(command)
                case EndJob():
                    self.end = command
                    self.ends += 1
        self._transitions |= {each.number: each for each in self.machine.status().transitions}
        self.machine.validate()
        self.log.took(event, list(commands), self.machine.status().state.value)

    def _deploy(self, command: DeployChain) -> None:
        if command.generation != self.generation:
            assert command.generation == self.generation + 1
            self.generation = command.generation
            for requests in (self.deployed, self.deploys, self.connects, self.kills, self.heard):
                requests.clear()
        self.deployed.add(command.plan.chain)
        self.deploys[command.plan.chain] = command.token
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
        """Begin, and answer until the job runs."""
        self.begin()
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
    ) -> None:
        """A chain's heartbeat."""
        chain = ChainId(name)
        attempt = self.generation if generation is None else generation
        at, counters = self.clock.moment(), ChainStatistics(chain)
        self.take(ChainReport(at, chain, attempt, counters, _frontier(row), waits=waits))

    # --- users and time ------------------------------------------------------------------------

    def ask(self, what: str) -> None:
        """A user's `stop` or `cancel`."""
        at = self.clock.moment()
        self.take(StopRequested(at) if what == "stop" else CancelRequested(at))

    def tick(self, by_ms: int) -> None:
        """Time passes."""
        self.take(Tick(self.clock.advance(by_ms)))


def _frontier(row: int | None) -> tuple[SplitPosition, ...]:
    return () if row is None else (SplitPosition(SplitId("a"), {"row": row}),)


__all__ = ["G1", "HandDrivenJob"]
