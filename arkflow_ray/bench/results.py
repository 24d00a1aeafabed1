"""What two sides wrote, compared: rows, and the sums of their whole numbers.

Times and decimals are written differently by each, so they are left out.
"""

import io
import pathlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

_BLOCK_BYTES: Final = 16 << 20

Totals = dict[str, int]
"""Rows under `rows`, and the sum of each column of whole numbers under its name."""


def totals(folder: pathlib.Path) -> Totals:
    """Of all JSON lines that were published below a folder; hidden files are not."""
    found: Totals = {"rows": 0}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name[0] not in "._":
            with path.open("rb") as lines:
                while block := lines.read(_BLOCK_BYTES):
                    _add(found, block + lines.readline())
    return found


def _add(found: Totals, lines: bytes) -> None:
    table: Any = json.read_json(io.BytesIO(lines))
    found["rows"] += table.num_rows
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type):
            total = pc.sum(column).as_py()
            found[name] = found.get(name, 0) + (0 if total is None else total)


def differences(ours: Totals, theirs: Totals) -> list[str]:
    """In words; empty if what both have is equal."""
    return [
        f"{name}: {ours[name]:,} and {theirs[name]:,}"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]


__all__ = ["Totals", "differences", "totals"]
