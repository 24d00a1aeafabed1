"""Whole jobs that get another parallelism while their data run, on the inline driver (K2, K3).

What was published is compared with loops over all rows: nothing is lost, repeated or misrouted.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from arkflow_kernel.graph import build_graph
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.job import JobSpec
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import (
    JobState,
    JobStatus,
    OutcomeKind,
    RecordAppended,
    SourceRead,
)
from arkflow_kernel.testing.components import ScriptedOperator, ScriptedSink, ScriptedSource
from arkflow_kernel.testing.sim_files import SimFiles
from arkflow_kernel.testing.staged_components import StagedComponents, Target, memory_store
from arkflow_kernel.testing.virtual_clock import VirtualClock
from tests.kernel.window.window_oracle import SIZES, Row, WindowCase, finals, truth
from tests.kernel.window.windowed_components import Plan
from tests.kernel.window.windowed_jobs import WindowedJob, assert_good, graph_of

pytestmark = pytest.mark.thorough

STEPS = (2, 4, 2)
"""From one subtask on."""


@dataclass
class Scaler:
    """Asks for one parallelism after the other, each after so many records or reads of the job.

    `told` holds how each rescale ended.
    """

    plan: Callable[[int], ExecutionGraph]
    after: int
    event: type = RecordAppended
    steps: list[int] = field(default_factory=lambda: list(STEPS))
    job: InlineJob | None = None
    told: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    seen: int = 0
    asked: int = 0

    def observe(self, machine: str, event: object, commands: list[object]) -> None:
        """See `Observer`."""
        del machine, commands
        assert self.job is not None
        status = self.job.status()
        if status.rescale is not None:
            self.told[status.rescale.number] = (status.rescale.phase, status.rescale.error)
        self.seen += isinstance(event, self.event)
        runs = status.state is JobState.RUNNING and len(self.told) == self.asked
        if runs and self.steps and self.seen >= self.after:
            self.seen, self.asked = 0, self.asked + 1
            self.job.rescale(self.plan(self.steps.pop(0)))

    @property
    def all_done(self) -> bool:
        """Every one was carried out."""
        return [phase for phase, _ in self.told.values()] == ["done"] * len(STEPS)


# --- a count by key --------------------------------------------------------------------------

SPLITS = {"a": 40, "b": 60, "c": 30, "d": 70, "e": 50, "f": 20}


def _counting(parallelism: int, *, checkpoints: bool) -> ExecutionGraph:
    """A source, rows by key to a count or a map, and one sink."""
    count = {"id": "count", "kind": "map", "parallelism": parallelism, "key_field": "split"}
    if checkpoints:
        count["stateful"] = True
    entry: dict[str, Any] = {
        "id": "counting",
        "version": 1,
        "operators": [
            {"id": "read", "kind": "source"},
            {**count, "config": {"type": "scripted", "state_output_field": "count"}},
            {"id": "write", "kind": "sink"},
        ],
        "edges": [
            {"id": "keys", "from": "read", "to": "count", "partitioned": True},
            {"id": "rows", "from": "count", "to": "write", "type": "rebalance"},
        ],
        "sources": [
            {"operator_id": "read", "input_type": "scripted", "time": {"mode": "processing_time"}}
        ],
        "sinks": [{"operator_id": "write", "output_type": "scripted"}],
    }
    if checkpoints:
        entry["state"] = {"backend": "embedded_kv"}
        entry["checkpoint"] = {"object_store_uri": "memory://x", "interval_ms": 40}
    return build_graph(JobSpec.model_validate(entry), lambda _: checkpoints)


def _source() -> ScriptedSource:
    """Batches of a few rows, a pause of 20 ms now and then."""
    sizes = {
        name: (3,) * (rows // 3) + (rows % 3,) * (rows % 3 > 0) for name, rows in SPLITS.items()
    }
    return ScriptedSource(sizes, pause_every=4, pause_ms=20)


def _expected() -> list[tuple[str, int, int]]:
    return sorted((name, n, n + 1) for name, rows in SPLITS.items() for n in range(rows))


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_count_by_key_that_is_rescaled_publishes_every_row_once_with_its_right_count(
    after: int,
) -> None:
    clock, target = VirtualClock(), Target()
    scaler = Scaler(lambda n: _counting(n, checkpoints=True), after)
    graph = _counting(1, checkpoints=True)
    components = StagedComponents(
        {}, {"count": ScriptedOperator()}, {}, target=target, new_source=_source
    )
    store = memory_store(graph, SimFiles(), clock)
    job = scaler.job = InlineJob(graph, components, clock, store=store, observer=scaler.observe)
    assert_good(job.wait())
    assert sorted(target.rows()) == _expected()
    assert scaler.all_done, scaler.told
    assert job.status().restarts == 0
    assert _chains(job.status()) == {"count-0", "count-1", "read-0", "write-0"}


def _chains(status: JobStatus) -> set[str]:
    return {str(chain) for chain in status.chains}


@pytest.mark.parametrize("after", [4, 11, 23])
def test_a_job_in_ack_mode_that_is_rescaled_loses_nothing_and_stops_in_order_each_time(
    after: int,
) -> None:
    """At least once: a rescale settles what was read, so nothing is repeated either."""
    clock, sink = VirtualClock(), ScriptedSink(lag=2)
    scaler = Scaler(lambda n: _counting(n, checkpoints=False), after, event=SourceRead)
    components = _AckComponents(
        {}, {"count": ScriptedOperator()}, {}, new_source=_source, kept=sink
    )
    graph = _counting(1, checkpoints=False)
    assert graph.checkpoint is None
    job = scaler.job = InlineJob(graph, components, clock, observer=scaler.observe)
    assert job.wait().kind is OutcomeKind.FINISHED
    assert scaler.all_done, scaler.told
    counts = Counter(components.published)
    assert sorted(counts) == [(name, n) for name, n, _ in _expected()]
    assert set(counts.values()) == {1}


@dataclass
class _AckComponents(StagedComponents):
    """A new sink for each attempt, like `kept`; all rows that they published."""

    kept: ScriptedSink = field(default_factory=ScriptedSink)
    published: list[tuple[str, int]] = field(default_factory=list)

    def sink(self, *args: Any, **kwargs: Any) -> ScriptedSink:
        """One more."""
        del args, kwargs
        return replace(self.kept, published=[], violations=[], on_publish=self.published.extend)


# --- windows ---------------------------------------------------------------------------------


def _partition(dice: random.Random, first: int) -> tuple[Row, ...]:
    """Rows whose time goes on by steps; some are behind, a few of them too far."""
    rows: list[Row] = []
    now = 0
    for number in range(first, first + dice.randint(25, 45)):
        now += dice.randint(0, 6)
        row = Row(number, now - dice.randint(0, 12), dice.randint(0, 8), dice.randint(-9, 9))
        rows.append(row)
    return tuple(rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SIZES)
def test_windows_of_a_job_that_is_rescaled_say_what_loops_over_all_rows_say(
    kind: str, seed: int
) -> None:
    """Whatever the rows, the batches, the turns of the chains, and when it is asked for."""
    dice = random.Random(f"{kind} {seed}")
    case = WindowCase(kind, **SIZES[kind], bound_ms=dice.choice([0, 8]))
    partitions = [_partition(dice, number * 1_000) for number in range(dice.randint(1, 2))]
    sources = (tuple(range(len(partitions))),)
    plan = Plan(sources, batch_rows=dice.choice([3, 8]), seed=seed, pause_every=2)
    windowed = WindowedJob(case, partitions, plan)
    steps = [dice.choice([1, 2, 3, 4, 7]) for _ in range(3)]
    scaler = Scaler(
        lambda n: graph_of(case, replace(plan, parallelism=n)), dice.randint(0, 2), steps=steps
    )
    job = scaler.job = windowed._job(seed, scaler.observe)
    assert_good(job.wait())
    assert finals(windowed.published("out"), keyed=True) == truth(case, partitions).results
    assert scaler.told
    for phase, error in scaler.told.values():
        assert phase == "done" or "ended" in (error or ""), (phase, error)
