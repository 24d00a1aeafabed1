"""One coordinator of a simulated job in checkpoint mode, its chains, and its thread for the log.

Several of them may be there at once: one that its driver gave up, or chains whose coordinator is
dead, go on beside the run that follows them. Their store is the same.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError, ProtocolError, RestoreError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.limits import REPORT_INTERVAL_MS
from arkflow_kernel.log_work import LogCommand, perform_log
from arkflow_kernel.protocol import (
    AppendRecord,
    ChainEnded,
    ChainReport,
    Claimed,
    ClaimGeneration,
    CollectGarbage,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    JobStatus,
    KillChain,
    LogFailed,
    OutcomeKind,
    SavepointRequested,
    SaveSavepoint,
    StopRequested,
)
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_kernel.testing.cut_chain import CutChain, judged
from arkflow_kernel.testing.cut_checks import CutCheck
from arkflow_kernel.testing.cut_oracle import NOTHING
from arkflow_kernel.testing.cut_process import CutProcess
from arkflow_kernel.testing.cut_reports import ReportWire
from arkflow_kernel.testing.cut_truth import CutLineage, LogCall
from arkflow_kernel.testing.job_checks import JobCheck
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_chain import SimChain, Step
from arkflow_kernel.testing.sim_job import SimJob
from arkflow_kernel.testing.sim_store import Interrupted, SimFiles
from arkflow_kernel.testing.sim_world import World

if TYPE_CHECKING:
    from arkflow_kernel.testing.cut_job import CutJob

_CALLS = {
    ClaimGeneration: "claim",
    AppendRecord: "append",
    SaveSavepoint: "save",
    CollectGarbage: "collect",
}


class CutRun(SimJob):
    """One coordinator with all its attempts. `chain_kind`: what its chains are."""

    chain_kind: type[CutChain] = CutChain

    def __init__(
        self, world: World, job: "CutJob", choice: RestoreChoice, *, started: bool
    ) -> None:
        self.job, self._choice, self._started = job, choice, started
        self.process = job.process()
        self.process.kill = self.crash
        self.files = SimFiles(job.store, self.process)
        world.lineage = CutLineage(job.truth)
        job.coordinators += 1
        self.log = world.machines.log(
            world.scenario.graph,
            self.files,
            nonce=f"nonce-{job.coordinators}",
            coordinator=f"coordinator-{job.coordinators}",
            wall_ms=lambda: world.clock.moment().wall_ms,
            continued=started,
        )
        self.graph = world.scenario.graph
        self._calls: deque[LogCommand] = deque()
        self._calling = False
        self._wire = ReportWire(world.dice, world.probes)
        self._savepoints: list[str] = []
        self._opening: dict[ChainId, CutProcess] = {}
        self.restored = NOTHING
        self._unread = False
        self.frozen = self.headless = False
        self.deployed = 0
        super().__init__(world)

    def _made_check(self) -> JobCheck:
        return CutCheck(self)

    def _made_coordinator(self) -> JobCoordinator:
        made: JobCoordinator = self.world.machines.coordinator(
            self.world.scenario.graph, choice=self._choice, started=self._started
        )
        return made

    def _heard(self, event: CoordinatorEvent) -> None:
        """Restored positions are looked at when a chain is deployed."""

    def status(self) -> JobStatus:
        """What its coordinator says of the job."""
        return self._coordinator.status()

    # --- the user and the killers --------------------------------------------------------------

    def ask_to_stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """The user stops the job."""
        self._probes["drain" if drain else "stop"] += 1
        self._savepoints += [] if savepoint is None else [savepoint]
        self._check.asked = OutcomeKind.STOPPED
        self._inbox.append(StopRequested(self._clock.moment(), drain, savepoint))

    def ask_for_savepoint(self, name: str) -> None:
        """The user wants a savepoint."""
        self._probes["savepoint"] += 1
        self._savepoints.append(name)
        self._inbox.append(SavepointRequested(self._clock.moment(), name))

    def crash(self) -> None:
        """The coordinator's process dies; its chains do not know yet."""
        self.process.dead = self.headless = self.faulty = True
        for orders in (self.deploys, self.connects, self._kills, self._inbox):
            orders.clear()
        self._calls.clear()
        self._wire.waiting.clear()
        self._due_ms = None

    def crash_all(self) -> None:
        """Every process of the run dies at once."""
        self.crash()
        for process in list(self._opening.values()):
            process.dead = True
        for chain in self._live():
            self.vanish(chain, noticed=False)

    @property
    def over(self) -> bool:
        """Nothing can happen in it any more."""
        ended = self.outcome is not None or self.headless
        return ended and not self._live() and not self._opening and not self._calling

    def describe(self) -> str:
        """Where everybody stands."""
        chains = {
            name: (chain.task.phase.value, chain.gone, chain.hung)
            for name, chain in self.chains.items()
        }
        status = self._coordinator.status()
        state = f"{status.state.value}: {status.cause}"
        return f"{state}, {status.checkpoints}, headless {self.headless}, {chains}"

    # --- steps ---------------------------------------------------------------------------------

    def steps_of(self, actor: "SimChain | str") -> list[Step]:
        """Every step that one of its actors can take now."""
        if isinstance(actor, SimChain):
            return self._steps_of(actor)
        steps: list[Step] = []
        if self.headless:
            if self._controls:
                steps.append(("control", self._deliver_control, None))
            if self._live() and self._dice.one_in(6):
                steps.append(("reap", self._reap, None))
            return steps
        if self.frozen:
            return [("control", self._deliver_control, None)] if self._controls else []
        if self.outcome is None:
            steps = self._steps_of(actor)
            if self._wire.waiting:
                steps += [("hear", self._deliver_report, None)] * 2
            if self._wire.stray_due(self._generation, self._coordinator._attempt.control.round_id):
                steps.append(("stray report", self._deliver_stray, None))
            if self._calls and not self._calling:
                steps += [("log", self._call_log, None)] * 2
        return steps

    def _steps_of_chain(self, chain: SimChain) -> list[Step]:
        assert isinstance(chain, CutChain)
        if chain.outcome is not None and chain.busy:
            return chain.steps()  # its end waits for what is at work
        return super()._steps_of_chain(chain)

    @property
    def actors(self) -> "list[SimChain | str]":
        """Who can take steps."""
        return self._actors

    def time_limit(self) -> int:
        """How far time may go."""
        if self.outcome is not None or self.headless or self.frozen:
            return self._clock.now_ms + 60_000
        limits = [self._time_limit()]
        limits += [report.at.now_ms + 4_000 for report in self._wire.waiting[:1]]
        return min(limits)

    def dues(self, *, far: bool) -> list[int]:
        """When something of it is due."""
        live = [chain for chain in self._live() if not chain.hung and chain.outcome is None]
        dues = [chain.due_ms for chain in live]
        dues += [chain.reported_ms + REPORT_INTERVAL_MS for chain in live]
        waiting = len(self._live()) < len(self._plans) or any(c.hung for c in self._live())
        if (waiting or far) and not self.frozen and self.outcome is None:
            dues.append(self._due_ms)
        now_ms = self._clock.now_ms
        return [due - now_ms for due in dues if due is not None and due > now_ms]

    def lags(self) -> bool:
        """Whether some lane has work and only takes its time."""
        return any(
            queue and not chain.hung
            for chain in self._live()
            for _, slow, queue in chain._queues.values()
            if slow > 1
        )

    # --- the log -------------------------------------------------------------------------------

    def _perform(self, command: CoordinatorCommand) -> None:
        if isinstance(command, LogCommand):
            self._calls.append(command)
        else:
            super()._perform(command)

    def _call_log(self) -> None:
        """One call of the log, in its thread: others act meanwhile, the coordinator too."""
        command = self._calls.popleft()
        self._calling = True
        if isinstance(command, ClaimGeneration) and command.graph is not None:
            self.graph = command.graph
        self.files.by = LogCall(self.process, command, self.graph)
        try:
            with self.process.calling(_CALLS[type(command)]):
                self.process.reached("begin")
                answer = self._called(command)
                self.process.reached("end")
        finally:
            self._calling = False
        if answer is not None:
            self._inbox.append(answer)

    def _called(self, command: LogCommand) -> CoordinatorEvent | None:
        try:
            answer = perform_log(self.log, command, self._clock)
        except ArkflowError as error:
            self._judge_failed(command, error)
            return None
        if isinstance(answer, LogFailed):
            self._judge_failed(command, answer.error)
        elif isinstance(answer, Claimed):
            self.process.generation = answer.claim.generation
            base = self.job.truth.check_claim(self.process, answer.claim, self.graph)
            self.restored, self._unread = base, True
        return answer

    def _judge_failed(self, command: LogCommand, error: ArkflowError) -> None:
        judged(error)
        if isinstance(error, ProtocolError):
            raise ViolationError(f"the log was misused: {error}") from error
        self._probes[f"log {type(error).__name__}"] += 1
        if isinstance(command, AppendRecord):
            self.job.truth.declared_failed(command.record)
        if isinstance(error, RestoreError):
            self.job.truth.check_refusal(error, self.graph)
            self.faulty = True

    def check_start(self) -> None:
        """A source is about to be read for the first time in an attempt."""
        truth = self.job.truth
        if self._unread and truth.last_claim is self.process and not truth.since_claim:
            truth.check_start(self.process)
        self._unread = False

    # --- chains --------------------------------------------------------------------------------

    def _new_attempt(self, generation: Generation) -> None:
        faulty = self.faulty
        self.world.replan(self.graph)
        self._plans = {plan.chain: plan for plan in self.graph.chains}
        super()._new_attempt(generation)
        self.faulty = faulty

    def _made_chain(self, command: DeployChain) -> SimChain | None:
        name, process = command.plan.chain, self.job.process()
        process.generation = command.generation
        self._opening[name] = process
        self.deployed += 1
        try:
            made = self.chain_kind(
                command.plan,
                command.generation,
                self.world.scenario.shared(command.plan, command.restored),
                self.world,
                *self._ends_of(command),
                run=self,
                process=process,
            )
        except ArkflowError as error:
            judged(error)
            self.faulty = True
            self._lost_in_opening(process, name, command.generation, error)
            return None
        except Interrupted:
            self.job.unwind()
            lost = ActorLostError("it died while it was opened")
            self._lost_in_opening(process, name, command.generation, lost)
            return None
        finally:
            if self._opening.get(name) is process:
                del self._opening[name]
        process.kill = lambda: self.vanish(made, noticed=True)
        return made

    def _lost_in_opening(
        self, process: CutProcess, name: ChainId, generation: Generation, error: ArkflowError
    ) -> None:
        told = not isinstance(error, ActorLostError) or self._opening.get(name) is process
        if told and not self.headless:
            self.faulty = True
            self._say_ended(name, generation, error)

    def _kill_chain(self, command: KillChain) -> None:
        opening = self._opening.pop(command.chain, None)
        if opening is None:
            super()._kill_chain(command)
            return
        self._probes["killed"] += 1
        opening.dead = True
        self._say_ended(command.chain, command.generation, ActorLostError("killed"))

    def vanish(self, chain: SimChain, *, noticed: bool) -> None:
        """A process is gone, with everything in it."""
        assert isinstance(chain, CutChain)
        chain.process.dead = True
        super().vanish(chain, noticed=noticed and not self.headless)

    def _reap(self) -> None:
        """Chains of a dead coordinator die with it, sooner or later (D6)."""
        self.vanish(self._dice.pick(self._live()), noticed=False)

    # --- what chains say -----------------------------------------------------------------------

    def _report(self, chain: SimChain) -> None:
        assert isinstance(chain, CutChain)
        if chain.report_soon and self._dice.one_in(6):
            chain.report_soon = False  # it may be lost
            return
        chain.report_soon = False
        answer = chain.task._flow.rounds.answer
        fresh = answer is not None and answer.checkpoint > chain.acknowledged
        with chain.process.calling("acknowledge"):
            if fresh:
                chain.process.passed("begin")
            super()._report(chain)
            if answer is not None and fresh:
                chain.acknowledged = answer.checkpoint
                chain.process.passed("end")

    def _tell(self, report: ChainReport) -> None:
        chain = self.chains[report.chain]
        assert isinstance(chain, CutChain)
        chain.reports += 1
        if not self.headless:
            self._wire.waiting.append(replace(report, number=chain.reports))

    def _deliver_report(self) -> None:
        report = self._wire.next()
        if report is not None:
            self._inbox.append(report)

    def _deliver_stray(self) -> None:
        self._inbox.append(self._wire.next_stray(self._generation))

    def _end(self, chain: SimChain) -> None:
        super()._end(chain)
        if self.headless:
            self._inbox = [event for event in self._inbox if not isinstance(event, ChainEnded)]

    # --- the end -------------------------------------------------------------------------------

    def check_end(self) -> None:
        """The run is over: its chains are gone, and its end is one that it may have."""
        assert self.outcome is not None
        if self._live() or self.deploys:
            raise ViolationError(f"the job ended while chains were alive: {self.describe()}")
        self._check.check_end(self.outcome.kind)
        assert isinstance(self._check, CutCheck)
        self._check.check_savepoints(self._inbox, self._savepoints)


__all__ = ["CutRun"]
