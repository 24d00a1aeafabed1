"""One chain of a simulated job in checkpoint mode: its rounds, and calls of the store in its lanes.

A call of the store takes its time: others act before and after each of its requests, so a lane may
be at work while its chain goes on, is told to end, or dies.
"""

from collections import deque
from typing import TYPE_CHECKING

from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.envelope import Barrier
from arkflow_kernel.errors import ArkflowError, ChannelError
from arkflow_kernel.ids import NO_CHECKPOINT, ChainId, CheckpointId, Generation
from arkflow_kernel.plan import ONLY_SUBTASK, ChainPlan, SinkPlan, Subtask
from arkflow_kernel.ports import SinkWriter
from arkflow_kernel.protocol import (
    ChainEvent,
    Control,
    ControlState,
    NextSlice,
    OutcomeKind,
    PublishTokens,
    ReadSource,
    Request,
    SealItem,
    Submit,
    UploadSnapshot,
)
from arkflow_kernel.snapshot import RestoredChain
from arkflow_kernel.testing.checkers import check_conservation
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_chain import SimChain, Step
from arkflow_kernel.testing.sim_channel import SimChannel
from arkflow_kernel.testing.sim_components import SimComponents
from arkflow_kernel.testing.sim_epochs import SimEpochSink
from arkflow_kernel.testing.sim_parts import SimSink
from arkflow_kernel.testing.sim_world import World

if TYPE_CHECKING:
    from arkflow_kernel.testing.cut_process import CutProcess
    from arkflow_kernel.testing.cut_run import CutRun

_CALLS = {UploadSnapshot: "upload", PublishTokens: "publish"}


class CutComponents(SimComponents):
    """Exactly-once sinks publish to the ground truth, the others tell it what they confirm."""

    def __init__(self, plan: ChainPlan, world: World, run: "CutRun") -> None:
        super().__init__(plan, world)
        self._run = run

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """The sink as drawn; one that is exactly-once stages."""
        del subtask
        world, truth = self._world, self._run.job.truth
        on_write = self._on_write(plan)
        if staging is None:
            script = world.scenario.sinks[plan.operator]
            return SimSink(script, on_write, lambda rows: truth.wrote(plan.operator, rows))
        return SimEpochSink(
            plan.operator, staging, on_write, truth.show, self._run.job.faults.stumbles
        )


