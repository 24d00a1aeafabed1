"""A folder with the file of one job, the program that runs it, and commands beside it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkflow_ray.door.client import ask, find_door
from arkflow_ray.door.messages import NotReachableError, Request


@dataclass(frozen=True)
class Program:
    """A run. Its rows go into a file: a pipe that nobody reads would hold the job back."""

    process: subprocess.Popen[str]
    rows: Path

    def first(self) -> int:
        """The number in the first row that it prints."""
        while not (text := self.rows.read_text()).count("\n"):
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.02)  # the test's time-out bounds the wait
        return int(json.loads(text.splitlines()[0])["number"])

    def last(self) -> int:
        """The number in the last row that it printed."""
        return int(json.loads(self.rows.read_text().splitlines()[-1])["number"])

    def interrupt(self) -> str:
        """Stop it as Ctrl-C does; what it said."""
        self.process.send_signal(signal.SIGINT)
        return self.said()

    def said(self) -> str:
        """What it said, when it has ended."""
        return self.process.communicate()[1]


class Shop:
    """A folder with the file; commands in it see only the doors of this test."""

    def __init__(self, place: Path, text: str) -> None:
        self.place = place
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(place)}
        self._programs: list[Program] = []
        (place / "shop.yaml").write_text(text)

    def run(self, *arguments: str, command: str = "run", ray: bool = False) -> Program:
        """Start the job, in a process of its own; inline unless it is to be on `ray`."""
        arguments = arguments if ray else ("--inline", *arguments)
        rows = self.place / f"rows-{len(self._programs)}"
        with rows.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "arkflow_ray.cli.main", command, "shop.yaml",
                 *arguments],
                cwd=self.place, env=self._environment, stdout=out, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
        self._programs.append(Program(process, rows))
        return self._programs[-1]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "arkflow_ray.cli.main", *arguments],
            cwd=self.place, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def told(self, *arguments: str) -> dict[str, Any]:
        """The JSON answer of a command that works."""
        called = self.call(*arguments, "--json")
        assert called.returncode == 0, called.stdout + called.stderr
        answer: dict[str, Any] = json.loads(called.stdout)
        return answer

    def status(self) -> dict[str, Any] | None:
        """What `status` answers, asked in this process; None while there is no door."""
        folder = self.place / "arkflow_ray"
        if not folder.is_dir():
            return None
        try:
            return ask(find_door("shop", [folder]), Request("status"), None)
        except NotReachableError:
            return None

    def alive(self) -> bool:
        """Whether a program that was started still runs."""
        return any(program.process.poll() is None for program in self._programs)

    def close(self) -> None:
        """Kill what still runs, and remove the folder."""
        for program in self._programs:
            program.process.kill()
            program.process.wait()
            assert program.process.stderr is not None
            program.process.stderr.close()
        shutil.rmtree(self.place)


@contextmanager
def opened(text: str) -> Iterator[Shop]:
    """A shop of its own; its path is short enough for sockets."""
    shop = Shop(Path(tempfile.mkdtemp(prefix="shop-", dir="/tmp")), text)
    try:
        yield shop
    finally:
        shop.close()


def await_status(shop: Shop, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status as soon as it is as wanted; the test's time-out bounds the wait."""
    while True:
        alive = shop.alive()
        told = shop.status()
        if told is not None and wanted(told):
            return told
        assert alive, "no run is left that could come to it"
        time.sleep(0.05)


__all__ = ["Program", "Shop", "await_status", "opened"]
