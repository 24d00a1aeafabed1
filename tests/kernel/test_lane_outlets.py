"""The lane and the edges that leave its chain: routing is part of the item (G2, G3, T1c, S2)."""

from dataclasses import replace

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import ChainId, ChannelId, EdgeId, MonotonicMs, OutputId, RequestToken
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.lane import ChainLane
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.plan import ChannelPlan, EdgeKind, OutletPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.protocol import FinishItem, Piece, RunItem
from arkflow_kernel.testing.components import ScriptedOperator, bad_rows, rows_batch, rows_of
from arkflow_kernel.testing.plans import chain_plan

T = RequestToken(1)
ORIGIN = Origin("topic", 0, 40)


def _outlet(edge: str, kind: EdgeKind, channels: int, *keys: str) -> OutletPlan:
    plans = [
        ChannelPlan(ChannelId(f"{edge}[0-{i}]"), i, EdgeId(edge), ChainId("a-0"), ChainId(f"b-{i}"))
        for i in range(channels)
    ]
    return OutletPlan(OutputId(edge), kind, tuple(plans), keys, 16)


def _lane(*operators: ScriptedOperator, outlets: tuple[OutletPlan, ...], sink: bool) -> ChainLane:
    """Rows go to the outlets that are no error outlet, and to the sink if there is one."""
    plan = chain_plan(operators=[f"op-{i}" for i in range(len(operators))])
    edges = tuple(outlet.output for outlet in outlets if outlet.kind is not EdgeKind.ERROR)
    errors = [outlet.output for outlet in outlets if outlet.kind is EdgeKind.ERROR]
    changed = replace(
        plan,
        outputs=(*plan.outputs, *edges) if sink else edges,
        outlets=outlets,
        error_output=errors[0] if errors else None,
    )
    return ChainLane(changed, operators, lambda: MonotonicMs(0))


def _all(lane: ChainLane, item: RunItem | FinishItem) -> list[Piece]:
    answer = lane.run(item)
    pieces = list(answer.slice.pieces)
    while answer.more:
        answer = lane.next_slice(item.token)
        pieces += answer.slice.pieces
    return pieces


def _keyed(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(rows)), "k": [i % 5 for i in range(rows)]})


BY_KEY = _outlet("by-key", EdgeKind.PARTITIONED, 3, "k")
TO_ALL = _outlet("to-all", EdgeKind.BROADCAST, 2)
ERRORS = _outlet("errors", EdgeKind.ERROR, 1)


