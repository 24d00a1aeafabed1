"""Where the sources of a job continue after a failed attempt, and what that means for its rows.

A part of `coordinator.py` (D3, F1). In order: the frontier that a source's chains last told, the
positions that the source's own system holds, the source's beginning. Frontiers never go back: a
later word of one generation stands behind an earlier one.

Positions are kept by source, not by chain: in the next attempt another subtask may read a split, or
there may be another number of them (K3, K5). Within an attempt one chain alone tells of a split.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from arkflow_kernel.ids import ChainId, MonotonicMs, OperatorId, SplitId
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import ReplayKind, SplitPosition
from arkflow_kernel.snapshot import ChainSnapshot, RestoredChain


@dataclass(slots=True)
class _Source:
    operator: OperatorId
    frontier: dict[SplitId, SplitPosition] = field(default_factory=dict)
    heard_ms: dict[SplitId, MonotonicMs] = field(default_factory=dict)
    replay: ReplayKind | None = None
    commits: bool = False

    def sentence(self, now_ms: MonotonicMs) -> str:
        """Where it continues."""
        name = f"source '{self.operator}'"
        if self.replay is ReplayKind.NONE:
            return f"{name} cannot repeat anything: rows that were in flight are lost"
        if self.frontier:
            age = max(0, now_ms - self._heard_ms()) / 1000
            return (
                f"{name} continues at the positions that it reported {age:.1f} s before: "
                "what was written beyond them is repeated"
            )
        if self.commits:
            return (
                f"{name} continues at the positions that its own system holds: "
                "rows written after them are repeated"
            )
        return f"{name} starts at its beginning: every row that was written is repeated"

    def _heard_ms(self) -> MonotonicMs:
        """The oldest word about a split that is not ended, or the newest if all are."""
        left = [ms for split, ms in self.heard_ms.items() if not self.frontier[split].ended]
        return min(left) if left else max(self.heard_ms.values())


class RestartPositions:
    """The positions of all sources of a job."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._known: dict[OperatorId, _Source] = {}
        self._sources: dict[ChainId, _Source] = {}
        self.replanned(graph)

    def replanned(self, graph: ExecutionGraph) -> None:
        """The next attempt runs another plan: what is known of the job's sources stays (K3)."""
        reading = {p.chain: p.source.operator for p in graph.chains if p.source is not None}
        known = self._known
        self._known = {name: known.get(name) or _Source(name) for name in reading.values()}
        self._sources = {chain: self._known[name] for chain, name in reading.items()}

    def source_is(self, chain: ChainId, replay: ReplayKind | None, *, commits: bool) -> None:
        """What a chain's source can do, as it said when it was opened."""
        source = self._sources.get(chain)
        if source is not None:
            source.replay, source.commits = replay, commits

    def heard(
        self, chain: ChainId, frontier: tuple[SplitPosition, ...], now_ms: MonotonicMs
    ) -> None:
        """A chain told its frontier; an empty one says nothing (a process that died)."""
        source = self._sources.get(chain)
        if source is not None and frontier:
            source.frontier |= {position.split: position for position in frontier}
            source.heard_ms |= {position.split: now_ms for position in frontier}

    def restored(self, chain: ChainId) -> tuple[SplitPosition, ...]:
        """Where the splits of a chain's source continue, by name; () if nobody knows."""
        source = self._sources.get(chain)
        known = {} if source is None else source.frontier
        return tuple(known[split] for split in sorted(known))

    def restored_chain(self, plan: ChainPlan) -> RestoredChain:
        """What a chain restores in ack mode: positions of its whole source, nothing else (K5)."""
        snapshot = ChainSnapshot(plan.chain, plan.tasks, sources=self.restored(plan.chain))
        return RestoredChain(snapshot=snapshot)

    def progress(self) -> Hashable:
        """A value that changes when some frontier moves."""
        return tuple(
            (source.operator, split.split, repr(split.position), split.ended)
            for source in self._known.values()
            for split in source.frontier.values()
        )

    def sentence(self, now_ms: MonotonicMs) -> str:
        """For the log: where each source continues, and what that means for duplicates."""
        return "; ".join(source.sentence(now_ms) for source in self._known.values())


__all__ = ["RestartPositions"]
