"""The ground truth of a simulated job with event time: what every record says of time (W1, W2, B0).

A cut holds, of one moment: how far the splits were read and their greatest times, the watermark
that follows from them, and what the windows hold and have fired by it.
"""

from typing import NoReturn

from arkflow_kernel.ids import ChainId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.snapshot import ChainSnapshot, StateSnapshot
from arkflow_kernel.testing.cut_oracle import Cut, Oracle
from arkflow_kernel.testing.cut_truth import Known, Truth
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_epochs import TOTALS, Counted
from arkflow_kernel.testing.sim_rows import split_name
from arkflow_kernel.testing.sim_windows import Pane, pane_of
from arkflow_kernel.testing.time_oracle import TimeOracle

Part = tuple[int | None, bool]
"""Watermark of a split or an input, and whether it has a say."""


class TimeTruth(Truth):
    """What became of a job with event time."""

    oracle: TimeOracle

    def _made_oracle(self) -> Oracle:
        return TimeOracle(self.scenario)

    @property
    def strict(self) -> bool:
        """Nothing is ever idle while it has rows: all times follow from the rows alone."""
        return self.oracle.table.time.idle_timeout_ms is None

    def _recorded(self, known: Known) -> None:
        before = self.cut
        super()._recorded(known)
        snapshots = {snapshot.chain: snapshot for snapshot in known.record.chains}
        for plan in self.scenario.graph.chains:
            snapshot = snapshots[plan.chain]
            parts = self._splits(snapshot, known.cut) if plan.source else _inputs(snapshot)
            self._check_watermark(snapshot, parts)
            self._check_inputs(plan, snapshots)
            keeps = plan.parallelism == 1 or bool(snapshot.states)  # others may be told less (K5)
            last = before.watermarks.get(plan.chain) if keeps else None
            if last is not None and (snapshot.watermark is None or snapshot.watermark < last):
                _fail(f"the watermark of {plan.chain} went from {last} to {snapshot.watermark}")
            self._check_states(plan, snapshot)
        self._check_panes(known)

    # --- watermarks ----------------------------------------------------------------------------

    def _splits(self, snapshot: ChainSnapshot, cut: Cut) -> list[Part]:
        """The splits of a source; their greatest times are those of the rows before the cut."""
        script = self.scenario.sources[snapshot.chain]
        times = {time.split: time for time in snapshot.times}
        parts: list[Part] = []
        for split in script.sizes:
            place, time = cut.places.get(split, 0), times.get(split_name(split))
            ended = place == script.rows(split) and not script.unbounded
            greatest, found = self.oracle.table.greatest(split, place), time and time.max_ms
            if found != greatest and not (ended and time is None):
                _fail(f"the greatest time of split {split} at {place} is {greatest}, not {found}")
            watermark = self.oracle.table.watermark(split, place)
            parts.append((watermark, not ended and not (time is not None and time.idle)))
        return parts

    def _check_watermark(self, snapshot: ChainSnapshot, parts: list[Part]) -> None:
        """It is the minimum over what has a say (W1); it may be higher where things were idle."""
        said = [watermark for watermark, active in parts if active]
        if not said or snapshot.finished:
            return
        known = [watermark for watermark in said if watermark is not None]
        low = min(known) if len(known) == len(said) else None
        found = snapshot.watermark
        self._probes["watermark in a cut"] += low is not None
        higher = found is not None and low is not None and found > low
        if found == low or (not self.strict and (low is None or higher)):
            return
        _fail(f"{snapshot.chain} has watermark {found} at the cut, the lowest of {parts} is {low}")

    def _check_inputs(self, plan: ChainPlan, snapshots: dict[ChainId, ChainSnapshot]) -> None:
        """What a channel has said before its barrier is the newest that its sender has."""
        found = {each.channel: each for each in snapshots[plan.chain].inputs}
        for channel in plan.inputs:
            sender, at = snapshots[channel.source], found[channel.channel]
            if at.idle or at.ended or sender.finished or at.watermark == sender.watermark:
                continue
            _fail(f"{channel.channel} has said {at.watermark}, its sender {sender.watermark} (W13)")

    # --- windows -------------------------------------------------------------------------------

    def _check_states(self, plan: ChainPlan, snapshot: ChainSnapshot) -> None:
        """A window's watermark is that of its chain: it has fired what the cut says (N5)."""
        for state in _panes_of(plan, snapshot):
            if state.watermark != snapshot.watermark:
                _fail(
                    f"the windows of {plan.chain} were told {state.watermark}, the cut says "
                    f"{snapshot.watermark}"
                )

    def _check_panes(self, known: Known) -> None:
        """Windows hold the rows before the cut that are neither late nor fired (B0)."""
        found: dict[Pane, int] = {}
        plans = {plan.chain: plan for plan in self.scenario.graph.chains}
        for snapshot in known.record.chains:
            for state in _panes_of(plans[snapshot.chain], snapshot):
                found.update(self._states.panes(state))
        expected = self.oracle.open_panes(known.cut)
        if found != expected:
            wrong = {pane for pane, _ in found.items() ^ expected.items()}
            texts = [f"{p}: {found.get(p)} not {expected.get(p)}" for p in sorted(wrong)[:5]]
            _fail(f"windows at {known.cut}: {', '.join(texts)}")
        self._probes["open windows in a cut"] += bool(found)

    def _judge_counts(self, rows: list[Counted]) -> None:
        """A result counts every row of its window that is not late."""
        totals = self.oracle.totals(self.cut)
        for row, counts in rows:
            for name, count in counts:
                if name.startswith(TOTALS):
                    self._probes["result published"] += 1
                    if totals[pane_of(row)] != count:
                        pane = pane_of(row)
                        _fail(f"window {pane} is published as {count}, not {totals[pane]} (W9)")
        super()._judge_counts(
            [(row, tuple(c for c in counts if not c[0].startswith(TOTALS))) for row, counts in rows]
        )


def _inputs(snapshot: ChainSnapshot) -> list[Part]:
    return [(each.watermark, not (each.idle or each.ended)) for each in snapshot.inputs]


def _panes_of(plan: ChainPlan, snapshot: ChainSnapshot) -> list[StateSnapshot]:
    windows = {op.operator for op in plan.operators if op.window is not None}
    return [state for state in snapshot.states if state.operator in windows]


def _fail(message: str) -> NoReturn:
    raise ViolationError(message)


__all__ = ["TimeTruth"]
