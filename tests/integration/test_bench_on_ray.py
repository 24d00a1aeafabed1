"""`bench nexmark` on a Ray of its own: few events, and the figures that it prints and writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

FLINK = os.environ.get("ARKFLOW_FLINK_PYTHON")
"""Interpreter of an environment with Flink; without it the peer is not tested."""


def _bench(tmp_path: Path, *options: str) -> tuple[list[str], dict[str, object]]:
    """The table's lines, and the figures of its one query."""
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "arkflow_ray.cli.main", "bench", "nexmark", *options]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "events"), "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert (report["benchmark"], report["checkpoint_every"]) == ("nexmark", "1 s")
    (figures,) = report["queries"]
    return done.stdout.splitlines(), figures


def test_a_query_is_measured_on_ray(tmp_path: Path) -> None:
    options = ["--query", "q12", "--events", "1200000", "--rate", "1000", "--seconds", "22"]
    (head, line), figures = _bench(tmp_path, *options)
    assert head.split()[:3] == ["query", "rows", "rows/CPU"]
    assert line.split()[:2] == ["q12", "1,104,000"]
    assert float(str(figures["rows_per_cpu_second"])) > 0
    assert int(str(figures["memory_bytes"])) > 50_000_000
    # The watermark is a second behind, so a window cannot be read before that.
    assert 1_000 <= float(str(figures["latency_p50_ms"])) < 20_000
    assert figures["ratio"] is None


@pytest.mark.skipif(FLINK is None, reason="no ARKFLOW_FLINK_PYTHON")
def test_the_same_query_runs_on_flink_and_writes_the_same(tmp_path: Path) -> None:
    options = ["--query", "q12", "--events", "1200000", "--seconds", "0"]
    peer = ["--peer", "flink", "--flink-python", str(FLINK)]
    _, figures = _bench(tmp_path, *options, *peer)
    assert float(str(figures["flink_rows_per_cpu_second"])) > 0
    assert int(str(figures["flink_memory_bytes"])) > 50_000_000
    assert int(str(figures["result_rows"])) > 1_000
