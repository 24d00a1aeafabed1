"""Snapshots and spilling beside states that never stop (B0, S2, S4, S5, S6, S7): any budget, any
seal, any restore; what is said is the same.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ProcessingError, StoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.testing.state_bench import Wall
from tests.kernel.state.snapshot_bench import Chain, Objects, Taken


class FailsError(Exception):
    """Ends an item that the test wants to fail."""


@dataclass(frozen=True)
class Op:
    """One call of an operator, on one of the chain's states."""

    verb: str
    part: int
    keys: Any
    number: int


@dataclass(frozen=True)
class Item:
    """One lane item: time passes, calls are made, then it may fail."""

    passes_ms: int
    calls: list[Op]
    fails: bool


@dataclass(frozen=True)
class Step:
    """What a driver does between items: `seal`, `checkpoint`, `failed` (upload), `restore`."""

    verb: str


KEYS: dict[str, tuple[list[Any], list[pa.DataType]]] = {
    "integers": (
        [0, 1, 2, 3, 5, 8, 13, 21, 127, 2**53 + 1, 2**62],
        [pa.int64(), pa.int16(), pa.uint64()],
    ),
    "numbers": (
        [0.0, 1.0, 0.5, float("nan"), 2**53 + 1, 2**62 + 1, -(2**63)],
        [pa.float64(), pa.int64(), pa.uint64()],
    ),
    "texts": (["", "a", "b", "c", "ü" * 9, "x" * 40], [pa.string(), pa.string_view()]),
}


KINDS = [
    kind if kind == "integers" else pytest.param(kind, marks=pytest.mark.slow) for kind in KEYS
]


def _array(rows: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        rows = [None if row is None else float(row) for row in rows]
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - 1) - 1
        rows = [None if row is None or row != row or row != int(row) else int(row) for row in rows]
        rows = [None if row is None or abs(row) > top else row for row in rows]
        if kind == pa.uint64():  # beyond Int64, for the smaller ones
            rows = [None if row is None else abs(row) + 2**63 * (abs(row) < 3) for row in rows]
    return pa.array(rows, kind)


def _steps(kind: str) -> st.SearchStrategy[list[Item | Step]]:
    values, kinds = KEYS[kind]
    rows = st.lists(st.one_of(st.none(), st.sampled_from(values)), max_size=6)
    keys = st.builds(_array, rows, st.sampled_from(kinds))
    verbs = st.sampled_from(["put", "increment", "increment", "delete", "get"])
    op = st.builds(Op, verbs, st.integers(0, 1), keys, st.integers(-5, 5))
    passes = st.sampled_from([0, 0, 4, 10])
    item = st.builds(Item, passes, st.lists(op, max_size=3), st.sampled_from([False, False, True]))
    verb = st.sampled_from(["seal", "checkpoint", "checkpoint", "failed", "restore"])
    return st.lists(st.one_of(item, item, st.builds(Step, verb)), max_size=24)


def _run(chain: Chain, item: Item) -> list[Any]:
    """Do an item; everything that it was told."""
    told: list[Any] = []
    chain.wall.ms += item.passes_ms
    try:
        with chain.journal.item():
            for op in item.calls:
                told.append(_call(chain, op))
            if item.fails:
                raise FailsError
    except FailsError:
        told.append("failed")
    return told


def _call(chain: Chain, op: Op) -> Any:
    state = chain.state[op.part]
    try:
        keys = state.keys(chain.batch(op.keys))
        if op.verb == "get":
            found = state.get(keys)
            return found.values.to_pylist(), found.present.tolist()
        if op.verb == "delete":
            return state.delete(keys)
        if op.verb == "put":
            values = [op.number + row if op.number else None for row in range(len(op.keys))]
            return state.put(keys, pa.array(values, pa.int64()))
        return state.increment(keys, op.number).to_pylist()
    except ProcessingError as error:
        return error.message


class Twins:
    """The chain that is tried, and one that keeps all in memory and never stops."""

    def __init__(self, spool: Path, ttl_ms: int | None, max_bytes: int | None, budget: int) -> None:
        self.given: dict[str, Any] = {"names": ("a", "b"), "ttl_ms": ttl_ms, "max_bytes": max_bytes}
        self.budget = budget
        self.objects = Objects(spool)
        self.tried = self._begun()
        self.peer = Chain(None, **self.given)
        self.items: list[Item] = []
        self.checkpoint = 0
        self.last: tuple[Taken, int] = (Taken((), ()), 0)

    def _begun(self, generation: int = 1) -> Chain:
        wall = Wall()
        return Chain(
            self.objects,
            generation=generation,
            memory_bytes=self.budget,
            wall=wall,
            **self.given,
        )

    def tried_now(self) -> tuple[Taken, int]:
        """A checkpoint of this moment."""
        self.checkpoint += 1
        return self.tried.take(self.checkpoint), len(self.items)

    def step(self, step: Step) -> None:
        """What the driver does; the peer knows nothing of it."""
        if step.verb == "restore":
            taken, upto = self.last
            wall = self.tried.wall.ms
            self.tried = taken.restored(self._begun(int(self.tried.generation) + 1))
            for item in self.items[upto:]:
                _run(self.tried, item)
            assert self.tried.wall.ms <= wall
            self.tried.wall.ms = wall
            return
        self.checkpoint += 1
        self.tried.states.seal(CheckpointId(self.checkpoint))
        if step.verb == "failed":
            self.objects.failures = 1
            with contextlib.suppress(StoreError):  # nothing to upload: nothing fails
                self.tried.upload(self.checkpoint)
            self.objects.failures = 0
        elif step.verb == "checkpoint":
            self.last = self.tried.upload(self.checkpoint), len(self.items)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    max_bytes=st.sampled_from([None, 60]),
    budget=st.sampled_from([1, 1, 2**40]),
)
def test_with_any_budget_and_any_restore_a_chain_says_what_one_says_that_never_stops(
    kind: str,
    data: st.DataObject,
    max_bytes: int | None,
    budget: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """B0: what comes before a seal is in its snapshot, all of it and nothing else; S4, S5."""
    twins = Twins(tmp_path_factory.getbasetemp() / "spool", None, max_bytes, budget)
    for step in data.draw(_steps(kind)):
        if isinstance(step, Step):
            twins.step(step)
        else:
            twins.items.append(step)
            assert _run(twins.tried, step) == _run(twins.peer, step)
        for part in (0, 1):
            assert twins.tried.held(part) == twins.peer.held(part)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data(), budget=st.sampled_from([1, 2**40]), max_bytes=st.sampled_from([None, 60]))
def test_entries_expire_at_the_same_moment_in_memory_in_a_file_and_after_a_restore(
    data: st.DataObject,
    budget: int,
    max_bytes: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """S7. Expired entries may stand for a while in one and not in the other."""
    twins = Twins(tmp_path_factory.getbasetemp() / "spool", 10, max_bytes, budget)
    for step in data.draw(_steps("integers")):
        if isinstance(step, Step):
            if step.verb == "restore":  # time goes on while it is down: the items come again
                twins.last = twins.tried_now()
            twins.step(step)
        else:
            twins.items.append(step)
            assert _run(twins.tried, step) == _run(twins.peer, step)
        now = twins.peer.wall.ms
        for part in (0, 1):
            mine = {k: e for k, e in twins.tried.rows(part).items() if e[1] > now}
            assert mine == {k: e for k, e in twins.peer.rows(part).items() if e[1] > now}
