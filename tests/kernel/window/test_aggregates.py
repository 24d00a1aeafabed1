"""Aggregates of windows: their types, their bounds, their errors (N3, N4, S8, S10)."""

import math
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.plan import AggregatePlan
from arkflow_kernel.window.aggregates import PANES, Aggregates
from tests.kernel.window.aggregated import (
    BY,
    FUNCTIONS,
    UNSUMMED,
    aggregates,
    grouped,
    merged,
    of_batches,
    of_plans,
    only,
    raw,
    results,
)

ARKFLOW = tuple(AggregatePlan(name, "v", name) for name in ("count", "sum", "min", "max"))

TYPES: list[tuple[Any, pa.DataType, pa.DataType, pa.DataType]] = [
    (pa.array([1, 2], pa.int8()), pa.int64(), pa.float64(), pa.int64()),
    (pa.array([1, 2], pa.uint32()), pa.int64(), pa.float64(), pa.int64()),
    (pa.array([1, 2], pa.int64()), pa.int64(), pa.float64(), pa.int64()),
    (pa.array([1, 2], pa.uint64()), pa.uint64(), pa.float64(), pa.uint64()),
    (pa.array([1, 2], pa.float16()), pa.float32(), pa.float64(), pa.float32()),
    (pa.array([1, 2], pa.float32()), pa.float32(), pa.float64(), pa.float32()),
    (pa.array([1, 2], pa.float64()), pa.float64(), pa.float64(), pa.float64()),
    (
        pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
        pa.decimal128(38, 2),
        pa.decimal128(38, 6),
        pa.decimal128(10, 2),
    ),
    (
        pa.array([Decimal("1.25")], pa.decimal64(10, 2)),
        pa.decimal128(38, 2),
        pa.decimal128(38, 6),
        pa.decimal128(10, 2),
    ),
    (
        pa.array([Decimal("1.25")], pa.decimal128(38, 2)),
        pa.decimal128(38, 2),
        pa.decimal128(38, 2),
        pa.decimal128(38, 2),
    ),
    (
        pa.array([Decimal("1.25")], pa.decimal256(50, 2)),
        pa.decimal256(76, 2),
        pa.float64(),
        pa.decimal256(50, 2),
    ),
    (pa.nulls(2), pa.int64(), pa.float64(), pa.null()),
]
"""Values, then the types of their sum, their average, and their least and first value."""


@pytest.mark.parametrize(("values", "total", "mean", "one"), TYPES, ids=lambda v: str(v)[:24])
def test_numbers_leave_in_the_documented_types(
    values: Any, total: pa.DataType, mean: pa.DataType, one: pa.DataType
) -> None:
    table = of_batches(aggregates(*FUNCTIONS), values)
    types = {name: table.schema.field(name).type for name in FUNCTIONS}
    assert types == {
        "count": pa.uint64(),
        "sum": total,
        "min": one,
        "max": one,
        "avg": mean,
        "stddev": pa.float64(),
        "first": one,
        "last": one,
        "count_distinct": pa.uint64(),
    }


@pytest.mark.parametrize(
    ("kind", "leaves"),
    [
        (pa.string(), pa.string()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(1), pa.binary(1)),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "Europe/Berlin")),
        (pa.timestamp("s"), pa.timestamp("s")),
        (pa.date32(), pa.date32()),
        (pa.time64("ns"), pa.time64("ns")),
        (pa.duration("ms"), pa.duration("ms")),
        (pa.bool_(), pa.bool_()),
    ],
    ids=str,
)
def test_texts_times_and_booleans_keep_their_type(kind: pa.DataType, leaves: pa.DataType) -> None:
    plain = _two(leaves)
    of = aggregates(*UNSUMMED)
    table = of_batches(of, _as(plain, kind), _as(plain.take(pa.array([1, 0])), kind))
    for name, place in (("min", 0), ("max", 1), ("first", 0), ("last", 1)):
        assert table.schema.field(name).type == leaves
        # Both batches have times 0 and 1: ties go to the least first, and to the greatest last.
        assert table.column(name)[0] == plain[place]
    assert only(table, "count_distinct") == 2


