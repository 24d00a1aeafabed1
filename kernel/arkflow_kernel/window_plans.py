"""Plans of event time and of windows (W1, W6, N2-N4): what validated settings mean.

What a source says about late rows is planned at the windows that judge them first.
"""

from arkflow_kernel.job import OperatorSpec, TimeSpec
from arkflow_kernel.plan import AggregatePlan, LatePolicy, TimePlan, WindowKind, WindowPlan
from arkflow_kernel.topology import Topology
from arkflow_kernel.window_config import (
    VALUE_FUNCTIONS,
    AggregateConfig,
    WindowConfig,
    aggregate_name,
)


def time_plan(topology: Topology, source: str) -> TimePlan | None:
    """The event time of a source; None in processing time."""
    time = topology.sources[source].time
    if time.mode != "event_time":
        return None
    assert time.timestamp_field is not None, "rule 12 of C6"
    assert time.watermark is not None, "rule 12 of C6"
    watermark = time.watermark
    bounded = watermark.strategy == "bounded_out_of_orderness"
    return TimePlan(
        timestamp_field=time.timestamp_field,
        bound_ms=watermark.out_of_orderness_ms if bounded else 0,
        idle_timeout_ms=watermark.idle_timeout_ms,
        max_future_skew_ms=watermark.max_future_skew_ms,
        max_drift_ms=watermark.max_drift_ms,
        ordered_splits=watermark.split_order == "time",
        stamps=bool(topology.judges(source)),
    )


def window_plan(topology: Topology, spec: OperatorSpec) -> WindowPlan:
    """The window of an operator of that kind."""
    config = WindowConfig.model_validate(spec.config)
    size = config.size_ms or 0
    late, lateness = _lateness(topology, spec.id, config)
    return WindowPlan(
        kind=WindowKind.CALENDAR if config.unit else WindowKind(config.kind),
        timestamp_field=config.timestamp_field,
        size_ms=size,
        slide_ms=size if config.kind == "tumbling" else config.slide_ms or 0,
        gap_ms=config.gap_ms or 0,
        offset_ms=config.offset_ms,
        unit=config.unit or "",
        timezone=(config.timezone or "UTC") if config.unit else "",
        aggregates=_aggregates(config),
        plain=config.aggregates is None and config.key_fields is None,
        event_time=config.trigger == "watermark",
        late=late,
        allowed_lateness_ms=lateness,
        releases_rows=config.legacy_payload,
        null_on_overflow=config.overflow is None,
        max_buffered_keys=config.max_buffered_keys,
        evicts_oldest=config.on_overflow == "evict_oldest",
    )


def window_shape(window: WindowPlan) -> str:
    """What the state of a window means, for a person: another one's cannot be gone on with (M6).

    Rows that leave as they came know their times, so sizes may change.
    """
    clock = "event time" if window.event_time else "the wall clock"
    if window.releases_rows:
        what = "sessions" if window.kind is WindowKind.SESSION else "windows"
        return f"rows of {what} by {clock}"
    kept = ", ".join(_kept(each) for each in window.aggregates)
    bound = ", rows counted" if window.evicts_oldest else ""
    return f"{_windows(window)} by {clock}: {kept}{bound}"


def _windows(window: WindowPlan) -> str:
    match window.kind:
        case WindowKind.TUMBLING:
            text = f"tumbling windows of {window.size_ms:,} ms"
        case WindowKind.SLIDING:
            text = f"sliding windows of {window.size_ms:,} ms every {window.slide_ms:,} ms"
        case WindowKind.SESSION:
            text = f"sessions with gaps up to {window.gap_ms:,} ms"
        case WindowKind.CALENDAR:
            text = f"windows of a {window.unit} in {window.timezone}"
    return text if not window.offset_ms else f"{text} from {window.offset_ms:+,} ms on"


def _kept(aggregate: AggregatePlan) -> str:
    """Distinct values are kept under the name of their aggregate."""
    what = f"{aggregate.function}({aggregate.field or '*'})"
    return f"{what} as {aggregate.name}" if aggregate.function == "count_distinct" else what


def _aggregates(config: WindowConfig) -> tuple[AggregatePlan, ...]:
    """Those that the user lists, else ArkFlow's; none where the rows themselves leave."""
    if config.legacy_payload:
        return ()
    listed = config.aggregates
    if listed is None:
        field = config.value_fields[0] if config.value_fields else None
        functions = ("count", *(VALUE_FUNCTIONS if field else ()))
        return tuple(AggregatePlan(name, field, name) for name in functions)
    return tuple(_aggregate(each) for each in listed)


def _aggregate(config: AggregateConfig) -> AggregatePlan:
    return AggregatePlan(config.function, config.field, aggregate_name(config))


def _lateness(topology: Topology, window: str, config: WindowConfig) -> tuple[LatePolicy, int]:
    """The policy of the sources whose rows the window judges first, which agree on it (W6).

    A window behind a window has none of them and drops what is late: only corrections are.
    """
    times = [topology.sources[name].time for name in topology.judged_by(window)]
    if not times:
        return LatePolicy.DROP, 0
    policy = LatePolicy(times[0].late_event_policy)
    if policy is not LatePolicy.UPDATE:
        return policy, 0
    own = config.allowed_lateness_ms
    return policy, _given(times) if own is None else own


def _given(times: list[TimeSpec]) -> int:
    return max(time.allowed_lateness_ms for time in times)


__all__ = ["time_plan", "window_plan", "window_shape"]