def test_rows_of_one_batch_leave_by_every_edge_as_its_kind_says() -> None:
    pieces = _all(_lane(outlets=(BY_KEY, TO_ALL), sink=True), RunItem(T, _keyed(10)))
    groups = key_groups(_keyed(10), ["k"], 16)
    owner = [next(i for i in range(3) if g < (i + 1) * 16 // 3) for g in groups.tolist()]
    found = {piece.output: piece.batch.column("n").to_pylist() for piece in pieces}
    by_key = {f"by-key[0-{i}]": [n for n in range(10) if owner[n] == i] for i in range(3)}
    everything = list(range(10))
    assert found == {
        "sink": everything,
        **{output: rows for output, rows in by_key.items() if rows},
        "to-all[0-0]": everything,
        "to-all[0-1]": everything,
    }
    assert all(piece.size_bytes > 0 for piece in pieces)


def test_routed_pieces_come_in_slices_that_lose_nothing() -> None:
    lane = _lane(outlets=(BY_KEY, TO_ALL), sink=False)
    rows = 2 * SLICE_ROWS_MAX + 7
    answer = lane.run(RunItem(T, _keyed(rows)))
    slices = [answer.slice]
    while answer.more:
        answer = lane.next_slice(T)
        slices.append(answer.slice)
    assert len(slices) > 1
    count: dict[str, int] = {}
    for each in slices:
        assert sum(piece.batch.num_rows for piece in each.pieces) <= SLICE_ROWS_MAX
        for piece in each.pieces:
            edge = piece.output.split("[")[0]
            count[edge] = count.get(edge, 0) + piece.batch.num_rows
    assert count == {"by-key": rows, "to-all": 2 * rows}


def test_a_batch_that_cannot_be_routed_reaches_the_error_edge_as_it_entered() -> None:
    class Renames(ScriptedOperator):
        def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
            result = super().process(batch, origin)
            return replace(
                result, batches=tuple(b.rename_columns(["a", "b"]) for b in result.batches)
            )

    lane = _lane(Renames(), outlets=(TO_ALL, BY_KEY, ERRORS), sink=True)
    item = RunItem(T, rows_batch("a", range(3)), bad_rows("a", [100]), ORIGIN)
    first, second = _all(lane, item)
    assert {first.output, second.output} == {"errors[0-0]"}
    assert first.batch.column("__value__").to_pylist() == [b"a:100"], "bad rows of the read stay"
    assert rows_of(second.batch) == [("a", n) for n in range(3)]
    cause = second.batch.column("__meta_error")[0].as_py()
    assert "edge 'by-key': partition key field 'k' is missing from batch" in cause
    assert second.batch.column("__meta_error_operator").to_pylist() == ["op-0"] * 3
    assert second.batch.column("__meta_offset").to_pylist() == [40] * 3


def test_without_an_error_edge_a_batch_that_cannot_be_routed_fails_the_item() -> None:
    lane = _lane(outlets=(BY_KEY,), sink=False)
    with pytest.raises(ProcessingError) as failure:
        lane.run(RunItem(T, rows_batch("a", [1]), None, ORIGIN))
    assert failure.value.operator == "source", "no operator stands before the edge"
    assert "at the batch from topic, partition 0, offset 40" in str(failure.value)


def test_a_text_key_after_a_number_key_is_the_error_of_its_batch_alone() -> None:
    lane = _lane(outlets=(BY_KEY, ERRORS), sink=False)
    texts = pa.RecordBatch.from_pydict({"n": [1], "k": ["1"]})
    outputs = [
        {piece.output.split("[")[0] for piece in _all(lane, RunItem(T, batch, None, ORIGIN))}
        for batch in (_keyed(4), texts, _keyed(4))
    ]
    assert outputs == [{"by-key"}, {"errors"}, {"by-key"}]


def test_what_finish_yields_is_routed_too_and_what_cannot_be_goes_to_the_error_edge() -> None:
    held = (_keyed(4), rows_batch("end", [0]))
    lane = _lane(ScriptedOperator(at_finish=held), outlets=(BY_KEY, ERRORS), sink=False)
    pieces = _all(lane, FinishItem(T))
    good = [n for p in pieces if p.output != "errors[0-0]" for n in p.batch.column("n").to_numpy()]
    assert sorted(good) == [0, 1, 2, 3]
    assert [rows_of(p.batch) for p in pieces if p.output == "errors[0-0]"] == [[("end", 0)]]


def test_what_leaves_by_an_edge_is_plain_and_what_goes_to_a_sink_is_left_alone() -> None:
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([words], names=["k"])
    kinds = {
        str(p.output): p.batch.schema.field("k").type
        for p in _all(_lane(outlets=(TO_ALL,), sink=True), RunItem(T, batch))
    }
    assert kinds["sink"] == words.type
    assert kinds["to-all[0-0]"] == kinds["to-all[0-1]"] == pa.string()


def test_rows_by_key_group_are_told_once_and_only_of_what_leaves() -> None:
    """A batch that fails leaves by the error edge, whatever it had made before."""

    def told(lane: ChainLane, item: RunItem | FinishItem) -> dict[str, int]:
        return {each.output: int(each.rows.sum()) for each in lane.run(item).key_groups}

    lane = _lane(outlets=(BY_KEY, TO_ALL, ERRORS), sink=False)
    assert told(lane, RunItem(T, _keyed(4), None, ORIGIN)) == {"by-key": 4}
    assert told(lane, RunItem(T, rows_batch("a", [1]), None, ORIGIN)) == {}
    ending = ScriptedOperator(at_finish=(_keyed(4), rows_batch("end", [0]), _keyed(2)))
    assert told(_lane(ending, outlets=(BY_KEY, ERRORS), sink=False), FinishItem(T)) == {"by-key": 6}
