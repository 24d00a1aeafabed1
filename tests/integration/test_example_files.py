"""Every example runs as it stands, without Ray, and prints and writes what its comment says."""

import json
import pathlib
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def folder(repository: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the examples that the runs may write beside."""
    place = tmp_path_factory.mktemp("examples")
    shutil.copytree(repository / "examples", place / "examples")
    return place


def run(folder: pathlib.Path, name: str) -> list[dict[str, object]]:
    """The rows that an example prints."""
    command = [
        str(pathlib.Path(sys.executable).with_name("arkflow-ray")),
        "run", "--inline", f"examples/{name}.yaml",
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def written(folder: pathlib.Path, path: str) -> list[dict[str, object]]:
    """The rows of all JSON parts below a folder."""
    parts = sorted((folder / path).glob("part-*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def test_the_demo_prints_refunds_and_keeps_damaged_lines_aside(folder: pathlib.Path) -> None:
    refunds = run(folder, "demo")
    assert len(refunds) == 21
    assert all(isinstance(row["total"], float) and row["total"] > 800 for row in refunds)
    rejected = written(folder, "out/demo/rejected")
    assert [row["__value__"] for row in rejected][:2] == [
        '{"id":3210,"at":"2026-03-05T1',
        '{"id":7777,"note":"\\xff\\xfe"}',
    ]
    assert len(rejected) == 4


def test_orders_are_priced_by_the_rates_of_their_time(folder: pathlib.Path) -> None:
    rows = sorted(run(folder, "temporal_join"), key=lambda row: str(row["id"]))
    assert [row.get("euros") for row in rows] == [25.0, 50.0, 50.0, None]


def test_generate_prints_25_readings(folder: pathlib.Path) -> None:
    assert run(folder, "generate") == [{"furnace": "f7", "fahrenheit": 1184.9}] * 25


def test_inline_python_counts_letters(folder: pathlib.Path) -> None:
    rows = run(folder, "python_inline")
    assert [row["letters"] for row in rows] == [6, 5, 9]


def test_the_object_of_a_class_gets_batches_of_four(folder: pathlib.Path) -> None:
    rows = run(folder, "python_class")
    assert rows[0] == {"word": "river", "score": 0.4, "batch": 1}
    assert [row["batch"] for row in rows] == [1] * 4 + [2] * 4 + [3] * 2


def test_the_error_edge_of_the_job_takes_the_bad_message(folder: pathlib.Path) -> None:
    assert [row["id"] for row in run(folder, "job_error_edge")] == [1, 3]
    (bad,) = written(folder, "out/job/rejected")
    assert bad["__value__"] == '{"id": 2, "total": oops}'
    assert bad["__meta_error_operator"] == "parse"


def test_sql_groups_within_each_batch(folder: pathlib.Path) -> None:
    rows = run(folder, "sql_group_by")
    assert len(rows) % 6 == 0
    assert len(rows) > 6
    assert sum(int(str(row["orders"])) for row in rows) == 16_986


def test_sql_behind_a_window_buffer_groups_whole_windows(folder: pathlib.Path) -> None:
    rows = run(folder, "window_buffer")
    assert sum(int(str(row["orders"])) for row in rows) == 16_986, "each order is in one window"
    assert len(rows) < 40 * 6, "not one table for each of the 40 batches"


def test_parquet_parts_hold_every_good_order(folder: pathlib.Path) -> None:
    assert run(folder, "parquet_out") == []
    parts = sorted((folder / "out" / "orders").glob("part-*.parquet"))
    assert [pq.read_metadata(part).num_rows for part in parts] == [6_000, 6_000, 6_000, 1_996]
    assert len({pq.read_schema(part).to_string() for part in parts}) == 1


def test_the_job_with_checkpoints_writes_each_order_once_also_when_it_is_run_again(
    folder: pathlib.Path,
) -> None:
    for _ in range(2):
        assert run(folder, "checkpoints") == []
        numbers: dict[object, list[object]] = {}
        for row in written(folder, "out/counted"):
            numbers.setdefault(row["country"], []).append(row["number"])
        assert sum(len(of_one) for of_one in numbers.values()) == 19_996
        assert all(of_one == list(range(1, len(of_one) + 1)) for of_one in numbers.values())


def test_the_windows_leave_in_order_of_time_and_the_late_sale_is_put_aside(
    folder: pathlib.Path,
) -> None:
    rows = run(folder, "windows")
    assert {(row["window_start"], row["shop"], row["sales"], row["turnover"]) for row in rows} == {
        (1772366400000, "Lyon", 3, 61),
        (1772366400000, "Oslo", 1, 50),
        (1772367000000, "Lyon", 1, 40),
        (1772367000000, "Oslo", 1, 70),
    }
    assert [row["window_start"] for row in rows] == [1772366400000] * 2 + [1772367000000] * 2
    (late,) = written(folder, "out/windows/late")
    assert (late["customer"], late["__arkflow_late_event_route"]) == ("eve", True)


def test_shops_add_up_sales_that_were_sent_twice_once_and_the_dearest_are_ranked(
    folder: pathlib.Path,
) -> None:
    last = {row["shop"]: row for row in run(folder, "aggregates")}
    lyon = {"sales": 3, "turnover": 61, "dearest": 31, "last": "cy", "customers": 2}
    oslo = {"sales": 1, "turnover": 50, "dearest": 50, "last": "bo", "customers": 1}
    assert last == {"Lyon": {"shop": "Lyon", **lyon}, "Oslo": {"shop": "Oslo", **oslo}}
    lists: dict[object, dict[object, object]] = {}
    for row in written(folder, "out/aggregates"):
        lists.setdefault(row["shop"], {})[row["rank"]] = row["euros"]
    assert lists == {"Lyon": {1: 31, 2: 20}, "Oslo": {1: 50}}


def test_the_partitioned_job_numbers_the_large_orders_of_each_country(
    folder: pathlib.Path,
) -> None:
    places: dict[object, list[object]] = {}
    for row in run(folder, "job_partitioned"):
        assert isinstance(row["total"], int | float)
        assert row["total"] > 800
        places.setdefault(row["country"], []).append(row["place"])
    assert sum(len(of_one) for of_one in places.values()) == 262
    assert len(places) == 6
    assert all(of_one == list(range(1, len(of_one) + 1)) for of_one in places.values())


def test_the_parallel_job_prints_every_hundredth_order_of_each_country(
    folder: pathlib.Path,
) -> None:
    numbers: dict[object, list[object]] = {}
    for row in run(folder, "parallel"):
        numbers.setdefault(row["country"], []).append(row["number"])
    assert len(numbers) == 6
    assert sum(len(of_one) for of_one in numbers.values()) == 198
    for of_one in numbers.values():
        assert of_one == [100 * (place + 1) for place in range(len(of_one))]
