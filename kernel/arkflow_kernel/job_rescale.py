"""The plan that a job runs, and how another one takes its place while it runs (K2, K3).

A part of `coordinator.py`. It knows how far a rescale is and which plan the next attempt has:

    wanted ─the job runs─▶ prepare ─▶ round ─its record is there─▶ end ─▶ claim ─▶ deploy ─▶ done
                               └─ any trouble: failed, nothing has changed

In ack mode there is no round and no claim: behind `prepare` the chains are told to stop, and the
plan is deployed where they stopped. From `end` on nothing is undone: what fails is followed by the
next attempt, of the new plan. Until its first completed checkpoint that plan is on trial: when it
fails twice, or cannot be at all, the one before is taken back.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.chain_hosts import hosts, parallelism_of
from arkflow_kernel.errors import ArkflowError, ConfigError, FencedError, RestoreError
from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, RequestToken
from arkflow_kernel.job_facts import JobFacts
from arkflow_kernel.job_requests import JobRequests
from arkflow_kernel.job_rounds import JobRounds, RescaleRound
from arkflow_kernel.limits import TRIAL_FAILURES_MAX, TRIAL_MS
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    ChainsPrepared,
    CoordinatorCommand,
    DeployChain,
    Desired,
    JobState,
    PrepareChains,
    ReleaseChains,
    RescaleStatus,
)
from arkflow_kernel.snapshot import RestoredChain

PREPARE: Final = "prepare"
ROUND: Final = "round"
END: Final = "end"
CLAIM: Final = "claim"
DEPLOY: Final = "deploy"
DONE: Final = "done"
FAILED: Final = "failed"
TAKEN_BACK: Final = "taken back"

_BEFORE_THE_RECORD: Final = (PREPARE, ROUND)
_BEHIND_THE_RECORD: Final = (END, CLAIM, DEPLOY)

Commands = list[CoordinatorCommand]


class JobRescale:
    """The rescales of one run of a job. `graph` is the plan at work, or that of the next attempt.

    `rounds` are None in ack mode. `status` tells of the last rescale, None before the first;
    `parallelism` how many subtasks each operator has in that plan.
    """

    def __init__(
        self, graph: ExecutionGraph, job: JobFacts, requests: JobRequests, rounds: JobRounds | None
    ) -> None:
        self.graph = graph
        self.parallelism = parallelism_of(graph)
        self.status: RescaleStatus | None = None
        self._job = job
        self._requests = requests
        self._rounds = rounds
        self._wanted: ExecutionGraph | None = None
        self._next: ExecutionGraph | None = None
        self._before: ExecutionGraph | None = None
        self._deployed = graph
        self._asks_log = False
        self._preparing: RequestToken | None = None
        self._added: tuple[ChainId, ...] = ()
        self._since_ms = MonotonicMs(0)
        self._failures = 0

    @property
    def _phase(self) -> str:
        return DONE if self.status is None else self.status.phase

    @property
    def _under_way(self) -> bool:
        return self._phase in (*_BEFORE_THE_RECORD, *_BEHIND_THE_RECORD)

    # --- until the point of no return ----------------------------------------------------------

    def want(self, graph: ExecutionGraph, at: Moment) -> None:
        """A user wants this plan. The newest wish waits until what is under way is over."""
        if self._job.wanted is not Desired.RUN and not self._under_way:
            self._tell_of(graph, at)
            self._tell(FAILED, at, f"a {self._job.wanted.name.lower()} was requested before")
        elif graph == self._next:
            self._wanted = None
        elif self._next is None and graph == self.graph:
            self._wanted = None
            self._tell_of(graph, at)
            self._tell(DONE, at)
        else:
            self._wanted = graph

    def begin(self, attempt: Attempt, at: Moment) -> Commands:
        """Begin the one that is wanted, once the job runs and nothing else is under way."""
        ready = self._job.state is JobState.RUNNING and self._preparing is None
        if self._wanted is None or not ready:
            return []
        self._next, self._wanted = self._wanted, None
        self._tell_of(self._next, at)
        if self._next == self.graph:  # the one before has made it so
            self._next = None
            self._tell(DONE, at)
            return []
        self._job.go(JobState.RESCALING, f"a rescale was requested: {self._text()}", at)
        known = {plan.chain for plan in self.graph.chains}
        used = set(hosts(self.graph, self._next).values()) - known
        plans = tuple(plan for plan in self._next.chains if plan.chain in used)
        self._added = tuple(plan.chain for plan in plans)
        if not plans:
            return self._ready(attempt, at)
        self._preparing = self._requests.token()
        return [PrepareChains(self._preparing, plans)]

    def prepared(self, event: ChainsPrepared, attempt: Attempt) -> Commands:
        """The processes that the next plan adds are there, or cannot be had."""
        self._requests.require(event.token == self._preparing, f"unasked answer {event.token}")
        self._preparing = None
        if self._phase != PREPARE:  # it was given up meanwhile
            return self._release()
        if event.error is not None:
            return self.fail(str(event.error), event.at)
        if self._wanted is not None:
            return self.fail("another one was requested", event.at)
        return self._ready(attempt, event.at)

    def _ready(self, attempt: Attempt, at: Moment) -> Commands:
        if self._rounds is not None:
            self._enter(ROUND, at)
            self._rounds.want_rescale()
            return []
        self._enter(END, at)
        return [*attempt.want(Desired.STOP)]

    def look(self, at: Moment) -> Commands:
        """See what became of its round."""
        if self._phase != ROUND or self._rounds is None:
            return []
        if self._rounds.rescale is RescaleRound.RECORDED:
            self._enter(END, at)
        elif self._rounds.rescale is RescaleRound.NONE:
            return self.fail(self._rounds.no_rescale, at)
        return []

    def fail(self, reason: str, at: Moment) -> Commands:
        """It comes to nothing, unless it is behind the point of no return: all goes on as it was.

        The additional processes are released, once it is known that they are there.
        """
        if self._phase not in _BEFORE_THE_RECORD:
            return []
        self._next = None
        self._tell(FAILED, at, reason)
        if self._rounds is not None:
            self._rounds.forget_rescale(reason)
        if self._job.state is JobState.RESCALING and self._job.wanted is Desired.RUN:
            self._job.go(JobState.RUNNING, f"the rescale failed: {reason}", at)
        return [] if self._preparing is not None else self._release()

    def _release(self) -> Commands:
        released, self._added = self._added, ()
        return [ReleaseChains(released)] if released else []

    # --- behind it -----------------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """The chains ended, or end, to make room for the next plan. A plain stop ends them there;
        one that has still something to do with the data does it with the next plan.
        """
        savepoint = self._rounds is not None and self._rounds.savepoints.wanted_at_end
        ends = self._job.wanted is Desired.CANCEL or (
            self._job.wanted is Desired.STOP and not savepoint
        )
        return self._phase in _BEHIND_THE_RECORD and not ends

    def claiming(self, at: Moment) -> None:
        """The next attempt is to begin, and the log is asked where."""
        self._asks_log = True
        if self._phase in _BEHIND_THE_RECORD:
            self._enter(CLAIM, at)

    def deployment(
        self,
        generation: Generation,
        restored: Callable[[ChainPlan], RestoredChain],
        at: Moment,
    ) -> Iterator[CoordinatorCommand]:
        """What deploys the next attempt; what it makes no use of may go."""
        if self._phase in _BEHIND_THE_RECORD:
            self._enter(DEPLOY, at)
        self._asks_log = False
        graph, before, self._deployed = self.graph, self._deployed, self.graph
        places = {} if graph is before else hosts(before, graph)
        for plan in graph.chains:
            token, place = self._requests.ask(plan.chain), places.get(plan.chain, plan.chain)
            host = None if place == plan.chain else place
            yield DeployChain(token, plan, generation, restored(plan), host)
        if graph is not before:
            yield from self._unused(before, set(places.values()))

    def _unused(self, before: ExecutionGraph, used: set[ChainId]) -> Iterator[ReleaseChains]:
        there = [plan.chain for plan in before.chains]
        if self._preparing is None:
            there += self._added
            self._added = ()
        if unused := tuple(name for name in there if name not in used):
            yield ReleaseChains(unused)

    def next_plan(self) -> ExecutionGraph:
        """The plan of the attempt that begins now."""
        if self._next is not None and self._phase in _BEHIND_THE_RECORD:
            self._before, self.graph, self._next = self.graph, self._next, None
            self.parallelism = parallelism_of(self.graph)
            self._failures = 0
        return self.graph

    def runs(self, at: Moment) -> None:
        """All chains of an attempt run."""
        if self._phase == DEPLOY:
            self._tell(DONE, at)

    def proven(self) -> None:
        """A checkpoint was completed: the plan at work stays."""
        self._before = None

    def takes_back(self, error: ArkflowError, at: Moment) -> bool:
        """An attempt failed, or a claim. Whether the plan before takes the place of this one."""
        if self._before is None or self._next is not None or isinstance(error, FencedError):
            return False
        if self._rounds is None and self._phase == DONE and at.now_ms - self._since_ms >= TRIAL_MS:
            self._before = None
            return False
        self._failures += not self._asks_log  # what the log meets is not the plan's fault
        hopeless = isinstance(error, ConfigError | RestoreError)
        if not hopeless and self._failures < TRIAL_FAILURES_MAX:
            return False
        self.graph, self._before = self._before, None
        self.parallelism = parallelism_of(self.graph)
        self._tell(TAKEN_BACK, at, str(error))
        return True

    def ended(self, cause: str, at: Moment) -> None:
        """The job is over: what is wanted or under way does not come."""
        if self._under_way:
            self._tell(FAILED, at, f"the job ended first: {cause}")
        if self._wanted is not None:
            self._tell_of(self._wanted, at)
            self._tell(FAILED, at, f"the job ended first: {cause}")
        self._wanted = self._next = None

    # --- what is told of it --------------------------------------------------------------------

    def _tell_of(self, graph: ExecutionGraph, at: Moment) -> None:
        """A new rescale begins."""
        number = 1 if self.status is None else self.status.number + 1
        known, wanted = self.parallelism, parallelism_of(graph)
        changed = {name: count for name, count in wanted.items() if known.get(name) != count}
        self.status = RescaleStatus(number, changed, PREPARE, at)
        self._since_ms = at.now_ms

    def _enter(self, phase: str, at: Moment) -> None:
        """The next phase begins; time that was spent in one before adds to it."""
        assert self.status is not None
        name = f"{self.status.phase}_ms"
        spent = getattr(self.status.phases, name) + at.now_ms - self._since_ms
        phases = replace(self.status.phases, **{name: spent})
        self.status = replace(self.status, phase=phase, phases=phases)
        self._since_ms = at.now_ms

    def _tell(self, phase: str, at: Moment, error: str | None = None) -> None:
        """How it ended."""
        assert self.status is not None
        if self._under_way:
            self._enter(phase, at)
        self.status = replace(self.status, phase=phase, error=error)

    def _text(self) -> str:
        assert self.status is not None
        return ", ".join(f"{name}={count}" for name, count in self.status.parallelism.items())

    def validate(self) -> None:
        """Assert that the phase, the plans and the job's state agree."""
        state, phase = self._job.state, self._phase
        assert (self._next is not None) == (phase in (*_BEFORE_THE_RECORD, END))
        if state is JobState.RESCALING:
            assert phase in (PREPARE, ROUND, END), phase
        if phase in _BEFORE_THE_RECORD:
            assert state is JobState.RESCALING, state
        if state is JobState.RUNNING:
            assert phase not in _BEHIND_THE_RECORD, phase
        if self._preparing is not None:
            assert self._added, "somebody is prepared"


__all__ = ["JobRescale"]
