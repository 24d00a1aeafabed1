"""The contracts of the ports, run on the components that we ship."""

import json
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.operator_harness import check_operator
from arkflow_kernel.testing.port_contracts import check_sink_writer, check_source_reader
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component

BATCHES = [rows_batch("a", range(n)) for n in (2, 1, 0, 3, 5, 2, 1)]


def _make(kind: ComponentKind, name: str, **config: Any) -> Any:
    return build_component(kind, ComponentPlan(name, config), BuildContext("tested"))


def test_the_file_input_restores_at_every_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "in.json"
    lines = [json.dumps({"n": n}) for n in range(30)] + ["not json", "", '{"n": 99}']
    path.write_text("\n".join(lines))

    def make() -> Any:
        config = {"type": "json", "path": str(path)}
        return _make(ComponentKind.INPUT, "file", input_type=config, batch_rows=4)

    history = check_source_reader(make)
    assert sum(len(rows) for rows in history.rows().values()) == 32


def test_the_parquet_input_restores_at_every_batch(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"n": range(50)}), path, row_group_size=7)

    def make() -> Any:
        config = {"type": "parquet", "path": str(path)}
        return _make(ComponentKind.INPUT, "file", input_type=config, batch_rows=4)

    history = check_source_reader(make)
    assert [row["n"] for rows in history.rows().values() for row in rows] == list(range(50))


@pytest.mark.parametrize("format_", ["json", "parquet"])
@pytest.mark.parametrize("roll", [{"rows": 4}, {"interval": "10ms"}])
def test_the_file_output_confirms_what_a_reader_sees(
    tmp_path: pathlib.Path, format_: str, roll: dict[str, Any]
) -> None:
    def visible() -> int:
        parts = [part for part in tmp_path.iterdir() if part.name[0] not in "._"]
        if format_ == "json":
            return sum(len(part.read_text().splitlines()) for part in parts)
        return sum(pq.read_metadata(part).num_rows for part in parts)

    def make() -> Any:
        config = {"path": str(tmp_path), "format": format_, "roll": roll}
        return _make(ComponentKind.OUTPUT, "file", **config)

    check_sink_writer(make, BATCHES, visible=visible, splits_writes="rows" in roll)


def test_the_drop_output_confirms_everything() -> None:
    check_sink_writer(lambda: _make(ComponentKind.OUTPUT, "drop"), BATCHES)


def test_sql_yields_the_same_rows_however_the_batch_is_cut() -> None:
    query = "SELECT n * 2 AS m, upper(split) AS s FROM flow WHERE n % 3 <> 1"
    expected = [{"m": n * 2, "s": "A"} for n in range(12) if n % 3 != 1]
    check_operator(
        lambda: _make(ComponentKind.PROCESSOR, "sql", query=query),
        rows_batch("a", range(12)),
        expected=expected,
        cuts=2,
    )


def test_json_decoding_isolates_bad_rows_however_the_batch_is_cut() -> None:
    values = [b'{"n": %d}' % n for n in range(8)]
    values[3] = b"{"
    batch = pa.RecordBatch.from_pydict({"__value__": pa.array(values, pa.binary())})
    result = check_operator(lambda: _make(ComponentKind.PROCESSOR, "json_to_arrow"), batch, cuts=2)
    assert result.bad == [b"{"]
    assert [row["n"] for row in result.rows] == [0, 1, 2, 4, 5, 6, 7]
