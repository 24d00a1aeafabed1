"""Runs one chain on an asyncio loop with a thread per lane; the body of a chain actor, without Ray.

The loop owns mailbox and machine; reading, operators and each sink have threads of their own (P5).
Requests are handed to the lane's thread; its answer comes back through the mailbox.

End of life (T4): the machine's `EndChain` → lanes are closed and joined → components are closed in
reverse order → the outcome is returned. A lane that hangs in user code is given up after
`teardown_timeout_ms`: the process must then end, and `hung` says so.
"""

import asyncio
import os
import resource
import time
from dataclasses import replace

from arkflow_kernel.chain_work import ChainWork, ComponentFactory, LaneKey, lane_of
from arkflow_kernel.errors import ComponentError, ProtocolError
from arkflow_kernel.ids import Generation, MonotonicMs, RequestToken
from arkflow_kernel.inline import with_close_errors
from arkflow_kernel.lane import LaneSchedule
from arkflow_kernel.limits import TEARDOWN_TIMEOUT_MS
from arkflow_kernel.metrics import ChainUsage
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Clock, SplitPosition
from arkflow_kernel.protocol import (
    ChainEvent,
    ChainOutcome,
    ChainReport,
    Control,
    ControlState,
    EndChain,
    ItemDone,
    NextSlice,
    OutcomeKind,
    Request,
    RequestFailed,
    Submit,
    Tick,
    deadline,
)
from arkflow_kernel.task import ChainTask
from arkflow_ray.runtime.lane_thread import LaneThread
from arkflow_ray.runtime.mailbox import Mailbox

OVERDUE_CHECK_MS = 100
SNAPSHOT_MS = 200


