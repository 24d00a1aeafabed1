"""Keyed state beside a plain dict: batches, failures, time, budgets, key types (S1-S4, S7, S8)."""

import decimal
import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.state.api import StateAddress, StateEntries
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck

ADDRESS = StateAddress("default", OperatorId("op"), "count")


class FailsError(Exception):
    """Ends an item that the test wants to fail."""


@dataclass
class Wall:
    """A wall clock that the test moves."""

    ms: int = 1_000

    def __call__(self) -> WallMs:
        return WallMs(self.ms)


@dataclass
class Bench:
    """A state, its journal and its clock."""

    fields: tuple[str, ...] = ("k",)
    value_type: pa.DataType = field(default_factory=pa.int64)
    ttl_ms: int | None = None
    max_bytes: int | None = None
    wall: Wall = field(default_factory=Wall)

    def __post_init__(self) -> None:
        self.journal = CommitOnAck(self.wall)
        self.state = MemoryState(
            ADDRESS,
            self.fields,
            self.value_type,
            self.journal,
            ttl_ms=self.ttl_ms,
            max_bytes=self.max_bytes,
        )
        self.journal.joined(self.state)

    def batch(self, *columns: Any) -> pa.RecordBatch:
        """A batch of key columns."""
        return pa.RecordBatch.from_arrays([*columns], names=list(self.fields))

    def put(self, keys: Any, values: Seq[Any]) -> None:
        """One item that puts."""
        with self.journal.item():
            self.state.put(self.state.keys(self.batch(keys)), pa.array(values, self.value_type))

    def get(self, keys: Any) -> list[Any]:
        """Values, and the text "absent" for keys that are not there."""
        with self.journal.item():
            found = self.state.get(self.state.keys(self.batch(keys)))
        values = found.values.to_pylist()
        return [v if p else "absent" for v, p in zip(values, found.present, strict=True)]

    def count(self, keys: Any) -> list[int]:
        """One item that counts rows."""
        with self.journal.item():
            counts = self.state.increment(self.state.keys(self.batch(keys)))
        return [count or 0 for count in counts.to_pylist()]


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


def contents(state: MemoryState) -> list[tuple[Any, ...]]:
    """Everything that a state says it holds, bit by bit."""
    held: list[tuple[Any, ...]] = []
    for piece in state.entries():
        deadlines = [None] * len(piece.groups) if piece.deadlines is None else piece.deadlines
        columns = [column.to_pylist() for column in (*piece.keys, piece.values)]
        types = [str(column.type) for column in piece.keys]
        for row in zip(piece.groups.tolist(), *columns, list(deadlines), strict=True):
            held.append((*map(repr, row), *types))
    return held


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
    "decimals": _column(DECIMALS, [pa.decimal128(9, 2)]),
}


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


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=60, deadline=None)
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
        before, held = dict(model.entries), contents(bench.state)
        sizes = (bench.state.live_keys, bench.state.live_bytes)
        try:
            with bench.journal.item():
                for op in item.calls:
                    _perform(bench, model, op)
                if item.fails:
                    raise FailsError
        except FailsError:
            model.entries = before
            assert contents(bench.state) == held
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


def _rows_of(piece: StateEntries) -> list[tuple[Any, Any, int]]:
    deadlines = [2**62] * len(piece.groups) if piece.deadlines is None else piece.deadlines.tolist()
    keys, values = piece.keys[0].to_pylist(), piece.values.to_pylist()
    if piece.keys[0].type == pa.decimal128(20, 0):  # integers of both signs beyond Int64
        keys = [None if key is None else int(key) for key in keys]
    return list(zip(keys, values, deadlines, strict=True))


def test_entries_carry_the_key_group_of_their_key() -> None:
    bench = Bench()
    keys = pa.array([None, *range(5_000), *range(300)])
    bench.count(keys)
    pieces = list(bench.state.entries())
    for piece in pieces:
        again = key_groups(pa.RecordBatch.from_arrays([*piece.keys], names=["k"]), ["k"], 128)
        assert piece.groups.tolist() == again.tolist()
    groups = np.concatenate([piece.groups for piece in pieces]).tolist()
    assert groups == sorted(groups)
    assert len(groups) == 5_001


