"""Output `file` clears away what dead writers of the same sink left behind, and nothing else (F4).

A hidden file belongs to one sink of one job, and its writer holds a lock on it while it lives.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs import hidden_files
from arkflow_ray.components.outputs.epoch_file import EpochFileSink
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

pytestmark = pytest.mark.thorough

Rows = Callable[[Path], list[dict[str, Any]]]
NOW = MonotonicMs(0)
BATCH = pa.record_batch({"n": [1]})

PROGRAM = """
import sys
import pyarrow as pa
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file import build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

config = FileOutputConfig.model_validate({"path": sys.argv[1], "format": "json"})
sink = build(config, BuildContext(operator="sink", job=sys.argv[2]))
sink.open()
sink.write(1, pa.record_batch({"n": [1]}), 0)
print("written", flush=True)
sys.stdin.read()
"""


def die_with_an_open_part(folder: Path, job: str = "job") -> str:
    """Let another process write a row and kill it; the name that it left behind."""
    before = set(hidden(folder)) if folder.exists() else set()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), job],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    (name,) = set(hidden(folder)) - before
    return name


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def opened(folder: Path, job: str | None = "job", operator: str = "sink") -> FileSink:
    config = FileOutputConfig.model_validate({"path": str(folder), "format": "json"})
    sink = build(config, BuildContext(operator=operator, job=job))
    assert isinstance(sink, FileSink)
    sink.open()
    return sink


def test_the_next_attempt_clears_the_open_part_of_one_that_was_killed(
    tmp_path: Path, rows: Rows
) -> None:
    folder = tmp_path / "out"
    die_with_an_open_part(folder)
    sink = opened(folder)
    assert not hidden(folder)
    sink.write(Sequence(1), BATCH, NOW)
    sink.flush(NOW)
    sink.close()
    assert rows(folder) == [{"n": 1}]


def test_what_other_sinks_and_other_jobs_left_behind_stays(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    left = die_with_an_open_part(folder)
    for job, operator in (("other", "sink"), ("job", "other"), (None, "sink")):
        opened(folder, job, operator).close()
    assert hidden(folder) == [left]


def test_the_open_part_of_a_living_writer_of_the_same_sink_stays(
    tmp_path: Path, rows: Rows
) -> None:
    folder = tmp_path / "out"
    living = opened(folder)
    living.write(Sequence(1), BATCH, NOW)
    opened(folder).close()
    assert living.flush(NOW).confirmed_upto == 1
    living.close()
    assert rows(folder) == [{"n": 1}]


def test_what_another_machine_left_behind_is_cleared_when_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "far-away")
        sink = opened(folder)
        sink.write(Sequence(1), BATCH, NOW)
    (left,) = hidden(folder)
    kept = (folder / left).read_bytes()
    sink.close()
    (folder / left).write_bytes(kept)
    opened(folder).close()
    assert hidden(folder) == [left]
    old = (folder / left).stat().st_mtime - hidden_files.FOREIGN_AGE_S
    os.utime(folder / left, (old, old))
    opened(folder).close()
    assert not hidden(folder)


def test_where_files_cannot_be_locked_sinks_write_and_nothing_is_cleared(
    tmp_path: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    left = die_with_an_open_part(folder)

    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    sink = opened(folder)
    sink.write(Sequence(1), BATCH, NOW)
    assert sink.flush(NOW).confirmed_upto == 1
    sink.close()
    assert rows(folder) == [{"n": 1}]
    assert hidden(folder) == [left]


def test_an_exactly_once_sink_clears_the_copies_that_it_was_killed_at(
    tmp_path: Path,
    small_store: Callable[[Path], Any],
    make_epoch_sink: Callable[..., EpochFileSink],
) -> None:
    folder = tmp_path / "out"
    die_with_an_open_part(folder)
    sink = make_epoch_sink(folder, small_store(tmp_path / "ckpt"))
    sink.open()
    assert not hidden(folder)
    sink.close()