class ChainHost:
    """One chain of one generation. `open` first, then `run` once; `control` from any thread."""

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        components: ComponentFactory,
        clock: Clock,
        *,
        teardown_timeout_ms: int = TEARDOWN_TIMEOUT_MS,
    ) -> None:
        self._plan = plan
        self._generation = generation
        self._clock = clock
        self._teardown_timeout_s = teardown_timeout_ms / 1000
        self._work = ChainWork(plan, components, clock)
        self._task: ChainTask | None = None
        self._mailbox: Mailbox[ChainEvent] = Mailbox()
        self._schedule = LaneSchedule(plan.workers)
        self._workers: list[LaneThread] = []
        self._idle_workers: list[LaneThread] = []
        self._worker_of: dict[RequestToken, LaneThread] = {}
        self._lanes: dict[LaneKey, LaneThread] = {}
        self._usage_at_start: ChainUsage | None = None
        self._usage_at_end: ChainUsage | None = None
        self._times_out = any(op.timeout_ms is not None for op in plan.operators)
        self._stale = False
        self._report: ChainReport | None = None
        self._report_due_ms = MonotonicMs(0)
        self.hung = False

    def open(self, restored: tuple[SplitPosition, ...] = ()) -> None:
        """Open the components; blocks. Raises `ArkflowError`, with everything closed again."""
        self._work.open(restored)
        self._task = ChainTask(
            self._plan, self._generation, commits=self._work.commits, restored=restored
        )
        self._take_snapshot(self._task)

    def control(self, state: ControlState) -> None:
        """Tell the machine the coordinator's state; from any thread, also before `run`."""
        self._mailbox.post(Control(self._clock.moment(), state), control=True)

    def report(self) -> ChainReport:
        """Counters and frontier, from any thread: the loop's last snapshot (200 ms old at most)."""
        assert self._report is not None, "open comes first"
        return self._report

    async def run(self) -> ChainOutcome:
        """Run the chain to its end; its components are closed when this returns."""
        assert self._task is not None, "open comes first"
        self._mailbox.attach()
        try:
            outcome = await self._loop(self._task)
        except Exception as error:  # noqa: BLE001 - a fault of the machine stops its chain, loudly
            outcome = ChainOutcome(OutcomeKind.FAILED, _fault(error), self._task.frontier())
        finally:
            self._mailbox.detach()
        return with_close_errors(outcome, await asyncio.to_thread(self._close))

    # --- the loop ------------------------------------------------------------------------------

    async def _loop(self, task: ChainTask) -> ChainOutcome:
        while True:
            if self._stale and self._clock.moment().now_ms >= self._report_due_ms:
                self._take_snapshot(task)
            event = self._mailbox.take()
            if event is None:
                await self._mailbox.wait(self._wait_s(task))
                event = self._mailbox.take() or self._due(task)
                if event is None:
                    continue
            self._stale = True
            self._note_answer(event)
            for command in task.handle(event):
                if isinstance(command, EndChain):
                    self._usage_at_end = self._usage()
                    self._take_snapshot(task)
                    return command.outcome
                self._order(command)
            self._start_items()

    def _wait_s(self, task: ChainTask) -> float | None:
        now_ms = self._clock.moment().now_ms
        report_ms = self._report_due_ms if self._stale else None
        watched = self._times_out and bool(self._worker_of)
        overdue_ms = MonotonicMs(now_ms + OVERDUE_CHECK_MS) if watched else None
        due_ms = deadline(task.next_deadline_ms(), report_ms, overdue_ms)
        return None if due_ms is None else max(0.0, (due_ms - now_ms) / 1000)

    def _due(self, task: ChainTask) -> ChainEvent | None:
        """An operator over its time-out, else a tick that is due."""
        overdue = self._work.overdue()
        if overdue is not None:
            self.hung = True
            return overdue
        moment = self._clock.moment()
        due_ms = task.next_deadline_ms()
        return Tick(moment) if due_ms is not None and moment.now_ms >= due_ms else None

    def _order(self, request: Request) -> None:
        if self._usage_at_start is None:
            self._usage_at_start = process_usage()
        if isinstance(request, Submit | NextSlice):
            self._schedule.put(request)
        else:
            self._lane(lane_of(request)).put(request)

    def _start_items(self) -> None:
        """Hand items to idle workers, as the schedule allows (T1c, T2)."""
        while (request := self._schedule.next()) is not None:
            worker = self._idle_workers.pop() if self._idle_workers else self._new_worker()
            self._worker_of[request.token] = worker
            worker.put(request)

    def _note_answer(self, event: ChainEvent) -> None:
        if isinstance(event, ItemDone | RequestFailed) and event.token in self._worker_of:
            self._idle_workers.append(self._worker_of.pop(event.token))
            self._schedule.answered(event.token, more=isinstance(event, ItemDone) and event.more)

    # --- threads -------------------------------------------------------------------------------

    def _new_worker(self) -> LaneThread:
        worker = LaneThread(f"{self._plan.chain}-lane-{len(self._workers)}", self._perform)
        self._workers.append(worker)
        return worker

    def _lane(self, key: LaneKey) -> LaneThread:
        lane = self._lanes.get(key)
        if lane is None:
            lane = LaneThread(f"{self._plan.chain}-{key.name.value}", self._perform)
            self._lanes[key] = lane
        return lane

    def _perform(self, request: Request) -> None:
        try:
            event = self._work.perform(request)
        except BaseException as error:  # noqa: BLE001 - a lane's thread must answer, or all waits
            failure = ComponentError(f"chain '{self._plan.chain}': {type(error).__name__}: {error}")
            event = RequestFailed(self._clock.moment(), request.token, failure)
        self._mailbox.post(event)

    def _close(self) -> list[Exception]:
        """Join the lanes, then close the components; blocks. A hung lane is left behind."""
        lanes = [*self._workers, *self._lanes.values()]
        for lane in lanes:
            lane.close()
        give_up_s = time.monotonic() + (0.0 if self.hung else self._teardown_timeout_s)
        for lane in lanes:
            joined = lane.join(max(0.0, give_up_s - time.monotonic()))
            self.hung = self.hung or not joined
        return self._work.close()

    def _take_snapshot(self, task: ChainTask) -> None:
        self._stale = False
        moment = self._clock.moment()
        self._report_due_ms = MonotonicMs(moment.now_ms + SNAPSHOT_MS)
        self._report = ChainReport(
            moment, self._plan.chain, task.statistics(), task.frontier(), self._usage()
        )

    def _usage(self) -> ChainUsage:
        """CPU since the first request, peak memory of the process."""
        if self._usage_at_end is not None:
            return self._usage_at_end
        now, start = process_usage(), self._usage_at_start
        cpu_ms = 0 if start is None else now.cpu_ms - start.cpu_ms
        return replace(now, cpu_ms=cpu_ms)


def _fault(error: Exception) -> ProtocolError:
    """The error of a machine that broke its own rules."""
    if isinstance(error, ProtocolError):
        return error
    return ProtocolError(f"{type(error).__name__}: {error} (a fault of arkflow_ray)")


def process_usage() -> ChainUsage:
    """User and system time of this process so far, and its peak resident memory."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_ms = int((usage.ru_utime + usage.ru_stime) * 1000)
    return ChainUsage(cpu_ms, usage.ru_maxrss * 1024, os.getpid())


__all__ = ["ChainHost", "process_usage"]
