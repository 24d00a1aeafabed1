"""From key to slot: an open-addressing hash table in numpy, probed for all keys of a batch at once.

A slot is given to a key once, in order of arrival, and stays until the index is compacted. A hash
only finds candidates; the canonical keys themselves are compared, so collisions cost time alone.
Not transactional by itself: `truncate` takes back what was inserted last.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.state.arrow_numpy import AnyArray, assembled, raw, taken
from arkflow_kernel.state.growing import Growing, Mask, Slots, Words
from arkflow_kernel.state.key_form import KeyPart, KeyTag
from arkflow_kernel.state.key_rows import KeyRows

_SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)
_BITS_MIN = 12
_SLOT = np.uint64(0xFFFF_FFFF)
_EMPTY = _SLOT
"""A place of the table holds half of the key's hash above its slot; no slot has this number."""


class KeyColumn:
    """Canonical values of one key field by slot. Bytes of all values lie in one arena."""

    def __init__(self) -> None:
        self._tags: Growing[np.uint8] = Growing(np.uint8)
        self._words: Growing[np.uint64] = Growing(np.uint64)
        self._ends: Growing[np.int64] | None = None
        self._arena: Growing[np.uint8] = Growing(np.uint8)

    @property
    def size_bytes(self) -> int:
        """Memory that the column takes."""
        ends = 0 if self._ends is None else self._ends.room.nbytes
        return self._tags.room.nbytes + self._words.room.nbytes + ends + self._arena.room.nbytes

    def append(self, part: KeyPart, rows: Slots) -> None:
        """Give the next slots to the values of these rows, which rise."""
        before = self._tags.size
        if len(rows) < len(part.words):  # else they are all, in order
            part = part.take(rows)
        self._tags.append(part.tags)
        self._words.append(part.words)
        if part.data is not None:
            self._append_bytes(part.data, before)
        elif self._ends is not None:
            self._ends.extend_to(self._tags.size + 1, self._arena.size)

    def _append_bytes(self, data: AnyArray, before: int) -> None:
        if self._ends is None:
            self._ends = Growing(np.int64)
            self._ends.extend_to(before + 1, 0)
        buffers = data.buffers()
        offsets = raw(buffers[1], np.int64)[data.offset : data.offset + len(data) + 1]
        self._ends.append(offsets[1:] - offsets[0] + self._arena.size)
        if buffers[2] is not None:
            self._arena.append(raw(buffers[2], np.uint8)[offsets[0] : offsets[-1]])

    def truncate(self, size: int) -> None:
        """Forget the slots from `size` on."""
        self._tags.truncate(size)
        self._words.truncate(size)
        if self._ends is not None:
            self._ends.truncate(size + 1)
            self._arena.truncate(int(self._ends.items[-1]))

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0."""
        kept = self.part(slots)
        self.__init__()  # type: ignore[misc]  # as new: memory of what is gone goes
        self.append(kept, np.arange(len(slots)))

    def part(self, slots: Slots) -> KeyPart:
        """The values of these slots."""
        data = None if self._ends is None else taken(self._bytes(), slots)
        return KeyPart(self._tags.items[slots], self._words.items[slots], data)

    def _bytes(self) -> AnyArray:
        assert self._ends is not None
        columns = [None, self._ends.items, self._arena.items]
        return assembled(pa.large_binary(), self._ends.size - 1, columns)

    def equal(self, slots: Slots, part: KeyPart, rows: Slots) -> Mask:
        """Which of the slots hold the value of the row beside it; `rows` rise."""
        if len(rows) < len(part.words):
            part = part.take(rows)
        same: Mask = self._words.room[slots] == part.words
        same &= self._tags.room[slots] == part.tags
        if part.data is None or self._ends is None:
            return same
        # The words of bytes are hashes: the bytes themselves decide.
        checked = same & (part.tags == KeyTag.BYTES)
        if checked.all():
            return np.asarray(pc.equal(taken(self._bytes(), slots), part.data), dtype=np.bool_)
        places = checked.nonzero()[0]
        mine, theirs = taken(self._bytes(), slots[places]), taken(part.data, places)
        same[places] = np.asarray(pc.equal(mine, theirs), dtype=np.bool_)
        return same


class KeyIndex:
    """Slots of keys of one or more fields. At most 2^32 - 2 of them."""

    def __init__(self, fields: int) -> None:
        self._columns = tuple(KeyColumn() for _ in range(fields))
        self._hashes: Growing[np.uint64] = Growing(np.uint64)
        self._bits = _BITS_MIN
        self._table: Words = np.full(1 << _BITS_MIN, _EMPTY, np.uint64)
        self._rebuilt_with = 0

    @property
    def size(self) -> int:
        """Slots that are given away."""
        return self._hashes.size

    @property
    def size_bytes(self) -> int:
        """Memory that the index takes."""
        columns = sum(column.size_bytes for column in self._columns)
        return columns + self._hashes.room.nbytes + self._table.nbytes

    def find(self, keys: KeyRows) -> Slots:
        """The slot of each distinct key, -1 where there is none."""
        slots = self._candidates(keys.hashes)
        rows = (slots >= 0).nonzero()[0]
        same = self._equal(slots[rows], keys, rows)
        if not same.all():
            for row in rows[~same].tolist():
                slots[row] = self._probed(keys, row)
        return slots

    def _candidates(self, hashes: Words) -> Slots:
        """The first slot on each hash's way whose entry has its mark, or -1.

        The key there is nearly always the one that is looked for: a mark has 32 bits.
        """
        marks = hashes & ~_SLOT
        places = self._places(hashes)
        entries = self._table[places]
        slots, on = _matched(entries, marks)
        rows = on.nonzero()[0]
        places, marks = places[rows], marks[rows]
        step = 0
        while len(rows):
            step += 1
            places = self._next(places, step)
            entries = self._table[places]
            found, on = _matched(entries, marks)
            slots[rows] = found
            rows, places, marks = rows[on], places[on], marks[on]
        return slots

    def _equal(self, slots: Slots, keys: KeyRows, rows: Slots) -> Mask:
        """Which of the slots hold the key whose number stands beside it."""
        same: Mask = np.ones(len(rows), np.bool_)
        for column, part in zip(self._columns, keys.parts, strict=True):
            same &= column.equal(slots, part, rows)
        return same

    def _probed(self, keys: KeyRows, row: int) -> int:
        """The slot of one key on whose way lies another with its mark; -1 if it has none."""
        place, step = self._places(keys.hashes[row : row + 1]), 0
        while (entry := self._table[place])[0] != _EMPTY:
            slot = (entry & _SLOT).astype(np.int64)
            if self._equal(slot, keys, np.array([row]))[0]:
                return int(slot[0])
            step += 1
            place = self._next(place, step)
        return -1

    def insert(self, keys: KeyRows, missing: Slots) -> Slots:
        """New slots for the distinct keys of these numbers, which are not there yet."""
        slots = np.arange(self.size, self.size + len(missing))
        for column, part in zip(self._columns, keys.parts, strict=True):
            column.append(part, missing)
        self._hashes.append(keys.hashes[missing])
        if self.size * 2 > len(self._table):
            self._rebuild()
        else:
            self._enter(slots)
        return slots

    def truncate(self, size: int) -> None:
        """Take back the slots from `size` on; `size` as it was before some `insert`.

        No other probes past those that came last, unless all were placed together since.
        """
        if size == self.size:
            return
        self._hashes.truncate(size)
        for column in self._columns:
            column.truncate(size)
        if size < self._rebuilt_with:
            self._rebuild()
        else:
            self._table[(self._table & _SLOT) >= np.uint64(size)] = _EMPTY

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0 in this order."""
        for column in self._columns:
            column.keep(slots)
        self._hashes.keep(slots)
        self._bits = _BITS_MIN
        self._rebuild()

    def parts(self, slots: Slots) -> tuple[KeyPart, ...]:
        """The keys of these slots."""
        return tuple(column.part(slots) for column in self._columns)

    def hashes(self, slots: Slots) -> Words:
        """The hashes of the keys of these slots."""
        return self._hashes.room[slots]

    def _places(self, hashes: Words) -> Slots:
        return ((hashes * _SPREAD) >> np.uint64(64 - self._bits)).astype(np.int64)

    def _next(self, places: Slots, step: int) -> Slots:
        """Steps of 1, 2, 3 …: they reach every place, and do not pile up as equal steps do."""
        return (places + step) & (len(self._table) - 1)

    def _rebuild(self) -> None:
        while self.size * 2 > 1 << self._bits:
            self._bits += 1
        self._table = np.full(1 << self._bits, _EMPTY, np.uint64)
        self._enter(np.arange(self.size))
        self._rebuilt_with = self.size

    def _enter(self, slots: Slots) -> None:
        """Put slots of distinct keys into the table: each takes the first empty place it finds."""
        hashes = self._hashes.items[slots]
        places = self._places(hashes)
        entries = (hashes & ~_SLOT) | slots.astype(np.uint64)
        step = 0
        while len(entries):
            empty = self._table[places] == _EMPTY
            self._table[places[empty]] = entries[empty]
            lost = self._table[places] != entries  # taken before, or by another of these keys
            step += 1
            entries, places = entries[lost], self._next(places[lost], step)


def _matched(entries: Words, marks: Words) -> tuple[Slots, Mask]:
    """The slots of entries with these marks, -1 for others; and which others are not empty."""
    # The mark cancels out and leaves the slot; of an empty place at least its number stays.
    rest = entries ^ marks
    hit = rest < _EMPTY
    return np.where(hit, rest.view(np.int64), -1), ~hit & (entries != _EMPTY)


__all__ = ["KeyColumn", "KeyIndex"]
