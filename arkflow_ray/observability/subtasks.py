"""What each subtask of an operator got: how many rows, and how uneven that is (R4).

Plain data and arithmetic: no clock, no printing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that only print what a door tells pay for none of it
    from arkflow_kernel.metrics import ChainStatistics
    from arkflow_kernel.plan import ChainPlan, ExecutionGraph
    from arkflow_kernel.protocol import JobStatus


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """One operator over all of its subtasks.

    `chain`: the operator that names its chain; `rows_in`: rows by subtask, those that a source has
    read, since the attempt began. A subtask that has reported nothing has 0. `key_groups`: the rows
    that were sent to several subtasks by key, by key group; () if none were.
    """

    operator: str
    chain: str
    rows_in: tuple[int, ...]
    key_groups: tuple[int, ...] = ()

    @property
    def parallelism(self) -> int:
        """The number of subtasks."""
        return len(self.rows_in)

    @property
    def skew(self) -> float | None:
        """Rows of the fullest subtask per mean of all: 1 is even; None with one, or no rows."""
        total = sum(self.rows_in)
        if self.parallelism == 1 or not total:
            return None
        return max(self.rows_in) * self.parallelism / total

    @property
    def fullest(self) -> tuple[int, float] | None:
        """The key group with the most rows, and its share of all; None if none were counted."""
        total = sum(self.key_groups)
        if not total:
            return None
        most = max(self.key_groups)
        return self.key_groups.index(most), most / total


def operator_figures(graph: "ExecutionGraph", status: "JobStatus") -> tuple[OperatorFigures, ...]:
    """Every operator of the plan, chain by chain."""
    rows: dict[str, dict[str, list[int]]] = {}
    for plan in graph.chains:
        names = _operators(plan)
        found = rows.setdefault(names[0], {})
        for name in names:
            found.setdefault(name, [0] * plan.parallelism)
        told = status.chains.get(plan.chain)
        if told is not None:
            for name, count in _rows_in(plan, told):
                found[name][plan.subtask] = count
    groups = _key_groups(graph, status)
    return tuple(
        OperatorFigures(name, chain, tuple(counts), groups.get(name, ()))
        for chain, operators in rows.items()
        for name, counts in operators.items()
    )


def read_rows(chain: "ChainStatistics") -> int:
    """All rows that the source of a chain yielded, good or not."""
    return chain.rows_in + chain.bad_rows + chain.skipped_rows + chain.invalid_times


def counts_text(counts: Sequence[int], shown_max: int) -> str:
    """Rows of an operator's subtasks in words: each, or the extremes of many."""
    if len(counts) <= shown_max:
        return _listed([f"{count:,}" for count in counts])
    mean = sum(counts) / len(counts)
    return f"{min(counts):,} to {max(counts):,} (mean {mean:,.0f})"


def _operators(plan: "ChainPlan") -> list[str]:
    source = [] if plan.source is None else [str(plan.source.operator)]
    middle = [str(operator.operator) for operator in plan.operators]
    return [*source, *middle, *(str(sink.operator) for sink in plan.sinks)]


def _rows_in(plan: "ChainPlan", told: "ChainStatistics") -> Iterator[tuple[str, int]]:
    if plan.source is not None:
        yield str(plan.source.operator), read_rows(told)
    known = {operator.operator for operator in plan.operators}
    for counts in told.operators:
        if counts.operator in known:
            yield str(counts.operator), counts.rows_in
    written = dict(told.rows_to)
    for sink in plan.sinks:
        yield str(sink.operator), written.get(sink.output, 0)


def _key_groups(graph: "ExecutionGraph", status: "JobStatus") -> dict[str, tuple[int, ...]]:
    """Rows by key group of each operator that gets them by key."""
    targets = {str(edge.edge): str(edge.target) for edge in graph.edges}
    found: dict[str, list[int]] = {}
    for told in status.chains.values():
        for edge, rows in told.key_groups:
            known = found.setdefault(targets[str(edge)], [0] * len(rows))
            known[:] = map(add, known, rows)
    return {name: tuple(rows) for name, rows in found.items()}


def _listed(words: Sequence[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last


__all__ = ["OperatorFigures", "counts_text", "operator_figures", "read_rows"]
