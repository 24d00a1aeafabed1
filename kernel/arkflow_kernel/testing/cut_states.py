"""Reads the counts out of a checkpoint's state objects as any user could: Arrow IPC, newest wins.

Not by the code that restores them: a mistake that sealing and restoring share would hide.
"""

from typing import Final

import pyarrow as pa
from pyarrow import ipc

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.snapshot import CheckpointRecord, RunRef, StateSnapshot
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_store import OBJECTS, SimStore
from arkflow_kernel.testing.sim_windows import Pane, entries_of

KEY: Final = "key"
"""The key field of every stateful operator of the simulation."""

_Entry = tuple[int, int, int | None]


class StateReader:
    """The states of one store. Runs never change, so one of counts is decoded once."""

    def __init__(self, store: SimStore) -> None:
        self._store = store
        self._runs: dict[tuple[str, int], list[_Entry]] = {}

    def counts(self, record: CheckpointRecord, operator: OperatorId) -> dict[int, int]:
        """By key, what an operator has counted in all its subtasks at a record."""
        total: dict[int, int] = {}
        for chain in record.chains:
            for state in chain.states:
                if state.operator == operator:
                    _join(total, self._of(state), f"{operator} of {chain.chain}")
        return total

    def panes(self, state: StateSnapshot) -> dict[Pane, int]:
        """What one subtask of a window holds."""
        entries = entries_of(self._batch(run) for run in state.runs)
        return {pane: value for pane, value in entries.items() if value is not None}

    def _of(self, state: StateSnapshot) -> dict[int, int]:
        found: dict[int, int] = {}
        for run in state.runs:
            for group, key, value in self._entries(run):
                if not run.first_group <= group <= run.last_group:
                    continue
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
        return found

    def _entries(self, run: RunRef) -> list[_Entry]:
        known = self._runs.get((run.object, run.offset))
        if known is None:
            known = self._runs[run.object, run.offset] = _decoded(self._batch(run))
            if len(known) != run.rows:
                raise ViolationError(f"run {run.run} has {len(known)} rows, not {run.rows}")
        return known

    def _batch(self, run: RunRef) -> pa.RecordBatch:
        data = self._store.files[OBJECTS + run.object]
        part = pa.py_buffer(data[run.offset : run.offset + run.length])
        return ipc.open_file(part).get_batch(0)


def _decoded(batch: pa.RecordBatch) -> list[_Entry]:
    columns = [batch.column(name).to_pylist() for name in ("group", KEY, "value", "deleted")]
    return [
        (group, key, None if deleted else value)
        for group, key, value, deleted in zip(*columns, strict=True)
    ]


def _join(total: dict[int, int], found: dict[int, int], whose: str) -> None:
    twice = total.keys() & found.keys()
    if twice:
        raise ViolationError(f"keys {sorted(twice)} are kept by another subtask and by {whose}")
    total.update(found)


__all__ = ["KEY", "StateReader"]
