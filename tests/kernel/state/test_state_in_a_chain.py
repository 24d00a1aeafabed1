"""Keyed state in a chain's lane: applied with the item, discarded with it (S2, T1b, R4)."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.ids import RequestToken
from arkflow_kernel.metrics import OperatorCounts
from arkflow_kernel.plan import StatePlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.protocol import FinishItem, ItemDone, RequestFailed, RunItem, Submit
from arkflow_kernel.testing.components import (
    ScriptedComponents,
    ScriptedSink,
    ScriptedSource,
)
from arkflow_kernel.testing.plans import chain_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

T = RequestToken(1)


class Through:
    """An operator that lets everything through."""

    def open(self) -> None:
        """Nothing to open."""

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """As it came."""
        return OperatorResult((batch,))

    def finish(self) -> OperatorResult:
        """Nothing was kept."""
        return OperatorResult(())

    def close(self) -> None:
        """Nothing to close."""


class Behind(Through):
    """Fails on batches with the value that the test names; holds others back if told to."""

    def __init__(self) -> None:
        self.refuses: int | None = None
        self.held: list[pa.RecordBatch] = []
        self.holds = False

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """Fail, hold back or let through."""
        if self.refuses in batch.column("v").to_pylist():
            raise ValueError("refused")
        if self.holds:
            self.held.append(batch)
            return OperatorResult(())
        return OperatorResult((batch,))

    def finish(self) -> OperatorResult:
        """Let go what was held back."""
        return OperatorResult(tuple(self.held))


class Chain:
    """hold -> count (per `k`) -> behind, with an error output unless told otherwise."""

    def __init__(self, *, errors: bool = True, **state: Any) -> None:
        self.hold, self.behind = Behind(), Behind()
        self.clock = VirtualClock()
        components = ScriptedComponents(
            {"source": ScriptedSource({})},
            {"hold": self.hold, "count": Through(), "behind": self.behind},
            {"sink": ScriptedSink(), "errors": ScriptedSink()},
        )
        plan = chain_plan(
            operators=("hold", "count", "behind"), error_sink="errors" if errors else None
        )
        kept = StatePlan("default", ("k",), count_field="n", **state)
        operators = tuple(
            replace(each, state=kept) if each.operator == "count" else each
            for each in plan.operators
        )
        self.work = ChainWork(replace(plan, operators=operators), components, self.clock)
        self.work.open()
        self.totals = OperatorCounts(operators[1].operator)

    def run(self, keys: list[Any], values: list[int]) -> dict[str, list[Any]] | RequestFailed:
        """One batch; per output the counts, or None for rows that failed."""
        batch = pa.record_batch({"k": pa.array(keys), "v": pa.array(values)})
        return self._answered(RunItem(T, batch, None, Origin("file", None, 0)))

    def finish(self) -> dict[str, list[Any]] | RequestFailed:
        """The end of the data."""
        return self._answered(FinishItem(T))

    def _answered(self, item: RunItem | FinishItem) -> dict[str, list[Any]] | RequestFailed:
        answer = self.work.perform(Submit(item))
        if isinstance(answer, RequestFailed):
            return answer
        assert isinstance(answer, ItemDone)
        for counts in answer.counts:
            if counts.operator == "count":
                self.totals = self.totals.plus(counts)
        left: dict[str, list[Any]] = {}
        for piece in answer.slice.pieces:
            names = piece.batch.schema.names
            counts_of = piece.batch.column("n").to_pylist() if "n" in names else [None]
            left.setdefault(piece.output, []).extend(counts_of)
        return left


def test_counts_go_on_from_batch_to_batch() -> None:
    chain = Chain()
    assert chain.run(["a", "b", "a"], [1, 2, 3]) == {"sink": [1, 1, 2]}
    assert chain.run(["a", None], [1, 2]) == {"sink": [3, 1]}


def test_a_batch_that_fails_behind_the_count_is_not_counted() -> None:
    chain = Chain()
    chain.behind.refuses = 13
    chain.run(["a"], [1])
    assert chain.run(["a", "b"], [2, 13]) == {"errors": [None]}
    assert chain.run(["a", "b"], [3, 4]) == {"sink": [2, 1]}


def test_an_item_that_fails_leaves_no_open_transaction_and_no_count() -> None:
    chain = Chain(errors=False)
    chain.behind.refuses = 13
    assert isinstance(chain.run(["a"], [13]), RequestFailed)
    assert chain.run(["a"], [1]) == {"sink": [1]}


def test_of_finish_only_the_slice_that_failed_is_not_counted() -> None:
    chain = Chain()
    chain.hold.holds = True
    for value in (1, 13, 2):
        chain.run(["a"], [value])
    chain.behind.refuses = 13
    assert chain.finish() == {"sink": [1, 2], "errors": [None]}


def test_a_missing_key_column_sends_the_batch_to_the_error_output() -> None:
    chain = Chain()
    batch = pa.record_batch({"v": pa.array([1])})
    answer = chain.work.perform(Submit(RunItem(T, batch, None, Origin("file", None, 0))))
    assert isinstance(answer, ItemDone)
    (piece,) = answer.slice.pieces
    assert piece.output == "errors"
    assert piece.batch.column("__meta_error_operator").to_pylist() == ["count"]
    assert "key field 'k' is missing" in str(piece.batch.column("__meta_error")[0])


def test_a_count_begins_anew_when_its_time_is_over() -> None:
    """S7: the wall clock decides, not the monotonic one."""
    chain = Chain(ttl_ms=1_000)
    assert chain.run(["a"], [1]) == {"sink": [1]}
    chain.clock.advance(999)
    assert chain.run(["a"], [1]) == {"sink": [2]}
    chain.clock.advance(1_000)
    assert chain.run(["a"], [1]) == {"sink": [1]}


def test_the_statistics_say_how_many_keys_and_bytes_an_operator_keeps() -> None:
    chain = Chain(ttl_ms=1_000)
    chain.run(["a", "bb", "a"], [1, 2, 3])
    assert (chain.totals.state_keys, chain.totals.state_bytes) == (2, 2 + 3 + 2 * 8)
    chain.clock.advance(1_000)
    chain.run(["c"], [1])
    assert (chain.totals.state_keys, chain.totals.state_bytes) == (1, 2 + 8)
    assert chain.totals.conserved()
