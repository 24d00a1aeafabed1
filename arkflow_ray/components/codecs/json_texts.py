"""The two sorts of texts that hold JSON: lines of a file, and payloads. See `json_block`.

A line holds one object. A payload holds one or more objects, with line breaks inside as well as
between them, or none. Both are cut with numpy, not one by one.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_ray.components.codecs.compiled_scan import COMPILED
from arkflow_ray.components.codecs.json_fast import (
    BREAK,
    CLOSE,
    OPEN,
    ReadPlan,
    is_utf8,
    read_texts,
)
from arkflow_ray.components.codecs.json_flat import Places, read_flat
from arkflow_ray.components.codecs.json_text import Row, parse_line, parse_payload

_BLANK = b" \t\r"

FLAT_LINES_MIN = 2
"""Fewer lines are not worth a proof of their layout."""

FLAT_MISSES_MAX = 3
"""After so many blocks in a row that are not flat, the next ones are not tried either …"""

FLAT_RETRY_BLOCKS = 32
"""… but for every so many-th: data changes."""


class Lines:
    """Lines of a block, blank ones left out. `offset(i)` counts from the block's beginning.

    `block` holds whole lines; the last may lack its line break. It is referred to, not copied.
    """

    def __init__(self, block: bytes | memoryview) -> None:
        self._block = self._text = memoryview(block)
        self._end = len(block)
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == BREAK)
        if len(data) and data[-1] != BREAK:
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        self._starts, self._ends = starts, ends
        self._offsets, self._sizes = starts, ends - starts
        # A blank line has the break before it, or its own, where a brace is due.
        self._shaped = (data[starts] == OPEN) & (data[ends - 1] == CLOSE)
        if not self._shaped.all():
            self._normalise()

    def __len__(self) -> int:
        return len(self._starts)

    def offset(self, index: int) -> int:
        """Where a line begins in the block; the block's size for the one after the last."""
        return int(self._offsets[index]) if index < len(self._offsets) else self._end

    def part(self, low: int, high: int) -> "Lines":
        """The lines `low` to `high - 1`, over the same block."""
        part = object.__new__(Lines)
        part._block, part._text, part._end = self._block, self._text, self.offset(high)
        part._starts, part._ends = self._starts[low:high], self._ends[low:high]
        part._offsets, part._sizes = self._offsets[low:high], self._sizes[low:high]
        part._shaped = self._shaped[low:high]
        return part

    def size(self, index: int) -> int:
        """Bytes of a line up to its `\\n`, blanks included."""
        return int(self._sizes[index])

    def prefix(self, index: int, size_max: int) -> bytes:
        """The first bytes of a line, blanks included."""
        offset = self.offset(index)
        return bytes(self._block[offset : offset + min(size_max, self.size(index))])

    def longer_than(self, size_max: int) -> list[int]:
        """Indexes of the lines of more than `size_max` bytes."""
        if self._end <= size_max:
            return []
        long: list[int] = np.flatnonzero(self._sizes > size_max).tolist()
        return long

    def raw(self, index: int) -> bytes:
        """A line without its end and the blanks around it."""
        return bytes(self._text[self._starts[index] : self._ends[index]])

    def parse(self, index: int) -> list[Row]:
        """The one object of a line. RowError if it is bad."""
        return parse_line(self.raw(index))

    def read(self, low: int, high: int, plan: ReadPlan) -> pa.RecordBatch | None:
        """See `Texts.read`."""
        if low >= high or not self._shaped[low:high].all():
            return None
        first = self._starts[low]
        text = self._text[first : self._ends[high - 1]]
        starts, ends = self._starts[low:high] - first, self._ends[low:high] - first
        return _read_shaped(text, starts, ends, plan, rows=high - low)

    def _normalise(self) -> None:
        """Leave out blank lines, carriage returns and blanks at both ends of lines."""
        whole = [
            bytes(self._text[start:end])
            for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        ]
        lines = [line.strip(_BLANK) for line in whole]
        keep = [i for i, line in enumerate(lines) if line]
        lines = [lines[i] for i in keep]
        self._offsets, self._sizes = self._offsets[keep], self._sizes[keep]
        self._text = memoryview(b"\n".join(lines))
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        self._ends = np.cumsum(sizes + 1) - 1
        self._starts = self._ends - sizes
        data = np.frombuffer(self._text, np.uint8)
        self._shaped = (data[self._starts] == OPEN) & (data[self._ends - 1] == CLOSE)


