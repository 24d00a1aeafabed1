"""Event time out of a column: int64 milliseconds, with what is null and what does not fit (W5).

What a column may be
- an integer of any width: milliseconds since 1970-01-01 UTC;
- a timestamp in s, ms, us or ns: floor-divided to milliseconds, so what is before 1970 falls into
  the millisecond in which it is. With a zone it is an instant already; without one it is UTC;
- a date: its midnight in UTC;
- a column of nulls: no row has a time;
- one of these with a dictionary or run-end encoded.

Everything else is refused, floats and text too: nobody can tell seconds from milliseconds, or
which text is meant. A time beyond `TIME_LIMIT_MS` does not fit. The limit is far inside of int64,
so that windows can add sizes and bounds to any time that passed here; and a value like the
greatest int64, which many use for "none", does not carry a watermark to the end of all times.

No column is copied unless its unit or width asks for it, and nothing passes through nanoseconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.errors import ArkflowError, ProcessingError

if TYPE_CHECKING:
    AnyArray: TypeAlias = pa.Array[Any]
else:
    AnyArray: TypeAlias = pa.Array  # has no parameter outside of its stubs

Int64s: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

TIME_LIMIT_MS: Final = 2**62
"""No event time is this far from 1970, before or after (about 146 million years)."""

DAY_MS: Final = 86_400_000

_IN_A_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_MS_IN_A_SECOND: Final = 1_000


class TimeColumnError(ArkflowError):
    """A batch has no event time where it should be: there is no such column, or of no such type."""


@dataclass(frozen=True, slots=True)
class Times:
    """The event times of a batch, one a row.

    `ms`: int64 milliseconds since 1970-01-01 UTC, 0 in rows that are not valid. It may be the
    column's own memory: not to be written to. `valid` is None if every row has a time. `overflow`
    marks rows whose time does not fit, None: no row. What is neither is null.
    """

    ms: Int64s
    valid: Mask | None = None
    overflow: Mask | None = None


def times_of(batch: pa.RecordBatch, field: str) -> Times:
    """The event times of a batch, from its column `field`. Raises `TimeColumnError`."""
    places = batch.schema.get_all_field_indices(field)
    if len(places) == 1:
        return milliseconds(batch.column(places[0]), field)
    there = "no column" if not places else f"{len(places)} columns"
    names = ", ".join(f"'{name}'" for name in batch.schema.names) or "no columns"
    raise TimeColumnError(f"{there} '{field}' for the event time; the batch has {names}")


def operator_times(batch: pa.RecordBatch, field: str, operator: str) -> Times:
    """`times_of` for an operator, for which a time that does not fit is an error of the batch.

    Raises `ProcessingError`; `overflow` of the result is None.
    """
    try:
        times = times_of(batch, field)
        if times.overflow is not None:
            kind = batch.schema.field(field).type
            raise TimeColumnError(overflow_text(field, kind))
    except TimeColumnError as error:
        raise ProcessingError(operator, str(error), error_class="TimeColumnError") from error
    return times


def overflow_text(field: str, kind: pa.DataType) -> str:
    """What is wrong with a value that does not fit. `kind`: the type of its column."""
    return (
        f"the event time in '{field}', of type {kind}, does not fit: it is {TIME_LIMIT_MS} ms or "
        "more from 1970-01-01 (146 million years); is it in another unit?"
    )


def milliseconds(column: AnyArray, field: str) -> Times:
    """The event times of a column. `field` is its name, for errors. Raises `TimeColumnError`."""
    column = _decoded(column)
    kind, is_ = column.type, pa.types
    if is_.is_null(kind):
        return _times(np.zeros(len(column), np.int64), np.ones(len(column), np.bool_))
    null = np.asarray(column.is_null(), dtype=np.bool_) if column.null_count else None
    if is_.is_timestamp(kind) and kind.unit == "s":
        limit = -(-TIME_LIMIT_MS // _MS_IN_A_SECOND)
        seconds = _within(_memory(column, np.int64), null, limit)
        return Times(seconds.ms * _MS_IN_A_SECOND, seconds.valid, seconds.overflow)
    if is_.is_timestamp(kind) and kind.unit != "ms":
        return _times(_memory(column, np.int64) // _IN_A_MS[kind.unit], null)
    if is_.is_date32(kind):
        return _times(_memory(column, np.int32) * np.int64(DAY_MS), null)
    if is_.is_timestamp(kind) or is_.is_date64(kind):
        return _within(_memory(column, np.int64), null)
    if is_.is_integer(kind):
        return _within(_memory(column, np.dtype(str(kind))), null)
    raise TimeColumnError(_refusal(kind, field))


def raw_values(column: AnyArray) -> AnyArray:
    """The values of a column of times as plain integers, in the column's own unit."""
    untyped: Any = _decoded(column)
    raw: AnyArray = untyped if pa.types.is_integer(untyped.type) else untyped.cast(pa.int64())
    return raw


def _within(values: npt.NDArray[Any], null: Mask | None, limit: int = TIME_LIMIT_MS) -> Times:
    """Integers of any width, of which those that are `limit` or more from 0 do not fit."""
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if -limit < lowest and highest < limit:
        return _times(values.astype(np.int64, copy=False), null)
    beyond: Mask = values >= limit
    if lowest < 0:
        beyond |= values <= -limit
    if null is not None:
        beyond &= ~null  # the memory under a null may hold anything
    return _times(values, null, beyond if bool(beyond.any()) else None)


def _times(values: npt.NDArray[Any], null: Mask | None, overflow: Mask | None = None) -> Times:
    """Together. Rows without a time hold 0: nobody computes with what their memory holds."""
    gone = null
    if overflow is not None:
        gone = overflow if null is None else null | overflow
    if gone is None or not gone.size:
        return Times(values.astype(np.int64, copy=False))
    return Times(np.where(gone, 0, values).astype(np.int64, copy=False), ~gone, overflow)


def _decoded(column: AnyArray) -> AnyArray:
    """The values of a column that is encoded by a dictionary or by runs."""
    untyped: Any = column
    if pa.types.is_dictionary(column.type):
        return _decoded(untyped.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return _decoded(pc.call_function("run_end_decode", [untyped]))
    return column


def _memory(column: AnyArray, item: Any) -> npt.NDArray[Any]:
    """The values of a column of a fixed width, as they lie in memory; any value under a null."""
    buffer: Any = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), item)
    width = np.dtype(item).itemsize
    return np.frombuffer(buffer, item, len(column), column.offset * width)


def _refusal(kind: pa.DataType, field: str) -> str:
    told = f"column '{field}' of type {kind} holds no event time"
    needs = "it must be an integer (milliseconds since 1970), a timestamp or a date"
    if not (pa.types.is_floating(kind) or pa.types.is_string(kind)):
        return f"{told}; {needs}"
    advice = f"read from JSON, `types: {{{field}: int}}` keeps it an integer, and only the rows"
    return f"{told}; {needs}; {advice} that hold something else are bad"


Mark = TypeVar("Mark", bound=int)


def had_by_all(marks: Iterable[Mark | None]) -> Mark | None:
    """The mark, such as a watermark, that all of several had had; None if one had none, or there
    are none. What fires for the least of them fires twice rather than never.
    """
    found = list(marks)
    known = [mark for mark in found if mark is not None]
    return min(known) if known and len(known) == len(found) else None


__all__ = [
    "DAY_MS",
    "TIME_LIMIT_MS",
    "TimeColumnError",
    "Times",
    "had_by_all",
    "milliseconds",
    "operator_times",
    "overflow_text",
    "raw_values",
    "times_of",
]
