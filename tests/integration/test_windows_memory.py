"""A window whose keys do not fit its memory, on a real Ray: they are spilled, and all are right
(S5, N1, N3)."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arkflow_kernel.ids import ChainId
from arkflow_kernel.protocol import OutcomeKind
from tests.integration.running_jobs import Running, Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

KEYS = 200_000
WINDOW = ChainId("totals-0")

JOB = """
jobs:
  - id: many-keys
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: totals
        kind: window
        stateful: true
        key_field: k
        config:
          kind: tumbling
          size_ms: 3600000
          timestamp_field: ts
          key_fields: [k]
          aggregates:
            - {{function: count}}
            - {{function: sum, field: v, as: sum}}
            - {{function: min, field: v, as: min}}
            - {{function: max, field: v, as: max}}
      - {{id: out, kind: sink, chain: false}}
    edges:
      - {{id: by-key, from: rows, to: totals, partitioned: true}}
      - {{id: results, from: totals, to: out}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: parquet, path: {folder}/rows.parquet}}
          rows_per_second: 100000
        time: {{mode: event_time, timestamp_field: ts, watermark: {{out_of_orderness_ms: 1000}}}}
    sinks:
      - {{operator_id: out, output_type: file, config: {{path: {folder}/out, format: parquet}}}}
    state: {{backend: embedded_kv, memory_bytes: 1000000}}
    checkpoint: {{object_store_uri: "{folder}/store", interval_ms: 500}}
"""


def spilled_bytes(running: Running) -> int:
    """Bytes of all local files of spilled entries that the window's process has open."""
    usage = running.status.usage.get(WINDOW)
    links = [] if usage is None else pathlib.Path(f"/proc/{usage.pid}/fd").glob("*")
    total = 0
    for link in links:
        try:
            total += link.stat().st_size if ".spill" in str(link.readlink()) else 0
        except FileNotFoundError:
            continue  # closed meanwhile
    return total


def test_a_window_of_more_keys_than_fit_spills_them_and_says_of_each_what_is_right(
    start: Start, tmp_path: pathlib.Path
) -> None:
    dice = np.random.default_rng(7)
    keys = np.concatenate([dice.permutation(KEYS), dice.permutation(KEYS)])
    columns = {"k": keys, "v": 2 * keys + np.repeat([0, 1], KEYS), "ts": np.arange(2 * KEYS)}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=20_000)
    running = start(JOB.format(folder=tmp_path))
    running.until(lambda: spilled_bytes(running) > 0)
    running.ended(OutcomeKind.FINISHED)
    rows = pa.concat_tables(pq.read_table(part) for part in (tmp_path / "out").glob("part-*"))
    said = {name: rows.column(name).to_numpy() for name in ("k", "count", "sum", "min", "max")}
    order = np.argsort(said["k"])
    expected = np.arange(KEYS)
    right = {"k": expected, "count": np.full(KEYS, 2), "sum": 4 * expected + 1}
    right |= {"min": 2 * expected, "max": 2 * expected + 1}
    for name, values in right.items():
        assert np.array_equal(said[name][order], values), name
