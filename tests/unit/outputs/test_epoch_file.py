"""Output `file`, exactly once: epochs are staged, and shown when their token is published (X3)."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from arkflow_kernel.checkpoint_ports import ObjectStore, Staging
from arkflow_kernel.errors import ConfigError, CorruptObjectError, SinkError, StoreError
from arkflow_kernel.ids import CheckpointId, Generation, MonotonicMs, Sequence
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken
from arkflow_kernel.testing.port_contracts import check_epoch_sink
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.epoch_file import EpochFileSink
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

MakeSink = Callable[..., EpochFileSink]
Rows = Callable[[Path], list[dict[str, Any]]]
Parts = Callable[[Path], list[Path]]
NOW = MonotonicMs(0)
PERMIT = CommitPermit("test")
STEM = "part-0000000001-0000000001-0000000000"


class Store(ObjectStore, Protocol):
    """The conftest's `SmallStore`."""

    fail_at: int

    def names(self) -> list[str]: ...


MakeStore = Callable[..., Store]


@pytest.fixture
def store(tmp_path: Path, small_store: MakeStore) -> Store:
    return small_store(tmp_path / "ckpt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def opened(
    make_epoch_sink: MakeSink, folder: Path, store: Store
) -> Iterator[Callable[..., EpochFileSink]]:
    """Opens sinks over `folder` and `store`, and closes them."""
    sinks: list[EpochFileSink] = []

    def start(generation: int = 1, **config: Any) -> EpochFileSink:
        sink = make_epoch_sink(folder, store, generation, **config)
        sinks.append(sink)
        sink.open()
        return sink

    yield start
    for sink in sinks:
        sink.close()


def epoch(checkpoint: int, generation: int = 1) -> Epoch:
    return Epoch(Generation(generation), CheckpointId(checkpoint))


def batch(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(start, start + count))})


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["n"] for row in rows]


def one_token(sink: EpochFileSink, count: int = 3, checkpoint: int = 1) -> SinkToken:
    """Write an epoch and stage it."""
    sink.write(Sequence(1), batch(0, count), NOW)
    sink.seal(epoch(checkpoint))
    (token,) = sink.stage(epoch(checkpoint))
    return token


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
@pytest.mark.parametrize("form", ["json", "csv", "parquet", "arrow"])
@pytest.mark.parametrize("roll", [{}, {"rows": 2}, {"interval": "1ms"}])
def test_the_sink_keeps_the_contract_of_the_port(
    folder: Path, tmp_path: Path, small_store: MakeStore, make_epoch_sink: MakeSink, rows: Rows,
    form: str, roll: dict[str, Any], links: bool,
) -> None:  # fmt: skip
    store = small_store(tmp_path / "ckpt", links=links)

    def fail_once() -> None:
        store.fail_at = 2

    def visible() -> list[dict[str, Any]]:
        return rows(folder) if folder.exists() else []

    batches = [batch(10 * number, count) for number, count in enumerate((3, 1, 5, 2), start=1)]
    check_epoch_sink(
        lambda generation: make_epoch_sink(folder, store, generation, format=form, roll=roll),
        batches,
        visible,
        fail_once=fail_once,
    )
    assert not hidden(folder)
    assert not list(store.spool.iterdir())


def test_names_are_a_function_of_the_token_and_sort_in_the_order_of_rows(
    opened: MakeSink, folder: Path, parts: Parts, store: Store
) -> None:
    sink = opened(roll={"rows": 2}, compression="gzip")
    token = one_token(sink, count=5)
    sink.publish(token, PERMIT)
    assert [part.name for part in parts(folder)] == [
        f"{STEM}-{number:010d}.jsonl.gz" for number in (1, 2, 3)
    ]
    assert store.names() == [f"0000000001-c-0-sink-{number}.sink" for number in (1, 2, 3)]
    assert [staged.rows for staged in token.objects] == [2, 2, 1]


def test_on_the_stores_file_system_a_part_is_the_object_and_nothing_is_copied(
    opened: MakeSink, folder: Path, parts: Parts, store: Store
) -> None:
    sink = opened()
    token = one_token(sink)
    sink.publish(token, PERMIT)
    (part,) = parts(folder)
    source = store.local_path(token.objects[0].object.name)
    assert source is not None
    assert part.samefile(source)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_where_links_do_not_reach_the_part_is_a_whole_copy(
    opened: MakeSink, folder: Path, parts: Parts, rows: Rows, store: Store,
    monkeypatch: pytest.MonkeyPatch, code: int,
) -> None:  # fmt: skip
    sink = opened()
    token = one_token(sink)
    source, link = store.local_path(token.objects[0].object.name), os.link

    def refuse(src: Any, dst: Any) -> None:
        if src == source or code != errno.EXDEV:
            raise OSError(code, os.strerror(code))
        link(src, dst)

    monkeypatch.setattr(os, "link", refuse)
    sink.publish(token, PERMIT)
    sink.publish(token, PERMIT)
    (part,) = parts(folder)
    assert source is not None
    assert not part.samefile(source)
    assert numbers(rows(folder)) == [0, 1, 2]
    assert not hidden(folder)