class Payloads:
    """Payloads of a column without nulls."""

    def __init__(self, payloads: pa.BinaryArray) -> None:
        self._payloads = payloads
        self._trimmed = payloads
        self._places, self._shaped = _shaped(payloads)
        if not self._shaped.all():
            import pyarrow.compute as pc

            text: Any = payloads.view(pa.string())
            self._trimmed = pc.ascii_trim(text, characters=" \t\r\n").view(pa.binary())
            self._places, self._shaped = _shaped(self._trimmed)

    def __len__(self) -> int:
        return len(self._payloads)

    def raw(self, index: int) -> bytes:
        """A payload as it came."""
        value: bytes = self._payloads[index].as_py()
        return value

    def parse(self, index: int) -> list[Row]:
        """The objects of a payload. RowError if one of them is bad."""
        return parse_payload(self.raw(index))

    def read(self, low: int, high: int, plan: ReadPlan) -> pa.RecordBatch | None:
        """See `Texts.read`."""
        if low >= high or not self._shaped[low:high].all():
            return None
        import pyarrow.compute as pc

        lists: Any = pa.ListArray.from_arrays(pa.array([low, high], pa.int32()), self._trimmed)
        joined: Any = pc.binary_join(lists, b"\n")
        text = memoryview(joined[0].as_buffer())
        # Each payload is moved by those before the first one, and by the breaks between.
        moved = np.arange(high - low) - self._places[low]
        starts, ends = self._places[low:high] + moved, self._places[low + 1 : high + 1] + moved
        return _read_shaped(text, starts, ends, plan, rows=None)


def _read_shaped(
    text: memoryview, starts: Places, ends: Places, plan: ReadPlan, *, rows: int | None
) -> pa.RecordBatch | None:
    """The rows of texts that begin with `{` and end with `}`, by the fastest reader that can."""
    count = len(starts)
    if count >= FLAT_LINES_MIN and _is_worth_a_try(plan):
        flat = None
        if is_utf8(text, np.frombuffer(text, np.uint8)):
            scan = COMPILED.of(len(text))
            flat = read_flat(text, starts, ends, plan.schema, plan.root, plan.kept, scan)
        if flat is not None:
            plan.flat_misses = 0
            return flat
    plan.flat_misses += 1
    return read_texts(text, plan, braces=count, rows=rows)


def _is_worth_a_try(plan: ReadPlan) -> bool:
    return plan.flat_misses < FLAT_MISSES_MAX or plan.flat_misses % FLAT_RETRY_BLOCKS == 0


def _shaped(payloads: pa.BinaryArray) -> tuple[Places, npt.NDArray[np.bool_]]:
    """The edges of the payloads, and which begin with `{` and end with `}`."""
    count = len(payloads)
    buffers: Any = payloads.buffers()
    _, offsets, data = buffers
    if count == 0 or data is None or data.size == 0:
        return np.zeros(count + 1, np.int64), np.zeros(count, np.bool_)
    own = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + count + 1]
    places = own.astype(np.int64)
    text = np.frombuffer(data, np.uint8)
    first = text[np.minimum(places[:-1], len(text) - 1)]
    filled = places[1:] > places[:-1]
    return places, filled & (first == OPEN) & (text[places[1:] - 1] == CLOSE)


__all__ = ["Lines", "Payloads"]
