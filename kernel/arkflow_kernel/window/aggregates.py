"""What a window keeps of its rows instead of the rows: partial aggregates by family (N3, W9).

A family is a set of partial columns that are grouped together. The main one, `panes`, has all
that is one value a key; each count_distinct has one of its own, whose rows are the values. Partial
tables of any types merge in any order: a column of a table widens to that of another (S10).

    raw table       columns to group by, `v0`, `v1`, ... (values), `ts` if `uses_time`
    partial table   columns to group by, the family's `extra`, then its `columns`
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import AggregatePlan, WindowPlan
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.window.aggregate_groups import Finish, Grouping
from arkflow_kernel.window.aggregate_results import COUNT_TYPE, Fitting, Where
from arkflow_kernel.window.aggregate_types import (
    ValueTypeError,
    as_type,
    canonical_values,
    is_number,
    read_type,
    shown,
    value_type,
    widened,
)
from arkflow_kernel.window.partials_numbers import Extreme, Partial, RowCount, Sum, ValueCount

PANES = "panes"
"""Name of the main family."""

_ARKFLOW = ("count", "sum", "min", "max")
"""The functions of a window without `aggregates:`; each is the name of its column, too."""

_OF_NUMBERS = ("sum", "avg", "stddev")


class Family:
    """Partial columns that are grouped together. Has no state: tables go in, tables come out."""

    def __init__(self, name: str, partials: Seq[Partial]) -> None:
        self.name = name
        self._partials = tuple(partials)
        readable = [name for partial in partials for name in partial.names]
        self.columns = tuple(f"p{i}" for i in range(len(readable)))
        self._readable = dict(zip(self.columns, _distinct(readable), strict=True))

    @property
    def extra(self) -> tuple[str, ...]:
        """Columns by which it groups beside those of the caller."""
        return ()

    @property
    def names(self) -> Mapping[str, str]:
        """What each of its columns is called in runs, as `price_sum`."""
        return self._readable

    def group(self, raw: pa.Table, by: Seq[str]) -> pa.Table:
        """Partials of raw rows: one row for each group of `by` and `extra`, in no order."""
        asked = Grouping(raw, by)
        return self._table(asked, [partial.of_rows(asked) for partial in self._partials])

    def combine(self, partials: pa.Table, by: Seq[str]) -> pa.Table:
        """Partials of partials, by fewer columns or the same; others are left out."""
        asked, taken, finishes = Grouping(partials, by), 0, []
        for partial in self._partials:
            end = taken + len(partial.names)
            finishes.append(partial.of_partials(asked, self.columns[taken:end]))
            taken = end
        return self._table(asked, finishes)

    def _table(self, asked: Grouping, finishes: Seq[Finish]) -> pa.Table:
        groups = asked.run()
        made = [column for finish in finishes for column in finish(groups)]
        return groups.with_columns(dict(zip(self.columns, made, strict=True)))

    def concat(self, tables: Iterable[pa.Table]) -> pa.Table:
        """The rows of tables of one layout, at least one; each column in its widest type.

        For raw tables, too. Raises `ValueTypeError` for types that cannot be brought together.
        """
        return concatenated(list(tables))


def concatenated(tables: Seq[pa.Table]) -> pa.Table:
    """The rows of tables with the columns of the first, each in its widest type."""
    first = tables[0]
    if all(table.schema.equals(first.schema) for table in tables):
        return pa.concat_tables(tables)
    kinds: dict[str, pa.DataType] = {field.name: field.type for field in first.schema}
    for table in tables[1:]:
        for name, kind in kinds.items():
            kinds[name] = widened(kind, table.schema.field(name).type)
    return pa.concat_tables(
        pa.table({name: as_type(table.column(name), kind) for name, kind in kinds.items()})
        for table in tables
    )


@dataclass(slots=True)
class _Column:
    """A column of raw tables: a field as values. `kind` is its ledger."""

    name: str
    field: str
    functions: tuple[str, ...]
    kind: pa.DataType


class Aggregates:
    """The aggregates of a window operator, and the type ledger of their fields (S10).

    The ledger widens with the batches that `raw` sees, and with `learn`. Who undoes a batch sets
    `types` back to what it was.
    """

    def __init__(self, plan: WindowPlan, operator: OperatorId) -> None:
        self._plan = plan
        self._operator = operator
        self._columns = _columns(plan.aggregates)
        self._by_field = {column.field: column for column in self._columns}
        self._partials = _partials(plan.aggregates, self._by_field)
        main = Family(PANES, list(self._partials))
        self._places: dict[Partial, str] = {}
        taken = 0
        for partial in self._partials:
            self._places[partial] = main.columns[taken]
            taken += len(partial.names)
        self.families: tuple[Family, ...] = (main,)

    @property
    def uses_time(self) -> bool:
        """Raw tables need `ts`, the event times, for first and last."""
        return False

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The ledger: the value type of each raw column so far."""
        return tuple(column.kind for column in self._columns)

    @types.setter
    def types(self, kinds: Seq[pa.DataType]) -> None:
        for column, kind in zip(self._columns, kinds, strict=True):
            column.kind = kind

    def raw(self, batch: pa.RecordBatch) -> dict[str, AnyArray]:
        """The raw columns of a batch, in the types of the ledger, which it widens.

        Raises `ProcessingError` for a field that is not there, or one whose type its aggregates
        cannot take or that cannot follow the type before; the ledger is then as it was.
        """
        found = [self._field_of(batch, column) for column in self._columns]
        kinds = [
            self._kind(column, values) for column, values in zip(self._columns, found, strict=True)
        ]
        self.types = kinds
        return {
            column.name: canonical_values(values, column.kind)
            for column, values in zip(self._columns, found, strict=True)
        }

    def _field_of(self, batch: pa.RecordBatch, column: _Column) -> AnyArray:
        places = batch.schema.get_all_field_indices(column.field)
        if len(places) == 1:
            return batch.column(places[0])
        there = ", ".join(f"'{name}'" for name in batch.schema.names)
        what = "is not in the batch" if not places else f"is {len(places)} times in the batch"
        raise ProcessingError(
            self._operator,
            f"the field '{column.field}' of its aggregates {what}; its columns are {there}. "
            "Name a column of these, or add it before the window",
        )

    def _kind(self, column: _Column, values: AnyArray) -> pa.DataType:
        try:
            found = value_type(values.type)
            kind = widened(column.kind, found)
        except ValueTypeError as error:
            raise self._refused(column, str(error)) from error
        refusing = [name for name in column.functions if name in _OF_NUMBERS]
        if refusing and not (is_number(kind) or pa.types.is_null(kind)):
            text = f"{refusing[0]} takes numbers and it is of type {shown(kind)}; cast it before"
            raise self._refused(column, text)
        return kind

    def _refused(self, column: _Column, cause: str) -> ProcessingError:
        return ProcessingError(
            self._operator, f"the field '{column.field}' cannot be aggregated: {cause}"
        )

    def final(
        self, tables: Mapping[str, pa.Table], by: Seq[str], where: Where | None = None
    ) -> pa.Table:
        """The columns `by`, then one for each aggregate, in their order; see `aggregate_results`.

        `tables` has for each family what it combined by `by`. Rows are in the order of the main
        table; of ArkFlow's own aggregates over a field, those without a value are left out (N4).
        `where` names window and key of a row of that table. Raises `ProcessingError` for a sum
        outside of its type.
        """
        table = tables[PANES]
        fitting = Fitting(self._operator, where or str, self._plan.null_on_overflow)
        columns = [table.column(name) for name in by]
        columns += [self._result(plan, table, fitting) for plan in self._plan.aggregates]
        # By position: a user may call an aggregate like a column of `by`.
        made = pa.Table.from_arrays(columns, [*by, *(plan.name for plan in self._plan.aggregates)])
        if _is_arkflows(self._plan.aggregates):
            return made.filter(pc.greater(columns[len(by)], pa.scalar(0, COUNT_TYPE)))
        return made

    def _result(self, plan: AggregatePlan, table: pa.Table, fitting: Fitting) -> Any:
        partial = _partial(plan, self._by_field)
        values = table.column(self._places[partial])
        if plan.function == "count":
            return fitting.counted(values)
        kind = self._by_field[plan.field or ""].kind
        if plan.function == "sum":
            return fitting.summed(plan, values, kind)
        return as_type(values, read_type(kind))


