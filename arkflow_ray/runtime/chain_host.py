"""Runs one chain on an asyncio loop with a thread per lane; the body of a chain actor, without Ray.

The loop owns inbox and machine; reading, operators and each sink have threads of their own, and
one I/O thread serves the chain's channels (P5, H8a). Requests are handed to the lane's thread; its
answer comes back through the inbox. A report comes from the loop itself, so one that hangs gives
none, and is found out (D2).

End of life (T4): the machine's `EndChain` → lanes are closed and joined → components are closed in
reverse order → what was emitted and granted goes out, and the channels are closed → the outcome is
returned. A lane that hangs in user code, and a component that does not close after a failure, are
given up after `teardown_timeout_ms`: the process must then end, and `hung` says so.
"""

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from arkflow_kernel.chain_work import ChainWork, ComponentFactory, with_close_errors
from arkflow_kernel.errors import ArkflowError, ChannelError, ComponentError, ProtocolError
from arkflow_kernel.ids import ChainId, Generation, MonotonicMs
from arkflow_kernel.limits import STALL_TIMEOUT_MS, TEARDOWN_TIMEOUT_MS
from arkflow_kernel.metrics import ChainUsage, Wait
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Clock, ReplayKind
from arkflow_kernel.protocol import (
    ChainCommand,
    ChainEvent,
    ChainOutcome,
    ChainReport,
    ControlState,
    Emit,
    EndChain,
    GrantCredit,
    OutcomeKind,
    ReportSoon,
    Request,
    RequestFailed,
    Tick,
    deadline,
)
from arkflow_kernel.snapshot import NOTHING_RESTORED, RestoredChain
from arkflow_kernel.task import ChainTask
from arkflow_ray.runtime.chain_inbox import ChainInbox, ReportWanted
from arkflow_ray.runtime.chain_threads import ChainThreads
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.exchange import Exchange
from arkflow_ray.runtime.channels.traffic import Inbox
from arkflow_ray.runtime.channels.tunnel_ends import TunnelCalls
from arkflow_ray.runtime.cpu_throttle import cpu_throttle, throttled
from arkflow_ray.runtime.memory_watch import memory_watch

if TYPE_CHECKING:  # fsspec is not for chains in ack mode
    from arkflow_ray.checkpoint.kept_objects import CountedObjects, KeptObjects
    from arkflow_ray.checkpoint.open import StoreObjects

OVERDUE_CHECK_MS = 100

_FLUSHED = (OutcomeKind.FINISHED, OutcomeKind.STOPPED)
"""Ends after which the channels are emptied; after others, the peers are told by the break."""

MakeExchange = Callable[[Inbox], Exchange]

PushReport = Callable[[ChainReport], None]
"""Tells the coordinator a report that cannot wait; returns at once, on the chain's loop."""


