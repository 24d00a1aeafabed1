"""Numpy columns that grow: an entry's slot is its place in each of them."""

from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item", bound=np.generic)

Slots = npt.NDArray[np.int64]
"""Places of entries; -1 stands for a key that is not there."""

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_ROOM_MIN = 1_024


class Growing(Generic[Item]):
    """A column of `size` items in memory for more; appending costs constant time, amortised.

    `room` is the whole memory, never empty: a gather that masks its result afterwards may read
    place 0 of an empty column.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.room: npt.NDArray[Item] = np.zeros(_ROOM_MIN, dtype=dtype)
        self.size = 0

    @property
    def items(self) -> npt.NDArray[Item]:
        """What the column holds, without a copy; valid until the next `append`."""
        return self.room[: self.size]

    def append(self, items: npt.NDArray[Any]) -> None:
        """Add items at the end."""
        self.reserve(self.size + len(items))
        self.room[self.size : self.size + len(items)] = items
        self.size += len(items)

    def extend_to(self, size: int, fill: Any = None) -> None:
        """Add items of one value until there are `size`; without one they may be anything."""
        if size > self.size:
            self.reserve(size)
            if fill is not None:
                self.room[self.size : size] = fill
            self.size = size

    def truncate(self, size: int) -> None:
        """Forget all items from `size` on."""
        self.size = min(self.size, size)

    def keep(self, slots: Slots) -> None:
        """Keep the items of these slots, in this order, and the memory that they need."""
        kept = self.items[slots]
        self.room = np.zeros(max(_ROOM_MIN, len(kept)), dtype=self.room.dtype)
        self.room[: len(kept)] = kept
        self.size = len(kept)

    def reserve(self, size: int) -> None:
        """Make memory for `size` items; doubles, so that appending is amortised."""
        if size > len(self.room):
            larger = np.zeros(max(size, 2 * len(self.room)), dtype=self.room.dtype)
            larger[: self.size] = self.room[: self.size]
            self.room = larger


__all__ = ["Bytes", "Growing", "Mask", "Slots", "Words"]
