"""The keys of a window operator: columns that Arrow's grouping takes, and their type ledger (S10).

A key field is one column, `key0`, `key1`, ..., as it came: text as `string`, integers as `int64`,
times, booleans and decimals as they are. Only where a field may hold integers and floats, or
integers beyond Int64, is it two: `key0` has the 64 bits and `key0_tag` says what they mean
(`key_form.KeyTag`). So equal keys are equal in each column, and a null is a key like others.

As ArkFlow's text a key is printed as it is read: a float with an integral value within 2^53 as
that integer, a binary in hex, several fields with a comma between them. A null key stays null; the
rows of an operator without keys have the key `__all__`.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.key_groups import key_hashes
from arkflow_kernel.state.api import Settling, StateJournal
from arkflow_kernel.state.arrow_numpy import (
    AnyArray,
    all_null,
    as_array,
    assembled,
    lengths,
    nulls_of,
    raw,
)
from arkflow_kernel.state.growing import Words
from arkflow_kernel.state.key_columns import Ledger, key_columns, widened_ledger
from arkflow_kernel.state.key_form import KeyPart, KeyTag, canonical, restored
from arkflow_kernel.state.key_types import key_type
from arkflow_kernel.window.aggregate_types import decoded, one_array

ALL_ROWS = "__all__"
"""The key's text where there are no keys."""


class KeyForm:
    """How keys of some types lie in the columns of tables. Immutable."""

    def __init__(self, types: Ledger) -> None:
        self.types = types
        self._tagged = tuple(_is_tagged(kind) for kind in types)
        self.names = tuple(name for n in range(len(types)) for name in self._names(n))
        """The key columns of a table, in order."""

    def _names(self, field: int) -> tuple[str, ...]:
        name = f"key{field}"
        return (name, f"{name}_tag") if self._tagged[field] else (name,)

    def columns(self, arrays: Seq[AnyArray]) -> dict[str, AnyArray]:
        """The key columns of a batch, given its key fields, whose types go into these."""
        made: dict[str, AnyArray] = {}
        for number, (array, kind) in enumerate(zip(arrays, self.types, strict=True)):
            formed = _formed(array, kind)
            made.update(zip(self._names(number), formed, strict=True))
        return made

    def aligned(self, table: pa.Table) -> pa.Table:
        """A table of this ledger or an earlier one, as one of this."""
        for number, kind in enumerate(self.types):
            name, *tag = self._names(number)
            place = table.schema.get_field_index(name)
            wanted = _column_type(kind)
            found = table.schema.field(place).type
            if found != wanted:
                column: Any = all_null(table.num_rows, wanted)
                if not pa.types.is_null(found):
                    column = table.column(place).cast(wanted)
                table = table.set_column(place, name, column)
            if tag and tag[0] not in table.column_names:
                nulls = np.asarray(table.column(place).is_null(), dtype=np.bool_)
                tags = np.where(nulls, np.uint8(KeyTag.NULL), np.uint8(KeyTag.INT))
                table = table.add_column(place + 1, tag[0], as_array(tags))
        return table

    def parts(self, table: pa.Table) -> "list[AnyArray | KeyPart]":
        """The keys of a table, a field each: an array of the ledger's type, or canonical values."""
        found: list[AnyArray | KeyPart] = []
        for number, kind in enumerate(self.types):
            name, *tag = self._names(number)
            column = one_array(table.column(name))
            if tag:
                words: Any = column.fill_null(0)
                tags = np.asarray(one_array(table.column(tag[0])), dtype=np.uint8)
                found.append(KeyPart(tags, np.asarray(words).view(np.uint64)))
            else:
                found.append(column if column.type == kind else all_null(len(column), kind))
        return found

    def restored(self, table: pa.Table) -> list[AnyArray]:
        """The keys of a table's rows, one array a field, of the ledger's types.

        An integer that Float64 does not hold becomes the nearest that it does; integers of both
        signs beyond Int64 come as Decimal128.
        """
        return [
            restored(part, kind) if isinstance(part, KeyPart) else part
            for part, kind in zip(self.parts(table), self.types, strict=True)
        ]

    def texts(self, table: pa.Table) -> AnyArray:
        """The key of each row as ArkFlow's text; null for a null."""
        if not self.types:
            every: AnyArray = pa.repeat(ALL_ROWS, table.num_rows)
            return every
        texts: list[Any] = [_text(part) for part in self.parts(table)]
        if len(texts) == 1:
            return texts[0]  # type: ignore[no-any-return]  # Arrow's stubs are not generic here
        shown = [pc.fill_null(text, "null") for text in texts]
        joined: AnyArray = pc.binary_join_element_wise(*shown, ", ")
        return joined

    def hashes(self, table: pa.Table) -> Words:
        """What key groups are made of (G3), for each row; 0 where there are no keys."""
        if not self.types:
            return np.zeros(table.num_rows, np.uint64)
        # Tagged words are the integers that such keys are hashed as.
        return key_hashes([one_array(table.column(f"key{n}")) for n in range(len(self.types))])


