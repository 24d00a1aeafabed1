"""Channels, inputs and outlets of planned jobs (G1, G2, G5, G6, E3): examples and properties."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.graph import build_graph, key_group_range
from arkflow_kernel.ids import ChainId, TaskId
from arkflow_kernel.job import ChannelSpec, JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.limits import MIB
from arkflow_kernel.plan import ChainPlan, EdgeKind, ExecutionGraph, OutletPlan, RestartPlan
from arkflow_kernel.testing.job_changes import add_edge, add_sink, all_of, set_at
from arkflow_kernel.testing.random_jobs import valid_jobs
from arkflow_kernel.wiring import capacity_bytes, channel_pairs

Jobs = Callable[..., JobSpec]


def _parallel(number: int, **edge: Any) -> Callable[[dict[str, Any]], Any]:
    """The map of the job with that many subtasks, behind an edge of that kind."""
    return all_of(
        set_at("operators", 1, "parallelism", to=number),
        lambda entry: entry["edges"][0].update(edge),
    )


def _chain(graph: ExecutionGraph, name: str) -> ChainPlan:
    return graph.chain(ChainId(name))


def _ids(graph: ExecutionGraph, name: str) -> tuple[list[str], list[str]]:
    plan = _chain(graph, name)
    return [c.channel for c in plan.inputs], [c.channel for c in plan.channels]


def test_a_job_of_one_chain_has_no_channels(job: Jobs) -> None:
    [chain] = build_graph(job()).chains
    assert (chain.inputs, chain.outlets, chain.subtask, chain.parallelism) == ((), (), 0, 1)


def test_a_partitioned_stage_is_reached_by_all_and_merges_behind(job: Jobs) -> None:
    change = all_of(_parallel(2, partitioned=True), set_at("operators", 1, "key_field", to="k"))
    graph = build_graph(job(change))
    assert [plan.chain for plan in graph.chains] == ["gates-0", "text-0", "text-1", "totals-0"]
    assert _ids(graph, "gates-0") == ([], ["a[0-0]", "a[0-1]"])
    assert _ids(graph, "text-0") == (["a[0-0]"], ["b[0-0]"])
    assert _ids(graph, "text-1") == (["a[0-1]"], ["b[1-0]"])
    assert _ids(graph, "totals-0") == (["b[0-0]", "b[1-0]"], [])
    [outlet] = _chain(graph, "gates-0").outlets
    assert (outlet.output, outlet.kind, outlet.key_fields) == ("a", EdgeKind.PARTITIONED, ("k",))
    assert outlet.max_parallelism == 128
    assert [(c.number, c.source, c.target) for c in outlet.channels] == [
        (0, "gates-0", "text-0"),
        (1, "gates-0", "text-1"),
    ]
    assert [(p.subtask, p.parallelism) for p in graph.chains] == [(0, 1), (0, 2), (1, 2), (0, 1)]
    assert _chain(graph, "gates-0").outputs == ("a",)


@pytest.mark.parametrize("edge", [{"type": "rebalance"}, {"type": "broadcast"}])
def test_rebalance_and_broadcast_reach_every_subtask(job: Jobs, edge: dict[str, str]) -> None:
    graph = build_graph(job(_parallel(3, **edge)))
    [outlet] = _chain(graph, "gates-0").outlets
    assert outlet.kind is EdgeKind(edge["type"])
    assert [c.target for c in outlet.channels] == ["text-0", "text-1", "text-2"]


def test_a_partitioned_edge_without_keys_reaches_every_subtask_and_names_no_key(job: Jobs) -> None:
    [outlet] = _chain(build_graph(job(_parallel(2, partitioned=True))), "gates-0").outlets
    assert (outlet.key_fields, len(outlet.channels)) == ((), 2)


def test_a_partitioned_edge_into_one_subtask_has_one_channel(job: Jobs) -> None:
    change = all_of(set_at("edges", 0, "partitioned", to=True), set_at("parallelism", to=1))
    [outlet] = _chain(build_graph(job(change)), "gates-0").outlets
    assert [c.channel for c in outlet.channels] == ["a[0-0]"]


def test_chains_of_equal_parallelism_are_joined_subtask_by_subtask(job: Jobs) -> None:
    graph = build_graph(
        job(all_of(set_at("parallelism", to=2), set_at("operators", 1, "chain", to=False)))
    )
    assert _ids(graph, "gates-1") == ([], ["a[1-1]"])
    assert _ids(graph, "text-1") == (["a[1-1]"], ["b[1-1]"])


def test_a_fork_has_an_outlet_for_each_edge(job: Jobs) -> None:
    graph = build_graph(job(all_of(add_sink("more"), add_edge("text", "more"))))
    plan = _chain(graph, "gates-0")
    assert plan.tasks == ("gates-0", "text-0")
    assert plan.outputs == ("b", "text-more")
    assert [outlet.output for outlet in plan.outlets] == ["b", "text-more"]


def test_all_error_edges_of_a_chain_leave_by_one_outlet(job: Jobs) -> None:
    apart = all_of(
        add_sink("bad"),
        add_edge("text", "bad", type="error"),
        add_edge("gates", "bad", type="error"),
        set_at("operators", 3, "chain", to=False),
    )
    graph = build_graph(job(apart))
    plan = _chain(graph, "gates-0")
    assert plan.tasks == ("gates-0", "text-0", "totals-0")
    [outlet] = plan.outlets
    assert (plan.error_output, outlet.output, outlet.kind) == (
        "text-bad",
        "text-bad",
        EdgeKind.ERROR,
    )
    assert _ids(graph, "bad-0") == (["text-bad[0-0]"], [])


def test_errors_of_two_chains_merge_in_the_one_sink(job: Jobs) -> None:
    change = all_of(
        _parallel(2, type="rebalance"),
        add_sink("bad"),
        add_edge("gates", "bad", type="error"),
        add_edge("text", "bad", type="error"),
    )
    graph = build_graph(job(change))
    assert _ids(graph, "bad-0")[0] == ["gates-bad[0-0]", "text-bad[0-0]", "text-bad[1-0]"]
    assert _chain(graph, "text-1").error_output == "text-bad"


def test_a_sink_that_also_takes_errors_heads_its_own_chain(job: Jobs) -> None:
    graph = build_graph(job(add_edge("gates", "totals", type="error")))
    assert [plan.chain for plan in graph.chains] == ["gates-0", "totals-0"]
    assert _chain(graph, "gates-0").outputs == ("b",)
    assert _chain(graph, "gates-0").error_output == "gates-totals"


def test_failed_rows_may_go_on_to_an_operator(job: Jobs) -> None:
    repair = {"id": "repair", "kind": "map", "config": {"type": "sql"}}
    change = all_of(
        lambda entry: entry["operators"].append(repair),
        add_edge("text", "repair", type="error"),
        add_edge("repair", "totals"),
    )
    graph = build_graph(job(change))
    assert [plan.chain for plan in graph.chains] == ["gates-0", "totals-0", "repair-0"]
    assert _ids(graph, "repair-0") == (["text-repair[0-0]"], ["repair-totals[0-0]"])


def _sinks(number: int, **edge: Any) -> Callable[[dict[str, Any]], Any]:
    """The sink of the job with that many subtasks, behind an edge of that kind."""
    return all_of(
        set_at("operators", 2, "parallelism", to=number),
        lambda entry: entry["edges"][1].update(edge),
    )


def test_rows_reach_parallel_sinks_in_turn_or_by_the_key_of_the_sink(job: Jobs) -> None:
    in_turn = build_graph(job(all_of(_parallel(2, type="rebalance"), _sinks(3, type="rebalance"))))
    names = [plan.chain for plan in in_turn.chains if plan.sinks]
    assert names == ["totals-0", "totals-1", "totals-2"]
    assert _ids(in_turn, "totals-2")[0] == ["b[0-2]", "b[1-2]"]
    keyed = all_of(_sinks(2, partitioned=True), set_at("operators", 2, "key_field", to="k"))
    [outlet] = _chain(build_graph(job(keyed)), "gates-0").outlets
    assert (outlet.kind, outlet.key_fields) == (EdgeKind.PARTITIONED, ("k",))
    assert [c.target for c in outlet.channels] == ["totals-0", "totals-1"]


def test_a_sink_and_a_side_sink_of_a_parallel_operator_are_in_each_of_its_subtasks(
    job: Jobs,
) -> None:
    bad = all_of(add_sink("bad"), add_edge("text", "bad", type="error"))
    two = set_at("operators", 3, "parallelism", to=2)
    fused = all_of(_parallel(2, type="rebalance"), _sinks(2), bad, two)
    graph = build_graph(job(fused))
    assert [plan.tasks for plan in graph.chains] == [
        ("gates-0",),
        ("text-0", "totals-0", "bad-0"),
        ("text-1", "totals-1", "bad-1"),
    ]
    apart = build_graph(job(all_of(fused, set_at("operators", 3, "chain", to=False))))
    assert [_ids(apart, f"bad-{i}")[0] for i in (0, 1)] == [["text-bad[0-0]"], ["text-bad[1-1]"]]
    assert _chain(apart, "text-1").error_output == "text-bad"


def test_late_rows_leave_by_an_outlet_too(job: Jobs) -> None:
    time = {
        "mode": "event_time",
        "timestamp_field": "at",
        "watermark": {},
        "late_event_policy": "route",
        "late_event_route": "late",
    }
    apart = set_at("operators", 3, "chain", to=False)
    graph = build_graph(job(all_of(set_at("sources", 0, "time", to=time), add_sink("late"), apart)))
    [outlet] = _chain(graph, "gates-0").outlets
    assert (outlet.output, outlet.kind) == ("late-gates-late", EdgeKind.LATE)


@pytest.mark.parametrize(
    ("channel", "inputs", "expected"),
    [
        (None, 1, 32 * MIB),
        (None, 8, 32 * MIB),
        (None, 16, 16 * MIB),
        (None, 1_000, MIB),
        (ChannelSpec(chain_bytes=8 * MIB), 2, 4 * MIB),
        (ChannelSpec(chain_bytes=1), 2, MIB),
        (ChannelSpec(chain_bytes=10_000 * MIB), 2, 32 * MIB),
        (ChannelSpec(capacity_bytes=5), 2, 5),
        (ChannelSpec(capacity_bytes=64 * MIB), 2, 64 * MIB),
    ],
)
def test_a_channel_gets_its_share_of_the_chains_bytes(
    channel: ChannelSpec | None, inputs: int, expected: int
) -> None:
    assert capacity_bytes(channel, inputs) == expected


def test_the_bounds_of_channels_come_from_the_job(job: Jobs) -> None:
    wide = build_graph(job(_parallel(20, type="rebalance")))
    [last] = [plan for plan in wide.chains if plan.chain == "totals-0"]
    assert {(c.capacity, c.capacity_bytes) for c in last.inputs} == {(1_024, 256 * MIB // 20)}
    given = set_at("channel", to={"capacity": 3, "capacity_bytes": 9})
    plans = build_graph(job(all_of(_parallel(2, type="broadcast"), given))).chains
    assert {(c.capacity, c.capacity_bytes) for p in plans for c in p.inputs} == {(3, 9)}


@pytest.mark.parametrize("kind", [EdgeKind.FORWARD, EdgeKind.ERROR, EdgeKind.LATE])
def test_an_edge_that_cannot_be_wired_is_not_guessed(kind: EdgeKind) -> None:
    with pytest.raises(ValueError, match="cannot join 2 subtasks to 3"):
        channel_pairs(kind, 2, 3)


def test_state_of_a_counting_operator_is_planned(job: Jobs) -> None:
    """What `stateful: true` on a processor keeps (S1)."""
    spec = {
        "id": "text",
        "kind": "filter",
        "stateful": True,
        "key_field": "gate",
        "config": {"type": "sql", "query": "q", "state_output_field": "seen"},
    }
    state = {"backend": "redb", "namespace": "n", "max_bytes": 9, "ttl_ms": 5}
    counted = set_at("operators", 1, to=spec)
    [chain] = build_graph(job(all_of(counted, set_at("state", to=state)))).chains
    [operator] = chain.operators
    assert operator.component.config == {"query": "q"}
    assert operator.state is not None
    told = operator.state
    assert (told.namespace, told.key_fields, told.count_field) == ("n", ("gate",), "seen")
    assert (told.max_bytes, told.ttl_ms) == (9, 5)
    plain = all_of(counted, set_at("operators", 1, "config", to={"type": "sql"}))
    [operator] = build_graph(job(plain)).chains[0].operators
    assert operator.state is not None
    assert operator.state.count_field == "__arkflow_state_count"
    assert (operator.state.namespace, operator.state.max_bytes) == ("default", None)


def test_an_operator_that_counts_nothing_has_no_state(job: Jobs) -> None:
    [operator] = build_graph(job()).chains[0].operators
    assert operator.state is None


def test_restarts_are_planned(job: Jobs) -> None:
    """The strategy (D3), and what a job without one gets."""
    assert build_graph(job()).restart == RestartPlan()
    given: dict[str, Any] = {"initial_ms": 7, "max_ms": 9, "multiplier": 1.5, "max_attempts": 2}
    planned = build_graph(job(set_at("restart", to=given))).restart
    assert planned == RestartPlan("exponential", 7, 9, 1.5, max_attempts=2)
    given = {"strategy": "fixed", "initial_ms": 120_000}
    planned = build_graph(job(set_at("restart", to=given))).restart
    assert (planned.strategy, planned.initial_ms, planned.max_ms) == ("fixed", 120_000, 120_000)


@given(valid_jobs(odd_names=True))
def test_random_jobs_are_valid(job: JobSpec) -> None:
    assert [issue for issue in validate_job(job) if not issue.warning] == []


@given(valid_jobs())
def test_every_task_is_in_one_chain_and_plans_are_equal_when_computed_twice(job: JobSpec) -> None:
    graph = build_graph(job)
    planned = [task for plan in graph.chains for task in plan.tasks]
    expected = [
        f"{op.id}-{i}" for op in job.operators for i in range(op.parallelism or job.parallelism)
    ]
    assert sorted(planned) == sorted(expected)
    owner = {task: plan.chain for plan in graph.chains for task in plan.tasks}
    for edge in graph.edges:
        assert edge.fused == (
            owner[TaskId(f"{edge.source}-0")] == owner[TaskId(f"{edge.target}-0")]
        )
    assert build_graph(JobSpec.model_validate_json(job.model_dump_json(by_alias=True))) == graph


@given(valid_jobs())
def test_every_channel_has_one_sender_one_receiver_and_a_number_of_its_own(job: JobSpec) -> None:
    graph = build_graph(job)
    sent = {c.channel: (c, plan.chain) for plan in graph.chains for c in plan.channels}
    taken = {c.channel: (c, plan.chain) for plan in graph.chains for c in plan.inputs}
    assert sum(len(plan.channels) for plan in graph.chains) == len(sent)
    assert sum(len(plan.inputs) for plan in graph.chains) == len(taken)
    assert sent.keys() == taken.keys()
    for name, (channel, sender) in sent.items():
        assert taken[name] == (channel, channel.target)
        assert (channel.source, channel.channel.startswith(f"{channel.edge}[")) == (sender, True)
    assert sorted(c.number for c, _ in sent.values()) == list(range(len(sent)))


@given(valid_jobs())
def test_a_chain_reads_or_has_inputs_and_every_output_leads_somewhere(job: JobSpec) -> None:
    for plan in build_graph(job).chains:
        assert (plan.source is None) == bool(plan.inputs)
        doors = {outlet.output for outlet in plan.outlets}
        sinks = {sink.output for sink in plan.sinks}
        named = {*plan.outputs, *([plan.error_output] if plan.error_output else [])}
        assert doors <= named <= doors | sinks
        assert len(doors) == len(plan.outlets)
        assert sum(outlet.kind is EdgeKind.ERROR for outlet in plan.outlets) <= 1


@given(valid_jobs())
def test_main_edges_between_chains_have_the_channels_of_their_kind(job: JobSpec) -> None:
    graph = build_graph(job)
    width = {op.id: op.parallelism or job.parallelism for op in job.operators}
    for edge in graph.edges:
        if edge.fused or edge.kind is EdgeKind.ERROR:
            continue
        found = _outlets(graph, edge.edge)
        assert [i for i, _ in found] == list(range(width[edge.source]))
        for i, outlet in found:
            subtasks = [int(c.target.rpartition("-")[2]) for c in outlet.channels]
            single = width[edge.target] == 1
            one_to_one = edge.kind is EdgeKind.FORWARD and not single
            assert subtasks == ([i] if one_to_one else list(range(width[edge.target])))


def _outlets(graph: ExecutionGraph, edge: str) -> list[tuple[int, OutletPlan]]:
    return [
        (plan.subtask, outlet)
        for plan in graph.chains
        for outlet in plan.outlets
        if outlet.output == edge
    ]


@given(valid_jobs())
def test_the_subtasks_of_a_partitioned_outlet_own_every_key_group_once(job: JobSpec) -> None:
    graph = build_graph(job)
    for plan in graph.chains:
        for outlet in plan.outlets:
            if outlet.kind is not EdgeKind.PARTITIONED:
                continue
            targets = [graph.chain(channel.target) for channel in outlet.channels]
            owned = [
                group
                for target in targets
                for group in key_group_range(
                    target.subtask, target.parallelism, outlet.max_parallelism
                )
            ]
            assert owned == list(range(graph.max_parallelism))


def _without_numbers(plan: ChainPlan) -> ChainPlan:
    """A plan but for the places of its channels in the whole job."""
    return replace(
        plan,
        inputs=tuple(replace(c, number=0) for c in plan.inputs),
        outlets=tuple(
            replace(o, channels=tuple(replace(c, number=0) for c in o.channels))
            for o in plan.outlets
        ),
    )


@given(valid_jobs(), st.integers(0, 9))
def test_unrelated_operators_leave_every_chain_and_channel_as_it_was(
    job: JobSpec, place: int
) -> None:
    entry = job.model_dump(by_alias=True)
    at = min(place, len(entry["operators"]))
    entry["operators"][at:at] = [
        {"id": "new", "kind": "source", "parallelism": 1},
        {"id": "mid", "kind": "map", "parallelism": 3, "config": {"type": "sql"}},
        {"id": "end", "kind": "sink", "parallelism": 1},
    ]
    entry["edges"][:0] = [
        {"id": "new", "from": "new", "to": "mid", "type": "rebalance"},
        {"id": "end-in", "from": "mid", "to": "end"},
    ]
    entry["sources"].insert(0, entry["sources"][0] | {"operator_id": "new"})
    entry["sinks"].insert(0, {"operator_id": "end", "output_type": "drop"})
    before = {p.chain: _without_numbers(p) for p in build_graph(job).chains}
    after = {
        p.chain: _without_numbers(p) for p in build_graph(JobSpec.model_validate(entry)).chains
    }
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"new-0", "mid-0", "mid-1", "mid-2", "end-0"}