def test_integers_and_integral_floats_are_one_key_and_come_back_widened() -> None:
    bench = Bench()
    bench.count(pa.array([1, 2, 2**60], pa.int64()))
    assert bench.count(pa.array([1.0, 2.5, None])) == [2, 1, 1]
    entries = [
        (str(p.keys[0].type), row[0], row[1]) for p in bench.state.entries() for row in _rows_of(p)
    ]
    assert sorted(entries, key=repr) == [
        ("double", 1.0, 2),
        ("double", 2.0, 1),
        ("double", 2.5, 1),
        ("double", None, 1),
        ("int64", 2**60, 1),
    ], "what a Float64 cannot hold stays an integer"


def test_integers_of_all_widths_come_back_exactly() -> None:
    bench = Bench()
    bench.count(pa.array([2**64 - 1, 2**63, 5], pa.uint64()))
    bench.count(pa.array([5, -7, 2**53 + 1], pa.int64()))
    keys = [int(row[0]) for piece in bench.state.entries() for row in _rows_of(piece)]
    assert sorted(keys) == [-7, 5, 2**53 + 1, 2**63, 2**64 - 1]


def test_a_key_that_changes_from_text_to_number_is_an_error_that_names_both() -> None:
    """S10: also after a null column, which may become either."""
    bench = Bench()
    bench.count(pa.nulls(2))
    bench.count(pa.array(["a"]))
    with pytest.raises(ProcessingError, match=r"'op'.*'k'.*string.*int64"):
        bench.count(pa.array([1]))
    assert bench.count(pa.array([None, "a"])) == [3, 2]


def test_the_type_of_a_failed_item_is_forgotten_with_it() -> None:
    bench = Bench()
    with pytest.raises(ProcessingError, match="brought to one type"), bench.journal.item():
        _count_one_by_one(bench, pa.array(["a"]), pa.array([1]))
    assert bench.count(pa.array([1, 1])) == [1, 2]


def _count_one_by_one(bench: Bench, *columns: Any) -> None:
    for column in columns:
        bench.state.increment(bench.state.keys(bench.batch(column)))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_a_nested_key_is_refused_by_name(kind: pa.DataType) -> None:
    bench = Bench()
    with pytest.raises(ProcessingError, match=r"'op'.*key field 'k'.*cannot be a key"):
        bench.count(pa.nulls(1, kind))  # type: ignore[call-overload]


def test_a_missing_key_column_names_the_field_the_operator_and_what_there_is() -> None:
    bench = Bench()
    batch = pa.record_batch({"other": pa.array([1])})
    with pytest.raises(ProcessingError, match=r"operator 'op'.*'k' is missing.*other"):
        bench.state.keys(batch)


def test_several_key_fields_are_one_key_field_by_field() -> None:
    bench = Bench(fields=("a", "b"))
    first = bench.batch(pa.array(["x", "xy", None, "x"]), pa.array([1, None, 1, 1]))
    second = bench.batch(pa.array(["xy", "x", None]), pa.array([None, 1.0, 2.0]))
    with bench.journal.item():
        counts = bench.state.increment(bench.state.keys(first)).to_pylist()
        counts += bench.state.increment(bench.state.keys(second)).to_pylist()
    assert counts == [1, 1, 1, 2, 2, 3, 1]
    rows = [r for p in bench.state.entries() for r in zip(*map(_list, p.keys), strict=True)]
    assert set(rows) == {("x", 1.0), ("xy", None), (None, 1.0), (None, 2.0)}
    assert bench.state.live_bytes == sum([2 + 9, 3 + 1, 1 + 9, 1 + 9]) + 4 * (2 * 4 + 8)


