"""The driver's half of a chain in checkpoint mode: seal, upload, publish, restore (B6, S6, X1)."""

from dataclasses import replace

import pytest

from arkflow_kernel.chain_work import ChainWork, LaneKey, LaneName, lane_of
from arkflow_kernel.errors import SinkError, StoreError
from arkflow_kernel.ids import CheckpointId, Generation, OutputId, RequestToken, Sequence, SplitId
from arkflow_kernel.plan import ChainPlan, Mode, StatePlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    CommitPermit,
    ItemDone,
    PublishFailed,
    PublishTokens,
    RequestFailed,
    RunItem,
    SealItem,
    SealSink,
    SnapshotUploaded,
    Submit,
    TokensPublished,
    UploadFailed,
    UploadSnapshot,
    Write,
    WriteDone,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    Epoch,
    LaneSnapshot,
    RestoredChain,
    SinkToken,
)
from arkflow_kernel.testing.components import (
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
    rows_batch,
)
from arkflow_kernel.testing.plans import chain_plan
from arkflow_kernel.testing.staged_components import (
    MemoryObjects,
    ScriptedEpochSink,
    StagedComponents,
    Target,
)
from arkflow_kernel.testing.virtual_clock import VirtualClock

T = RequestToken(1)
SINK, PLAIN = OutputId("sink"), OutputId("plain")
PERMIT = CommitPermit("test")


def _plan() -> ChainPlan:
    """source -> count per split -> an exactly-once sink and a plain one."""
    plan = chain_plan(
        operators=("op",), sinks=("sink", "plain"), mode=Mode.CHECKPOINT, exactly_once=("sink",)
    )
    (operator,) = plan.operators
    state = StatePlan("default", ("split",), count_field="count")
    return replace(plan, operators=(replace(operator, state=state),))


class Work:
    """One process of the chain; `files` and `target` outlive it."""

    def __init__(
        self,
        generation: int = 1,
        files: dict[str, bytes] | None = None,
        target: Target | None = None,
        **script: object,
    ) -> None:
        self.files = {} if files is None else files
        self.target = target or Target()
        self.source, self.plain = ScriptedSource({"a": (2, 2)}), ScriptedSink(lag=9)

        def scripted(sink: ScriptedEpochSink) -> None:
            for name, value in script.items():
                setattr(sink, name, value)

        self.components = StagedComponents(
            {"source": self.source},
            {"op": ScriptedOperator()},
            {"plain": self.plain},
            target=self.target,
            script=scripted,
        )
        self.generation = Generation(generation)
        self.work = ChainWork(
            _plan(),
            self.components,
            VirtualClock(),
            generation=self.generation,
            objects=MemoryObjects(self.files),
        )
        self._writes = 0

    def rows(self, *numbers: int) -> None:
        """A batch through the operator and to both sinks."""
        done = self.work.perform(Submit(RunItem(T, rows_batch("a", numbers))))
        assert isinstance(done, ItemDone)
        self._writes += 1
        for piece in done.slice.pieces:
            write = Write(T, piece.output, Sequence(self._writes), piece.batch)
            assert isinstance(self.work.perform(write), WriteDone)

    def seal(self, checkpoint: int) -> Epoch:
        """Freeze state and sinks."""
        epoch = Epoch(self.generation, CheckpointId(checkpoint))
        sealed = self.work.perform(Submit(SealItem(T, epoch.checkpoint)))
        assert isinstance(sealed, ItemDone)
        assert sealed.slice.pieces == ()
        for output in (SINK, PLAIN):
            assert isinstance(self.work.perform(SealSink(T, output, epoch)), WriteDone)
        return epoch

    def upload(self, epoch: Epoch) -> SnapshotUploaded:
        """Make it durable."""
        uploaded = self.work.perform(UploadSnapshot(T, epoch))
        assert isinstance(uploaded, SnapshotUploaded), uploaded
        return uploaded

    def snapshot(self, uploaded: SnapshotUploaded) -> RestoredChain:
        """What the record of a round holds of the chain."""
        plan, at = _plan(), SplitPosition(SplitId("a"), {"row": 2})
        lane = LaneSnapshot(plan.sinks[0].operator, 0, uploaded.tokens)
        snapshot = ChainSnapshot(
            *(plan.chain, plan.tasks, (at,)),
            states=uploaded.states,
            lanes=(lane,),
            objects=uploaded.objects,
        )
        return RestoredChain(CheckpointId(1), snapshot)


