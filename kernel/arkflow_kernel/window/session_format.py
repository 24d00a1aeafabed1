"""Runs of sessions as Arrow with readable columns, and back to the bit (S6, S8, S9, S11).

One record batch, sorted by (key group, key, first): `group`, the key fields under their own names,
`first` and `last` (event times in ms, both of rows), `corrects` (see `session_runs.py`), and the
partial aggregates as `price_sum` and the like; of a count of distinct values a list of the values.
A key field that may hold integers and floats is its 64 bits, with what they mean in `<field>_tag`.
"""

import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.state.api import StateLayout
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state.key_columns import Ledger
from arkflow_kernel.state.run_format import parsed_type
from arkflow_kernel.window.aggregate_types import one_array, widened
from arkflow_kernel.window.aggregates import Family
from arkflow_kernel.window.keys import KeyForm
from arkflow_kernel.window.refusals import check_version, other_state
from arkflow_kernel.window.session_merge import Mask, Numbers
from arkflow_kernel.window.session_partials import NO_PARTIAL

FORMAT_VERSION = 1
"""Version of the runs that are written."""

ValueTypes = tuple[pa.DataType, ...]
"""The types of the aggregated fields (S10)."""

_META = b"arkflow.sessions"
_OWN = ("group", "first", "last", "corrects")


@dataclass(frozen=True, slots=True)
class SessionRun:
    """What a run says: per fragment its interval and its mark; `table` has key columns and
    partials, as they are in memory.
    """

    first: Numbers
    last: Numbers
    corrects: Mask
    table: pa.Table


class SessionFormat:
    """How the sessions of one operator are written. Immutable: used from any thread."""

    def __init__(
        self, operator: OperatorId, key_fields: tuple[str, ...], families: Seq[Family], gap_ms: int
    ) -> None:
        self._operator = operator
        self._key_fields = key_fields
        self._columns = _partial_columns(families)
        self._values = {"gap_ms": gap_ms, "partials": list(self._columns.values())}

    def value_type(self, types: ValueTypes) -> str:
        """What the layout of a snapshot says of the sessions' values, and of the fields' types."""
        return json.dumps(self._values | {"types": type_texts(types)})

    def written(
        self, form: KeyForm, groups: npt.NDArray[np.int32], run: SessionRun
    ) -> pa.RecordBatch:
        """A run of these fragments, which are in its order."""
        columns: dict[str, Any] = {"group": as_array(groups)}
        keys = {}
        for name in form.names:
            keys[name] = self._free(self._readable(name), columns)
            columns[keys[name]] = one_array(run.table.column(name))
        columns |= dict(
            zip(_OWN[1:], map(as_array, (run.first, run.last, run.corrects)), strict=True)
        )
        partials = {}
        for name, readable in self._columns.items():
            if name in run.table.column_names:
                partials[name] = self._free(readable, columns)
                columns[partials[name]] = one_array(run.table.column(name))
        meta = {
            "format_version": FORMAT_VERSION,
            "operator": self._operator,
            "keys": keys,
            "partials": partials,
        }
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        schema = pa.schema(fields, {_META: json.dumps(meta, sort_keys=True).encode()})
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)

    def _readable(self, name: str) -> str:
        """`key0_tag` as `<field>_tag`."""
        number, _, rest = name.removeprefix("key").partition("_")
        field = self._key_fields[int(number)]
        return f"{field}_{rest}" if rest else field

    def _free(self, name: str, others: dict[str, Any]) -> str:
        """A name that no other column has: a key field may be called `first`."""
        name = f"key_{name}" if name in _OWN else name
        while name in others:
            name += "_"
        return name

    def read(self, batch: pa.RecordBatch) -> SessionRun:
        """What a run, or some of its rows, says. Raises `pa.ArrowInvalid` for what is none (S9)."""
        found = (batch.schema.metadata or {}).get(_META)
        if found is None:
            raise pa.ArrowInvalid("not a run of sessions: its schema says nothing of one")
        meta = json.loads(found)
        check_version(meta.get("format_version"), FORMAT_VERSION, "sessions", self._operator)
        columns = {
            name: batch.column(readable)
            for name, readable in (*meta["keys"].items(), *meta["partials"].items())
        }
        return SessionRun(
            np.asarray(batch.column("first"), dtype=np.int64),
            np.asarray(batch.column("last"), dtype=np.int64),
            np.asarray(batch.column("corrects"), dtype=np.bool_),
            pa.table(columns),
        )

    def checked(self, layout: StateLayout) -> ValueTypes:
        """The types of the aggregated fields at the cut. Raises `RestoreError` if these sessions
        are not of the operator as it is now (S9).
        """
        check_version(layout.format_version, FORMAT_VERSION, "sessions", self._operator)
        if layout.key_fields != self._key_fields:
            what = (
                f"of sessions has keys of {', '.join(layout.key_fields) or 'no field'}, and the "
                f"job now keys by {', '.join(self._key_fields) or 'none'}"
            )
            raise other_state(self._operator, what)
        values = json.loads(layout.value_type)
        types = tuple(map(_parsed, values.pop("types")))
        for name, now in self._values.items():
            if values.get(name) != now:
                what = f"of sessions has {name} {values.get(name)}, and the job now has {now}"
                raise other_state(self._operator, what)
        return types


def _partial_columns(families: Seq[Family]) -> dict[str, str]:
    """The columns of partials in memory, and what they are called in runs."""
    main, *others = families
    columns = {name: main.names[name] for name in main.columns} or {NO_PARTIAL: NO_PARTIAL}
    for family in others:
        for name in (*family.extra, *family.columns):
            readable = family.names.get(name, name)
            columns[f"{family.name}.{name}"] = f"{family.name}.{readable}"
    return columns


_MORE: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
}


def _parsed(text: str) -> pa.DataType:
    """A value type, given what Arrow calls it."""
    return _MORE[text] if text in _MORE else parsed_type(text)


def both(known: ValueTypes, found: ValueTypes) -> ValueTypes:
    """The types that values of both ledgers go into. Raises `ValueTypeError`."""
    return tuple(widened(mine, other) for mine, other in zip(known, found, strict=True))


def type_texts(types: Ledger) -> tuple[str, ...]:
    """Types of a ledger as a snapshot has them."""
    return tuple(str(kind) for kind in types)


__all__ = ["FORMAT_VERSION", "SessionFormat", "SessionRun", "ValueTypes", "both", "type_texts"]