class ChainHost:
    """One chain of one generation. `open` first, then `run` once.

    `objects` holds the objects of checkpoints, in checkpoint mode; the host closes it. `kept` has
    what of them earlier generations of this process left. `exchange` makes the chain's channels,
    once; None for a chain without any. `push` takes reports that cannot wait for the next question.
    """

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        components: ComponentFactory,
        clock: Clock,
        *,
        objects: "StoreObjects | None" = None,
        kept: "KeptObjects | None" = None,
        exchange: MakeExchange | None = None,
        push: PushReport | None = None,
        teardown_timeout_ms: int = TEARDOWN_TIMEOUT_MS,
    ) -> None:
        self._plan = plan
        self._generation = generation
        self._objects = None if objects is None else _counted(objects, kept)
        self._clock = clock
        self._teardown_timeout_s = teardown_timeout_ms / 1000
        self._work = ChainWork(
            plan, components, clock, generation=generation, objects=self._objects
        )
        self._inbox = ChainInbox((channel.channel for channel in plan.inputs), clock)
        self._throttle = cpu_throttle(plan)
        self._memory = memory_watch(plan)
        self._threads = ChainThreads(plan.chain, plan.workers, self._perform)
        self._exchange = None if exchange is None else exchange(self._inbox)
        self._push = push
        self._reports = 0
        self._task: ChainTask | None = None
        self._usage_at_start: ChainUsage | None = None
        self._usage_at_end: ChainUsage | None = None
        self._times_out = any(op.timeout_ms is not None for op in plan.operators)
        self._last_report: ChainReport | None = None
        self._closing_since_ms: MonotonicMs | None = None
        self._answering = threading.Lock()
        self.hung = False

    # --- from any thread -----------------------------------------------------------------------

    @property
    def replay(self) -> ReplayKind | None:
        """What the source can repeat; None without one."""
        return self._work.replay

    @property
    def commits(self) -> bool:
        """Whether the source's own system hears what is settled."""
        return self._work.opened.commits

    def open(
        self, restored: RestoredChain = NOTHING_RESTORED, secret: bytes | None = None
    ) -> Address | None:
        """Open the components, then listen for the chains before this one; blocks.

        Where it listens, None without channels. Raises `ArkflowError`, with everything closed.
        """
        self._work.open(restored)
        address = None
        if self._exchange is not None:
            assert secret is not None, "channels need their generation's secret (H1)"
            try:
                address = self._exchange.listen(secret)
            except BaseException:
                self._work.close()
                raise
        self._task = ChainTask(
            self._plan, self._generation, opened=self._work.opened, restored=restored
        )
        return address

    def connect(
        self,
        peers: Mapping[ChainId, Address],
        calls: Mapping[ChainId, TunnelCalls] | None = None,
    ) -> ArkflowError | None:
        """Connect to the chains behind this one; blocks. An error also ends the chain.

        `calls`: how those are called that are reached through a tunnel (H6).
        """
        if self._exchange is None:
            return None
        try:
            self._exchange.connect(peers, calls=calls)
        except ChannelError as error:
            self._inbox.broken(error)
            return error
        return None

    def control(self, state: ControlState) -> None:
        """Tell the machine the coordinator's state; also before `run`."""
        self._inbox.control(state)

    def report(self) -> "Future[ChainReport]":
        """Counters, frontier and waits, as soon as the loop comes to it."""
        wanted = ReportWanted(Future(), self._clock.moment().now_ms)
        self._inbox.ask(wanted)
        if self._last_report is not None:  # the loop has ended: perhaps nobody else looks
            self._answer_questions(self._last_report)
        return wanted.answer

    # --- the loop ------------------------------------------------------------------------------

    async def run(self) -> ChainOutcome:
        """Run the chain to its end; its components are closed when this returns."""
        task = self._task
        assert task is not None, "open comes first"
        self._inbox.attach()
        try:
            try:
                outcome = await self._loop(task)
            except Exception as error:  # noqa: BLE001 - a fault of the machine stops its chain, loudly
                outcome = ChainOutcome(OutcomeKind.FAILED, _fault(error), task.frontier())
            self._usage_at_end = self._usage()
            outcome = await self._end(task, outcome)
            self._last_report = self._report_now(task)
        finally:
            self._inbox.detach()
        self._answer_questions(self._last_report)
        return outcome

    async def _loop(self, task: ChainTask) -> ChainOutcome:
        while True:
            event = self._inbox.take(task.takes)
            if event is None:
                await self._inbox.wait(self._wait_s(task))
                event = self._inbox.take(task.takes) or self._due(task)
                if event is None:
                    continue
            if isinstance(event, ReportWanted):
                event.tell(self._report_now(task))
                over = None if self._memory is None else self._memory.sample()
                if over is not None:
                    return ChainOutcome(OutcomeKind.FAILED, over, task.frontier())
                continue
            self._threads.answered(event)
            for command in task.handle(event):
                if isinstance(command, EndChain):
                    return command.outcome
                self._order(command)
            self._threads.start_items()

    async def _end(self, task: ChainTask, outcome: ChainOutcome) -> ChainOutcome:
        """Close everything in a thread; the loop goes on to answer how the chain is."""
        self._closing_since_ms = self._clock.moment().now_ms
        closing = asyncio.ensure_future(asyncio.to_thread(self._close, outcome))
        closing.add_done_callback(lambda _: self._inbox.wake())
        while not closing.done():
            self._answer_questions(self._report_now(task))
            await self._inbox.wait(None)
        return closing.result()

    def _wait_s(self, task: ChainTask) -> float | None:
        now_ms = self._clock.moment().now_ms
        watched = self._times_out and self._threads.busy
        overdue_ms = MonotonicMs(now_ms + OVERDUE_CHECK_MS) if watched else None
        due_ms = deadline(task.next_deadline_ms(), overdue_ms)
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

    def _order(self, command: ChainCommand) -> None:
        match command:
            case Emit():
                assert self._exchange is not None
                self._exchange.send(command.channel, command.envelope)
            case GrantCredit():
                assert self._exchange is not None
                self._exchange.grant(command.channel, command.taken_upto, command.settled_upto)
            case ReportSoon():
                assert self._task is not None
                if self._push is not None:
                    self._push(self._report_now(self._task))
            case EndChain():
                raise AssertionError("the loop itself takes the end")
            case _:
                if self._usage_at_start is None:
                    self._usage_at_start = process_usage()
                self._threads.order(command)

    # --- in threads ----------------------------------------------------------------------------

    def _perform(self, request: Request) -> None:
        """Do a request's work. In the thread of its lane."""
        try:
            with nullcontext() if self._throttle is None else self._throttle.work(request):
                event = self._work.perform(request)
        except BaseException as error:  # noqa: BLE001 - a lane's thread must answer, or all waits
            failure = ComponentError(f"chain '{self._plan.chain}': {type(error).__name__}: {error}")
            event = RequestFailed(self._clock.moment(), request.token, failure)
        self._inbox.answered(event)
        self._work.follow_up(request)

    def _close(self, outcome: ChainOutcome) -> ChainOutcome:
        """Join the lanes, close the components, then the channels; blocks."""
        if self._throttle is not None:
            self._throttle.close()
        if self._objects is not None and outcome.kind not in _FLUSHED:
            self._objects.close()  # a lane may wait for a store that does not answer
        if not self._threads.close(0.0 if self.hung else self._teardown_timeout_s):
            self.hung = True
        outcome = with_close_errors(outcome, self._close_components(outcome.kind))
        if self._objects is not None and outcome.kind in _FLUSHED:
            self._objects.close()
        if self._exchange is None:
            return outcome
        flush = outcome.kind in _FLUSHED and not self.hung
        try:
            self._exchange.close(flush=flush, timeout_s=self._teardown_timeout_s)
        except ChannelError as error:
            outcome = with_close_errors(outcome, [error])
        self.hung = self.hung or self._exchange.hung
        return outcome

    def _close_components(self, kind: OutcomeKind) -> list[Exception]:
        """The errors. A good end takes its time; after any other, what does not close is left."""
        if kind in _FLUSHED and not self.hung:
            return self._work.close()
        errors: list[Exception] = []
        closing = threading.Thread(target=lambda: errors.extend(self._work.close()), daemon=True)
        closing.start()
        closing.join(self._teardown_timeout_s)
        self.hung = self.hung or closing.is_alive()
        return errors

    # --- reports -------------------------------------------------------------------------------

    def _answer_questions(self, report: ChainReport | None) -> None:
        """Called by the loop and, at the end, by those who ask; the mailbox has one taker."""
        assert report is not None
        with self._answering:
            for wanted in self._inbox.questions():
                wanted.tell(report)

    def _report_now(self, task: ChainTask) -> ChainReport:
        moment = self._clock.moment()
        report = task.report(moment)
        held_bytes = report.statistics.held_bytes + self._inbox.held_bytes
        self._reports += 1
        return replace(
            report,
            statistics=replace(report.statistics, held_bytes=held_bytes),
            usage=self._usage(),
            waits=self._waits(report),
            number=self._reports,
        )

    def _waits(self, report: ChainReport) -> tuple[Wait, ...]:
        """What stalls (E5): in the machine while it runs, afterwards in closing."""
        since_ms = self._closing_since_ms
        if since_ms is None:
            return (*report.waits, *throttled(self._throttle))
        waited_ms = report.at.now_ms - since_ms
        if waited_ms < STALL_TIMEOUT_MS or self._last_report is not None:
            return ()
        return (Wait("the end of the chain", "its components are being closed", waited_ms),)

    def _usage(self) -> ChainUsage:
        """CPU since the first request, peak memory of the process, refused peers."""
        if self._usage_at_end is not None:
            return self._usage_at_end
        now, start = process_usage(), self._usage_at_start
        cpu_ms = 0 if start is None else now.cpu_ms - start.cpu_ms
        exchange = self._exchange
        refused = 0 if exchange is None else sum(exchange.statistics().refused.values())
        throttled_ms = 0 if self._throttle is None else self._throttle.waited_ms
        usage = replace(
            now,
            cpu_ms=cpu_ms,
            refused_peers=refused,
            throttled_ms=throttled_ms,
            busy_ms=self._threads.busy_ms,
        )
        objects = self._objects
        if objects is None:
            return usage
        fetched, reused = objects.fetched_bytes, objects.reused_bytes
        return replace(usage, fetched_bytes=fetched, reused_bytes=reused)


def _counted(objects: "StoreObjects", kept: "KeptObjects | None") -> "CountedObjects":
    from arkflow_ray.checkpoint.kept_objects import CountedObjects

    return CountedObjects(objects, kept)


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


__all__ = ["ChainHost", "MakeExchange", "process_usage"]
