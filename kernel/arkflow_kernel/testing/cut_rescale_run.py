"""One coordinator of a simulated job that may be rescaled, and the job over all of its runs (K2).

Each step of a rescale is a point at which the coordinator, one of its chains or all of them die.
The processes of chains are followed by the names that they have: each runs one chain, and none is
left over.
"""

from typing import Any, Final

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ActorLostError
from arkflow_kernel.ids import NO_CHECKPOINT, ChainId, CheckpointId, Generation, OperatorId
from arkflow_kernel.log_work import LogCommand
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import (
    AppendRecord,
    ChainsPrepared,
    Claimed,
    ClaimGeneration,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    Desired,
    JobState,
    PrepareChains,
    RecordAppended,
    ReleaseChains,
    RescaleRequested,
    SendControl,
)
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_kernel.testing.cut_job import CutJob
from arkflow_kernel.testing.cut_plans import RescaleScenario
from arkflow_kernel.testing.cut_rescale_chain import RescaleChain
from arkflow_kernel.testing.cut_run import CutRun
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_chain import SimChain, Step
from arkflow_kernel.testing.sim_world import World

POINTS: Final = tuple(
    f"rescale: {point}"
    for point in (
        "before prepare",
        "after prepare",
        "round opened",
        "some sources injected",
        "all sources injected",
        "before append",
        "after append",
        "during publication",
        "before claim",
        "after claim",
        "during deploy",
        "before first control",
        "after first control",
    )
)
"""The steps of a rescale at which processes die."""

VICTIMS: Final = ("coordinator", "chain", "everything")

OVER: Final = ("done", "failed", "taken back")
"""How a rescale ends."""

TRIES_MAX: Final = 2
"""Attempts of a new plan without a checkpoint; then the old one is taken back."""