def _two(kind: pa.DataType) -> Any:
    """Two values of a type, the lesser one first."""
    if pa.types.is_boolean(kind):
        return pa.array([False, True])
    if pa.types.is_temporal(kind):
        return pa.array([5, 6], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    texts: Any = ["a", "b"] if pa.types.is_string(kind) else [b"a", b"b"]
    return pa.array(texts, kind)


def _as(values: Any, kind: pa.DataType) -> Any:
    return values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)


def test_a_sum_beyond_int64_names_the_window_and_the_key_or_is_null() -> None:
    values = pa.array([2**62] * 3)
    of = aggregates("sum", "max")
    tables = merged(of, [grouped(of, raw(of, values))])
    with pytest.raises(ProcessingError, match=r"operator 'w'.*sum of 'v'.* is 13835058055282163712"
                       r".*int64.*`overflow: null`.*at window \[0, 10\), key '7'"):  # fmt: skip
        of.final(tables, BY, lambda row: f"window [{10 * row}, {10 * row + 10}), key '7'")
    nulls = aggregates("sum", "max", null_on_overflow=True)
    table = of_batches(nulls, values)
    assert only(table, "sum") is None
    assert only(table, "max") == 2**62
    assert table.schema.field("sum").type == pa.int64()


def test_a_sum_that_leaves_int64_and_comes_back_is_exact() -> None:
    of = aggregates("sum")
    high, low = [2**63 - 1] * 3, [-(2**63)] * 3
    parts = [grouped(of, raw(of, pa.array(values))) for values in (high, low, [5])]
    kinds = [part[PANES].schema.field("p0").type for part in parts]
    assert kinds == [pa.decimal128(38, 0), pa.decimal128(38, 0), pa.int64()]
    assert only(results(of, merged(of, parts)), "sum") == 2
    assert only(of_batches(of, pa.array(high), pa.array(low)), "sum") == -3


def test_unsigned_integers_keep_their_range_and_beside_signed_ones_are_decimals() -> None:
    of = aggregates("sum", "min", "max")
    large = pa.array([2**64 - 1, 0], pa.uint64())
    assert only(of_batches(of, large), "sum") == 2**64 - 1
    table = of_batches(of, large, pa.array([-1]))
    assert table.schema.field("max").type == pa.decimal128(20, 0)
    assert only(table, "sum") == Decimal(2**64 - 2)
    assert [only(table, name) for name in ("min", "max")] == [Decimal(-1), Decimal(2**64 - 1)]


def test_a_sum_of_float32_is_made_in_double_precision() -> None:
    values = pa.array([2.0**24, 1.0, 1.0], pa.float32())
    assert only(of_batches(aggregates("sum"), values), "sum") == 2**24 + 2
    many = pa.array([3e38, 3e38], pa.float32())
    assert only(of_batches(aggregates("sum"), many), "sum") == math.inf


def test_sums_and_means_of_decimals_are_exact() -> None:
    nines = Decimal("9" * 36 + ".99")
    many = pa.array([nines] * 3, pa.decimal128(38, 2))
    assert only(of_batches(aggregates("avg"), many, pa.nulls(1)), "avg") == nines
    assert (
        only(of_batches(aggregates("sum"), pa.array([nines], pa.decimal128(38, 2))), "sum") == nines
    )
    thirds = pa.array([Decimal("0.10"), Decimal("0.10"), Decimal("0.00")], pa.decimal128(4, 2))
    assert only(of_batches(aggregates("avg"), thirds), "avg") == Decimal("0.066667")
    below = pa.array([Decimal("-0.01"), Decimal("0")] * 4 + [Decimal(0)] * 24, pa.decimal128(4, 2))
    assert only(of_batches(aggregates("avg"), below), "avg") == Decimal("-0.001250")


def test_a_decimal_sum_beyond_38_digits_is_an_error_not_a_wrap() -> None:
    nines = Decimal("9" * 38)
    values = pa.array([nines, nines], pa.decimal128(38, 0))
    with pytest.raises(ProcessingError, match="does not fit decimal128"):
        of_batches(aggregates("sum"), values)
    assert only(of_batches(aggregates("sum", null_on_overflow=True), values), "sum") is None


