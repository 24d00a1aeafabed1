"""The fields that a window aggregates as columns of raw tables, and their type ledger (S10)."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import AggregatePlan
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array, nulls_of
from arkflow_kernel.state.key_form import canonical
from arkflow_kernel.state.key_types import KeyTypeError, key_type
from arkflow_kernel.state.key_types import widened as key_widened
from arkflow_kernel.window.aggregate_types import (
    TAG,
    ValueTypeError,
    canonical_values,
    decoded,
    is_number,
    shown,
    value_type,
    widened,
)

DISTINCT = "count_distinct"

_OF_NUMBERS = ("sum", "avg", "stddev")


@dataclass(slots=True)
class ValueColumn:
    """A column of raw tables: a field, and what is made of it. `kind` is its ledger.

    For count_distinct, the column has canonical forms, and its tags stand beside it.
    """

    name: str
    field: str
    functions: tuple[str, ...]
    kind: pa.DataType

    @property
    def distinct(self) -> bool:
        """It is of a count_distinct."""
        return DISTINCT in self.functions

    def follows(self, found: pa.DataType) -> pa.DataType:
        """The ledger after values of a type. Raises `ValueTypeError`."""
        if self.distinct:
            return self._follows_as_key(found)
        kind = widened(self.kind, value_type(found))
        refusing = [name for name in self.functions if name in _OF_NUMBERS]
        if refusing and not (is_number(kind) or pa.types.is_null(kind)):
            raise ValueTypeError(f"{refusing[0]} takes numbers, and it is {shown(kind)}; cast it")
        return kind

    def _follows_as_key(self, found: pa.DataType) -> pa.DataType:
        try:
            return key_widened(self.kind, key_type(found))
        except KeyTypeError as error:
            before = "" if pa.types.is_null(self.kind) else f" after {shown(self.kind)}"
            text = f"count_distinct cannot take {shown(found)}{before}; cast it to one type"
            raise ValueTypeError(text) from error

    def made(self, values: AnyArray) -> dict[str, AnyArray]:
        """Its columns of raw tables, of a batch's values."""
        values = decoded(values)
        if not self.distinct:
            return {self.name: canonical_values(values, self.kind)}
        part = canonical(values)
        column = values
        if part.data is not None:
            column = part.data
            if values.null_count:
                column = pc.if_else(values.is_valid(), column, pa.scalar(None, column.type))
        elif not pa.types.is_null(values.type):
            column = as_array(part.words.view(np.int64), mask=nulls_of(values))
        return {self.name: column, self.name + TAG: as_array(part.tags)}


class ValueColumns:
    """The raw columns of a window's aggregates."""

    def __init__(self, aggregates: Seq[AggregatePlan], operator: OperatorId) -> None:
        self._operator = operator
        functions: dict[tuple[str, bool], list[str]] = {}
        for plan in aggregates:
            if plan.field is not None:
                key = (plan.field, plan.function == DISTINCT)
                functions.setdefault(key, []).append(plan.function)
        self._columns = {
            key: ValueColumn(f"v{i}", key[0], tuple(names), pa.null())
            for i, (key, names) in enumerate(functions.items())
        }

    def of(self, plan: AggregatePlan) -> ValueColumn:
        """The column of an aggregate that has a field."""
        return self._columns[plan.field or "", plan.function == DISTINCT]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The ledger: the type of each column so far."""
        return tuple(column.kind for column in self._columns.values())

    @types.setter
    def types(self, kinds: Seq[pa.DataType]) -> None:
        for column, kind in zip(self._columns.values(), kinds, strict=True):
            column.kind = kind

    def raw(self, batch: pa.RecordBatch) -> dict[str, AnyArray]:
        """The raw columns of a batch; the ledger follows. Raises `ProcessingError`, all or none."""
        columns = list(self._columns.values())
        values = [self._values(batch, column.field) for column in columns]
        self.types = [self._kind(c, v.type) for c, v in zip(columns, values, strict=True)]
        made: dict[str, AnyArray] = {}
        for column, found in zip(columns, values, strict=True):
            made.update(column.made(found))
        return made

    def _values(self, batch: pa.RecordBatch, field: str) -> AnyArray:
        places = batch.schema.get_all_field_indices(field)
        if len(places) == 1:
            return batch.column(places[0])
        there = ", ".join(f"'{name}'" for name in batch.schema.names)
        what = "is not in the batch" if not places else f"is {len(places)} times in the batch"
        raise ProcessingError(
            self._operator,
            f"the field '{field}' of its aggregates {what}; the columns are {there}. "
            "Name one of these, or add the field before the window; `types` of a JSON input or "
            "codec keeps a field that the first rows lack",
        )

    def _kind(self, column: ValueColumn, found: pa.DataType) -> pa.DataType:
        try:
            return column.follows(found)
        except ValueTypeError as error:
            text = f"the field '{column.field}' cannot be aggregated: {error}"
            raise ProcessingError(self._operator, text) from error


__all__ = ["DISTINCT", "ValueColumn", "ValueColumns"]
