"""What a user is told of event time while a job runs: that some clock goes wrong (W4)."""

from collections.abc import Sequence
from typing import Final

from arkflow_kernel.durations import age_text
from arkflow_kernel.ids import WallMs
from arkflow_ray.observability.job_event import JobEvent
from arkflow_ray.observability.time_figures import TimeFigures

AHEAD_MS: Final = 60_000
"""Clocks of machines differ by less than this; rows that are further ahead are wrong."""


class TimeStory:
    """Of one job. A watermark ahead of the wall clock is told once a run."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._told = False

    def news(self, times: Sequence[TimeFigures], wall_ms: WallMs) -> list[JobEvent]:
        """What is new in these figures, at this moment of the wall clock."""
        for each in times:
            if self._told or each.watermark is None or each.watermark <= wall_ms + AHEAD_MS:
                continue
            self._told = True
            return [self._ahead(each, each.watermark - wall_ms)]
        return []

    def _ahead(self, chain: TimeFigures, ahead_ms: int) -> JobEvent:
        text = (
            f"job {self._job}: chain '{chain.chain}' has a watermark {age_text(ahead_ms)} ahead "
            "of the clock: rows with a right time may be late because of one with a wrong one; "
            "`watermark.max_future_skew_ms` keeps such rows from moving it"
        )
        fields: dict[str, object] = {
            "job": self._job,
            "chain": str(chain.chain),
            "watermark": chain.watermark,
            "ahead_ms": ahead_ms,
        }
        return JobEvent(text, True, fields)


__all__ = ["AHEAD_MS", "TimeStory"]
