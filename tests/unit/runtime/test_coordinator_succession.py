"""What the driver does when a coordinator is lost: when there is a successor, what it is told, what
it waits for (P8, D3, D5, D6). Coordinators are scripted; real ones run in integration tests.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError, RayTaskError

from arkflow_kernel.errors import ActorLostError, ConfigError, ResourceError
from arkflow_kernel.ids import ChainId, JobId, MonotonicMs, OperatorId, OutputId, WallMs
from arkflow_kernel.job_runner_adapter import NEWEST
from arkflow_kernel.limits import LEASE_MS
from arkflow_kernel.plan import (
    ChainPlan,
    CheckpointPlan,
    ComponentPlan,
    ExecutionGraph,
    Mode,
    RestartPlan,
    SinkPlan,
    SourcePlan,
)
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from arkflow_ray.runtime import ray_job
from arkflow_ray.runtime.job_settings import JobSettings, StdoutActors, Succession
from arkflow_ray.runtime.lines import LineBuffer
from arkflow_ray.runtime.ray_job import RayJob

PLAN = ChainPlan(
    ChainId("source-0"),
    SourcePlan(OperatorId("source"), ComponentPlan("memory", {})),
    (),
    (SinkPlan(OperatorId("sink"), ComponentPlan("drop", {})),),
    (OutputId("sink"),),
)
GRAPH = ExecutionGraph(
    JobId("j"),
    1,
    Mode.CHECKPOINT,
    (PLAN,),
    (),
    1,
    RestartPlan(initial_ms=1, max_ms=1),
    CheckpointPlan("memory://x"),
)
STATUS = JobStatus(JobState.RUNNING, "", Moment(MonotonicMs(0), WallMs(0)))
FINISHED = JobOutcome(OutcomeKind.FINISHED)
DIED = ActorDiedError()
FAULT: RayError = RayTaskError("run", "Traceback", TypeError())  # type: ignore[no-untyped-call]

End = JobOutcome | RayError


class Coordinators:
    """Stands for the class `CoordinatorProcess`: the coordinators of a run, each with its end.

    A `ResourceError` is raised by `start`. `told` is what they were asked.
    """

    def __init__(self, *ends: End | ResourceError, claimed: bool = True, certain: bool = True):
        self._ends = list(ends)
        self._claimed, self._certain = claimed, certain
        self.made: list[tuple[RestoreChoice, Succession]] = []
        self.holds: list[int] = []
        self.told: list[str] = []
        self.killed = 0
        self.on_lost: Callable[[], None] = lambda: None

    def __call__(
        self, graph: ExecutionGraph, choice: RestoreChoice, before: Succession | None = None
    ) -> Any:
        self.made.append((choice, before or Succession()))
        end = self._ends.pop(0)
        number = len(self.made)

        def start(settings: JobSettings, hold_ms: int) -> JobStatus:
            if isinstance(end, ResourceError):
                raise end
            self.holds.append(hold_ms)
            return STATUS

        def verb(name: str) -> Any:
            return SimpleNamespace(remote=lambda *args: self.told.append(f"{number} {name} {args}"))

        return SimpleNamespace(
            start=start,
            run=end,
            status=lambda: STATUS,
            stdout_actors=lambda: StdoutActors(STATUS.generation, {}, frozenset()),
            kill=lambda: None,
            end=self._end,
            claimed=self._claimed,
            place=None,
            actor=SimpleNamespace(
                stop=verb("stop"), cancel=verb("cancel"), savepoint=verb("savepoint")
            ),
        )

    def _end(self) -> bool:
        self.killed += 1
        self.on_lost()
        return self._certain


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RayJob]:
    """Start a job with these coordinators."""

    def get(end: End) -> JobOutcome:
        if isinstance(end, RayError):
            raise end
        return end

    def start(
        coordinators: Coordinators, graph: ExecutionGraph = GRAPH, choice: RestoreChoice = NEWEST
    ) -> RayJob:
        monkeypatch.setattr(ray, "wait", lambda runs, timeout: (runs, []))
        monkeypatch.setattr(ray, "get", get)
        monkeypatch.setattr(ray_job, "CoordinatorProcess", coordinators)
        monkeypatch.setattr(ray_job, "remove_groups", lambda job: None)
        settings = JobSettings(0.01, 1, "/", {}, "afc-test")
        return RayJob(graph, settings, LineBuffer(), choice)

    return start


Begin = Callable[..., RayJob]


@pytest.mark.parametrize("loss", [DIED, GetTimeoutError("Get timed out")])
def test_a_lost_coordinator_has_a_successor_at_once(loss: RayError, begin: Begin) -> None:
    coordinators = Coordinators(loss, FINISHED)
    job = begin(coordinators)
    assert job.wait() == FINISHED
    assert (len(coordinators.made), coordinators.killed, coordinators.holds) == (2, 1, [0, 0])
    assert job.status().restarts == 1


def test_the_users_choice_of_a_start_is_for_the_first_claim_alone(begin: Begin) -> None:
    scratch = RestoreChoice(RestoreKind.SCRATCH)
    claimed = Coordinators(DIED, FINISHED)
    begin(claimed, choice=scratch).wait()
    assert claimed.made[1] == (scratch, Succession(continued=True))
    unclaimed = Coordinators(DIED, FINISHED, claimed=False)
    begin(unclaimed, choice=scratch).wait()
    assert unclaimed.made[1] == (scratch, Succession(continued=False))


def test_a_successor_waits_for_the_lease_of_chains_whose_end_is_not_certain(begin: Begin) -> None:
    coordinators = Coordinators(DIED, FINISHED, certain=False)
    job = begin(coordinators)
    assert job.wait() == FINISHED
    first, second = coordinators.holds
    assert first == 0
    assert 0 < second <= LEASE_MS
    (lost, *_) = job.status().transitions
    assert lost.cause.endswith("and deploys after the lease of its processes, 10 s")


def test_a_successor_that_does_not_come_up_has_one_too(begin: Begin) -> None:
    coordinators = Coordinators(DIED, ResourceError("did not start"), FINISHED)
    job = begin(coordinators)
    assert job.wait() == FINISHED
    causes = [change.cause for change in job.status().transitions]
    assert causes[0].endswith("another one takes its place at once")
    assert causes[1] == "did not start; another one takes its place in 0.001 s"


def test_what_was_asked_meanwhile_is_asked_of_the_successor(begin: Begin) -> None:
    coordinators = Coordinators(DIED, FINISHED)
    job = begin(coordinators)

    def ask() -> None:
        job.savepoint("a")
        job.stop(drain=True)

    coordinators.on_lost = ask
    job.wait()
    assert coordinators.told[2:] == ["2 savepoint ('a',)", "2 stop (True, None)"]


def test_a_job_that_is_cancelled_has_no_successor(begin: Begin) -> None:
    coordinators = Coordinators(DIED)
    job = begin(coordinators)
    coordinators.on_lost = job.cancel
    assert job.wait() == JobOutcome(OutcomeKind.CANCELLED)


def test_a_cancel_ends_the_wait_for_a_successor(begin: Begin) -> None:
    slow = replace(GRAPH, restart=RestartPlan(strategy="fixed", initial_ms=10**8, max_ms=10**8))
    coordinators = Coordinators(DIED, DIED)
    job = begin(coordinators, slow)
    outcomes: list[JobOutcome] = []
    waiting = threading.Thread(target=lambda: outcomes.append(job.wait()))
    twice = threading.Event()
    coordinators.on_lost = lambda: twice.set() if coordinators.killed == 2 else None
    waiting.start()
    assert twice.wait(30)
    job.cancel()
    waiting.join(30)
    assert outcomes == [JobOutcome(OutcomeKind.CANCELLED)]


@pytest.mark.parametrize(
    ("graph", "loss"),
    [
        (replace(GRAPH, mode=Mode.ACK, checkpoint=None), DIED),
        (replace(GRAPH, restart=RestartPlan(strategy="none")), DIED),
        (GRAPH, FAULT),
    ],
    ids=["ack mode", "no restarts wanted", "a fault in the coordinator"],
)
def test_some_losses_end_the_job(graph: ExecutionGraph, loss: RayError, begin: Begin) -> None:
    coordinators = Coordinators(loss)
    outcome = begin(coordinators, graph).wait()
    assert outcome.kind is OutcomeKind.FAILED
    assert isinstance(outcome.error, ActorLostError)
    assert coordinators.killed == 1, "what is left of it is ended all the same"


def test_checkpoints_in_a_folder_of_one_node_are_refused_on_a_cluster(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F0."""
    monkeypatch.setattr(ray_job, "several_nodes", lambda: True)
    with pytest.raises(ConfigError, match=r"job 'j' .* `object_store_uri` that every node"):
        begin(Coordinators(FINISHED), replace(GRAPH, checkpoint=CheckpointPlan()))
    assert begin(Coordinators(FINISHED)).wait() == FINISHED
