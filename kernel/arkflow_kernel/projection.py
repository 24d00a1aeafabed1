"""Which columns of a source what is behind it asks for by name.

Those that nobody looks at need not be read. That is known only where every row goes straight to
windows that let aggregates leave: everything else may look at any column, and so may whoever gets
rows that failed or were late.

A row of JSON that lacks a field has a null there. Which rows share a batch must not decide it (W9),
so a source of JSON is told the fields that are asked for, also before any row had them.
"""

from arkflow_kernel.keyed_plans import keyed_plan
from arkflow_kernel.plan import ContinuousPlan, TopNPlan, WindowPlan
from arkflow_kernel.topology import Topology
from arkflow_kernel.window_config import RESULT_COLUMNS
from arkflow_kernel.window_plans import window_plan


def read_columns(topology: Topology, source: str) -> tuple[str, ...] | None:
    """Names in the order of the alphabet; None: all columns, or nobody knows.

    A source that reads no more of its rows than these gives the same results. Columns that a row
    does not have are none of its business: the window says so.
    """
    targets = [edge.to for edge in topology.outputs[source]]
    aside = {start for start, _ in topology.late} | set(topology.error_edges)
    if not targets or aside & {source, *targets}:
        return None
    time = topology.sources[source].time
    names = {time.timestamp_field} if time.timestamp_field else set()
    for target in targets:
        spec = topology.operators[target]
        if spec.kind != "window":
            return None
        window = window_plan(topology, spec)
        if window.releases_rows:
            return None
        names |= {window.timestamp_field, *topology.keys(target)}
        names |= {each.field for each in window.aggregates if each.field is not None}
        if window.timestamp_field in RESULT_COLUMNS:
            names.update(RESULT_COLUMNS)  # rows that have them all are results of a window (N7)
    return tuple(sorted(names))


def named_fields(topology: Topology, source: str) -> tuple[str, ...]:
    """Keys and values that operators right behind a source take, in the order of the alphabet.

    The time of the source is none of them: where no row had it, a wrong name is likelier than rows
    that all lack it, and these would be dropped one by one.
    """
    names: set[str] = set()
    for edge in topology.outputs[source]:
        spec = topology.operators[edge.to]
        names.update(topology.key_fields(edge))
        keyed = window_plan(topology, spec) if spec.kind == "window" else keyed_plan(spec)
        match keyed:
            case WindowPlan() | ContinuousPlan():
                names.update(each.field for each in keyed.aggregates if each.field is not None)
            case TopNPlan():
                names.add(keyed.by)
    return tuple(sorted(names - {topology.sources[source].time.timestamp_field}))


__all__ = ["named_fields", "read_columns"]