def _columns(aggregates: Seq[AggregatePlan]) -> tuple[_Column, ...]:
    """One raw column for each field."""
    functions: dict[str, list[str]] = {}
    for plan in aggregates:
        if plan.field is not None:
            functions.setdefault(plan.field, []).append(plan.function)
    return tuple(
        _Column(f"v{i}", field, tuple(names), pa.null())
        for i, (field, names) in enumerate(functions.items())
    )


def _partials(
    aggregates: Seq[AggregatePlan], columns: Mapping[str, _Column]
) -> tuple[Partial, ...]:
    """The partials of all aggregates, each once."""
    return tuple(dict.fromkeys(_partial(plan, columns) for plan in aggregates))


def _partial(plan: AggregatePlan, columns: Mapping[str, _Column]) -> Partial:
    if plan.field is None:
        return RowCount()
    column = columns[plan.field].name
    if plan.function == "count":
        return ValueCount(column, plan.field)
    if plan.function == "sum":
        return Sum(column, plan.field)
    return Extreme(plan.function, column, plan.field)


def _is_arkflows(aggregates: Seq[AggregatePlan]) -> bool:
    """Whether these are the aggregates that a window has without `aggregates:`, over a field."""
    made = tuple((plan.name, plan.function) for plan in aggregates)
    fields = {plan.field for plan in aggregates}
    return made == tuple((name, name) for name in _ARKFLOW) and len(fields) == 1


def _distinct(names: Seq[str]) -> list[str]:
    """The names, those that came before with a number."""
    found: dict[str, None] = {}
    for name in names:
        free, n = name, 2
        while free in found:
            free, n = f"{name}_{n}", n + 1
        found[free] = None
    return list(found)


__all__ = ["PANES", "Aggregates", "Family", "concatenated"]
