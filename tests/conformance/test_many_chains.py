"""Jobs of many chains by the command line: order per key, nothing lost, nothing twice (G2, E6).

Each job reads a file of rows `{"k": key, "n": number within the key}` and writes files; the rows
that come out are compared with those that went in, per key in their order.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from tests.conformance.acceptance import CASES, compare

COMMAND = (sys.executable, "-m", "arkflow_ray.cli.main")
TIMEOUT_S = 120
ROWS, KEYS, SEED = 6_000, 37, 20_261_129

Row = tuple[str, int]

JOB = """
jobs:
  - id: many
    version: 1
    operators:
      - {{id: read, kind: source}}
{operators}
      - {{id: out, kind: sink}}
    edges:
{edges}
    sources:
      - operator_id: read
        input_type: file
        config:
          input_type: {{type: json, path: "{rows}"}}
          batch_rows: {batch_rows}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: out, output_type: file, config: {{path: "{out}", format: json}}}}
"""
SQL = "config: {type: sql, query: 'select k, n, n * 10 as m from flow'}"


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Rows of many keys, interleaved; numbers rise within each key."""
    dice = random.Random(SEED)
    counts: Counter[str] = Counter()
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with path.open("w") as file:
        for _ in range(ROWS):
            key = f"key-{dice.randrange(KEYS)}"
            file.write(json.dumps({"k": key, "n": counts[key]}) + "\n")
            counts[key] += 1
    return path


@pytest.fixture(params=["inline", "ray"])
def driver(request: pytest.FixtureRequest) -> str:
    """Which driver runs the job."""
    name: str = request.param
    return name


def run(pipeline: pathlib.Path, driver: str, **variables: str) -> None:
    options = ("--inline",) if driver == "inline" else ()
    done = subprocess.run(
        [*COMMAND, "run", str(pipeline), *options],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def job(
    folder: pathlib.Path, rows: pathlib.Path, operators: list[str], edges: list[str], **named: int
) -> pathlib.Path:
    pipeline = folder / "pipeline.yaml"
    text = JOB.format(
        operators="\n".join(f"      - {{{line}}}" for line in operators),
        edges="\n".join(f"      - {{id: e{i}, {line}}}" for i, line in enumerate(edges)),
        rows=rows,
        out=folder / "out",
        batch_rows=named.get("batch_rows", 250),
    )
    pipeline.write_text(text)
    return pipeline


def written(folder: pathlib.Path) -> Iterator[dict[str, object]]:
    """Rows of the output's parts, in the order of publication."""
    parts = sorted(path for path in (folder / "out").iterdir() if path.name[0] not in "._")
    for part in parts:
        for line in part.read_text().splitlines():
            yield json.loads(line)


def in_order_per_key(rows: Iterator[dict[str, object]]) -> list[Row]:
    """The rows; each key's numbers must rise."""
    found: list[Row] = []
    last: dict[str, int] = defaultdict(lambda: -1)
    for row in rows:
        key, number = str(row["k"]), int(str(row["n"]))
        assert number > last[key], f"{key}: {number} after {last[key]}"
        last[key] = number
        found.append((key, number))
    return found


def read_in(path: pathlib.Path) -> list[Row]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["k"], row["n"]) for row in rows]


@pytest.mark.parametrize("batch_rows", [7, 1_000])
def test_a_partitioned_edge_to_four_subtasks_and_a_merge_keep_the_order_of_every_key(
    batch_rows: int, driver: str, rows_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    operators = [f"id: keyed, kind: map, parallelism: 4, key_field: k, {SQL}"]
    edges = ["from: read, to: keyed, partitioned: true", "from: keyed, to: out"]
    pipeline = job(tmp_path, rows_file, operators, edges, batch_rows=batch_rows)
    run(pipeline, driver)
    assert Counter(in_order_per_key(written(tmp_path))) == Counter(read_in(rows_file))


def test_a_diamond_with_a_broadcast_side_sends_each_row_once_and_its_copies_everywhere(
    driver: str, rows_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The upper side goes by key, the lower one to all three subtasks: 1 + 3 of every row."""
    operators = [
        "id: upper, kind: map, config: {type: sql, query: 'select k, n, 1 as side from flow'}",
        "id: lower, kind: map, config: {type: sql, query: 'select k, n, 2 as side from flow'}",
        "id: mix, kind: map, parallelism: 3, key_field: k, "
        "config: {type: sql, query: 'select k, n, side from flow'}",
    ]
    edges = [
        "from: read, to: upper",
        "from: read, to: lower",
        "from: upper, to: mix, partitioned: true",
        "from: lower, to: mix, type: broadcast",
        "from: mix, to: out",
    ]
    run(job(tmp_path, rows_file, operators, edges), driver)
    sides: dict[object, list[dict[str, object]]] = {1: [], 2: []}
    for row in written(tmp_path):
        sides[row["side"]].append(row)
    expected = Counter(read_in(rows_file))
    assert Counter(in_order_per_key(iter(sides[1]))) == expected
    copies = Counter((str(row["k"]), int(str(row["n"]))) for row in sides[2])
    assert copies == Counter({row: 3 * count for row, count in expected.items()})


def test_a_rebalance_edge_loses_and_repeats_nothing(
    driver: str, rows_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    operators = [f"id: work, kind: map, parallelism: 3, {SQL}"]
    edges = ["from: read, to: work, type: rebalance", "from: work, to: out"]
    run(job(tmp_path, rows_file, operators, edges), driver)
    assert Counter((r["k"], r["n"]) for r in written(tmp_path)) == Counter(read_in(rows_file))


def test_a_running_count_per_key_counts_over_four_subtasks(
    driver: str, rows_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """`stateful: true` (C.2 of the reference): the n-th row of a key has the count n + 1."""
    query = "config: {type: sql, query: 'select k, n, __arkflow_state_count as c from flow'}"
    operators = [f"id: count, kind: map, parallelism: 4, stateful: true, key_field: k, {query}"]
    edges = ["from: read, to: count, partitioned: true", "from: count, to: out"]
    run(job(tmp_path, rows_file, operators, edges), driver)
    rows = list(written(tmp_path))
    assert [row["c"] for row in rows] == [int(str(row["n"])) + 1 for row in rows]
    assert Counter(in_order_per_key(iter(rows))) == Counter(read_in(rows_file))


@pytest.mark.parametrize("threads", [1, 4])
def test_stream_sql_passes_with_every_operator_in_a_chain_of_its_own(
    threads: int, driver: str, tmp_path: pathlib.Path
) -> None:
    text = (CASES / "stream_sql" / "pipeline.yaml").read_text()
    assert "thread_num: 4" in text
    text = text.replace("thread_num: 4", f"thread_num: {threads}\n      chain: false")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(text)
    out = tmp_path / "out"
    run(pipeline, driver, CASE_DIR=str(CASES / "stream_sql"), OUT_DIR=str(out))
    compare("stream_sql", out, ordered=True)