class RescaleRun(CutRun):
    """One coordinator. Of the processes of chains, by the names that they have: `_kept` are those
    that no chain of the attempt has, `_used` those that were given one, `_taken` what runs in them.
    """

    chain_kind = RescaleChain
    job: "RescaleJob"

    def __init__(
        self, world: World, job: "RescaleJob", choice: RestoreChoice, *, started: bool
    ) -> None:
        self.before = self.asked = world.scenario.graph
        self._prepares: list[PrepareChains] = []
        self._struck: list[str] = []
        self._passed: set[tuple[str, int]] = set()
        self._phases: list[str] = []
        self._round = NO_CHECKPOINT
        self._injected: set[ChainId] = set()
        self._recorded = False
        self._kept: set[ChainId] = set()
        self._taken: set[ChainId] = set()
        self._used: set[ChainId] = set()
        self._tries = 0
        self._on_trial = False
        self._gone: set[ChainId] = set()
        self._fresh = False
        super().__init__(world, job, choice, started=started)

    # --- the user and the killers --------------------------------------------------------------

    def ask_to_rescale(self, graph: ExecutionGraph) -> None:
        """The user wants another plan."""
        more = len(graph.chains) > len(self.graph.chains)
        self._probes["rescale up" if more else "rescale down"] += 1
        state = self.status()
        if state.checkpoints is not None and state.checkpoints.under_way:
            self._probes["rescale during a round"] += 1
        self._probes["rescale during a stop"] += state.state is JobState.STOPPING
        self._probes["rescale during a rescale"] += state.state is JobState.RESCALING
        self.asked = graph
        self._inbox.append(RescaleRequested(self._clock.moment(), graph))

    def crash(self) -> None:
        """The coordinator's process dies."""
        super().crash()
        self._prepares.clear()

    def comes_to(self, point: str) -> None:
        """A rescale comes to one of its steps; the killer strikes in the next step."""
        name = f"rescale: {point}"
        assert name in POINTS
        if (point, int(self._round)) not in self._passed:
            self._passed.add((point, int(self._round)))
            if self.job.faults.strikes_at(name):
                self._struck.append(name)

    def strike(self) -> None:
        """Whoever is to die at a step that was reached dies now."""
        while self._struck and self.outcome is None:
            name, victim = self._struck.pop(), self._dice.pick(("chain", *VICTIMS))
            live = self._live()
            self._probes[f"killed {name}"] += 1
            self._probes[f"struck {victim}"] += 1
            self._probes["fault"] += 1
            self.faulty = True
            if victim == "chain" and live:
                self.vanish(self._dice.pick(live), noticed=True)
            elif victim == "everything":
                self.crash_all()
            elif not self.headless:
                self.crash()

    # --- steps ---------------------------------------------------------------------------------

    def _steps_of(self, actor: "SimChain | str") -> list[Step]:
        steps = super()._steps_of(actor)
        if self._prepares and not isinstance(actor, SimChain):
            steps.append(("prepare", self._prepare, None))
        return steps

    def _prepare(self) -> None:
        command = self._prepares.pop(0)
        error = None
        if self.job.fails_to_prepare:
            self.job.fails_to_prepare = False
            self._probes["prepare failed"] += 1
            error = ActorLostError("injected: no process can be had")
        else:
            self._kept |= {plan.chain for plan in command.plans} - self._gone
        self._gone.clear()
        self._inbox.append(ChainsPrepared(self._clock.moment(), command.token, error))
        self.comes_to("after prepare")

    # --- what the coordinator orders -----------------------------------------------------------

    def _perform(self, command: CoordinatorCommand) -> None:
        match command:
            case PrepareChains():
                self._check_prepares(command)
                self._prepares.append(command)
                self.comes_to("before prepare")
                return
            case ReleaseChains():
                self._released(command)
                return
            case SendControl() if command.state.generation == self._generation:
                self._sends(command)
            case AppendRecord() if command.record.kind is RoundKind.RESCALE:
                self.comes_to("before append")
            case ClaimGeneration() if self._recorded:
                self.comes_to("before claim")
            case _:
                pass
        super()._perform(command)
        if isinstance(command, DeployChain):
            self._check_deploys(command)

    def _sends(self, command: SendControl) -> None:
        state = command.state
        if state.round_kind is RoundKind.RESCALE and state.round_id > self._round:
            self._round = state.round_id
            self._injected.clear()
            self.comes_to("round opened")
        if self._fresh and state.desired is Desired.RUN:
            self.comes_to("before first control")

    def _called(self, command: LogCommand) -> CoordinatorEvent | None:
        answer = super()._called(command)
        if isinstance(command, AppendRecord):
            if isinstance(answer, RecordAppended):
                self._on_trial = False
                if command.record.kind is RoundKind.RESCALE:
                    self._recorded = True
                    self.comes_to("after append")
        elif isinstance(answer, Claimed) and self._recorded:
            self.comes_to("after claim")
        return answer

    def injected(self, chain: RescaleChain, round_id: CheckpointId) -> None:
        """A source has cut for a rescale."""
        if round_id != self._round:
            return
        self._injected.add(chain.name)
        sources = {plan.chain for plan in self.graph.chains if plan.source is not None}
        done = self._injected >= sources
        self.comes_to("all sources injected" if done else "some sources injected")

    def publishes(self, chain: RescaleChain) -> None:
        """A chain has published something."""
        if self._recorded and chain.generation == self._generation:
            self.comes_to("during publication")

    def controlled(self, chain: RescaleChain) -> None:
        """A chain has heard control."""
        if self._fresh and chain.generation == self._generation:
            self.comes_to("after first control")

    # --- attempts and processes ----------------------------------------------------------------

    def _new_attempt(self, generation: Generation) -> None:
        old, new = self.world.scenario.graph, self.graph
        if old != new:
            self.before, self._tries, self._on_trial = old, 0, self._is_new()
        self._fresh, self._recorded = old != new and generation > 1, False
        self._tries += 1
        if self._tries > TRIES_MAX and self._on_trial:
            raise ViolationError(f"attempt {self._tries} of a plan without a checkpoint (K2)")
        self._kept |= self._taken
        self._taken, self._used = set(), set()
        super()._new_attempt(generation)

    def _is_new(self) -> bool:
        """Whether the plan at work is the one that this coordinator was asked for last."""
        rescale, known = self.status().rescale, parallelism(self.graph).items()
        return rescale is not None and rescale.parallelism.items() <= known

    def _check_prepares(self, command: PrepareChains) -> None:
        names = [plan.chain for plan in command.plans]
        known = {plan.chain for plan in self.graph.chains}
        if not names or len(names) != len(set(names)) or known & set(names):
            raise ViolationError(f"{names} are to be prepared, at work are {sorted(known)} (K2)")
        if left := self._kept - known:
            raise ViolationError(f"the processes of {sorted(left)} were never released (K2)")

    def _released(self, command: ReleaseChains) -> None:
        busy = self._taken & set(command.chains) - self._kept
        if busy:
            raise ViolationError(f"the processes of {sorted(busy)} run chains, and may go (K2)")
        self._kept -= set(command.chains)
        if self._prepares:
            self._gone |= set(command.chains)

    def _check_deploys(self, command: DeployChain) -> None:
        name = command.plan.chain
        planned = next((plan for plan in self.graph.chains if plan.chain == name), None)
        if planned != command.plan:
            raise ViolationError(f"{name} is deployed by a plan that was not claimed (K2, M1)")
        host = name if command.host is None else command.host
        if host in self._used:
            raise ViolationError(f"{name} is to run in the process of {host}, which is taken (K2)")
        self._used.add(host)
        self._kept.discard(host)
        self._taken.add(name)

    def _made_chain(self, command: DeployChain) -> SimChain | None:
        name = command.plan.chain
        if self.job.cannot_run(self.graph):
            self.faulty = True
            self._probes["new plan fails"] += 1
            self._say_ended(name, command.generation, ActorLostError("injected: it has no place"))
            return None
        made = super()._made_chain(command)
        if self._fresh and not self.headless:
            self.comes_to("during deploy")
        return made

    def _coordinate(self, event: CoordinatorEvent) -> None:
        super()._coordinate(event)
        status = self._coordinator.status()
        if status.rescale is None:
            return
        phase = f"{status.rescale.number} {status.rescale.phase}"
        if phase not in self._phases:
            self._phases.append(phase)
            self._probes[f"rescale {status.rescale.phase}"] += 1
        if status.state is JobState.RUNNING and status.parallelism != parallelism(self.graph):
            raise ViolationError(f"{status.parallelism} is told, deployed is {self.graph.chains}")
        if status.rescale.phase == "done":
            wanted = status.rescale.parallelism
            done = wanted.items() <= status.parallelism.items()
            if status.state is JobState.RUNNING and not done:
                raise ViolationError(f"done, but at work is {status.parallelism}, not {wanted}")


