"""Whole jobs with joins on the inline driver; turns of chains and deaths as a test draws them."""

from dataclasses import dataclass
from typing import Any

from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import ExecutionGraph
from tests.kernel.join.join_line import LEFT, RIGHT
from tests.kernel.join.join_oracle import Case, expected, stamped
from tests.kernel.window.window_oracle import Row, WindowCase
from tests.kernel.window.windowed_components import PAUSE_MS, Plan, Rows
from tests.kernel.window.windowed_jobs import WindowedJob

Entry = dict[str, Any]
Partition = list[tuple[int, int]]
"""Keys and times in order of arrival."""


def pair(left: str = "source0", right: str = "source1", **config: Any) -> Entry:
    """A join of the rows of two operators."""
    return {
        "id": "pair",
        "kind": "join",
        "config": {
            "left_from": left,
            "right_from": right,
            "left_key": "k",
            "right_key": "k",
            "left_timestamp": "ts",
            "right_timestamp": "ts",
            "window_ms": 10,
        }
        | config,
    }


def edge(start: str, end: str, *, by_key: bool = True) -> Entry:
    """An edge, named after its ends."""
    return {"id": f"{start}-{end}", "from": start, "to": end, "partitioned": by_key}


def window(name: str, key: str, time: str, size_ms: int) -> Entry:
    """A tumbling window that counts rows of each key."""
    config = {"kind": "tumbling", "size_ms": size_ms, "key_fields": [key], "timestamp_field": time}
    counts = [{"function": "count", "as": "n"}]
    return {"id": name, "kind": "window", "config": config | {"aggregates": counts}}


def graph_of(
    operators: list[Entry], edges: list[Entry], plan: Plan, bound_ms: int, *, routes: bool = False
) -> ExecutionGraph:
    """A job of two sources and one sink, with these operators between them; a second sink takes
    late rows, if they are routed.
    """
    time: Entry = {
        "mode": "event_time",
        "timestamp_field": "ts",
        "watermark": {"out_of_orderness_ms": bound_ms},
        **({"late_event_policy": "route", "late_event_route": "late"} if routes else {}),
    }
    sinks = ["out", "late"] if routes else ["out"]
    sources = [f"source{number}" for number in range(len(plan.sources))]
    entry = {
        "id": "joined",
        "version": 1,
        "operators": [
            *({"id": name, "kind": "source", "parallelism": plan.reading} for name in sources),
            *(each | {"parallelism": plan.parallelism} for each in operators),
            *({"id": name, "kind": "sink"} for name in sinks),
        ],
        "edges": edges,
        "sources": [
            {"operator_id": name, "input_type": "scripted", "time": time} for name in sources
        ],
        "sinks": [{"operator_id": name, "output_type": "scripted"} for name in sinks],
        "state": {"backend": "embedded_kv"},
        "checkpoint": {"object_store_uri": "memory://x", "interval_ms": 2 * PAUSE_MS},
    }
    job = JobSpec.model_validate(entry)
    issues = [issue for issue in validate_job(job, lambda _: True) if not issue.warning]
    assert not issues, "\n".join(f"{issue.path}: {issue.message}" for issue in issues)
    return build_graph(job, lambda _: True)


@dataclass
class JoinedJob(WindowedJob):
    """A job over the partitions of both sides; it may run several times, each time further."""

    planned: ExecutionGraph | None = None

    def __post_init__(self) -> None:
        assert self.planned is not None
        self.graph = self.planned


def job_of(
    sides: tuple[list[Partition], list[Partition]],
    operators: list[Entry],
    edges: list[Entry],
    plan: Plan,
    bound_ms: int,
    *,
    routes: bool = False,
) -> JoinedJob:
    """The job of a join's two sources; `plan.sources` are set here."""
    partitions: list[list[Row]] = []
    numbers: list[tuple[int, ...]] = []
    n = 0
    for side in sides:
        numbers.append(tuple(range(len(partitions), len(partitions) + len(side))))
        for rows in side:
            partitions.append([Row(n + at, ts, key, 0) for at, (key, ts) in enumerate(rows)])
            n += len(rows)
    plan = Plan(**{**_fields(plan), "sources": tuple(numbers)})
    planned = graph_of(operators, edges, plan, bound_ms, routes=routes)
    case = WindowCase("tumbling", bound_ms=bound_ms)
    return JoinedJob(case, partitions, plan, planned=planned)


def _fields(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


def wanted(case: Case) -> list[tuple[int | None, int | None]]:
    """The numbers of the rows of each pair, None for a side that is not there."""
    found, _ = expected(case)
    return sorted(((row.get("l_n"), row.get("r_n")) for row in found), key=str)


def numbers_of(rows: Rows) -> list[tuple[int | None, int | None]]:
    """The same of what was published."""
    return sorted(((row.get("l_n"), row.get("r_n")) for row in rows), key=str)


def sides_of(
    left: list[Partition], right: list[Partition], bound_ms: int
) -> dict[str, list[list[Any]]]:
    """The rows for the loop, numbered as in the job."""
    sides: dict[str, list[list[Any]]] = {LEFT: [], RIGHT: []}
    n = 0
    for name, partitions in ((LEFT, left), (RIGHT, right)):
        for rows in partitions:
            sides[name].append(stamped([(key, ts) for key, ts in rows], bound_ms, n))
            n += len(rows)
    return sides


__all__ = [
    "JoinedJob",
    "Partition",
    "edge",
    "graph_of",
    "job_of",
    "numbers_of",
    "pair",
    "sides_of",
    "wanted",
    "window",
]
