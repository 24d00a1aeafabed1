"""What a chain's actor asks of Ray, and what is said of a cluster that does not have it."""

from collections.abc import Mapping
from typing import Any

import pytest

from arkflow_kernel.placement_plan import PlacementPlan, Placing
from arkflow_ray.runtime.demands import CPUS_LEAST, Node, actor_options, demand, lacking

MIB = 1024 * 1024
ANY = PlacementPlan()


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {"CPU": 0.01}),
        ({"cpu_millicores": 250}, {"CPU": 0.25}),
        ({"cpu_millicores": 250, "num_cpus": 2.0}, {"CPU": 2.0}),
        ({"num_cpus": 0.0}, {"CPU": CPUS_LEAST}),
        ({"num_gpus": 0.5, "memory_bytes": 5}, {"CPU": 0.01, "GPU": 0.5, "memory": 5}),
        ({"num_gpus": 0.0, "tpu": 2.0}, {"CPU": 0.01, "tpu": 2.0}),
    ],
)
def test_what_a_chain_asks_of_ray_stands_under_rays_names(
    resources: Mapping[str, float], expected: Mapping[str, float]
) -> None:
    """K7: `num_cpus`, else `cpu_millicores`, else the default."""
    assert demand(resources, 0.01) == expected


def test_an_actor_gets_what_its_chain_asks_for() -> None:
    asked = demand({"num_cpus": 1.0, "num_gpus": 1.0, "memory_bytes": 7, "tpu": 2.0}, 0.01)
    assert actor_options(asked) == {
        "num_cpus": 1.0,
        "num_gpus": 1.0,
        "memory": 7,
        "resources": {"tpu": 2.0},
    }
    assert actor_options(demand({}, 0.5)) == {"num_cpus": 0.5}


def node(labels: Mapping[str, str] | None = None, **resources: float) -> Node:
    return Node(resources, {"ray.io/node-id": "x"} | dict(labels or {}))


LACKS: list[tuple[list[dict[str, float]], list[Node], dict[str, float], PlacementPlan, str]] = [
    (
        [{"CPU": 1_000.0}],
        [node(CPU=2.0)],
        {"CPU": 1.99},
        ANY,
        "it needs 1000 CPU, and of the 2 CPU of the cluster 1.99 are free",
    ),
    ([{"CPU": 1.0, "GPU": 2.0}], [node(CPU=2.0)], {"CPU": 2.0}, ANY, "needs 2 GPU, and the clus"),
    (
        [{"memory": 64.0 * MIB}, {"memory": 64.0 * MIB}],
        [node(memory=100.0 * MIB)],
        {"memory": 100.0 * MIB},
        ANY,
        "it needs 128 MiB of memory, and of the 100 MiB of memory of the cluster 100 MiB are free",
    ),
    (
        [{"CPU": 3.0, "tpu": 1.0}],
        [node(CPU=2.0, tpu=1.0), node(CPU=2.0)],
        {"CPU": 4.0, "tpu": 1.0},
        ANY,
        "it needs 3 CPU and 1 tpu on one node, and no node has more than 2 CPU and 1 tpu",
    ),
    (
        [{"CPU": 1.0}] * 3,
        [node(CPU=2.0), node(CPU=2.0)],
        {"CPU": 4.0},
        PlacementPlan(Placing.STRICT_SPREAD),
        "`strict_spread` asks for 3 nodes, one for each of as many parallel subtasks, and the "
        "cluster has 2",
    ),
    (
        [{"CPU": 1.0}] * 2,
        [node({"zone": "a"}, CPU=2.0), node({"zone": "b"}, CPU=2.0)],
        {"CPU": 4.0},
        PlacementPlan(Placing.STRICT_SPREAD, {"zone": "a"}),
        "and the cluster has 1 with the labels zone=a",
    ),
    (
        [{"CPU": 1.0}],
        [node({"zone": "b", "disk": "ssd"}, CPU=2.0)],
        {"CPU": 2.0},
        PlacementPlan(labels={"zone": "a"}),
        "it needs a node with the labels zone=a, and the nodes have disk=ssd, zone=b",
    ),
    (
        [{"CPU": 1.0}],
        [node(CPU=2.0)],
        {"CPU": 2.0},
        PlacementPlan(labels={"zone": "a"}),
        "and the nodes have no labels",
    ),
]


@pytest.mark.parametrize(("slots", "nodes", "free", "wanted", "expected"), LACKS)
def test_what_is_lacking_is_named_with_how_much_and_what_there_is(
    slots: Any, nodes: Any, free: Any, wanted: PlacementPlan, expected: str
) -> None:
    """P6."""
    told = lacking(slots, nodes, free, wanted)
    assert told is not None
    assert expected in told


def test_everything_that_is_lacking_is_said_at_once() -> None:
    told = lacking([{"CPU": 9.0, "GPU": 1.0}], [node(CPU=2.0)], {"CPU": 2.0}, ANY)
    assert told == (
        "it needs 9 CPU, and of the 2 CPU of the cluster 2 are free; "
        "it needs 1 GPU, and the cluster has none"
    )


def test_nothing_is_lacking_where_there_is_room() -> None:
    wanted = PlacementPlan(Placing.STRICT_SPREAD, {"zone": "a"})
    nodes = [node({"zone": "a"}, CPU=2.0), node({"zone": "a"}, CPU=2.0)]
    assert lacking([{"CPU": 1.0}, {"CPU": 2.0}], nodes, {"CPU": 4.0}, wanted) is None
