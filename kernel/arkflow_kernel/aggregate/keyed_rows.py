"""A keyed state whose values are rows of columns, or lists of them; types widen (S6, S9, S10).

The rows lie in a `MemoryState` as binaries (`row_codec.py`), so transactions, TTL, budgets, runs
and local files are its own. A snapshot says beside them what schemas the rows have, the type
ledger of the operator's fields, and what the rows are.
"""

import json
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from arkflow_kernel.aggregate.row_codec import FORMAT_VERSION, Decoded, RowSchemas, RowTypeError
from arkflow_kernel.aggregate.row_lists import packed, unpacked
from arkflow_kernel.aggregate.told_state import ToldState
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import StatePlan
from arkflow_kernel.state.api import StateAddress, StateLayout
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.growing import Slots
from arkflow_kernel.state.key_rows import KeyRows
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.refusals import check_version, other_state

STORED = pa.large_binary()
"""How a row lies in the state."""


class Ledger(Protocol):
    """The types of an operator's fields, which stand in snapshots."""

    def told(self) -> list[str]:
        """All of them, as text."""
        ...

    def learn(self, told: Seq[str]) -> None:
        """Widen by those of a snapshot."""
        ...


class KeyedRows(ToldState):
    """One row for each key, or a list of rows.

    `what` says what the rows are: a snapshot of others is refused. `state` has the keys; it is the
    chain's journal's, too.
    """

    def __init__(self, state: MemoryState, what: str, ledger: Ledger | None = None) -> None:
        super().__init__(state)
        self._what = what
        self._ledger = ledger
        self._schemas = RowSchemas()

    # --- rows ----------------------------------------------------------------------------------

    def keys(self, batch: pa.RecordBatch) -> KeyRows:
        """The keys of a batch's rows; see `api.KeyedState`."""
        return self.state.keys(batch)

    def get(self, keys: KeyRows) -> list[Decoded]:
        """The rows of distinct keys, by schema; `places` are numbers of keys."""
        return self._schemas.decoded(self.state.get(keys).values)

    def put(self, keys: KeyRows, rows: pa.RecordBatch) -> None:
        """Set the rows of distinct keys. Raises `ProcessingError`; then nothing is set."""
        self.state.put(keys, self._encoded(rows))

    def lists(self, keys: KeyRows) -> tuple[list[Decoded], Slots]:
        """The rows of distinct keys that `put_lists` has set, by schema; `places` are numbers of
        rows, and the array has the number of the key of each.
        """
        rows, owners = unpacked(self.state.get(keys).values)
        return self._schemas.decoded(rows), owners

    def put_lists(self, keys: KeyRows, rows: pa.RecordBatch, counts: Slots) -> None:
        """Set the list of rows of each of some distinct keys; `rows` has those of all, key by key,
        and `counts` how many each has. Raises `ProcessingError`; then nothing is set.
        """
        self.state.put(keys, packed(self._encoded(rows), counts))

    def check(self, schema: pa.Schema) -> None:
        """Raise `ProcessingError` for a column that no row can have."""
        with self._as_processing_error():
            self._schemas.check(schema)

    def _encoded(self, rows: pa.RecordBatch) -> AnyArray:
        with self._as_processing_error():
            return self._schemas.encoded(rows)

    @contextmanager
    def _as_processing_error(self) -> Iterator[None]:
        try:
            yield
        except RowTypeError as error:
            raise ProcessingError(self.operator, str(error), error_class="StateError") from error

    # --- snapshots -----------------------------------------------------------------------------

    def told(self, layout: StateLayout) -> StateLayout:
        """With the schemas of all rows, the ledger, and what the rows are."""
        ledger = [] if self._ledger is None else self._ledger.told()
        said = {
            "version": FORMAT_VERSION,
            "rows": self._what,
            "schemas": self._schemas.told(),
            "ledger": ledger,
        }
        return replace(layout, value_type=json.dumps(said, sort_keys=True))

    def meant(self, layout: StateLayout) -> StateLayout:
        """Learns what the layout tells. Raises `RestoreError` for other rows."""
        said = _said(layout.value_type)
        if said.get("rows") != self._what:
            kept = said.get("rows", layout.value_type)
            text = f"'{layout.name}' has {kept}, and the job now keeps {self._what}"
            raise other_state(self.operator, text)
        check_version(said["version"], FORMAT_VERSION, "rows", self.operator)
        self._schemas.learn(said["schemas"])
        if self._ledger is not None:
            self._ledger.learn(said["ledger"])
        return replace(layout, value_type=str(STORED))


def _said(value_type: str) -> dict[str, Any]:
    """What a layout says of its rows; nothing if they are no rows."""
    if not value_type.startswith("{"):
        return {}
    said: dict[str, Any] = json.loads(value_type)
    return said


def distinct(keys: KeyRows) -> KeyRows:
    """The distinct keys of a batch, each once, in order of their first row."""
    if keys.distinct:
        return keys
    numbers = np.arange(keys.count)
    return KeyRows(numbers, numbers, keys.parts, keys.hashes, keys.sizes, keys.types)


def at(keys: KeyRows, numbers: Slots) -> KeyRows:
    """Some of the distinct keys, by number, each once."""
    codes = np.arange(len(numbers))
    parts = tuple(part.take(numbers) for part in keys.parts)
    return KeyRows(codes, codes, parts, keys.hashes[numbers], keys.sizes[numbers], keys.types)


def keyed_state(
    operator: OperatorId,
    name: str,
    plan: StatePlan,
    value_type: pa.DataType,
    journal: CommitOnAck,
    states: ChainStates | None,
    *,
    ttl: bool = True,
) -> MemoryState:
    """A state of an operator in the chain's journal and among its states, under the plan's limits.

    Without `ttl` nothing in it expires.
    """
    state = memory_state(operator, name, plan, value_type, journal, ttl=ttl)
    if states is not None:
        states.joined(state)
    return state


def keyed_rows(
    operator: OperatorId,
    name: str,
    plan: StatePlan,
    what: str,
    journal: CommitOnAck,
    states: ChainStates | None,
    ledger: Ledger | None = None,
) -> KeyedRows:
    """The same of rows; `what` and `ledger` are those of `KeyedRows`."""
    state = memory_state(operator, name, plan, STORED, journal)
    rows = KeyedRows(state, what, ledger)
    if states is not None:
        states.joined(rows)
    return rows


def memory_state(
    operator: OperatorId,
    name: str,
    plan: StatePlan,
    value_type: pa.DataType,
    journal: CommitOnAck,
    key_fields: tuple[str, ...] | None = None,
    *,
    ttl: bool = True,
) -> MemoryState:
    """A state in the chain's journal only. `key_fields` begin with the plan's, which alone decide
    the key group.
    """
    state = MemoryState(
        StateAddress(plan.namespace, operator, name),
        plan.key_fields if key_fields is None else key_fields,
        value_type,
        journal,
        ttl_ms=plan.ttl_ms if ttl else None,
        max_bytes=plan.max_bytes,
        max_parallelism=plan.max_parallelism,
        memory_bytes=plan.memory_bytes,
        grouped_by=len(plan.key_fields),
    )
    journal.joined(state)
    return state


__all__ = [
    "STORED",
    "KeyedRows",
    "Ledger",
    "at",
    "distinct",
    "keyed_rows",
    "keyed_state",
    "memory_state",
]
