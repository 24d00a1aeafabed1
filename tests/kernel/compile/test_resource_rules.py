"""Rules of `resources:` and `placement:` (K7, P6), and what plans make of both."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from arkflow_kernel.explain import as_text, explain
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.placement_plan import PlacementPlan, Placing

Jobs = Callable[..., JobSpec]


def _with(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry.update(keys)


def _map(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["operators"][1].update(keys)


WRONG: list[tuple[Callable[[dict[str, Any]], None], str, str]] = [
    (_with(placement={"strategie": "pack"}), "placement.strategie", "known: strategy, labels"),
    (_with(placement={"strategy": "split"}), "placement.strategy", "strict_spread"),
    (_with(placement={"labels": ["a"]}), "placement.labels", "`labels: {zone: a}`"),
    (_with(placement={"labels": {"zone": 1}}), "placement.labels.zone", "is one text"),
    (_with(placement={"labels": {"zone": "!a"}}), "placement.labels.zone", "at most 63 letters"),
    (_with(placement={"labels": {"a b": "c"}}), "placement.labels", "'a b' is no name"),
    (_with(resources={"num_cpus": float("inf")}), "resources.num_cpus", "finite"),
    (_map(resources={"num_gpus": 1.5}), "operators[1].resources.num_gpus", "must be whole"),
    (_with(resources={"custom": {"CPU": 1.0}}), "resources.custom.CPU", "`num_cpus`"),
    (_with(resources={"custom": {"memory": 1.0}}), "resources.custom.memory", "`memory_bytes`"),
    (_with(resources={"custom": {"num_gpus": 1.0}}), "resources.custom.num_gpus", "move it there"),
    (_with(resources={"custom": {"tpu": 0.0}}), "resources.custom.tpu", "above 0"),
    (_with(resources={"custom": {"tpu": float("nan")}}), "resources.custom.tpu", "above 0"),
    (_with(resources={"custom": {"": 1.0}}), "resources.custom", "has a name"),
]


@pytest.mark.parametrize(("change", "path", "message"), WRONG)
def test_a_wrong_value_is_one_error_at_its_place(
    job: Jobs, change: Callable[[dict[str, Any]], None], path: str, message: str
) -> None:
    [issue] = validate_job(job(change))
    assert issue.path == path
    assert message in issue.message
    assert not issue.warning


@pytest.mark.parametrize(
    "resources",
    [{"cpu_millicores": 0}, {"memory_bytes": 0}, {"num_cpus": -1.0}, {"num_gpu": 1.0}],
)
def test_what_no_process_can_have_does_not_parse(job: Jobs, resources: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        job(_with(resources=resources))


@pytest.mark.parametrize(
    "change",
    [
        _with(resources={}),
        _with(resources={"num_cpus": 0.0, "num_gpus": 0.5, "custom": {"tpu": 2.0}}),
        _map(resources={"cpu_millicores": 250, "memory_bytes": 1}),
        _with(placement={}),
        _with(placement={"strategy": "pack", "labels": {"example.com/zone": "eu-1.a"}}),
    ],
)
def test_what_can_be_asked_for_is_accepted(
    job: Jobs, change: Callable[[dict[str, Any]], None]
) -> None:
    assert validate_job(job(change)) == []


def test_a_budget_below_what_state_may_keep_in_memory_is_a_warning(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"][1].update(stateful=True, key_field="k")
        entry["resources"] = {"memory_bytes": 512 * 1024 * 1024}
        entry["state"] = {"backend": "embedded_kv"}

    [issue] = [issue for issue in validate_job(job(change)) if issue.path.startswith("resources")]
    assert issue.warning
    assert issue.path == "resources.memory_bytes"
    assert "fails above 512 MiB, before its state goes to local files" in issue.message
    assert "`state.memory_bytes` (1,024 MiB)" in issue.message


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("colocated", PlacementPlan()),
        ("split", PlacementPlan(Placing.SPREAD)),
        ({}, PlacementPlan()),
        ({"strategy": "pack"}, PlacementPlan(Placing.PACK)),
        (
            {"strategy": "strict_spread", "labels": {"zone": "a"}},
            PlacementPlan(Placing.STRICT_SPREAD, {"zone": "a"}),
        ),
    ],
)
def test_the_plan_carries_the_placement(job: Jobs, placement: Any, expected: PlacementPlan) -> None:
    """P6; ArkFlow's two values have a meaning of their own."""
    assert build_graph(job(_with(placement=placement))).placement == expected


def test_what_an_operator_asks_for_replaces_what_the_job_asks_for(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["resources"] = {"cpu_millicores": 250, "custom": {"tpu": 1.0}}
        entry["operators"][1]["resources"] = {"num_gpus": 1.0}

    plans = build_graph(job(change)).chains
    own = {"cpu_millicores": 250, "tpu": 1.0}
    assert [(plan.chain, plan.resources) for plan in plans] == [
        ("gates-0", own),
        ("text-0", {"num_gpus": 1.0}),
        ("totals-0", own),
    ]


def test_resources_that_ask_for_nothing_are_like_none(job: Jobs) -> None:
    """G1: such operators share a chain."""
    assert len(build_graph(job(_map(resources={}))).chains) == 1


def test_explain_says_where_chains_go_and_what_they_ask_for(job: Jobs) -> None:
    """C7."""

    def change(entry: dict[str, Any]) -> None:
        entry["placement"] = {"strategy": "spread", "labels": {"zone": "a"}}
        entry["resources"] = {"cpu_millicores": 250, "memory_bytes": 3 << 30}

    spec = job(change)
    text = as_text(explain(spec, build_graph(spec)))
    assert "placement    spread, on nodes with zone=a: 1 chain, one actor each" in text
    assert "cpu_millicores 250, memory_bytes 3,072 MiB" in text
