"""Rows whose places among those of their key a job tells: its input, and what it must publish."""

import json
from pathlib import Path

from tests.integration.published_rows import rows_in

Placed = tuple[int, int, int]
"""A row's number, its key, and its place among the rows of the key, from 1."""


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


__all__ = ["Placed", "expected", "write_input", "written"]
