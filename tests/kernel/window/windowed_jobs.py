"""Whole jobs with a window on the inline driver: cuts, turns and deaths as a test draws them.

Virtual time. A source reads its partitions in any order and in any batches; the driver lets the
chains work in any order; a run may die at any event, and the next one continues from its log.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkflow_kernel.buffer_compiler import ALL_ROWS_KEY
from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.graph import build_graph
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import (
    ONLY_SUBTASK,
    ExecutionGraph,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    Subtask,
)
from arkflow_kernel.ports import Operator, SinkWriter, SourceReader
from arkflow_kernel.protocol import JobOutcome, RecordAppended
from arkflow_kernel.testing.sim_files import SimFiles, SimStore
from arkflow_kernel.testing.staged_components import MemoryObjects, memory_store
from arkflow_kernel.testing.virtual_clock import VirtualClock
from tests.kernel.window.window_oracle import Row, WindowCase
from tests.kernel.window.windowed_components import (
    PAUSE_MS,
    KeepingSink,
    PartitionedSource,
    Plan,
    Rows,
    Shown,
)


class DiedError(Exception):
    """The run is at the event where it dies: nothing of it goes on."""


@dataclass(frozen=True)
class Death:
    """Where a run dies: so many events after it has made so many records of its own."""

    records: int
    events: int


@dataclass
class Components:
    """A `ComponentFactory` of such sources and sinks; the kernel brings the window itself."""

    partitions: Seq[Seq[Row]]
    plan: Plan
    seed: int
    shown: Shown
    made: Callable[[], SourceReader] | None = None

    def source(self, plan: SourcePlan) -> SourceReader:
        """The source of that name."""
        if self.made is not None:
            return self.made()
        place = int(plan.operator.removeprefix("source"))
        own = {number: self.partitions[number] for number in self.plan.sources[place]}
        return PartitionedSource(own, self.plan, self.seed + place)

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """There is none."""
        raise NotImplementedError(plan.operator)

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """An exactly-once sink."""
        del subtask
        assert staging is not None
        return KeepingSink(plan, staging, self.shown)


class ShuffledJob(InlineJob):
    """The inline driver, its chains in an order that dice choose anew at each step."""

    dice: random.Random

    def _step(self) -> bool:
        if self._mailbox:
            return super()._step()
        self._tick()
        chains = list(self._chains.values())
        self.dice.shuffle(chains)
        moved = False
        for chain in chains[: self.dice.randint(1, max(1, len(chains)))]:
            moved |= self._advance(chain)
        return moved or super()._step()


class _Objects(MemoryObjects):
    """Objects in memory beside a folder on the disk."""

    def __init__(self, files: dict[str, bytes], folder: Path | None) -> None:
        super().__init__(files)
        self._folder = folder

    @property
    def spool(self) -> Path:
        """The folder."""
        assert self._folder is not None, "nothing is to be spilled"
        return self._folder


@dataclass
class WindowedJob:
    """A job over partitions; it may run several times, each time further.

    `source` makes another source than the one that reads the partitions. `spool` is a folder for
    what the window cannot hold in memory.
    """

    case: WindowCase
    partitions: Seq[Seq[Row]]
    plan: Plan
    store: SimStore = field(default_factory=SimStore)
    shown: Shown = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)
    source: Callable[[], SourceReader] | None = None
    spool: Path | None = None
    _runs: int = 0

    def __post_init__(self) -> None:
        self.graph = graph_of(self.case, self.plan)

    def run(self, dies: Death | None = None) -> InlineJob | None:
        """Run to the end, or to where it dies; the ended job, else None."""
        self._runs += 1
        seed = self.plan.seed * 1_000 + self._runs
        records = events = 0

        def observer(machine: str, event: object, commands: list[object]) -> None:
            nonlocal records, events
            records += isinstance(event, RecordAppended)
            events += dies is not None and records >= dies.records
            if dies is not None and events > dies.events:
                raise DiedError

        job = self._job(seed, observer)
        try:
            outcome = job.wait()
        except DiedError:
            return None
        assert_good(outcome)
        return job

    def published(self, sink: str) -> Rows:
        """All rows that readers of a sink see, in the order of publication."""
        return [row for (name, _, _), rows in self.shown.items() if name == sink for row in rows]

    def _job(self, seed: int, observer: Callable[[str, object, list[object]], None]) -> InlineJob:
        store = memory_store(
            self.graph,
            SimFiles(self.store),
            self.clock,
            nonce=f"run-{self._runs}",
            objects=_Objects(self.store.files, self.spool),
        )
        job = ShuffledJob(
            self.graph,
            Components(self.partitions, self.plan, seed, self.shown, self.source),
            self.clock,
            store=store,
            observer=observer,
        )
        job.dice = random.Random(seed)
        return job


def assert_good(outcome: JobOutcome) -> None:
    """The job came to the end of its data."""
    if outcome.error is not None:
        raise outcome.error


def graph_of(case: WindowCase, plan: Plan) -> ExecutionGraph:
    """The planned job, as a user would have written it."""
    time: dict[str, Any] = {
        "mode": "event_time",
        "timestamp_field": "ts",
        "watermark": {"out_of_orderness_ms": case.bound_ms},
        "late_event_policy": case.policy,
    }
    if case.policy == "update":
        time["allowed_lateness_ms"] = case.lateness_ms
    if case.policy == "route":
        time["late_event_route"] = "late"
    key = ALL_ROWS_KEY if plan.fused else "k"
    names = [f"source{number}" for number in range(len(plan.sources))]
    sinks = ["out", *(["late"] if case.policy == "route" else [])]
    state: dict[str, Any] = {"backend": "embedded_kv"}
    if plan.memory_bytes is not None:
        state["memory_bytes"] = plan.memory_bytes
    entry = {
        "id": "windowed",
        "version": 1,
        "operators": [
            *({"id": name, "kind": "source", "parallelism": plan.reading} for name in names),
            {
                "id": "win",
                "kind": "window",
                "stateful": not plan.fused,
                "parallelism": plan.parallelism,
                "config": _config(case, key),
                **({} if plan.fused else {"key_field": key}),
            },
            *({"id": name, "kind": "sink"} for name in sinks),
        ],
        "edges": [
            *(
                {"id": f"in-{name}", "from": name, "to": "win", "partitioned": not plan.fused}
                for name in names
            ),
            {"id": "results", "from": "win", "to": "out"},
        ],
        "sources": [
            {"operator_id": name, "input_type": "scripted", "time": time} for name in names
        ],
        "sinks": [{"operator_id": name, "output_type": "scripted"} for name in sinks],
        "state": state,
        "checkpoint": {"object_store_uri": "memory://x", "interval_ms": 2 * PAUSE_MS},
    }
    job = JobSpec.model_validate(entry)
    issues = [issue for issue in validate_job(job, lambda _: True) if not issue.warning]
    assert not issues, "\n".join(f"{issue.path}: {issue.message}" for issue in issues)
    graph = build_graph(job, lambda _: True)
    assert (len(graph.chains) == 1) == plan.fused
    return graph


def _config(case: WindowCase, key: str) -> dict[str, Any]:
    sizes = {
        name: value for name in ("size_ms", "slide_ms", "gap_ms") if (value := getattr(case, name))
    }
    return {
        "kind": case.kind,
        **sizes,
        **({"offset_ms": case.offset_ms} if case.offset_ms else {}),
        "timestamp_field": "ts",
        "value_fields": ["v"],
        "key_field": key,
    }


__all__ = ["Components", "Death", "DiedError", "ShuffledJob", "WindowedJob", "graph_of"]
