"""One chain of a simulated job with event time: what it says of time is judged at every step."""

from typing import Any

from arkflow_kernel.chain_work import ChainWork, ComponentFactory
from arkflow_kernel.envelope import Data
from arkflow_kernel.ids import SplitId
from arkflow_kernel.plan import OperatorPlan
from arkflow_kernel.ports import Operator
from arkflow_kernel.protocol import (
    AdvanceItem,
    ChainEvent,
    Emit,
    RunItem,
    SourceRead,
    Submit,
    TickItem,
)
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.task import Phase
from arkflow_kernel.testing.cut_chain import CutChain, CutComponents
from arkflow_kernel.testing.cut_job import CutJob
from arkflow_kernel.testing.cut_run import CutRun
from arkflow_kernel.testing.cut_truth import Truth
from arkflow_kernel.testing.sim_channel import SimChannel
from arkflow_kernel.testing.sim_windows import SimWindow
from arkflow_kernel.testing.time_checks import InputTimes, SplitChecks
from arkflow_kernel.testing.time_truth import TimeTruth


class TimeComponents(CutComponents):
    """Windows are scripted, too."""

    def window(self, plan: OperatorPlan, journal: CommitOnAck, states: ChainStates) -> Operator:
        """The window of the simulation, joined to its journal and its states."""
        truth = self._run.job.truth
        assert isinstance(truth, TimeTruth)
        made = SimWindow(plan, journal, truth.oracle.table, self._world.misuses)
        journal.joined(made)
        states.joined(made)
        self.operators.append(made)
        return made


def with_scripted_windows(work: Any) -> Any:
    """The work of a chain, but that its windows are those of the simulation."""

    def _operator(self: ChainWork, plan: OperatorPlan, components: ComponentFactory) -> Operator:
        if plan.window is None:
            made: Operator = work._operator(self, plan, components)
            return made
        assert isinstance(components, TimeComponents)
        return components.window(plan, self._journal, self._states)

    return type(f"Scripted{work.__name__}", (work,), {"_operator": _operator})


class TimeChain(CutChain):
    """One attempt of one chain, with checks of its time."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._began_ms = self._clock.now_ms
        truth = self.run.job.truth
        assert isinstance(truth, TimeTruth)
        snapshot, table = self.restored.snapshot, truth.oracle.table
        known = None if snapshot is None else snapshot.watermark
        self._input_times = self._split_times = None
        if self.plan.source is None:
            names = [channel.channel for channel in self.plan.inputs]
            self._input_times = InputTimes(names, known, table, strict=truth.strict)
        else:
            times = () if snapshot is None else snapshot.times
            self._split_times = SplitChecks(self.work.opened.splits, times, known, table)

    def _made_parts(self) -> TimeComponents:
        return TimeComponents(self.plan, self._world, self.run)

    def _deliver(self, channel: SimChannel) -> None:
        envelope = channel.queue[0]
        if self._input_times is not None:
            self._input_times.delivered(channel.id, envelope)
        super()._deliver(channel)

    def _handle(self, event: ChainEvent) -> None:
        if self._split_times is not None and isinstance(event, SourceRead):
            self._split_times.answered(event.result, event.at.now_ms)
        super()._handle(event)
        if self._split_times is not None:
            self._split_times.passed(self._clock.now_ms)
        check = self._split_times or self._input_times
        assert check is not None
        at_once = not self.plan.timed and self.task.phase is Phase.RUNNING
        check.check(self.name, self.task._flow.time.watermark, at_once=at_once)

    def _submitted(self, command: Submit) -> None:
        super()._submitted(command)
        item = command.item
        self._world.probes["advance"] += isinstance(item, AdvanceItem)
        ticks = isinstance(item, TickItem)
        self._world.probes["tick of a window"] += ticks and self._clock.now_ms > self._began_ms
        if self._split_times is not None and isinstance(item, RunItem):
            assert item.origin.source is not None
            self._split_times.submitted(self._read_upto(SplitId(item.origin.source)))

    def _emit(self, command: Emit) -> None:
        super()._emit(command)
        if not isinstance(command.envelope, Data):
            self._world.probes[f"said {type(command.envelope).__name__}"] += 1


class TimeRun(CutRun):
    """One coordinator of a job with event time."""

    chain_kind = TimeChain


class TimeJob(CutJob):
    """A job with event time over all of its runs."""

    run_kind = TimeRun

    def _made_truth(self) -> Truth:
        return TimeTruth(self.scenario, self.store, self.probes)


__all__ = ["TimeChain", "TimeComponents", "TimeJob", "TimeRun", "with_scripted_windows"]
