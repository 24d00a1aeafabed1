"""Continuous aggregates: per key those of all rows so far, told when the key has changed (J5).

The rows of a batch become partials, one a key; those meet the partials that the state has, and what
comes of it is kept. Partials merge in any order, so neither the cuts of batches nor a restart play
a part. Everything is done for all keys of a batch at once (N1).
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace

import numpy as np
import pyarrow as pa

from arkflow_kernel.aggregate.changed_keys import ChangedKeys, changed_keys
from arkflow_kernel.aggregate.distinct_values import DistinctValues, distinct_values
from arkflow_kernel.aggregate.keyed_rows import KeyedRows, distinct, keyed_rows
from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.ids import EventTimeMs, OperatorId, WallMs
from arkflow_kernel.plan import AggregatePlan, ContinuousPlan, OperatorPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateJournal
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array
from arkflow_kernel.state.key_form import restored
from arkflow_kernel.state.key_rows import KeyRows
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.timestamps import operator_times
from arkflow_kernel.window.aggregate_columns import DISTINCT
from arkflow_kernel.window.aggregate_results import COUNT_TYPE
from arkflow_kernel.window.aggregate_types import one_array, widened
from arkflow_kernel.window.aggregates import PANES, Aggregates, result_column
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.lateness import turned_away, unstamped
from arkflow_kernel.window.pane_format import stored_type
from arkflow_kernel.window.pane_tables import int64s
from arkflow_kernel.window.partials_edges import TIME

AGGREGATES_STATE = "aggregates"
"""Name of the state that holds the partials."""

NOTHING = OperatorResult(())

_KEY = "key"
"""Column of partial tables: the number of the key among those of the batch."""

_BORN = "born"
"""Column of a key's row where there is a count_distinct: the wall clock of its first row.

A key that was forgotten and comes again is another: by this its values are told apart.
"""

_NEW = "=new "
"""Beginning of a column that counts the new values of a count_distinct's field."""


class ValueTypes:
    """The type ledger of the aggregated fields, as snapshots have it (`keyed_rows.Ledger`)."""

    def __init__(self, aggregates: Aggregates) -> None:
        self._aggregates = aggregates

    def told(self) -> list[str]:
        """The type of each raw column."""
        return [str(kind) for kind in self._aggregates.types]

    def learn(self, told: Seq[str]) -> None:
        """Widen by those of a snapshot."""
        known = zip(self._aggregates.types, map(stored_type, told), strict=True)
        self._aggregates.types = [widened(*each) for each in known]


