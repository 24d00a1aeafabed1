"""Which columns of a source anything behind it looks at: the others need not be read.

Only where every row goes straight to windows that let aggregates leave: everything else may look at
any column, and so may whoever gets rows that failed or were late.
"""

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


__all__ = ["read_columns"]
