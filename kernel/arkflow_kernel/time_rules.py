"""Rules of event time: sources, and the windows and joins behind them (C.6 rule 12, W6, N7)."""

from collections.abc import Iterator
from typing import Any

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import TimeSpec
from arkflow_kernel.topology import Topology, on_event_time


def time_issues(topology: Topology) -> Iterator[Issue]:
    """Every mistake of the job's `time:` blocks and of the operators that depend on them."""
    for i, spec in enumerate(topology.job.sources):
        yield from _source(spec.operator_id, spec.time, f"sources[{i}].time")
    for i, operator in enumerate(topology.job.operators):
        if operator.kind == "join" or on_event_time(operator):
            yield from _agreement(topology, operator.id, f"operators[{i}]")
        if _is_window(topology, operator.id):
            yield from _window(topology, operator.id, operator.config, f"operators[{i}].config")


def _source(name: str, time: TimeSpec, path: str) -> Iterator[Issue]:
    if time.mode == "processing_time":
        if time.watermark is not None:
            text = f"source '{name}' has processing time, which has no watermark; remove"
            yield Issue(f"{path}.watermark", f"{text} `watermark` or set `mode: event_time`")
        yield from _without_effect(name, time, path)
        return
    if not time.timestamp_field:
        text = f"source '{name}' has event time and needs `timestamp_field`, the column that"
        yield Issue(f"{path}.timestamp_field", f"{text} holds it (int64 in ms, or a timestamp)")
    if time.watermark is None:
        text = f"source '{name}' has event time and needs `watermark`, for example"
        advice = "`watermark: {out_of_orderness_ms: 1000, idle_timeout_ms: 30000}`"
        yield Issue(f"{path}.watermark", f"{text} {advice}")
        return
    bound = time.watermark.out_of_orderness_ms
    if time.watermark.strategy == "monotonous" and bound > 0:
        text = f"`out_of_orderness_ms: {bound}` has no effect with `strategy: monotonous`"
        advice = "remove it, or choose `bounded_out_of_orderness`"
        yield Issue(f"{path}.watermark.out_of_orderness_ms", f"{text}; {advice}", warning=True)


def _without_effect(name: str, time: TimeSpec, path: str) -> Iterator[Issue]:
    """Keys that say something about event time, beside `mode: processing_time`."""
    given = time.model_fields_set - {"mode", "watermark"}
    for key in TimeSpec.model_fields:
        value = getattr(time, key)
        if key in given and value != TimeSpec.model_fields[key].default:
            text = f"`{key}` has no effect: source '{name}' has processing time, in which nothing"
            advice = "is late; remove it, or set `mode: event_time`"
            yield Issue(f"{path}.{key}", f"{text} {advice}", warning=True)


def _agreement(topology: Topology, operator: str, path: str) -> Iterator[Issue]:
    """Sources that feed one window or join agree on what late means (W6)."""
    sources = topology.judged_by(operator)
    for name in sources[1:]:
        first, other = topology.sources[sources[0]].time, topology.sources[name].time
        told = [
            f"{key} ({one} and {two})"
            for (key, one), two in zip(
                _meaning(first).items(), _meaning(other).values(), strict=True
            )
            if one != two
        ]
        if told:
            text = f"sources '{sources[0]}' and '{name}' both feed '{operator}' and must agree on"
            yield Issue(path, f"{text} {', '.join(told)}; set the same values on both")


def _meaning(time: TimeSpec) -> dict[str, Any]:
    watermark = time.watermark
    return {
        "mode": time.mode,
        "strategy": watermark.strategy if watermark else None,
        "out_of_orderness_ms": watermark.out_of_orderness_ms if watermark else None,
        "allowed_lateness_ms": time.allowed_lateness_ms,
        "late_event_policy": time.late_event_policy,
        "late_event_route": time.late_event_route,
    }