class KeyLedger:
    """The key columns of an operator's batches; their types widen with them (S10)."""

    def __init__(self, fields: tuple[str, ...], operator: OperatorId) -> None:
        self.fields = fields
        self.form = KeyForm(tuple(pa.null() for _ in fields))
        self._operator = operator
        self._staged: Callable[[Callable[[], None]], None] | None = None

    @property
    def types(self) -> Ledger:
        """The types so far."""
        return self.form.types

    @property
    def names(self) -> tuple[str, ...]:
        """The key columns of a table, in order."""
        return self.form.names

    def undone_by(self, journal: StateJournal, state: Settling) -> None:
        """A widening goes with the item that brought it, if that fails: as a write of `state`."""

        def stage(undo: Callable[[], None]) -> None:
            journal.stage(state, 0, undo)

        self._staged = stage

    def columns(self, batch: pa.RecordBatch) -> dict[str, AnyArray]:
        """The key columns of a batch.

        Raises `ProcessingError` for a key field that is missing, is of no type for keys, or of one
        that cannot follow those before, and leaves the ledger as it was.
        """
        if not self.fields:
            return {}
        arrays = key_columns(batch, self.fields, self._operator)
        known, found = self.form, [key_type(array.type) for array in arrays]
        types = widened_ledger(self.fields, known.types, found, self._operator)
        if types != known.types:
            if self._staged is not None:
                self._staged(lambda: self._back_to(known))
            self.form = KeyForm(types)
        return self.form.columns(arrays)

    def _back_to(self, form: KeyForm) -> None:
        self.form = form

    def learn(self, types: Ledger) -> None:
        """Widen by what a restored state knows; before the first item."""
        self.form = KeyForm(widened_ledger(self.fields, self.types, types, self._operator))

    def restored(self, table: pa.Table) -> list[AnyArray]:
        """See `KeyForm.restored`."""
        return self.form.restored(table)

    def texts(self, table: pa.Table) -> AnyArray:
        """See `KeyForm.texts`."""
        return self.form.texts(table)


def _is_tagged(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or kind == pa.uint64()


def _column_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if _is_tagged(kind) else kind


def _formed(array: AnyArray, kind: pa.DataType) -> tuple[AnyArray, ...]:
    """A key field's columns; `kind` is what the ledger says after it."""
    array = decoded(array)
    if not _is_tagged(kind):
        if array.type == kind:
            return (array,)
        if pa.types.is_null(array.type):
            return (all_null(len(array), kind),)
        return (array.cast(kind),)
    part = canonical(array)
    nulls = part.tags == KeyTag.NULL
    words = as_array(part.words.view(np.int64), nulls if nulls.any() else None)
    return words, as_array(part.tags)


def _text(part: AnyArray | KeyPart) -> AnyArray:
    if isinstance(part, KeyPart):
        return _number_text(part)
    kind = part.type
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _hex(part)
    return part if kind == pa.string() else part.cast(pa.string())


def _number_text(part: KeyPart) -> AnyArray:
    """Integers of either sign and floats, each as it is read."""
    tags, untyped = part.tags, pc
    signed = pa.array(part.words.view(np.int64), mask=tags != KeyTag.INT).cast(pa.string())
    unsigned = pa.array(part.words, mask=tags != KeyTag.UINT).cast(pa.string())
    floats = pa.array(part.words.view(np.float64), mask=tags != KeyTag.FLOAT).cast(pa.string())
    text: AnyArray = untyped.coalesce(signed, unsigned, floats)
    return text


_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def _hex(values: AnyArray) -> AnyArray:
    """Two hex digits a byte."""
    plain: Any = values.cast(pa.large_binary())
    plain = pa.concat_arrays([plain.fill_null(b""), pa.array([], pa.large_binary())])
    sizes = lengths(plain)
    offsets = np.concatenate([[0], np.cumsum(2 * sizes)]).astype(np.int64)
    first = int(raw(plain.buffers()[1], np.int64)[plain.offset]) if len(plain) else 0
    data = raw(plain.buffers()[2], np.uint8)[first : first + int(sizes.sum())]
    text = assembled(pa.large_string(), len(plain), [None, offsets, _DIGITS[data].reshape(-1)])
    nulls: Any = pa.array(nulls_of(values))
    shown: AnyArray = pc.if_else(nulls, pa.scalar(None, pa.string()), text.cast(pa.string()))
    return shown


__all__ = ["ALL_ROWS", "KeyForm", "KeyLedger"]
