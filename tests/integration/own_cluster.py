"""A Ray cluster of one node as `ray start` makes it, with token authentication, and its clients.

Nothing of it is shared: free ports, a folder of its own, and a token that nobody else has.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.integration.processes import in_session

PATIENCE: Final = 3
START_S: Final = 60.0
END_S: Final = 30.0

_HEAD: Final = (
    "--head", "--block", "--node-ip-address=127.0.0.1", "--include-dashboard=false",
    "--num-cpus=8", "--object-store-memory=134217728", "--disable-usage-stats",
)  # fmt: skip


class OwnCluster:
    """A head node in processes of its own. `folder` is short enough for Ray's sockets."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(32)
        self.folder = folder
        self._home = folder / "home"
        self._home.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        for _ in range(PATIENCE):  # a busy machine does not start a node within Ray's half minute
            if self._start():
                return
            self.stop()
        raise RuntimeError((folder / "head.log").read_text())

    def environment(self, *, token: bool = True) -> dict[str, str]:
        """Of a client, with the token or without any."""
        taken = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "ARKFLOW_RAY_ADDRESS")
        found = {name: value for name, value in os.environ.items() if name not in taken}
        found |= {"HOME": str(self._home), "RAY_USAGE_STATS_ENABLED": "0"}
        if not token:
            found["RAY_NUM_REDIS_GET_RETRIES"] = "2"  # or Ray asks for 20 s, each second again
        else:
            found |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        return found

    def call(
        self, *arguments: str, token: bool = True, where: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the program to its end, with the cluster's address."""
        return subprocess.run(
            [sys.executable, "-m", "arkflow_ray.cli.main", *arguments, "--address", self.address],
            cwd=where, env=self.environment(token=token), capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def told(self, *arguments: str, where: Path | None = None) -> dict[str, Any]:
        """The JSON answer of a command that works."""
        called = self.call(*arguments, "--json", where=where)
        assert called.returncode == 0, called.stdout + called.stderr
        answer: dict[str, Any] = json.loads(called.stdout)
        return answer

    def stop(self) -> None:
        """End all of its processes: the head and what Ray has started, which has its session."""
        if self._process is None:
            return
        deadline_s = time.monotonic() + END_S
        while members := in_session(self._process.pid):
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            assert time.monotonic() < deadline_s, f"{members} do not end"
            time.sleep(0.05)
        self._process.wait()

    def _start(self) -> bool:
        port = _free_port()
        self.address = f"127.0.0.1:{port}"
        ports = (f"--port={port}", f"--ray-client-server-port={_free_port()}")
        ray = str(Path(sys.executable).with_name("ray"))
        with (self.folder / "head.log").open("wb") as log:
            self._process = subprocess.Popen(
                [ray, "start", *_HEAD, *ports, f"--temp-dir={self.folder / 'ray'}"],
                env=self.environment(), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and self._process.poll() is None:
            if "Ray runtime started" in (self.folder / "head.log").read_text(errors="replace"):
                return True
            time.sleep(0.1)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def own_cluster() -> Iterator[OwnCluster]:
    """A cluster that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="afr-", dir="/tmp"))
    cluster = None
    try:
        cluster = OwnCluster(folder)
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["OwnCluster", "own_cluster"]
