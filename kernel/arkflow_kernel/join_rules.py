"""Rules of joins beside those of their configuration: what their sides and their times must be."""

from collections.abc import Iterator

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import OperatorSpec
from arkflow_kernel.topology import Topology


def join_issues(topology: Topology) -> Iterator[Issue]:
    """Every mistake of the job's joins and their inputs."""
    for i, operator in enumerate(topology.job.operators):
        if operator.kind == "join":
            path = f"operators[{i}]"
            yield from _inputs(topology, operator, path)
            yield from _times(topology, operator, path)
            yield from _behind_windows(topology, operator, path)


def _inputs(topology: Topology, operator: OperatorSpec, path: str) -> Iterator[Issue]:
    feeding = [edge.from_ for edge in topology.inputs.get(operator.id, [])]
    if len(feeding) != 2:
        text = f"join operator '{operator.id}' requires exactly two inbound edges, it has"
        yield Issue(path, f"{text} {len(feeding)}; add one edge per side")
    for side in ("left_from", "right_from"):
        name = operator.config.get(side)
        if isinstance(name, str) and name and name not in feeding:
            text = f"{side} names '{name}', which does not feed join operator '{operator.id}'"
            told = f"fed by: {', '.join(feeding) or 'none'}"
            yield Issue(f"{path}.config.{side}", f"{text}; {told}")
    if operator.key_field:
        text = f"`key_field` of join '{operator.id}' has no effect: its keys are `left_key` and"
        yield Issue(f"{path}.key_field", f"{text} `right_key`; remove it", warning=True)


def _times(topology: Topology, operator: OperatorSpec, path: str) -> Iterator[Issue]:
    """A join lives by event time: without a watermark nothing could ever be let go of (J3)."""
    for source in _sources(topology, operator.id):
        if topology.sources[source].time.mode != "event_time":
            text = f"join '{operator.id}' needs event time, and source '{source}' has none: no row"
            advice = "would ever be let go of; set its `time.mode: event_time`, with a"
            yield Issue(path, f"{text} {advice} `timestamp_field` and a `watermark`")
    for side in ("left", "right"):
        name, field = operator.config.get(f"{side}_from"), _timestamp(operator, side)
        direct = topology.sources.get(name) if isinstance(name, str) else None
        read = None if direct is None else direct.time.timestamp_field
        if read and read != field:
            text = f"join '{operator.id}' takes the time of its {side} side from '{field}', the"
            advice = f"watermark of source '{name}' follows '{read}': set `{side}_timestamp` to it"
            yield Issue(f"{path}.config.{side}_timestamp", f"{text} {advice}", warning=True)


def _timestamp(operator: OperatorSpec, side: str) -> str:
    return str(operator.config.get(f"{side}_timestamp", "__meta_timestamp"))


def _sources(topology: Topology, name: str) -> list[str]:
    """All sources before an operator, also before the windows before it."""
    above = topology.reach([name], [(edge.to, edge.from_) for edge in topology.main])
    return [source for source in topology.sources if source in above]


def _behind_windows(topology: Topology, operator: OperatorSpec, path: str) -> Iterator[Issue]:
    """A correction of a window is one more row for a join behind it (N7)."""
    for edge in topology.inputs.get(operator.id, []):
        if topology.operators[edge.from_].kind != "window":
            continue
        if _is_table(operator, edge.from_):  # a correction of a version takes its place (J9)
            continue
        times = [topology.sources[name].time for name in topology.judged_by(edge.from_)]
        if any(time.late_event_policy == "update" for time in times):
            text = f"join '{operator.id}' would match corrections of '{edge.from_}' beside the"
            advice = "results that they replace; choose another `late_event_policy`"
            yield Issue(path, f"{text} {advice}", warning=True)


def _is_table(operator: OperatorSpec, feeding: str) -> bool:
    config = operator.config
    return config.get("join_type") == "temporal" and config.get("right_from") == feeding


__all__ = ["join_issues"]
