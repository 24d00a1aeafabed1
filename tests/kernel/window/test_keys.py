"""Key columns of windows: what is one key, what comes back, and the type ledger (S10)."""

import datetime
import decimal
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.key_groups import key_hashes
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.testing.state_bench import StateBench
from arkflow_kernel.window.keys import KeyLedger

LARGE = 2**53 + 1


def _ledger(*fields: str) -> KeyLedger:
    return KeyLedger(fields or ("k",), OperatorId("op"))


def _table(ledger: KeyLedger, *columns: AnyArray) -> pa.Table:
    batch = pa.RecordBatch.from_arrays([*columns], names=list(ledger.fields))
    return pa.table(ledger.columns(batch))


def _grouped(ledger: KeyLedger, tables: list[pa.Table]) -> pa.Table:
    whole = pa.concat_tables([ledger.form.aligned(table) for table in tables])
    return whole.group_by(list(ledger.names)).aggregate([([], "count_all")])


def _sorted(values: Any) -> list[Any]:
    return sorted(values.to_pylist())


def _one(value: Any) -> Any:
    """What stands for all values that are one key."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if value.is_integer() and abs(value) <= 2**53:
            return int(value)
    return value


_INTEGERS = st.sampled_from([0, 1, -1, 7, 2**53, LARGE, -(2**63), 2**63 - 1])
_UNSIGNED = st.sampled_from([0, 1, 7, 2**53, LARGE, 2**63, 2**64 - 1])
_FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 7.0, 0.5, 1e300, 2.0**53, 2.0**60]) | st.just(
    math.nan
)
_COLUMNS = st.one_of(
    st.lists(st.none() | _INTEGERS, max_size=8).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | _UNSIGNED, max_size=8).map(lambda v: pa.array(v, pa.uint64())),
    st.lists(st.none() | _FLOATS, max_size=8).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.integers(0, 9), max_size=8).map(lambda v: pa.array(v, pa.int8())),
    st.integers(0, 3).map(pa.nulls),
)


@given(st.lists(_COLUMNS, min_size=1, max_size=5))
def test_numbers_of_all_types_that_are_equal_are_one_key(columns: list[AnyArray]) -> None:
    """Whatever came first, and however the ledger widened in between."""
    ledger = _ledger()
    tables = [_table(ledger, column) for column in columns]
    grouped = _grouped(ledger, tables)
    expected = Counter(_one(value) for column in columns for value in column.to_pylist())
    assert _sorted(grouped["count_all"]) == sorted(expected.values())
    assert grouped.num_rows == len(expected)


@given(st.lists(_COLUMNS, min_size=1, max_size=5))
def test_a_key_is_of_the_same_group_in_a_window_as_on_an_edge(columns: list[AnyArray]) -> None:
    """G3: hashes of the canonical columns are those of the batch's own."""
    ledger = _ledger()
    tables = [_table(ledger, column) for column in columns]
    for column, table in zip(columns, tables, strict=True):
        hashes = ledger.form.hashes(ledger.form.aligned(table))
        assert hashes.tolist() == key_hashes([column]).tolist()


_MANY: list[tuple[AnyArray, pa.DataType | None]] = [
    (pa.array(["a", None, "", "a"]), pa.string()),
    (pa.array(["a", None, "", "a"], pa.large_string()), pa.string()),
    (pa.array(["a", None, "", "a"], pa.string_view()), pa.string()),
    (pa.array(["a", None, "", "a"]).dictionary_encode(), pa.string()),
    (pa.array([b"a", None, b"", b"a"], pa.large_binary()), pa.binary()),
    (pa.array([b"ab", None, b"cd", b"ab"], pa.binary(2)), pa.binary(2)),
    (pa.array([1, None, 2, 1], pa.int16()), pa.int64()),
    (pa.array([1, None, 2, 1], pa.uint32()), pa.int64()),
    (pa.array([1, None, 2**64 - 1, 1], pa.uint64()), pa.uint64()),
    (pa.array([0.5, None, 2.0, 0.5], pa.float32()), pa.float64()),
    (pa.array([True, None, False, True]), pa.bool_()),
    (pa.array([1, None, 2, 1], pa.timestamp("us", "Europe/Berlin")), None),
    (pa.array([1, None, 2, 1], pa.date32()), pa.date32()),
    (pa.array([1, None, 2, 1], pa.time32("ms")), pa.time32("ms")),
    (pa.array([1, None, 2, 1], pa.duration("s")), pa.duration("s")),
    (pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2), decimal.Decimal("1.5")]), None),
]


