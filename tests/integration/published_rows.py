"""What readers of a file sink see: the rows of its published parts."""

import json
from pathlib import Path
from typing import Any


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """All rows of JSON parts in a folder, part by part in the order of publication."""
    parts = sorted(folder.glob("part-*"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


__all__ = ["rows_in"]
