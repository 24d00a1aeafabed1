"""The driver's side of autoscaling, with scripted statuses: what it shows the machine, what it does
with its decisions, whose wish goes first (K6, K2)."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from arkflow_kernel.autoscale import GROW_WINDOWS, WINDOW_MS, AutoscaleMode
from arkflow_kernel.errors import ConfigError, RescaleError
from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import Generation, MonotonicMs, OperatorId, WallMs
from arkflow_kernel.job import JobSpec, OperatorAutoscaleSpec
from arkflow_kernel.job_parallelism import parallelisms, with_parallelism
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.metrics import ChainStatistics, ChainUsage
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, RescalePhases, RescaleStatus
from arkflow_ray.config.project import CheckedJob
from arkflow_ray.runtime.autoscaling import autoscaling
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.rescaling import ENDED
from arkflow_ray.runtime.running import RunningJob, RunningJobs

COOLDOWN_MS = 60_000
FAR_AHEAD_MS = 5_000_000
"""So much the driver's clock is ahead of the coordinator's, which is on another machine."""


def spec(**changes: Any) -> JobSpec:
    """rows -> worked (keyed) -> printed; `worked` may have 1 to 4 subtasks."""
    entry: dict[str, Any] = {
        "id": "shop",
        "version": 1,
        "autoscale": {"max": 4, "cooldown_ms": COOLDOWN_MS},
        "operators": [
            {"id": "rows", "kind": "source"},
            {
                "id": "worked",
                "kind": "map",
                "key_field": "k",
                "stateful": True,
                "chain": False,
                "config": {"type": "sql", "query": "SELECT * FROM flow"},
            },
            {"id": "printed", "kind": "sink", "chain": False},
        ],
        "edges": [
            {"id": "in", "from": "rows", "to": "worked", "partitioned": True},
            {"id": "out", "from": "worked", "to": "printed"},
        ],
        "sources": [
            {
                "operator_id": "rows",
                "input_type": "memory",
                "config": {"messages": []},
                "time": {"mode": "processing_time"},
            }
        ],
        "sinks": [{"operator_id": "printed", "output_type": "stdout"}],
    }
    return JobSpec.model_validate(entry | changes)


class MemoryLines:
    """A stdout that nobody reads."""

    def put(self, lines: bytes) -> None:
        raise AssertionError(lines)


class Handle(KernelHandle):
    """A `KernelHandle` that tells what the test sets, and notes which plans are asked for."""

    def __init__(self) -> None:
        self.now = JobStatus(JobState.RUNNING, "", Moment(MonotonicMs(0), WallMs(0)))
        self.asked: list[int] = []

    def status(self) -> JobStatus:
        return self.now

    def rescale(self, graph: ExecutionGraph) -> None:
        (subtasks,) = {plan.parallelism for plan in graph.chains if plan.operators}
        self.asked.append(subtasks)

    def wait(self) -> JobOutcome:
        raise AssertionError("nobody waits for a job that only pretends")

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        raise AssertionError((drain, savepoint))

    def savepoint(self, name: str) -> None:
        raise AssertionError(name)

    def cancel(self) -> None:
        raise AssertionError("nobody cancels it")


class World:
    """A job whose coordinator has a clock of its own, and the autoscaling that looks at it."""

    def __init__(self, job: JobSpec | None = None) -> None:
        self.spec = spec() if job is None else job
        self.now_ms = 1_000
        self.handle = Handle()
        found = autoscaling(self.spec, lambda: Moment(self.driver_ms, WallMs(self.now_ms)))
        assert found is not None
        self.scaling = found
        self.job = RunningJob(build_graph(self.spec), self.handle, self.spec, self.scaling)
        self.attempt()

    @property
    def moment(self) -> Moment:
        """The coordinator's time."""
        return Moment(MonotonicMs(self.now_ms), WallMs(self.now_ms))

    @property
    def driver_ms(self) -> MonotonicMs:
        """The driver's time."""
        return MonotonicMs(self.now_ms + FAR_AHEAD_MS)

    def tells(self, **fields: Any) -> None:
        """Change the job's status."""
        self.handle.now = replace(self.handle.now, **fields)

    def attempt(self, **parallelism: int) -> None:
        """All chains of the next attempt run and have counted nothing; numbers of subtasks."""
        planned = with_parallelism(self.spec, parallelism)
        self.plan = build_graph(planned)
        self.rows = dict.fromkeys((plan.chain for plan in self.plan.chains), 0)
        self.busy_ms = dict.fromkeys(self.rows, 0)
        self.tells(
            state=JobState.RUNNING,
            since=self.moment,
            generation=Generation(self.handle.now.generation + 1),
            parallelism={OperatorId(op): n for op, n in parallelisms(planned).items()},
        )
        self.reports()

    def reports(self) -> None:
        """All chains report, and the driver looks."""
        chains, usage = {}, {}
        for plan in self.plan.chains:
            rows = self.rows[plan.chain]
            handed = tuple((c.output, rows // len(plan.channels)) for c in plan.channels)
            chains[plan.chain] = ChainStatistics(plan.chain, rows_in=rows, rows_to=handed)
            usage[plan.chain] = ChainUsage(busy_ms=self.busy_ms[plan.chain])
        heard = dict.fromkeys(chains, MonotonicMs(self.now_ms))
        self.tells(chains=chains, usage=usage, heard_at=heard)
        self.scaling.look(self.job)

    def passes(self, busy: float, windows: int = 1) -> None:
        """Windows in which 1,000 rows/s flow and each subtask of `worked` is so busy."""
        for _ in range(windows):
            self.now_ms += WINDOW_MS
            for plan in self.plan.chains:
                self.rows[plan.chain] += WINDOW_MS // plan.parallelism
                if plan.operators:
                    self.busy_ms[plan.chain] += int(busy * WINDOW_MS)
            self.reports()

    def rescales(self, phase: str, number: int = 1, error: str | None = None) -> None:
        """What the coordinator tells of a rescale, while chains report."""
        told = RescaleStatus(
            number, {OperatorId("worked"): 2}, phase, self.moment, RescalePhases(), error
        )
        over = phase in ENDED
        self.tells(rescale=told, state=JobState.RUNNING if over else JobState.RESCALING)
        self.reports()

    @property
    def last(self) -> tuple[int, str] | None:
        """The number of the last decision, and what came of it."""
        last = self.scaling.told().last
        return None if last is None else (last.number, last.outcome)


@pytest.fixture
def busy() -> World:
    """A job whose one subtask of `worked` was so busy that two are wanted, and asked for."""
    world = World()
    world.passes(0.95, GROW_WINDOWS)
    assert world.handle.asked == [2]
    assert world.last == (1, "under way")
    return world


COOLDOWN_WINDOWS = COOLDOWN_MS // WINDOW_MS


def test_what_chains_report_becomes_a_decision_that_takes_the_way_of_a_rescale() -> None:
    world = World()
    world.passes(0.95, GROW_WINDOWS - 1)
    assert world.handle.asked == []
    assert world.scaling.told().machine.sentence == "2 of 3 windows of 10 s are known"
    world.passes(0.95)
    assert world.handle.asked == [2]
    told = world.scaling.told()
    assert told.last is not None
    assert told.last.decision.sentence == (
        "'worked' 1 -> 2: 95% busy at 1,000 rows/s; the sources offer it 1,000, one subtask can "
        "take 1,053: 95% busy, the goal is 70%"
    )
    world.rescales("round")
    assert world.last == (1, "under way")
    world.rescales("done")
    world.attempt(worked=2)
    assert world.last == (1, "done")
    assert {plan.chain for plan in world.job.graph.chains} == set(world.rows), "P8: it is known"


def test_observe_decides_and_changes_nothing() -> None:
    world = World(spec(autoscale={"mode": "observe", "cooldown_ms": COOLDOWN_MS}))
    world.passes(0.95, GROW_WINDOWS)
    assert world.last == (1, "told")
    assert world.scaling.told().machine.mode is AutoscaleMode.OBSERVE
    world.passes(0.95, COOLDOWN_WINDOWS)
    assert world.last == (2, "told")
    assert world.handle.asked == []


def test_a_rescale_that_fails_is_not_wanted_again_before_a_cooldown_after_its_end(
    busy: World,
) -> None:
    busy.rescales("prepare")
    busy.now_ms += COOLDOWN_MS  # so long it tries
    busy.rescales("failed", error="no room")
    told = busy.scaling.told()
    assert told.last is not None
    assert (told.last.outcome, told.last.error) == ("failed", "no room; the job goes on as it was")
    busy.passes(0.95, COOLDOWN_WINDOWS - 1)
    assert busy.handle.asked == [2]
    busy.passes(0.95, 2)
    assert busy.handle.asked == [2, 2]
    assert busy.last == (2, "under way")
    busy.rescales("failed", number=2, error="no room")
    busy.passes(0.95, 2 * COOLDOWN_WINDOWS - 1)
    assert busy.handle.asked == [2, 2], "the second time, the wait is twice as long"
    busy.passes(0.95, 2)
    assert busy.handle.asked == [2, 2, 2]


def test_a_rescale_by_a_user_begins_a_cooldown_also_if_it_fails() -> None:
    world = World()
    world.passes(0.95, GROW_WINDOWS - 1)
    world.rescales("failed", error="no room")
    world.passes(0.95, COOLDOWN_WINDOWS - 1)
    assert world.handle.asked == []
    world.passes(0.95, 2)
    assert world.handle.asked == [2]


def test_a_user_goes_before_a_rescale_that_was_decided(busy: World) -> None:
    with pytest.raises(RescaleError, match="is being rescaled"):
        busy.job.rescale({"worked": 4})  # the coordinator has not told of it: one more look
    busy.rescales("prepare")
    asked = busy.job.rescale({"worked": 4})
    assert busy.handle.asked == [2, 4]
    busy.rescales("failed", error="another one was requested")
    assert busy.last == (1, "failed")
    assert asked.end(busy.handle.now, None) is None, "that was the other one"
    with pytest.raises(RescaleError, match="is being rescaled"):
        busy.job.rescale({"worked": 3}, automatic=True)
    busy.rescales("done", number=2)
    busy.attempt(worked=4)
    end = asked.end(busy.handle.now, None)
    assert end is not None
    assert end.error is None


def test_a_user_who_wants_things_as_they_are_undoes_what_was_decided(busy: World) -> None:
    busy.rescales("round")
    busy.job.rescale({"worked": 1})
    assert busy.handle.asked == [2, 1]


def test_a_user_who_wants_more_than_the_bounds_is_told_of_them() -> None:
    world = World()
    with pytest.raises(ConfigError, match="6 subtasks, outside of the bounds 1 to 4"):
        world.job.rescale({"worked": 6})
    assert world.handle.asked == []


def test_what_is_decided_waits_for_nobody_else(busy: World) -> None:
    busy.rescales("prepare")
    with pytest.raises(RescaleError, match="is being rescaled"):
        busy.job.rescale({"worked": 3}, automatic=True)


def test_what_a_chain_said_in_the_attempt_before_is_not_its_word_in_this_one() -> None:
    world = World()
    world.passes(0.95, GROW_WINDOWS - 1)
    world.now_ms += 1
    world.tells(since=world.moment, generation=Generation(7))  # it runs, nothing is reported yet
    world.scaling.look(world.job)
    assert world.scaling.told().machine.sentence == "2 of 3 windows of 10 s are known"
    some = dict.fromkeys(list(world.rows)[1:], MonotonicMs(world.now_ms))
    world.tells(heard_at={**world.handle.now.heard_at, **some})
    world.scaling.look(world.job)
    assert "too little is known of chain 'rows-0'" in world.scaling.told().machine.sentence


def test_a_coordinator_with_another_clock_begins_anew_and_keeps_the_cooldown(busy: World) -> None:
    busy.rescales("done")
    busy.attempt()
    busy.now_ms -= 900  # the clock of the next coordinator's machine began later
    busy.attempt()
    busy.passes(0.95, COOLDOWN_WINDOWS - 1)
    assert busy.handle.asked == [2]
    busy.passes(0.95, 2)
    assert busy.handle.asked == [2, 2]


def test_time_stands_still_while_nobody_reports() -> None:
    world = World()
    world.passes(0.95, GROW_WINDOWS - 1)
    world.now_ms += 10 * WINDOW_MS
    world.scaling.look(world.job)
    assert world.handle.asked == []
    assert world.scaling.told().machine.sentence == "2 of 3 windows of 10 s are known"


def test_an_operator_that_cannot_be_divided_is_left_out_with_the_reason() -> None:
    edges = [
        {"id": "in", "from": "rows", "to": "worked"},
        {"id": "out", "from": "worked", "to": "printed"},
    ]
    alone = spec(edges=edges)
    rows = alone.operators[0].model_copy(update={"autoscale": OperatorAutoscaleSpec()})
    together = alone.model_copy(update={"operators": [rows, *alone.operators[1:]]})
    reasons = [(alone, "together with 'rows', which has no"), (together, "partitioned: true")]
    for job, reason in reasons:
        world = World(job)
        world.passes(0.99, 2 * GROW_WINDOWS)
        told = world.scaling.told()
        assert world.last is None
        assert reason in told.kept["worked"]
        assert told.machine.sentence == "no operator's parallelism may be changed"


def test_who_asks_for_none_gets_none() -> None:
    for job in (spec(autoscale=None), spec(autoscale={"mode": "off"})):
        assert autoscaling(job, _no_clock) is None
    assert autoscaling(None, _no_clock) is None


def _no_clock() -> Moment:
    raise AssertionError("nobody asks for the time")


def test_inline_it_is_refused_with_what_to_do() -> None:
    def started(**changes: Any) -> RunningJobs:
        job = spec(**changes)
        checked = CheckedJob(job.id, "job", "jobs[0]", job, build_graph(job))
        return launch([checked], RunSettings(inline=True), MemoryLines(), lambda _: None)

    for mode in ("on", "observe"):
        with pytest.raises(ConfigError, match="Run it on Ray, or set `autoscale: "):
            started(autoscale={"mode": mode})
    started(autoscale={"mode": "off"}).close()


def test_a_fault_of_its_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(world.scaling, "look", broken)
    over = threading.Event()
    monkeypatch.setattr("arkflow_ray.runtime.autoscaling.LOOK_S", 0.0)
    with pytest.raises(ZeroDivisionError):
        world.scaling.run(world.job, over)
    assert world.scaling.told().fault == "ZeroDivisionError: a bug (a fault of arkflow_ray)"
