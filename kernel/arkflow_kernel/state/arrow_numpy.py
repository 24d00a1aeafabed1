"""Between Arrow arrays and numpy, without a copy where the memory allows it."""

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Item = TypeVar("Item", bound=np.generic)

if TYPE_CHECKING:
    AnyArray: TypeAlias = pa.Array[Any]
else:
    AnyArray: TypeAlias = pa.Array  # has no parameter outside of its stubs


_VIEWS: dict[Any, pa.DataType] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def taken(values: AnyArray, rows: "npt.NDArray[np.int64] | pa.Array[Any]") -> AnyArray:
    """The values of these rows; those of a view are not one any more (it cannot be taken from)."""
    index: Any = rows if isinstance(rows, pa.Array) else pa.array(rows)
    plain = _VIEWS.get(values.type)
    return values.take(index) if plain is None else values.cast(plain).take(index)


def raw(buffer: pa.Buffer | None, item: type[Item]) -> npt.NDArray[Item]:
    """The memory of a buffer; empty if there is none."""
    if buffer is None:
        return np.zeros(0, item)
    memory: Any = buffer
    return np.frombuffer(memory, item)


def assembled(kind: pa.DataType, count: int, columns: "list[npt.NDArray[Any] | None]") -> AnyArray:
    """An Arrow array over the memory of numpy arrays, given in the order of its buffers."""
    buffers: list[Any] = []
    for column in columns:
        memory: Any = column
        buffers.append(None if column is None else pa.py_buffer(memory))
    array: AnyArray = pa.Array.from_buffers(kind, count, buffers)
    return array


def nulls_of(values: AnyArray) -> npt.NDArray[np.bool_]:
    """Which values are null."""
    return np.asarray(values.is_null(), dtype=np.bool_)


def as_array(values: Any, mask: npt.NDArray[np.bool_] | None = None) -> AnyArray:
    """An Arrow array of a numpy array; null where `mask` is set."""
    array: AnyArray = pa.array(values, mask=mask)
    return array


def all_null(count: int, kind: pa.DataType) -> AnyArray:
    """Nulls of a type."""
    array: AnyArray = pa.array([None] * count, kind)
    return array


def filled(values: AnyArray, fill: Any) -> AnyArray:
    """The values, with `fill` for null."""
    untyped: Any = values
    array: AnyArray = untyped.fill_null(fill) if values.null_count else values
    return array


def lengths(values: AnyArray) -> npt.NDArray[np.int64]:
    """Bytes of each text or binary; 0 for null."""
    untyped: Any = values
    return np.asarray(filled(pc.binary_length(untyped), 0), dtype=np.int64)


__all__ = [
    "AnyArray",
    "all_null",
    "as_array",
    "assembled",
    "filled",
    "lengths",
    "nulls_of",
    "raw",
    "taken",
]
