"""Rows of a piece of fragments in a local file (S5).

In order of time, as sessions become due: those that are read together lie together. What is needed
to know which are due, their times and the numbers of their keys, stays in memory.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.window.session_merge import Numbers
from arkflow_kernel.window.session_pieces import Piece
from arkflow_kernel.window.stream_file import RowsFile

_BATCH_ROWS = 4_096
"""Rows that are read at once."""


class FileRows:
    """Rows in a file. `file_place[r]` is where row `r` of the piece lies there."""

    def __init__(self, file: RowsFile, file_place: Numbers, schema: pa.Schema, size: int) -> None:
        self._file = file
        self._place = file_place
        self._schema = schema
        self.size_bytes = size
        self.memory_bytes = file_place.nbytes

    def read(self, places: Numbers | None = None) -> pa.Table:
        """The rows at these places of the piece, in this order; None: all of them."""
        wanted = self._place if places is None else self._place[places]
        if not len(wanted):
            return self._schema.empty_table()
        numbers, number_of = np.unique(wanted // _BATCH_ROWS, return_inverse=True)
        start, tables = 0, []
        row_of = np.empty(len(wanted), np.int64)
        for number, batch_number in enumerate(numbers.tolist()):
            mine = np.flatnonzero(number_of == number)
            batch = self._file.read(batch_number)
            tables.append(batch.take(as_array(wanted[mine] - batch_number * _BATCH_ROWS)))
            row_of[mine] = np.arange(start, start + len(mine))
            start += len(mine)
        return pa.Table.from_batches(tables, self._schema).take(as_array(row_of))


def spilled(piece: Piece, path: Path, operator: str) -> Piece:
    """The piece with its rows in a new file, which goes with it. Raises `ResourceError`."""
    order = np.argsort(piece.last, kind="stable")
    table = piece.rows.read(order).combine_chunks()
    batches = table.to_batches(max_chunksize=_BATCH_ROWS)
    file_place = np.empty(len(order), np.int64)
    file_place[order] = np.arange(len(order))
    file = RowsFile(path, batches, operator)
    return piece.moved(FileRows(file, file_place, table.schema, piece.rows.size_bytes))


__all__ = ["FileRows", "spilled"]
