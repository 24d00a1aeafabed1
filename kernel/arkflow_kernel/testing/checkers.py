"""What must hold at every step and at the end of chains and jobs, whatever their drivers did.

`lineage.py` knows what became of every row; here is what must hold of orders, of single items, of
counters (T6), and of held bytes. `job_checks.py` looks at whole jobs.
"""

from collections.abc import Iterable

from arkflow_kernel.ids import ChainId, OutputId
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.outbox import Outbox
from arkflow_kernel.plan import ChainPlan, EdgeKind, OutletPlan
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.lineage import ViolationError, missing
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_order import head_of
from arkflow_kernel.testing.sim_parts import every
from arkflow_kernel.testing.sim_rows import KEYS, SPLIT_ROWS, owner_of


class OrderCheck:
    """Rows of one key and one split come in order wherever the plan promises it. One attempt."""

    def __init__(self, scenario: Scenario) -> None:
        source_of = scenario.source_of()
        self._ordered: dict[str, frozenset[int]] = {}
        for head, sources in scenario.paths.items():
            path = {source: known.ordered for source, known in sources.items()}
            splits = (split for split, source in source_of.items() if path.get(source))
            self._ordered[head] = frozenset(splits)
        self._last: dict[tuple[str, int, int], int] = {}

    def ordered(self, chain: ChainId) -> frozenset[int]:
        """Splits whose rows come to a chain, and leave it, in order."""
        return self._ordered[head_of(chain)]

    def passed(self, place: str, ordered: frozenset[int], rows: Iterable[int]) -> None:
        """Rows leave or arrive at a place."""
        last = self._last
        for row in rows:
            split, at = divmod(row, SPLIT_ROWS)
            if split not in ordered:
                continue
            known = (place, split, at % KEYS)
            if last.get(known, -1) >= at:
                raise ViolationError(
                    f"{place} got row {at} of split {split} after row {last[known]}"
                )
            last[known] = at


class ItemCheck:
    """What one item of a lane may yield (T6, G2): every row once by every way out, or dropped."""

    def __init__(self, plan: ChainPlan, scenario: Scenario) -> None:
        self._plan = plan
        self._outlets = {outlet.output: outlet for outlet in plan.outlets}
        self._scripts = [scenario.operators[op.operator] for op in plan.operators]

    def check(self, rows_in: list[int], out: dict[OutputId, list[int]]) -> None:
        """`out`: all rows that the item yielded, by sink and by channel."""
        errors = self._leaving(self._plan.error_output, out)
        ways = [self._leaving(output, out) for output in self._plan.outputs]
        for way in ways[1:]:
            if way != ways[0]:
                raise ViolationError(f"different rows to {self._plan.outputs}: {ways}")
        came_out = sorted(ways[0] + errors) if ways else errors
        if came_out == sorted(rows_in) or self._plan.timed:  # a window keeps rows
            return
        for row in missing(rows_in, came_out):
            if not any(every(script.drops, row) for script in self._scripts):
                raise ViolationError(f"a lane lost row {row}, which no operator drops")

    def _leaving(self, output: OutputId | None, out: dict[OutputId, list[int]]) -> list[int]:
        """The rows that left by one way, whatever its channels; as many as a single target got."""
        outlet = None if output is None else self._outlets.get(output)
        if output is None or outlet is None:
            return sorted(out.get(output, ())) if output is not None else []
        parts = [out.get(channel.output, []) for channel in outlet.channels]
        if outlet.kind is EdgeKind.BROADCAST:
            if any(part != parts[0] for part in parts):
                raise ViolationError(f"broadcast {output} sent different rows: {parts}")
            return sorted(parts[0])
        if outlet.kind is EdgeKind.PARTITIONED:
            _check_owners(outlet, parts)
        return sorted(row for part in parts for row in part)


def _check_owners(outlet: OutletPlan, parts: list[list[int]]) -> None:
    for subtask, part in enumerate(parts):
        for row in part:
            key = row % SPLIT_ROWS % KEYS
            if owner_of(key, len(parts), outlet.max_parallelism) != subtask:
                raise ViolationError(f"row {row} of key {key} went to subtask {subtask} (G3)")


def check_held(task: ChainTask, item_bytes: dict[int, int], statistics: ChainStatistics) -> None:
    """`held_bytes` is what the machine really holds, taken from its parts."""
    held = sum(read.batch.batch.nbytes for read in task._flow.source._ahead)
    for item in task._flow.items._items:
        held += 0 if item.token is None else item_bytes[item.token]
        if item.slice is not None:
            held += sum(piece.size_bytes for piece in item.slice.pieces[item.taken :])
    for lane in task._flow.outputs._all.values():
        if isinstance(lane, Outbox):
            held += sum(getattr(envelope, "size_bytes", 0) for envelope in lane._queue)
            held += lane._open.size if lane._open else 0
        else:
            held += sum(getattr(queued, "size_bytes", 0) for queued in lane._queue)
            held += lane._writing_bytes if hasattr(lane._outstanding, "batch") else 0
    if held != statistics.held_bytes:
        raise ViolationError(f"held_bytes is {statistics.held_bytes}, really {held}")


def check_conservation(plan: ChainPlan, statistics: ChainStatistics, fails: bool) -> None:
    """T6 over a whole chain that ended in order. `fails`: some operator may fail on a batch."""
    to = dict(statistics.rows_to)
    _equal("settled rows", statistics.settled_rows, statistics.rows_in)
    _equal("rows over all outputs", sum(to.values()), statistics.rows_out)
    _equal("batches in flight", statistics.in_flight, 0)
    _equal("held bytes", statistics.held_bytes, 0)
    rows = statistics.rows_in
    for counts in statistics.operators:
        if fails and counts.rows_in <= rows:
            rows = counts.rows_in
        _equal(f"rows into {counts.operator}", counts.rows_in, rows)
        rows = counts.rows_out
    for outlet in plan.outlets:
        for channel in statistics.channels:
            if channel.sent != channel.settled:
                raise ViolationError(f"{plan.chain} ended, {channel.channel} is not settled (F5)")
        if outlet.kind in (EdgeKind.BROADCAST, EdgeKind.ERROR) or fails:
            continue
        left = sum(to[channel.output] for channel in outlet.channels)
        _equal(f"rows to edge {outlet.output}", left, rows)


def _equal(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ViolationError(f"{what}: {found}, expected {expected}")


__all__ = ["ItemCheck", "OrderCheck", "check_conservation", "check_held"]
