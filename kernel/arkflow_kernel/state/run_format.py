"""Runs as Arrow IPC with readable columns, and back to the bit (S6, S8, S9, S11).

One record batch, sorted by (key group, hash): `group`, `hash`, a column a key field, `value`,
`deadline_ms` where the state has a TTL, and `deleted`. A column of Float64 keys that met integers
which are none has one more beside it, `<field>_integer`. The schema's metadata say whose run it is.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array, raw
from arkflow_kernel.state.growing import Words
from arkflow_kernel.state.key_form import KeyPart, KeyTag, canonical, inexact, restored
from arkflow_kernel.state.run_rows import RunRows

FORMAT_VERSION = 1
"""Version of the runs that are written."""

Migration = Callable[[pa.RecordBatch, dict[str, Any]], tuple[pa.RecordBatch, dict[str, Any]]]

MIGRATIONS: dict[int, Migration] = {}
"""From a version to the next: a run's batch and its metadata (S9)."""

_META = b"arkflow.state"
_WIDE = pa.decimal128(20, 0)


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The state that a run is of."""

    namespace: str
    operator: str
    name: str
    key_fields: tuple[str, ...]
    value_type: pa.DataType


def to_batch(rows: RunRows, owner: RunOwner) -> pa.RecordBatch:
    """The entries as a record batch of the newest format; they are in order."""
    names, columns = ["group", "hash"], [as_array(rows.groups), as_array(rows.hashes)]
    integers: list[bool] = []
    for field, part, kind in zip(owner.key_fields, rows.parts, rows.types, strict=True):
        found = _key_columns(part, kind)
        for name, column in zip((field, f"{field}_integer"), found, strict=False):
            names.append(_named(name, names))
            columns.append(column)
        integers.append(len(found) > 1)
    names.append("value")
    columns.append(rows.values)
    if rows.deadlines is not None:
        names.append("deadline_ms")
        columns.append(as_array(rows.deadlines))
    names.append("deleted")
    columns.append(as_array(rows.deleted))
    meta = {
        "format_version": FORMAT_VERSION,
        "namespace": owner.namespace,
        "operator": owner.operator,
        "name": owner.name,
        "key_fields": list(owner.key_fields),
        "key_types": [str(kind) for kind in rows.types],
        "integers": integers,
        "value_type": str(owner.value_type),
        "ttl": rows.deadlines is not None,
    }
    fields = [pa.field(n, c.type) for n, c in zip(names, columns, strict=True)]
    schema = pa.schema(fields, {_META: json.dumps(meta, sort_keys=True).encode()})
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_OWN = ("group", "hash", "value", "deadline_ms", "deleted")


def _named(name: str, others: list[str]) -> str:
    """A name that no other column has: a key field may be called `value`."""
    name = f"key_{name}" if name in _OWN else name
    while name in others:
        name += "_"
    return name


@dataclass(frozen=True, slots=True)
class RunLayout:
    """What a run's metadata say, of the newest version."""

    key_fields: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    integers: tuple[bool, ...]
    value_type: str
    ttl: bool


def laid_out(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, RunLayout]:
    """A run of any known version, as one of the newest. Raises `RestoreError` (S9)."""
    found = (batch.schema.metadata or {}).get(_META)
    if found is None:
        raise pa.ArrowInvalid("not a run of keyed state: its schema says nothing of one")
    meta = json.loads(found)
    while (version := meta.get("format_version")) != FORMAT_VERSION:
        migration = MIGRATIONS.get(version)
        if migration is None:
            raise RestoreError(unknown_version(version))
        batch, meta = migration(batch, meta)
    return batch, RunLayout(
        tuple(meta["key_fields"]),
        tuple(parsed_type(kind) for kind in meta["key_types"]),
        tuple(meta["integers"]),
        meta["value_type"],
        meta["ttl"],
    )


def unknown_version(version: object) -> str:
    """What to tell of a version that cannot be read."""
    return (
        f"keyed state of format version {version} cannot be read: this release knows "
        f"{', '.join(map(str, sorted({*MIGRATIONS, FORMAT_VERSION})))}; use the release that "
        "wrote it, or start without its state (`--from-scratch`)"
    )


def knows(version: int) -> bool:
    """Whether runs of a version can be read (S9)."""
    return version == FORMAT_VERSION or version in MIGRATIONS


