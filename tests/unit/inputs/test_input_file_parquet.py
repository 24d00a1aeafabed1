"""Input `file`, Parquet."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import SplitId
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import SourceBatch, SourceReader, SplitPosition
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component

Make = Callable[..., SourceReader]
Drain = Callable[..., list[SourceBatch]]


@pytest.fixture
def parquet_of(make: Make) -> Make:
    def build(path: Path, **config: Any) -> SourceReader:
        return make("file", input_type={"type": "parquet", "path": str(path)}, **config)

    return build


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(25), pa.int32()),
            "t": pa.array([i * 10 for i in range(25)], pa.timestamp("us", tz="UTC")),
            "d": pa.array(["a", "b", None, "a", "c"] * 5).dictionary_encode(),
        }
    )


def test_types_are_kept_and_every_position_continues_exactly(
    tmp_path: Path, parquet_of: Make, drain: Drain, table: pa.Table
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=10)
    whole = drain(parquet_of(path, batch_rows=4))
    got = pa.Table.from_batches([b.batch for b in whole])
    assert got.schema.equals(table.schema)
    assert got.to_pylist() == table.to_pylist()
    assert [b.origin.offset for b in whole] == [0, 4, 8, 10, 14, 18, 20, 24]
    assert [b.split_ended for b in whole] == [False] * 7 + [True]
    for i, batch in enumerate(whole[:-1]):
        position = json.loads(json.dumps(batch.position))
        rest = drain(parquet_of(path, batch_rows=3), [SplitPosition(batch.split, position)])
        done = sum(b.batch.num_rows for b in whole[: i + 1])
        assert pa.Table.from_batches([b.batch for b in rest]).to_pylist() == (
            table.slice(done).to_pylist()
        )


def test_a_file_without_rows_does_not_end_the_input(
    tmp_path: Path, parquet_of: Make, drain: Drain, table: pa.Table
) -> None:
    pq.write_table(table.slice(0, 0), tmp_path / "a")
    pq.write_table(table, tmp_path / "b")
    batches = drain(parquet_of(tmp_path))
    assert [b.batch.num_rows for b in batches] == [0, 25]
    assert all(b.split_ended for b in batches)


def test_what_is_not_parquet_is_an_error_that_names_the_file(
    tmp_path: Path, parquet_of: Make, drain: Drain
) -> None:
    (tmp_path / "a").write_bytes(b"no parquet here")
    with pytest.raises(SourceError, match=f"cannot read '{tmp_path}/a' as Parquet"):
        drain(parquet_of(tmp_path))


def test_a_position_that_the_file_does_not_have_is_refused(
    tmp_path: Path, parquet_of: Make, drain: Drain, table: pa.Table
) -> None:
    pq.write_table(table, tmp_path / "a")
    place = SplitPosition(SplitId(str(tmp_path / "a")), {"row_group": 3, "row": 1})
    with pytest.raises(SourceError, match="row 1 of row group 3"):
        drain(parquet_of(tmp_path), [place])


def test_a_torn_row_group_is_an_error(
    tmp_path: Path, parquet_of: Make, drain: Drain, table: pa.Table
) -> None:
    path = tmp_path / "a"
    pq.write_table(table, path, compression="none")
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)
    with pytest.raises(SourceError, match="as Parquet"):
        drain(parquet_of(path))


@pytest.mark.parametrize(
    ("wanted", "kept"), [({"t", "n", "z"}, ["n", "t"]), ({"z"}, ["n", "t", "d"]), (set(), None)]
)
def test_columns_that_nobody_looks_at_are_not_read(
    tmp_path: Path, drain: Drain, table: pa.Table, wanted: set[str], kept: list[str] | None
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=10)
    config = {"input_type": {"type": "parquet", "path": str(path)}, "batch_rows": 4}
    context = BuildContext("in", columns=frozenset(wanted) if kept else None)
    plan = ComponentPlan("file", config)
    reader = cast(SourceReader, build_component(ComponentKind.INPUT, plan, context))
    got = pa.Table.from_batches([each.batch for each in drain(reader)])
    assert got.equals(table.select(kept or table.column_names))
