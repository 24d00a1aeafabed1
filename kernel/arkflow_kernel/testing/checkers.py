"""What must hold of a chain at every step and at its end, whatever its driver did.

A `ChainLedger` sees what sinks published over all attempts of one chain. A row is *covered* when
a reader can see everything that it led to: in all outputs, or in the error output, or nowhere
because an operator dropped it. Positions may stand only behind covered rows.
"""

from collections.abc import Iterable

from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.testing.components import Row
from arkflow_kernel.testing.scenario import FINISH_SPLIT, ChainScript


class ViolationError(AssertionError):
    """An invariant does not hold: a bug in a machine, or in the test kit."""


class ChainLedger:
    """Rows of one chain: where they came out, in which order, and how far they are covered."""

    def __init__(self, script: ChainScript) -> None:
        self._script = script
        names = [sink.name for sink in script.sinks]
        self._seen: dict[str, set[Row]] = {name: set() for name in names}
        self._attempt: dict[str, list[Row]] = {name: [] for name in names}
        self._last: dict[tuple[str, str], int] = {}
        self._covered = dict.fromkeys(script.sizes, 0)
        self.attempts = 0

    def new_attempt(self) -> None:
        """Order and repetition are judged within one attempt."""
        self.attempts += 1
        self._last.clear()
        for rows in self._attempt.values():
            rows.clear()

    def written(self, sink: str, rows: list[Row]) -> None:
        """A sink was handed rows: per split in their order, nothing twice.

        Bad rows of one batch come from several operators and have no order among themselves.
        """
        for split, n in rows:
            if sink == self._script.plan.error_output:
                continue
            last = self._last.get((sink, split), -1)
            if n <= last:
                raise ViolationError(f"{sink} got row {n} of {split} after row {last}")
            self._last[sink, split] = n

    def published(self, sink: str, rows: list[Row]) -> None:
        """A sink made rows visible."""
        self._seen[sink].update(rows)
        self._attempt[sink] += rows

    def check_positions(self, positions: Iterable[SplitPosition], what: str) -> None:
        """No position stands past a row that is not covered (F1)."""
        for position in positions:
            row = _row_of(position)
            if row > self.covered(position.split):
                raise ViolationError(
                    f"{what} of {position.split} is {row}, but row "
                    f"{self._covered[position.split]} is not covered"
                )
            if position.ended and row != self._script.rows(position.split):
                raise ViolationError(f"{what} of {position.split} claims an end at {row}")

    def covered(self, split: str) -> int:
        """The first row of the split that is not covered."""
        n, end = self._covered[split], self._script.rows(split)
        while n < end and self._is_covered((split, n)):
            n += 1
        self._covered[split] = n
        return n

    def check_finished(self) -> None:
        """Everything is covered; in a single attempt nothing came twice."""
        for split in self._script.sizes:
            if self.covered(split) != self._script.rows(split):
                raise ViolationError(f"finished, but row {self.covered(split)} of {split} is lost")
        for name, rows in self._attempt.items():
            if len(set(rows)) != len(rows):
                raise ViolationError(f"{name} published a row twice in one attempt")
        for name in self._script.plan.outputs:
            wrong = [row for row in self._seen[name] if self._unfit(row)]
            if wrong:
                raise ViolationError(f"{name} published rows that were dropped or bad: {wrong[:3]}")
            lost = self._at_finish() - self._seen[name]
            if lost:
                raise ViolationError(f"{name} finished without {len(lost)} rows of the finish item")

    def check_stopped(self, frontier: Iterable[SplitPosition]) -> None:
        """What this attempt published is exactly what lies below the frontier."""
        ends: dict[str, int] = {position.split: _row_of(position) for position in frontier}
        for name, rows in self._attempt.items():
            beyond = [row for row in rows if row[1] >= ends.get(row[0], 0)]
            if beyond:
                raise ViolationError(f"stopped, but {name} published {beyond[0]} past the frontier")

    def _is_covered(self, row: Row) -> bool:
        if row in self._seen.get("errors", ()):
            return True
        if self._script.drops(*row) and not self._bad(row):
            return True
        return all(row in self._seen[output] for output in self._script.plan.outputs)

    def _at_finish(self) -> set[Row]:
        rows = {(split, n) for split, numbers in self._script.finish_rows() for n in numbers}
        return {row for row in rows if not self._script.drops(*row)}

    def _bad(self, row: Row) -> bool:
        late = row[0] == FINISH_SPLIT
        return not late and (self._script.bad(*row) or self._script.rejects(*row))

    def _unfit(self, row: Row) -> bool:
        return self._bad(row) or self._script.drops(*row)


def check_conservation(script: ChainScript, statistics: ChainStatistics) -> None:
    """T6 over a whole attempt that ended in order."""
    first, second = statistics.operators
    _equal("rows into the first operator", first.rows_in, statistics.rows_in)
    _equal("settled rows", statistics.settled_rows, statistics.rows_in)
    to = dict(statistics.rows_to)
    _equal("rows over all outputs", sum(to.values()), statistics.rows_out)
    _equal("rows into the second operator", second.rows_in, first.rows_out)
    for output in script.plan.outputs:
        _equal(f"rows to {output}", to[output], second.rows_out)
    if script.plan.error_output is not None:
        errors = statistics.bad_rows + first.errors
        _equal("rows to the error output", to[script.plan.error_output], errors)
    _equal("batches in flight", statistics.in_flight, 0)


def _equal(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ViolationError(f"{what}: {found}, expected {expected}")


def _row_of(position: SplitPosition) -> int:
    row = position.position["row"]
    assert isinstance(row, int)
    return row


__all__ = ["ChainLedger", "ViolationError", "check_conservation"]
