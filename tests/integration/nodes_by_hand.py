"""A cluster that is started by hand with the scripts of clusters/local, and jobs on it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).parents[2] / "clusters/local"
UP_S: Final = 100.0
JOB_S: Final = 100.0
STARTED: Final = "Ray runtime started"
STORE: Final = ("--object-store-memory", str(100 * 1024 * 1024))


@dataclass
class ByHand:
    """The user's home, which has the token, and what was started by hand.

    `head_ip`: the address of the head, also where that is the one that its script takes itself.
    `variables`: in the environment of all nodes and clients.
    """

    head_ip: str
    port: int
    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="afh-", dir="/tmp")))
    nodes: list["subprocess.Popen[str]"] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where the head is."""
        return f"{self.head_ip}:{self.port}"

    def environment(self, **more: str) -> dict[str, str]:
        """That of a user with this home and the installed programs, and nothing else of Ray."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": programs, "HOME": str(self.home)}
        return {**kept, **own, **self.variables, **more}

    def head(self, *arguments: str, prefix: tuple[str, ...] = (), by_default: bool = False) -> None:
        """Start the head, at its script's own address `by_default`; `prefix` runs a command."""
        own = ("--temp-dir", str(self.home / "ray"))
        variables = {"PORT": str(self.port)} | ({} if by_default else {"NODE_IP": self.head_ip})
        self._start((*prefix, str(SCRIPTS / "head.sh"), *own, *arguments), variables)

    def node(self, ip: str, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        """Start a further node."""
        variables = {"NODE_IP": ip, "HEAD": self.address}
        self._start((*prefix, str(SCRIPTS / "node.sh"), *arguments), variables)

    def close(self) -> None:
        """End all nodes, the head last."""
        for node in reversed(self.nodes):
            node.terminate()
        for node in self.nodes:
            node.communicate(timeout=UP_S)
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, command: tuple[str, ...], variables: dict[str, str]) -> None:
        """Start a node; it is up when this returns."""
        node = subprocess.Popen(
            [*command, "--num-cpus", "8", *STORE],
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.nodes.append(node)
        late = threading.Timer(UP_S, node.kill)
        late.start()
        assert node.stdout is not None
        said = []
        for line in node.stdout:
            said.append(line)
            if STARTED in line:
                break
        late.cancel()
        assert node.poll() is None, "".join(said)

    def run(self, file: Path, address: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """`arkflow-ray run` of a file on the cluster."""
        command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", str(file)]
        return subprocess.run(
            [*command, "--address", address],
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_S,
        )


def free_port(ip: str) -> int:
    """A port below those that Ray gives to workers."""
    for port in range(7001, 9999):
        with socket.socket() as probe:
            try:
                probe.bind((ip, port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


__all__ = ["SCRIPTS", "UP_S", "ByHand", "free_port"]
