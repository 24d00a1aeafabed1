"""Where the sources of a job continue after a failed attempt, and what that means for its rows.

A part of `coordinator.py` (D3, F1). In order: the frontier that a source's chain last told, the
positions that the source's own system holds, the source's beginning. Frontiers never go back: a
later word of one generation stands behind an earlier one.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from arkflow_kernel.ids import ChainId, MonotonicMs, OperatorId
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import ReplayKind, SplitPosition
from arkflow_kernel.snapshot import ChainSnapshot, RestoredChain


@dataclass(slots=True)
class _Source:
    operator: OperatorId
    frontier: tuple[SplitPosition, ...] = ()
    heard_ms: MonotonicMs | None = None
    replay: ReplayKind | None = None
    commits: bool = False

    def sentence(self, now_ms: MonotonicMs) -> str:
        """Where it continues."""
        name = f"source '{self.operator}'"
        if self.replay is ReplayKind.NONE:
            return f"{name} cannot repeat anything: rows that were in flight are lost"
        if self.frontier and self.heard_ms is not None:
            age = max(0, now_ms - self.heard_ms) / 1000
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


class RestartPositions:
    """The positions of all sources of a job."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._sources = {
            plan.chain: _Source(plan.source.operator)
            for plan in graph.chains
            if plan.source is not None
        }

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
            source.frontier, source.heard_ms = frontier, now_ms

    def restored(self, chain: ChainId) -> tuple[SplitPosition, ...]:
        """Where the splits of a chain's source continue; () if nobody knows."""
        source = self._sources.get(chain)
        return () if source is None else source.frontier

    def restored_chain(self, plan: ChainPlan) -> RestoredChain:
        """What a chain restores in ack mode: positions, nothing else."""
        snapshot = ChainSnapshot(plan.chain, plan.tasks, sources=self.restored(plan.chain))
        return RestoredChain(snapshot=snapshot)

    def progress(self) -> Hashable:
        """A value that changes when some frontier moves."""
        return tuple(
            (chain, split.split, repr(split.position), split.ended)
            for chain, source in self._sources.items()
            for split in source.frontier
        )

    def sentence(self, now_ms: MonotonicMs) -> str:
        """For the log: where each source continues, and what that means for duplicates."""
        return "; ".join(source.sentence(now_ms) for source in self._sources.values())


__all__ = ["RestartPositions"]