def test_the_deviation_of_large_close_values_is_that_of_their_distances() -> None:
    of = aggregates("stddev")
    assert only(of_batches(of, pa.array([2**62, 2**62 + 2])), "stddev") == math.sqrt(2)
    random = np.random.default_rng(1)
    values = 1e9 + random.normal(size=20_000) * 1e-3
    exact = float(np.std(values - 1e9, ddof=1))
    batches = [pa.array(part) for part in np.split(values, 20)]
    assert only(of_batches(of, *batches), "stddev") == pytest.approx(exact, rel=1e-9)


def test_one_value_has_no_deviation() -> None:
    of = aggregates("stddev")
    assert only(of_batches(of, pa.array([5, None])), "stddev") is None
    assert only(of_batches(of, pa.array([5]), pa.array([5])), "stddev") == 0


def test_first_and_last_are_by_event_time_and_then_by_value() -> None:
    of = aggregates("first", "last")
    values = pa.array([3, 1, 2, None, 9, 7])
    table = raw(of, values, times=[5, 5, 5, 0, 8, 8])
    final = results(of, merged(of, [grouped(of, table.slice(at, 1)) for at in range(6)]))
    assert [only(final, name) for name in ("first", "last")] == [1, 9]
    assert of.uses_time
    assert not aggregates("min").uses_time


def test_count_without_a_field_counts_rows_and_with_one_its_values() -> None:
    plans = (AggregatePlan("count", None, "rows"), AggregatePlan("count", "v", "values"))
    table = of_batches(of_plans(plans), pa.array([1, None, None]), pa.nulls(1))
    assert [only(table, name) for name in ("rows", "values")] == [4, 1]


def test_arkflows_own_aggregates_leave_out_windows_without_a_value() -> None:
    own, listed = of_plans(ARKFLOW), of_plans(ARKFLOW[:3])
    for of, rows in ((own, {1}), (listed, {1, 2})):
        table = raw(of, pa.array([1, None]), keys=[1, 2])
        final = results(of, grouped(of, table))
        assert set(final.column("key0").to_pylist()) == rows
    nothing = of_batches(own, pa.nulls(3))
    assert nothing.num_rows == 0
    assert nothing.schema.field("min").type == pa.int64()


def test_aggregates_of_only_nulls_are_null() -> None:
    table = of_batches(aggregates(*FUNCTIONS), pa.nulls(2), pa.array([None], pa.float64()))
    expected = dict.fromkeys(FUNCTIONS, None) | {"count": 0, "count_distinct": 0}
    assert {name: only(table, name) for name in FUNCTIONS} == expected


def test_partial_columns_have_readable_names_each_once() -> None:
    of = aggregates("count", "sum", "avg", "first", "count_distinct", field="price")
    panes, distinct = of.families
    assert panes.columns == ("p0", "p1", "p2", "p3")
    assert list(panes.names.values()) == [
        "price_count",
        "price_sum",
        "price_first_at",
        "price_first",
    ]
    assert (distinct.name, distinct.extra) == ("distinct-count_distinct", ("v1", "v1_tag"))
    assert list(distinct.names.values()) == ["price_value", "price_value_tag"]
    fields = [("count", "a"), ("sum", "a_count"), ("first", "a"), ("sum", "a_first"), ("sum", "a")]
    alike = of_plans([AggregatePlan(*each, f"x{i}") for i, each in enumerate(fields)])
    names = list(alike.families[0].names.values())
    assert len(set(names)) == len(names)


def test_an_aggregate_may_be_called_like_a_group_column() -> None:
    of = of_plans([AggregatePlan("sum", "v", "pane"), AggregatePlan("count", "v", "key0")])
    table = of_batches(of, pa.array([1, 2]))
    assert [column.to_pylist() for column in table.columns] == [[0], [0], [3], [2]]


REFUSED: list[tuple[str, Any, str]] = [
    ("sum", pa.array(["a"]), r"field 'v' .*sum takes numbers, and it is string; cast it"),
    ("avg", pa.array([True]), r"avg takes numbers, and it is bool; cast it"),
    ("stddev", pa.array([1], pa.timestamp("s")), r"stddev takes numbers.*timestamp\[s\]"),
    ("sum", pa.array([1], pa.duration("s")), r"sum takes numbers.*duration\[s\]"),
    ("min", pa.array([[1]]), r"of type list<item: int64>; use numbers, text, binary or times"),
    ("count_distinct", pa.array([{"a": 1}]), r"count_distinct cannot take struct<a: int64>"),
]


