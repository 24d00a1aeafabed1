"""A process of a simulated job, as far as the store and its killers know it.

What it is at work on is named, so that faults can strike before and after each part of it:
`claim: before create`, `upload: after put`, `publish: end`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arkflow_kernel.ids import Generation
from arkflow_kernel.testing.sim_store import Interrupted, Trouble


class CutProcess:
    """A coordinator's process or a chain's. Once `dead`, whatever it is at work on breaks off.

    `trouble(process, verb)` says what becomes of its next request to the store, `passed(process,
    point)` may kill it, `others()` lets the rest of the world act.
    """

    def __init__(
        self,
        trouble: Callable[["CutProcess", str], Trouble],
        passed: Callable[["CutProcess", str], None],
        others: Callable[[], None],
    ) -> None:
        self._trouble, self._passed, self._others = trouble, passed, others
        self.generation = Generation(0)
        self.dead = False
        self.kill: Callable[[], None] = self._die
        self._doing: list[str] = []

    def _die(self) -> None:
        self.dead = True

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """It is at work on something. Calls of a process end in the opposite order."""
        self._doing.append(what)
        try:
            yield
        finally:
            ended = self._doing.pop()
            assert ended == what, "calls of a process end in the opposite order"

    @property
    def doing(self) -> str:
        """What it is at work on."""
        return self._doing[-1] if self._doing else "idle"

    def trouble(self, verb: str) -> Trouble:
        """What becomes of its next request to the store."""
        return self._trouble(self, verb)

    def passed(self, point: str) -> None:
        """It comes to a point at which it may be killed. Raises `Interrupted` if it is dead."""
        self._passed(self, f"{self.doing}: {point}")
        if self.dead:
            raise Interrupted

    def reached(self, point: str) -> None:
        """The same, and others act meanwhile."""
        doing = self.doing
        self.passed(point)
        self._others()
        if self.dead:
            raise Interrupted
        if self._doing and self._doing[-1] != doing:
            raise AssertionError(f"{doing} went on inside of {self.doing}")


__all__ = ["CutProcess"]