@pytest.mark.parametrize(("column", "kind"), _MANY, ids=lambda each: str(getattr(each, "type", "")))
def test_keys_come_back_in_the_ledgers_type(column: AnyArray, kind: pa.DataType | None) -> None:
    """S8, S10; and their hash is that of the edge."""
    ledger = _ledger()
    table = _table(ledger, column)
    assert ledger.types == (kind or column.type,)
    (restored,) = ledger.restored(table)
    assert restored.type == ledger.types[0]
    assert list(map(str, restored)) == list(map(str, column))
    assert ledger.form.hashes(table).tolist() == key_hashes([column]).tolist()
    grouped = _grouped(ledger, [table])
    assert _sorted(grouped["count_all"]) == [1, 1, 2]
    (values,) = ledger.restored(grouped)
    assert {str(value) for value in values} == {str(value) for value in restored}


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["a", None, ""]), ["a", None, ""]),
        (pa.array([1, None, -(2**63)]), ["1", None, str(-(2**63))]),
        (pa.array([1, None, 2**64 - 1], pa.uint64()), ["1", None, str(2**64 - 1)]),
        (pa.array([2.0, None, -0.0, 0.5, 2.0**53]), ["2", None, "0", "0.5", str(2**53)]),
        (pa.array([True, None, False]), ["true", None, "false"]),
        (pa.array([b"\x00\xff", None, b""]), ["00ff", None, ""]),
        (pa.array([b"x", b"\x00\xff"])[1:], ["00ff"]),
        (pa.array([datetime.date(2024, 2, 29)]), ["2024-02-29"]),
        (pa.array([decimal.Decimal("1.50")]), ["1.50"]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)
def test_keys_are_printed_as_they_are_read(column: AnyArray, texts: list[str | None]) -> None:
    ledger = _ledger()
    found = ledger.texts(_table(ledger, column))
    assert found.type == pa.string()
    assert found.to_pylist() == texts


def test_several_fields_are_printed_with_a_comma_and_none_as_all() -> None:
    ledger = _ledger("a", "b")
    table = _table(ledger, pa.array(["x", None]), pa.array([1, 2]))
    assert ledger.names == ("key0", "key1")
    assert ledger.texts(table).to_pylist() == ["x, 1", "null, 2"]
    assert ledger.form.hashes(table).tolist() == (
        key_hashes([pa.array(["x", None]), pa.array([1, 2])]).tolist()
    )
    everything = KeyLedger((), OperatorId("op"))
    rows = pa.table({"pane": [1, 2]})
    assert everything.columns(pa.record_batch({"v": [1, 2]})) == {}
    assert everything.texts(rows).to_pylist() == ["__all__", "__all__"]
    assert everything.restored(rows) == []
    assert everything.form.hashes(rows).tolist() == [0, 0]


def test_texts_and_integers_are_taken_as_they_come() -> None:
    """Without a copy: it is the hot path."""
    ledger = _ledger("a", "b")
    texts, numbers = pa.array(["x", "y"]), pa.array([1, 2])
    table = _table(ledger, texts, numbers)
    arrays: list[AnyArray] = [texts, numbers]
    for number, column in enumerate(arrays):
        made: Any = table.column(f"key{number}").chunk(0)
        found = made.buffers()
        assert [b and b.address for b in found] == [b and b.address for b in column.buffers()]


def test_an_integer_beyond_float_is_a_key_of_its_own_and_comes_as_the_nearest() -> None:
    ledger = _ledger()
    tables = [_table(ledger, pa.array([LARGE, 2**53])), _table(ledger, pa.array([0.5, 2.0**53]))]
    grouped = _grouped(ledger, tables)
    assert _sorted(ledger.texts(grouped)) == ["0.5", str(2**53), str(LARGE)]
    (values,) = ledger.restored(grouped)
    assert values.type == pa.float64()
    assert _sorted(values) == [0.5, 2.0**53, 2.0**53]


def test_types_that_cannot_follow_each_other_are_told_and_leave_the_ledger() -> None:
    ledger = _ledger()
    _table(ledger, pa.array(["a"]))
    with pytest.raises(ProcessingError, match=r"'k'.*type string and are now int64.*cast the key"):
        _table(ledger, pa.array([1]))
    assert ledger.types == (pa.string(),)
    with pytest.raises(ProcessingError, match=r"key field 'k': .*list.* cannot be a key"):
        _table(ledger, pa.array([[1]]))
    with pytest.raises(ProcessingError, match=r"'k' is missing from the batch.* are v"):
        ledger.columns(pa.record_batch({"v": [1]}))


def _fail_after(bench: StateBench, ledger: KeyLedger, column: AnyArray) -> None:
    with bench.journal.item():
        _table(ledger, column)
        assert ledger.types == (pa.float64(),)
        raise ZeroDivisionError


def test_a_widening_goes_with_the_item_that_failed() -> None:
    bench = StateBench()
    ledger = _ledger()
    ledger.undone_by(bench.journal, bench.state)
    with bench.journal.item():
        _table(ledger, pa.array([1]))
    with pytest.raises(ZeroDivisionError):
        _fail_after(bench, ledger, pa.array([0.5]))
    assert ledger.types == (pa.int64(),)
    assert ledger.names == ("key0",)


def test_a_restored_ledger_widens_by_all_that_is_known() -> None:
    ledger = _ledger("a", "b")
    ledger.learn((pa.int64(), pa.null()))
    ledger.learn((pa.float64(), pa.string()))
    assert ledger.types == (pa.float64(), pa.string())
    table = _table(ledger, pa.array([1]), pa.array(["x"]))
    assert table.column_names == ["key0", "key0_tag", "key1"]
    assert np.asarray(table["key0"]).tolist() == [1]
