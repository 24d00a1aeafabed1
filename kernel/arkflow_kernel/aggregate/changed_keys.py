"""Keys that changed since they were last told: a part of the cut, so that none is lost (S2, J5)."""

from collections.abc import Iterator

import pyarrow as pa

from arkflow_kernel.aggregate.keyed_rows import distinct, keyed_state
from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.plan import StatePlan
from arkflow_kernel.state.api import StateJournal
from arkflow_kernel.state.arrow_numpy import all_null
from arkflow_kernel.state.key_rows import KeyRows
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates

_THERE = pa.bool_()
_AT_ONCE = WallMs(0)


class ChangedKeys:
    """The keys, and when they are due: `interval_ms` after the first of them.

    What a restore brings is due at once: nobody knows how long it has waited.
    """

    def __init__(
        self, fields: tuple[str, ...], state: MemoryState, interval_ms: int, journal: StateJournal
    ) -> None:
        self._fields = fields
        self._state = state
        self._interval_ms = interval_ms
        self._journal = journal
        self._due_ms = _AT_ONCE

    def note(self, keys: KeyRows) -> None:
        """These have changed."""
        if not self._state.live_keys:
            self._due_ms = WallMs(self._journal.wall_ms + self._interval_ms)
        each = distinct(keys)
        self._state.put(each, all_null(each.count, _THERE))

    @property
    def due_ms(self) -> WallMs | None:
        """When they are to be told; None: there are none."""
        return self._due_ms if self._state.live_keys else None

    def take(self) -> Iterator[pa.RecordBatch]:
        """All of them, in pieces, each forgotten before it is given."""
        pieces = [
            pa.RecordBatch.from_arrays(list(each.keys), names=list(self._fields))
            for each in self._state.entries()
        ]
        for piece in pieces:
            self._state.delete(self._state.keys(piece))
            yield piece


def changed_keys(
    interval_ms: int,
    operator: OperatorId,
    plan: StatePlan,
    journal: CommitOnAck,
    states: ChainStates | None,
) -> ChangedKeys:
    """With a state in the chain's journal."""
    state = keyed_state(operator, "changed", plan, _THERE, journal, states, ttl=False)
    return ChangedKeys(plan.key_fields, state, interval_ms, journal)


__all__ = ["ChangedKeys", "changed_keys"]
