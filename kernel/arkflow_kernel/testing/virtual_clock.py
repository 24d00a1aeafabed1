"""A clock that moves only when it is told to, or when somebody waits on it.

For the inline driver and the simulation: hours of timers pass in no time, and always alike.
"""

from arkflow_kernel.ids import MonotonicMs, WallMs
from arkflow_kernel.ports import Moment

WALL_START_MS = 1_700_000_000_000
"""Wall time at which a virtual clock starts: an arbitrary day in 2023."""


class VirtualClock:
    """A `Clock`. Wall time moves along with monotonic time unless `shift_wall` jumps it."""

    def __init__(self, now_ms: int = 0, wall_ms: int = WALL_START_MS) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._awake = False

    def moment(self) -> Moment:
        """Both clocks, now."""
        return Moment(MonotonicMs(self._now_ms), WallMs(self._wall_ms))

    @property
    def now_ms(self) -> int:
        """The monotonic clock, now."""
        return self._now_ms

    def advance(self, by_ms: int) -> Moment:
        """Move both clocks forward; the new reading."""
        assert by_ms >= 0, "monotonic time never goes back"
        self._now_ms += by_ms
        self._wall_ms += by_ms
        return self.moment()

    def shift_wall(self, by_ms: int) -> None:
        """Let the wall clock alone jump, also backwards: NTP, or a careless administrator."""
        self._wall_ms += by_ms

    def wait_until(self, deadline_ms: MonotonicMs | None) -> None:
        """Jump to the deadline, unless somebody called `wake`. A wait without end is a mistake."""
        if self._awake:
            self._awake = False
            return
        assert deadline_ms is not None, "waits for ever: nobody will wake it in virtual time"
        self.advance(max(0, deadline_ms - self._now_ms))

    def wake(self) -> None:
        """Let the next wait return at once."""
        self._awake = True


__all__ = ["WALL_START_MS", "VirtualClock"]
