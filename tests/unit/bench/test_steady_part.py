"""Programs whose steady part is measured: what they read, what they use, how they end."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from arkflow_ray.bench.nexmark_latency import FolderWatch, _read_ms
from arkflow_ray.bench.process_usage import cpu_seconds, peak_bytes, processes
from arkflow_ray.bench.steady_part import RunFailedError, measured

READER = """
import sys, time
with open(sys.argv[1], "rb", buffering=0) as lines:
    while lines.read(1000):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
print("read")
"""


def _file(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "rows"
    path.write_bytes(b"x" * size)
    return path


def test_rows_per_cpu_second_of_the_middle_of_a_file(tmp_path: Path) -> None:
    path = _file(tmp_path, 100_000)
    steady = measured([sys.executable, "-c", READER, str(path)], {path: 1_000})
    # Ten rows take a hundredth of a second of CPU, and what the loop itself needs. On a busy
    # machine the place in the file and the CPU are not seen at quite the same moment.
    assert 300 < steady.rows_per_cpu_s < 3_000
    assert steady.rows_per_s > 0
    assert (steady.said, steady.java_bytes) == ("read\n", 0)


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    path = _file(tmp_path, 10)
    with pytest.raises(RunFailedError, match="no such thing"):
        measured([sys.executable, "-c", "raise SystemExit('no such thing')"], {path: 1})


def test_a_file_that_nobody_is_seen_reading_is_too_short(tmp_path: Path) -> None:
    path = _file(tmp_path, 10)
    with pytest.raises(RunFailedError, match="too few events"):
        measured([sys.executable, "-c", "pass"], {path: 1})


def test_what_this_process_uses_is_seen() -> None:
    pids = processes(os.getpid())
    assert pids[0] == os.getpid()
    assert cpu_seconds(pids) > 0
    assert cpu_seconds([2**22 + 1]) == 0
    name = Path("/proc/self/comm").read_text().strip()
    assert peak_bytes(pids, name) > 1_000_000


def test_an_event_was_read_with_the_first_batch_that_goes_as_far() -> None:
    one = (np.array([10, 20, 30]), np.array([100, 200, 300]))
    other = (np.array([12, 18, 40]), np.array([100, 250, 260]))
    read_ms, ended = _read_ms([one, other], np.array([50, 100, 101, 255, 261]))
    assert read_ms[:4].tolist() == [12, 12, 20, 40]
    assert ended.tolist() == [False, False, False, False, True]


def test_files_are_seen_when_they_have_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    before_ms = time.time_ns() // 1_000_000
    with FolderWatch(folder) as watch:
        folder.mkdir()
        (folder / ".hidden").touch()
        (folder / "part-1").touch()
    assert list(watch.seen_ms) == ["part-1"]
    assert watch.seen_ms["part-1"] >= before_ms
