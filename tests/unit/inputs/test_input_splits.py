"""What inputs say of their splits: which there are (W1), and where there is nothing (W2)."""

import json
from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import (
    NothingYet,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceReader,
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext, Codec, ComponentKind
from arkflow_ray.components.building import build_component
from arkflow_ray.components.inputs import file_lines
from arkflow_ray.components.inputs.decoding import with_codec

JSON: dict[str, Any] = {"type": "json"}
Drain = Callable[..., list[SourceBatch]]


def made(kind: str, codec: dict[str, Any] | None = None, **config: Any) -> SourceReader:
    plan = ComponentPlan(kind, config, codec)
    return cast(SourceReader, build_component(ComponentKind.INPUT, plan, BuildContext("source")))


def opened(reader: SourceReader, restored: Seq[SplitPosition] = ()) -> list[SplitId]:
    """The splits that a reader knows once it is open."""
    reader.open(restored)
    splits = list(reader.splits())
    reader.close()
    return splits


def folder_of(tmp_path: Path, format_: str, *names: str) -> SourceReader:
    """An input of files of two rows each."""
    for name in names:
        file = tmp_path / name
        if format_ == "parquet":
            pq.write_table(pa.table({"n": [1, 2]}), file)
        else:
            file.write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    return made("file", input_type={"type": format_, "path": str(tmp_path)}, batch_rows=1)


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_files_are_known_in_the_order_in_which_they_are_read_also_empty_ones(
    tmp_path: Path, format_: str, drain: Drain
) -> None:
    names = ["b", "a10", "a9"]
    reader = folder_of(tmp_path, format_, *names)
    if format_ == "json":
        (tmp_path / "empty").write_text("", encoding="utf-8")
    known = opened(reader)
    assert len(known) == len(names) + (format_ == "json")
    batches = drain(folder_of(tmp_path, format_))
    assert list(dict.fromkeys(batch.split for batch in batches)) == known
    assert [batch.split for batch in batches if batch.split_ended] == known


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_after_a_restore_files_that_were_read_to_their_end_are_not_known_and_new_ones_are(
    tmp_path: Path, format_: str, drain: Drain
) -> None:
    first, second = drain(folder_of(tmp_path, format_, "b", "c"), (), limit=3)[1:]
    assert (first.split_ended, second.split_ended) == (True, False)
    places = [SplitPosition(b.split, b.position, b.split_ended) for b in (first, second)]
    known = opened(folder_of(tmp_path, format_, "a", "d"), places)
    assert [Path(name).name for name in known] == ["a", "c", "d"]


@pytest.mark.parametrize("codec", [None, JSON], ids=["raw", "decoded"])
def test_messages_and_generated_rows_are_one_split_until_none_is_left(
    codec: dict[str, Any] | None, drain: Drain
) -> None:
    for config in (
        {"kind": "memory", "messages": ["{}", "{}"]},
        {"kind": "generate", "context": "{}", "interval": "0s", "count": 2},
    ):
        batches = drain(made(codec=codec, **cast(Any, config)))
        split = batches[0].split
        assert opened(made(codec=codec, **cast(Any, config))) == [split]
        last = batches[-1]
        assert last.split_ended
        over = [SplitPosition(split, last.position, ended=True)]
        assert opened(made(codec=codec, **cast(Any, config)), over) == []


def test_inputs_that_have_nothing_from_the_beginning_know_no_split() -> None:
    assert opened(made("memory")) == []
    assert opened(made("generate", context="x", interval="1s", count=1, batch_size=2)) == []


def test_between_two_batches_there_is_nothing_in_a_generated_split() -> None:
    reader = made("generate", context="x", interval="10s")
    reader.open([])
    reader.read(MonotonicMs(0))
    assert reader.read(MonotonicMs(1)) == NothingYet(MonotonicMs(10_000), quiet=None)


def test_a_file_is_not_quiet_while_a_line_that_is_too_long_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lines, "SKIP_BYTES_MAX", 1024)
    (tmp_path / "a").write_text(json.dumps("x" * 2_000_000), encoding="utf-8")
    reader = made(
        "file", input_type={"type": "json", "path": str(tmp_path / "a")}, max_row_bytes=100
    )
    reader.open([])
    assert reader.read(MonotonicMs(0)) == NothingYet(quiet=())
    reader.close()


class Quiet:
    """Reads what it was given; it looks at two splits and finds rows in one."""

    replay = ReplayKind.NONE
    commits = False

    def __init__(self, *results: ReadResult) -> None:
        self.results = list(results)

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        pass

    def splits(self) -> Seq[SplitId]:
        return (SplitId("a"), SplitId("b"))

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        return self.results.pop(0)

    def commit(self, positions: Seq[SplitPosition]) -> None:
        raise AssertionError("it asked for no commits")

    def close(self) -> None:
        pass


def test_an_input_with_a_codec_says_of_its_splits_what_the_input_says() -> None:
    payload: Any = pa.array([b"{}"], pa.binary())
    rows = pa.record_batch({"__value__": payload})
    quiet = (SplitId("b"),)
    nothing = NothingYet(MonotonicMs(5), quiet)
    inner = Quiet(SourceBatch(SplitId("a"), rows, {}, quiet=quiet), nothing)
    codec = build_component(ComponentKind.CODEC, ComponentPlan("json", {}), BuildContext("source"))
    reader = with_codec(inner, cast(Codec, codec), "source")
    reader.open([])
    assert reader.splits() == inner.splits()
    result = reader.read(MonotonicMs(0))
    assert isinstance(result, SourceBatch)
    assert result.quiet == quiet
    assert reader.read(MonotonicMs(0)) == nothing
