"""What operators that the kernel runs itself do: windows, and what is kept per key without them.

A part of the plan of a job (`plan.py`), plain data as all of it.
"""

from dataclasses import dataclass
from enum import Enum


class LatePolicy(Enum):
    """What becomes of a row whose window has passed (W6)."""

    DROP = "drop"
    ROUTE = "route"
    UPDATE = "update"


class WindowKind(Enum):
    """How rows fall into windows (N2). `CALENDAR`: days, weeks or months of a time zone."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"
    CALENDAR = "calendar"


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """One aggregate of a window: `function` over `field`, as column `name` (N3).

    Functions: count, sum, min, max, avg, stddev, first, last, count_distinct. Without a field,
    `count` counts rows.
    """

    function: str
    field: str | None
    name: str


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window operator (N1-N6); its keys are in the operator's `StatePlan`, () for all rows.

    `size_ms` and `slide_ms` of tumbling (both alike) and sliding windows, `gap_ms` of sessions,
    `unit` ("day", "week", "month") and `timezone` (IANA) of calendar windows; what a kind does not
    have is 0 or "". `event_time` False: rows count by the wall clock at which they arrive, and
    windows fire by it. `plain` gives ArkFlow's columns, with the key as text in `key`; else the
    keys leave under their own names. `releases_rows`: the rows themselves leave, not aggregates.
    `late` and `allowed_lateness_ms`: see W6; lateness is 0 unless the policy is UPDATE.
    """

    kind: WindowKind
    timestamp_field: str
    size_ms: int = 0
    slide_ms: int = 0
    gap_ms: int = 0
    offset_ms: int = 0
    unit: str = ""
    timezone: str = ""
    aggregates: tuple[AggregatePlan, ...] = ()
    plain: bool = True
    event_time: bool = True
    late: LatePolicy = LatePolicy.DROP
    allowed_lateness_ms: int = 0
    releases_rows: bool = False
    null_on_overflow: bool = False
    max_buffered_keys: int | None = None
    evicts_oldest: bool = False


@dataclass(frozen=True, slots=True)
class ContinuousPlan:
    """A continuous aggregate (J5): per key the aggregates of all rows so far; its keys are in the
    operator's `StatePlan`.

    Keys that a batch changed leave after it, or after `emit_interval_ms` by the wall clock together
    with the others that changed since. `timestamp_field` is the event time of rows, for first and
    last; None without them.
    """

    aggregates: tuple[AggregatePlan, ...]
    timestamp_field: str | None = None
    emit_interval_ms: int | None = None
    null_on_overflow: bool = False

    @property
    def timed(self) -> bool:
        """It acts on time (`ports.TimedOperator`)."""
        return self.emit_interval_ms is not None


@dataclass(frozen=True, slots=True)
class DeduplicatePlan:
    """The first row of each key passes, the others do not (J6)."""

    @property
    def timed(self) -> bool:
        """It does not act on time."""
        return False


@dataclass(frozen=True, slots=True)
class TopNPlan:
    """Per key the `count` rows with the greatest value of the column `by`, or the least (J7).

    They leave with their rank, from 1 on, in the column `rank_field`.
    """

    by: str
    count: int
    descending: bool = True
    rank_field: str = "rank"

    @property
    def timed(self) -> bool:
        """It does not act on time."""
        return False


@dataclass(frozen=True, slots=True)
class JoinSidePlan:
    """One side of a join: the edge by which its rows come, the columns of their key and their time.

    `outer`: its rows leave also if they match nothing.
    """

    edge: str
    key: str
    timestamp_field: str
    outer: bool = False


@dataclass(frozen=True, slots=True)
class VersionsPlan:
    """The right side of a temporal join (J9). A version holds until the next one of its key, and
    for `ttl_ms` at most; None: for ever.
    """

    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """An interval join (J1, J3): rows of equal keys whose times are at most `window_ms` apart; or,
    with `versions`, a temporal one (J9), whose `window_ms` and `ttl_ms` are 0.

    Rows are kept `ttl_ms` longer than any row that is within its bound needs them. A key has at
    most `max_per_key` rows of a side: more fail, or the oldest go (`evicts_oldest`). Of a temporal
    join that is so of rows that wait.
    """

    left: JoinSidePlan
    right: JoinSidePlan
    window_ms: int
    ttl_ms: int = 0
    max_per_key: int = 10_000
    evicts_oldest: bool = False
    late: LatePolicy = LatePolicy.DROP
    versions: VersionsPlan | None = None

    @property
    def smaller(self) -> str:
        """What a user may do so that it keeps less."""
        if self.versions is None:
            return "make `window_ms` or `ttl_ms` smaller"
        return "make `out_of_orderness_ms` of its sources or `version_ttl_ms` smaller"

    @property
    def hold_ms(self) -> int:
        """How far the watermark that leaves is behind the one that came in."""
        return self.window_ms + self.ttl_ms


KeyedPlan = ContinuousPlan | DeduplicatePlan | TopNPlan
"""What an operator does that keeps something per key without an end."""


__all__ = [
    "AggregatePlan",
    "ContinuousPlan",
    "DeduplicatePlan",
    "JoinPlan",
    "JoinSidePlan",
    "KeyedPlan",
    "LatePolicy",
    "TopNPlan",
    "VersionsPlan",
    "WindowKind",
    "WindowPlan",
]
