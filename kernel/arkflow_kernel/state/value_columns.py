"""Values by slot, exact to the bit (S8): numbers and times in numpy, text and binary in a log.

A column is not transactional by itself: `saved` gives what stands at some slots, `put_back` brings
it back.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.errors import ComponentError
from arkflow_kernel.state.arrow_numpy import (
    AnyArray,
    all_null,
    as_array,
    assembled,
    lengths,
    nulls_of,
    raw,
    taken,
)
from arkflow_kernel.state.growing import Growing, Mask, Slots

Saved = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""What stood at some slots; only its column reads it."""

_COMPACT_ROWS_MIN = 8_192


class ValueColumn(Protocol):
    """Values of one Arrow type by slot."""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type that values have when they are read."""
        ...

    @property
    def size_bytes(self) -> int:
        """Memory that the column takes."""
        ...

    def read(self, slots: Slots, present: Mask) -> AnyArray:
        """Values of the slots; null where not `present`, whatever the slot there."""
        ...

    def write(self, slots: Slots, values: AnyArray) -> None:
        """Set the values of distinct slots."""
        ...

    def sizes(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Encoded bytes of the values at these slots."""
        ...

    def saved(self, slots: Slots) -> Saved:
        """What stands at these slots."""
        ...

    def put_back(self, slots: Slots, saved: Saved) -> None:
        """The inverse of `saved`."""
        ...

    def resize(self, slots: int) -> None:
        """Make room for so many slots, or forget those above."""
        ...

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0."""
        ...

    def settle(self) -> None:
        """Nothing that was saved will be put back: memory of replaced values may go."""
        ...


def value_column(kind: pa.DataType) -> ValueColumn:
    """The column for values of a type. Raises `ComponentError` for a nested type."""
    is_ = pa.types
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return LogColumn(kind, pa.large_string())
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind):
        return LogColumn(kind, pa.large_binary())
    if _is_fixed(kind):
        return FixedColumn(kind)
    raise ComponentError(f"a state of type {kind} is not supported; use one value a state")


def _is_fixed(kind: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_primitive(kind) or is_.is_decimal(kind) or is_.is_fixed_size_binary(kind)


def encoded_sizes(values: AnyArray) -> npt.NDArray[np.int64]:
    """Encoded bytes of each value: its width or its length; 0 for a null (S4)."""
    kind = values.type
    if _is_fixed(kind):
        sizes = np.full(len(values), max(1, kind.bit_width // 8), np.int64)
    else:
        sizes = lengths(_large(values))
    if values.null_count:
        sizes = np.where(nulls_of(values), 0, sizes)
    return sizes


def _large(values: AnyArray) -> AnyArray:
    kind = values.type
    text = pa.types.is_string(kind) or pa.types.is_string_view(kind)
    if text or pa.types.is_large_string(kind):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary())


class FixedColumn:
    """Values of fixed width, their bits as they came. An Int64 one counts in place."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._width = max(1, kind.bit_width // 8)
        whole = self._width in (1, 2, 4, 8)
        self._dtype = np.dtype(f"<i{self._width}" if whole else f"V{self._width}")
        self.values: Growing[Any] = Growing(self._dtype)
        self._valid: Growing[np.bool_] = Growing(np.bool_)

    @property
    def size_bytes(self) -> int:
        """Memory that the column takes."""
        return self.values.room.nbytes + self._valid.room.nbytes

    def read(self, slots: Slots, present: Mask) -> AnyArray:
        """Values of the slots; null where not `present`."""
        bits = self.values.room[slots]
        valid = self._valid.room[slots] & present
        if pa.types.is_boolean(self.type):
            return as_array(bits != 0, ~valid)
        flags = None if valid.all() else np.packbits(valid, bitorder="little")
        return assembled(self.type, len(bits), [flags, bits])

    def write(self, slots: Slots, values: AnyArray) -> None:
        """Set the values of distinct slots."""
        if pa.types.is_boolean(self.type):
            bits = np.asarray(values.cast(pa.int8()).fill_null(0))
        else:
            start = values.offset * self._width
            size = len(values) * self._width
            bits = raw(values.buffers()[1], np.uint8)[start : start + size].view(self._dtype)
        self.values.room[slots] = bits
        self._valid.room[slots] = ~nulls_of(values)

    def numbers(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Int64 values of the slots, 0 for null."""
        return np.where(self._valid.room[slots], self.values.room[slots], 0)

    def all_valid(self, slots: Slots) -> bool:
        """Whether none of these slots has a null."""
        return bool(self._valid.room[slots].all())

    def write_numbers(self, slots: Slots, numbers: npt.NDArray[np.int64]) -> None:
        """Set the Int64 values of distinct slots."""
        self.values.room[slots] = numbers
        self._valid.room[slots] = True

    def sizes(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Encoded bytes of the values at these slots."""
        return self._valid.room[slots].astype(np.int64) * self._width

    def saved(self, slots: Slots) -> Saved:
        """What stands at these slots."""
        return self.values.room[slots], self._valid.room[slots]

    def put_back(self, slots: Slots, saved: Saved) -> None:
        """The inverse of `saved`."""
        self.values.room[slots], self._valid.room[slots] = saved

    def resize(self, slots: int) -> None:
        """Make room for so many slots, or forget those above."""
        self.values.extend_to(slots)
        self.values.truncate(slots)
        self._valid.extend_to(slots, False)
        self._valid.truncate(slots)

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0."""
        self.values.keep(slots)
        self._valid.keep(slots)

    def settle(self) -> None:
        """Values are replaced in place: nothing to do."""


class LogColumn:
    """Values of any length: each write appends a chunk, a slot holds its row in the log, or -1.

    Chunks merge by size, so there are few; the log is rewritten when more than half of it is
    replaced values.
    """

    def __init__(self, kind: pa.DataType, stored: pa.DataType) -> None:
        self.type = kind
        self._stored = stored
        self._rows: Growing[np.int64] = Growing(np.int64)
        self._sizes: Growing[np.int64] = Growing(np.int64)
        self._chunks: list[AnyArray] = []
        self._length = 0

    @property
    def size_bytes(self) -> int:
        """Memory that the column takes."""
        held = sum(chunk.get_total_buffer_size() for chunk in self._chunks)
        return self._rows.room.nbytes + self._sizes.room.nbytes + held

    def read(self, slots: Slots, present: Mask) -> AnyArray:
        """Values of the slots; null where not `present`."""
        rows = np.where(present, self._rows.room[slots], -1)
        return self._gather(rows).cast(self.type)

    def _gather(self, rows: Slots) -> AnyArray:
        """Take from few chunks: from each what it has, then all into the order asked for."""
        starts = np.cumsum([0, *(len(chunk) for chunk in self._chunks)])
        owners = np.searchsorted(starts, rows, side="right") - 1
        order = np.argsort(owners, kind="stable")
        pieces = [all_null(int((owners < 0).sum()), self._stored)]
        for number, chunk in enumerate(self._chunks):
            mine = rows[owners == number] - starts[number]
            pieces.append(taken(chunk, mine))
        inverse = np.empty(len(rows), np.int64)
        inverse[order] = np.arange(len(rows))
        return taken(pa.concat_arrays(pieces), inverse)

    def write(self, slots: Slots, values: AnyArray) -> None:
        """Set the values of distinct slots."""
        if not len(values):
            return
        # A slice would keep the whole batch alive.
        chunk = pa.concat_arrays([values.cast(self._stored), all_null(0, self._stored)])
        self._rows.room[slots] = np.arange(self._length, self._length + len(chunk))
        self._sizes.room[slots] = encoded_sizes(values)
        self._chunks.append(chunk)
        self._length += len(chunk)

    def sizes(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Encoded bytes of the values at these slots."""
        return self._sizes.room[slots]

    def saved(self, slots: Slots) -> Saved:
        """What stands at these slots."""
        return self._rows.room[slots], self._sizes.room[slots]

    def put_back(self, slots: Slots, saved: Saved) -> None:
        """The inverse of `saved`."""
        self._rows.room[slots], self._sizes.room[slots] = saved

    def resize(self, slots: int) -> None:
        """Make room for so many slots, or forget those above."""
        self._rows.extend_to(slots, -1)
        self._rows.truncate(slots)
        self._sizes.extend_to(slots, 0)
        self._sizes.truncate(slots)

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0."""
        self._rows.keep(slots)
        self._sizes.keep(slots)

    def settle(self) -> None:
        """Merge chunks, and rewrite the log when most of it is replaced."""
        while len(self._chunks) > 1 and len(self._chunks[-2]) <= 2 * len(self._chunks[-1]):
            last = self._chunks.pop()
            self._chunks[-1] = pa.concat_arrays([self._chunks[-1], last])
        if self._length > 2 * self._rows.size + _COMPACT_ROWS_MIN:
            kept = self._gather(self._rows.items)
            self._chunks, self._length = [kept], len(kept)
            self._rows.room[: self._rows.size] = np.arange(len(kept))


__all__ = ["FixedColumn", "LogColumn", "Saved", "ValueColumn", "encoded_sizes", "value_column"]
