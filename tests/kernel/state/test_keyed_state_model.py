"""Keyed state beside a plain dict: batches, failures, time, budgets, key types (S1-S4, S7, S8)."""

import decimal
import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.testing.state_bench import StateBench as Bench
from arkflow_kernel.testing.state_bench import rows_of_entries as _rows_of


class FailsError(Exception):
    """Ends an item that the test wants to fail."""


def form(value: Any) -> Any:
    """What makes two key values one key (G3)."""
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, float):
        if math.isnan(value):
            return ("float", "nan")
        if value.is_integer() and abs(value) <= 2**53:
            return ("int", int(value))
        return ("float", value)
    return (type(value).__name__, value)


def size_of(value: Any) -> int:
    """Encoded bytes of one key value."""
    if value is None:
        return 1
    if isinstance(value, decimal.Decimal):
        return 17
    return (
        1 + len(value.encode() if isinstance(value, str) else value)
        if isinstance(value, str | bytes)
        else 9
    )


INTS = st.sampled_from([0, 1, 2, -1, 127, 300, 2**53, 2**53 + 1, 2**62, -(2**63)])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.5, math.nan, math.inf, 1e300, float(2**53)])
TEXTS = st.sampled_from(["", "a", "b", "null:utf8", "bool:1", "ü" * 9, "x" * 7, "x" * 8, "y" * 300])
DECIMALS = st.sampled_from([decimal.Decimal("1.50"), decimal.Decimal("-2.00")])


def _column(values: st.SearchStrategy[Any], kinds: Seq[Any]) -> st.SearchStrategy[Any]:
    """Key columns of a batch: values that may repeat, in any layout of the same family."""

    def of(rows: list[Any], kind: pa.DataType) -> Any:
        if pa.types.is_dictionary(kind):
            return pa.array(rows, kind.value_type).dictionary_encode()
        if pa.types.is_integer(kind) and kind.bit_width < 64:
            rows = [None if row is None or abs(row) > 127 else row for row in rows]
        if kind == pa.uint64():
            rows = [None if row is None else abs(row) for row in rows]
        return pa.array([None, *rows, None], kind).slice(1, len(rows))

    rows = st.lists(st.one_of(st.none(), values), max_size=12)
    return st.builds(of, rows, st.sampled_from(kinds))


KEYS: dict[str, st.SearchStrategy[Any]] = {
    "integers": _column(INTS, [pa.int8(), pa.int16(), pa.int64(), pa.uint64()]),
    "floats": _column(FLOATS, [pa.float64(), pa.float32()]),
    "texts": _column(
        TEXTS,
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ),
    "binaries": _column(st.sampled_from([b"", b"\0", b"\0\0"]), [pa.binary(), pa.large_binary()]),
    "booleans": _column(st.booleans(), [pa.bool_()]),
    "times": _column(st.integers(-3, 3), [pa.timestamp("us", "Europe/Berlin")]),
    "decimals": _column(DECIMALS, [pa.decimal128(9, 2), pa.decimal32(9, 2)]),
}


KINDS = [
    kind if kind in ("integers", "texts") else pytest.param(kind, marks=pytest.mark.slow)
    for kind in KEYS
]


@dataclass(frozen=True)
class Op:
    """One call of an operator."""

    verb: str
    keys: Any
    number: int


@dataclass(frozen=True)
class Item:
    """One lane item: time passes, calls are made, then it may fail."""

    passes_ms: int
    calls: list[Op]
    fails: bool


def _items(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Item]]:
    verbs = st.sampled_from(["put", "increment", "increment", "delete", "get"])
    op = st.builds(Op, verbs, keys, st.integers(-5, 5))
    item = st.builds(
        Item, st.sampled_from([0, 0, 4, 10, -5]), st.lists(op, max_size=4), st.booleans()
    )
    return st.lists(item, max_size=12)