@pytest.mark.parametrize(("function", "values", "message"), REFUSED)
def test_a_type_that_an_aggregate_cannot_take_is_named(
    function: str, values: Any, message: str
) -> None:
    of = aggregates(function)
    with pytest.raises(ProcessingError, match=f"operator 'w'.*{message}"):
        raw(of, values)
    assert of.types == (pa.null(),)


@pytest.mark.parametrize("function", ["min", "first", "count_distinct"])
def test_a_type_that_cannot_follow_the_one_before_is_refused_and_the_ledger_stays(
    function: str,
) -> None:
    of = aggregates(function)
    raw(of, pa.array([1]))
    before = of.types
    with pytest.raises(ProcessingError, match=r"'v'.*string.*cast it"):
        raw(of, pa.array(["a"]))
    assert of.types == before
    raw(of, pa.array([1.5]))
    assert of.types == (pa.float64(),)
    of.types = before
    assert of.types == (pa.int64(),)


def test_a_missing_field_is_named_with_the_columns_that_are_there() -> None:
    of = aggregates("sum", field="price")
    with pytest.raises(ProcessingError, match=r"'price' .* not in .*'a', 'Price'.*`types`"):
        of.raw(pa.record_batch({"a": [1], "Price": [2]}))
    twice: Any = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["price"] * 2)
    with pytest.raises(ProcessingError, match="'price' of its aggregates is 2 times"):
        of.raw(twice)


def test_nothing_is_kept_of_a_batch_if_one_of_its_fields_is_refused() -> None:
    plans = (AggregatePlan("sum", "a", "a"), AggregatePlan("sum", "b", "b"))
    of = of_plans(plans)
    with pytest.raises(ProcessingError, match="'b'"):
        of.raw(pa.record_batch({"a": [1], "b": ["x"]}))
    assert of.types == (pa.null(), pa.null())


def test_aggregates_of_many_rows_are_those_of_a_database() -> None:
    random = np.random.default_rng(7)
    count = 20_000
    nulls = random.random(count) < 0.1
    rows = pa.table(
        {
            "k": random.integers(0, 50, count),
            "ts": random.permutation(count),
            "i": pa.array(random.integers(-(2**40), 2**40, count), mask=nulls),
            "f": pa.array(random.normal(size=count) * 1e3, mask=nulls),
            "d": pa.array(random.integers(0, 10**6, count), mask=nulls).cast(pa.decimal128(21, 2)),
            "t": pa.array(random.integers(0, 99, count).astype(str), mask=nulls),
        }
    )
    plans = [
        AggregatePlan(function, field, f"{function}_{field}")
        for field in "ifdt"
        for function in (FUNCTIONS if field != "t" else UNSUMMED)
    ]
    of = of_plans(plans)
    parts = [
        grouped(of, _raw_of(of, batch), ["key0"]) for batch in rows.to_batches(max_chunksize=3_000)
    ]
    found = results(of, merged(of, parts, ["key0"]), ["key0"]).sort_by("key0")
    calls = {
        "first": "arg_min({0}, ts)",
        "last": "arg_max({0}, ts)",
        "count_distinct": "count(distinct {0})",
    }
    wanted = ", ".join(
        calls.get(plan.function, plan.function + "({0})").format(plan.field) for plan in plans
    )
    query = f"select k, {wanted} from rows group by k order by k"
    with duckdb.connect() as database:
        database.register("rows", rows)
        expected = database.sql(query).fetchall()
    for row, other in zip(zip(*found.to_pydict().values(), strict=True), expected, strict=True):
        for plan, mine, theirs in zip(plans, row[1:], other[1:], strict=True):
            if plan.function in ("avg", "stddev") or isinstance(mine, float):
                assert float(mine) == pytest.approx(float(theirs), rel=1e-9, abs=1e-9), plan
            else:
                assert mine == theirs, plan


def _raw_of(of: Aggregates, batch: pa.RecordBatch) -> pa.Table:
    columns = {"key0": batch.column("k"), "ts": batch.column("ts")}
    return pa.table({**columns, **of.raw(batch)})
