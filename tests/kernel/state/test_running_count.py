"""`stateful: true`: the running count of a key, beside a loop over rows (C.2 of the reference)."""

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.limits import INT64_MAX
from arkflow_kernel.operators.running_count import COUNT_STATE, COUNT_TYPE, RunningCount
from arkflow_kernel.plan import StatePlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck

pytestmark = pytest.mark.thorough

PLAN = StatePlan("default", ("k",), count_field="n")


class Through:
    """An inner processor that keeps what it gets."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.seen: list[pa.RecordBatch] = []

    def open(self) -> None:
        """Note it."""
        self.calls.append("open")

    def process(self, batch: pa.RecordBatch, origin: Any) -> OperatorResult:
        """Let it through."""
        self.seen.append(batch)
        return OperatorResult((batch,))

    def finish(self) -> OperatorResult:
        """Note it."""
        self.calls.append("finish")
        return OperatorResult(())

    def close(self) -> None:
        """Note it."""
        self.calls.append("close")


class Bench:
    """A running count with the journal of its chain."""

    def __init__(self, plan: StatePlan = PLAN) -> None:
        self.journal = CommitOnAck(lambda: WallMs(0))
        address = StateAddress("default", OperatorId("op"), COUNT_STATE)
        self.state = MemoryState(address, plan.key_fields, COUNT_TYPE, self.journal)
        self.journal.joined(self.state)
        self.inner = Through()
        self.counting = RunningCount(self.inner, self.state, plan)

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One item."""
        with self.journal.item():
            (out,) = self.counting.process(batch, NOWHERE).batches
        return out

    def counts(self, keys: list[Any]) -> list[Any]:
        """Counts of one batch."""
        return list(self.run(pa.record_batch({"k": pa.array(keys)})).column("n").to_pylist())


def looped(keys: list[Any]) -> list[int]:
    """The counts, row by row."""
    seen: Counter[Any] = Counter()
    counts = []
    for key in keys:
        seen[key] += 1
        counts.append(seen[key])
    return counts


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=60),
        st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab"])), max_size=60),
    ),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_counts_are_those_of_a_loop_wherever_the_rows_are_cut(
    keys: list[Any], cuts: list[int]
) -> None:
    bench = Bench()
    places = sorted({0, len(keys), *(cut for cut in cuts if cut < len(keys))})
    pieces = [keys[a:b] for a, b in itertools.pairwise(places)]
    assert [n for piece in pieces for n in bench.counts(piece)] == looped(keys)


def test_counts_of_more_keys_than_sixteen_bits_hold_are_those_of_a_loop() -> None:
    keys = [n * 7919 % 70_001 for n in range(140_500)]
    assert Bench().counts(keys) == looped(keys)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.one_of(st.none(), st.integers(-9, 9), st.integers(-(2**62), 2**62)),
            ),
            max_size=12,
        ),
        max_size=6,
    )
)
def test_sums_of_any_steps_are_those_of_a_loop_and_never_wrap(
    batches: list[list[tuple[int, int | None]]],
) -> None:
    bench = Bench()
    totals: dict[int, int] = {}
    for rows in batches:
        after, told = dict(totals), []
        for key, step in rows:
            after[key] = after.get(key, 0) + (step or 0)
            told.append(after[key])
        batch = pa.record_batch({"k": pa.array([key for key, _ in rows], pa.int64())})
        steps = pa.array([step for _, step in rows], pa.int64())
        fits = all(-(2**63) <= total < 2**63 for total in told)
        with bench.journal.item():
            keys = bench.state.keys(batch)
            if fits:
                assert bench.state.increment(keys, steps).to_pylist() == told
                totals = after
            else:
                with pytest.raises(ProcessingError, match="range of Int64"):
                    bench.state.increment(keys, steps)


def test_a_count_reaches_the_end_of_int64_and_fails_behind_it() -> None:
    bench = Bench()
    batch = pa.record_batch({"k": pa.array([1])})
    with bench.journal.item():
        bench.state.put(bench.state.keys(batch), pa.array([INT64_MAX - 1]))
    assert bench.counts([1]) == [INT64_MAX]
    with pytest.raises(ProcessingError, match=r"'op'.*range of Int64"):
        bench.counts([2, 1])
    assert bench.counts([2]) == [1]


def test_the_count_is_an_int64_column_behind_the_others() -> None:
    out = Bench().run(pa.record_batch({"k": pa.array(["a", "a"]), "v": pa.array([1.5, None])}))
    assert out.schema.names == ["k", "v", "n"]
    assert out.schema.field("n").type == pa.int64()


def test_a_column_of_that_name_is_replaced_in_its_place() -> None:
    out = Bench().run(pa.record_batch({"n": pa.array(["x"]), "k": pa.array(["a"])}))
    assert out.to_pydict() == {"n": [1], "k": ["a"]}


def test_the_key_may_be_the_column_that_is_replaced() -> None:
    plan = replace(PLAN, count_field="k")
    bench = Bench(plan)
    out = bench.run(pa.record_batch({"k": pa.array(["a", "b", "a"])}))
    assert out.column("k").to_pylist() == [1, 1, 2]


def test_the_inner_processor_is_opened_finished_and_closed() -> None:
    bench = Bench()
    bench.counting.open()
    bench.counting.finish()
    bench.counting.close()
    assert bench.inner.calls == ["open", "finish", "close"]
