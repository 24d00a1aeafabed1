"""Lets the inline driver enforce operators' time-outs: see `arkflow_kernel.inline.Caller`."""

import queue
import threading
import weakref
from collections.abc import Callable

from arkflow_kernel.protocol import ChainEvent

CHECK_S = 0.1

_Work = Callable[[], ChainEvent]
_Answer = ChainEvent | BaseException


class ThreadCaller:
    """Calls work in one helper thread and waits, looking for an overdue operator meanwhile.

    A thread that hangs in user code is given up; the next call gets a new one. All are daemons,
    and end when their caller is gone and their work has returned.
    """

    def __init__(self) -> None:
        self._helper: _Helper | None = None

    def __call__(self, work: _Work, overdue: Callable[[], ChainEvent | None]) -> ChainEvent:
        if self._helper is None:
            self._helper = _Helper()
        self._helper.begin(work)
        while (answer := self._helper.answer(CHECK_S)) is None:
            late = overdue()
            if late is not None:
                self._helper = None
                return late
        if isinstance(answer, BaseException):
            raise answer
        return answer


class _Helper:
    """A thread that does one piece of work after the other, until this object is gone."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        weakref.finalize(self, self._work.put, None)
        threading.Thread(
            target=_serve, args=(self._work, self._answers), name="inline-lane", daemon=True
        ).start()

    def begin(self, work: _Work) -> None:
        self._work.put(work)

    def answer(self, timeout_s: float) -> _Answer | None:
        """What came of the work; None if it is not over yet."""
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None


def _serve(
    waiting: "queue.SimpleQueue[_Work | None]", answers: "queue.SimpleQueue[_Answer]"
) -> None:
    while (work := waiting.get()) is not None:
        try:
            answers.put(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            answers.put(error)
        del work


__all__ = ["ThreadCaller"]