def test_requests_of_rounds_have_lanes_of_their_own() -> None:
    epoch = Epoch(Generation(1), CheckpointId(1))
    assert lane_of(UploadSnapshot(T, epoch)) == LaneKey(LaneName.UPLOAD)
    assert lane_of(PublishTokens(T, SINK, PERMIT, ())) == LaneKey(LaneName.PUBLISH, SINK)
    assert lane_of(SealSink(T, SINK, epoch)) == LaneKey(LaneName.WRITE, SINK)
    assert lane_of(Submit(SealItem(T, epoch.checkpoint))) == LaneKey(LaneName.PROCESS)


def test_an_upload_makes_states_and_epochs_durable_up_to_its_round() -> None:
    chain = Work()
    chain.work.open()
    chain.rows(0, 1)
    first = chain.seal(1)
    assert chain.plain.flushes == 1, "a sink that does not stage confirms its writes at the seal"
    chain.rows(2)
    second = chain.seal(2)
    uploaded = chain.upload(first)
    assert [token.epoch for token in uploaded.tokens] == [first]
    assert uploaded.states[0].operator == "op"
    assert {ref.name for ref in uploaded.objects} == {
        run.object for state in uploaded.states for run in state.runs
    }
    assert all(f"objects/{ref.name}" in chain.files for ref in uploaded.objects)
    assert [token.epoch for token in chain.upload(second).tokens] == [second]
    assert chain.target.rows() == [], "nothing is shown before it is published"


def test_what_was_durable_when_an_upload_failed_half_way_is_told_with_the_next_one() -> None:
    """B6: uploaded runs stay usable, sealed epochs stay pending."""
    chain = Work(fail_stage_at=1)
    chain.work.open()
    chain.rows(0, 1)
    failed = chain.work.perform(UploadSnapshot(T, chain.seal(1)))
    assert isinstance(failed, UploadFailed)
    assert isinstance(failed.error, StoreError)
    chain.rows(2)
    uploaded = chain.upload(chain.seal(2))
    assert [int(token.epoch.checkpoint) for token in uploaded.tokens] == [1, 2]
    listed = {run.object for state in uploaded.states for run in state.runs}
    assert listed <= {ref.name for ref in uploaded.objects}


def test_a_sink_that_breaks_while_it_stages_fails_its_request_not_only_the_round() -> None:
    chain = Work(fail_stage_at=1, stage_error=OSError)
    chain.work.open()
    chain.rows(0)
    failed = chain.work.perform(UploadSnapshot(T, chain.seal(1)))
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, SinkError)
    assert "'sink' failed to stage: OSError" in str(failed.error)


def test_a_publication_that_fails_after_the_rows_were_shown_may_be_repeated() -> None:
    """X1: publishing is idempotent, so what is not confirmed is published again."""
    chain = Work(fail_publish_at=1)
    chain.work.open()
    chain.rows(0, 1)
    tokens = chain.upload(chain.seal(1)).tokens
    order = PublishTokens(T, SINK, PERMIT, tokens)
    assert isinstance(chain.work.perform(order), PublishFailed)
    assert isinstance(chain.work.perform(order), TokensPublished)
    assert chain.target.rows() == [("a", 0, 1), ("a", 1, 2)]
    assert chain.target.order == [tokens[0].epoch] * 2


def test_a_restored_chain_counts_on_and_has_published_its_tokens_when_it_is_open() -> None:
    """X1, D1: all of it before the chain is ready, so before anything is read."""
    before = Work()
    before.work.open()
    before.rows(0, 1)
    restored = before.snapshot(before.upload(before.seal(1)))
    before.rows(2, 3)
    before.work.close()
    after = Work(2, before.files, before.target)
    after.work.open(restored)
    assert after.target.rows() == [("a", 0, 1), ("a", 1, 2)]
    assert after.source.reads == 0
    after.rows(2, 3)
    tokens = after.upload(after.seal(2)).tokens
    after.work.perform(PublishTokens(T, SINK, PERMIT, tokens))
    assert after.target.rows()[2:] == [("a", 2, 3), ("a", 3, 4)]


def test_a_chain_that_cannot_publish_what_it_restored_leaves_nothing_open() -> None:
    before = Work()
    before.work.open()
    before.rows(0)
    restored = before.snapshot(before.upload(before.seal(1)))
    after = Work(2, before.files, before.target, fail_publish_at=1)
    with pytest.raises(SinkError, match="publish fails"):
        after.work.open(restored)
    (sink,) = after.components.epoch_sinks
    parts = [(after.source.opened, after.source.closed), (sink.opened, sink.closed)]
    assert parts == [(1, 1), (1, 1)]
    assert after.work.close() == []


def test_names_of_staged_objects_say_generation_chain_and_sink() -> None:
    chain = Work(7)
    chain.work.open()
    chain.rows(0)
    token: SinkToken = chain.upload(chain.seal(1)).tokens[0]
    assert [staged.object.name for staged in token.objects] == ["7-chain-0-sink-1.sink"]
