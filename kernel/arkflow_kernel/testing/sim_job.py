"""One attempt of a job inside the simulation: the coordinator, its chains, the way between them."""

from collections import Counter, deque
from typing import Any

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.ports import SplitPosition
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
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    EndJob,
    JobOutcome,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
)
from arkflow_kernel.testing.checkers import ChainLedger, ViolationError
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.plans import job_plan
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_chain import SimChain, Step
from arkflow_kernel.testing.virtual_clock import VirtualClock

_HANG_ODDS = 8


class SimJob:
    """One attempt. `step` takes one seeded choice; a next attempt continues at `durable`."""

    def __init__(
        self,
        scenario: Scenario,
        ledgers: dict[ChainId, ChainLedger],
        clock: VirtualClock,
        dice: Dice,
        probes: Counter[str],
    ) -> None:
        self._scripts = {script.plan.chain: script for script in scenario.chains}
        self._ledgers, self._clock, self._dice, self._probes = ledgers, clock, dice, probes
        self._chains: dict[ChainId, SimChain] = {}
        self._inbox: list[CoordinatorEvent] = []
        self._deploys: list[DeployChain] = []
        self._closes: list[CloseChain] = []
        self._controls: list[tuple[ChainId, ControlState]] = []
        self._reported_end: set[ChainId] = set()
        self._fail_deploy = False
        self.durable: dict[ChainId, tuple[SplitPosition, ...]] = {}
        self.outcome: JobOutcome | None = None

    def begin(
        self,
        generation: Generation,
        machines: Any,
        restored: dict[ChainId, tuple[SplitPosition, ...]],
    ) -> None:
        """Deploy."""
        self._machines, self._generation = machines, generation
        self.durable = restored
        graph = job_plan(*(script.plan for script in self._scripts.values()))
        self._coordinator = machines.coordinator(graph, generation)
        self._coordinate(Begin(self._clock.moment()))

    def stop(self) -> None:
        """The user stops the job."""
        self._probes["stop"] += 1
        self._inbox.append(StopRequested(self._clock.moment()))

    def cancel(self) -> None:
        """The user cancels the job."""
        self._probes["cancel"] += 1
        self._inbox.append(CancelRequested(self._clock.moment()))

    def fail_something(self) -> None:
        """The next request of some chain fails."""
        self._probes["fault"] += 1
        if self._chains:
            self._dice.pick(list(self._chains.values())).fail_next = True

    def fail_deployment(self) -> None:
        """The first chain that is deployed fails."""
        self._fail_deploy = True

    def describe(self) -> str:
        """Where everybody stands; for a job that does not end."""
        phases = {name: chain.task.phase.value for name, chain in self._chains.items()}
        return f"{self._coordinator.status().state.value}, {phases}"

    # --- one step ------------------------------------------------------------------------------

    def step(self) -> None:
        """Choose one of the possible steps, by weight, and take it."""
        steps = self._possible()
        total = sum(weight for _, weight, _ in steps)
        ticket = self._dice.below(total)
        for name, weight, effect in steps:
            ticket -= weight
            if ticket < 0:
                self._probes[f"step {name}"] += 1
                effect()
                return

    def _possible(self) -> list[Step]:
        steps: list[Step] = [("wait", 1, self._pass_time)]
        if self._inbox:
            steps.append(("coordinate", 4, self._hear))
        if self._deploys:
            steps.append(("deploy", 2, self._deploy))
        if self._closes:
            steps.append(("close", 2, self._close))
        if self._controls:
            steps.append(("control", 3, self._deliver_control))
        due_ms = self._coordinator.next_deadline_ms()
        if due_ms is not None and self._clock.moment().now_ms >= due_ms:
            steps.append(("kill tick", 2, self._tick))
        for name, chain in self._chains.items():
            steps += chain.steps()
            if not chain.closed and not chain.hung:
                steps.append(("report", 1, lambda name=name: self._report(name)))  # type: ignore[misc]
            if chain.outcome is not None and not chain.closed:
                steps.append(("end", 2, lambda name=name: self._end(name)))  # type: ignore[misc]
        return steps

    def _pass_time(self) -> None:
        """A little, or to the next deadline."""
        now_ms = self._clock.moment().now_ms
        chains = (c.task.next_deadline_ms() for c in self._chains.values() if not c.closed)
        dues = [due for due in (*chains, self._coordinator.next_deadline_ms()) if due is not None]
        ahead = [due - now_ms for due in dues if due > now_ms]
        jump = min(ahead, default=0) if self._dice.one_in(2) else 0
        self._clock.advance(jump or self._dice.between(0, 5))

    def _tick(self) -> None:
        self._coordinate(Tick(self._clock.moment()))

    def _hear(self) -> None:
        """The coordinator's mailbox keeps the order of one sender only."""
        index = self._dice.below(len(self._inbox))
        sender = getattr(self._inbox[index], "chain", None)
        first = next(i for i, e in enumerate(self._inbox) if getattr(e, "chain", None) == sender)
        self._coordinate(self._inbox.pop(first))

    def _deliver_control(self) -> None:
        """Any of those on the way: late, in another order, twice, or never."""
        index = self._dice.below(len(self._controls))
        name, state = self._controls[index]
        if self._dice.one_in(5):
            self._probes["control repeated"] += 1
        else:
            del self._controls[index]
            if self._dice.one_in(4):
                self._probes["control lost"] += 1
                return
        if name in self._chains:
            self._chains[name].control(state)

    def _report(self, name: ChainId) -> None:
        chain = self._chains[name]
        frontier = chain.task.frontier()
        self.durable[name] = frontier
        report = ChainReport(self._clock.moment(), name, chain.task.statistics(), frontier)
        self._inbox.append(report)

    def _deploy(self) -> None:
        command = self._deploys.pop(self._dice.below(len(self._deploys)))
        name = command.plan.chain
        if self._fail_deploy:
            self._fail_deploy = False
            self._probes["deployment failed"] += 1
            failed = ChainOutcome(OutcomeKind.FAILED, SourceError("injected"))
            self._inbox.append(ChainEnded(self._clock.moment(), name, failed))
            return
        self._chains[name] = SimChain(
            self._scripts[name],
            self._ledgers[name],
            self._clock,
            self.durable.get(name, ()),
            make_task=self._machines.task,
            schedule=self._machines.schedule,
            generation=command.generation,
        )
        self._inbox.append(ChainReady(self._clock.moment(), command.token, name))

    def _end(self, name: ChainId) -> None:
        """The driver closes the components, then reports (T4)."""
        chain = self._chains[name]
        assert chain.outcome is not None
        chain.check_end()
        chain.close()
        self._probes[f"chain {chain.outcome.kind.value}"] += 1
        self.durable[name] = chain.outcome.frontier
        self._inbox.append(ChainEnded(self._clock.moment(), name, chain.outcome))

    def _close(self) -> None:
        command = self._closes.pop(self._dice.below(len(self._closes)))
        chain = self._chains.get(command.chain)
        self._deploys = [d for d in self._deploys if d.plan.chain != command.chain]
        if chain is not None and not chain.closed:
            if not command.kill:
                raise ViolationError("a chain that had not ended was closed without a kill")
            self._probes["killed"] += 1
            chain.close()
        self._inbox.append(ChainClosed(self._clock.moment(), command.token, command.chain))

    # --- the coordinator -----------------------------------------------------------------------

    def _coordinate(self, event: CoordinatorEvent) -> None:
        commands: deque[CoordinatorCommand] = deque(self._coordinator.handle(event))
        self._coordinator.validate()
        for command in commands:
            match command:
                case DeployChain():
                    self._deploys.append(command)
                case SendControl():
                    self._send(command)
                case CloseChain():
                    self._closes.append(command)
                case EndJob():
                    self.outcome = command.outcome

    def _send(self, command: SendControl) -> None:
        self._controls.append((command.chain, command.state))
        chain = self._chains.get(command.chain)
        cancelled = command.state.desired.name == "CANCEL"
        if chain is not None and cancelled and self._dice.one_in(_HANG_ODDS):
            self._probes["hung"] += 1
            chain.hung = True

    def check_end(self) -> None:
        """The job is over: every chain is closed, and the job's end is the worst of theirs."""
        assert self.outcome is not None
        open_chains = [name for name, chain in self._chains.items() if not chain.closed]
        if open_chains:
            raise ViolationError(f"the job ended while {open_chains} were open")
        if self._coordinator.handle(Tick(self._clock.moment())):
            raise ViolationError("the coordinator acts after its end")
        kinds = {c.outcome.kind for c in self._chains.values() if c.outcome is not None}
        if self.outcome.kind is OutcomeKind.FINISHED and kinds != {OutcomeKind.FINISHED}:
            raise ViolationError(f"the job finished, its chains: {kinds}")


__all__ = ["SimJob"]
