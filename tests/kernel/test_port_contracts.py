"""The contract suites pass what keeps the contract, and refuse what breaks one clause of it."""

from collections.abc import Sequence as Seq
from typing import cast

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.ids import MonotonicMs, Sequence, SplitId
from arkflow_kernel.ports import (
    NothingYet,
    OperatorResult,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.testing.components import (
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
    rows_batch,
)
from arkflow_kernel.testing.operator_harness import check_operator
from arkflow_kernel.testing.port_contracts import check_sink_writer, check_source_reader

SIZES = {"a": (3, 1, 4), "b": (2, 2)}
BATCHES = [rows_batch("a", range(n)) for n in (2, 1, 0, 3, 5, 2, 1)]


def test_the_scripted_source_keeps_the_contract() -> None:
    def make() -> ScriptedSource:
        bad = lambda _s, n: n == 2  # noqa: E731
        return ScriptedSource(SIZES, bad=bad, pause_every=3, pause_ms=20, commits=True)

    history = check_source_reader(make, make_broken=lambda: ScriptedSource({}, fail_open=True))
    assert {split: len(rows) for split, rows in history.rows().items()} == {"a": 8, "b": 4}


def test_a_source_that_cannot_replay_is_read_once() -> None:
    made: list[ScriptedSource] = []

    def make() -> ScriptedSource:
        made.append(ScriptedSource(SIZES, replay=ReplayKind.NONE))
        return made[-1]

    check_source_reader(make)
    assert [source.opened for source in made] == [1, 0]


def test_a_source_may_cut_its_rows_into_other_batches_after_a_restore() -> None:
    """What is left is the same (B7)."""
    otherwise = {"a": (1,) * 8, "b": (4,)}
    check_source_reader(
        lambda: ScriptedSource(SIZES, bad=lambda _s, n: n == 1),
        make_otherwise=lambda: ScriptedSource(otherwise, bad=lambda _s, n: n == 1),
    )


def test_a_source_that_reads_other_rows_when_it_cuts_otherwise_is_refused() -> None:
    with pytest.raises(AssertionError, match="cut otherwise it reads otherwise"):
        check_source_reader(
            lambda: ScriptedSource(SIZES),
            make_otherwise=lambda: ScriptedSource({"a": (8, 1), "b": (4,)}),
        )


def test_many_positions_are_restored_at_evenly() -> None:
    check_source_reader(lambda: ScriptedSource({"a": (1,) * 100}))


class _Forgetful(ScriptedSource):
    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        super().open(restored[:0], assigned)


class _Mutating(ScriptedSource):
    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        super().open(restored, assigned)
        for position in restored:
            position.position["row"] = 0  # type: ignore[index]


class _Relative(ScriptedSource):
    """Its positions count from where it was opened: right until it is restored a second time."""

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        super().open(restored, assigned)
        self.base = {p.split: cast(int, p.position["row"]) for p in restored}

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        result = super().read(now_ms)
        if isinstance(result, SourceBatch):
            row = cast(int, result.position["row"]) - self.base.get(result.split, 0)
            return SourceBatch(result.split, result.batch, {"row": row})
        return result


class _Unjsonable(ScriptedSource):
    def read(self, now_ms: MonotonicMs) -> ReadResult:
        result = super().read(now_ms)
        if isinstance(result, SourceBatch):
            return SourceBatch(result.split, result.batch, {"row": (1, 2)})  # type: ignore[dict-item]
        return result


class _Endless(ScriptedSource):
    def read(self, now_ms: MonotonicMs) -> ReadResult:
        return NothingYet(now_ms)


class _Undead(ScriptedSource):
    def read(self, now_ms: MonotonicMs) -> ReadResult:
        result = super().read(now_ms)
        if isinstance(result, SourceBatch):
            return SourceBatch(result.split, result.batch, result.position, split_ended=True)
        return result


@pytest.mark.parametrize(
    ("kind", "clause"),
    [
        (_Forgetful, "it reads otherwise"),
        (_Mutating, "open changed a position"),
        (_Unjsonable, "does not survive JSON"),
        (_Undead, "goes on after its end"),
        (_Relative, "restored twice it reads otherwise"),
        (_Endless, "did not end"),
    ],
)
def test_a_source_that_breaks_a_clause_is_refused(
    kind: type[ScriptedSource], clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkflow_kernel.testing.port_contracts.READS_MAX", 100)
    with pytest.raises(AssertionError, match=clause):
        check_source_reader(lambda: kind(SIZES))


def test_a_source_that_opens_although_it_is_broken_is_refused() -> None:
    with pytest.raises(AssertionError, match="broken source opened"):
        check_source_reader(lambda: ScriptedSource(SIZES), make_broken=lambda: ScriptedSource({}))


@pytest.mark.parametrize(("lag", "roll_ms"), [(0, None), (2, None), (0, 30)])
def test_the_scripted_sink_keeps_the_contract(lag: int, roll_ms: int | None) -> None:
    seen: list[int] = []

    def make() -> ScriptedSink:
        return ScriptedSink(lag, roll_ms, on_publish=lambda rows: seen.extend(n for _, n in rows))

    receipts = check_sink_writer(
        make,
        BATCHES,
        visible=lambda: len(seen),
        make_broken=lambda: ScriptedSink(fail_open=True),
    )
    assert receipts[-1].confirmed_upto == len(BATCHES)


class _Eager(ScriptedSink):
    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        super().write(sequence, batch, now_ms)
        return WriteReceipt(Sequence(sequence + 1))


class _Lazy(ScriptedSink):
    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:
        del now_ms
        return self._publish(keep=1)


class _Fickle(ScriptedSink):
    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:
        receipt = super().flush(now_ms)
        return receipt if self.flushes == 1 else WriteReceipt(Sequence(0))


class _Leaking(ScriptedSink):
    def close(self) -> None:
        self._publish(keep=0)
        super().close()


@pytest.mark.parametrize(
    ("kind", "clause"),
    [
        (_Eager, "WriteReceipt"),
        (_Lazy, "left writes unconfirmed"),
        (_Fickle, "took confirmations back"),
        (_Leaking, "published what was not confirmed"),
    ],
)
def test_a_sink_that_breaks_a_clause_is_refused(kind: type[ScriptedSink], clause: str) -> None:
    seen: list[int] = []

    def make() -> ScriptedSink:
        return kind(lag=2, on_publish=lambda rows: seen.extend(n for _, n in rows))

    with pytest.raises(AssertionError, match=clause):
        check_sink_writer(make, BATCHES, visible=lambda: len(seen))


def test_a_sink_that_opens_although_it_is_broken_is_refused() -> None:
    with pytest.raises(AssertionError, match="broken sink opened"):
        check_sink_writer(ScriptedSink, BATCHES, make_broken=ScriptedSink)


def test_a_stateless_operator_yields_the_same_rows_however_it_is_run() -> None:
    batch = rows_batch("a", range(20))
    result = check_operator(
        lambda: ScriptedOperator(
            pieces=3,
            drops=lambda _s, n: n % 3 == 0,
            rejects=lambda _s, n: n % 5 == 1,
            fails=lambda _s, n: n == 99,
        ),
        batch,
        expected=[{"split": "a", "n": n} for n in range(20) if n % 3 and n % 5 != 1],
        poison=rows_batch("a", [99]),
    )
    assert result.bad == [b"a:1", b"a:6", b"a:11", b"a:16"]
    assert check_operator(ScriptedOperator, batch.slice(0, 0)).rows == []


class _Counting(ScriptedOperator):
    """Keeps the number of the batch: not stateless."""

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        super().process(batch, origin)
        numbers = pa.array([self.processed] * batch.num_rows)
        return OperatorResult((pa.RecordBatch.from_arrays([numbers], names=["n"]),))


class _FirstOnly(ScriptedOperator):
    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        return super().process(batch.slice(0, 1), origin)


class _Rejecting(ScriptedOperator):
    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        result = super().process(batch, origin)
        return result if batch.num_rows > 1 else OperatorResult(result.batches)


@pytest.mark.parametrize(
    ("make", "difference"),
    [
        (_Counting, "row by row: row 1 is"),
        (_FirstOnly, "rows instead of 1"),
        (lambda: _Rejecting(rejects=lambda _s, n: n == 2), "0 bad rows instead of 1"),
    ],
)
def test_an_operator_that_depends_on_how_it_is_run_is_refused(
    make: type[ScriptedOperator], difference: str
) -> None:
    with pytest.raises(AssertionError, match=difference):
        check_operator(make, rows_batch("a", range(6)))


def test_an_operator_that_takes_what_it_must_refuse_is_refused() -> None:
    with pytest.raises(AssertionError, match="must refuse"):
        check_operator(ScriptedOperator, rows_batch("a", [1]), poison=rows_batch("a", [9]))
