"""A plan as autoscaling sees it: stages, groups that change together, bounds (K6)."""

from typing import Any

from arkflow_kernel.autoscale_stages import ScaleBounds, ScalingPlan, scaling_plan
from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.job import JobSpec


def _job(*edges: dict[str, Any], parallelism: dict[str, int] | None = None) -> JobSpec:
    """in -> parse -> count -> out, where `count` is keyed; the edges' keys in this order."""
    names = ("in", "parse", "count", "out")
    given = {} if parallelism is None else parallelism
    operators: list[dict[str, Any]] = [
        {"id": "in", "kind": "source"},
        {"id": "parse", "kind": "map", "config": {"type": "sql"}},
        {
            "id": "count",
            "kind": "map",
            "config": {"type": "sql"},
            "stateful": True,
            "key_field": "k",
        },
        {"id": "out", "kind": "sink"},
    ]
    for operator in operators:
        operator["parallelism"] = given.get(operator["id"], 1)
    more = [*edges, {}, {}, {}]
    return JobSpec.model_validate(
        {
            "id": "line",
            "version": 1,
            "operators": operators,
            "edges": [
                {"id": f"{a}-{b}", "from": a, "to": b} | link
                for a, b, link in zip(names, names[1:], more, strict=False)
            ],
            "sources": [
                {
                    "operator_id": "in",
                    "input_type": "memory",
                    "config": {"rows_per_second": 50},
                    "time": {"mode": "processing_time"},
                }
            ],
            "sinks": [{"operator_id": "out", "output_type": "drop"}],
        }
    )


def _stages(job: JobSpec, **bounds: tuple[int, int]) -> ScalingPlan:
    given = {OperatorId(name): ScaleBounds(*each) for name, each in bounds.items()}
    return scaling_plan(build_graph(job), given)


REBALANCED = {"type": "rebalance"}
BY_KEY = {"partitioned": True}


def test_operators_of_a_chain_are_one_stage_and_stages_stand_in_the_order_of_rows() -> None:
    plan = _stages(_job(REBALANCED, BY_KEY, parallelism={"parse": 2, "count": 3}))
    assert [(stage.operators, stage.parallelism) for stage in plan.stages] == [
        (("in",), 1),
        (("parse",), 2),
        (("count",), 3),
        (("out",), 1),
    ]
    assert [(edge.source, edge.target) for edge in plan.edges] == [
        ("in", "parse"),
        ("parse", "count"),
        ("count", "out"),
    ]
    assert [stage.rows_per_second for stage in plan.stages] == [50.0, None, None, None]
    assert plan.parallelism == {"in": 1, "parse": 2, "count": 3, "out": 1}
    assert plan.chains == {
        "in-0",
        *("parse-0", "parse-1"),
        *("count-0", "count-1", "count-2"),
        "out-0",
    }


def test_only_what_has_bounds_may_change_and_the_narrowest_hold() -> None:
    plan = _stages(_job(REBALANCED, BY_KEY), parse=(1, 8))
    assert [group.bounds for group in plan.groups if group.name == "parse"] == [ScaleBounds(1, 8)]
    assert [group.name for group in plan.groups if group.bounds is None] == ["in", "count"]
    fused = _stages(_job({}, BY_KEY), **{"in": (1, 8), "parse": (2, 5)})
    assert fused.groups[0].operators == ("in", "parse")
    assert fused.groups[0].bounds == ScaleBounds(2, 5)


def test_stages_whose_rows_go_one_to_one_change_together_or_not_at_all() -> None:
    job = _job(REBALANCED, BY_KEY, parallelism={"parse": 2, "count": 2, "out": 2})
    operators = [each.model_copy(update={"chain": False}) for each in job.operators]
    apart = job.model_copy(update={"operators": operators})
    tied = _stages(apart, parse=(1, 4), count=(1, 8), out=(1, 6))
    assert [group.operators for group in tied.groups] == [("in",), ("parse",), ("count", "out")]
    assert tied.groups[2].bounds == ScaleBounds(1, 6)
    assert _stages(apart, count=(1, 8)).groups[2].bounds is None


def test_a_sink_that_stays_alone_ties_nobody() -> None:
    plan = _stages(_job(REBALANCED, BY_KEY, parallelism={"count": 4}), count=(1, 8))
    assert [(group.operators, group.bounds) for group in plan.groups[2:]] == [
        (("count",), ScaleBounds(1, 8)),
        (("out",), None),
    ]
