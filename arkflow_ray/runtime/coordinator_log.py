"""The log as a coordinator's loop uses it: a thread behind it, answers in front of it (M1, D6).

It is opened by the first command. The answer to a claim is held back while chains of another
coordinator, whose end could not be confirmed, may still write.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from arkflow_kernel.checkpoint_ports import CheckpointLog
from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.log_work import LogCommand
from arkflow_kernel.ports import Clock
from arkflow_kernel.protocol import Claimed, CoordinatorEvent
from arkflow_ray.runtime.log_thread import LogThread


class CoordinatorLog:
    """Of one coordinator; everything but `open_log` is called on its loop.

    `answer` takes what the log says, `fault` what no rule expects.
    """

    def __init__(
        self,
        open_log: Callable[[], CheckpointLog],
        clock: Clock,
        answer: Callable[[CoordinatorEvent], None],
        fault: Callable[[BaseException], None],
    ) -> None:
        self._open = open_log
        self._clock = clock
        self._answer = answer
        self._fault = fault
        self._held_until_ms = MonotonicMs(0)
        self._thread: LogThread | None = None

    def hold(self, hold_ms: int) -> None:
        """Answer no claim for so long."""
        self._held_until_ms = MonotonicMs(self._clock.moment().now_ms + hold_ms)

    def put(self, command: LogCommand) -> None:
        """Queue a command; its answer, if it has one, comes as an event."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = LogThread(
                self._open,
                self._clock,
                lambda event: _call(loop, self.answered, event),
                lambda error: _call(loop, self._fault, error),
            )
        self._thread.put(command)

    def answered(self, event: CoordinatorEvent) -> None:
        """The log said something."""
        hold_ms = self._held_until_ms - self._clock.moment().now_ms
        if isinstance(event, Claimed) and hold_ms > 0:
            asyncio.get_running_loop().call_later(hold_ms / 1000, self._tell, event)
        else:
            self._answer(event)

    def _tell(self, event: Claimed) -> None:
        self._answer(replace(event, at=self._clock.moment()))

    def close(self) -> None:
        """Let a call that blocks end; nothing is answered any more."""
        if self._thread is not None:
            self._thread.close()


def _call(
    loop: asyncio.AbstractEventLoop,
    take: Callable[[Any], None],
    value: CoordinatorEvent | BaseException,
) -> None:
    """Hand a value to the loop; it may have ended, and then nobody wants it."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(take, value)


__all__ = ["CoordinatorLog"]