def parallelism(graph: ExecutionGraph) -> dict[OperatorId, int]:
    """The parallelism of each operator in a plan."""
    found: dict[OperatorId, int] = {}
    for plan in graph.chains:
        names = [] if plan.source is None else [plan.source.operator]
        names += [each.operator for each in plan.operators]
        names += [each.operator for each in plan.sinks]
        found |= dict.fromkeys(names, plan.parallelism)
    return found


class RescaleJob(CutJob):
    """A job that may be rescaled, over all of its runs.

    `plan` is what its driver plans for the next coordinator; `fails_to_prepare`: no process can be
    had, once.
    """

    run_kind = RescaleRun
    scenario: RescaleScenario

    def __init__(self, scenario: RescaleScenario, *rest: Any) -> None:
        self.plan = scenario.graph
        self._broken: ExecutionGraph | None = None
        self._failing = 0
        self.fails_to_prepare = False
        super().__init__(scenario, *rest)

    def breaks(self, graph: ExecutionGraph | None, deployments: int) -> None:
        """So many deployments of chains of this plan fail."""
        self._broken, self._failing = graph, deployments

    def cannot_run(self, graph: ExecutionGraph) -> bool:
        """Whether the deployment of a chain of a plan fails."""
        fails = self._failing > 0 and graph == self._broken
        self._failing -= fails
        return fails

    def _begins_with(self) -> Scenario:
        return self.scenario.under(self.plan)

    def succeed(self, run: CutRun) -> None:
        """The next coordinator has the plan at work, or the one before or after it (P8)."""
        assert isinstance(run, RescaleRun)
        self.plan = self._dice.pick([run.graph, run.asked, run.before])
        super().succeed(run)

    def step(self) -> None:
        """Whoever is to die does, then somebody acts."""
        for run in self.runs:
            assert isinstance(run, RescaleRun)
            run.strike()
        super().step()


__all__ = ["OVER", "POINTS", "VICTIMS", "RescaleJob", "RescaleRun", "parallelism"]
