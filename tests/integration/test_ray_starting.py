"""Starting and joining Ray where something is in the way (K7, M8)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from arkflow_kernel.errors import ClusterError
from arkflow_ray.config.project import check_file

pytestmark = pytest.mark.timeout(120)

COMMAND = (sys.executable, "-m", "arkflow_ray.cli.main")
TWO_ROWS = """
streams:
  - id: two
    input: {type: memory, messages: ['{"n": 1}', '{"n": 2}'], codec: {type: json}}
    pipeline: {processors: []}
    output: {type: stdout}
"""


def pipeline(folder: pathlib.Path, text: str = TWO_ROWS) -> pathlib.Path:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return path


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a private /dev/shm needs root and unshare (Debian: apt-get install util-linux)",
)
def test_without_shared_memory_the_job_runs_and_says_where_the_store_went(
    tmp_path: pathlib.Path,
) -> None:
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *COMMAND, "run", str(pipeline(tmp_path))],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"n":1}\n{"n":2}\n'
    assert "/dev/shm has" in done.stderr


def test_a_secret_reaches_the_component_and_nothing_that_is_printed(
    tmp_path: pathlib.Path,
) -> None:
    secret = "s3cr3t-value-77"
    text = """
streams:
  - id: told
    input: {type: memory, messages: ['{"n": 1}'], codec: {type: json}}
    pipeline:
      processors:
        - type: sql
          query: "SELECT length('${secret:TOKEN}') AS size FROM flow"
    output: {type: stdout}
"""
    path = pipeline(tmp_path, text)
    environment = {**os.environ, "ARKFLOW_SECRET_TOKEN": secret}
    printed = []
    for command in (["run", str(path)], ["explain", str(path), "--format", "json"]):
        done = subprocess.run(
            [*COMMAND, *command],
            capture_output=True,
            text=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        printed += [done.stdout, done.stderr]
    assert json.loads(printed[0]) == {"size": len(secret)}
    assert not [text for text in printed if secret in text]


@pytest.mark.timeout(60)
def test_an_address_where_nothing_listens_is_a_cluster_error(tmp_path: pathlib.Path) -> None:
    project = check_file(pipeline(tmp_path))
    assert project.ok
    done = subprocess.run(
        [*COMMAND, "run", str(project.path), "--address", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=55,
    )
    assert done.returncode == 3, done.stderr
    assert "cannot reach Ray at '127.0.0.1:1'" in done.stderr
    assert ClusterError.__name__ not in done.stderr
    assert "Traceback" not in done.stderr
