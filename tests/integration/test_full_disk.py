"""A disk that fills up under a job: the reason is told, and what was confirmed stays whole."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "arkflow_ray.cli.main", "run")
PIPELINE = """\
streams:
  - id: s
    input:
      type: generate
      context: '{{"a":"{text}"}}'
      interval: 1ms
      batch_size: 1000
      codec: json
    pipeline: {{processors: []}}
    output: {{type: file, path: '{disk}', format: json, roll: {{bytes: 300KB}}}}
    restart: {{strategy: none}}
"""
TEXT = "x" * 100
ON_A_TINY_DISK = (
    'mount -t tmpfs -o size=1m tmpfs "$1" || exit 77; "${@:2}"; echo "code $?"; cat "$1"/*'
)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a tiny file system needs root and unshare (Debian: apt-get install util-linux)",
)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("where", [["--inline"], []], ids=["inline", "ray"])
def test_a_full_disk_fails_the_job_and_leaves_whole_parts(tmp_path: Path, where: list[str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(disk=disk, text=TEXT))
    shell = ["unshare", "-m", "bash", "-c", ON_A_TINY_DISK, "bash", str(disk)]
    ran = subprocess.run(
        [*shell, *COMMAND, *where, str(path)], capture_output=True, text=True, check=False
    )
    if ran.returncode == 77:
        pytest.skip(f"no private mounts here: {ran.stderr.strip()}")
    code, *rows = ran.stdout.splitlines()
    assert code == "code 1", ran.stderr
    assert f"output 'sink': cannot write a part in '{disk}': No space left on device" in ran.stderr
    assert "of 1.0 MiB are free; free space, or set another `path`" in ran.stderr
    assert "  note     written is what the outputs were given; the last of it may not" in ran.stderr
    assert "Traceback" not in ran.stderr
    # Parts of 300 KB, on 1 MiB: two or three whole ones, in whole batches.
    assert set(rows) == {f'{{"a":"{TEXT}"}}'}
    assert len(rows) in (6_000, 9_000)


@pytest.mark.timeout(60)
def test_a_stdout_that_takes_nothing_fails_the_job(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "streams:\n  - {id: s, input: {type: memory, messages: [x]}, pipeline: {processors: []},"
        " output: {type: stdout}}\n"
    )
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*COMMAND, "--inline", str(path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 1
    assert "stdout: cannot be written: No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr
