"""Sink lanes over any changes of parallelism and any deaths: each epoch of a record is shown once,
and nothing else (X1, X5).

Whole jobs on the inline driver. A run dies at any event; the next one has another number of sinks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_record import CheckpointEntry, decode
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobState, OutcomeKind, RecordAppended
from arkflow_kernel.snapshot import Epoch, LaneSnapshot
from arkflow_kernel.testing.components import ScriptedOperator, ScriptedSink, ScriptedSource
from arkflow_kernel.testing.sim_files import SimFiles, SimStore
from arkflow_kernel.testing.staged_components import (
    ScriptedEpochSink,
    StagedComponents,
    Target,
    memory_store,
)
from arkflow_kernel.testing.virtual_clock import VirtualClock

pytestmark = pytest.mark.thorough

Observer = Callable[[str, object, list[object]], None]


class DiedError(Exception):
    """The run is at the event where it dies: nothing of it goes on."""


@dataclass(frozen=True)
class Run:
    """One run: subtasks of its sink, its shape, and which stagings and publications fail.

    `shape`: "apart", the operator before the sink has two subtasks; "fused", as many as the sink,
    in one chain with it; "whole", so has the source. `rejected`: where rows go that the operator
    rejects, to "one" error sink, or "each" subtask has its own.

    Some time after its first record it is given `then` sinks while it runs. It dies after so many
    events, or when so many of its records are in the log. 0: none, never.
    """

    sinks: int
    shape: str = "apart"
    then: int = 0
    rejected: str = "one"
    dies_after: int = 0
    dies_at_record: int = 0
    fail_stage_at: int = 0
    fail_publish_at: int = 0

    @property
    def passed(self) -> int:
        """Subtasks of the operator."""
        return 2 if self.shape == "apart" else self.sinks

    @property
    def chains(self) -> int:
        """Subtasks of all chains (G1)."""
        merged = self.rejected == "one" and self.passed > 1
        own = {"apart": 1 + self.sinks, "fused": 1, "whole": 0}[self.shape]
        return own + self.passed + merged


def graph_of(run: Run) -> ExecutionGraph:
    """rows -> passed -> kept, exactly once: `passed` and `kept` are one chain if they fuse."""
    whole, apart = run.shape == "whole", run.shape == "apart"
    edges: list[dict[str, Any]] = [
        {"id": "in", "from": "rows", "to": "passed", "type": None if whole else "rebalance"},
        {"id": "out", "from": "passed", "to": "kept", "type": "rebalance" if apart else None},
        {"id": "errors", "from": "passed", "to": "bad", "type": "error"},
    ]
    sinks = {"kept": run.sinks, "bad": 1 if run.rejected == "one" else run.passed}
    entry = {
        "id": "lanes",
        "version": 1,
        "operators": [
            {"id": "rows", "kind": "source", "parallelism": run.sinks if whole else 1},
            {
                **{"id": "passed", "kind": "map", "config": {"type": "sql"}},
                "parallelism": run.passed,
            },
            *({"id": name, "kind": "sink", "parallelism": n} for name, n in sinks.items()),
        ],
        "edges": edges,
        "sources": [
            {
                **{"operator_id": "rows", "input_type": "scripted"},
                "time": {"mode": "processing_time"},
            }
        ],
        "sinks": [{"operator_id": name, "output_type": "scripted"} for name in sinks],
        "checkpoint": {"object_store_uri": "memory://x", "interval_ms": 50, "retention": 2},
    }
    job = JobSpec.model_validate(entry)
    issues = [issue for issue in validate_job(job, lambda _: True) if not issue.warning]
    assert not issues, issues
    graph = build_graph(job, lambda _: True)
    assert len(graph.chains) == run.chains
    return graph


@dataclass
class World:
    """What outlives runs: the store, the target, and every record that was ever in the log.

    The source reads so many batches between pauses.
    """

    store: SimStore = field(default_factory=SimStore)
    target: Target = field(default_factory=Target)
    clock: VirtualClock = field(default_factory=VirtualClock)
    seen: set[str] = field(default_factory=set)
    records: list[CheckpointEntry] = field(default_factory=list)
    listed: set[tuple[OperatorId, int, Epoch]] = field(default_factory=set)
    rows: int = 30
    batches: int = 2
    runs: int = 0

    def run(self, run: Run) -> None:
        """To the end, or to where it dies."""
        self.runs += 1
        events = records = since = 0
        then = [run.then] if run.then else []

        def observer(machine: str, event: object, commands: list[object]) -> None:
            nonlocal events, records, since
            del machine, commands
            self.look()
            events += 1
            records += isinstance(event, RecordAppended)
            since += records > 0
            if since > 40 and then and job.status().state is JobState.RUNNING:
                job.rescale(graph_of(replace(run, sinks=then.pop())))
            if events == run.dies_after or 0 < run.dies_at_record <= records:
                raise DiedError

        job = self._job(run, observer)
        try:
            outcome = job.wait()
        except DiedError:
            return
        finally:
            self.look()
        if outcome.kind is not OutcomeKind.FINISHED:  # it could not even begin: the next run does
            assert "scripted: publish fails" in str(outcome.error), outcome
            assert run.fail_publish_at

    def _job(self, run: Run, observer: Observer) -> InlineJob:
        failing: set[tuple[str, int]] = set()

        def script(sink: ScriptedEpochSink) -> None:
            if (place := (sink.operator, sink.staging.lane)) not in failing:  # else it never ends
                failing.add(place)
                sink.fail_stage_at, sink.fail_publish_at = run.fail_stage_at, run.fail_publish_at

        components = StagedComponents(
            {},
            {"passed": ScriptedOperator(rejects=lambda _, n: _is_bad(n))},
            {"plain": ScriptedSink()},
            target=self.target,
            new_source=lambda: ScriptedSource(
                self.splits(), pause_every=self.batches + 1, pause_ms=20
            ),
            script=script,
        )
        graph = graph_of(run)
        store = memory_store(graph, SimFiles(self.store), self.clock, nonce=f"run-{self.runs}")
        return InlineJob(graph, components, self.clock, store=store, observer=observer)

    def splits(self) -> dict[str, tuple[int, ...]]:
        """Rows of each batch of each split; together about `rows`."""
        rows = self.rows
        return {"a": (1, 2) * (rows // 6), "b": (1,) * (rows // 4), "c": (2,) * (rows // 12)}

    def look(self) -> None:
        """Take new records in; what is shown must be of one of them."""
        for path in self.store.files.keys() - self.seen:
            self.seen.add(path)
            if path.startswith("log/"):
                entry = decode(self.store.files[path])
                if isinstance(entry, CheckpointEntry):
                    self.records.append(entry)
                    self.listed |= {
                        (token.sink, token.lane, token.epoch)
                        for lane in lanes_of(entry)
                        for token in lane.tokens
                    }
        assert self.target.shown.keys() <= self.listed


def _is_bad(number: int) -> bool:
    return number % 4 == 3


def lanes_of(entry: CheckpointEntry) -> Iterator[LaneSnapshot]:
    """All lanes of a record."""
    for chain in entry.record.chains:
        yield from chain.lanes


def assert_lanes_have_one_place_each(world: World) -> None:
    """X5: lane l stands with subtask l mod n, and those without a subtask for one record."""
    of_generation: defaultdict[int, list[CheckpointEntry]] = defaultdict(list)
    for entry in world.records:
        of_generation[entry.record.generation].append(entry)
    for entries in of_generation.values():
        for number, entry in enumerate(entries):
            chains = {snapshot.chain: snapshot for snapshot in entry.record.chains}
            seen: set[tuple[str, int]] = set()
            for planned in entry.plan.chains:
                for lane in chains[planned.chain].lanes:
                    assert (lane.sink, lane.lane) not in seen
                    seen.add((lane.sink, lane.lane))
                    assert lane.lane % planned.parallelism == planned.subtask
                    left = lane.lane != planned.subtask
                    assert not (left and lane.tokens), "they were published before it began"
                    assert not (left and number > 1), "they are dropped"


def assert_all_is_shown_once(world: World) -> None:
    """Whatever was in a record, and nothing else; each row of the source once."""
    assert set(world.target.shown) == world.listed
    shown = Counter(
        (sink, split, n)
        for (sink, _, _), rows in world.target.shown.items()
        for split, n, _ in rows
    )
    assert shown == Counter(
        ("bad" if _is_bad(n) else "kept", split, n)
        for split, sizes in world.splits().items()
        for n in range(sum(sizes))
    )
    assert_lanes_have_one_place_each(world)


RUNS = st.builds(
    Run,
    sinks=st.integers(1, 5),
    shape=st.sampled_from(["apart", "fused", "whole"]),
    then=st.sampled_from([0, 0, 1, 2, 3, 5]),
    rejected=st.sampled_from(["one", "each"]),
    dies_after=st.one_of(st.just(0), st.integers(1, 700)),
    fail_stage_at=st.sampled_from([0, 0, 0, 1, 2]),
    fail_publish_at=st.sampled_from([0, 0, 0, 1, 2, 3]),
)


@settings(max_examples=25)
@given(st.lists(RUNS, min_size=1, max_size=5))
def test_whatever_dies_and_however_many_sinks_follow_every_epoch_is_shown_once(
    runs: list[Run],
) -> None:
    world = World()
    for run in runs:
        world.run(run)
    world.run(Run(2))
    assert_all_is_shown_once(world)
    lanes = {lane for _, lane, _ in world.target.shown}
    event(f"{len(lanes)} lanes have shown rows")
    if any(entry.record.generation > 1 for entry in world.records):
        event("a later run has made records")


@pytest.mark.parametrize("shape", ["apart", "fused"])
def test_pending_tokens_move_down_and_up_with_their_lanes_twice(shape: str) -> None:
    """4 -> 2 -> 3 -> 1 -> 4: each run dies when a record is there and nothing of it is shown."""
    world = World(rows=240, batches=6)
    for sinks in (4, 2, 3, 1, 4):
        world.run(Run(sinks, shape, dies_at_record=2))
        pending = world.listed - set(world.target.shown)
        lanes = {lane for sink, lane, _ in pending if sink == "kept"}
        assert lanes == set(range(sinks))
    world.run(Run(3, shape))
    assert_all_is_shown_once(world)