def _window(topology: Topology, name: str, config: dict[str, Any], path: str) -> Iterator[Issue]:
    if not on_event_time(topology.operators[name]):
        return
    for source in topology.judged_by(name):
        time = topology.sources[source].time
        if time.mode != "event_time":
            text = f"window '{name}' fires by watermark, and source '{source}' has none"
            advice = "it would fire only at the end; set `trigger: processing_time`, or the "
            yield Issue(
                f"{path}.trigger", f"{text}: {advice}source's `mode: event_time`", warning=True
            )
            continue
        yield from _lateness(name, source, time, config, path)
        yield from _timestamps(topology, name, source, path)
    yield from _behind_windows(topology, name, config, path)


def _lateness(
    name: str, source: str, time: TimeSpec, config: dict[str, Any], path: str
) -> Iterator[Issue]:
    """The lateness of a window and its sources' policy (W6)."""
    own = config.get("allowed_lateness_ms")
    given = "allowed_lateness_ms" in time.model_fields_set
    where = f"{path}.allowed_lateness_ms"
    if own is not None and given and own != time.allowed_lateness_ms:
        text = f"allowed_lateness_ms of window '{name}' is {own}, that of source '{source}'"
        advice = "give it in one place, or the same value in both"
        yield Issue(where, f"{text} {time.allowed_lateness_ms}; {advice}")
    elif own and time.late_event_policy != "update":
        text = f"`allowed_lateness_ms` has no effect: the policy of source '{source}' is"
        advice = "which takes no late row; say `late_event_policy: update` there"
        yield Issue(where, f"{text} `{time.late_event_policy}`, {advice}", warning=True)
    if config.get("legacy_payload") is True and time.late_event_policy == "update":
        text = f"window '{name}' releases its rows (`legacy_payload`), so it cannot correct a"
        advice = f"result; choose `late_event_policy: drop` or `route` on source '{source}'"
        yield Issue(f"{path}.legacy_payload", f"{text} {advice}")
    elif time.late_event_policy == "update" and not (own or time.allowed_lateness_ms):
        text = f"`late_event_policy: update` of source '{source}' corrects nothing in window"
        advice = "every late row is dropped; give `allowed_lateness_ms`, or say `drop`"
        yield Issue(where, f"{text} '{name}' without `allowed_lateness_ms`: {advice}", warning=True)


def _timestamps(topology: Topology, name: str, source: str, path: str) -> Iterator[Issue]:
    """Rows that reach a window as they were read have one time (W3)."""
    own = topology.operators[name].config.get("timestamp_field")
    read = topology.sources[source].time.timestamp_field
    direct = any(edge.to == name for edge in topology.outputs[source])
    if direct and read and own != read:
        text = f"window '{name}' takes its time from '{own}', the watermark of source '{source}'"
        advice = f"follows '{read}': rows may be late for no reason; use one field"
        yield Issue(f"{path}.timestamp_field", f"{text} {advice}", warning=True)


def _behind_windows(
    topology: Topology, name: str, config: dict[str, Any], path: str
) -> Iterator[Issue]:
    """Results of windows as the rows of another one (N7)."""
    above = _windows_above(topology, name)
    if above and config.get("timestamp_field") == "window_start":
        text = f"window '{name}' behind a window takes `window_start` as its time, but a result"
        advice = "is from `window_end - 1`: rows may be late; use `window_end`"
        yield Issue(f"{path}.timestamp_field", f"{text} {advice}", warning=True)
    correcting = [window for window in above if _corrects(topology, window)]
    if correcting:
        text = f"window '{name}' would count corrections of '{correcting[0]}' beside the results"
        advice = "that they replace, or drop them as late; choose another `late_event_policy`"
        yield Issue(path, f"{text} {advice}", warning=True)


def _windows_above(topology: Topology, name: str) -> list[str]:
    backwards = [(edge.to, edge.from_) for edge in topology.main]
    above = topology.reach([name], backwards) - {name}
    return [other for other in topology.operators if other in above and _is_window(topology, other)]


def _is_window(topology: Topology, name: str) -> bool:
    return topology.operators[name].kind == "window"


def _corrects(topology: Topology, window: str) -> bool:
    times = [topology.sources[source].time for source in topology.judged_by(window)]
    return any(time.late_event_policy == "update" for time in times)


__all__ = ["time_issues"]
