"""Runs one operator in every way in which a chain may run it; the rows must be the same.

For operators that keep nothing across batches (ack mode). Rows are compared as values: an
operator may cut its results as it likes, and types may widen with the batch.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.ports import Operator, OperatorResult
from arkflow_kernel.testing.dice import Dice

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class HarnessResult:
    """What the operator made of the whole input: its rows in order, and the raw bad rows."""

    rows: Rows
    bad: list[bytes | None]


def check_operator(
    make: Callable[[], Operator],
    batch: pa.RecordBatch,
    *,
    expected: Rows | None = None,
    poison: pa.RecordBatch | None = None,
    cuts: int = 5,
) -> HarnessResult:
    """All at once, row by row, cut at random, with empty batches between: the same rows each time.

    `expected`: the rows it must yield. `poison`: a batch on which it must raise, and after which
    it must work as before. Every run gets a new operator of `make`, opened and closed once.
    Raises `AssertionError` with the run that differs.
    """
    whole = _run(make, [batch])
    assert expected is None or whole.rows == expected, (whole.rows, expected)
    runs = {"row by row": _cut(batch, [1] * batch.num_rows)}
    for seed in range(cuts):
        runs[f"cut at random, seed {seed}"] = _cut(batch, _sizes(Dice(seed), batch.num_rows))
    runs["with empty batches"] = [batch.slice(0, 0), batch, batch.slice(0, 0)]
    runs["from the middle of a larger batch"] = [_embedded(batch)]
    for name, batches in runs.items():
        found = _run(make, batches)
        assert found == whole, f"{name}: {_difference(found, whole)}"
    if poison is not None:
        found = _run(make, [batch], poison=poison)
        assert found == whole, f"after a failed batch: {_difference(found, whole)}"
    return whole


def _run(
    make: Callable[[], Operator],
    batches: Seq[pa.RecordBatch],
    poison: pa.RecordBatch | None = None,
) -> HarnessResult:
    operator = make()
    result = HarnessResult([], [])
    try:
        operator.open()
        if poison is not None:
            _must_fail(operator, poison)
        for batch in batches:
            before = batch.to_pydict()
            _collect(operator.process(batch, NOWHERE), result)
            assert batch.to_pydict() == before, "the operator changed its input"
        _collect(operator.finish(), result)
    finally:
        operator.close()
    return result


def _must_fail(operator: Operator, poison: pa.RecordBatch) -> None:
    try:
        operator.process(poison, NOWHERE)
    except Exception:  # noqa: BLE001 - whatever it raises becomes a ProcessingError in a lane
        return
    raise AssertionError("the operator took the batch that it must refuse")


def _collect(result: OperatorResult, into: HarnessResult) -> None:
    for batch in result.batches:
        batch.validate(full=True)
        into.rows.extend(batch.to_pylist())
    if result.bad is not None:
        into.bad.extend(result.bad.column("__value__").to_pylist())


def _cut(batch: pa.RecordBatch, sizes: Seq[int]) -> list[pa.RecordBatch]:
    batches, start = [], 0
    for size in sizes:
        batches.append(batch.slice(start, size))
        start += size
    return batches


def _sizes(dice: Dice, rows: int) -> list[int]:
    sizes: list[int] = []
    while (left := rows - sum(sizes)) > 0:
        sizes.append(dice.between(0, left))
    return sizes


def _embedded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows as a slice with an offset: operators that read raw buffers get it wrong."""
    if batch.num_rows == 0:
        return batch
    tables = pa.Table.from_batches([batch.slice(0, 1), batch, batch.slice(0, 1)])
    (larger,) = tables.combine_chunks().to_batches()
    return larger.slice(1, batch.num_rows)


def _difference(found: HarnessResult, whole: HarnessResult) -> str:
    if found.bad != whole.bad:
        return f"{len(found.bad)} bad rows instead of {len(whole.bad)}"
    pairs = zip(found.rows, whole.rows, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if first is None:
        return f"{len(found.rows)} rows instead of {len(whole.rows)}"
    return f"row {first} is {found.rows[first]} instead of {whole.rows[first]}"


__all__ = ["HarnessResult", "check_operator"]