def _list(column: Any) -> list[Any]:
    return list(column.to_pylist())


def test_of_equal_keys_in_one_put_the_last_counts() -> None:
    bench = Bench(value_type=pa.string())
    bench.put(pa.array(["a", "b", "a"]), ["1", "2", "3"])
    assert bench.get(pa.array(["a", "b", "c"])) == ["3", "2", "absent"]


def test_a_null_value_is_there_and_a_deleted_key_is_not() -> None:
    bench = Bench()
    bench.put(pa.array([1, 2]), [None, 5])
    with bench.journal.item():
        bench.state.delete(bench.state.keys(bench.batch(pa.array([2, 3]))))
    assert bench.get(pa.array([1, 2])) == [None, "absent"]


def test_the_budget_is_exact_and_names_operator_and_bound() -> None:
    """S4: reaching it succeeds, passing it fails and nothing is half applied."""
    bench = Bench(value_type=pa.string(), max_bytes=3 * 9 + 6)
    bench.put(pa.array([1, 2, 3]), ["aa", "bb", "cc"])
    assert bench.state.live_bytes == 33
    held = contents(bench.state)
    for keys, values in (([1], ["aaa"]), ([4], [""]), ([1, 2, 3, 4], ["", "", "", ""])):
        with pytest.raises(ProcessingError, match=r"operator 'op'.*`max_bytes: 33`"):
            bench.put(pa.array(keys), values)
        assert contents(bench.state) == held
    bench.put(pa.array([1, 2]), ["aaa", "b"])
    assert bench.state.live_bytes == 33


def test_expired_entries_make_room_before_the_budget_fails() -> None:
    bench = Bench(ttl_ms=100, max_bytes=2 * 17)
    bench.count(pa.array([1]))
    bench.wall.ms += 60
    bench.count(pa.array([2]))
    bench.wall.ms += 40
    assert bench.count(pa.array([3])) == [1]
    assert bench.get(pa.array([1, 2, 3])) == ["absent", 1, 1]


def test_an_entry_lives_until_its_ttl_and_a_write_refreshes_it() -> None:
    """S7: also in the item in which it would go; a read does not refresh."""
    bench = Bench(ttl_ms=100)
    bench.count(pa.array(["a", "b"]))
    bench.wall.ms += 99
    assert bench.get(pa.array(["a", "b"])) == [1, 1]
    assert bench.count(pa.array(["a"])) == [2]
    bench.wall.ms += 1
    assert bench.count(pa.array(["a", "b"])) == [3, 1]
    bench.wall.ms += 100
    assert bench.get(pa.array(["a", "b"])) == ["absent", "absent"]


def test_a_wall_clock_that_is_set_back_brings_nothing_back() -> None:
    bench = Bench(ttl_ms=100)
    bench.count(pa.array([1]))
    bench.wall.ms += 100
    bench.count(pa.array([2]))
    bench.wall.ms -= 90
    assert bench.get(pa.array([1, 2])) == ["absent", 1]


def test_entries_that_nobody_asks_for_are_swept() -> None:
    bench = Bench(ttl_ms=100)
    for turn in range(50):
        bench.count(pa.array(range(turn * 1_000, turn * 1_000 + 1_000)))
        bench.wall.ms += 50
    assert bench.state.live_keys <= 4_000
    assert bench.state.memory_bytes < 1_000_000


def test_memory_of_deleted_keys_is_taken_back() -> None:
    bench = Bench(value_type=pa.string())
    for turn in range(30):
        keys = pa.array([f"key-{turn}-{n}" for n in range(5_000)])
        bench.put(keys, ["v" * 50] * 5_000)
        with bench.journal.item():
            bench.state.delete(bench.state.keys(bench.batch(keys.slice(1))))
    assert bench.state.live_keys == 30
    assert bench.state.memory_bytes < 6_000_000
    assert bench.get(pa.array(["key-7-0", "key-7-1"])) == ["v" * 50, "absent"]
