"""Runs of kept rows as Arrow IPC with readable columns, and back to the bit (S6, S8, S9).

One record batch, sorted by (key group, number): `group`, `time` (ms), `number` (order of arrival),
`fired_from`, `schema`, and the columns of the rows. Batches of several schemas may be in one run,
and none of their types may change: a column stands there once for each type that it came with,
null in rows of other schemas. So every schema is readable, and nothing is kept as opaque bytes.
The schemas themselves, and which columns they have, are in the metadata.

An entry with `fired_from` is a tombstone: rows of its key (of its group, if the windows have no
keys of their own) with a time from `fired_from` to `time` were released.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from arkflow_kernel.state.arrow_numpy import AnyArray, as_array
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.kept_chunks import Groups
from arkflow_kernel.window.kept_keys import columns_of
from arkflow_kernel.window.key_numbers import KeyNumbers
from arkflow_kernel.window.refusals import check_version
from arkflow_kernel.window.row_batches import nulls, rows_at
from arkflow_kernel.window.spans import Spans, SpanSearch

FORMAT_VERSION = 1
"""Version of the runs that are written."""

ROWS = "kept rows"
"""What errors call the entries."""

_META = b"arkflow.kept_rows"
_OWN = ("group", "time", "number", "fired_from", "schema")
_PIECE_ROWS = 1 << 16
"""Rows of a restored run that lie together."""

_LARGE: dict[pa.DataType, pa.DataType] = {
    pa.string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
}
"""Offsets of 64 bits: a run may hold more than 2 GiB of texts."""


@dataclass(frozen=True, slots=True)
class RunPiece:
    """Entries of one schema, in order of arrival. `since`: their `fired_from`; None: kept rows."""

    batch: pa.RecordBatch
    groups: Groups
    times: Times
    numbers: Slots
    since: Times | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, mask: Mask) -> "RunPiece":
        """The entries that the mask marks."""
        if mask.all():
            return self
        places = np.flatnonzero(mask)
        return RunPiece(
            rows_at(self.batch, places),
            self.groups[places],
            self.times[places],
            self.numbers[places],
            None if self.since is None else self.since[places],
        )


# --- writing -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Columns:
    """The columns of a run: those of one name, type and order are one."""

    names: list[str] = field(default_factory=lambda: list(_OWN))
    types: list[pa.DataType] = field(default_factory=list)
    places: dict[tuple[str, int, pa.DataType], int] = field(default_factory=dict)

    def of(self, schema: pa.Schema) -> list[int]:
        """Which of them hold the columns of a schema, new ones where there are none."""
        seen = Counter[str]()
        found = []
        for each in schema:
            key = (each.name, seen[each.name], each.type)
            seen[each.name] += 1
            if key not in self.places:
                self.places[key] = len(self.types)
                self.names.append(self._free(each.name))
                self.types.append(_LARGE.get(each.type, each.type))
            found.append(self.places[key])
        return found

    def _free(self, name: str) -> str:
        name = f"row_{name}" if name in _OWN else name
        while name in self.names:
            name += "_"
        return name


def run_of(pieces: Seq[RunPiece], owner: dict[str, Any]) -> pa.RecordBatch | None:
    """One run of these entries; None if there are none. `owner` says in its metadata whose it is.

    Of one key group and number the earlier piece stands first.
    """
    pieces = [piece for piece in pieces if len(piece)]
    if not pieces:
        return None
    schemas: list[tuple[pa.Schema, bool]] = []
    numbers = [_number_of(schemas, piece) for piece in pieces]
    columns = _Columns()
    layouts = [columns.of(schema) for schema, _ in schemas]
    arrays = _own_columns(pieces, numbers)
    for place, kind in enumerate(columns.types):
        parts = [
            _part(piece, layouts[number], place, kind)
            for piece, number in zip(pieces, numbers, strict=True)
        ]
        arrays.append(pa.concat_arrays(parts))
    listed = [
        {"ipc": _encoded(schema), "columns": layout, "fired": fired}
        for (schema, fired), layout in zip(schemas, layouts, strict=True)
    ]
    meta = {"format_version": FORMAT_VERSION, **owner, "schemas": listed}
    fields = [pa.field(n, a.type) for n, a in zip(columns.names, arrays, strict=True)]
    schema = pa.schema(fields, {_META: json.dumps(meta, sort_keys=True).encode()})
    return _in_order(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _number_of(schemas: list[tuple[pa.Schema, bool]], piece: RunPiece) -> int:
    mine, fired = piece.batch.schema, piece.since is not None
    for number, (schema, other) in enumerate(schemas):
        if fired == other and schema.equals(mine, check_metadata=True):
            return number
    schemas.append((mine, fired))
    return len(schemas) - 1


def _own_columns(pieces: Seq[RunPiece], numbers: Seq[int]) -> list[AnyArray]:
    groups = np.concatenate([piece.groups for piece in pieces])
    times = np.concatenate([piece.times for piece in pieces])
    order = np.concatenate([piece.numbers for piece in pieces])
    since = [
        pa.nulls(len(piece), pa.int64()) if piece.since is None else as_array(piece.since)
        for piece in pieces
    ]
    schemas = np.repeat(np.array(numbers, np.int32), [len(piece) for piece in pieces])
    return [*map(as_array, (groups, times, order)), pa.concat_arrays(since), as_array(schemas)]


def _part(piece: RunPiece, layout: list[int], place: int, kind: pa.DataType) -> AnyArray:
    if place not in layout:
        return nulls(len(piece), kind)
    column = piece.batch.column(layout.index(place))
    return column if column.type == kind else column.cast(kind)


def _in_order(run: pa.RecordBatch) -> pa.RecordBatch:
    groups, numbers = np.asarray(run.column(0)), np.asarray(run.column(2))
    return rows_at(run, np.lexsort((numbers, groups)))


def _encoded(schema: pa.Schema) -> str:
    return schema.serialize().to_pybytes().hex()


# --- reading -------------------------------------------------------------------------------------


def pieces_of(run: pa.RecordBatch, *, fired: bool | None = None) -> Iterator[RunPiece]:
    """The entries of a run, or of some of its rows, with the schemas that they had.

    `fired`: only the tombstones, or only the kept rows; None: both. Raises `RestoreError` for a
    version that is not known, `pa.ArrowInvalid` for what is no run.
    """
    found = (run.schema.metadata or {}).get(_META)
    if found is None:
        raise pa.ArrowInvalid("not a run of kept rows: its schema says nothing of one")
    meta = json.loads(found)
    check_version(meta.get("format_version"), FORMAT_VERSION, ROWS)
    numbers = np.asarray(run.column(4))
    for number, listed in enumerate(meta["schemas"]):
        if fired not in (None, listed["fired"]):
            continue
        schema = ipc.read_schema(pa.py_buffer(bytes.fromhex(listed["ipc"])))
        mine = np.flatnonzero(numbers == number)
        mine = mine[np.argsort(np.asarray(run.column(2))[mine], kind="stable")]
        entries = run.select([0, 1, 2, 3, *(len(_OWN) + place for place in listed["columns"])])
        for first in range(0, len(mine), _PIECE_ROWS):
            rows = rows_at(entries, mine[first : first + _PIECE_ROWS])
            yield _piece(rows, schema, fired=listed["fired"])


def _piece(rows: pa.RecordBatch, schema: pa.Schema, *, fired: bool) -> RunPiece:
    if len(schema):
        cast = [
            column if column.type == each.type else column.cast(each.type)
            for column, each in zip(rows.columns[4:], schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(cast, schema=schema)
    else:
        batch = rows.select([]).replace_schema_metadata(schema.metadata)
    return RunPiece(
        batch,
        np.asarray(rows.column(0)),
        np.asarray(rows.column(1)),
        np.asarray(rows.column(2)),
        np.asarray(rows.column(3)) if fired else None,
    )


# --- tombstones ----------------------------------------------------------------------------------


def alive(pieces: Seq[RunPiece], keys: tuple[str, ...]) -> tuple[list[RunPiece], list[RunPiece]]:
    """The rows that no tombstone among the pieces is for; and the tombstones.

    `keys` are the fields that a window has its own rows by, () if there are none.
    """
    rows = [piece for piece in pieces if piece.since is None]
    fired = [piece for piece in pieces if piece.since is not None]
    return list(Tombstones(fired, keys).left(rows)), fired


class Tombstones:
    """What says of some windows that they were released. `keys` as in `alive`."""

    def __init__(self, fired: Seq[RunPiece], keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._numbers = KeyNumbers(len(keys))
        spans = Spans.joined(
            [Spans(self._slots(piece), _since(piece), piece.times) for piece in fired]
        )
        self._search = SpanSearch(spans) if len(spans) else None
        self._keys_known = self._numbers.size

    def _slots(self, piece: RunPiece) -> Slots:
        """Which key each entry is of: a number that is the same for all entries of it."""
        if not self._keys:
            return piece.groups.astype(np.int64)
        return self._numbers.of_columns(columns_of(piece.batch, self._keys), len(piece))

    def left(self, rows: Iterable[RunPiece]) -> Iterator[RunPiece]:
        """The kept rows that none of them is for."""
        for piece in rows:
            kept = piece
            if self._search is not None:
                kept = piece.where(~self._search.cover(self._slots(piece), piece.times))
                self._numbers.truncate(self._keys_known)  # keys of rows alone need no memory
            if len(kept):
                yield kept


def _since(piece: RunPiece) -> Times:
    assert piece.since is not None
    return piece.since


__all__ = [
    "FORMAT_VERSION",
    "ROWS",
    "RunPiece",
    "Tombstones",
    "alive",
    "pieces_of",
    "run_of",
]
