"""Output `file` when the world fails: the error tells path and advice, no part stays half done."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs import part_stream
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from arkflow_ray.components.outputs.file_errors import remote_failure
from arkflow_ray.components.paths import shown

OpenSink = Callable[..., FileSink]
NOW = MonotonicMs(0)

ROWS = pa.record_batch({"n": [1, 2, 3]})
FORMATS = ("json", "csv", "parquet", "arrow")


def opening(path: object, **config: object) -> str:
    """What the error says that opening the sink ends with."""
    given = {"path": str(path), "format": "json", **config}
    sink = build(FileOutputConfig.model_validate(given), BuildContext(operator="sink"))
    with pytest.raises(SinkError) as failed:
        sink.open()
    sink.close()
    return str(failed.value)


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        told = opening(path)
        assert f"'{path}'" in told
        assert "must name a folder, but a file stands there" in told
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_place_where_no_folder_can_be_made_is_not_called_gone() -> None:
    told = opening("/proc/absent/out")
    assert "cannot create the folder in '/proc/absent/out': No such file" in told
    assert told.endswith("; no folder can be made there; set another `path`")


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody without permission")
def test_a_folder_without_permission_is_found_at_opening(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents[:2]:
        os.chmod(parent, 0o755)
    os.seteuid(65_534)
    try:
        told = opening(tmp_path)
    finally:
        os.seteuid(0)
    assert "Permission denied" in told
    assert "let user id 65534 write there" in told


def test_a_folder_that_vanished_is_told_and_nothing_is_confirmed(
    tmp_path: Path, open_sink: OpenSink
) -> None:
    sink = open_sink(tmp_path / "out")
    sink.write(Sequence(1), ROWS, NOW)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(SinkError, match="the folder is gone; do not delete or move it"):
        sink.flush(NOW)


@pytest.mark.parametrize("form", FORMATS)
def test_a_failed_write_removes_the_part_and_ends_the_writer(
    tmp_path: Path, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    sink = open_sink(tmp_path, format=form)
    sink.write(Sequence(1), ROWS, NOW)
    monkeypatch.setattr(os, "write", _full)
    with pytest.raises(SinkError, match=r"No space left on device; .* MiB are free; free space"):
        sink.flush(NOW)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
    calls: list[Callable[[], object]] = [
        lambda: sink.write(Sequence(2), ROWS, NOW),
        lambda: sink.roll(NOW),
        lambda: sink.flush(NOW),
    ]
    for call in calls:
        with pytest.raises(SinkError, match="failed before"):
            call()


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_failed_publication_confirms_nothing(
    tmp_path: Path, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    sink = open_sink(tmp_path)
    sink.write(Sequence(1), ROWS, NOW)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(SinkError, match=r"cannot publish a part .*Input/output error; check"):
        sink.flush(NOW)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_device_that_takes_no_byte_fails_the_write(
    tmp_path: Path, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    sink = open_sink(tmp_path, format=form, roll={"rows": 3})
    begin = sink._folder.begin

    def begin_on_a_full_device() -> part_stream.PartStream:
        stream = begin()
        with open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), stream._descriptor)
        return stream

    monkeypatch.setattr(sink._folder, "begin", begin_on_a_full_device)
    with pytest.raises(SinkError, match="No space left on device"):
        sink.write(Sequence(1), ROWS, NOW)
    assert os.listdir(tmp_path) == []


ON_A_TINY_DISK = """
import os, subprocess, sys
import pyarrow as pa
from arkflow_kernel.errors import SinkError
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file import build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

disk, form = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
config = {"path": disk, "format": form, "compression": "none", "roll": {"bytes": "300KB"}}
sink = build(FileOutputConfig.model_validate(config), BuildContext(operator="sink"))
sink.open()
confirmed = 0
try:
    for sequence in range(1, 200):
        text = os.urandom(5_000).hex()
        confirmed = sink.write(sequence, pa.record_batch({"t": [text]}), 0).confirmed_upto
except SinkError as error:
    print(error)
sink.close()
names = sorted(os.listdir(disk))
print(confirmed, len(names), any(name.startswith(".") for name in names))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to mount a tiny file system")
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_full_disk_is_told_and_leaves_only_whole_parts(tmp_path: Path, form: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(ON_A_TINY_DISK))
    disk = tmp_path / "disk"
    disk.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(
        ["unshare", "-m", sys.executable, str(program), str(disk), form],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if ran.returncode != 0 and ("unshare" in ran.stderr or "mount" in ran.stderr):
        pytest.skip(f"no private mounts here: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.stderr == ""
    told, facts = ran.stdout.splitlines()
    assert f"in '{disk}': No space left on device; " in told
    assert "of 1.0 MiB are free; free space, or set another `path`" in told
    confirmed, files, hidden = facts.split()
    assert int(confirmed) > 0
    assert int(files) == 3
    assert hidden == "False"


@pytest.mark.parametrize(
    ("form", "column"),
    [
        ("csv", pa.array([[1]])),
        ("csv", pa.array([{"a": 1}])),
        ("parquet", pa.array([{}], pa.struct([]))),
        ("parquet", pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
    ],
)
def test_a_column_that_the_format_cannot_hold_is_named(
    tmp_path: Path, open_sink: OpenSink, form: str, column: "pa.Array[Any]"
) -> None:
    sink = open_sink(tmp_path, format=form)
    bad = pa.record_batch([pa.array([1]), column], ["fine", "tags"])
    with pytest.raises(SinkError) as failed:  # noqa: PT012 - formats see it at either step
        sink.write(Sequence(1), bad, NOW)
        sink.flush(NOW)
    assert f"format `{form}` cannot hold column `tags` ({column.type})" in str(failed.value)
    assert f"'{tmp_path}'" in str(failed.value)
    sink.close()
    assert os.listdir(tmp_path) == []


def test_text_in_csv_that_is_not_utf8_is_a_sink_error(tmp_path: Path, open_sink: OpenSink) -> None:
    sink = open_sink(tmp_path, format="csv")
    with pytest.raises(SinkError, match="Invalid UTF8"):
        sink.write(Sequence(1), pa.record_batch([pa.array([b"\xff"], pa.binary())], ["b"]), NOW)


def test_a_column_that_json_cannot_hold_is_told(tmp_path: Path, open_sink: OpenSink) -> None:
    sink = open_sink(tmp_path)
    column = pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string()))
    with pytest.raises(SinkError, match=r"output 'sink'.*JSON"):
        sink.write(Sequence(1), pa.record_batch([column], ["m"]), NOW)
    assert os.listdir(tmp_path) == []


def test_messages_never_hold_credentials() -> None:
    url = "s3://key:hunter2@bucket/x?token=hunter3&part=hunter4"
    assert "hunter" not in shown(url)
    told = str(remote_failure("sink", url, "upload", OSError(f"403 for {url}")))
    assert "hunter" not in told
    assert "bucket/x" in told
