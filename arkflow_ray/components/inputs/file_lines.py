"""JSON lines of one file as batches, with the byte position after each and a mark of the file.

The file is read in blocks of whole lines, of about one batch each. A line that is longer than
`max_row_bytes` is skipped chunk by chunk and never held. The end is where the file ends when the
reader gets there; what is appended before that is read. A last line needs no line break.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin, bad_row_batch
from arkflow_kernel.errors import SourceError
from arkflow_kernel.limits import KIB, MIB
from arkflow_kernel.ports import JsonValue, Position, SourceBatch
from arkflow_ray.components.codecs.json_block import DecodedTexts, JsonDecoder
from arkflow_ray.components.codecs.json_config import fixed_root
from arkflow_ray.components.codecs.json_texts import Lines
from arkflow_ray.components.codecs.json_types import restored_root
from arkflow_ray.components.inputs.file_marks import FileHead
from arkflow_ray.components.inputs.file_parts import FILE_END_KEY, FilePart
from arkflow_ray.components.inputs.file_store import FileStore
from arkflow_ray.components.inputs.line_range import LineRange, RawFile

if TYPE_CHECKING:
    from arkflow_ray.components.inputs.file_config import FileInputConfig

BLOCK_BYTES_FIRST: Final = 256 * KIB
"""The first block, before the length of the lines is known."""

BLOCK_BYTES_MAX: Final = 8 * MIB
"""Largest block: a batch of wide rows must stay a slice's size (T1c)."""

SKIP_BYTES_MAX: Final = 32 * MIB
"""How much of a line that is too long one read skips, so that it answers within 100 ms."""

PREFIX_BYTES: Final = KIB
"""What is kept of a line that is too long, for its bad row."""

CHUNK_BYTES_MIN: Final = 64 * KIB
"""Smallest request to the file."""

_BOM: Final = b"\xef\xbb\xbf"


class LineFiles:
    """Opens files of JSON lines."""

    def __init__(
        self,
        operator: str,
        config: "FileInputConfig",
        columns: frozenset[str] | None,
        fields: tuple[str, ...] = (),
    ) -> None:
        self.operator = operator
        self.batch_rows = config.batch_rows
        self.row_bytes_max = config.row_bytes_max
        self.skip_bad = config.on_error == "skip"
        self.fixed = fixed_root(config.types)
        self.columns = columns
        self.fields = fields

    def __call__(self, store: FileStore, part: FilePart, position: Position) -> "LineSplit":
        """See `OpenSplit`."""
        file = store.open(part.name)
        try:
            return LineSplit(self, file, part, position)
        except BaseException:
            file.close()
            raise


