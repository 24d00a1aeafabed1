"""A join in the lane of its chain: slices, counts, what goes to the error output (S2, T1c, T6)."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import EdgeId, OperatorId, OutputId, RequestToken, WallMs
from arkflow_kernel.kernel_operators import kernel_operator
from arkflow_kernel.lane import ChainLane, LaneAnswer
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.metrics import OperatorCounts
from arkflow_kernel.plan import ComponentPlan, OperatorPlan, SinkPlan, StatePlan
from arkflow_kernel.protocol import FinishItem, RunItem
from arkflow_kernel.state_journal import CommitOnAck
from tests.kernel.join.join_line import LEFT, RIGHT, join_of
from tests.kernel.state.snapshot_bench import PLAN

OUT = OutputId("out")


class Lane:
    """The lane of a chain of a join and its sink; what has left it, and what was counted."""

    def __init__(self, *, errors: bool = False, **join: Any) -> None:
        state = StatePlan("joins", ("k", "k"))
        operator = OperatorPlan(
            OperatorId("pair"), "join", ComponentPlan("", {}), None, state, join=join_of(**join)
        )
        journal = CommitOnAck(lambda: WallMs(0))
        sinks = tuple(
            SinkPlan(OperatorId(name), ComponentPlan("drop", {})) for name in ("out", "bad")
        )
        plan = replace(
            PLAN,
            operators=(operator,),
            sinks=sinks,
            outputs=(OUT,),
            error_output=OutputId("bad") if errors else None,
        )
        built = kernel_operator(operator, journal)
        assert built is not None
        self._lane = ChainLane(plan, [built], lambda: 0, journal)  # type: ignore[arg-type,return-value]
        self._token = 0
        self.left: dict[str, int] = {"out": 0, "bad": 0}
        self.slices = 0
        self.counts = OperatorCounts(OperatorId("pair"))

    def run(self, edge: str, batch: pa.RecordBatch) -> None:
        """Rows of a side, to the last slice."""
        self._token += 1
        token = RequestToken(self._token)
        self._drain(token, self._lane.run(RunItem(token, batch, edge=EdgeId(edge))))

    def finish(self) -> None:
        """The end of the data."""
        self._token += 1
        token = RequestToken(self._token)
        self._drain(token, self._lane.run(FinishItem(token)))

    def _drain(self, token: RequestToken, answer: LaneAnswer) -> None:
        while True:
            self.slices += 1
            size = sum(piece.batch.num_rows for piece in answer.slice.pieces)
            assert size <= SLICE_ROWS_MAX
            for piece in answer.slice.pieces:
                self.left[piece.output] += piece.batch.num_rows
            for counts in answer.counts:
                self.counts = self.counts.plus(counts)
            if not answer.more:
                return
            answer = self._lane.next_slice(token)


def rows(*values: tuple[str, int]) -> pa.RecordBatch:
    return pa.record_batch({"k": [k for k, _ in values], "ts": [ts for _, ts in values]})


def test_many_pairs_of_one_batch_leave_in_slices_and_rows_are_conserved() -> None:
    lane = Lane()
    lane.run(LEFT, rows(*(("a", 0) for _ in range(300))))
    lane.run(RIGHT, rows(*(("a", 0) for _ in range(300))))
    lane.finish()
    assert lane.left["out"] == 90_000
    assert lane.slices > 90_000 // SLICE_ROWS_MAX
    assert lane.counts.conserved()
    assert (lane.counts.rows_in, lane.counts.absorbed, lane.counts.expanded) == (600, 600, 90_000)


def test_a_batch_that_fails_goes_to_the_error_output_and_leaves_nothing_behind() -> None:
    lane = Lane(errors=True, kind="left_outer", max_per_key=1)
    lane.run(RIGHT, rows(("a", 0)))
    lane.run(LEFT, rows(("a", 1), ("a", 2)))
    assert lane.left == {"out": 0, "bad": 2}
    lane.run(LEFT, rows(("a", 3)))
    lane.finish()
    assert lane.left == {"out": 1, "bad": 2}
    assert lane.counts.errors == 2
    assert lane.counts.conserved()


def test_without_an_error_output_it_fails_the_item() -> None:
    lane = Lane(max_per_key=1)
    with pytest.raises(ProcessingError, match="max_per_key: 1"):
        lane.run(LEFT, rows(("a", 1), ("a", 2)))


def test_rows_with_a_null_key_of_an_inner_side_are_filtered() -> None:
    lane = Lane()
    lane.run(LEFT, pa.record_batch({"k": pa.array(["a", None]), "ts": [1, 1]}))
    assert (lane.counts.absorbed, lane.counts.filtered) == (1, 1)
    assert lane.counts.conserved()
