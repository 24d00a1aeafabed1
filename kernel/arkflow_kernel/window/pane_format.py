"""Runs of panes as Arrow with readable columns, and back to the bit (S6, S8, S9, S11).

One record batch, sorted by (key group, pane): `group`, `pane`, `after` where some rows do not count
in all windows of their pane, the key fields under their own names, and the partial aggregates as
`price_sum` and the like. A key field that may hold integers and floats is its 64 bits, with what
they mean in `<field>_tag`. The schema's metadata say whose run it is.
"""

import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import EventTimeMs
from arkflow_kernel.state.api import StateAddress, StateLayout
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state.key_columns import Ledger
from arkflow_kernel.state.run_format import parsed_type
from arkflow_kernel.window.aggregate_types import one_array
from arkflow_kernel.window.keys import KeyForm
from arkflow_kernel.window.pane_tables import int64s

FORMAT_VERSION = 1
"""Version of the runs that are written."""

_META = b"arkflow.panes"


class ValueLedger(Protocol):
    """The types of the fields that are aggregated (`aggregates.Aggregates`), for snapshots."""

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The type of each."""
        ...

    @types.setter
    def types(self, kinds: Seq[pa.DataType]) -> None: ...


class PaneFormat:
    """How the panes of one operator's family are written. Immutable: used from any thread.

    `columns` are the family's own, with what they are called in runs; `windows` says what its
    panes are, so that they are not taken for others.
    """

    def __init__(
        self,
        address: StateAddress,
        key_fields: tuple[str, ...],
        columns: Mapping[str, str],
        windows: str,
    ) -> None:
        self._address = address
        self._key_fields = key_fields
        self._columns = dict(columns)
        self._windows = windows

    def value_type(self, values: Seq[pa.DataType]) -> str:
        """What a layout says of the values: panes, partials, and the ledger of fields."""
        said = {**self._kept(), "values": [str(kind) for kind in values]}
        return json.dumps(said, sort_keys=True)

    def _kept(self) -> dict[str, Any]:
        return {"windows": self._windows, "partials": list(self._columns.values())}

    def layout(
        self,
        types: Ledger,
        values: Seq[pa.DataType],
        watermark: EventTimeMs | None = None,
        low: int | None = None,
    ) -> StateLayout:
        """What a snapshot says of the panes."""
        return StateLayout(
            self._address.namespace,
            self._address.name,
            self._key_fields,
            tuple(map(str, types)),
            self.value_type(values),
            FORMAT_VERSION,
            watermark,
            low,
        )

    def values_of(self, layout: StateLayout) -> tuple[pa.DataType, ...]:
        """The ledger of fields in a layout. Raises `RestoreError` if it does not fit (S9)."""
        operator = self._address.operator
        if layout.format_version != FORMAT_VERSION:
            raise RestoreError(f"operator '{operator}': {_unknown(layout.format_version)}")
        if layout.key_fields != self._key_fields:
            raise RestoreError(
                f"operator '{operator}': its windows '{layout.name}' have keys of "
                f"{_listed(layout.key_fields)}, and the job now keys by "
                f"{_listed(self._key_fields)}; give the operator another id to start without them"
            )
        said = json.loads(layout.value_type)
        for what, mine in self._kept().items():
            if said.get(what) != mine:
                raise RestoreError(
                    f"operator '{operator}': its windows were kept with {what} {said.get(what)}, "
                    f"and the job now has {mine}; give the operator another id to start without "
                    "them"
                )
        return tuple(stored_type(text) for text in said["values"])

    def written(
        self, table: pa.Table, form: KeyForm, groups: npt.NDArray[np.int32]
    ) -> pa.RecordBatch:
        """A table as a run, given the key group of each row."""
        order: Any = pa.array(np.lexsort((int64s(table), groups)))
        table = table.take(order).combine_chunks()
        names, columns = ["group"], [as_array(groups[np.asarray(order)])]
        for name in table.column_names:
            names.append(_free(self._readable(name), names))
            columns.append(one_array(table.column(name)))
        meta = {
            "format_version": FORMAT_VERSION,
            "namespace": self._address.namespace,
            "operator": self._address.operator,
            "name": self._address.name,
            "key_fields": list(self._key_fields),
            "key_types": [str(kind) for kind in form.types],
            "columns": table.column_names,
        }
        fields = [pa.field(n, c.type) for n, c in zip(names, columns, strict=True)]
        schema = pa.schema(fields, {_META: json.dumps(meta, sort_keys=True).encode()})
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _readable(self, name: str) -> str:
        """What a column of a table is called in runs."""
        for number, field in enumerate(self._key_fields):
            if name in (f"key{number}", f"key{number}_tag"):
                return field + name[len(f"key{number}") :]
        return self._columns.get(name, name)

    def read(self, batch: pa.RecordBatch) -> tuple[pa.Table, Ledger]:
        """The table of a run, and of what ledger its keys are; the inverse of `written`.

        Raises `pa.ArrowInvalid` for what is no run of panes, `RestoreError` for a version that is
        not known.
        """
        found = (batch.schema.metadata or {}).get(_META)
        if found is None:
            raise pa.ArrowInvalid("not a run of windows: its schema says nothing of panes")
        meta = json.loads(found)
        if meta.get("format_version") != FORMAT_VERSION:
            raise RestoreError(_unknown(meta.get("format_version")))
        names = meta["columns"]
        if len(names) != batch.num_columns - 1:
            raise pa.ArrowInvalid(f"a run of windows with {batch.num_columns} columns")
        columns = dict(zip(names, batch.columns[1:], strict=True))
        return pa.table(columns), tuple(parsed_type(kind) for kind in meta["key_types"])


def _unknown(version: object) -> str:
    return (
        f"windows of format version {version} cannot be read: this release knows "
        f"{FORMAT_VERSION}; use the release that wrote it, or start without its state "
        "(`--from-scratch`)"
    )


def _listed(fields: tuple[str, ...]) -> str:
    return ", ".join(fields) or "nothing"


def _free(name: str, others: list[str]) -> str:
    """A name that no other column has: a key field may be called `group`."""
    name = f"key_{name}" if name in others else name
    while name in others:
        name += "_"
    return name


_VALUE_TYPES: dict[str, pa.DataType] = {
    str(kind): kind for kind in (pa.float32(), pa.large_string(), pa.large_binary())
}


def stored_type(text: str) -> pa.DataType:
    """The type of a value ledger, given what Arrow calls it. Raises `RestoreError` for another."""
    return _VALUE_TYPES.get(text) or parsed_type(text)


__all__ = ["FORMAT_VERSION", "PaneFormat", "stored_type"]
