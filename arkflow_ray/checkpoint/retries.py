"""Calls of a store, tried again with back-off while their trouble may pass (M4)."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from arkflow_kernel.errors import StoreError, UnknownOutcomeError
from arkflow_ray.checkpoint.troubles import Trouble, advice, judge, told

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is tried. Times in seconds.

    `call_s` is for one try of one request, `bytes_per_s` what a slow way carries at least: a
    request gets as much longer as its bytes need.
    """

    tries: int = 6
    first_s: float = 0.1
    longest_s: float = 5.0
    connect_s: float = 5.0
    call_s: float = 20.0
    bytes_per_s: int = 1 << 20

    def before(self, attempt: int) -> float:
        """The wait before try `attempt` + 1, without chance."""
        return min(self.longest_s, self.first_s * 2.0 ** min(attempt - 1, 30))

    def of_bytes(self, size: int) -> float:
        """How long one request with so many bytes may take."""
        return self.call_s + size / self.bytes_per_s


PATIENCE = Patience()
"""Some 6 s of waits in all: a round tries again by itself, and has its own deadline."""


class Retrier:
    """Tries calls of one store until they pass. Thread-safe.

    `place` is the URL that errors show. After `close` whatever waits ends with `StoreError`.
    """

    def __init__(self, place: str, patience: Patience = PATIENCE) -> None:
        self.place, self.patience = place, patience
        self._closed = threading.Event()

    def close(self) -> None:
        """Let every wait end with `StoreError`, and every later one."""
        self._closed.set()

    def run(self, doing: str, call: Callable[[], T]) -> T:
        """The result of a call that may be done more than once. `StoreError` if it never passes.

        `doing` completes "cannot ...": "read log/1.json".
        """
        return self._repeated(doing, call)

    def create(self, doing: str, call: Callable[[], bool]) -> bool:
        """Whether an exclusive create made the file; False: it was there before (M1).

        Only what did nothing, by the store's word, is tried again. `UnknownOutcomeError` if a try
        may have made the file.
        """
        return self._repeated(doing, call, exclusive=True)

    def _repeated(self, doing: str, call: Callable[[], T], *, exclusive: bool = False) -> T:
        """`exclusive`: a try that may have been done is not followed by another."""
        attempt = 1
        while True:
            try:
                return call()
            except StoreError:
                raise
            except Exception as error:  # each client of a store has errors of its own
                trouble = judge(error)
                if exclusive and trouble is Trouble.UNKNOWN:
                    raise self.unknown(doing, told(error)) from error
                if trouble is Trouble.REFUSED or attempt >= self.patience.tries:
                    raise self.failure(doing, error, attempt) from error
            self.pause(attempt)
            attempt += 1

    def pause(self, attempt: int) -> None:
        """Wait before try number `attempt` + 1; `StoreError` once closed."""
        wait_s = self.patience.before(attempt) * random.uniform(0.5, 1.0)
        if self._closed.wait(wait_s):
            raise StoreError(f"checkpoint store {self.place}: closed while a call was tried again")

    def failure(self, doing: str, error: BaseException, attempts: int = 1) -> StoreError:
        """A `StoreError` for what a client raised."""
        tried = f", tried {attempts} times" if attempts > 1 else ""
        return StoreError(
            f"checkpoint store {self.place}: cannot {doing}: {told(error)}{tried}; {advice(error)}"
        )

    def unknown(self, doing: str, why: str) -> UnknownOutcomeError:
        """An `UnknownOutcomeError` for a write that may have been done."""
        return UnknownOutcomeError(
            f"checkpoint store {self.place}: it is not known whether it did {doing}: {why}; "
            "what is there is read before it is tried again"
        )


__all__ = ["PATIENCE", "Patience", "Retrier"]