class CutChain(SimChain):
    """One attempt of one chain, in a process of its own."""

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        restored: RestoredChain,
        world: World,
        inputs: list[SimChannel],
        outputs: list[SimChannel],
        *,
        run: "CutRun",
        process: "CutProcess",
    ) -> None:
        self.run, self.process, self.restored = run, process, restored
        self.acknowledged = CheckpointId(0)
        self.reports = 0
        self._busy: set[int] = set()
        self._barriers = {channel.channel: NO_CHECKPOINT for channel in plan.inputs}
        self._over = self._over_soon = NO_CHECKPOINT
        super().__init__(plan, generation, restored, world, inputs, outputs)

    def _made_parts(self) -> CutComponents:
        return CutComponents(self.plan, self._world, self.run)

    def _made_work(self, restored: RestoredChain) -> ChainWork:
        objects = self._world.machines.objects(self.run.job.store, self.process)
        work: ChainWork = self._world.machines.work(
            self.plan, self._parts, self._clock, generation=self.generation, objects=objects
        )
        with self.process.calling("restore"):
            self.process.reached("begin")
            work.open(restored)
            self.process.reached("end")
        return work

    @property
    def name(self) -> ChainId:
        """Its name."""
        return self.plan.chain

    @property
    def busy(self) -> bool:
        """Some lane waits for the store."""
        return bool(self._busy)

    def steps(self) -> list[Step]:
        """Nothing more happens in a process that is gone."""
        return [] if self.gone else super().steps()

    def report_due(self) -> bool:
        """Also when the machine asked for it."""
        return super().report_due() or (self.report_soon and not self.hung and self.outcome is None)

    # --- barriers ------------------------------------------------------------------------------

    def control(self, state: ControlState) -> None:
        """A control message arrived."""
        super().control(state)
        if state.generation == self.generation:
            upto = max(state.failed_upto, state.completed_upto, key=int)
            self._over_soon = max(self._over_soon, upto, key=int)

    def _paused(self, channel: SimChannel) -> bool:
        """Whether an input must wait for barriers: found from what was delivered alone (B1, B2)."""
        newest = max(self._barriers.values(), key=int)
        aligned = all(round_id == newest for round_id in self._barriers.values())
        return self._barriers[channel.id] == newest > self._over and not aligned

    def _deliver(self, channel: SimChannel) -> None:
        if self._paused(channel):
            raise ViolationError(f"{channel.id} is taken while it waits for barriers (B1)")
        envelope = channel.queue[0]
        super()._deliver(channel)
        if isinstance(envelope, Barrier):
            self._barriers[channel.id] = envelope.round_id

    def _handle(self, event: ChainEvent) -> None:
        super()._handle(event)
        if isinstance(event, Control) and not self._controls and self.outcome is None:
            self._over = self._over_soon
            stuck = [
                channel.id
                for channel in self.inputs
                if self.task._flow.rounds.paused(channel.id) and not self._paused(channel)
            ]
            if stuck:
                raise ViolationError(f"inputs {stuck} wait for a round that is over (B2)")

    # --- work ----------------------------------------------------------------------------------

    def _work_off_head(self, queue: deque[Request]) -> None:
        """One request of a lane at a time, though a call of the store lets others act."""
        if id(queue) in self._busy:
            return
        if isinstance(queue[0], ReadSource):
            self.run.check_start()
        call = _CALLS.get(type(queue[0]))
        if call is None:
            super()._work_off_head(queue)
            return
        request = queue.popleft()
        self._busy.add(id(queue))
        try:
            with self.process.calling(call):
                self.process.reached("begin")
                answer = self._answer(request)
                self.process.reached("end")
                self.mailbox.append(answer)
                self.work.follow_up(request)
        finally:
            self._busy.discard(id(queue))

    def _work_off_item(self, request: Submit | NextSlice) -> None:
        seals = isinstance(request, Submit) and isinstance(request.item, SealItem)
        if not seals:
            super()._work_off_item(request)
            return
        with self.process.calling("seal"):
            self.process.passed("begin")
            super()._work_off_item(request)
            self.process.passed("end")

    def _answer(self, request: Request) -> ChainEvent:
        answer = super()._answer(request)
        error = getattr(answer, "error", None)
        if isinstance(error, ArkflowError):
            judged(error)
        return answer

    # --- checks --------------------------------------------------------------------------------

    def check_end(self, *, faulty: bool) -> None:
        """At the end that the machine chose. `faulty`: something went wrong in this run."""
        assert self.outcome is not None
        kind, error = self.outcome.kind, self.outcome.error
        self._world.lineage.check_positions(self.outcome.frontier, "final frontier")
        if kind is OutcomeKind.FAILED and not faulty:
            raise ViolationError(f"{self.name} failed without a fault: {error}")
        if kind is OutcomeKind.FAILED and isinstance(error, ChannelError):
            assert "injected" not in str(error)
        if kind in (OutcomeKind.FINISHED, OutcomeKind.STOPPED) and not self.restored.finished:
            check_conservation(self.plan, self.task.statistics(), fails=False)
        finished = {part.finished for part in self._parts.operators}
        if (kind is OutcomeKind.STOPPED or self._stopped_input) and finished - {0}:
            raise ViolationError(f"{self.name} was stopped and finished its operators (D5)")
        expected = 0 if self.restored.finished else 1
        if kind is OutcomeKind.FINISHED and finished - {expected}:
            raise ViolationError(f"{self.name} finished its operators {finished} times (B8)")


def judged(error: ArkflowError) -> None:
    """Violations that were found inside of a component come out as its failures."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AssertionError):
            raise ViolationError(f"in a component: {cause}") from error
        cause = cause.__cause__


__all__ = ["CutChain", "CutComponents", "judged"]
