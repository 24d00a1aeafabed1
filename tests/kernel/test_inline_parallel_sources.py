"""Whole jobs whose sources have several subtasks, on the inline driver (K5, W1, W2).

What was published is compared with loops over all rows: nothing is lost, repeated or late, whatever
the number of subtasks is, and becomes when the job dies and goes on, or is rescaled while it runs.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import SourceError
from arkflow_kernel.graph import build_graph
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.job import JobSpec
from arkflow_kernel.plan import ExecutionGraph, SourcePlan
from arkflow_kernel.ports import SourceReader
from arkflow_kernel.protocol import JobState, OutcomeKind, RecordAppended
from arkflow_kernel.testing.components import ScriptedComponents, ScriptedSink, ScriptedSource
from arkflow_kernel.testing.virtual_clock import VirtualClock
from tests.kernel.window.window_oracle import SIZES, Row, WindowCase, finals, truth
from tests.kernel.window.windowed_components import Plan
from tests.kernel.window.windowed_jobs import Death, WindowedJob, assert_good, graph_of

pytestmark = pytest.mark.thorough


@st.composite
def partitions_of(draw: st.DrawFn) -> tuple[tuple[Row, ...], ...]:
    """Up to five splits of very different lengths; most rows are within the bound of 8."""
    number, found = 0, []
    for _ in range(draw(st.integers(1, 5))):
        now, rows = draw(st.integers(-20, 20)), list[Row]()
        steps = st.tuples(st.integers(0, 6), st.integers(0, 12), st.integers(0, 4))
        for forward, back, key in draw(st.lists(steps, min_size=1, max_size=40)):
            now += forward
            rows.append(Row(number, now - back, key, number % 7))
            number += 1
        found.append(tuple(rows))
    return tuple(found)


@pytest.mark.parametrize("kind", SIZES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_windows_do_not_depend_on_the_subtasks_of_a_source_nor_on_their_changes(
    kind: str, data: st.DataObject
) -> None:
    """Each run has another number of them, and dies at any moment; the last one does not."""
    case = WindowCase(kind, **SIZES[kind], bound_ms=data.draw(st.sampled_from([0, 8])))
    partitions = data.draw(partitions_of())
    plan = Plan(
        (tuple(range(len(partitions))),),
        batch_rows=data.draw(st.sampled_from([1, 3, 10])),
        seed=data.draw(st.integers(0, 10_000)),
        pause_every=data.draw(st.sampled_from([2, 3])),
    )
    windowed = WindowedJob(case, partitions, plan)
    deaths = st.lists(st.builds(Death, st.integers(0, 3), st.integers(0, 60)), max_size=3)
    for death in (*data.draw(deaths), None):
        subtasks = st.sampled_from([1, 2, 3, 7])
        windowed.graph = graph_of(
            case, replace(plan, reading=data.draw(subtasks), parallelism=data.draw(subtasks))
        )
        if windowed.run(death) is not None:
            break
    expected = truth(case, partitions)
    assert finals(windowed.published("out"), keyed=True) == expected.results


@pytest.mark.parametrize("kind", SIZES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_windows_do_not_depend_on_rescales_of_the_source(kind: str, data: st.DataObject) -> None:
    """K2: at any moment, source and window to any number each."""
    case = WindowCase(kind, **SIZES[kind], bound_ms=8)
    partitions = data.draw(partitions_of())
    plan = Plan(
        (tuple(range(len(partitions))),),
        batch_rows=2,
        seed=data.draw(st.integers(0, 10_000)),
        pause_every=2,
    )
    counts = st.sampled_from([1, 2, 3, 5])
    steps = data.draw(st.lists(st.tuples(counts, counts), min_size=1, max_size=4))
    after = data.draw(st.integers(0, 3))
    windowed = WindowedJob(case, partitions, plan)
    seen, told = 0, dict[int, tuple[str, str | None]]()
    job: InlineJob | None = None

    def observe(_: str, event: object, __: list[object]) -> None:
        nonlocal seen
        assert job is not None
        status = job.status()
        if status.rescale is not None:
            told[status.rescale.number] = (status.rescale.phase, status.rescale.error)
        seen += isinstance(event, RecordAppended)
        if steps and seen >= after and status.state is JobState.RUNNING:
            seen = 0
            reading, parallelism = steps.pop(0)
            job.rescale(graph_of(case, replace(plan, reading=reading, parallelism=parallelism)))

    job = windowed._job(plan.seed, observe)
    assert_good(job.wait())
    assert finals(windowed.published("out"), keyed=True) == truth(case, partitions).results
    for phase, error in told.values():
        assert phase == "done" or " ended" in (error or ""), (phase, error)


def test_subtasks_without_splits_do_not_hold_the_windows_of_the_others() -> None:
    """W2: they are idle from the beginning."""
    rows = tuple(Row(n, 10 * n, 0, 1) for n in range(40))
    case = WindowCase("tumbling", size_ms=10)
    windowed = WindowedJob(case, (rows,), Plan(batch_rows=1, exact_batches=True, pause_every=2))
    windowed.graph = graph_of(case, replace(windowed.plan, reading=3))
    assert windowed.run() is not None
    epochs = sorted({epoch for (_, epoch, _), shown in windowed.shown.items() if shown})
    assert len(epochs) > 5, "results come while rows do"


def test_a_split_that_nobody_has_begun_holds_the_windows() -> None:
    """W1: with two splits a subtask, the second one is read after the first."""
    case = WindowCase("tumbling", size_ms=10, bound_ms=0)
    partitions = tuple(
        tuple(Row(100 * split + n, 10 * n, split, 1) for n in range(20)) for split in range(4)
    )
    expected = truth(case, partitions)
    assert expected.late == []
    for reading in (1, 2, 4):
        plan = Plan((tuple(range(4)),), batch_rows=20, seed=3)
        windowed = WindowedJob(case, partitions, plan)
        windowed.graph = graph_of(case, replace(plan, reading=reading))
        assert windowed.run() is not None
        assert finals(windowed.published("out"), keyed=True) == expected.results


# --- ack mode ------------------------------------------------------------------------------------

SPLITS = {f"s{i}": (3,) * i for i in range(1, 8)}


def plain_graph(reading: int) -> ExecutionGraph:
    """A source and a sink behind it, without checkpoints."""
    entry: dict[str, Any] = {
        "id": "plain",
        "version": 1,
        "operators": [
            {"id": "read", "kind": "source", "parallelism": reading},
            {"id": "write", "kind": "sink"},
        ],
        "edges": [{"id": "rows", "from": "read", "to": "write", "type": "rebalance"}],
        "sources": [
            {"operator_id": "read", "input_type": "scripted", "time": {"mode": "processing_time"}}
        ],
        "sinks": [{"operator_id": "write", "output_type": "scripted"}],
        "restart": {"initial_ms": 10},
    }
    return build_graph(JobSpec.model_validate(entry))


class NewSources(ScriptedComponents):
    """A source for each subtask and attempt; some fail at their n-th read."""

    fails_at: Iterator[int] = iter(())

    def source(self, plan: SourcePlan) -> SourceReader:
        return ScriptedSource(SPLITS, fail_read_at=next(self.fails_at, 0))


@pytest.mark.parametrize("reading", [1, 2, 3, 9])
def test_in_ack_mode_subtasks_go_on_where_the_splits_are_settled(reading: int) -> None:
    """D3, K5: with positions of other subtasks, too; splits may come to others."""
    sink = ScriptedSink()
    parts = NewSources({}, sinks={"write": sink})
    parts.fails_at = iter([0] * reading + [0, 4, 0])
    job = InlineJob(plain_graph(reading), parts, VirtualClock())
    outcome = job.wait()
    assert outcome.kind is OutcomeKind.FINISHED, outcome.error
    rows = Counter(sink.published)
    assert set(rows) == {(s, n) for s, sizes in SPLITS.items() for n in range(sum(sizes))}
    assert sum(rows.values()) - len(rows) < len(rows), "not everything came twice"


def test_what_is_wrong_with_the_splits_of_a_source_is_the_end_of_the_job() -> None:
    class Broken(ScriptedSource):
        def list_splits(self, restored: object) -> Any:
            raise PermissionError(13, "Permission denied")

    parts = ScriptedComponents({"read": Broken({})}, sinks={"write": ScriptedSink()})
    graph = plain_graph(2)
    graph = replace(graph, restart=replace(graph.restart, strategy="none"))
    outcome = InlineJob(graph, parts, VirtualClock()).wait()
    assert outcome.kind is OutcomeKind.FAILED
    assert isinstance(outcome.error, SourceError)
    assert "'read' cannot list its splits: PermissionError" in str(outcome.error)
