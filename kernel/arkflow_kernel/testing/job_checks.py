"""What must hold of a whole job: where attempts continue, when they begin (D3, D4), how it ends."""

from collections import Counter

from arkflow_kernel.errors import ArkflowError, ProcessingError
from arkflow_kernel.ids import ChainId, Generation, OperatorId, SplitId
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    ChainEnded,
    ChainReport,
    CoordinatorEvent,
    OutcomeKind,
)
from arkflow_kernel.testing.lineage import ViolationError


class RestartCheck:
    """Restarts as the plan of the job allows them (D3), counted anew."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self._plan = graph.restart
        self._in_a_row = 0
        self._failed_ms: int | None = None
        self._failures: Counter[str] = Counter()
        self.started = False

    def attempt_failed(self, now_ms: int, errors: list[ArkflowError]) -> None:
        """The last chain of an attempt ended, in which these errors happened."""
        last = self._failed_ms
        if last is not None and now_ms - last >= self._plan.reset_after_ms:
            self._in_a_row = 0
        self._failed_ms = now_ms
        self._in_a_row += 1
        self._failures.update({e.operator for e in errors if isinstance(e, ProcessingError)})

    def restarted(self, now_ms: int) -> None:
        """Another attempt begins."""
        plan, rank = self._plan, self._in_a_row
        if plan.strategy == "none":
            raise ViolationError("restarted a job that must not be restarted")
        if plan.max_attempts is not None and rank > plan.max_attempts:
            raise ViolationError(f"restart {rank} in a row, {plan.max_attempts} are allowed")
        wait = 0.0 if rank < 2 else float(min(plan.initial_ms, plan.max_ms))
        for _ in range(rank - 2 if plan.strategy == "exponential" else 0):
            wait = min(wait * plan.multiplier, plan.max_ms)
        if self._failed_ms is None:
            raise ViolationError("restarted without a failure")
        if now_ms - self._failed_ms < int(wait):
            raise ViolationError(f"restart {rank} after {now_ms - self._failed_ms} ms, not {wait}")

    def must_not_restart(self) -> bool:
        """Whether the strategy ends the job after the failures so far."""
        plan = self._plan
        return (
            plan.strategy == "none"
            or not self.started
            or (plan.max_attempts is not None and self._in_a_row > plan.max_attempts)
            or max(self._failures.values(), default=0) >= 3
        )


class JobCheck:
    """What the coordinator was told, and what it made of it."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.restarts = RestartCheck(graph)
        self.asked: OutcomeKind | None = None
        self._chains = len(graph.chains)
        self._source_of = {p.chain: p.source.operator for p in graph.chains if p.source is not None}
        self._generation = Generation(0)
        self._ended: dict[ChainId, ArkflowError | None] = {}
        self._heard: dict[OperatorId, dict[SplitId, SplitPosition]] = {}

    def told(self, event: CoordinatorEvent) -> None:
        """The coordinator is handed an event: frontiers and ends of the running attempt count."""
        if not isinstance(event, ChainReport | ChainEnded):
            return
        if event.generation != self._generation or event.chain in self._ended:
            return
        frontier = event.frontier if isinstance(event, ChainReport) else event.outcome.frontier
        if frontier:
            known = self._heard.setdefault(self._source_of[event.chain], {})
            known |= {position.split: position for position in frontier}
        if isinstance(event, ChainEnded):
            self._ended[event.chain] = event.outcome.error
            errors = [error for error in self._ended.values() if error is not None]
            if len(self._ended) == self._chains and errors:
                self.restarts.attempt_failed(event.at.now_ms, errors)

    def begins(self, generation: Generation, now_ms: int, alive: list[ChainId]) -> None:
        """An attempt is deployed."""
        if alive:
            raise ViolationError(f"an attempt starts while {alive} of the last are alive (D4)")
        if generation != self._generation + 1:
            raise ViolationError(f"generation {generation} after {self._generation}")
        if generation > 1:
            self.restarts.restarted(now_ms)
        self._generation = generation
        self._ended = {}

    def check_restored(self, chain: ChainId, positions: tuple[SplitPosition, ...]) -> None:
        """A source continues exactly where it was last heard of: nothing lost, no more repeated."""
        source = self._source_of.get(chain)
        known = {} if source is None else self._heard.get(source, {})
        heard = tuple(known[split] for split in sorted(known))
        if positions != heard:
            raise ViolationError(f"{chain} is restored to {positions}, not {heard}")

    def check_end(self, kind: OutcomeKind) -> None:
        """The job ends as its user wanted, or as its restart strategy says."""
        if kind in (OutcomeKind.STOPPED, OutcomeKind.CANCELLED) and self.asked is not kind:
            raise ViolationError(f"the job {kind.value}, and nobody asked for it")
        if (
            kind is OutcomeKind.FAILED
            and self.asked is None
            and not self.restarts.must_not_restart()
        ):
            raise ViolationError("the job failed though a restart was due")

    def ended_in_order(
        self, kind: OutcomeKind, kinds: set[OutcomeKind], *, deployed: int, faulty: bool
    ) -> bool:
        """Whether the job and all of its chains, which ended by `kinds`, came to their end."""
        if kind is OutcomeKind.FINISHED and kinds != {OutcomeKind.FINISHED}:
            raise ViolationError(f"the job finished, its chains: {kinds}")
        orderly = {kind} | kinds <= {OutcomeKind.FINISHED, OutcomeKind.STOPPED}
        return orderly and deployed == self._chains and not faulty


__all__ = ["JobCheck", "RestartCheck"]
