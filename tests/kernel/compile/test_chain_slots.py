"""Slots: chains that talk most share one, subtasks of one operator never do (P6)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.chain_slots import Slot, has_room, singles, slots, total
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.plan import ChainPlan


def chains(*operators: dict[str, Any], edges: list[dict[str, Any]]) -> tuple[ChainPlan, ...]:
    """The chains of a job that need not be valid."""
    known = {"source": "sources", "sink": "sinks"}
    entry: dict[str, Any] = {"id": "j", "version": 1, "operators": [*operators], "edges": edges}
    entry |= {"sources": [], "sinks": []}
    time = {"mode": "processing_time"}
    for operator in operators:
        if operator["kind"] == "source":
            more = {"input_type": "memory", "time": time}
        elif operator["kind"] == "sink":
            more = {"output_type": "drop"}
        else:
            operator.setdefault("config", {"type": "sql"})
            continue
        entry[known[operator["kind"]]].append({"operator_id": operator["id"]} | more)
    return build_graph(JobSpec.model_validate(entry)).chains


def edge(start: str, end: str, **keys: Any) -> dict[str, Any]:
    return {"id": f"{start}-{end}", "from": start, "to": end} | keys


def one_cpu(plans: tuple[ChainPlan, ...]) -> dict[Any, dict[str, float]]:
    return {plan.chain: {"CPU": 1.0} for plan in plans}


def told(found: tuple[Slot, ...]) -> list[str]:
    return [" ".join(slot) for slot in found]


LINE = chains(
    {"id": "in", "kind": "source", "chain": False},
    {"id": "map", "kind": "map", "chain": False},
    {"id": "out", "kind": "sink", "chain": False},
    edges=[edge("in", "map"), edge("map", "out")],
)

KEYED = chains(
    {"id": "in", "kind": "source"},
    {"id": "count", "kind": "map", "parallelism": 3, "key_field": "k"},
    {"id": "show", "kind": "map", "parallelism": 3, "chain": False},
    {"id": "out", "kind": "sink"},
    edges=[
        edge("in", "count", partitioned=True),
        edge("count", "show"),
        edge("show", "out"),
    ],
)


def test_a_job_without_parallel_operators_is_one_slot() -> None:
    assert told(slots(LINE, one_cpu(LINE))) == ["in-0 map-0 out-0"]


def test_subtasks_that_send_straight_on_share_a_slot_and_those_of_one_operator_do_not() -> None:
    assert told(slots(KEYED, one_cpu(KEYED))) == [
        "in-0 count-0 show-0",
        "count-1 show-1 out-0",
        "count-2 show-2",
    ]


def test_a_slot_that_no_node_has_room_for_is_divided() -> None:
    rooms = [{"CPU": 2.0, "memory": 5.0}, {"CPU": 1.0}]
    assert told(slots(LINE, one_cpu(LINE), rooms)) == ["in-0 map-0", "out-0"]


def test_a_chain_that_no_node_has_room_for_is_alone_in_its_slot() -> None:
    demands = one_cpu(LINE) | {LINE[1].chain: {"GPU": 1.0}}
    assert told(slots(LINE, demands, [{"CPU": 8.0}])) == ["in-0 out-0", "map-0"]


def test_a_group_of_additional_chains_needs_no_peer_in_it() -> None:
    added = tuple(plan for plan in KEYED if plan.chain in ("count-2", "show-2"))
    assert told(slots(added, one_cpu(added))) == ["count-2 show-2"]
    assert slots((), {}) == ()


def test_what_chains_ask_for_together_is_the_sum() -> None:
    demands = {LINE[0].chain: {"CPU": 1.0}, LINE[1].chain: {"CPU": 0.5, "GPU": 1.0}}
    assert total(demands, list(demands)) == {"CPU": 1.5, "GPU": 1.0}
    assert has_room({"CPU": 2.0, "GPU": 1.0}, {"CPU": 1.5, "GPU": 1.0})
    assert not has_room({"CPU": 2.0}, {"CPU": 1.5, "GPU": 1.0})


@pytest.mark.parametrize("plans", [LINE, KEYED])
def test_alone_each_chain_has_a_slot(plans: tuple[ChainPlan, ...]) -> None:
    assert told(singles(plans)) == [plan.chain for plan in plans]


@given(
    st.integers(min_value=1, max_value=5),
    st.integers(min_value=1, max_value=5),
    st.lists(st.integers(min_value=1, max_value=6), max_size=3),
    st.booleans(),
)
def test_every_chain_is_in_one_slot_that_holds_no_other_subtask_of_its_operator(
    wide: int, narrow: int, rooms: list[int], keyed: bool
) -> None:
    plans = chains(
        {"id": "in", "kind": "source"},
        {"id": "a", "kind": "map", "parallelism": wide, "key_field": "k"},
        {"id": "b", "kind": "map", "parallelism": narrow, "key_field": "k"},
        {"id": "out", "kind": "sink"},
        edges=[
            edge("in", "a", type="rebalance"),
            edge("a", "b", **({"partitioned": True} if keyed else {"type": "rebalance"})),
            edge("b", "out"),
        ],
    )
    demands = one_cpu(plans)
    sizes = [{"CPU": float(room)} for room in rooms]
    found = slots(plans, demands, sizes)
    assert sorted(chain for slot in found for chain in slot) == sorted(p.chain for p in plans)
    for slot in found:
        assert len({chain.rpartition("-")[0] for chain in slot}) == len(slot)
        assert not sizes or any(has_room(size, total(demands, slot)) for size in sizes)
    if not sizes:
        assert len(found) == max(wide, narrow)
