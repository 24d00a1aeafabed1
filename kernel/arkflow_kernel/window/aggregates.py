"""What a window keeps of its rows instead of the rows: partial aggregates by family (N3, W9).

A family is a set of partial columns that are grouped together. The main one, `panes`, has all
that is one value a key; each count_distinct has one of its own, whose rows are the values. Partial
tables of any types merge in any order: a column of a table widens to that of another (S10).

    raw table       columns to group by, `v0`, `v1`, ... (values), `ts` if `uses_time`
    partial table   columns to group by, the family's `extra`, then its `columns`
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import AggregatePlan
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.window.aggregate_columns import DISTINCT, ValueColumns
from arkflow_kernel.window.aggregate_families import (
    DistinctFamily,
    Family,
    distinct_counts,
)
from arkflow_kernel.window.aggregate_results import COUNT_TYPE, Fitting, Where
from arkflow_kernel.window.aggregate_types import as_type, read_type
from arkflow_kernel.window.partials_edges import Edge
from arkflow_kernel.window.partials_moments import Moments
from arkflow_kernel.window.partials_numbers import Extreme, Partial, RowCount, Sum, ValueCount

PANES = "panes"
"""Name of the main family."""

PLAIN_AGGREGATES = ("count", "sum", "min", "max")
"""The functions of a window without `aggregates:`; each is the name of its column, too."""


def result_column(name: str) -> str:
    """The column of an aggregate in final tables: a user may call it like a column of keys."""
    return f"={name}"


class AggregatesPlan(Protocol):
    """What is asked of the plan of an operator that aggregates."""

    @property
    def aggregates(self) -> tuple[AggregatePlan, ...]:
        """What leaves for each key."""
        ...

    @property
    def null_on_overflow(self) -> bool:
        """A sum that leaves its type is null, no error."""
        ...


class Aggregates:
    """The aggregates of an operator, and the type ledger of their fields (S10).

    The ledger widens with the batches that `raw` sees. Who undoes a batch sets `types` back to
    what it was, and who restores a state sets it to what it was at the cut.
    """

    def __init__(self, plan: AggregatesPlan, operator: OperatorId) -> None:
        self._aggregates = plan.aggregates
        self._null_on_overflow = plan.null_on_overflow
        self._operator = operator
        self._values = ValueColumns(plan.aggregates, operator)
        self._arkflows = _is_arkflows(plan.aggregates)
        self._main = Family(PANES, self._needed())
        self._distinct = self._distinct_families()
        self.families: tuple[Family, ...] = (self._main, *self._distinct.values())

    def _needed(self) -> list[Partial]:
        """The partials of all aggregates, each once."""
        found = (each for plan in self._aggregates for each in self._partials(plan))
        return list(dict.fromkeys(found))

    def _distinct_families(self) -> dict[str, Family]:
        """The family of each raw column of a count_distinct, named after the first of them."""
        found: dict[str, Family] = {}
        for plan in self._aggregates:
            if plan.function == DISTINCT:
                column = self._values.of(plan)
                family = DistinctFamily(f"distinct-{plan.name}", column.name, column.field)
                found.setdefault(column.name, family)
        return found

    def _partials(self, plan: AggregatePlan) -> tuple[Partial, ...]:
        """The partials of the main family that an aggregate is made of."""
        if plan.field is None:
            return (RowCount(),)
        function, field, column = plan.function, plan.field, self._values.of(plan).name
        match function:
            case "count":
                return (ValueCount(column, field),)
            case "sum":
                return (Sum(column, field),)
            case "avg":
                return Sum(column, field), ValueCount(column, field)
            case "stddev":
                return (Moments(column, field),)
            case "first" | "last":
                return (Edge(function == "last", column, field),)
            case "min" | "max":
                return (Extreme(function, column, field),)
            case _:
                assert function == DISTINCT, function
                return ()

    @property
    def uses_time(self) -> bool:
        """Raw tables need `ts`, the event times in int64 milliseconds: for first and last."""
        return any(plan.function in ("first", "last") for plan in self._aggregates)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The ledger: the type of each raw column so far."""
        return self._values.types

    @types.setter
    def types(self, kinds: Seq[pa.DataType]) -> None:
        self._values.types = tuple(kinds)

    def raw(self, batch: pa.RecordBatch) -> dict[str, AnyArray]:
        """The raw columns of a batch, in the types of the ledger, which it widens.

        Raises `ProcessingError` for a field that is not there, or one whose type its aggregates
        cannot take or that cannot follow the type before; the ledger is then as it was.
        """
        return self._values.raw(batch)

    def final(
        self, tables: Mapping[str, pa.Table], by: Seq[str], where: Where | None = None
    ) -> pa.Table:
        """The columns `by`, then one for each aggregate, in their order, called as `result_column`
        says; see `aggregate_results`.

        `tables` has for each family what it combined by `by`. Rows are in the order of the main
        table; of ArkFlow's own aggregates over a field, those without a value are left out (N4).
        `where` names window and key of a row of that table. Raises `ProcessingError` for a value
        outside of its type.
        """
        table = tables[PANES]
        fitting = Fitting(self._operator, where or str, self._null_on_overflow)
        columns = [table.column(name) for name in by]
        for plan in self._aggregates:
            columns.append(self._result(plan, tables, by, fitting))
        names = (result_column(plan.name) for plan in self._aggregates)
        made = pa.Table.from_arrays(columns, [*by, *names])
        if self._arkflows:
            return made.filter(pc.greater(columns[len(by)], pa.scalar(0, COUNT_TYPE)))
        return made

    def _result(
        self, plan: AggregatePlan, tables: Mapping[str, pa.Table], by: Seq[str], fitting: Fitting
    ) -> Any:
        table = tables[PANES]
        if plan.function == DISTINCT:
            family = self._distinct[self._values.of(plan).name]
            return distinct_counts(table, tables[family.name], by).cast(COUNT_TYPE)
        partials = self._partials(plan)
        names = [name for each in partials for name in self._main.columns_of(each)]
        columns = [table.column(name) for name in names]
        if plan.function == "count":
            return fitting.counted(columns[0])
        kind = self._values.of(plan).kind
        match plan.function:
            case "sum":
                return fitting.summed(plan, columns[0], kind)
            case "avg":
                return fitting.averaged(columns[0], columns[1], kind)
            case "stddev":
                return fitting.deviation(columns[0], columns[-1])
        if self._arkflows and pa.types.is_null(kind):
            kind = pa.int64()
        return as_type(columns[-1], read_type(kind))


def _is_arkflows(aggregates: Seq[AggregatePlan]) -> bool:
    """Whether these are the aggregates that a window has without `aggregates:`, over a field."""
    made = tuple((plan.name, plan.function) for plan in aggregates)
    fields = {plan.field for plan in aggregates}
    return made == tuple((name, name) for name in PLAIN_AGGREGATES) and len(fields) == 1


__all__ = [
    "PANES",
    "PLAIN_AGGREGATES",
    "Aggregates",
    "AggregatesPlan",
    "Family",
    "result_column",
]