def from_batch(batch: pa.RecordBatch, layout: RunLayout) -> RunRows:
    """The entries of a run's batch, or of some of its rows; the inverse of `to_batch`."""
    place, parts = 2, []
    hashes = np.asarray(batch.column(1))
    known = hashes if len(layout.types) == 1 else None
    for kind, integers in zip(layout.types, layout.integers, strict=True):
        wide = batch.column(place + 1) if integers else None
        parts.append(_key_part(batch.column(place), wide, kind, known))
        place += 2 if integers else 1
    return RunRows(
        layout.types,
        np.asarray(batch.column(0)),
        hashes,
        tuple(parts),
        batch.column(place),
        np.asarray(batch.column(place + 1)) if layout.ttl else None,
        np.asarray(batch.column(batch.num_columns - 1)),
    )


def _key_columns(part: KeyPart, kind: pa.DataType) -> list[AnyArray]:
    if pa.types.is_floating(kind):
        wide = inexact(part.tags, part.words)
        if not wide.any():
            return [restored(part, kind)]
        floats = KeyPart(np.where(wide, np.uint8(KeyTag.NULL), part.tags), part.words)
        integers = KeyPart(np.where(wide, part.tags, np.uint8(KeyTag.NULL)), part.words)
        return [restored(floats, kind), restored(integers, pa.uint64()).cast(_WIDE)]
    return [restored(part, _LARGE.get(kind, kind))]


_LARGE: dict[pa.DataType, pa.DataType] = {
    pa.string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
}
"""Offsets of 64 bits: a run may hold more than 2 GiB of texts."""


def _key_part(
    column: AnyArray, wide: AnyArray | None, kind: pa.DataType, hashes: Words | None
) -> KeyPart:
    if column.type == _WIDE and pa.types.is_integer(kind):
        return _wide_part(column)
    part = canonical(column, hashes)
    if wide is None:
        return part
    integers = _wide_part(wide)
    mine = integers.tags == KeyTag.NULL
    tags = np.where(mine, part.tags, integers.tags)
    return KeyPart(tags, np.where(mine, part.words, integers.words))


def _wide_part(column: AnyArray) -> KeyPart:
    """Integers of both signs beyond Int64, from Decimal128: the low half of each is its word."""
    halves = raw(column.buffers()[1], np.uint64)[2 * column.offset :][: 2 * len(column)]
    words, high = halves[::2].copy(), halves[1::2]
    unsigned = (words >> np.uint64(63) == 1) & (high == 0)
    tags = np.where(unsigned, np.uint8(KeyTag.UINT), np.uint8(KeyTag.INT))
    nulls = np.asarray(column.is_null(), dtype=np.bool_)
    tags[nulls], words[nulls] = KeyTag.NULL, 0
    return KeyPart(tags, words)


_UNITS: tuple[Any, ...] = ("s", "ms", "us", "ns")
_KINDS: list[pa.DataType] = [
    pa.null(),
    pa.bool_(),
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.duration(unit) for unit in _UNITS),
    *(pa.timestamp(unit) for unit in _UNITS),
]
_SIMPLE = {str(kind): kind for kind in _KINDS}
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DECIMAL = re.compile(r"decimal(128|256)\((\d+), (-?\d+)\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")


def parsed_type(text: str) -> pa.DataType:
    """The type of a ledger, given what Arrow calls it. Raises `RestoreError` for any other."""
    if (simple := _SIMPLE.get(text)) is not None:
        return simple
    if found := _ZONED.fullmatch(text):
        unit: Any = found[1]
        return pa.timestamp(unit, found[2])
    if found := _DECIMAL.fullmatch(text):
        decimal = pa.decimal128 if found[1] == "128" else pa.decimal256
        return decimal(int(found[2]), int(found[3]))
    if found := _FIXED.fullmatch(text):
        return pa.binary(int(found[1]))
    raise RestoreError(f"keyed state has keys of type '{text}', which this release does not know")


__all__ = [
    "FORMAT_VERSION",
    "MIGRATIONS",
    "Migration",
    "RunLayout",
    "RunOwner",
    "from_batch",
    "knows",
    "laid_out",
    "parsed_type",
    "to_batch",
    "unknown_version",
]
