"""Jobs that only pretend, doors in a folder of the test, and raw callers."""

import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import JobId, MonotonicMs, WallMs
from arkflow_kernel.job import JobSpec
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph, Mode
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import CheckpointStatus, JobOutcome, JobState, JobStatus
from arkflow_ray.door.listener import listen
from arkflow_ray.door.server import Doors
from arkflow_ray.runtime.running import RunningJob

NOW = Moment(MonotonicMs(5_000), WallMs(1_000_000))


class ScriptedHandle:
    """A `KernelHandle` whose status the test sets."""

    def __init__(self, checkpoints: CheckpointStatus | None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.now = JobStatus(JobState.RUNNING, "deployed", NOW, checkpoints=checkpoints)

    def wait(self) -> JobOutcome:
        raise AssertionError("nobody waits for a job that only pretends")

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        self.calls.append(("stop", drain, savepoint))

    def savepoint(self, name: str) -> None:
        self.calls.append(("savepoint", name))

    def rescale(self, graph: ExecutionGraph) -> None:
        self.calls.append(("rescale", graph))

    def cancel(self) -> None:
        self.calls.append(("cancel",))

    def status(self) -> JobStatus:
        return self.now


class ScriptedJob(RunningJob):
    """A running job of a scripted handle, which ends when the test says so."""

    def __init__(
        self,
        job: str = "shop",
        root: str | None = "file:///checkpoints",
        spec: JobSpec | None = None,
    ) -> None:
        plan = CheckpointPlan(root) if root != "" else None
        mode = Mode.ACK if plan is None else Mode.CHECKPOINT
        graph = ExecutionGraph(JobId(job), 1, mode, (), (), 128, checkpoint=plan)
        self.handle = ScriptedHandle(None if plan is None else CheckpointStatus())
        super().__init__(graph if spec is None else build_graph(spec), self.handle, spec)

    def end(self, outcome: JobOutcome) -> None:
        self._outcome = outcome

    def told(self, **fields: Any) -> None:
        """Set some of its status."""
        self.handle.now = replace(self.handle.now, **fields)

    def checkpoints(self, **fields: Any) -> None:
        """Set the status of its checkpoints."""
        state = self.handle.now.state
        told = CheckpointStatus(**fields)
        self.handle.now = JobStatus(state, "deployed", NOW, checkpoints=told)


@pytest.fixture
def make_job() -> type[ScriptedJob]:
    """The class of jobs that only pretend."""
    return ScriptedJob


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder with a path that is short enough for a socket."""
    place = tempfile.mkdtemp(prefix="door-", dir="/tmp")
    yield Path(place)
    shutil.rmtree(place)


OpenDoors = Callable[..., Doors]


@pytest.fixture
def opened(folder: Path) -> Iterator[OpenDoors]:
    """Opens the doors of some jobs; they are closed at the end."""
    found: list[Doors] = []

    def run(*jobs: RunningJob) -> Doors:
        doors = Doors([(listen(folder, job.job), job) for job in jobs])
        found.append(doors)
        return doors

    yield run
    for doors in found:
        doors.close()


class RawCaller:
    """A connection on which a test says what it likes."""

    def __init__(self, path: str | Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._socket.settimeout(20)
        self._file = self._socket.makefile("rb")

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, **fields: object) -> None:
        self.say(json.dumps(fields).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        """The next message that is no sign of life; {} at the end."""
        while line := self._file.readline():
            message = cast("dict[str, Any]", json.loads(line))
            if "alive" not in message:
                return message
        return {}

    def ended(self) -> bool:
        """Whether the other side closed, after all that it said."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def stop_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def caller() -> Iterator[Callable[[str | Path], RawCaller]]:
    """Makes raw callers, and closes them."""
    found: list[RawCaller] = []

    def make(path: str | Path) -> RawCaller:
        found.append(RawCaller(path))
        return found[-1]

    yield make
    for each in found:
        each.close()