class Model:
    """The same state as a dict of Python values: key -> (value, deadline, bytes)."""

    def __init__(self, ttl_ms: int | None, max_bytes: int | None) -> None:
        self.entries: dict[Any, tuple[int | None, int, int]] = {}
        self.ttl_ms = ttl_ms
        self.max_bytes = max_bytes
        self.now = 0

    def live(self) -> dict[Any, tuple[int | None, int, int]]:
        return {key: entry for key, entry in self.entries.items() if entry[1] > self.now}

    def write(self, rows: list[Any], value_of: Callable[[int, int | None], int | None]) -> bool:
        """False if the budget would be passed; then nothing changes."""
        new = dict(self.live())
        deadline = 2**62 if self.ttl_ms is None else self.now + self.ttl_ms
        for row, key in enumerate(rows):
            before = new.get(form(key), (None, 0, 0))[0]
            value = value_of(row, before)
            size = size_of(key) + (0 if value is None else 8)
            new[form(key)] = (value, deadline, size)
        fits = self.max_bytes is None or sum(e[2] for e in new.values()) <= self.max_bytes
        if fits:
            self.entries = new
        return fits


def _perform(bench: Bench, model: Model, op: Op) -> None:
    rows = op.keys.to_pylist()
    keys = bench.state.keys(bench.batch(op.keys))
    if op.verb == "get":
        found = bench.state.get(keys)
        live = model.live()
        assert found.present.tolist() == [form(key) in live for key in rows]
        assert found.values.to_pylist() == [live.get(form(key), (None,))[0] for key in rows]
    elif op.verb == "delete":
        bench.state.delete(keys)
        for key in rows:
            model.entries.pop(form(key), None)
    elif op.verb == "put":
        values = [None if op.number == 0 else op.number + row for row in range(len(rows))]
        fits = model.write(rows, lambda row, _: values[row])
        _tried(fits, lambda: bench.state.put(keys, pa.array(values, pa.int64())))
    else:
        counts: list[int] = []
        saved = dict(model.entries)

        def counted(_: int, before: int | None) -> int:
            counts.append((before or 0) + op.number)
            return counts[-1]

        fits = model.write(rows, counted)
        if not fits:
            model.entries = saved
        told = _tried(fits, lambda: bench.state.increment(keys, op.number))
        assert told is None or told.to_pylist() == counts


def _tried(fits: bool, call: Callable[[], Any]) -> Any:
    if fits:
        return call()
    with pytest.raises(ProcessingError, match=r"operator 'op'.*`max_bytes: \d+`"):
        call()
    return None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    data=st.data(), ttl_ms=st.sampled_from([None, 10]), max_bytes=st.sampled_from([None, 60, 700])
)
def test_a_state_says_what_a_dict_says_and_a_failed_item_leaves_nothing(
    kind: str, data: st.DataObject, ttl_ms: int | None, max_bytes: int | None
) -> None:
    """Keys, values, bytes, order and deadlines; reads see the item's own writes."""
    bench = Bench(ttl_ms=ttl_ms, max_bytes=max_bytes)
    model = Model(ttl_ms, max_bytes)
    for item in data.draw(_items(KEYS[kind])):
        bench.wall.ms += item.passes_ms
        model.now = max(model.now, bench.wall.ms)
        before, held = dict(model.entries), bench.contents()
        sizes = (bench.state.live_keys, bench.state.live_bytes)
        try:
            with bench.journal.item():
                for op in item.calls:
                    _perform(bench, model, op)
                if item.fails:
                    raise FailsError
        except FailsError:
            model.entries = before
            assert bench.contents() == held
            assert (bench.state.live_keys, bench.state.live_bytes) == sizes
        _agree(bench.state, model)


def _agree(state: MemoryState, model: Model) -> None:
    entries = {}
    total = 0
    groups: list[int] = []
    for piece in state.entries():
        for key, value, at in _rows_of(piece):
            assert form(key) not in entries, "a key stands twice"
            entries[form(key)] = (value, at)
            total += size_of(key) + (0 if value is None else 8)
        groups += piece.groups.tolist()
    live = {key: (e[0], e[1]) for key, e in model.live().items()}
    assert {key: e for key, e in entries.items() if e[1] > model.now} == live
    assert (state.live_keys, state.live_bytes) == (len(entries), total)
    assert groups == sorted(groups)
