"""Rows of a table whose keys stand in another: for corrections of few keys (W6)."""

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROW = "row"


def rows_of_keys(table: pa.Table, keys: pa.Table, names: Seq[str]) -> pa.Table:
    """The rows of `table` whose columns `names` are alike in some row of `keys`; a null is a key.

    Both have the same types there. Without names all rows are of the one key that there is.
    """
    if not names:
        return table
    mask: Any = None
    for name in names:
        values: Any = keys.column(name)
        found = pc.is_in(table.column(name), value_set=values)
        mask = found if mask is None else pc.and_(mask, found)
    table = table.filter(mask)
    return table if len(names) == 1 or not table.num_rows else _matching(table, keys, list(names))


def _matching(table: pa.Table, keys: pa.Table, names: list[str]) -> pa.Table:
    """Each column fits some key; here all of them fit one.

    By grouping, as a join would take no null for another.
    """
    rows = np.concatenate([np.arange(table.num_rows), np.full(keys.num_rows, -1)])
    both = pa.concat_tables([table.select(names), keys.select(names)])
    both = both.append_column(_ROW, pa.array(rows))
    grouped = pa.TableGroupBy(both, names, use_threads=False)
    found = grouped.aggregate([(_ROW, "min"), (_ROW, "list")])
    least: Any = found.column(f"{_ROW}_min")
    known = found.filter(pc.less(least, pa.scalar(0)))
    places: Any = known.column(f"{_ROW}_list").combine_chunks()
    listed = np.asarray(pc.list_flatten(places), dtype=np.int64)
    taken: Any = pa.array(np.sort(listed[listed >= 0]))
    return table.take(taken)


__all__ = ["rows_of_keys"]
