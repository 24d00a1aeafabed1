"""Rows whose places among those of their key a job tells: its input, and what it must publish."""

import json
from pathlib import Path
from typing import Final

from tests.integration.published_rows import rows_in

Placed = tuple[int, int, int]
"""A row's number, its key, and its place among the rows of the key, from 1."""


FILES: Final = """\
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: 20
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/out, format: json}}}}
"""
"""What a job says of its source `rows` and its sink `kept`: from `in.jsonl` to `out`, both in
`folder`, at `rate` rows a second.
"""


def write_input(folder: Path, rows: int, keys: int) -> None:
    """So many rows, whose keys take turns, as `in.jsonl`."""
    lines = (json.dumps({"n": n, "k": n % keys}) + "\n" for n in range(rows))
    (folder / "in.jsonl").write_text("".join(lines))


def expected(rows: int, keys: int) -> list[Placed]:
    """What is to be published of them, by their numbers."""
    return [(n, n % keys, n // keys + 1) for n in range(rows)]


def written(folder: Path) -> list[Placed]:
    """All rows that are published in `out`, part by part."""
    return [(row["n"], row["k"], row["place"]) for row in rows_in(folder / "out")]


__all__ = ["FILES", "Placed", "expected", "write_input", "written"]
