"""What both sides of a comparison are given: files, the jobs over them, statements for Flink."""

import json
from pathlib import Path
from typing import Any

import pytest

from arkflow_ray.bench.nexmark_flink import FLINK_QUERIES, flink_statements
from arkflow_ray.bench.nexmark_jobs import CORRECTIONS, kinds_of, on_files, paced, queries
from arkflow_ray.bench.nexmark_tables import rows_of, written
from arkflow_ray.bench.results import differences, totals
from arkflow_ray.config.project import check_file

EVENTS = 1_000


def test_a_file_has_the_rows_of_its_table_with_times_as_numbers(tmp_path: Path) -> None:
    tables = written(tmp_path, ["person", "auction", "bid"], EVENTS)
    for kind, path in tables.items():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(lines) == rows_of(kind, EVENTS)
        assert all(isinstance(line["date_time"], int) for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in tables.values()
    )


@pytest.mark.parametrize("query", FLINK_QUERIES)
def test_the_job_over_files_is_right_and_reads_them(query: str, tmp_path: Path) -> None:
    path = queries()[query]
    tables = {kind: tmp_path / f"{kind}.jsonl" for kind in kinds_of(path)}
    for file in tables.values():
        file.touch()
    config = on_files(path, tmp_path, tables)
    checked = check_file(config)
    assert checked.ok, checked.issues
    (job,) = json.loads(config.read_text())["jobs"]
    assert {source["config"]["input_type"]["path"] for source in job["sources"]} == {
        str(file) for file in tables.values()
    }
    assert [sink["output_type"] for sink in job["sinks"]] == [
        "drop" if query in CORRECTIONS else "file"
    ]
    assert "processing_time" not in json.dumps(job) or query in ("q0", "q1", "q2", "q17", "q18")


@pytest.mark.parametrize("query", FLINK_QUERIES)
def test_the_paced_job_is_right_and_has_a_clock_for_each_source(query: str, tmp_path: Path) -> None:
    path = queries()[query]
    config = paced(path, tmp_path, 1_000, 10)
    checked = check_file(config)
    assert checked.ok, checked.issues
    (job,) = json.loads(config.read_text())["jobs"]
    clocks: list[Any] = [each for each in job["operators"] if each["id"].endswith("-clock")]
    assert len(clocks) == len(job["sources"]) == len(kinds_of(path))


@pytest.mark.parametrize("query", FLINK_QUERIES)
def test_statements_name_every_table_and_one_sink(query: str, tmp_path: Path) -> None:
    tables = {kind: tmp_path / kind for kind in kinds_of(queries()[query])}
    *made, insert = flink_statements(FLINK_QUERIES[query], tables, tmp_path / "out")
    assert [text.split()[2] for text in made] == [*tables, "written"]
    assert ("blackhole" in made[-1]) == (query in CORRECTIONS)
    assert insert.startswith("INSERT INTO written ")


def test_results_are_compared_by_rows_and_sums(tmp_path: Path) -> None:
    for name, price in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        text = f'{{"price":1,"at":"x"}}\n{{"price":{price},"at":"y"}}\n'
        (tmp_path / name / "part-1").write_text(text)
        (tmp_path / name / ".hidden").write_text('{"price":9}\n')
    one, other = totals(tmp_path / "a"), totals(tmp_path / "b")
    assert one == {"rows": 2, "price": 4}
    assert differences(one, one) == []
    assert differences(one, other) == ["price: 4 and 5"]
