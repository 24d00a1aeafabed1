"""Contracts of the ports: what the machines rely on, whoever implements a source or a sink.

Each `check_` function runs one whole contract and raises `AssertionError` with the clause that is
broken. For operators see `operator_harness.py`.
"""

import json
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from arkflow_kernel.checkpoint_ports import EpochSink
from arkflow_kernel.errors import StoreError
from arkflow_kernel.ids import CheckpointId, Generation, MonotonicMs, Sequence, SplitId
from arkflow_kernel.ports import (
    NothingYet,
    ReplayKind,
    SinkWriter,
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken

READS_MAX = 100_000
"""Reads after which a source that should end has not."""

RESTORES_MAX = 40
"""Positions at which `check_source_reader` restores; evenly spread if there are more."""


@dataclass
class SourceHistory:
    """What a bounded source yielded: its batches, and the positions after each of them."""

    batches: list[SourceBatch] = field(default_factory=list)

    def rows(self, start: int = 0) -> dict[SplitId, list[dict[str, Any]]]:
        """Rows per split of the batches from `start` on; bad rows by their raw value."""
        rows: dict[SplitId, list[dict[str, Any]]] = {}
        for batch in self.batches[start:]:
            known = rows.setdefault(batch.split, [])
            known += batch.batch.to_pylist()
            if batch.bad is not None:
                known += [{"bad": value} for value in batch.bad.column("__value__").to_pylist()]
        return {split: found for split, found in rows.items() if found}

    def apart(self, start: int = 0) -> dict[SplitId, tuple[list[Any], list[Any]]]:
        """Good and bad rows per split, each in their order: the same however batches are cut."""
        found: dict[SplitId, tuple[list[Any], list[Any]]] = {}
        for split, rows in self.rows(start).items():
            bad = [row for row in rows if row.keys() == {"bad"}]
            found[split] = ([row for row in rows if row.keys() != {"bad"}], bad)
        return found

    def positions(self, upto: int, restored: Seq[SplitPosition] = ()) -> list[SplitPosition]:
        """Where each split continues after the first `upto` batches, through JSON and back.

        `restored`: where the reading began, for the splits that it has not come to.
        """
        newest = {position.split: position for position in restored}
        for batch in self.batches[:upto]:
            position = json.loads(json.dumps(dict(batch.position)))
            assert position == dict(batch.position), "a position does not survive JSON"
            newest[batch.split] = SplitPosition(batch.split, position, batch.split_ended)
        return list(newest.values())


def check_source_reader(
    make: Callable[[], SourceReader],
    *,
    make_broken: Callable[[], SourceReader] | None = None,
    make_otherwise: Callable[[], SourceReader] | None = None,
) -> SourceHistory:
    """A bounded source: reads twice alike, restores at every position and from there at another,
    closes whatever happened (B7).

    Every call of `make` gives a new reader of the same data, and so does `make_otherwise`, which
    cuts it into other batches. `make_broken`: one whose `open` raises; it must close all the same.
    A source of another replay kind than `position` is only read once. Returns what the first
    reading found.
    """
    history = _read_all(make, [])
    _check_splits(history)
    if make_broken is not None:
        _check_broken(make_broken())
    reader = make()
    replay = reader.replay
    reader.close()
    if replay is not ReplayKind.POSITION:
        return history
    count = len(history.batches)
    step = max(1, -(-count // RESTORES_MAX))
    for upto in [*range(0, count, step), count]:
        restored = history.positions(upto)
        again = _read_all(make, restored)
        same = again.apart() == history.apart(upto)
        assert same, f"restored after batch {upto} it reads otherwise"
        _check_twice(make, make_otherwise or make, restored, again)
    return history


def _check_twice(
    make: Callable[[], SourceReader],
    make_otherwise: Callable[[], SourceReader],
    restored: Seq[SplitPosition],
    expected: SourceHistory,
) -> None:
    """Another reader goes on from the positions, stops half-way, and the first kind ends it."""
    other = _read_all(make_otherwise, restored)
    assert other.apart() == expected.apart(), f"cut otherwise it reads otherwise from {restored}"
    half = len(other.batches) // 2
    middle = other.positions(half, restored)
    rest = _read_all(make, middle)
    assert rest.apart() == other.apart(half), f"restored twice it reads otherwise from {middle}"


def _read_all(make: Callable[[], SourceReader], restored: Seq[SplitPosition]) -> SourceHistory:
    reader, history, now_ms = make(), SourceHistory(), 0
    before = [dict(position.position) for position in restored]
    try:
        reader.open(restored)
        known = list(reader.splits())
        for _ in range(READS_MAX):
            result = reader.read(MonotonicMs(now_ms))
            if isinstance(result, SourceEnded):
                break
            if isinstance(result, NothingYet):
                now_ms = max(now_ms + 1, result.resume_ms or 0)
                continue
            history.batches.append(result)
        else:
            raise AssertionError(f"the source did not end within {READS_MAX} reads")
        if reader.commits:
            reader.commit(history.positions(len(history.batches)))
    finally:
        reader.close()
    assert [dict(position.position) for position in restored] == before, "open changed a position"
    _check_known(known, restored, history)
    return history


def _check_known(
    known: list[SplitId], restored: Seq[SplitPosition], history: SourceHistory
) -> None:
    """A bounded source knows its splits from the beginning; each holds its watermark (W1)."""
    assert len(known) == len(set(known)), f"a split is named twice: {known}"
    over = {place.split for place in restored if place.ended}
    assert over.isdisjoint(known), f"splits that were ended are named: {known}"
    read = {batch.split for batch in history.batches}
    assert read == set(known), f"of {known} it read {sorted(read)}"


def _check_splits(history: SourceHistory) -> None:
    ended: set[SplitId] = set()
    for batch in history.batches:
        assert batch.split not in ended, f"{batch.split} goes on after its end"
        if batch.split_ended:
            ended.add(batch.split)


def _check_broken(reader: SourceReader) -> None:
    try:
        reader.open([])
    except Exception:  # noqa: BLE001 - any error will do: the driver names it (chain_work)
        reader.close()
        return
    raise AssertionError("the broken source opened")


def check_sink_writer(
    make: Callable[[], SinkWriter],
    batches: Seq[pa.RecordBatch],
    *,
    visible: Callable[[], int] | None = None,
    splits_writes: bool = False,
    make_broken: Callable[[], SinkWriter] | None = None,
) -> list[WriteReceipt]:
    """A sink: receipts rise and stay within what was written, a roll and a flush confirm, close
    discards the rest.

    `visible` counts the rows that a reader of this sink's target sees: all confirmed ones at
    least after a flush, none of the unconfirmed ones after a close; a sink that `splits_writes`
    may have published a part of one (at least once). Returns the receipts.
    """
    sink, receipts = make(), list[WriteReceipt]()
    rows = 0
    try:
        sink.open()
        now_ms = 0
        for number, batch in enumerate(batches, start=1):
            receipt = sink.write(Sequence(number), batch, MonotonicMs(now_ms))
            _check_receipt(receipts, receipt, number)
            rows += batch.num_rows
            if receipt.roll_at_ms is not None and number % 3 == 0:
                now_ms = max(now_ms, receipt.roll_at_ms)
                _check_receipt(receipts, sink.roll(MonotonicMs(now_ms)), number)
        flushed = sink.flush(MonotonicMs(now_ms))
        _check_receipt(receipts, flushed, len(batches))
        assert flushed.confirmed_upto == len(batches), "a flush left writes unconfirmed"
        again = sink.flush(MonotonicMs(now_ms))
        assert again.confirmed_upto == len(batches), "a second flush took confirmations back"
        assert visible is None or visible() == rows, (visible(), rows)
    finally:
        sink.close()
    _check_discard(make, batches, visible, exact=not splits_writes)
    if make_broken is not None:
        _check_broken_sink(make_broken())
    return receipts


def _check_receipt(receipts: list[WriteReceipt], receipt: WriteReceipt, written: int) -> None:
    before = receipts[-1].confirmed_upto if receipts else 0
    assert before <= receipt.confirmed_upto <= written, (before, receipt, written)
    receipts.append(receipt)


def _check_discard(
    make: Callable[[], SinkWriter],
    batches: Seq[pa.RecordBatch],
    visible: Callable[[], int] | None,
    *,
    exact: bool,
) -> None:
    sink = make()
    before = 0 if visible is None else visible()
    confirmed = 0
    try:
        sink.open()
        for number, batch in enumerate(batches, start=1):
            confirmed = sink.write(Sequence(number), batch, MonotonicMs(0)).confirmed_upto
    finally:
        sink.close()
    rows = sum(batch.num_rows for batch in batches[:confirmed])
    if visible is not None:
        seen = visible() - before
        assert seen >= rows, "close took back what was confirmed"
        assert seen == rows or not exact, "close published what was not confirmed"


def _check_broken_sink(sink: SinkWriter) -> None:
    try:
        sink.open()
    except Exception:  # noqa: BLE001 - any error will do: the driver names it (chain_work)
        sink.close()
        return
    raise AssertionError("the broken sink opened")


MakeEpochSink = Callable[[Generation], EpochSink]
"""A new sink of a generation; all share one store, one target, one lane."""

_PERMIT = CommitPermit("the contract of a port")


def check_epoch_sink(
    make: MakeEpochSink,
    batches: Seq[pa.RecordBatch],
    visible: Callable[[], list[dict[str, Any]]],
    *,
    fail_once: Callable[[], None] | None = None,
) -> list[SinkToken]:
    """An exactly-once sink (X1): shows the rows of published tokens and no others, once, in order.

    `visible` reads the target, empty at first. `fail_once` lets one of the next operations of the
    store raise `StoreError`. At least three batches, none empty. Returns the published tokens.
    """
    rows = [batch.to_pylist() for batch in batches]
    first, tokens = make(Generation(1)), list[SinkToken]()
    try:
        first.open()
        tokens += _seal_and_stage(first, batches, fail_once)
        counts = [sum(staged.rows for staged in token.objects) for token in tokens]
        assert counts == [len(one) for one in rows], "a token has not the rows of its epoch"
        assert not visible(), "rows of a token that is not published are visible"
        for number, token in enumerate(tokens[:-1], start=1):
            first.publish(token, _PERMIT)
            published = [row for one in rows[:number] for row in one]
            assert visible() == published, "a published token's rows are not visible, in order"
            first.publish(token, _PERMIT)
            assert visible() == published, "a second publication changed what is visible"
    finally:
        first.close()
    assert visible() == published, "a close changed what is visible"
    successor = make(Generation(2))
    try:
        for token in tokens[-2:]:
            successor.publish(token, _PERMIT)
        published += rows[-1]
        assert visible() == published, "a token of an earlier process is not published as it was"
        successor.open()
        successor.write(Sequence(1), batches[0], MonotonicMs(0))
        successor.seal(_epoch(2, 2))
        tokens += successor.stage(_epoch(2, 2))
        successor.publish(tokens[-1], _PERMIT)
        published += rows[0]
        _discard_sealed_and_open(successor, batches)
    finally:
        successor.close()
    assert visible() == published, "rows without a published token are visible, or one's are not"
    return tokens


def _epoch(generation: int, checkpoint: int) -> Epoch:
    return Epoch(Generation(generation), CheckpointId(checkpoint))


def _seal_and_stage(
    sink: EpochSink, batches: Seq[pa.RecordBatch], fail_once: Callable[[], None] | None
) -> list[SinkToken]:
    """Each batch is an epoch, with an empty one behind each. The first is staged when the second
    is written, the others together, in a call that follows one that failed.
    """
    tokens, receipts = list[SinkToken](), list[WriteReceipt]()
    for number, batch in enumerate(batches, start=1):
        receipt = sink.write(Sequence(number), batch, MonotonicMs(number))
        _check_receipt(receipts, receipt, number)
        if receipt.roll_at_ms is not None and number % 2:
            _check_receipt(receipts, sink.roll(receipt.roll_at_ms), number)
        if number == 2:
            tokens += sink.stage(_epoch(1, 2))
        sink.seal(_epoch(1, 2 * number - 1))
        sink.seal(_epoch(1, 2 * number))
    last = 2 * len(batches)
    if fail_once is not None:
        fail_once()
        try:
            sink.stage(_epoch(1, last))
        except StoreError:
            pass
        else:
            raise AssertionError("the store failed and staging did not")
    tokens += sink.stage(_epoch(1, last))
    assert sink.stage(_epoch(1, last)) == (), "an epoch was staged twice"
    staged = [token.epoch.checkpoint for token in tokens]
    assert staged == list(range(1, last, 2)), "tokens are not those of epochs with rows, in order"
    assert len({(token.sink, token.lane) for token in tokens}) == 1, "tokens of several lanes"
    json.dumps([asdict(token) for token in tokens])
    return tokens


def _discard_sealed_and_open(sink: EpochSink, batches: Seq[pa.RecordBatch]) -> None:
    """Before a close: an epoch that is staged, one that is sealed, and one at work."""
    sink.write(Sequence(2), batches[0], MonotonicMs(0))
    sink.seal(_epoch(2, 3))
    sink.stage(_epoch(2, 3))
    sink.write(Sequence(3), batches[1], MonotonicMs(0))
    sink.seal(_epoch(2, 4))
    sink.write(Sequence(4), batches[2], MonotonicMs(0))


__all__ = [
    "MakeEpochSink",
    "SourceHistory",
    "check_epoch_sink",
    "check_sink_writer",
    "check_source_reader",
]
