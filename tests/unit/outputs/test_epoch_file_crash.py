"""Exactly-once output `file` and death: readers see whole files of recorded tokens, once, in order.

The record of a checkpoint is a line of JSON here: the tokens to be published and the next row. It
is written between staging and publication, and what follows a death begins from the last line.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.ids import CheckpointId, Generation, MonotonicMs, OperatorId, Sequence
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, ObjectRef, SinkToken, StagedObject
from arkflow_ray.checkpoint.open import StoreObjects, open_objects
from arkflow_ray.components.outputs.epoch_file import EpochFileSink

pytestmark = pytest.mark.thorough

MakeSink = Callable[..., EpochFileSink]
Rows = Callable[[Path], list[dict[str, Any]]]
NOW = MonotonicMs(0)
PERMIT = CommitPermit("test")
EPOCHS = (3, 0, 4)
ROWS = sum(EPOCHS)


def batch(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(start, start + count))})


class Job:
    """What a job does with its sink: two epochs with rows and one without, a record for each.

    `log` is what survives. `step` is told what was done just now.
    """

    def __init__(
        self, sink: EpochFileSink, generation: int, log: Path, step: Callable[[str], None]
    ) -> None:
        self._sink, self._log, self._step = sink, log, step
        self._generation = Generation(generation)
        self._records = [json.loads(line) for line in read_lines(log)]

    def live(self) -> None:
        """Publish what is pending, then do what is left."""
        nothing: dict[str, Any] = {"next": 0, "tokens": []}
        last = self._records[-1] if self._records else nothing
        for token in map(parsed, last["tokens"]):
            self._sink.publish(token, PERMIT)
        self._sink.open()
        start, done = int(last["next"]), len(self._records)
        for checkpoint, count in enumerate(EPOCHS[done:], start=done + 1):
            for row in range(start, start + count):
                self._sink.write(Sequence(row + 1), batch(row, 1), NOW)
                self._step("write")
            start += count
            epoch = Epoch(self._generation, CheckpointId(checkpoint))
            self._sink.seal(epoch)
            self._step("seal")
            tokens = self._sink.stage(epoch)
            self._step("stage")
            self._record({"next": start, "tokens": [told(token) for token in tokens]})
            self._step("record")
            for token in tokens:
                self._sink.publish(token, PERMIT)
                self._step("publish")

    def _record(self, record: dict[str, Any]) -> None:
        aside = self._log.with_suffix(".new")
        text = "".join(f"{line}\n" for line in read_lines(self._log)) + json.dumps(record) + "\n"
        aside.write_text(text)
        aside.replace(self._log)


def read_lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def told(token: SinkToken) -> dict[str, Any]:
    objects = [
        (o.object.name, o.object.size, o.object.checksum, o.rows, o.extension)
        for o in token.objects
    ]
    return {"sink": token.sink, "lane": token.lane, "epoch": token.epoch, "objects": objects}


def parsed(token: dict[str, Any]) -> SinkToken:
    generation, checkpoint = token["epoch"]
    objects = tuple(
        StagedObject(ObjectRef(name, size, checksum), rows, extension)
        for name, size, checksum, rows, extension in token["objects"]
    )
    epoch = Epoch(Generation(generation), CheckpointId(checkpoint))
    return SinkToken(OperatorId(token["sink"]), token["lane"], epoch, objects)


def check_visible(found: list[dict[str, Any]], log: Path) -> None:
    """Rows of recorded tokens only, from the first on, and all but those of the last token."""
    numbers = [row["n"] for row in found]
    assert numbers == list(range(len(numbers)))
    nexts = [0, 0, *(int(json.loads(line)["next"]) for line in read_lines(log))]
    assert nexts[-2] <= len(numbers) <= nexts[-1]


def objects_of(folder: Path) -> StoreObjects:
    return open_objects(f"file://{folder / 'ckpt'}", "job")


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_dying_before_any_system_call_shows_only_recorded_rows_and_then_each_once(
    tmp_path: Path, make_epoch_sink: MakeSink, rows: Rows, mortal: Any, form: str
) -> None:
    config = {"format": form, "roll": {"rows": 2}}
    for calls in range(1_000):
        folder = tmp_path / str(calls)
        target, log = folder / "out", folder / "log"
        folder.mkdir()
        dead, store = objects_of(folder), objects_of(folder)
        with pytest.MonkeyPatch.context() as patch:
            sink = make_epoch_sink(target, dead, 1, **config)
            life = mortal(patch, calls)
            try:
                Job(sink, 1, log, lambda _: None).live()
            except mortal.Died:
                pass
            else:
                break
            assert life.left == 0
        check_visible(rows(target) if target.exists() else [], log)
        sink.close()
        successor = make_epoch_sink(target, store, 2, **config)
        Job(successor, 2, log, lambda _: None).live()
        successor.close()
        assert [row["n"] for row in rows(target)] == list(range(ROWS))
        for objects in (dead, store):
            objects.close()
    assert calls > 40, "the loop must have died at many places"
    assert [row["n"] for row in rows(target)] == list(range(ROWS))


PROGRAM = """
import importlib.util, sys
from pathlib import Path

def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(sys.argv[1], name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

fixtures, test = load("conftest"), load("test_epoch_file_crash")
folder, generation, waits = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "waits"

def step(name):
    print(name, flush=True)
    if waits:
        sys.stdin.readline()

sink = fixtures.epoch_sink(folder / "out", test.objects_of(folder), generation, roll={"rows": 2})
test.Job(sink, generation, folder / "log", step).live()
"""


def run_until(folder: Path, generation: int, steps: int | None, waits: bool) -> list[str]:
    """Run the job in a process and kill it after so many steps, between two if it `waits`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    arguments = [str(Path(__file__).parent), str(folder), str(generation)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments, "waits" if waits else "runs"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        done = []
        for line in islice(process.stdout, steps):
            done.append(line.strip())
            if waits and len(done) != steps:
                process.stdin.write("\n")
                process.stdin.flush()
        if steps is not None:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == (0 if steps is None else -signal.SIGKILL)
    return done


@pytest.mark.slow
def test_kill_9_between_two_steps_shows_only_recorded_rows_and_then_each_once(
    tmp_path: Path, rows: Rows
) -> None:
    target, log = tmp_path / "out", tmp_path / "log"
    kills = [(2, "write"), (4, "seal"), (5, "stage"), (6, "record"), (3, "record"), (8, "publish")]
    for generation, (steps, last) in enumerate(kills, start=1):
        assert run_until(tmp_path, generation, steps, waits=True)[-1] == last
        check_visible(rows(target) if target.exists() else [], log)
    assert len(read_lines(log)) == len(EPOCHS)
    run_until(tmp_path, len(kills) + 1, None, waits=False)
    assert [row["n"] for row in rows(target)] == list(range(ROWS))
    assert not [name for name in os.listdir(target) if name.startswith(".")]


@pytest.mark.slow
def test_kill_9_at_work_shows_only_recorded_rows_and_then_each_once(
    tmp_path: Path, rows: Rows
) -> None:
    for generation, steps in enumerate((3, 6), start=1):
        run_until(tmp_path, generation, steps, waits=False)
        check_visible(rows(tmp_path / "out"), tmp_path / "log")
    run_until(tmp_path, 3, None, waits=False)
    assert [row["n"] for row in rows(tmp_path / "out")] == list(range(ROWS))
