"""A real S3 server on loopback, in a process of its own, and the fixtures to use it.

A folder of tests that needs S3 says in its conftest:
`from tests.servers.s3_server import s3_proxy, s3_root, s3_server`.
"""

import contextlib
import importlib.util
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.servers.fault_proxy import FaultProxy

INSTALL: Final = "pip install 's3fs' 'moto[s3]' flask flask-cors"
START_S: Final = 60.0


@dataclass(frozen=True)
class S3Root:
    """A fresh bucket behind the proxy. `environment` is all that a process needs to use `url`."""

    url: str
    bucket: str
    environment: dict[str, str]
    proxy: FaultProxy
    server_port: int

    def request(
        self,
        method: str,
        key: str,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """A plain HTTP request to the server itself, around the proxy: status and body."""
        return send(method, f"http://127.0.0.1:{self.server_port}/{key}", data, headers)


def send(
    method: str, url: str, data: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """A plain HTTP request, signed as the server wants it, which is not checked."""
    signed = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request",
        "Content-Type": "application/octet-stream",
        **(headers or {}),
    }
    request = urllib.request.Request(url, data, signed, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[int]:
    """Start a server, and end it with the context; its port."""
    said = folder / "s3-server.log"
    short_pages = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "7"}  # so that listings have several
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with open(said, "wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=short_pages,
        )
    try:
        yield _port(process, said)
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], said: Path) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", said.read_text()):
            return int(found.group(1))
        time.sleep(0.05)
    raise AssertionError(f"the S3 server did not start: {said.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server for all tests of this process. Skipped only where it is not installed:
    the environment for the oldest versions, never the one for development and CI.
    """
    missing = [
        n for n in ("s3fs", "moto", "flask", "flask_cors") if not importlib.util.find_spec(n)
    ]
    if missing:
        pytest.skip(f"no S3 server here: {INSTALL}")
    with running_server(tmp_path_factory.mktemp("s3-server")) as port:
        yield port


@pytest.fixture(scope="session")
def s3_proxy(s3_server: int) -> Iterator[FaultProxy]:
    """The way to the server."""
    with FaultProxy(s3_server).running() as proxy:
        yield proxy


@pytest.fixture
def s3_root(
    s3_server: int, s3_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Root]:
    """A checkpoint root in a bucket of its own, for this process and its children."""
    bucket = f"bucket-{secrets.token_hex(6)}"
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "not-so-secret",
        "AWS_ENDPOINT_URL": s3_proxy.url,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    root = S3Root(f"s3://{bucket}/checkpoints", bucket, environment, s3_proxy, s3_server)
    assert root.request("PUT", bucket)[0] == 200
    yield root
    s3_proxy.heal()


__all__ = ["INSTALL", "S3Root", "running_server", "s3_proxy", "s3_root", "s3_server", "send"]