class ContinuousAggregate:
    """A `ports.TimedOperator` if it has `changed`, else an `Operator` that tells after each batch.

    `aggregates` are those of `summed`, `distinct` the values of each field of a count_distinct.
    """

    def __init__(
        self,
        operator: OperatorId,
        plan: ContinuousPlan,
        key_fields: tuple[str, ...],
        aggregates: Aggregates,
        rows: KeyedRows,
        distinct: dict[str, DistinctValues],
        changed: ChangedKeys | None,
        journal: StateJournal,
        ttl_ms: int | None = None,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self._key_fields = key_fields
        self._aggregates = aggregates
        self._family = aggregates.families[0]
        self._rows = rows
        self._distinct = distinct
        self._changed = changed
        self._journal = journal
        self._ttl_ms = ttl_ms if distinct else None
        self._sweep_ms = WallMs(0)

    def open(self) -> None:
        """The states are opened by whoever restores them."""

    def finish(self) -> OperatorResult:
        """`end` has told everything."""
        return NOTHING

    def close(self) -> None:
        """The states are released by whoever made them."""

    # --- rows ----------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """Take the rows; the keys that they change leave at once, or wait for the next tick.

        Raises `ProcessingError` for a column that is missing or whose type does not fit, for a sum
        that leaves its type, and when a budget is passed.
        """
        del origin
        batch, _ = unstamped(batch)
        times, untimed = None, None
        if self._plan.timestamp_field is not None:
            found = operator_times(batch, self._plan.timestamp_field, self._operator)
            times, untimed = found.ms, None if found.valid is None else ~found.valid
        away = turned_away(batch, None, untimed)
        if untimed is not None and times is not None:
            batch, times = batch.filter(as_array(~untimed)), times[~untimed]
        away_rows = 0 if away is None else away.num_rows
        made: tuple[pa.RecordBatch, ...] = ()
        if batch.num_rows:
            made = self._added(batch, None if times is None else as_array(times))
            self._sweep()
        return OperatorResult(made, late=away, late_rows=away_rows, absorbed=batch.num_rows)

    def _added(self, batch: pa.RecordBatch, times: AnyArray | None) -> tuple[pa.RecordBatch, ...]:
        keys = self._rows.keys(batch)
        each = distinct(keys)
        known = self._known(each)
        born = _born(known, each.count, self._journal.wall_ms)
        raw: dict[str, AnyArray] = {_KEY: as_array(keys.codes)}
        raw |= self._raw(batch, born[keys.codes])
        if times is not None and self._aggregates.uses_time:
            raw[TIME] = times
        fresh = self._family.group(pa.table(raw), [_KEY])
        partials = self._merged([fresh, *known])
        rows = _values(partials)
        self._rows.put(each, rows.append_column(_BORN, as_array(born)) if self._distinct else rows)
        table = self._final(partials, each)
        if self._changed is None:
            return (table,)
        self._changed.note(each)
        return ()

    def _raw(self, batch: pa.RecordBatch, born: Times) -> dict[str, AnyArray]:
        """The value columns; what they teach of types is taken back with the batch."""
        for field, values in self._distinct.items():
            batch = batch.append_column(_NEW + field, values.added(batch, born))
        types = self._aggregates.types
        raw = self._aggregates.raw(batch)
        if self._aggregates.types != types:
            self._journal.stage(self._rows.state, 0, lambda: self._forget(types))
        return raw

    def _forget(self, types: tuple[pa.DataType, ...]) -> None:
        self._aggregates.types = types

    def _sweep(self) -> None:
        """Now and then, forget the values of keys that are forgotten (S7)."""
        now = self._journal.wall_ms
        if self._ttl_ms is None or now < self._sweep_ms:
            return
        self._sweep_ms = WallMs(now + max(1, self._ttl_ms // 4))
        for values in self._distinct.values():
            values.sweep(self._born_of)

    def _born_of(self, batch: pa.RecordBatch) -> Times:
        """When the key of each row came to be; -1 if it is not there."""
        keys = self._rows.keys(batch)
        each = distinct(keys)
        return _born(self._known(each), each.count, -1)[keys.codes]

    def _known(self, keys: KeyRows) -> list[pa.Table]:
        """Partials that the state has of these distinct keys."""
        return [
            pa.Table.from_batches([each.rows]).add_column(0, _KEY, as_array(each.places))
            for each in self._rows.get(keys)
        ]

    def _merged(self, tables: list[pa.Table]) -> pa.Table:
        """Partials of partials, at least one table, in order of key."""
        merged = tables[0]
        if len(tables) > 1:
            merged = self._family.combine(self._family.concat(tables), [_KEY])
        return merged.take(as_array(np.argsort(_numbers(merged))))

    def _final(self, partials: pa.Table, keys: KeyRows) -> pa.RecordBatch:
        """The rows that leave for these partials, whose keys stand in `keys` by number."""
        numbers = _numbers(partials)
        parts = [part.take(numbers) for part in keys.parts]
        columns = [restored(*each) for each in zip(parts, self._rows.state.types, strict=True)]

        def where(row: int) -> str:
            shown = (repr(column[row].as_py()) for column in columns)
            return f"key {', '.join(shown)}"

        final = self._aggregates.final({PANES: partials}, [_KEY], where)
        for plan in self._plan.aggregates:
            made = one_array(final.column(result_column(plan.name)))
            columns.append(made.cast(COUNT_TYPE) if plan.function == DISTINCT else made)
        names = [*self._key_fields, *(plan.name for plan in self._plan.aggregates)]
        return pa.RecordBatch.from_arrays(columns, names=names)

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Nothing here lives by event time."""
        del watermark
        yield from ()

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """Tell the keys that changed, if they are due."""
        due = self.timer()
        if due is not None and due <= wall_ms:
            yield from self._told()

    def end(self) -> Iterator[OperatorResult]:
        """Tell the keys that changed."""
        yield from self._told()

    def timer(self) -> WallMs | None:
        """When keys that changed are to be told."""
        return None if self._changed is None else self._changed.due_ms

    def _told(self) -> Iterator[OperatorResult]:
        """Each piece is forgotten before it leaves; a key that expired meanwhile says nothing."""
        for piece in () if self._changed is None else self._changed.take():
            keys = self._rows.keys(piece)
            known = self._known(keys)
            if known:
                yield OperatorResult((self._final(self._merged(known), keys),))


def _born(known: Seq[pa.Table], count: int, otherwise: int) -> Times:
    """When each of `count` keys came to be, by the wall clock, given what is known of them."""
    born = np.full(count, otherwise, np.int64)
    for table in known:
        if _BORN in table.column_names:
            born[_numbers(table)] = int64s(table, _BORN)
    return born


def _numbers(partials: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.asarray(one_array(partials.column(_KEY)), dtype=np.int64)


def _values(partials: pa.Table) -> pa.RecordBatch:
    names = [name for name in partials.column_names if name != _KEY]
    return pa.RecordBatch.from_arrays([one_array(partials.column(n)) for n in names], names=names)


def summed(plan: ContinuousPlan) -> ContinuousPlan:
    """With sums of new values in place of distinct counts: those need nothing else of a row."""

    def of(each: AggregatePlan) -> AggregatePlan:
        if each.function != DISTINCT:
            return each
        return AggregatePlan("sum", f"{_NEW}{each.field}", each.name)

    return replace(plan, aggregates=tuple(of(each) for each in plan.aggregates))


def continuous_aggregate(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> ContinuousAggregate:
    """The operator of a continuous aggregate, with its states in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    keyed, state, operator = plan.keyed, plan.state, plan.operator
    assert isinstance(keyed, ContinuousPlan)
    assert state is not None
    aggregates = Aggregates(summed(keyed), operator)
    types = ValueTypes(aggregates)
    rows = keyed_rows(operator, AGGREGATES_STATE, state, state.shape, journal, states, types)
    fields = dict.fromkeys(e.field for e in keyed.aggregates if e.function == DISTINCT and e.field)
    values = {name: distinct_values(name, operator, state, journal, states) for name in fields}
    interval = keyed.emit_interval_ms
    changed = None if interval is None else changed_keys(interval, operator, state, journal, states)
    return ContinuousAggregate(
        operator,
        keyed,
        state.key_fields,
        aggregates,
        rows,
        values,
        changed,
        journal,
        state.ttl_ms,
    )


__all__ = ["AGGREGATES_STATE", "ContinuousAggregate", "ValueTypes", "continuous_aggregate"]
