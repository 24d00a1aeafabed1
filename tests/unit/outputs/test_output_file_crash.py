"""Output `file` and death: what was confirmed is there, whole and once, whenever death comes."""

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
from arkflow_kernel.ports import SinkWriter
from arkflow_ray.components.outputs.file import FileSink

OpenSink = Callable[..., FileSink]
Rows = Callable[[Path], list[dict[str, Any]]]
NOW = MonotonicMs(0)

WRITES = (3, 2, 4, 1, 5)


def batch(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(start, start + count))})


def live(sink: SinkWriter, confirmed: list[int], first: int = 1) -> None:
    """Write everything from write `first` on; `confirmed` holds the last receipt."""
    for sequence, count in enumerate(WRITES[first - 1 :], start=first):
        receipt = sink.write(Sequence(sequence), batch(sum(WRITES[: sequence - 1]), count), NOW)
        confirmed[0] = receipt.confirmed_upto
    confirmed[0] = sink.flush(NOW).confirmed_upto


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_dying_before_any_system_call_loses_nothing_that_was_confirmed(
    tmp_path: Path, open_sink: OpenSink, rows: Rows, mortal: Any, form: str, links: bool
) -> None:
    for calls in range(1_000):
        folder = tmp_path / str(calls)
        confirmed = [0]
        with pytest.MonkeyPatch.context() as patch:
            if not links:
                patch.setattr(os, "link", _no_links)
            sink = open_sink(folder, format=form, roll={"rows": 4})
            life = mortal(patch, calls)
            try:
                live(sink, confirmed)
            except mortal.Died:
                pass
            else:
                break
            assert life.left == 0
        _whole_and_once(rows(folder), confirmed[0])
        _replayed(open_sink(folder, format=form), folder, rows, confirmed[0])
    assert calls > 25, "the loop must have died at many places"
    assert confirmed == [len(WRITES)]


def _no_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def _whole_and_once(found: list[dict[str, Any]], confirmed: int) -> None:
    numbers = [row["n"] for row in found]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= sum(WRITES[:confirmed])


def _replayed(sink: SinkWriter, folder: Path, rows: Rows, confirmed: int) -> None:
    """The next attempt starts behind the confirmed writes: nothing is missing then."""
    first = confirmed + 1
    start = sum(WRITES[:confirmed])
    for sequence, count in enumerate(WRITES[confirmed:], start=1):
        sink.write(Sequence(sequence), batch(start, count), NOW)
        start += count
    assert sink.flush(NOW).confirmed_upto == len(WRITES) - first + 1
    assert {row["n"] for row in rows(folder)} == set(range(sum(WRITES)))


PROGRAM = """
import sys
import pyarrow as pa
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file import build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

config = {"path": sys.argv[1], "format": "json", "roll": {"rows": 70}}
sink = build(FileOutputConfig.model_validate(config), BuildContext(operator="sink"))
sink.open()
for sequence in range(1, 1_000_000):
    batch = pa.record_batch({"write": [sequence] * 50, "row": list(range(50))})
    print(sink.write(sequence, batch, 0).confirmed_upto, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("receipts", [7, 40, 120])
def test_kill_9_loses_nothing_that_was_confirmed(tmp_path: Path, rows: Rows, receipts: int) -> None:
    folder = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdout=subprocess.PIPE, text=True, env=environment,
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(receipts)]
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
    assert writer.returncode == -signal.SIGKILL
    confirmed = told[-1]
    assert confirmed > 0
    found = [(row["write"], row["row"]) for row in rows(folder)]
    everything = [(write, row) for write in range(1, confirmed + 100) for row in range(50)]
    assert found == everything[: len(found)]
    assert len(found) >= confirmed * 50
