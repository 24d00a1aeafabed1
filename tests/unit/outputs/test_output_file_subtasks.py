"""Output `file` with several subtasks in one folder: names, leftovers, lanes (X3, X5, F4)."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import CheckpointId, Generation, MonotonicMs, Sequence, SubtaskIndex
from arkflow_kernel.plan import Subtask
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs import hidden_files
from arkflow_ray.components.outputs.epoch_file import EpochFileSink
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from arkflow_ray.components.outputs.hidden_files import clear_dead, owner_of

Rows = Callable[[Path], list[dict[str, Any]]]
Parts = Callable[[Path], list[Path]]
NOW = MonotonicMs(0)
PERMIT = CommitPermit("test")


def subtask(index: int, of: int) -> Subtask:
    return Subtask(SubtaskIndex(index), of)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(numbers)})


def context(index: int, of: int, staging: Staging | None = None) -> BuildContext:
    return BuildContext("sink", staging=staging, job="job", subtask=subtask(index, of))


def at_least_once(folder: Path, index: int, of: int) -> FileSink:
    """The writer of one subtask, opened."""
    config = FileOutputConfig.model_validate({"path": str(folder), "format": "json"})
    sink = build(config, context(index, of))
    assert isinstance(sink, FileSink)
    sink.open()
    return sink


def exactly_once(
    folder: Path, objects: Any, generation: int, index: int, of: int, logged: int | None = None
) -> EpochFileSink:
    """The exactly-once sink of one subtask, opened."""
    upto = None if logged is None else CheckpointId(logged)
    name = f"{generation:010d}-sink-{index}-sink"
    staging = Staging(objects, Generation(generation), index, name, lambda: upto)
    config = FileOutputConfig.model_validate({"path": str(folder), "format": "json"})
    sink = build(config, context(index, of, staging))
    assert isinstance(sink, EpochFileSink)
    sink.open()
    return sink


def staged(sink: EpochFileSink, generation: int, checkpoint: int, *numbers: int) -> SinkToken:
    """An epoch of one batch, sealed and staged; nothing of it is shown."""
    epoch = Epoch(Generation(generation), CheckpointId(checkpoint))
    sink.write(Sequence(1), batch(*numbers), NOW)
    sink.seal(epoch)
    (token,) = sink.stage(epoch)
    return token


def hidden(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def test_each_subtask_numbers_its_own_parts(tmp_path: Path, rows: Rows, parts: Parts) -> None:
    folder = tmp_path / "out"
    sinks = [at_least_once(folder, index, 3) for index in range(3)]
    for number in range(2):
        for index, sink in enumerate(sinks):
            sink.write(Sequence(number + 1), batch(10 * index + number), NOW)
            sink.flush(NOW)
    for sink in sinks:
        sink.close()
    assert [part.name for part in parts(folder)] == [
        f"part-0000000001-0000000000-{lane:010d}-{number:010d}.jsonl"
        for lane in range(3)
        for number in (1, 2)
    ]
    assert sorted(row["n"] for row in rows(folder)) == [0, 1, 10, 11, 20, 21]


def test_a_later_attempt_with_fewer_subtasks_adds_to_the_folder(
    tmp_path: Path, parts: Parts
) -> None:
    for of in (3, 2):
        for index in range(of):
            sink = at_least_once(tmp_path, index, of)
            sink.write(Sequence(1), batch(index), NOW)
            sink.flush(NOW)
            sink.close()
    assert [part.name[27:48] for part in parts(tmp_path)] == [
        "0000000000-0000000001",
        "0000000000-0000000002",
        "0000000001-0000000001",
        "0000000001-0000000002",
        "0000000002-0000000001",
    ]


def left_behind(folder: Path, index: int, of: int, host: str | None = None) -> str:
    """A hidden file of a writer of that subtask that is gone."""
    before = set(hidden(folder)) if folder.exists() else set()
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        if host is not None:
            patch.setattr("socket.gethostname", lambda: host)
        owner = owner_of("job", "sink", subtask(index, of))
        _, descriptor = hidden_files.create_hidden(folder, "part", owner)
    os.close(descriptor)
    (name,) = set(hidden(folder)) - before
    return name


def test_what_a_lane_left_behind_is_cleared_by_the_subtask_that_owns_the_lane(
    tmp_path: Path,
) -> None:
    """Four writers died; the next attempt has two."""
    left = [left_behind(tmp_path, index, 4) for index in range(4)]
    at_least_once(tmp_path, 1, 2).close()
    assert hidden(tmp_path) == sorted([left[0], left[2]])
    at_least_once(tmp_path, 0, 2).close()
    assert hidden(tmp_path) == []


def test_exactly_once_sinks_clear_by_lanes_too(
    tmp_path: Path, small_store: Callable[[Path], Any]
) -> None:
    folder, store = tmp_path / "out", small_store(tmp_path / "ckpt")
    left = [left_behind(folder, index, 4) for index in range(4)]
    exactly_once(folder, store, 2, 1, 3).close()
    assert hidden(folder) == sorted([left[0], left[2], left[3]])
    exactly_once(folder, store, 2, 0, 3).close()
    assert hidden(folder) == [left[2]]


def test_the_open_part_of_a_living_sibling_stays_however_old_it_is_and_wherever_it_writes(
    tmp_path: Path, rows: Rows
) -> None:
    """Locks of some network file systems do not reach other machines, so only its name tells."""
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "far-away")
        sibling = at_least_once(folder, 1, 2)
        sibling.write(Sequence(1), batch(7), NOW)
    (name,) = hidden(folder)
    old = (folder / name).stat().st_mtime - 2 * hidden_files.FOREIGN_AGE_S
    os.utime(folder / name, (old, old))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcntl.flock", lambda *_: None)
        at_least_once(folder, 0, 2).close()
    assert sibling.flush(NOW).confirmed_upto == 1
    sibling.close()
    assert rows(folder) == [{"n": 7}]


def test_files_without_a_subtask_in_their_name_are_those_of_the_first(tmp_path: Path) -> None:
    """An earlier release wrote them: it had one subtask."""
    owner = owner_of("job", "sink", subtask(0, 2))
    assert owner is not None
    name = left_behind(tmp_path, 0, 1).replace("-s0-", "-")
    (tmp_path / hidden(tmp_path)[0]).rename(tmp_path / name)
    other = owner_of("job", "sink", subtask(1, 2))
    assert clear_dead(tmp_path, other) == 0
    assert clear_dead(tmp_path, owner) == 1


def test_tokens_of_lanes_move_down_and_up_twice_and_keep_their_names(
    tmp_path: Path, small_store: Callable[[Path], Any], rows: Rows, parts: Parts
) -> None:
    """4 -> 2 -> 3 -> 2 -> 4 subtasks: the owner of a lane publishes what waits in it, again too."""
    folder, store = tmp_path / "out", small_store(tmp_path / "ckpt")
    pending: list[SinkToken] = []
    for generation, of in enumerate((4, 2, 3, 2, 4), start=1):
        sinks = [
            exactly_once(folder, store, generation, index, of, logged=generation - 1)
            for index in range(of)
        ]
        for _ in range(2):
            for token in pending:
                sinks[token.lane % of].publish(token, PERMIT)
        pending = [
            staged(sink, generation, generation, 10 * generation + lane)
            for lane, sink in enumerate(sinks)
        ]
        for sink in sinks:
            sink.close()
    assert [part.name for part in parts(folder)] == [
        f"part-{each:010d}-{each:010d}-{lane:010d}-0000000001.jsonl"
        for each, of in enumerate((4, 2, 3, 2), start=1)
        for lane in range(of)
    ]
    assert [row["n"] for row in rows(folder)] == [10, 11, 12, 13, 20, 21, 30, 31, 32, 40, 41]


def test_later_parts_are_refused_by_the_subtask_of_their_lane_alone(
    tmp_path: Path, small_store: Callable[[Path], Any]
) -> None:
    folder, store = tmp_path / "out", small_store(tmp_path / "ckpt")
    folder.mkdir()
    (folder / "part-0000000003-0000000009-0000000001-0000000001.jsonl").touch()
    exactly_once(folder, store, 3, 0, 2, logged=8).close()
    exactly_once(folder, store, 3, 2, 3, logged=8).close()
    with pytest.raises(SinkError, match=r"begins generation 3, and .* a part of generation 3"):
        exactly_once(folder, store, 3, 1, 2, logged=8)
