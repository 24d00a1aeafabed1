"""A coordinator machine with very many chains, all of which answer at once: what a round costs it.

Every event is followed by what a driver asks of the machine: when it is to be called again.
"""

from collections.abc import Iterable, Iterator

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.ids import (
    NO_CHECKPOINT,
    ChainId,
    ChannelId,
    CheckpointId,
    Generation,
    MonotonicMs,
    OperatorId,
    SplitId,
    TaskId,
    WallMs,
)
from arkflow_kernel.metrics import ChainStatistics, ChainUsage, OperatorCounts
from arkflow_kernel.plan import ChainPlan, CheckpointPlan, ExecutionGraph, Mode
from arkflow_kernel.ports import Moment, SplitPosition
from arkflow_kernel.protocol import (
    AppendRecord,
    Begin,
    ChainConnected,
    ChainReady,
    ChainReport,
    Claimed,
    ClaimGeneration,
    ConnectChain,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    RecordAppended,
    Tick,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    CheckpointRecord,
    Claim,
    InputSnapshot,
    ObjectRef,
    RestoredJob,
    RoundAnswer,
    RunRef,
    StateSnapshot,
)
from arkflow_kernel.testing.plans import chain_plan, job_plan

GENERATION = Generation(1)
INTERVAL_MS = 10_000
_CHECKSUM = "0123456789abcdef" * 4


def many_chains(count: int) -> ExecutionGraph:
    """A job of so many chains in checkpoint mode; every second one reads."""
    chains = (
        chain_plan(
            f"work-{n}",
            source="work" if n % 2 else None,
            operators=("parse", "count"),
            mode=Mode.CHECKPOINT,
        )
        for n in range(count)
    )
    return job_plan(*chains, checkpoint=CheckpointPlan("memory://x", INTERVAL_MS))


def snapshot(chain: ChainId, *, inputs: int = 1, runs: int = 4) -> ChainSnapshot:
    """What a chain with one keyed state says at a cut: runs of it in as many objects."""
    subtask = chain.rpartition("-")[2]
    objects = tuple(
        ObjectRef(f"states/{chain}/{n:08d}-{_CHECKSUM[:16]}.arrow", 1_000_000 + n, _CHECKSUM)
        for n in range(runs)
    )
    refs = tuple(
        RunRef(each.name[-20:], each.name, 4096 * n, 100_000, 10_000, _CHECKSUM, 0, 127)
        for n, each in enumerate(objects)
    )
    state = StateSnapshot(OperatorId("count"), "jobs", "", ("k",), ("string",), "int64", refs)
    return ChainSnapshot(
        chain,
        (TaskId(f"parse-{subtask}"), TaskId(f"count-{subtask}"), TaskId(f"sink-{subtask}")),
        sources=(SplitPosition(SplitId(f"data/part-{subtask}.json"), {"offset": 123_456_789}),),
        inputs=tuple(InputSnapshot(ChannelId(f"rows[{n}-{subtask}]")) for n in range(inputs)),
        states=(state,) if runs else (),
        objects=objects,
    )


def report(
    chain: ChainId, at: Moment, number: int, answer: RoundAnswer | None, published: CheckpointId
) -> ChainReport:
    """A heartbeat as a running chain gives it."""
    counts = tuple(
        OperatorCounts(OperatorId(name), 1_000_000, 900_000, 100_000) for name in ("parse", "count")
    )
    statistics = ChainStatistics(
        chain, 1_000, 1_000_000, 80_000_000, batches_out=1_000, rows_out=900_000, operators=counts
    )
    return ChainReport(
        at,
        chain,
        GENERATION,
        statistics,
        (SplitPosition(SplitId(f"data/part-{chain}.json"), {"offset": 123_456_789}),),
        ChainUsage(12_345, 256 << 20, 4711),
        answer=answer,
        published_upto=published,
        number=number,
    )


Script = tuple[list[ChainReport], list[ChainReport], list[ChainReport]]
"""What all chains say in one round."""


