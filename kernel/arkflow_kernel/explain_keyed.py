"""What an operator does that keeps something per key without windows, as data and as text."""

from dataclasses import dataclass
from typing import Any

from arkflow_kernel.explain_time import ExplainedAggregate, called
from arkflow_kernel.plan import ContinuousPlan, OperatorPlan, TopNPlan


@dataclass(frozen=True, slots=True)
class ExplainedKeyed:
    """An `aggregate` without a processor, a `deduplicate` or a `top_n` (J5-J7).

    `emit_interval_ms` None: changed keys leave after each batch. What a kind does not have is None
    or empty.
    """

    key_fields: list[str]
    aggregates: list[ExplainedAggregate]
    timestamp_field: str | None = None
    emit_interval_ms: int | None = None
    by: str | None = None
    n: int | None = None
    order: str | None = None


def explained_keyed(plan: OperatorPlan) -> ExplainedKeyed | None:
    """Of an operator, if it is one of them."""
    keyed = plan.keyed
    if keyed is None:
        return None
    keys = [] if plan.state is None else list(plan.state.key_fields)
    match keyed:
        case ContinuousPlan():
            made = [ExplainedAggregate(a.function, a.field, a.name) for a in keyed.aggregates]
            return ExplainedKeyed(keys, made, keyed.timestamp_field, keyed.emit_interval_ms)
        case TopNPlan():
            order = "desc" if keyed.descending else "asc"
            return ExplainedKeyed(keys, [], by=keyed.by, n=keyed.count, order=order)
        case _:
            return ExplainedKeyed(keys, [])


def keyed_texts(keyed: dict[str, Any]) -> list[str]:
    """An `ExplainedKeyed` that was made a dict."""
    keys = ", ".join(keyed["key_fields"])
    if keyed["n"] is not None:
        which = "greatest" if keyed["order"] == "desc" else "least"
        return [f"keeps the {keyed['n']:,} rows with the {which} {keyed['by']} by {keys}"]
    if not keyed["aggregates"]:
        return [f"passes the first row by {keys}, drops the others"]
    told = [f"makes {', '.join(called(each) for each in keyed['aggregates'])}"]
    if keyed["timestamp_field"] is not None:
        told.append(f"first and last by the time {keyed['timestamp_field']}")
    every = keyed["emit_interval_ms"]
    when = "after each batch" if every is None else f"every {every:,} ms"
    return [f"of all rows so far by {keys}, {when}", *told]


__all__ = ["ExplainedKeyed", "explained_keyed", "keyed_texts"]
