"""The keys of both sides of a join: numbers that are equal where keys are, one type for both (S10).

A null has the number `NULL_KEY` and is equal to nothing. Numbers are given anew when most of them
are of keys without rows.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Protocol

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.join.join_runs import NULL_KEY
from arkflow_kernel.key_encoding import KeyColumnError
from arkflow_kernel.key_groups import key_column
from arkflow_kernel.state.arrow_numpy import AnyArray, nulls_of
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state.key_types import KeyTypeError, key_type, widened
from arkflow_kernel.window.key_numbers import KeyNumbers
from arkflow_kernel.window.keys import KeyForm

_COMPACT_KEYS_MIN = 4_096


class KeyedSide(Protocol):
    """A side, as its keys see it."""

    def stage(self, size_bytes: int, undo: Callable[[], None]) -> None:
        """Announce a change of the item at work."""
        ...

    @property
    def name(self) -> str:
        """`left` or `right`."""
        ...

    @property
    def key_field(self) -> str:
        """The column of its keys."""
        ...

    def uses_keys(self, size: int) -> Mask:
        """Which of the numbers below `size` it has rows of."""
        ...

    def renumbered(self, kept: Slots) -> None:
        """Only these numbers stay, in this order, as 0, 1, 2, ..."""
        ...


class JoinKeys:
    """Key numbers and the key type of one join."""

    def __init__(self, operator: OperatorId) -> None:
        self._operator = operator
        self._numbers = KeyNumbers(1)
        self._compact_at = _COMPACT_KEYS_MIN
        self._found: dict[str, pa.DataType] = {}
        self.sides: Seq[KeyedSide] = ()
        self.type: pa.DataType = pa.null()

    @property
    def size(self) -> int:
        """Numbers that are given away, that of null included."""
        return self._numbers.size + 1

    def column(self, batch: pa.RecordBatch, side: KeyedSide) -> AnyArray:
        """The key column of a batch. Raises `ProcessingError`."""
        try:
            return key_column(batch, side.key_field)
        except KeyColumnError as error:
            raise self._failure(f"its {side.name} side: {error}") from error

    def numbers(self, column: AnyArray, side: KeyedSide) -> Slots:
        """The number of each row's key; part of the item at work.

        Raises `ProcessingError` for a type that does not go together with those before.
        """
        known, found, size = self.type, dict(self._found), self._numbers.size
        try:
            kind = key_type(column.type)
            both = widened(known, kind)
        except KeyTypeError as error:
            raise self._failure(self._apart(side, column.type, str(error))) from error

        def undo() -> None:
            self.type, self._found = known, found
            self._numbers.truncate(size)

        side.stage(0, undo)
        self.type = both
        if not pa.types.is_null(kind):
            self._found = {**found, side.name: kind}
        return self._numbered(column)

    def _numbered(self, column: AnyArray) -> Slots:
        numbers = self._numbers.of_columns([column], len(column)) + 1
        if column.null_count or pa.types.is_null(column.type):
            numbers[nulls_of(column)] = NULL_KEY
        return numbers

    def _apart(self, side: KeyedSide, kind: pa.DataType, error: str) -> str:
        for other in self.sides:
            if other.name != side.name and other.name in self._found:
                return (
                    f"its {side.name} side has keys of type {kind} in '{side.key_field}' and its "
                    f"{other.name} side of type {self._found[other.name]} in '{other.key_field}', "
                    "which cannot be brought to one type; cast one of them before the join"
                )
        return f"its {side.name} side, key '{side.key_field}': {error}"

    def restored(self, kind: pa.DataType) -> None:
        """A type that a snapshot knows; before the first item."""
        self.type = widened(self.type, kind)

    def restored_numbers(self, column: AnyArray) -> Slots:
        """The numbers of keys of a snapshot; before the first item."""
        return self._numbered(column)

    def texts(self, column: AnyArray) -> AnyArray:
        """Keys as ArkFlow's text, null for a null: `join_key`."""
        form = KeyForm((self.type,))
        return form.texts(pa.table(form.columns([column])))

    def settle(self) -> None:
        """Forget keys without rows, once they are most of all."""
        if self.size < self._compact_at:
            return
        some = np.zeros(self.size, np.bool_)
        for side in self.sides:
            some |= side.uses_keys(self.size)
        used = np.flatnonzero(some[1:]) + 1
        if 2 * len(used) < self.size:
            self._numbers.keep(used - 1)
            kept = np.concatenate(([NULL_KEY], used))
            for side in self.sides:
                side.renumbered(kept)
        self._compact_at = max(_COMPACT_KEYS_MIN, 2 * self.size)

    def _failure(self, cause: str) -> ProcessingError:
        return ProcessingError(self._operator, cause, error_class="StateError")


__all__ = ["JoinKeys", "KeyedSide"]
