"""Whole jobs in checkpoint mode on the inline driver: state, exactly-once rows, the next run
(B6, B8, D5, M3, T3, X1, X4).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import RestoreError, SinkError
from arkflow_kernel.ids import ChainId, SplitId
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph, Mode, StatePlan
from arkflow_kernel.protocol import AppendRecord, JobState, OutcomeKind
from arkflow_kernel.snapshot import NEWEST, CheckpointRecord, RestoreChoice, RestoreKind
from arkflow_kernel.testing.components import ScriptedOperator, ScriptedSink, ScriptedSource
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan
from arkflow_kernel.testing.sim_files import FileFault, SimFiles, SimStore
from arkflow_kernel.testing.staged_components import (
    ScriptedEpochSink,
    StagedComponents,
    Target,
    memory_store,
)
from arkflow_kernel.testing.virtual_clock import VirtualClock

pytestmark = pytest.mark.thorough

ROWS = 60
ALL = [("a", n, n + 1) for n in range(ROWS)]
"""Every row once, in order, each with the right count."""


def _graph(batch_wait_ms: int | None = None) -> ExecutionGraph:
    """A source chain, then a chain that counts per split and writes exactly once.

    With `batch_wait_ms`, rows wait so long on their way to fill batches of ten.
    """
    channel, mode = channel_plan("edge", "read-0", "count-0"), Mode.CHECKPOINT
    if batch_wait_ms is not None:
        channel = replace(channel, batch_rows=10, batch_wait_ms=batch_wait_ms)
    read = chain_plan("read-0", sinks=(), channels=(channel,), mode=mode)
    count = chain_plan(
        *("count-0",), operators=("op",), inputs=(channel,), mode=mode, exactly_once=("sink",)
    )
    state = StatePlan("default", ("split",), count_field="count")
    count = replace(count, operators=(replace(count.operators[0], state=state),))
    return job_plan(read, count, checkpoint=CheckpointPlan("memory://x", interval_ms=50))


class World:
    """What outlives runs: the store and the target. `run` is one run of the job."""

    def __init__(self, rows: int = ROWS, batch_wait_ms: int | None = None) -> None:
        self.store, self.target, self.graph = SimStore(), Target(), _graph(batch_wait_ms)
        self.clock = VirtualClock()
        self.records: list[CheckpointRecord] = []
        self.rows = rows
        self.fault: Callable[[str], FileFault | None] = lambda _call: None
        self._runs = 0

    def job(
        self,
        choice: RestoreChoice = NEWEST,
        script: Callable[[ScriptedEpochSink], None] = lambda _sink: None,
        operator: ScriptedOperator | None = None,
        when: Callable[[InlineJob], None] = lambda _job: None,
    ) -> InlineJob:
        """`when` is called after every event of a machine."""
        self._runs += 1
        self.components = StagedComponents(
            {},
            {"op": operator or ScriptedOperator()},
            {"plain": ScriptedSink()},
            target=self.target,
            new_source=self._source,
            script=script,
        )
        files = SimFiles(self.store, before=lambda call: self.fault(call))
        store = memory_store(self.graph, files, self.clock, nonce=f"run-{self._runs}")

        def observer(machine: str, event: object, commands: list[object]) -> None:
            del machine, event
            self.records += [c.record for c in commands if isinstance(c, AppendRecord)]
            when(job)

        job = InlineJob(
            *(self.graph, self.components, self.clock),
            store=store,
            choice=choice,
            observer=observer,
        )
        return job

    def _source(self) -> ScriptedSource:
        """Two rows a batch, a pause of 20 ms after each."""
        sizes = {"a": (2,) * (self.rows // 2)}
        return ScriptedSource(sizes, pause_every=2, pause_ms=20, commits=True)


def _rounds(job: InlineJob) -> int:
    checkpoints = job.status().checkpoints
    return 0 if checkpoints is None else int(checkpoints.last)


def test_a_bounded_job_shows_every_row_once_and_the_next_run_is_already_finished() -> None:
    world = World()
    job = world.job()
    assert job.wait().kind is OutcomeKind.FINISHED
    assert world.target.rows() == ALL
    assert len(world.target.shown) > 3, "rows were shown while the job ran"
    last = world.records[-1]
    assert last.kind is RoundKind.FINAL
    assert all(chain.finished for chain in last.chains)
    assert not any(lane.tokens for chain in last.chains for lane in chain.lanes)
    (source,) = world.components.sources.values()
    assert isinstance(source, ScriptedSource)
    assert [p.position for p in source.committed[-1]] == [{"row": ROWS}]
    again = world.job()
    assert again.wait().kind is OutcomeKind.FINISHED
    assert f"already finished at checkpoint {last.checkpoint}" in again.status().cause
    assert world.target.rows() == ALL


@pytest.mark.parametrize("batch_wait_ms", [None, 25, 60_000])
@pytest.mark.parametrize("after", [1, 3, 7])
def test_a_job_that_was_cancelled_goes_on_with_every_row_once_and_every_count_right(
    after: int, batch_wait_ms: int | None
) -> None:
    """What was staged and not recorded is read, counted and staged again. So are rows that waited
    to fill a batch (E9); those before a barrier are in its cut, however long they may wait.
    """
    world = World(batch_wait_ms=batch_wait_ms)

    def cancel(job: InlineJob) -> None:
        running = job.status().state is JobState.RUNNING
        if running and _rounds(job) >= after and len(world.target.order) >= after:
            job.cancel()

    assert world.job(when=cancel).wait().kind is OutcomeKind.CANCELLED
    assert 0 < len(world.target.rows()) < ROWS
    resumed = world.job(RestoreChoice(must_exist=True))
    assert resumed.wait().kind is OutcomeKind.FINISHED
    assert world.target.rows() == ALL
    assert {record.generation for record in world.records} == {1, 2}
    numbers = [record.checkpoint for record in world.records]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("drain", [False, True])
def test_a_stop_shows_all_that_was_read_and_only_a_drain_is_the_end(drain: bool) -> None:
    """D5: after a stop the next run reads on; after a drain there is nothing left to do."""
    world = World()

    def stop(job: InlineJob) -> None:
        if _rounds(job) >= 2 and job.status().state is JobState.RUNNING:
            job.stop(drain=drain)

    outcome = world.job(when=stop).wait()
    assert outcome.kind is (OutcomeKind.FINISHED if drain else OutcomeKind.STOPPED)
    shown = world.target.rows()
    assert shown == ALL[: len(shown)]
    assert len(shown) < ROWS
    position = world.records[-1].chains[0].sources
    assert [(p.split, p.position) for p in position] == [(SplitId("a"), {"row": len(shown)})]
    assert world.job().wait().kind is OutcomeKind.FINISHED
    assert world.target.rows() == (shown if drain else ALL)


def test_a_failure_goes_on_from_the_last_checkpoint_inside_the_run() -> None:
    world = World()
    failed: list[int] = []

    def fails(_split: str, n: int) -> bool:
        if n == 30 and not failed:
            failed.append(n)
            return True
        return False

    job = world.job(operator=ScriptedOperator(fails=fails))
    assert job.wait().kind is OutcomeKind.FINISHED
    assert failed == [30]
    assert job.status().restarts == 1
    assert world.target.rows() == ALL


def test_a_store_that_is_away_for_a_while_costs_rounds_and_nothing_else() -> None:
    """B6: data flow on; what was sealed meanwhile is shown after the next completed round."""
    world = World()
    away = 0

    def fault(call: str) -> FileFault | None:
        nonlocal away
        if call.startswith("create log/") and world.records and away < 8:
            away += 1
            return FileFault.REFUSED
        return None

    world.fault = fault
    job = world.job()
    assert job.wait().kind is OutcomeKind.FINISHED
    assert away == 8
    assert world.target.rows() == ALL


def test_a_publication_that_fails_is_repeated_and_shows_nothing_twice() -> None:
    world = World()

    def script(sink: ScriptedEpochSink) -> None:
        sink.fail_publish_at = 2

    assert world.job(script=script).wait().kind is OutcomeKind.FINISHED
    assert world.target.rows() == ALL
    assert len(world.target.order) == len(world.target.shown) + 1


def test_a_stop_with_a_savepoint_writes_its_copy_and_another_run_begins_there() -> None:
    world = World()

    def stop(job: InlineJob) -> None:
        if _rounds(job) >= 2 and job.status().state is JobState.RUNNING:
            job.stop(savepoint="before")

    job = world.job(when=stop)
    assert job.wait().kind is OutcomeKind.STOPPED
    checkpoints = job.status().checkpoints
    assert checkpoints is not None
    assert isinstance(checkpoints.savepoints["before"], str)
    assert any(path.startswith("savepoints/before/") for path in world.store.files)
    choice = RestoreChoice(RestoreKind.SAVEPOINT, savepoint="before")
    assert world.job(choice).wait().kind is OutcomeKind.FINISHED
    assert world.target.rows() == ALL


def test_a_job_with_a_log_never_starts_from_nothing_by_accident() -> None:
    """M3: what says that there must be nothing is refused where there is something."""
    world = World()
    world.job().wait()
    outcome = world.job(RestoreChoice(must_not_exist=True)).wait()
    assert isinstance(outcome.error, RestoreError)
    scratch = RestoreChoice(RestoreKind.SCRATCH, accept_duplicates=True)
    assert world.job(scratch).wait().kind is OutcomeKind.FINISHED
    assert sorted(world.target.rows()) == sorted(ALL * 2)


def test_a_sink_that_cannot_show_what_is_restored_is_a_failure_of_the_deployment() -> None:
    world = World()

    def cancel(job: InlineJob) -> None:
        if len(world.records) == 2 and job.status().state is JobState.RUNNING:
            job.cancel()

    world.job(when=cancel).wait()

    def script(sink: ScriptedEpochSink) -> None:
        sink.fail_publish_at = 1

    outcome = world.job(script=script).wait()
    assert isinstance(outcome.error, SinkError)
    assert world.job().wait().kind is OutcomeKind.FINISHED
    assert world.target.rows() == ALL


def test_every_component_is_closed_as_often_as_it_was_opened() -> None:
    world = World()
    world.job().wait()
    sinks = world.components.epoch_sinks
    assert [(sink.opened, sink.closed) for sink in sinks] == [(1, 1)]
    assert ChainId("count-0") in {chain.chain for chain in world.records[0].chains}
