"""Runs of kept rows: readable, and exact to the bit (S6, S8, S9)."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.state.run_file import read_batch, written
from arkflow_kernel.window.kept_runs import RunPiece, alive, pieces_of, run_of
from tests.kernel.window.test_row_batches import COLUMNS, values_of

OWNER = {"operator": "w"}


def _piece(batch: pa.RecordBatch, first: int = 0, groups: list[int] | None = None) -> RunPiece:
    rows = batch.num_rows
    held = np.array(groups or [0] * rows, np.int32)
    return RunPiece(batch, held, np.arange(rows) * 10, np.arange(first, first + rows))


def _run(*pieces: RunPiece) -> pa.RecordBatch:
    run = run_of(pieces, OWNER)
    assert run is not None
    return read_batch(pa.py_buffer(written(run).to_pybytes()))


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_every_type_come_back_as_they_were(name: str) -> None:
    """S8: also beside rows of other schemas, and sorted by their key groups."""
    batch = pa.record_batch({"c": COLUMNS[name]})
    run = _run(
        _piece(batch, 0, [3, 0, 3, 1]), _piece(pa.record_batch({"c": [True], "d": [1]}), 4, [2])
    )
    assert np.asarray(run.column("group")).tolist() == [0, 1, 2, 3, 3]
    back, other = pieces_of(run)
    assert back.batch.schema.equals(batch.schema, check_metadata=True)
    back.batch.validate(full=True)
    assert values_of(back.batch.column(0)) == values_of(batch.column(0))
    assert back.groups.tolist() == [3, 0, 3, 1]
    assert (back.times.tolist(), back.numbers.tolist()) == ([0, 10, 20, 30], [0, 1, 2, 3])
    assert other.batch.to_pylist() == [{"c": True, "d": 1}]


def test_schemas_come_back_with_metadata_order_and_nullability() -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("b", pa.int8(), nullable=False, metadata={"u": "v"}),
        pa.field("a", pa.null()),
    ]
    schema = pa.schema(fields, {"m": "n"})
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int8()), pa.nulls(1)], schema=schema)
    (back,) = pieces_of(_run(_piece(batch)))
    assert back.batch.schema.equals(schema, check_metadata=True)


def test_a_run_is_a_file_with_readable_columns() -> None:
    one = _piece(pa.record_batch({"id": [1], "time": ["noon"], "x": [1]}))
    other = _piece(pa.record_batch({"x": ["a"], "id": [2]}), 1)
    run = _run(one, other)
    assert run.drop_columns(["fired_from"]).to_pylist() == [
        {"group": 0, "time": 0, "number": 0, "schema": 0}
        | {"id": 1, "row_time": "noon", "x": 1, "x_": None},
        {"group": 0, "time": 0, "number": 1, "schema": 1}
        | {"id": 2, "row_time": None, "x": None, "x_": "a"},
    ]


def test_a_row_without_columns_is_a_row() -> None:
    batch = pa.record_batch({"x": [1, 2]}).select([])
    (back,) = pieces_of(_run(_piece(batch)))
    assert (back.batch.num_rows, back.batch.num_columns) == (2, 0)


def test_a_long_run_comes_back_in_pieces() -> None:
    ids = list(range(150_000))
    back = list(pieces_of(_run(_piece(pa.record_batch({"id": ids})))))
    assert [len(piece) for piece in back] == [65_536, 65_536, 18_928]
    assert [i for piece in back for i in piece.batch.column(0).to_pylist()] == ids


def test_another_version_and_another_file_are_refused() -> None:
    """S9."""
    run = _run(_piece(pa.record_batch({"id": [1]})))
    meta = json.loads(run.schema.metadata[b"arkflow.kept_rows"]) | {"format_version": 99}
    newer = run.replace_schema_metadata({"arkflow.kept_rows": json.dumps(meta)})
    with pytest.raises(
        RestoreError, match="format version 99 cannot be read: this release knows 1"
    ):
        list(pieces_of(newer))
    with pytest.raises(pa.ArrowInvalid, match="not a run of kept rows"):
        list(pieces_of(pa.record_batch({"id": [1]})))


def _tombstones(
    keys: pa.RecordBatch, groups: list[int], since: list[int], upto: list[int]
) -> RunPiece:
    numbers = np.full(len(groups), 99)
    return RunPiece(keys, np.array(groups, np.int32), np.array(upto), numbers, np.array(since))


def test_a_tombstone_is_for_the_rows_of_its_key_in_its_time() -> None:
    rows = _piece(pa.record_batch({"k": ["a", "b", "a", None, "a"], "v": [0, 1, 2, 3, 4]}))
    told = _tombstones(pa.record_batch({"k": ["a", None]}), [0, 0], [5, 0], [30, 30])
    run = _run(rows, told)
    kept, fired = alive(list(pieces_of(run)), ("k",))
    assert [v for piece in kept for v in piece.batch.column("v").to_pylist()] == [0, 1, 4]
    assert [piece.batch.to_pylist() for piece in fired] == [[{"k": "a"}, {"k": None}]]


def test_without_keys_a_tombstone_is_for_its_group() -> None:
    rows = _piece(pa.record_batch({"v": [0, 1, 2, 3]}), 0, [0, 1, 0, 1])
    nothing = pa.record_batch({"v": [0]}).select([])
    kept, _ = alive([rows, _tombstones(nothing, [1], [0], [10])], ())
    assert [piece.batch.column("v").to_pylist() for piece in kept] == [[0, 2, 3]]


def test_spans_of_one_key_may_overlap() -> None:
    rows = _piece(pa.record_batch({"v": list(range(6))}))
    nothing = pa.record_batch({"v": [0, 0, 0]}).select([])
    told = _tombstones(nothing, [0, 0, 0], [0, 10, 50], [30, 10, 60])
    kept, _ = alive([rows, told], ())
    assert [piece.batch.column("v").to_pylist() for piece in kept] == [[4]]
