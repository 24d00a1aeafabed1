"""Changes to a valid job's dict, for tests of rules: each rule by one mistake.

The job is `gates -> text -> totals`: a source, a map and a sink, in this order in its lists. A
change is applied to a copy of the dict before it is parsed.
"""

from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], Any]
"""Changes the dict in place."""

EVENT = {"mode": "event_time", "timestamp_field": "at", "watermark": {"out_of_orderness_ms": 5}}
WINDOW = {"kind": "tumbling", "size_ms": 1000, "timestamp_field": "at", "key_field": "k"}
CHECKPOINT = {"object_store_uri": "file:///tmp/x"}
STATE = {"backend": "embedded_kv"}


def set_at(*path: str | int, to: Any) -> Change:
    """Set the value at a path of the job's dict."""

    def change(entry: dict[str, Any]) -> None:
        at: Any = entry
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = to

    return change


def all_of(*changes: Change) -> Change:
    """Several changes, one after the other."""

    def change(entry: dict[str, Any]) -> None:
        for one in changes:
            one(entry)

    return change


def add_operator(**spec: Any) -> Change:
    """One more operator, from its fields."""
    return lambda entry: entry["operators"].append(spec)


def add_edge(start: str, end: str, **more: Any) -> Change:
    """One more edge, named after its ends."""
    spec = {"id": f"{start}-{end}", "from": start, "to": end, **more}
    return lambda entry: entry["edges"].append(spec)


def add_source(name: str, time: dict[str, Any]) -> Change:
    """One more source, operator and entry."""

    def change(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": name, "kind": "source"})
        entry["sources"].append({"operator_id": name, "input_type": "memory", "time": time})

    return change


def add_sink(name: str) -> Change:
    """One more sink, operator and entry."""

    def change(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": name, "kind": "sink"})
        entry["sinks"].append({"operator_id": name, "output_type": "drop"})

    return change


def as_window(**config: Any) -> Change:
    """The map of the job becomes a window over event time, with a checkpoint."""
    spec = {"id": "text", "kind": "window", "config": WINDOW | config}
    return all_of(
        set_at("operators", 1, to=spec),
        set_at("sources", 0, "time", to=EVENT),
        set_at("state", to=STATE),
        set_at("checkpoint", to=CHECKPOINT),
    )


def as_join(**config: Any) -> Change:
    """The map of the job becomes a join of `gates` and a second source `lamps`."""
    sides = {"left_from": "gates", "right_from": "lamps", "left_key": "k", "right_key": "k"}
    times = {"left_timestamp": "at", "right_timestamp": "at", "window_ms": 5}
    spec = {"id": "text", "kind": "join", "config": {**sides, **times} | config}
    return all_of(
        as_window(),
        set_at("operators", 1, to=spec),
        add_source("lamps", EVENT),
        add_edge("lamps", "text"),
    )


__all__ = [
    "CHECKPOINT",
    "EVENT",
    "STATE",
    "WINDOW",
    "Change",
    "add_edge",
    "add_operator",
    "add_sink",
    "add_source",
    "all_of",
    "as_join",
    "as_window",
    "set_at",
]
