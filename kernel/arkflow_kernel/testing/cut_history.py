"""What a job must have made of its rows when its plan changes in the middle (K2).

Each plan sends rows its own way, so what a job has at a cut is what it had at the record that the
plan began from, and what the plan has made of the rows between. All of it follows from plans and
cuts alone.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import ChainSnapshot, CheckpointRecord, ObjectRef, SinkToken
from arkflow_kernel.testing.cut_oracle import NOTHING, Cut, Oracle
from arkflow_kernel.testing.cut_states import StateReader
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_rows import owner_of


@dataclass(frozen=True)
class Known:
    """A record that is in the log, its cut, where it lies, and the plan that made it."""

    record: CheckpointRecord
    cut: Cut
    path: str
    past: "Past"

    def refs(self) -> Iterable[ObjectRef]:
        """Every object that it lists."""
        for snapshot in self.record.chains:
            yield from snapshot.objects
            for token in tokens_of((snapshot,)):
                for staged in token.objects:
                    yield staged.object

    def written(self, sink: OperatorId) -> list[int]:
        """The rows that a sink has at it, sorted."""
        return self.past.written(sink, self.cut)

    def counts(self, operator: OperatorId) -> dict[int, int]:
        """By key, how many rows a stateful operator has counted at it."""
        return self.past.counts(operator, self.cut)


class Past:
    """One plan at work, after all that were at work before it.

    `base` is the record that it began from, None for nothing; `begins` is that record's cut, with
    the plan's own chains as far as they were finished then.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        oracle: Oracle,
        base: Known | None = None,
        begins: Cut = NOTHING,
    ) -> None:
        self.graph, self.begins = graph, begins
        self._oracle, self._base = oracle, base
        self._chains = {plan.chain for plan in graph.chains}
        self._written: dict[OperatorId, Counter[int]] = {}
        self._counted: dict[OperatorId, Counter[int]] = {}

    def chains(self) -> set[str]:
        """The names of its chains."""
        return set(self._chains)

    def written(self, sink: OperatorId, cut: Cut) -> list[int]:
        """The rows that a sink has at a cut of this plan, in all its subtasks, sorted."""
        rows = self._oracle.written(sink, cut)
        if self._base is None:
            return rows
        if sink not in self._written:
            had = Counter(self._base.written(sink))
            had.subtract(self._oracle.written(sink, self.begins))
            self._written[sink] = had
        total = self._written[sink].copy()
        total.update(rows)
        return sorted(total.elements())

    def counts(self, operator: OperatorId, cut: Cut) -> dict[int, int]:
        """By key, how many rows a stateful operator has counted, in all its subtasks."""
        counts = self._oracle.counts(operator, cut)
        if self._base is None:
            return counts
        if operator not in self._counted:
            had = Counter(self._base.counts(operator))
            had.subtract(self._oracle.counts(operator, self.begins))
            self._counted[operator] = had
        total = self._counted[operator].copy()
        total.update(counts)
        return {key: count for key, count in total.items() if count}


def tokens_of(chains: Iterable[ChainSnapshot]) -> list[SinkToken]:
    """All tokens that chains list."""
    return [token for chain in chains for lane in chain.lanes for token in lane.tokens]


def check_same(base: Known, restored: tuple[ChainSnapshot, ...]) -> None:
    """The plan that made a record gets it back, chain by chain (M2).

    Only positions may be told to all subtasks of a source, a chain without state may be told a
    lower watermark for the sake of splits that become its own, and one that was finished may go on
    for the sake of splits that are left (K5).
    """
    if [_bare(each) for each in restored] != [_bare(each) for each in base.record.chains]:
        raise ViolationError(f"a claim restores other chains than checkpoint {base.record} (M2)")
    if not {each.chain for each in restored if each.finished} <= base.cut.finished:
        raise ViolationError("a claim restores chains as finished that were not (B8)")
    for each, had in zip(restored, base.record.chains, strict=True):
        if each.watermark is None:
            continue
        if had.watermark is None or each.watermark > had.watermark:
            raise ViolationError(f"{each.chain} is told {each.watermark}, had {had.watermark} (W1)")


def _bare(chain: ChainSnapshot) -> ChainSnapshot:
    watermark = chain.watermark if chain.states else None
    return replace(chain, sources=(), times=(), finished=False, watermark=watermark)


def check_mapped(
    base: Known, restored: tuple[ChainSnapshot, ...], graph: ExecutionGraph, states: StateReader
) -> None:
    """What a record gives to another plan: all of it, each part once, and to its owner (M6, S6)."""
    foreign = {each.chain for each in restored} - {plan.chain for plan in graph.chains}
    if foreign:
        raise ViolationError(f"a claim restores {sorted(foreign)}, which its plan does not have")
    had = sorted(tokens_of(base.record.chains), key=_order)
    if sorted(tokens_of(restored), key=_order) != had:
        raise ViolationError(f"a claim of another plan restores other tokens than {had} (X5)")
    for plan in graph.chains:
        for operator in plan.operators:
            if operator.state is None:
                continue
            own = tuple(each for each in restored if each.chain == plan.chain)
            kept = states.counts(replace(base.record, chains=own), operator.operator)
            for key in kept:
                owner = owner_of(key, plan.parallelism, graph.max_parallelism)
                if owner != plan.subtask:
                    raise ViolationError(f"key {key} is restored to {plan.chain}, not to {owner}")
    record = replace(base.record, chains=restored)
    for name in {op.operator for plan in graph.chains for op in plan.operators if op.state}:
        found, counts = states.counts(record, name), base.counts(name)
        if found != counts:
            raise ViolationError(f"{name} is restored as {found}, the record has {counts} (S6)")


def _order(token: SinkToken) -> tuple[str, int, tuple[int, int]]:
    return token.sink, token.lane, (token.epoch.generation, token.epoch.checkpoint)


__all__ = ["Known", "Past", "check_mapped", "check_same", "tokens_of"]
