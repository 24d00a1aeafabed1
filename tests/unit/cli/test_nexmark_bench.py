"""`bench nexmark`: real runs of queries, in processes of their own, and their figures."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arkflow_ray.bench.nexmark_jobs import queries
from arkflow_ray.bench.steady_part import RunFailedError
from arkflow_ray.cli import nexmark_bench
from arkflow_ray.cli.main import app
from arkflow_ray.cli.nexmark_bench import query_cost

pytestmark = pytest.mark.thorough


def test_the_figures_of_a_query_are_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ["--inline", "--query", "q13", "--events", "2000", "--json", str(file)]
    result = CliRunner().invoke(app, ["bench", "nexmark", *options])
    assert result.exit_code == 0, result.output
    head, line = result.stdout.splitlines()
    assert head.split() == [
        "query",
        "rows",
        "seconds",
        "CPU",
        "s",
        "rows/s",
        "rows/CPU",
        "s",
        "MiB",
    ]
    assert line.split()[:2] == ["q13", "1,840"]
    report = json.loads(file.read_text())
    assert (report["benchmark"], report["events"]) == ("nexmark", 2_000)
    (query,) = report["queries"]
    assert query["rows"] == 1_840
    assert query["memory_bytes"] > 10_000_000


def test_a_query_that_is_not_there_is_a_mistake() -> None:
    result = CliRunner().invoke(
        app, ["bench", "nexmark", "--inline", "--query", "q99", "--query", "q1"]
    )
    assert result.exit_code == 2
    assert "there is no query q99; there are q0, q1," in result.stderr


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    text = queries()["q2"].read_text().replace("auction % 123", "auction % nowhere")
    path = tmp_path / "q2.yaml"
    path.write_text(text)
    with pytest.raises(RunFailedError, match="nowhere"):
        query_cost("q2", path, 100)


def test_what_is_too_short_to_be_measured_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = iter([nexmark_bench.RunCost(2.0, 3.0, 10), nexmark_bench.RunCost(4.0, 3.05, 20)])
    monkeypatch.setattr(nexmark_bench, "_run", lambda _: next(costs))
    cost = query_cost("q8", queries()["q8"], 1_000)
    assert (cost.rows, cost.memory_bytes) == (80, 20)
    assert cost.rows_per_second == 40
    assert cost.rows_per_cpu_second is None
