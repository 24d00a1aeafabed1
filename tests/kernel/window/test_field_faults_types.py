"""Faults that other engines had in the field with data types, keys and schemas, in windows.

Each test is one of them. Those of the list that are not here:
- a JSON integer of 2^63 and more: the JSON codec decides (tests/unit/json);
- falsy keys, and NaN as a key: `KeyLedger` decides (test_keys.py); here they are values;
- names of columns with capitals or umlauts in SQL: the sql processor (tests/unit/processors);
- column indices of a log that was written before a column was added: batches name their columns,
  and aggregates find theirs in each by name (the last test).
"""

import itertools
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.window.aggregates import PANES
from tests.kernel.window.aggregated import (
    FUNCTIONS,
    UNSUMMED,
    aggregates,
    grouped,
    merged,
    of_batches,
    only,
    raw,
    results,
)

NANS = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (
    0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0000, 0x7FF8_0000_0000_BEEF, 0x7FF0_0000_0000_0001,
)]  # fmt: skip
"""A NaN, a negative one, one with a payload, and a signalling one."""


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1])
def test_large_integers_do_not_pass_through_a_float(value: int) -> None:
    table = of_batches(aggregates(*FUNCTIONS), pa.array([value]), pa.nulls(2))
    for name in ("sum", "min", "max", "first", "last"):
        assert only(table, name) == value
    neighbours = pa.array([2**53, 2**53 + 1])
    assert only(of_batches(aggregates("count_distinct"), neighbours), "count_distinct") == 2


def test_nans_of_any_bits_are_one_value() -> None:
    table = of_batches(aggregates("count", "count_distinct"), *(pa.array([nan]) for nan in NANS))
    assert [only(table, name) for name in ("count", "count_distinct")] == [4, 1]


@pytest.mark.parametrize("order", [*itertools.permutations([0, 1, 2])])
@pytest.mark.parametrize("nan", NANS)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_minimum_and_maximum_with_nan_do_not_depend_on_the_order(
    kind: Any, nan: float, order: tuple[int, ...]
) -> None:
    values = [nan, 2.0, -math.inf]
    shuffled = [values[i] for i in order]
    together = of_batches(aggregates("min", "max"), pa.array(shuffled, kind))
    apart = of_batches(aggregates("min", "max"), *(pa.array([v], kind) for v in shuffled))
    for table in (together, apart):
        assert only(table, "min") == -math.inf
        assert math.isnan(only(table, "max"))


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_both_signs_are_one_value_that_leaves_without_a_sign(
    order: tuple[float, ...],
) -> None:
    for batches in ([order], [[order[0]], [order[1]]]):
        table = of_batches(aggregates(*FUNCTIONS), *(pa.array(batch) for batch in batches))
        assert only(table, "count_distinct") == 1
        for name in ("sum", "min", "max", "first", "last"):
            assert math.copysign(1, only(table, name)) == 1


@pytest.mark.parametrize(
    ("values", "least"), [([0, 1], 0), (["", "a"], ""), ([b"", b"a"], b""), ([False, True], False)]
)
def test_falsy_values_are_values_and_null_is_none(values: list[Any], least: Any) -> None:
    table = of_batches(aggregates(*UNSUMMED), pa.array([None, *values, None]))
    assert [only(table, name) for name in ("count", "count_distinct")] == [2, 2]
    assert [only(table, name) for name in ("min", "first")] == [least, least]


def test_a_type_inferred_from_the_first_batch_widens_with_later_ones() -> None:
    of = aggregates("sum", "min", "max", "count_distinct")
    table = of_batches(of, pa.nulls(1), pa.array([1, 2]), pa.array([1.5, 2.0]))
    assert [only(table, name) for name in ("sum", "min", "max", "count_distinct")] == [
        6.5, 1.0, 2.0, 3,
    ]  # fmt: skip
    with pytest.raises(ProcessingError, match=r"'v'.*cast it"):
        raw(of, pa.array(["A"]))
    assert only(of_batches(of, pa.array([3])), "sum") == 3


def test_a_batch_without_rows_keeps_its_schema() -> None:
    of = aggregates(*FUNCTIONS)
    empty = grouped(of, raw(of, pa.array([], pa.float32())))
    table = results(of, merged(of, [empty, empty]))
    assert table.num_rows == 0
    assert table.schema.field("sum").type == pa.float32()
    some = grouped(of, raw(of, pa.array([1.5], pa.float32())))
    assert empty[PANES].schema.equals(some[PANES].schema)
    assert only(results(of, merged(of, [empty, some])), "sum") == 1.5


@pytest.mark.parametrize("count", [1_024, 1_025, 65_537, 200_000])
def test_no_row_of_a_large_batch_is_lost(count: int) -> None:
    of = aggregates("count", "sum", "stddev", "last", "count_distinct")
    values = np.arange(count)
    tables = grouped(of, raw(of, pa.array(values), keys=list(values % 1_000)))
    assert int(np.asarray(tables[PANES].column("p0")).sum()) == count
    whole = results(of, merged(of, [tables], ["pane"]), ["pane"])
    assert only(whole, "sum") == count * (count - 1) // 2
    assert only(whole, "last") == count - 1
    assert only(whole, "count_distinct") == count
    assert only(whole, "stddev") == pytest.approx(float(np.std(values, ddof=1)), rel=1e-9)


def test_columns_are_found_by_name_in_each_batch() -> None:
    of = aggregates("sum")
    first = of.raw(pa.record_batch({"v": [1], "w": [10]}))
    moved = of.raw(pa.record_batch({"new": [100], "w": [10], "v": [2]}))
    assert [first["v0"].to_pylist(), moved["v0"].to_pylist()] == [[1], [2]]
