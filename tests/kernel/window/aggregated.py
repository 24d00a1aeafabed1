"""Aggregates without a window operator: batches in, groups, merges, final values out."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import AggregatePlan, WindowKind, WindowPlan
from arkflow_kernel.window.aggregates import Aggregates

FUNCTIONS = ("count", "sum", "min", "max", "avg", "stddev", "first", "last", "count_distinct")
UNSUMMED = ("count", "min", "max", "first", "last", "count_distinct")
BY = ["pane", "key0"]

Tables = dict[str, pa.Table]


def aggregates(*functions: str, field: str = "v", null_on_overflow: bool = False) -> Aggregates:
    """Aggregates of one field, each called like its function."""
    plans = tuple(AggregatePlan(name, field, name) for name in functions)
    return of_plans(plans, null_on_overflow=null_on_overflow)


def of_plans(plans: Seq[AggregatePlan], *, null_on_overflow: bool = False) -> Aggregates:
    """Aggregates of a window with these."""
    plan = WindowPlan(
        WindowKind.TUMBLING,
        "ts",
        size_ms=10,
        aggregates=tuple(plans),
        plain=False,
        null_on_overflow=null_on_overflow,
    )
    return Aggregates(plan, OperatorId("w"))


def raw(
    of: Aggregates,
    values: Any,
    *,
    keys: Seq[int | None] | None = None,
    times: Seq[int] | None = None,
    panes: Seq[int] | None = None,
    field: str = "v",
) -> pa.Table:
    """A raw table of one batch with a column `field`; of one key and pane if not given."""
    count = len(values)
    zeros = [0] * count
    return pa.table(
        {
            "pane": pa.array(zeros if panes is None else panes, pa.int64()),
            "key0": pa.array(zeros if keys is None else keys, pa.int64()),
            "ts": pa.array(np.arange(count) if times is None else times, pa.int64()),
            **of.raw(pa.record_batch({field: values})),
        }
    )


def grouped(of: Aggregates, table: pa.Table, by: Seq[str] = BY) -> Tables:
    """The partials of a raw table, by family."""
    return {family.name: family.group(table, by) for family in of.families}


def merged(of: Aggregates, parts: Seq[Tables], by: Seq[str] = BY) -> Tables:
    """The partials of several, by family."""
    return {
        family.name: family.combine(family.concat([part[family.name] for part in parts]), by)
        for family in of.families
    }


def results(of: Aggregates, tables: Mapping[str, pa.Table], by: Seq[str] = BY) -> pa.Table:
    """Final values of what was merged by `by`."""
    made = of.final(tables, by)
    return made.rename_columns([name.removeprefix("=") for name in made.column_names])


def of_batches(of: Aggregates, *batches: Any) -> pa.Table:
    """Final values of batches of one pane and key; each is a column of values."""
    return results(of, merged(of, [grouped(of, raw(of, values)) for values in batches]))


def only(table: pa.Table, name: str) -> Any:
    """The only value of a column."""
    (value,) = table.column(name).to_pylist()
    return value
