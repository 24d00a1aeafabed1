"""The way from chains of a simulated run to its coordinator: reports that come late or never."""

from collections import Counter
from typing import Final

from arkflow_kernel.ids import CheckpointId, Generation
from arkflow_kernel.protocol import ChainReport
from arkflow_kernel.testing.dice import Dice

STRAYS_MAX: Final = 12
"""Reports that are kept back until they are old."""

REORDERED_MAX: Final = 4
"""So many reports may overtake one."""


class ReportWire:
    """Reports under way. `waiting` are new; strays come a second time, when they are old."""

    def __init__(self, dice: Dice, probes: "Counter[str]") -> None:
        self._dice, self._probes = dice, probes
        self.waiting: list[ChainReport] = []
        self._strays: list[ChainReport] = []

    def next(self) -> ChainReport | None:
        """Any of those on the way: late, in another order, twice, or (None) never."""
        index = self._dice.below(min(len(self.waiting), REORDERED_MAX))
        report = self.waiting[index]
        if self._dice.one_in(8):
            self._probes["report repeated"] += 1
        else:
            del self.waiting[index]
            if self._dice.one_in(8):
                self._probes["report lost"] += 1
                return None
        if report.answer is not None:
            self._strays = [*self._strays, report][-STRAYS_MAX:]
        self._probes["report out of order"] += index > 0
        return report

    def stray_due(self, generation: Generation, round_id: CheckpointId) -> bool:
        """Whether one comes now: most likely where it is worst, from an attempt before, but as an
        answer to a round of the number that is open.
        """
        if not self._strays:
            return False
        for index, report in enumerate(self._strays):
            answer = report.answer
            assert answer is not None
            if report.generation != generation and answer.checkpoint == round_id:
                self._strays[0], self._strays[index] = report, self._strays[0]
                return True
        return self._dice.one_in(60)

    def next_stray(self, generation: Generation) -> ChainReport:
        """A report that was under way for long."""
        report = self._strays.pop(0)
        self._probes["report of an old generation"] += report.generation != generation
        return report


__all__ = ["ReportWire"]