def test_an_epoch_without_rows_has_no_token(opened: MakeSink) -> None:
    sink = opened()
    sink.seal(epoch(1))
    sink.write(Sequence(1), batch(0, 0), NOW)
    sink.seal(epoch(2))
    assert sink.stage(epoch(2)) == ()


def test_rows_after_a_seal_are_of_the_next_epoch(
    opened: MakeSink, folder: Path, rows: Rows
) -> None:
    sink = opened()
    sink.write(Sequence(1), batch(0, 3), NOW)
    sink.seal(epoch(1))
    sink.write(Sequence(2), batch(3, 2), NOW)
    (first,) = sink.stage(epoch(1))
    sink.seal(epoch(2))
    (second,) = sink.stage(epoch(2))
    assert (first.epoch, second.epoch) == (epoch(1), epoch(2))
    sink.publish(first, PERMIT)
    assert numbers(rows(folder)) == [0, 1, 2]
    sink.publish(second, PERMIT)
    assert numbers(rows(folder)) == [0, 1, 2, 3, 4]


def test_staging_after_a_failure_puts_only_what_is_missing(
    opened: MakeSink, folder: Path, rows: Rows, store: Store
) -> None:
    sink = opened(roll={"rows": 1})
    sink.write(Sequence(1), batch(0, 4), NOW)
    sink.seal(epoch(1))
    store.fail_at = 3
    with pytest.raises(StoreError):
        sink.stage(epoch(1))
    assert len(store.names()) == 2
    (token,) = sink.stage(epoch(1))
    assert len(store.names()) == 4
    assert [staged.object.name for staged in token.objects] == [
        f"0000000001-c-0-sink-{number}.sink" for number in (1, 2, 4, 5)
    ]
    sink.publish(token, PERMIT)
    assert numbers(rows(folder)) == [0, 1, 2, 3]


def test_a_part_of_another_origin_is_never_replaced(
    opened: MakeSink, folder: Path, store: Store
) -> None:
    sink = opened()
    token = one_token(sink)
    foreign = folder / f"{STEM}-0000000001.jsonl"
    foreign.write_text("theirs\n")
    with pytest.raises(SinkError, match=r"does not hold the rows.*Another job.*another `path`"):
        sink.publish(token, PERMIT)
    assert foreign.read_text() == "theirs\n"


@pytest.mark.parametrize(
    "name", [f"{STEM}-0000000007.parquet", STEM.replace("1-", "2-", 1) + "-0000000001.x"]
)
def test_a_folder_that_holds_parts_of_this_generation_already_is_refused_at_opening(
    make_epoch_sink: MakeSink, folder: Path, store: Store, name: str
) -> None:
    folder.mkdir()
    (folder / name).touch()
    sink = make_epoch_sink(folder, store)
    with pytest.raises(SinkError, match=r"begins generation 1, and .* already holds a part of"):
        sink.open()
    sink.close()


@pytest.mark.parametrize(("logged", "refused"), [(0, True), (6, True), (7, False), (None, False)])
def test_parts_of_checkpoints_that_the_log_does_not_know_are_refused_in_every_generation(
    folder: Path, store: Store, logged: int | None, refused: bool
) -> None:
    """X3: the second start after the job's checkpoints were deleted has generation 2."""
    folder.mkdir()
    (folder / "part-0000000001-0000000007-0000000000-0000000001.jsonl").touch()
    upto = None if logged is None else CheckpointId(logged)
    staging = Staging(store, Generation(2), 0, "0000000002-c-0-sink", lambda: upto)
    config = FileOutputConfig.model_validate({"format": "json", "path": str(folder)})
    sink = EpochFileSink(config, "sink", str(folder), staging)
    if refused:
        known = "none" if logged == 0 else str(logged)
        with pytest.raises(SinkError, match=f"log is {known}, .* part of checkpoint 7: .* move"):
            sink.open()
    else:
        sink.open()
    sink.close()


@pytest.mark.parametrize(
    "name",
    [
        "part-0000000001-0000000009-0000000000-0000000001.jsonl",  # an earlier generation
        "part-0000000002-0000000001-0000000001-0000000001.jsonl",  # another lane
        "part-0000000002-0000000000-0000000000-0000000001.jsonl",  # a sink without epochs
        "other.jsonl",
    ],
)
def test_parts_that_cannot_be_in_the_way_are_let_be(
    opened: MakeSink, folder: Path, name: str
) -> None:
    folder.mkdir()
    (folder / name).touch()
    opened(generation=2)
    assert (folder / name).exists()