class ManyChains:
    """The machine of a job of `count` chains. `commands` are those since the last `clear`."""

    def __init__(self, graph: ExecutionGraph, *, inputs: int = 1) -> None:
        self.machine = JobCoordinator(graph)
        self.graph = graph
        self.inputs = inputs
        self.now_ms = 0
        self.commands: list[CoordinatorCommand] = []
        self.events = 0
        self._reports = 0

    @property
    def at(self) -> Moment:
        """The present moment."""
        return Moment(MonotonicMs(self.now_ms), WallMs(self.now_ms))

    @property
    def chains(self) -> tuple[ChainPlan, ...]:
        """All of them."""
        return self.graph.chains

    def take(self, event: CoordinatorEvent) -> None:
        """Hand an event over, then ask for the deadline, as every driver does."""
        self.events += 1
        self.commands += self.machine.handle(event)
        self.machine.next_deadline_ms()

    def taken(self) -> list[CoordinatorCommand]:
        """What was ordered since this was asked last."""
        commands, self.commands = self.commands, []
        return commands

    def deploy(self, restored: RestoredJob | None = None) -> None:
        """Claim, build, connect: the job runs."""
        self.take(Begin(self.at))
        [claim] = self.taken()
        assert isinstance(claim, ClaimGeneration)
        last = NO_CHECKPOINT if restored is None else restored.checkpoint
        self.take(Claimed(self.at, claim.token, Claim(GENERATION, restored, last)))
        for command in self.taken():
            if isinstance(command, DeployChain):
                self.take(ChainReady(self.at, command.token, command.plan.chain))
        for command in self.taken():
            if isinstance(command, ConnectChain):
                self.take(ChainConnected(self.at, command.token, command.chain))

    def heartbeats(self, reports: Iterable[ChainReport] | None = None) -> None:
        """Every chain reports once; plainly, unless it is said what."""
        for event in self.reports() if reports is None else reports:
            self.take(event)

    def reports(
        self, answer: CheckpointId = NO_CHECKPOINT, published: CheckpointId = NO_CHECKPOINT
    ) -> Iterator[ChainReport]:
        """What every chain says."""
        self._reports += 1
        for plan in self.chains:
            said = None
            if answer != NO_CHECKPOINT:
                said = RoundAnswer(answer, snapshot(plan.chain, inputs=self.inputs))
            yield report(plan.chain, self.at, self._reports, said, published)

    def open_round(self, reports: Iterable[ChainReport] | None = None) -> None:
        """The interval is over: a round opens."""
        self.now_ms += INTERVAL_MS
        self.heartbeats(reports)
        self.take(Tick(self.at))

    def recorded(self, answers: Iterable[ChainReport]) -> AppendRecord:
        """Every chain answers; the record that the log is asked to append."""
        self.taken()
        self.heartbeats(answers)
        [append] = [each for each in self.commands if isinstance(each, AppendRecord)]
        return append

    def completed(self, append: AppendRecord, reports: Iterable[ChainReport]) -> None:
        """The log has it; chains publish, and say so."""
        self.take(RecordAppended(self.at, append.token))
        self.heartbeats(reports)

    def script(self, number: int) -> Script:
        """What every chain says in the next round, before it, as answer, after it."""
        round_id = CheckpointId(number)
        self.now_ms += INTERVAL_MS
        said = (
            list(self.reports()),
            list(self.reports(round_id)),
            list(self.reports(round_id, round_id)),
        )
        self.now_ms -= INTERVAL_MS
        return said

    def play(self, script: Script) -> CheckpointRecord:
        """A whole round."""
        before, answers, after = script
        self.open_round(before)
        append = self.recorded(answers)
        self.completed(append, after)
        return append.record


def restored(record: CheckpointRecord) -> RestoredJob:
    """What a claim gives to the next attempt."""
    return RestoredJob(record.checkpoint, RoundKind.PERIODIC, "a checkpoint", record.chains)


__all__ = [
    "GENERATION",
    "INTERVAL_MS",
    "ManyChains",
    "Script",
    "many_chains",
    "report",
    "restored",
    "snapshot",
]
