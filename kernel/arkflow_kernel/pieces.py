"""Batches cut to the size of a slice, and the slices in which they leave the lane (T1c, E3)."""

from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from arkflow_kernel.ids import OutputId
from arkflow_kernel.limits import SLICE_BYTES_MAX, SLICE_ROWS_MAX
from arkflow_kernel.protocol import Piece


def pieces_of(batch: pa.RecordBatch, rows_max: int = SLICE_ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces that fit a slice, by rows and bytes; no copy.

    A piece is above `SLICE_BYTES_MAX` only if it is one row, or if its bytes do not come from its
    rows (a shared dictionary) and cutting would not help.
    """
    rows = min(rows_max, SLICE_ROWS_MAX)
    size = size_of(batch)
    if size > SLICE_BYTES_MAX:
        rows = max(1, min(rows, batch.num_rows * SLICE_BYTES_MAX // size))
    if batch.num_rows <= rows:
        yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield from _halves(batch.slice(start, rows))


def cut(
    output: OutputId, batch: pa.RecordBatch, size_bytes: int, rows_max: int = SLICE_ROWS_MAX
) -> Iterator[Piece]:
    """A batch of `size_bytes` in pieces of `rows_max` rows that fit a slice, each with its size.

    Pieces of a batch that fits a slice by its bytes are sized by their share of its rows: the sum
    is right, no piece can be too large, and a walk over its columns is saved.
    """
    if batch.num_rows <= min(rows_max, SLICE_ROWS_MAX) and size_bytes <= SLICE_BYTES_MAX:
        yield Piece(output, batch, size_bytes)
        return
    for piece in pieces_of(batch, rows_max):
        if size_bytes <= SLICE_BYTES_MAX:
            yield Piece(output, piece, size_bytes * piece.num_rows // batch.num_rows)
        else:
            yield Piece(output, piece, piece.nbytes)


def next_slice(pieces: deque[Piece]) -> tuple[Piece, ...]:
    """Take the pieces of the next slice from the front (T1c); at least one, if there are any."""
    taken: list[Piece] = []
    rows = size = 0
    while pieces:
        rows, size = rows + pieces[0].batch.num_rows, size + pieces[0].size_bytes
        if taken and (rows > SLICE_ROWS_MAX or size > SLICE_BYTES_MAX):
            break
        taken.append(pieces.popleft())
    return tuple(taken)


def size_of(batch: pa.RecordBatch) -> int:
    """Bytes of a batch; where its whole buffers are within a slice, theirs will do.

    The exact size walks over the columns and gives up the interpreter's lock meanwhile, which
    costs more than the walk when other lanes are waiting for it. A batch that begins inside its
    buffers is part of something larger, which others pay for: it is sized exactly.
    """
    whole = batch.get_total_buffer_size()
    if whole > SLICE_BYTES_MAX or (batch.num_columns and batch.column(0).offset):
        return batch.nbytes
    return whole


def _halves(piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows differ in size: what the average row size left too large is halved."""
    size, rows = piece.nbytes, piece.num_rows
    if size <= SLICE_BYTES_MAX or rows == 1:
        yield piece
        return
    first, second = piece.slice(0, rows // 2), piece.slice(rows // 2)
    if first.nbytes + second.nbytes > size * 3 // 2:
        yield piece
        return
    yield from _halves(first)
    yield from _halves(second)


__all__ = ["cut", "next_slice", "pieces_of", "size_of"]