def test_a_token_whose_object_is_gone_is_published_if_its_part_is_there(
    opened: MakeSink, folder: Path, parts: Parts, store: Store, make_epoch_sink: MakeSink
) -> None:
    token = one_token(opened())
    path = store.local_path(token.objects[0].object.name)
    assert path is not None
    path.rename(path.with_name("away"))
    later = make_epoch_sink(folder, store, 2)
    with pytest.raises(CorruptObjectError, match=r"missing or damaged, and .* is not there either"):
        later.publish(token, PERMIT)
    path.with_name("away").rename(path)
    later.publish(token, PERMIT)
    path.unlink()
    later.publish(token, PERMIT)
    (part,) = parts(folder)
    part.write_text("torn")
    with pytest.raises(SinkError, match="does not hold the rows"):
        later.publish(token, PERMIT)
    later.close()


@pytest.mark.parametrize("links", [True, False])
def test_a_damaged_object_is_not_shown(
    folder: Path, tmp_path: Path, small_store: MakeStore, make_epoch_sink: MakeSink, links: bool
) -> None:
    store = small_store(tmp_path / "ckpt", links=links)
    sink = make_epoch_sink(folder, store)
    token = one_token(sink)
    damaged = tmp_path / "ckpt" / "objects" / token.objects[0].object.name
    data = bytearray(damaged.read_bytes())
    data[0] ^= 1
    damaged.write_bytes(bytes(data))
    sink.close()
    later = make_epoch_sink(folder, store, 2)
    with pytest.raises(CorruptObjectError):
        later.publish(token, PERMIT)
    assert not os.listdir(folder)
    later.close()


def test_a_token_of_another_lane_and_format_is_published_as_it_was_staged(
    opened: MakeSink, folder: Path, parts: Parts, store: Store, make_epoch_sink: MakeSink
) -> None:
    other = make_epoch_sink(folder, store, 1, lane=3, format="parquet")
    token = one_token(other)
    other.close()
    opened(generation=2).publish(token, PERMIT)
    assert [part.name for part in parts(folder)] == [
        "part-0000000001-0000000001-0000000003-0000000001.parquet"
    ]


def test_close_leaves_what_is_staged_and_nothing_else(opened: MakeSink, store: Store) -> None:
    sink = opened(roll={"rows": 2})
    one_token(sink)
    sink.write(Sequence(2), batch(0, 5), NOW)
    sink.seal(epoch(2))
    sink.write(Sequence(3), batch(5, 3), NOW)
    assert len(list(store.spool.iterdir())) == 5
    sink.close()
    assert not list(store.spool.iterdir())
    assert len(store.names()) == 2


def test_a_failed_write_ends_the_sink_but_not_what_was_sealed(
    opened: MakeSink, folder: Path, rows: Rows
) -> None:
    sink = opened(format="csv")
    sink.write(Sequence(1), batch(0, 3), NOW)
    sink.seal(epoch(1))
    with pytest.raises(SinkError, match="column `nested`"):
        sink.write(Sequence(2), pa.record_batch({"nested": [[1]]}), NOW)
    with pytest.raises(SinkError, match="failed before"):
        sink.seal(epoch(2))
    (token,) = sink.stage(epoch(1))
    sink.publish(token, PERMIT)
    assert numbers(rows(folder)) == [0, 1, 2]


def test_a_spool_that_is_gone_is_told_with_what_to_do(opened: MakeSink, store: Store) -> None:
    sink = opened()
    store.spool.rmdir()
    with pytest.raises(SinkError, match=r"cannot create a part in '.*spool'.*the folder is gone"):
        sink.write(Sequence(1), batch(0, 1), NOW)
    store.spool.mkdir()


def test_the_parts_and_the_folder_are_synced_before_publication_returns(
    opened: MakeSink, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened()
    token = one_token(sink)
    synced: list[str] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    sink.publish(token, PERMIT)
    assert synced == [str(folder)]
    synced.clear()
    # The process before may have died between the link and the sync.
    sink.publish(token, PERMIT)
    assert synced == [str(folder)]


def test_staging_needs_a_local_folder_and_true_needs_staging(store: Store, tmp_path: Path) -> None:
    from arkflow_kernel.checkpoint_ports import Staging

    config = FileOutputConfig.model_validate({"path": "memory://x", "format": "json"})
    staging = Staging(store, Generation(1), 0, "0000000001-c-0-sink")
    with pytest.raises(ConfigError, match="needs a local folder"):
        build(config, BuildContext("sink", staging=staging))
    given = {"path": str(tmp_path), "format": "json", "exactly_once": True}
    sink = build(FileOutputConfig.model_validate(given), BuildContext("sink"))
    assert isinstance(sink, FileSink)
    with pytest.raises(SinkError, match="needs a job with a `checkpoint:` block"):
        sink.open()
