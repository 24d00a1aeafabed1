"""Seeded choices for tests: the same seed gives the same choices on every Python and machine.

Not for statistics and not for secrets. The generator is SplitMix64. Its streams are one sequence
with different beginnings, so a seed is mixed first: neighbours would run the same way, one behind
the other.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = 2**64 - 1


def _mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Dice:
    """A stream of choices that its seed alone decides."""

    def __init__(self, seed: int) -> None:
        self._state = _mixed((seed * 0x9E3779B97F4A7C15 + 0x1234_5678_9ABC_DEF1) & _MASK)

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound - 1`; `bound` is at least 1."""
        assert bound >= 1
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return _mixed(self._state) % bound

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def one_in(self, bound: int) -> bool:
        """True once in `bound` times."""
        return self.below(bound) == 0

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, all equally likely."""
        return choices[self.below(len(choices))]


__all__ = ["Dice"]
