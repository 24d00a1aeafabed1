"""Whatever the batches and the order of merging, aggregates are those of the rows (W9, N3)."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.window.aggregate_families import concatenated
from tests.kernel.window.aggregated import (
    BY,
    FUNCTIONS,
    UNSUMMED,
    aggregates,
    grouped,
    merged,
    raw,
    results,
)

pytestmark = pytest.mark.thorough

CLOSE = 1e-9
"""Relative difference up to which sums of floats, averages and deviations are equal (W9)."""

_EXACT = Context(prec=80)

Row = tuple[int, int | None, int, Any]
"""Pane, key, event time, value."""


@dataclass(frozen=True)
class Sort:
    """Values of one sort, and the types in which batches bring them."""

    types: tuple[pa.DataType, ...]
    values: st.SearchStrategy[Any]
    functions: tuple[str, ...] = FUNCTIONS
    sums: range = range(-(2**63), 2**63)
    """Integer sums that leave; others are null."""


_floats = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e6 + 1e-6, 1e6, math.nan, 3.0]) | st.floats(
    -1e9, 1e9, width=32
)


def _hundredths(number: int) -> Decimal:
    return Decimal(number).scaleb(-2, _EXACT)


SORTS = {
    "small integers": Sort(
        (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.null()), st.integers(0, 127)
    ),
    "large integers": Sort((pa.int64(), pa.null()), st.integers(-(2**63), 2**63 - 1)),
    "unsigned integers": Sort(
        (pa.uint64(), pa.null()), st.integers(0, 2**64 - 1), sums=range(2**64)
    ),
    "numbers": Sort((pa.int64(), pa.float64(), pa.float32(), pa.null()), st.integers(-1000, 1000)),
    "floats": Sort((pa.float64(), pa.null()), _floats),
    "infinite floats": Sort((pa.float64(),), _floats | st.sampled_from([math.inf, -math.inf])),
    "decimals": Sort((pa.decimal128(10, 2),), st.decimals(-9999, 9999, places=2)),
    "large decimals": Sort(
        (pa.decimal128(38, 2),),
        st.sampled_from([10**35, -(10**35), 10**35 - 1, 10**34 + 1]).map(_hundredths),
        tuple(name for name in FUNCTIONS if name != "stddev"),  # which rounds them to Float64
    ),
    "texts": Sort(
        (pa.string(), pa.large_string(), pa.string_view(), pa.null()), st.text(max_size=3), UNSUMMED
    ),
    "dictionaries": Sort(
        (pa.dictionary(pa.int32(), pa.string()),), st.sampled_from("abc"), UNSUMMED
    ),
    "binaries": Sort((pa.binary(), pa.large_binary()), st.binary(max_size=2), UNSUMMED),
    "times": Sort((pa.timestamp("us", "Europe/Berlin"),), st.integers(-9, 9), UNSUMMED),
    "durations": Sort((pa.duration("ms"),), st.integers(-9, 9), UNSUMMED),
    "booleans": Sort((pa.bool_(),), st.booleans(), UNSUMMED),
}


def _rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    row = st.tuples(
        st.sampled_from([0, 10]),
        st.sampled_from([1, 2, None]),
        st.integers(0, 3),
        st.none() | values,
    )
    return st.lists(row, max_size=8)


@pytest.mark.parametrize("sort", list(SORTS))
@given(data=st.data())
@settings(max_examples=20)
def test_batches_in_any_types_merge_in_any_order_to_the_aggregates_of_the_rows(
    sort: str, data: st.DataObject
) -> None:
    chosen = SORTS[sort]
    of = aggregates(*chosen.functions, null_on_overflow=True)
    rows: list[Row] = []
    tables: list[pa.Table] = []
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(chosen.types))
        batch = data.draw(_rows(st.nothing() if pa.types.is_null(kind) else chosen.values))
        panes, keys, times = [r[0] for r in batch], [r[1] for r in batch], [r[2] for r in batch]
        column = pa.array([row[3] for row in batch], kind)
        tables.append(raw(of, column, keys=keys, times=times, panes=panes))
        rows += zip(panes, keys, times, _seen(column), strict=True)
    together = data.draw(st.integers(0, len(tables)))
    parts = [grouped(of, table) for table in tables[together:]]
    if together:  # some batches are grouped as one
        parts.append(grouped(of, concatenated(tables[:together])))
    while len(parts) > 1:
        first, count = data.draw(st.integers(0, len(parts) - 1)), data.draw(st.integers(2, 3))
        turned = parts[first:] + parts[:first]
        parts = [merged(of, turned[:count]), *turned[count:]]
    by = data.draw(st.sampled_from([BY, ["key0"], ["pane"], []]))
    final = results(of, merged(of, parts, by), by)
    found = {tuple(row[name] for name in by): row for row in _pythonic(final)}
    expected = _by_hand(rows, by)
    assert found.keys() == expected.keys()
    for group, values in expected.items():
        size = math.fsum(abs(v) for _, v in values if isinstance(v, float))
        for name in chosen.functions:
            value = REFERENCE[name](values)
            if name == "sum" and isinstance(value, int) and value not in chosen.sums:
                value = None
            _assert_same(name, found[group][name], value, CLOSE * size)


def _seen(column: Any) -> list[Any]:
    """Values as Python has them; times as numbers."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _pythonic(table: pa.Table) -> list[dict[str, Any]]:
    columns = [_seen(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _by_hand(rows: list[Row], by: list[str]) -> dict[tuple[Any, ...], list[tuple[int, Any]]]:
    """Times and values that are not null, of each group."""
    groups: dict[tuple[Any, ...], list[tuple[int, Any]]] = defaultdict(list)
    for pane, key, time, value in rows:
        group = tuple({"pane": pane, "key0": key}[name] for name in by)
        groups[group] += [] if value is None else [(time, value)]
    return groups


# --- the reference: one aggregate of a list of times and values --------------------------------


def _order(value: Any) -> tuple[Any, ...]:
    """NaN is greater than every number; -0.0 and 0.0 are one."""
    return (1,) if isinstance(value, float) and math.isnan(value) else (0, value)


def _is_nan(values: list[Any]) -> bool:
    floats = [value for value in values if isinstance(value, float)]
    infinities = {value for value in floats if math.isinf(value)}
    return any(math.isnan(value) for value in floats) or len(infinities) == 2


def _sum(rows: list[tuple[int, Any]]) -> Any:
    values = [value for _, value in rows]
    if not values:
        return None
    if _is_nan(values):
        return math.nan
    if any(isinstance(value, float) for value in values):
        return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
    with localcontext() as context:
        context.prec = 80
        return sum(values)


def _average(rows: list[tuple[int, Any]]) -> Any:
    total = _sum(rows)
    if total is None or (isinstance(total, float) and not math.isfinite(total)):
        return total
    mean = Fraction(total) / len(rows)
    return mean if isinstance(total, Decimal) else float(mean)


def _deviation(rows: list[tuple[int, Any]]) -> float | None:
    values = [value for _, value in rows]
    if len(values) < 2:
        return None
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    return math.sqrt(sum((value - mean) ** 2 for value in exact) / (len(exact) - 1))


def _distinct(rows: list[tuple[int, Any]]) -> int:
    return len({_order(value) for _, value in rows})


REFERENCE: dict[str, Callable[[list[tuple[int, Any]]], Any]] = {
    "count": len,
    "sum": _sum,
    "min": lambda rows: min((value for _, value in rows), key=_order, default=None),
    "max": lambda rows: max((value for _, value in rows), key=_order, default=None),
    "avg": _average,
    "stddev": _deviation,
    "first": lambda rows: min(rows, key=lambda r: (r[0], _order(r[1])), default=(0, None))[1],
    "last": lambda rows: max(rows, key=lambda r: (r[0], _order(r[1])), default=(0, None))[1],
    "count_distinct": _distinct,
}


def _assert_same(name: str, found: Any, expected: Any, error: float) -> None:
    if isinstance(expected, float) and math.isnan(expected):
        assert isinstance(found, float), (name, found)
        assert math.isnan(found), (name, found)
    elif isinstance(found, float) and name in ("sum", "avg", "stddev"):
        # What floats of both signs lose when they are added up is of the size of the floats.
        error = 0.0 if name == "stddev" else error
        assert found == pytest.approx(float(expected), rel=CLOSE, abs=error), name
    elif name == "avg" and isinstance(expected, Fraction):
        scale: Any = found.as_tuple().exponent
        ulps = expected * 10**-scale
        assert abs(Fraction(found) * 10**-scale) == (2 * abs(ulps) + 1) // 2, name
        assert found == 0 or (found < 0) == (expected < 0), name
    else:
        assert found == expected, (name, found, expected)
