"""Inputs `generate` and `memory`, raw and with a codec."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.errors import ConfigError, SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import (
    NothingYet,
    ReadResult,
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
)

Make = Callable[..., SourceReader]
Drain = Callable[..., list[SourceBatch]]


def at(reader: SourceReader, ms: int) -> ReadResult:
    return reader.read(MonotonicMs(ms))


def batch_at(reader: SourceReader, ms: int) -> SourceBatch:
    result = at(reader, ms)
    assert isinstance(result, SourceBatch)
    return result


def nothing_until(ms: int) -> NothingYet:
    return NothingYet(MonotonicMs(ms))


def values(batch: SourceBatch) -> list[Any]:
    return batch.batch.column("__value__").to_pylist()


def test_generate_reads_at_once_then_at_its_interval_and_never_sleeps(make: Make) -> None:
    reader = make("generate", context="x", interval="250ms")
    reader.open([])
    assert values(batch_at(reader, 1000)) == [b"x"]
    assert at(reader, 1000) == nothing_until(1250)
    assert at(reader, 1249) == nothing_until(1250)
    assert values(batch_at(reader, 1260)) == [b"x"]
    assert at(reader, 1260) == nothing_until(1500)


def test_generate_stops_before_an_incomplete_last_batch(make: Make, drain: Drain) -> None:
    batches = drain(make("generate", context="x", interval="1ns", count=10, batch_size=4,
                         batch_rows=4), limit=1)  # fmt: skip
    reader = make("generate", context="x", interval="1ms", count=10, batch_size=4)
    reader.open([])
    first, second = batch_at(reader, 0), batch_at(reader, 1)
    assert [b.batch.num_rows for b in (batches[0], first, second)] == [4, 4, 4]
    assert (first.split_ended, second.split_ended) == (False, True)
    assert at(reader, 9) == SourceEnded()


def test_generate_without_room_for_a_batch_ends_at_once(make: Make) -> None:
    reader = make("generate", context="x", interval="1s", count=3, batch_size=4)
    reader.open([])
    assert at(reader, 0) == SourceEnded()


def test_generate_merges_what_is_due_only_below_a_millisecond(make: Make) -> None:
    fast = make("generate", context="x", interval="1ns", batch_size=1000)
    fast.open([])
    assert batch_at(fast, 0).batch.num_rows == 1000
    assert batch_at(fast, 1).batch.num_rows == 8000
    slow = make("generate", context="x", interval="1ms", batch_size=1000)
    slow.open([])
    at(slow, 0)
    assert [batch_at(slow, 5).batch.num_rows for _ in range(5)] == [1000] * 5
    assert at(slow, 5) == nothing_until(6)


def test_generate_payloads_are_binary_without_nulls_and_continue_after_a_restart(
    make: Make,
) -> None:
    reader = make("generate", context="ü", interval="1s", count=3)
    reader.open([SplitPosition(SplitId("generate"), {"emitted": 2})])
    batch = batch_at(reader, 7)
    field = batch.batch.schema.field("__value__")
    assert (str(field.type), field.nullable, values(batch)) == ("binary", False, ["ü".encode()])
    assert batch.position == {"emitted": 3}
    assert (batch.split_ended, at(reader, 7)) == (True, SourceEnded())


def test_generate_refuses_a_foreign_position_and_a_wrong_interval(make: Make) -> None:
    with pytest.raises(SourceError, match="not a position"):
        make("generate", context="x", interval="1s").open([SplitPosition(SplitId("g"), {})])
    with pytest.raises(ConfigError, match="not a duration"):
        make("generate", context="x", interval="soon")


def test_memory_yields_one_message_a_batch_in_order_then_ends(make: Make, drain: Drain) -> None:
    batches = drain(make("memory", messages=["a", "b", "c"]))
    assert [values(b) for b in batches] == [[b"a"], [b"b"], [b"c"]]
    assert [b.position["next"] for b in batches] == [1, 2, 3]
    assert [b.split_ended for b in batches] == [False, False, True]
    assert drain(make("memory")) == []


def test_memory_yields_more_a_batch_when_told_and_continues_after_a_restart(
    make: Make, drain: Drain
) -> None:
    reader = make("memory", messages=["a", "b", "c", "d"], batch_rows=2)
    batches = drain(reader, [SplitPosition(SplitId("memory"), {"next": 1})])
    assert [values(b) for b in batches] == [[b"b", b"c"], [b"d"]]
    with pytest.raises(SourceError, match="message 9 of 1"):
        make("memory", messages=["a"]).open([SplitPosition(SplitId("memory"), {"next": 9})])


def test_a_codec_decodes_and_its_types_are_in_the_position(make: Make, drain: Drain) -> None:
    messages = ['{"a":1}', '{"a":2.5}', "bad", '{"a":3}{"a":4}']
    batches = drain(make("memory", {"type": "json"}, messages=messages))
    assert [b.batch.to_pylist() for b in batches] == [
        [{"a": 1}], [{"a": 2.5}], [], [{"a": 3.0}, {"a": 4.0}],
    ]  # fmt: skip
    assert batches[2].bad is not None
    (row,) = batches[2].bad.to_pylist()
    assert (row["__value__"], row["__meta_source"], row["__meta_offset"]) == (b"bad", "memory", 2)
    place = SplitPosition(SplitId("memory"), batches[2].position)
    (rest,) = drain(make("memory", {"type": "json"}, messages=messages), [place])
    assert rest.batch.equals(batches[3].batch)
    assert rest.position == batches[3].position


def test_a_codec_that_skips_counts(make: Make, drain: Drain) -> None:
    codec = {"type": "json", "on_error": "skip"}
    (batch,) = drain(make("memory", codec, messages=["bad", '{"a":1}'], batch_rows=2))
    assert (batch.skipped, batch.bad, batch.batch.to_pylist()) == (1, None, [{"a": 1}])


def test_a_position_made_without_the_codec_is_refused_with_it(make: Make) -> None:
    reader = make("memory", {"type": "json"}, messages=["{}"])
    with pytest.raises(SourceError, match="`codec` added or removed"):
        reader.open([SplitPosition(SplitId("memory"), {"next": 0})])


def test_generate_with_a_codec_yields_columns(make: Make) -> None:
    reader = make("generate", {"type": "json"}, context='{"v":10,"s":"t"}\n', interval="1ns",
                  batch_size=100, count=200)  # fmt: skip
    reader.open([])
    first, second = batch_at(reader, 0), batch_at(reader, 1)
    assert first.batch.num_rows == second.batch.num_rows == 100
    assert second.batch.to_pylist()[99] == {"v": 10, "s": "t"}
    assert second.position["source"] == {"emitted": 200}
