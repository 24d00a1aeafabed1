"""Per key the rows with the greatest value of a column, or the least (J7).

Rows of one value are ranked by what else is in them, column by column, so that the list does not
depend on the order in which they came. After a batch the lists that it changed leave as a whole,
best row first, each with its rank.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.aggregate.keyed_rows import KeyedRows, at, distinct, keyed_rows
from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import OperatorPlan, TopNPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateJournal
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array, nulls_of
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.aggregate_types import decoded
from arkflow_kernel.window.lateness import unstamped
from arkflow_kernel.window.row_batches import brought_to, united

BEST_STATE = "best"
"""Name of the state that holds the rows."""

NOTHING = OperatorResult(())

_VIEWS: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
    pa.float16(): pa.float32(),
}


class RowTypes:
    """The columns of all rows so far, which widen (S10); as snapshots have them."""

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None

    def told(self) -> list[str]:
        """One text, or none before the first row."""
        if self.schema is None:
            return []
        message: Any = self.schema.serialize()
        return [bytes(message).hex()]

    def learn(self, told: Seq[str]) -> None:
        """Widen by those of a snapshot."""
        for text in told:
            message: Any = pa.py_buffer(bytes.fromhex(text))
            found = pa.ipc.read_schema(message)
            self.schema = found if self.schema is None else united(self.schema, found)

    def follow(self, found: pa.Schema) -> pa.Schema | None:
        """The columns after rows of these; None if they do not go together."""
        return found if self.schema is None else united(self.schema, found)


@dataclass(frozen=True, slots=True)
class _Best:
    """The best rows of keys, in order of key and rank: the key of each, whether the row is new."""

    rows: pa.RecordBatch
    codes: Slots
    new: Mask


class TopN:
    """An `Operator` over the best rows of each key."""

    def __init__(
        self,
        operator: OperatorId,
        plan: TopNPlan,
        rows: KeyedRows,
        types: RowTypes,
        journal: StateJournal,
        *,
        refreshes: bool,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self._rows = rows
        self._types = types
        self._journal = journal
        self._refreshes = refreshes

    def open(self) -> None:
        """The state is opened by whoever restores it."""

    def finish(self) -> OperatorResult:
        """No row is held back."""
        return NOTHING

    def close(self) -> None:
        """The state is released by whoever made it."""

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """The lists that the rows change. Rows with a null in the ranked column take no part.

        Raises `ProcessingError` for a column that is missing or whose type does not fit, and when
        a budget is passed.
        """
        del origin
        batch = self._checked(unstamped(batch)[0])
        if not batch.num_rows:
            return NOTHING
        keys = self._rows.keys(batch)
        each = distinct(keys)
        known, owners = self._rows.lists(each)
        schema = batch.schema
        rows = [batch, *(brought_to(found.rows, schema) for found in known)]
        codes = [keys.codes, *(owners[found.places] for found in known)]
        new = np.arange(sum(map(len, codes))) < batch.num_rows
        best = self._best(pa.Table.from_batches(rows), np.concatenate(codes), new)
        changed = np.zeros(each.count, np.bool_)
        changed[best.codes[best.new]] = True
        written = np.ones_like(changed) if self._refreshes else changed
        if written.any():
            mine = written[best.codes]
            counts = np.bincount(best.codes[mine], minlength=each.count)[written]
            kept = best.rows.filter(as_array(mine))
            self._rows.put_lists(at(each, np.flatnonzero(written)), kept, counts)
        made = self._told(best, changed)
        return OperatorResult((made,) if made.num_rows else (), absorbed=batch.num_rows)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that can be ranked, under the columns of all rows so far."""
        by, names = self._plan.by, batch.schema.names
        if by not in names:
            text = f"the column '{by}' by which rows are ranked is not in the batch; the columns"
            raise ProcessingError(self._operator, f"{text} are {', '.join(names)}")
        if self._plan.rank_field in names:
            text = f"rows have a column '{self._plan.rank_field}' already; set `rank_field` to"
            raise ProcessingError(self._operator, f"{text} another name for their rank")
        columns = [_plain(column) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        schema = self._types.follow(batch.schema)
        if schema is None:
            text = "the types of its columns do not follow those of the rows before:"
            told = ", ".join(f"{field.name} {field.type}" for field in batch.schema)
            known = ", ".join(f"{field.name} {field.type}" for field in self._types.schema or ())
            raise ProcessingError(self._operator, f"{text} {told}, after {known}; cast them before")
        self._rows.check(schema)
        self._learn(schema)
        batch = brought_to(batch, schema)
        missing = nulls_of(batch.column(schema.get_field_index(by)))
        return batch.filter(as_array(~missing)) if missing.any() else batch

    def _learn(self, schema: pa.Schema) -> None:
        before = self._types.schema
        if schema is not before:
            self._journal.stage(self._rows.state, 0, lambda: self._forget(before))
            self._types.schema = schema

    def _forget(self, schema: pa.Schema | None) -> None:
        self._types.schema = schema

    def _best(self, table: pa.Table, codes: Slots, new: Mask) -> _Best:
        """The best rows of each key."""
        rows = table.combine_chunks().to_batches()[0]
        order = self._order(rows, codes)
        sorted_codes = codes[order]
        counts = np.bincount(codes)
        place = np.arange(len(codes)) - (np.cumsum(counts) - counts)[sorted_codes]
        kept = order[place < self._plan.count]
        return _Best(rows.take(as_array(kept)), codes[kept], new[kept])

    def _order(self, rows: pa.RecordBatch, codes: Slots) -> Slots:
        """Places of the rows by key, then by rank; by all columns only where some are alike."""
        at_by = rows.schema.get_field_index(self._plan.by)
        value = _ranks(rows.column(at_by))
        value = -value if self._plan.descending else value
        order: Slots = np.lexsort((value, codes))
        same_key = np.diff(codes[order]) == 0
        if (same_key & (np.diff(value[order]) == 0)).any():
            others = [_ranks(column) for n, column in enumerate(rows.columns) if n != at_by]
            order = np.lexsort((*reversed(others), value, codes))
        return order

    def _told(self, best: _Best, changed: Mask) -> pa.RecordBatch:
        counts = np.bincount(best.codes, minlength=len(changed))
        ranks = np.arange(len(best.codes)) - (np.cumsum(counts) - counts)[best.codes] + 1
        rows = best.rows.append_column(self._plan.rank_field, as_array(ranks))
        return rows.filter(as_array(changed[best.codes]))


def _plain(column: AnyArray) -> AnyArray:
    column = decoded(column)
    kind = _VIEWS.get(column.type)
    return column if kind is None else column.cast(kind)


def _ranks(column: AnyArray) -> Slots:
    """The place of each value among all, the same for equal ones; NaN is great, null greatest."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    untyped: Any = column
    return np.asarray(pc.rank(untyped, tiebreaker="dense")).astype(np.int64)


def top_n(plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None) -> TopN:
    """With its state in the chain's journal. `states` are those of the chain, if it has any."""
    keyed, state = plan.keyed, plan.state
    assert isinstance(keyed, TopNPlan)
    assert state is not None
    types = RowTypes()
    rows = keyed_rows(plan.operator, BEST_STATE, state, state.shape, journal, states, types)
    return TopN(plan.operator, keyed, rows, types, journal, refreshes=state.ttl_ms is not None)


__all__ = ["BEST_STATE", "TopN", "top_n"]
