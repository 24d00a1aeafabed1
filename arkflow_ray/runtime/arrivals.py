"""How processes of a job come up: not all at once, and each with a limit that knows of the others.

A start is work for one core. More of them at a time than there are cores end no sooner, and
processes that are up already would be too slow to answer in time.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, TypeVar

T = TypeVar("T")

STARTS_AT_ONCE_MIN: Final = 8


class Arrivals:
    """Of one coordinator, for at most `at_once` processes at a time. Used in its loop only."""

    def __init__(self, at_once: int = STARTS_AT_ONCE_MIN) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._last_s = -float("inf")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The time in which one more process may come up. Waits as long as those before it take,
        each of which has a limit.
        """
        async with self._places:
            yield

    async def first_answer(self, call: Awaitable[T], limit_s: float) -> T:
        """The first answer of a new process. `TimeoutError` if nothing came up for `limit_s`.

        The call is cancelled then.
        """
        answer = asyncio.ensure_future(call)
        asked_s = monotonic()
        try:
            while not answer.done():
                left_s = max(asked_s, self._last_s) + limit_s - monotonic()
                if left_s <= 0:
                    raise TimeoutError
                await asyncio.wait([answer], timeout=left_s)
        finally:
            if not answer.done():
                answer.cancel()
        found = answer.result()
        self._last_s = monotonic()
        return found


def starts_at_once(nodes: int) -> int:
    """For a cluster of so many nodes like this one."""
    return max(STARTS_AT_ONCE_MIN, nodes * (os.cpu_count() or 1))


__all__ = ["STARTS_AT_ONCE_MIN", "Arrivals", "starts_at_once"]
