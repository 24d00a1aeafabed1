"""A whole job inside the simulation: the coordinator, its chains, the ways between them.

The driver of the job: it deploys, connects, kills and reports, each in a step of its own.
"""

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError, ChannelError, SourceError
from arkflow_kernel.ids import ChainId, ChannelId, Generation, MonotonicMs
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    ChainReport,
    ConnectChain,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    EndJob,
    JobOutcome,
    KillChain,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
)
from arkflow_kernel.testing.job_checks import JobCheck
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_chain import SimChain, Step
from arkflow_kernel.testing.sim_channel import SimChannel
from arkflow_kernel.testing.sim_mail import sender_of, tells_end
from arkflow_kernel.testing.sim_world import World

_ALWAYS = ("job", "job")
"""The job's own driver goes on twice as often as a chain."""

_LATE_MS = 4_000
"""So much later than due may a heartbeat come, and so long may the coordinator's mail wait."""


class SimJob:
    """One run of a job, with all its attempts. `step` takes one seeded choice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._clock, self._dice, self._probes = world.clock, world.dice, world.probes
        graph = world.scenario.graph
        self._plans = {plan.chain: plan for plan in graph.chains}
        self.chains: dict[ChainId, SimChain] = {}
        self.channels: dict[ChannelId, SimChannel] = {}
        self.deploys: list[DeployChain] = []
        self.connects: list[ConnectChain] = []
        self._kills: list[KillChain] = []
        self._controls: list[SendControl] = []
        self._notices: list[SimChain] = []
        self._inbox: list[CoordinatorEvent] = []
        self._generation = Generation(0)
        self._check = self._made_check()
        self.fail_deployment = False
        self.fail_connect = False
        self.faulty = False
        self.lost = False
        self.outcome: JobOutcome | None = None
        self._due_ms: MonotonicMs | None = None
        self._actors: list[SimChain | str] = list(_ALWAYS)
        self._coordinator = self._made_coordinator()
        self._coordinate(Begin(self._clock.moment()))

    def _made_check(self) -> JobCheck:
        return JobCheck(self.world.scenario.graph)

    def _made_coordinator(self) -> JobCoordinator:
        made: JobCoordinator = self.world.machines.coordinator(self.world.scenario.graph)
        return made

    # --- the user ------------------------------------------------------------------------------

    def stop(self) -> None:
        """The user stops the job."""
        self._probes["stop"] += 1
        self._check.asked = OutcomeKind.STOPPED
        self._inbox.append(StopRequested(self._clock.moment()))

    def cancel(self) -> None:
        """The user cancels the job."""
        self._probes["cancel"] += 1
        self._check.asked = OutcomeKind.CANCELLED
        self._inbox.append(CancelRequested(self._clock.moment()))

    def describe(self) -> str:
        """Where everybody stands; for a job that does not end."""
        phases = {name: chain.task.phase.value for name, chain in self.chains.items()}
        return f"{self._coordinator.status().state.value}, {phases}"

    # --- one step ------------------------------------------------------------------------------

    def step(self) -> None:
        """Choose who goes on, then which of the steps that it can take."""
        actors = self._actors
        count = len(actors)
        first = self._dice.below(count + 1)
        if first < count:
            for turn in range(first, first + count):
                steps = self._steps_of(actors[turn % count])
                if steps:
                    self._take(self._dice.pick(steps))
                    return
        limit = self._time_limit()
        if limit > self._clock.now_ms:
            self._take(("wait", self._pass_time, limit))
        elif first < count:
            raise ViolationError(f"nothing can go on; {self.describe()}")

    def _take(self, step: Step) -> None:
        name, effect, argument = step
        self._probes[name] += 1
        effect() if argument is None else effect(argument)

    def _live(self) -> list[SimChain]:
        return [chain for chain in self.chains.values() if not chain.gone]

    def _changed(self) -> None:
        """A chain came or went."""
        self._actors = [*_ALWAYS, *self._live()]

    def _steps_of(self, actor: "SimChain | str") -> list[Step]:
        if isinstance(actor, SimChain):
            return self._steps_of_chain(actor)
        steps: list[Step] = []
        if self._inbox:
            steps += [("coordinate", self._hear, None)] * 3
        for name, orders, effect in (
            ("deploy", self.deploys, self._deploy),
            ("connect", self.connects, self._connect),
            ("kill", self._kills, self._kill),
            ("control", self._controls, self._deliver_control),
            ("notice", self._notices, self._notice),
        ):
            if orders:
                steps.append((name, effect, None))
        if self._due_ms is not None and self._clock.now_ms >= self._due_ms:
            steps.append(("coordinator tick", self._tick, None))
        return steps

    def _steps_of_chain(self, chain: SimChain) -> list[Step]:
        steps = chain.steps()
        if not chain.hung and chain.outcome is not None:
            steps += [("end", self._end, chain)] * 2
        elif chain.report_due():
            steps.append(("report", self._report, chain))
        return steps

    def _time_limit(self) -> int:
        """Time must not outrun heartbeats of live chains, or they would count as hung."""
        limits = [chain.reported_ms + _LATE_MS for chain in self._live() if not chain.hung]
        limits += [event.at.now_ms + _LATE_MS for event in self._inbox[:1]]
        return min(limits, default=self._clock.now_ms + 60_000)

    def _pass_time(self, limit: int) -> None:
        """A little, or to the next deadline."""
        now_ms = self._clock.now_ms
        jump, live = self._dice.between(0, 5), self._live()
        waiting = len(live) < len(self._plans) or any(chain.hung for chain in live)
        if waiting or self._dice.one_in(3):
            dues = [chain.due_ms for chain in live]
            if waiting or self._dice.one_in(40):
                dues.append(self._due_ms)
            ahead = [due - now_ms for due in dues if due is not None and due > now_ms]
            jump = min(ahead, default=jump)
        self._clock.advance(min(jump, limit - now_ms))

    # --- the coordinator's side ----------------------------------------------------------------

    def _tick(self) -> None:
        self._coordinate(Tick(self._clock.moment()))

    def _hear(self) -> None:
        """The coordinator's mailbox keeps the order of one sender only."""
        sender = sender_of(self._inbox[self._dice.below(len(self._inbox))])
        first = next(i for i, event in enumerate(self._inbox) if sender_of(event) == sender)
        self._coordinate(self._inbox.pop(first))

    def _coordinate(self, event: CoordinatorEvent) -> None:
        self._check.told(event)
        commands = self._coordinator.handle(event)
        self._coordinator.validate()
        self._due_ms = self._coordinator.next_deadline_ms()
        self._heard(event)
        for command in commands:
            self._perform(command)

    def _heard(self, event: CoordinatorEvent) -> None:
        """What the coordinator made of an event."""
        if isinstance(event, ChainConnected):
            attempt = self._coordinator._attempt
            self._check.restarts.started |= attempt.all_connected and not attempt.given_up
        elif isinstance(event, ChainReport | ChainEnded):
            restored = self._coordinator._positions.restored(event.chain)
            self._check.check_restored(event.chain, restored)

    def _perform(self, command: CoordinatorCommand) -> None:
        match command:
            case DeployChain():
                if command.generation != self._generation:
                    self._new_attempt(command.generation)
                restored = command.restored.sources
                self.world.lineage.check_positions(restored, "restored position")
                self._check.check_restored(command.plan.chain, restored)
                self.deploys.append(command)
            case ConnectChain():
                self.connects.append(command)
            case SendControl():
                self._controls.append(command)
            case KillChain():
                self._kills.append(command)
            case EndJob():
                self.outcome = command.outcome

    def _new_attempt(self, generation: Generation) -> None:
        alive = [name for name, chain in self.chains.items() if chain.alive]
        self._check.begins(generation, self._clock.now_ms, alive)
        self._probes["restart"] += generation > 1
        self._generation = generation
        self.connects.clear()
        self.faulty = self.fail_deployment = self.fail_connect = False
        self.chains = {}
        self._changed()
        self.channels = {
            channel.channel: SimChannel(channel, generation)
            for plan in self._plans.values()
            for channel in plan.inputs
        }
        self.world.new_attempt()

    # --- orders --------------------------------------------------------------------------------

    def _deploy(self) -> None:
        command = self.deploys.pop(self._dice.below(len(self.deploys)))
        plan, now = command.plan, self._clock.moment()
        if self.fail_deployment:
            self.fail_deployment = False
            self._say_ended(plan.chain, command.generation, SourceError("injected"))
            return
        chain = self._made_chain(command)
        if chain is None:
            return  # its end was told
        self.chains[plan.chain] = chain
        self._changed()
        work = chain.work
        self._inbox.append(
            ChainReady(now, command.token, plan.chain, work.replay, work.opened.commits)
        )

    def _made_chain(self, command: DeployChain) -> SimChain | None:
        plan, ends = command.plan, self._ends_of(command)
        restored = self.world.scenario.shared(plan, command.restored)
        return SimChain(plan, command.generation, restored, self.world, *ends)

    def _ends_of(self, command: DeployChain) -> tuple[list[SimChannel], list[SimChannel]]:
        """The channels that enter a chain, and those that leave it."""
        known, plan = self.channels, command.plan
        return [known[c.channel] for c in plan.inputs], [known[c.channel] for c in plan.channels]

    def _connect(self) -> None:
        command = self.connects.pop(self._dice.below(len(self.connects)))
        chain = self.chains.get(command.chain)
        if chain is None or chain.gone:
            return  # its end was told, or will be
        if self.fail_connect:
            self.fail_connect = False
            self.vanish(chain, noticed=False)
            self._say_ended(command.chain, chain.generation, ChannelError("injected"))
            return
        self._inbox.append(ChainConnected(self._clock.moment(), command.token, command.chain))

    def _kill(self) -> None:
        command = self._kills.pop(self._dice.below(len(self._kills)))
        if command.generation == self._generation:
            self._kill_chain(command)

    def _kill_chain(self, command: KillChain) -> None:
        self._probes["killed"] += 1
        waiting = len(self.deploys)
        self.deploys = [d for d in self.deploys if d.plan.chain != command.chain]
        chain = self.chains.get(command.chain)
        if chain is not None and not chain.gone:
            self.vanish(chain, noticed=False)
        elif chain is not None and not any(n is chain for n in self._notices):
            if any(tells_end(e, command.chain, command.generation) for e in self._inbox):
                return
        elif chain is None and waiting == len(self.deploys):
            return  # its deployment failed, and that was told
        self._notices = [n for n in self._notices if n is not chain]
        self._say_ended(command.chain, command.generation, ActorLostError("killed"))

    def _deliver_control(self) -> None:
        """Any of those on the way: late, in another order, twice, or never."""
        index = self._dice.below(len(self._controls))
        command = self._controls[index]
        if self._dice.one_in(6):
            self._probes["control repeated"] += 1
        else:
            del self._controls[index]
            if self._dice.one_in(5):
                self._probes["control lost"] += 1
                return
        chain = self.chains.get(command.chain)
        if chain is not None and not chain.gone:
            if command.state.generation != chain.generation:
                self._probes["control of an old generation"] += 1
            chain.control(command.state)

    def _notice(self) -> None:
        chain = self._notices.pop(self._dice.below(len(self._notices)))
        self._say_ended(chain.plan.chain, chain.generation, ActorLostError("the process is gone"))

    def _say_ended(self, chain: ChainId, generation: Generation, error: ArkflowError) -> None:
        outcome = ChainOutcome(OutcomeKind.FAILED, error)
        self._inbox.append(ChainEnded(self._clock.moment(), chain, generation, outcome))

    # --- chains --------------------------------------------------------------------------------

    def _report(self, chain: SimChain) -> None:
        task = chain.task
        statistics = task.statistics()
        chain.check_held(statistics)
        if any(channel.waiting_bytes for channel in statistics.channels):
            self._probes["stall"] += 1
        chain.reported_ms = self._clock.now_ms
        now = self._clock.moment()
        self._tell(task.report(now))

    def _tell(self, report: ChainReport) -> None:
        """A report goes to the coordinator."""
        self._inbox.append(report)

    def _end(self, chain: SimChain) -> None:
        """The driver closes the components, then reports (T4)."""
        outcome = chain.outcome
        assert outcome is not None
        chain.check_end(faulty=self.faulty)
        chain.close()
        self._changed()
        self._probes[f"chain {outcome.kind.value}"] += 1
        if outcome.kind in (OutcomeKind.FAILED, OutcomeKind.CANCELLED):
            self.faulty = True
            self._break_connections(chain)
        ended = ChainEnded(self._clock.moment(), chain.plan.chain, chain.generation, outcome)
        self._inbox += [ended] * self._dice.pick([1, 1, 1, 2])

    def vanish(self, chain: SimChain, *, noticed: bool) -> None:
        """A process is gone, with everything in it."""
        chain.gone = self.faulty = True
        self._changed()
        self._break_connections(chain)
        if noticed:
            self._notices.append(chain)

    def _break_connections(self, chain: SimChain) -> None:
        """What was not yet sent is lost; the peers hear of it, sooner or later."""
        name = chain.plan.chain
        for channel in (*chain.inputs, *chain.outputs.values()):
            if channel in chain.outputs.values():
                channel.cut(self._dice.below(len(channel.wire) + 1))
            for peer in self.ends(channel):
                if peer is not chain and peer.alive:
                    peer.broken = ChannelError(f"the connection to {name} broke")

    def ends(self, channel: SimChannel) -> list[SimChain]:
        """The two chains of a channel, as far as they are deployed."""
        plan: ChannelPlan = channel.plan
        found = (self.chains.get(plan.source), self.chains.get(plan.target))
        return [chain for chain in found if chain is not None]

    # --- the end -------------------------------------------------------------------------------

    def check_end(self) -> None:
        """The job is over: every chain is gone, and the job's end is the worst of theirs."""
        assert self.outcome is not None
        if self._live() or self.deploys:
            raise ViolationError(f"the job ended while chains were alive: {self.describe()}")
        if self._coordinator.handle(Tick(self._clock.moment())):
            raise ViolationError("the coordinator acts after its end")
        kind = self.outcome.kind
        kinds = {c.outcome.kind for c in self.chains.values() if c.outcome is not None}
        deployed = len(self.chains)
        if kind is OutcomeKind.FINISHED:
            self.world.lineage.check_all_covered()
        if self._check.ended_in_order(kind, kinds, deployed=deployed, faulty=self.faulty):
            self.world.lineage.check_quiet()
            for channel in self.channels.values():
                channel.check_done()
        self._check.check_end(kind)


__all__ = ["SimJob"]
