"""Late routes of any graph (W6, W8): who judges, where late rows leave, against paths by hand."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import ChainPlan, EdgeKind, ExecutionGraph, LatePolicy
from arkflow_kernel.testing.job_changes import EVENT, WINDOW

ROUTE = "late"


@st.composite
def _jobs(draw: st.DrawFn) -> JobSpec:
    """Sources on event time with one late route; maps and windows of both clocks behind them."""
    sources = [f"s{i}" for i in range(draw(st.integers(1, 3)))]
    kinds = st.sampled_from(["map", "watermark", "watermark", "processing_time"])
    middle = {f"m{i}": draw(kinds) for i in range(draw(st.integers(1, 5)))}
    operators: list[dict[str, Any]] = [{"id": name, "kind": "source"} for name in sources]
    for name, kind in middle.items():
        spec: dict[str, Any] = {"kind": "map", "config": {"type": "sql"}}
        if kind != "map":
            subtasks = draw(st.sampled_from([1, 1, 2]))
            spec = {
                "kind": "window",
                "config": WINDOW | {"trigger": kind},
                "parallelism": subtasks,
            }
        operators.append({"id": name, **spec})
    operators += [{"id": "out", "kind": "sink"}, {"id": ROUTE, "kind": "sink"}]
    for operator in operators:
        operator["chain"] = draw(st.integers(0, 4)) > 0
    edges, names = [], [*sources, *middle]
    for end in [*middle, "out"]:
        before = names if end == "out" else names[: names.index(end)]
        for start in draw(st.lists(st.sampled_from(before), min_size=1, max_size=3, unique=True)):
            keyed = middle.get(end, "map") != "map"
            edges.append({"id": f"{start}-{end}", "from": start, "to": end, "partitioned": keyed})
    time = EVENT | {"late_event_policy": "route", "late_event_route": ROUTE}
    return JobSpec.model_validate(
        {
            "id": "random",
            "version": 1,
            "operators": operators,
            "edges": edges,
            "sources": [
                {"operator_id": name, "input_type": "memory", "time": time} for name in sources
            ],
            "sinks": [{"operator_id": name, "output_type": "drop"} for name in ("out", ROUTE)],
        }
    )


def _judges(job: JobSpec) -> set[str]:
    """Windows on event time that some path from a source reaches before any other window."""
    kinds = {o.id: o.config.get("trigger", "none") for o in job.operators}
    found = set()

    def follow(name: str) -> None:
        for edge in job.edges:
            if edge.from_ == name:
                if kinds[edge.to] == "watermark":
                    found.add(edge.to)
                elif kinds[edge.to] != "processing_time":
                    follow(edge.to)

    for source in job.sources:
        follow(source.operator_id)
    return found


def _chain_of(graph: ExecutionGraph, operator: str) -> list[ChainPlan]:
    return [
        chain
        for chain in graph.chains
        if any(task.rpartition("-")[0] == operator for task in chain.tasks)
    ]


@settings(max_examples=150, deadline=None)
@given(_jobs())
def test_late_rows_leave_where_they_are_judged_and_reach_the_route(job: JobSpec) -> None:
    assume(not [issue for issue in validate_job(job) if not issue.warning])
    graph, judges = build_graph(job), _judges(job)
    starts = judges | {source.operator_id for source in job.sources}
    judging = {chain.chain for name in starts for chain in _chain_of(graph, name)}
    assert {chain.chain for chain in graph.chains if chain.late_output} == judging
    [target] = _chain_of(graph, ROUTE)
    entries = {channel.channel for channel in target.inputs}
    for chain in graph.chains:
        if chain.late_output is None:
            continue
        inside = [sink.output for sink in chain.sinks if sink.output == chain.late_output]
        outlets = [o for o in chain.outlets if o.output == chain.late_output]
        assert len(inside) + len(outlets) == 1
        assert inside in ([], [ROUTE])
        for outlet in outlets:
            assert outlet.kind is EdgeKind.LATE
            assert {channel.channel for channel in outlet.channels} <= entries


@settings(max_examples=150, deadline=None)
@given(_jobs())
def test_only_windows_that_judge_a_sources_rows_route_them_and_only_its_rows_are_stamped(
    job: JobSpec,
) -> None:
    assume(not [issue for issue in validate_job(job) if not issue.warning])
    graph, judges = build_graph(job), _judges(job)
    for chain in graph.chains:
        for operator in chain.operators:
            window = operator.window
            assert chain.workers == 1 or window is None
            if window is not None:
                routes = operator.operator in judges
                assert window.late is (LatePolicy.ROUTE if routes else LatePolicy.DROP)
        if chain.source is not None and chain.source.time is not None:
            own = {source.operator_id: source for source in job.sources}[chain.source.operator]
            alone = job.model_copy(update={"sources": [own]})
            assert chain.source.time.stamps == bool(_judges(alone))