class LineSplit:
    """One file, or the lines that begin in a range of it.

    `_at` is the offset of the first byte that no batch has covered. `_buffer` holds what was read,
    up to `_high`; up to `_low` it is the block in work. `_skipping` is how many bytes of a line
    that is too long were read, `_prefix` its beginning. `_end` is where the file or the range ended
    when its end was reached. `_outside`: it is in a line that began before the range.
    """

    def __init__(
        self, files: LineFiles, file: BinaryIO, part: FilePart, position: Position
    ) -> None:
        self._files = files
        self._part, self._split = part, part.split
        self._raw = cast("RawFile", file)
        self._range = None if part.stop is None else LineRange(self._raw, part.stop)
        self._file: RawFile = self._range or self._raw
        self._outside = part.start > 0 and not position
        self._prefix_bytes = min(PREFIX_BYTES, files.row_bytes_max)
        self._head = FileHead(file)
        self._at = self._restored_offset(position)
        self._decoder = self._restored_decoder(position)
        self._buffer = bytearray()
        self._low = self._high = 0
        self._prefix = b""
        self._block_bytes = BLOCK_BYTES_FIRST
        self._skipping: int | None = None
        self._end: int | None = None
        self._ready: Iterator[SourceBatch] = iter(())

    def read(self) -> SourceBatch | None:
        """See `SplitReader.read`."""
        batch = next(self._ready, None)
        if batch is None:
            self._ready = self._next_batches()
            batch = next(self._ready, None)
        return batch

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _next_batches(self) -> Iterator[SourceBatch]:
        if self._outside:
            return self._pass_over()
        if self._skipping is not None:
            return self._skip()
        size = self._next_block()
        if size is None:
            return iter(())
        lines = Lines(memoryview(self._buffer)[:size])
        self._adapt(size, len(lines))
        spare = len(lines) % self._files.batch_rows
        if len(lines) > spare > 0:
            # Whole batches only: the rest of the block begins the next one.
            lines = lines.part(0, len(lines) - spare)
            size = lines.offset(len(lines))
        self._low = size
        return self._batches(lines)

    def _pass_over(self) -> Iterator[SourceBatch]:
        """Read on to the first line that begins in the range, or to where it is clear that none
        does.
        """
        assert self._part.stop is not None
        limit = self._at + SKIP_BYTES_MAX
        while self._outside and self._at < limit:
            self._drop_used()
            self._fill(CHUNK_BYTES_MIN)
            place = self._buffer.find(b"\n", 0, self._high)
            self._low = place + 1 if place >= 0 else self._high
            self._at += self._low
            if place < 0 and self._at >= self._part.stop - 1:
                self._end = self._at
            self._outside = place < 0 and self._end is None
        return iter(())

    def _next_block(self) -> int | None:
        """Bytes of whole lines at the buffer's beginning, at the end of the file all that is left.

        None if a line begins there that is too long.
        """
        self._drop_used()
        scanned, want = 0, max(self._block_bytes, self._high + CHUNK_BYTES_MIN)
        while True:
            self._fill(want)
            if self._end is not None:
                return self._high
            cut = self._buffer.rfind(b"\n", scanned, self._high) + 1
            if cut:
                return cut
            if self._high > self._files.row_bytes_max:
                self._skipping = self._high
                self._prefix = bytes(self._buffer[: self._prefix_bytes])
                self._low = self._high
                return None
            scanned, want = self._high, 2 * self._high

    def _skip(self) -> Iterator[SourceBatch]:
        """Read on to the end of the line that is too long; its bad row once that is reached."""
        assert self._skipping is not None
        limit = self._skipping + SKIP_BYTES_MAX
        while self._skipping < limit:
            self._drop_used()
            self._fill(self._block_bytes)
            place = self._buffer.find(b"\n", 0, self._high)
            if place >= 0 or self._end is not None:
                size = self._skipping + (place if place >= 0 else self._high)
                base, self._at = self._at, self._at + size + (place >= 0)
                self._low = place + 1 if place >= 0 else self._high
                self._skipping = None
                return iter([self._too_long(self._prefix, size, base)])
            self._skipping += self._high
            self._low = self._high
        return iter(())

    def _drop_used(self) -> None:
        """Move what no batch has covered to the buffer's beginning."""
        rest = self._buffer[self._low : self._high]
        if len(self._buffer) > 2 * max(self._block_bytes, len(rest), CHUNK_BYTES_MIN):
            # A long line has passed: give its memory back.
            self._buffer = bytearray()
        if len(self._buffer) < len(rest):
            self._buffer = rest
        else:
            memoryview(self._buffer)[: len(rest)] = rest
        self._low, self._high = 0, len(rest)

    def _fill(self, want: int) -> None:
        """Read until the buffer holds `want` bytes, or to the end, which is noticed here."""
        if len(self._buffer) < want:
            # Never resized in place: lines of the last block may still refer to the old one.
            larger = bytearray(want)
            larger[: self._high] = memoryview(self._buffer)[: self._high]
            self._buffer = larger
        view = memoryview(self._buffer)
        while self._high < want and self._end is None:
            got = self._file.readinto(view[self._high : want])
            if got:
                self._high += got
            else:
                self._end = self._end_if_reached()
        if self._at == 0 and self._low == 0 and bytes(view[: len(_BOM)]) == _BOM:
            self._at = self._low = len(_BOM)
            self._drop_used()

    def _end_if_reached(self) -> int | None:
        place = self._file.tell()
        size = self._file.seek(0, os.SEEK_END)
        if size < place:
            raise SourceError(
                f"input '{self._files.operator}': '{self._split}' shrank from {place} to {size} "
                "bytes while it was read; files must only be appended to"
            )
        self._file.seek(place)
        return place if size == place else None

    def _adapt(self, size: int, count: int) -> None:
        """Make the next block a little more than a batch: a larger one leaves the caches."""
        if count:
            wanted = size * self._files.batch_rows // count
            self._block_bytes = min(wanted + wanted // 32 + KIB, BLOCK_BYTES_MAX)

    def _batches(self, lines: Lines) -> Iterator[SourceBatch]:
        """The batches of a block that begins at `_at`; one without rows for a blank block."""
        base, low = self._at, 0
        for place in (*lines.longer_than(self._files.row_bytes_max), len(lines)):
            if low < place:
                yield from self._decoded(lines.part(low, place), base)
            if place < len(lines):
                self._at = base + lines.offset(place + 1)
                yield self._too_long(
                    lines.prefix(place, self._prefix_bytes),
                    lines.size(place),
                    base + lines.offset(place),
                )
            low = place + 1
        if not len(lines):
            self._at = base + lines.offset(0)
            yield self._source_batch(self._decoder.decode(lines), lines, base)

    def _decoded(self, lines: Lines, base: int) -> Iterator[SourceBatch]:
        whole = self._decoder.read(lines)
        low = 0
        while low < len(lines):
            part = lines.part(low, min(low + self._files.batch_rows, len(lines)))
            if whole is None:
                decoded = self._decoder.decode(part)
            else:
                decoded = DecodedTexts(whole.slice(low, len(part)), [], len(part))
            low += decoded.consumed
            self._at = base + part.offset(decoded.consumed)
            yield self._source_batch(decoded, part, base)

    def _source_batch(self, decoded: DecodedTexts, lines: Lines, base: int) -> SourceBatch:
        bad = [(base + lines.offset(b.index), lines.raw(b.index), b.reason) for b in decoded.bad]
        return self._made(decoded.batch, base + lines.offset(0), bad)

    def _too_long(self, prefix: bytes, size: int, offset: int) -> SourceBatch:
        reason = (
            f"a line of {size} bytes, above `max_row_bytes` ({self._files.row_bytes_max}); only "
            f"its first {self._prefix_bytes} bytes are kept"
        )
        return self._made(self._decoder.empty(), offset, [(offset, prefix, reason)])

    def _made(
        self, batch: pa.RecordBatch, first: int, bad: list[tuple[int, bytes, str]]
    ) -> SourceBatch:
        """The batch that ends at `_at`."""
        origin = Origin(self._part.name, offset=first)
        skip = self._files.skip_bad
        return SourceBatch(
            self._split,
            batch,
            self._position(),
            origin,
            bad=self._bad_rows(bad, origin) if bad and not skip else None,
            skipped=len(bad) if skip else 0,
            split_ended=self._at == self._end,
        )

    def _position(self) -> Position:
        place: dict[str, JsonValue] = {
            "offset": self._at,
            "schema": self._decoder.form(),
            "head": self._head.mark(self._at),
        }
        if self._range is not None and self._at == self._end:
            place[FILE_END_KEY] = self._raw.seek(0, os.SEEK_END) == self._at
        return place

    def _bad_rows(self, bad: list[tuple[int, bytes, str]], origin: Origin) -> pa.RecordBatch:
        offsets, values, reasons = zip(*bad, strict=True)
        return bad_row_batch(
            list(values),
            list(reasons),
            operator=self._files.operator,
            origin=origin,
            offsets=list(offsets),
        )

    def _restored_offset(self, position: Position) -> int:
        if self._outside:  # a break right before the range is the end of the line before it
            return self._raw.seek(self._part.start - 1)
        offset = position.get("offset", 0)
        if not isinstance(offset, int) or offset < 0:
            raise self._unusable(f"no byte offset in it: {offset!r}")
        size = self._file.seek(0, os.SEEK_END)
        if offset > size:
            raise self._unusable(f"it is at byte {offset}, and the file has only {size} now")
        if offset > 0:
            self._file.seek(offset - 1)
            if self._file.read(1) != b"\n" and offset not in (len(_BOM), size):
                raise self._unusable(f"no line begins at byte {offset} any more")
        if not self._head.has(str(position.get("head", self._head.mark(0)))):
            raise self._unusable("it does not begin any more as it did")
        if self._range is None:
            self._file.seek(offset)
        else:
            self._range.begin(offset)
        return offset

    def _restored_decoder(self, position: Position) -> JsonDecoder:
        files, fixed = self._files, self._files.fixed
        try:
            root = restored_root(position.get("schema", []), fixed)
        except ValueError as error:
            raise self._unusable(str(error)) from error
        return JsonDecoder(root, frozenset(fixed.fields), files.columns, files.fields)

    def _unusable(self, why: str) -> SourceError:
        return SourceError(
            f"input '{self._files.operator}': cannot continue '{self._split}' at its position: "
            f"{why}; bring the file back as it was, or start the job without its positions"
        )


__all__ = ["BLOCK_BYTES_FIRST", "BLOCK_BYTES_MAX", "PREFIX_BYTES", "LineFiles", "LineSplit"]
