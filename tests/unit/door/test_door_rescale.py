"""A rescale that is asked for at a door: when it is answered, and with what (K2)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, OperatorId, OutputId, WallMs
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_parallelism import with_parallelism
from arkflow_kernel.metrics import ChainStatistics, OperatorCounts, Wait
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    JobOutcome,
    JobState,
    OutcomeKind,
    RescalePhases,
    RescaleStatus,
)
from arkflow_ray.door.client import ask, find_door
from arkflow_ray.door.messages import BadRequestError, RefusedError, Request

if TYPE_CHECKING:
    from tests.unit.door.conftest import OpenDoors, ScriptedJob

AT = Moment(MonotonicMs(0), WallMs(0))
PHASES = RescalePhases(1, 20, 3, 4, 500)

SPEC = JobSpec.model_validate(
    {
        "id": "shop",
        "version": 1,
        "operators": [
            {"id": "orders", "kind": "source"},
            {
                "id": "counted",
                "kind": "map",
                "stateful": True,
                "key_field": "country",
                "parallelism": 2,
                "config": {"type": "sql", "query": "SELECT * FROM flow"},
            },
            {"id": "printed", "kind": "sink"},
        ],
        "edges": [
            {"id": "a", "from": "orders", "to": "counted", "partitioned": True},
            {"id": "b", "from": "counted", "to": "printed"},
        ],
        "sources": [
            {
                "operator_id": "orders",
                "input_type": "memory",
                "config": {"messages": []},
                "time": {"mode": "processing_time"},
            }
        ],
        "sinks": [{"operator_id": "printed", "output_type": "stdout"}],
    }
)


def parallelism(counted: int) -> dict[OperatorId, int]:
    return {OperatorId("orders"): 1, OperatorId("counted"): counted, OperatorId("printed"): 1}


def stand(phase: str, number: int = 1, error: str | None = None) -> RescaleStatus:
    return RescaleStatus(number, {OperatorId("counted"): 4}, phase, AT, PHASES, error)


@pytest.fixture
def shop(opened: "OpenDoors", make_job: "type[ScriptedJob]") -> "ScriptedJob":
    """A job that counts in two subtasks, with its door."""
    job = make_job(spec=SPEC)
    job.told(parallelism=parallelism(2))
    opened(job)
    return job


Asking = Callable[..., dict[str, Any]]


@pytest.fixture
def rescale(shop: "ScriptedJob", folder: Path) -> Asking:
    """`rescale(4, then, …)`: ask for so many subtasks; after each word of progress, the next."""

    def run(counted: int, *then: Callable[[], None], wait: bool = True) -> dict[str, Any]:
        left = list(then)
        request = Request("rescale", parallelism={"counted": counted}, wait=wait)
        return ask(find_door("shop", [folder]), request, 20, lambda _: left.pop(0)())

    return run


def test_it_is_answered_when_the_new_plan_is_at_work(shop: "ScriptedJob", rescale: Asking) -> None:
    told = rescale(
        4,
        lambda: shop.told(state=JobState.RESCALING, rescale=stand("round")),
        lambda: shop.told(
            state=JobState.RUNNING, rescale=stand("done"), parallelism=parallelism(4)
        ),
    )
    assert (told["outcome"], told["changed"]) == ("done", {"counted": [2, 4]})
    assert told["phases"] == {
        "prepare_ms": 1, "round_ms": 20, "end_ms": 3, "claim_ms": 4, "deploy_ms": 500,
    }  # fmt: skip
    assert told["duration_ms"] == 528
    plan = build_graph(with_parallelism(SPEC, {"counted": 4}))
    assert shop.handle.calls == [("rescale", plan)]
    assert shop.graph == plan


def test_its_phase_and_what_it_waits_for_are_told_meanwhile(
    shop: "ScriptedJob", folder: Path
) -> None:
    said: list[str] = []
    steps: list[dict[str, Any]] = [
        {"rescale": stand("prepare")},
        {"waits": {ChainId("printed-0"): (Wait("sink 'printed'", "disk full", 30_000),)}},
        {"rescale": stand("done"), "waits": {}},
    ]

    def hear(text: str) -> None:
        said.append(text)
        shop.told(**steps.pop(0))

    request = Request("rescale", parallelism={"counted": 4})
    ask(find_door("shop", [folder]), request, 20, hear)
    preparing = "rescaling to counted=4, prepare: more processes are started"
    stalled = f"{preparing}; chain 'printed-0' waits for sink 'printed': disk full"
    assert said == ["asked for", preparing, stalled]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("failed", "no room for 2 more processes; the job goes on as it was"),
        ("taken back", "the one before runs again: no room for 2 more processes"),
    ],
)
def test_one_that_comes_to_nothing_is_refused_with_the_reason(
    shop: "ScriptedJob", rescale: Asking, phase: str, said: str
) -> None:
    end = stand(phase, error="no room for 2 more processes")
    with pytest.raises(RefusedError, match=said) as refused:
        rescale(4, lambda: shop.told(rescale=end))
    assert refused.value.kind == "RescaleError"


def test_what_cannot_be_is_bad_usage_and_the_job_hears_nothing(
    shop: "ScriptedJob", rescale: Asking
) -> None:
    with pytest.raises(BadRequestError, match=r"job 'shop' is not rescaled: .* at most 128"):
        rescale(129)
    assert shop.handle.calls == []


def test_what_is_so_already_is_no_change(shop: "ScriptedJob", rescale: Asking) -> None:
    assert rescale(2)["outcome"] == "unchanged"
    assert shop.handle.calls == []


def test_without_a_wait_it_is_answered_at_once(shop: "ScriptedJob", rescale: Asking) -> None:
    told = rescale(1, wait=False)
    assert told == {
        "job": "shop",
        "outcome": "accepted",
        "changed": {"counted": [2, 1]},
        "notes": ["'counted' and 'printed' share a chain now: no channel is between them"],
    }
    assert len(shop.handle.calls) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": JobState.DEPLOYING}, "^it is deploying, and is only rescaled while it runs"),
        ({"state": JobState.RESCALING, "rescale": stand("claim")}, "is being rescaled .*`claim`"),
    ],
)
def test_a_job_that_does_not_just_run_is_not_rescaled(
    shop: "ScriptedJob", rescale: Asking, fields: dict[str, Any], said: str
) -> None:
    shop.told(**fields)
    with pytest.raises(RefusedError, match=said):
        rescale(4)
    assert shop.handle.calls == []


def test_a_second_one_waits_until_the_first_is_told(shop: "ScriptedJob", rescale: Asking) -> None:
    rescale(4, wait=False)
    with pytest.raises(RefusedError, match="is being rescaled; ask again"):
        rescale(3)
    shop.told(rescale=stand("done"), parallelism=parallelism(4))
    assert rescale(3, wait=False)["changed"] == {"counted": [4, 3]}


def test_one_that_was_taken_back_is_asked_for_again_from_the_old_plan(
    shop: "ScriptedJob", rescale: Asking
) -> None:
    rescale(4, wait=False)
    shop.told(rescale=stand("taken back", error="no room"))
    again = rescale(4, lambda: shop.told(rescale=stand("done", 2), parallelism=parallelism(4)))
    assert (again["outcome"], again["changed"]) == ("done", {"counted": [2, 4]})


def test_a_job_that_ends_first_says_so(shop: "ScriptedJob", rescale: Asking) -> None:
    with pytest.raises(RefusedError, match="the job is over, and was not rescaled before"):
        rescale(4, lambda: shop.end(JobOutcome(OutcomeKind.STOPPED)))


@pytest.mark.parametrize("counted", [2, 4])
def test_a_coordinator_that_is_lost_leaves_the_plan_with_which_the_job_runs_again(
    shop: "ScriptedJob", rescale: Asking, counted: int
) -> None:
    def succeed() -> None:
        shop.told(generation=Generation(2), parallelism=parallelism(counted))

    if counted == 4:
        assert rescale(4, succeed)["outcome"] == "done"
        return
    with pytest.raises(RefusedError, match="runs with the plan that it had; ask again"):
        rescale(4, succeed)


def test_the_status_shows_every_operator_its_subtasks_and_the_last_rescale(
    shop: "ScriptedJob", folder: Path
) -> None:
    counts = OperatorCounts(OperatorId("counted"), rows_in=30, rows_out=30)
    chains = {
        ChainId("orders-0"): ChainStatistics(
            ChainId("orders-0"),
            rows_in=40,
            bad_rows=2,
            key_groups=((OutputId("a"), (3, 27, 10)),),
        ),
        ChainId("counted-0"): ChainStatistics(ChainId("counted-0"), operators=(counts,)),
        ChainId("counted-1"): ChainStatistics(
            ChainId("counted-1"), operators=(replace(counts, rows_in=10, rows_out=10),)
        ),
    }
    shop.told(chains=chains, rescale=stand("done"))
    told = ask(find_door("shop", [folder]), Request("status"), 10)
    unkeyed: dict[str, object] = {
        "key_groups": [],
        "fullest_key_group": None,
        "parallelism": 1,
        "skew": None,
    }
    assert told["operators"] == [
        {"operator": "orders", "chain": "orders", "rows_in": [42], **unkeyed},
        {
            "operator": "counted",
            "chain": "counted",
            "rows_in": [30, 10],
            "key_groups": [3, 27, 10],
            "fullest_key_group": {"key_group": 1, "share": 0.675},
            "parallelism": 2,
            "skew": 1.5,
        },
        {"operator": "printed", "chain": "printed", "rows_in": [0], **unkeyed},
    ]
    assert told["rescale"]["parallelism"] == {"counted": 4}
    assert told["rescale"]["text"].startswith("rescaled to counted=4 in 528 ms (prepare 1, ")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "must say how many subtasks which operator gets"),
        ({"parallelism": 4}, "`parallelism` must be a dict"),
        ({"parallelism": {}}, "must hold whole numbers by operator"),
        ({"parallelism": {"counted": "4"}}, "must hold whole numbers by operator"),
        ({"parallelism": {"counted": True}}, "must hold whole numbers by operator"),
        ({"parallelism": {"counted": 4}, "savepoint": "a"}, "`savepoint` goes with"),
        ({"parallelism": {"counted": 4}, "wait": 1}, "`wait` must be a bool"),
        ({"command": "stop", "parallelism": {"counted": 4}}, "go with `rescale`"),
        ({"command": "status", "wait": False}, "go with `rescale`"),
    ],
)
def test_garbage_changes_nothing(
    shop: "ScriptedJob", caller: Any, opened: "OpenDoors", fields: dict[str, Any], reason: str
) -> None:
    (path,) = opened(shop).paths
    asking = caller(path)
    asking.ask(**{"command": "rescale", **fields})
    assert reason in asking.next()["error"]["message"]
    assert shop.handle.calls == []
