"""What an explanation says of event time and windows (C7): as data, and in sentences."""

from dataclasses import dataclass
from typing import Any

from arkflow_kernel.plan import AggregatePlan, LatePolicy, OperatorPlan, TimePlan, WindowKind
from arkflow_kernel.topology import Topology


@dataclass(frozen=True, slots=True)
class ExplainedTime:
    """The event time of a source (W1-W4). None is off."""

    timestamp_field: str
    bound_ms: int
    idle_timeout_ms: int | None
    max_future_skew_ms: int | None
    max_drift_ms: int | None
    split_order: str


@dataclass(frozen=True, slots=True)
class ExplainedAggregate:
    """`function` over `field`, as the column `name`."""

    function: str
    field: str | None
    name: str


@dataclass(frozen=True, slots=True)
class ExplainedWindow:
    """A window (N2, N3, W6). What its kind does not have is None; `late_route` under `route`.

    `time` is `event` or `processing`. A window that `releases_rows` has no aggregates.
    """

    kind: str
    size_ms: int | None
    slide_ms: int | None
    gap_ms: int | None
    offset_ms: int
    unit: str | None
    timezone: str | None
    time: str
    timestamp_field: str
    key_fields: list[str]
    aggregates: list[ExplainedAggregate]
    releases_rows: bool
    late_policy: str | None
    late_route: str | None
    allowed_lateness_ms: int
    max_buffered_keys: int | None
    on_overflow: str


def explained_time(plan: TimePlan) -> ExplainedTime:
    """Of a source."""
    return ExplainedTime(
        timestamp_field=plan.timestamp_field,
        bound_ms=plan.bound_ms,
        idle_timeout_ms=plan.idle_timeout_ms,
        max_future_skew_ms=plan.max_future_skew_ms,
        max_drift_ms=plan.max_drift_ms,
        split_order="time" if plan.ordered_splits else "none",
    )


def explained_window(topology: Topology, plan: OperatorPlan) -> ExplainedWindow | None:
    """Of an operator, if it is a window."""
    window = plan.window
    if window is None:
        return None
    return ExplainedWindow(
        kind=window.kind.value,
        size_ms=window.size_ms or None,
        slide_ms=window.slide_ms if window.kind is WindowKind.SLIDING else None,
        gap_ms=window.gap_ms or None,
        offset_ms=window.offset_ms,
        unit=window.unit or None,
        timezone=window.timezone or None,
        time="event" if window.event_time else "processing",
        timestamp_field=window.timestamp_field,
        key_fields=[] if plan.state is None else list(plan.state.key_fields),
        aggregates=[_aggregate(each) for each in window.aggregates],
        releases_rows=window.releases_rows,
        late_policy=window.late.value if window.event_time else None,
        late_route=dict(topology.late).get(plan.operator)
        if window.late is LatePolicy.ROUTE
        else None,
        allowed_lateness_ms=window.allowed_lateness_ms,
        max_buffered_keys=window.max_buffered_keys,
        on_overflow="evict_oldest" if window.evicts_oldest else "fail",
    )


def _aggregate(plan: AggregatePlan) -> ExplainedAggregate:
    return ExplainedAggregate(plan.function, plan.field, plan.name)


def lateness(topology: Topology) -> list[str]:
    """Where each source's late rows are judged, and what a row loses on the way (W8)."""
    told = []
    for name, spec in topology.sources.items():
        if spec.time.mode == "processing_time":
            told.append(f"{name}: processing time: nothing is late")
            continue
        judges = topology.judges(name)
        if not judges:
            told.append(
                f"{name}: event time, and no window on it and no join behind it: nothing is late"
            )
        for judge in judges:
            text = f"{name}: judged row by row at {judge}, policy {spec.time.late_event_policy}"
            rebuilt = _maps_between(topology, name, judge)
            lost = f"; by its watermark alone where {', '.join(rebuilt)} rebuilds the columns"
            told.append(text + (lost if rebuilt else ""))
    return told


def _maps_between(topology: Topology, source: str, judge: str) -> list[str]:
    links = [(edge.from_, edge.to) for edge in topology.main]
    ahead = topology.reach([source], links)
    behind = topology.reach([judge], [(b, a) for a, b in links])
    both = (ahead & behind) - {source, judge}
    return [name for name in topology.operators if name in both]


def time_text(time: dict[str, Any]) -> str:
    """An `ExplainedTime` that was made a dict."""
    told = [f"event time {time['timestamp_field']}"]
    told.append(
        f"at most {time['bound_ms']:,} ms out of order" if time["bound_ms"] else "always rising"
    )
    idle = time["idle_timeout_ms"]
    told.append("never idle" if idle is None else f"idle after {idle:,} ms without a row")
    if time["split_order"] == "time":
        told.append("one split after the other in time")
    if time["max_future_skew_ms"] is not None:
        ahead = f"{time['max_future_skew_ms']:,} ms ahead of the clock"
        told.append(f"rows more than {ahead} move no watermark")
    if time["max_drift_ms"] is not None:
        told.append(f"not read while {time['max_drift_ms']:,} ms ahead of the slowest source")
    return ", ".join(told)


def window_texts(window: dict[str, Any]) -> list[str]:
    """An `ExplainedWindow` that was made a dict: what it is, what leaves it, what is late."""
    keys = ", ".join(window["key_fields"])
    over = f"by {keys}" if keys else "over all rows"
    shape = shape_text(window)
    if window["offset_ms"]:
        shape += f" from {window['offset_ms']:+,} ms on"
    clock = f"event time {window['timestamp_field']}"
    if window["time"] == "processing":
        clock = "the wall clock at which rows arrive"
    told = [f"{shape} {over}, on {clock}", _made(window)]
    if window["late_policy"] is not None:
        told.append(f"late rows: {late_text(window)}")
    if window["max_buffered_keys"] is not None:
        kept = window["max_buffered_keys"]
        then = "then the oldest go" if window["on_overflow"] == "evict_oldest" else "more fail"
        told.append(f"at most {kept:,} keys, {then}")
    return told


def shape_text(window: dict[str, Any]) -> str:
    """How rows fall into the windows, in a few words."""
    if window["unit"] is not None:
        return f"windows of a {window['unit']} in {window['timezone']}"
    if window["gap_ms"] is not None:
        return f"sessions with gaps up to {window['gap_ms']:,} ms"
    size = f"windows of {window['size_ms']:,} ms"
    return size if window["slide_ms"] is None else f"{size} every {window['slide_ms']:,} ms"


def _made(window: dict[str, Any]) -> str:
    if window["releases_rows"]:
        return "releases the rows of each window together"
    return f"makes {', '.join(called(each) for each in window['aggregates'])}"


def called(aggregate: dict[str, Any]) -> str:
    """An `ExplainedAggregate` that was made a dict."""
    what = f"{aggregate['function']}({aggregate['field'] or '*'})"
    return f"{what} as {aggregate['name']}"


def late_text(window: dict[str, Any]) -> str:
    """What becomes of rows that are late for a window or a join."""
    if window["late_policy"] == LatePolicy.ROUTE.value:
        return f"go to {window['late_route']}"
    if window["late_policy"] == LatePolicy.UPDATE.value:
        until = f"{window['allowed_lateness_ms']:,} ms after its end"
        return f"correct their window until {until}, dropped and counted from then on"
    return "dropped and counted"


__all__ = [
    "ExplainedAggregate",
    "ExplainedTime",
    "ExplainedWindow",
    "called",
    "explained_time",
    "explained_window",
    "late_text",
    "lateness",
    "shape_text",
    "time_text",
    "window_texts",
]
