"""`bench nexmark` on Ray, as far as it goes without Ray: mistakes, and a peer that is not there."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arkflow_ray.cli.main import app


def _told(*options: str) -> str:
    result = CliRunner().invoke(app, ["bench", "nexmark", *options])
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_a_query_that_has_no_comparison_is_a_mistake() -> None:
    told = _told("--query", "q99", "--query", "q13", "--query", "q1")
    assert "q99, q13 cannot be measured on Ray; these can: q0, q1, q2, q5," in told


def test_a_peer_beside_inline_is_a_mistake() -> None:
    assert "--peer needs Ray" in _told("--inline", "--peer", "flink")


@pytest.mark.parametrize("options", [["--peer", "spark"], ["--seconds", "-1"], ["--rate", "0"]])
def test_other_mistakes_are_usage(options: list[str]) -> None:
    assert options[0] in _told(*options)


def test_without_a_flink_the_way_to_one_is_told() -> None:
    told = _told("--query", "q0", "--peer", "flink")
    assert "DIR/bin/pip install apache-flink==2.3.0" in told


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    told = _told("--peer", "flink", "--flink-python", str(python))
    assert f"there is no interpreter {python}" in told


def test_an_environment_without_flink_is_told() -> None:
    told = _told("--peer", "flink", "--flink-python", sys.executable)
    assert f"{sys.executable} has no Flink" in told
    assert "pip install apache-flink==2.3.0" in told
