"""Fusion and plans (G1-G6): examples by hand, and random graphs against a stupid oracle."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.fusion import fuse
from arkflow_kernel.graph import PYTHON_TIMEOUT_MS, build_graph, key_group_range
from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import CheckpointPlan, EdgeKind, Mode
from arkflow_kernel.stream_compiler import compile_stream
from arkflow_kernel.testing.job_changes import WINDOW
from arkflow_kernel.topology import Topology

Jobs = Callable[..., JobSpec]


def _line(*operators: dict[str, Any], **keys: Any) -> JobSpec:
    """A job `in -> operators... -> out`; an operator's `edge` is that of the edge into it."""
    middle = [{"kind": "map", "config": {"type": "sql"}} | dict(o) for o in operators]
    edges = [o.pop("edge", {}) for o in middle]
    names = ["in", *[o["id"] for o in middle], "out"]
    links = [*edges, keys.pop("last_edge", {})]
    entry = {
        "id": "line",
        "version": 1,
        "operators": [{"id": "in", "kind": "source"}, *middle, {"id": "out", "kind": "sink"}],
        "edges": [
            {"id": f"{a}-{b}", "from": a, "to": b} | link
            for a, b, link in zip(names, names[1:], links, strict=False)
        ],
        "sources": [
            {"operator_id": "in", "input_type": "memory", "time": {"mode": "processing_time"}}
        ],
        "sinks": [{"operator_id": "out", "output_type": "drop"}],
    }
    return JobSpec.model_validate(entry | keys)


def _chains(job: JobSpec) -> dict[str, list[str]]:
    return {plan.chain: list(plan.tasks) for plan in build_graph(job).chains}


def test_a_stream_is_one_chain_with_its_error_sink_inside() -> None:
    entry = {
        "id": "s",
        "input": {"type": "file", "codec": "json", "name": "in", "rows_per_second": 5, "path": "p"},
        "pipeline": {
            "thread_num": 4,
            "processors": [
                {"type": "python", "name": "f", "function": "g"},
                {"type": "python", "function": "g", "timeout_ms": 5},
                {"type": "sql", "query": "q"},
            ],
        },
        "output": {"type": "stdout", "codec": {"type": "json"}},
        "error_output": {"type": "file", "path": "${secret:X}"},
    }
    graph = build_graph(compile_stream(StreamSpec.model_validate(entry), 0).job)
    [chain] = graph.chains
    assert (chain.chain, graph.mode, chain.workers) == ("source-0", Mode.ACK, 4)
    assert chain.tasks == ("source-0", "f-0", "p1-python-0", "p2-sql-0", "sink-0", "error-sink-0")
    assert chain.source is not None
    assert chain.source.rows_per_second == 5.0
    component = chain.source.component
    assert (component.type, component.name, component.codec) == ("file", "in", {"type": "json"})
    assert component.config == {"path": "p"}
    assert [o.timeout_ms for o in chain.operators] == [PYTHON_TIMEOUT_MS, 5, None]
    assert chain.operators[0].component.config == {"function": "g"}
    assert chain.operators[1].component.config == {"function": "g", "timeout_ms": 5}
    assert [s.component.codec for s in chain.sinks] == [{"type": "json"}, None]
    assert chain.sinks[1].component.config == {"path": "${secret:X}"}
    assert (chain.outputs, chain.error_output) == (("sink",), "error-sink")
    assert all(edge.fused for edge in graph.edges)


def test_a_codec_inside_the_config_of_a_source_is_its_codec(job: Jobs) -> None:
    spec = job(lambda entry: entry["sources"][0].update(config={"codec": "json", "type": "memory"}))
    [chain] = build_graph(spec).chains
    assert chain.source is not None
    assert chain.source.component.codec == {"type": "json"}
    assert chain.source.component.config == {}


@pytest.mark.parametrize(
    ("operators", "keys", "expected"),
    [
        ([{"id": "a"}, {"id": "b"}], {}, ["in,a,b,out"]),
        ([{"id": "a", "chain": False}, {"id": "b"}], {}, ["in", "a", "b,out"]),
        ([{"id": "a"}, {"id": "b", "edge": {"partitioned": True}}], {}, ["in,a", "b,out"]),
        ([{"id": "a"}, {"id": "b", "edge": {"type": "rebalance"}}], {}, ["in,a", "b,out"]),
        ([{"id": "a", "edge": {"type": "broadcast"}}], {}, ["in", "a,out"]),
        ([{"id": "a", "edge": {"type": "forward"}}], {}, ["in,a,out"]),
        ([{"id": "a", "resources": {"num_gpus": 1.0}}], {}, ["in", "a", "out"]),
        (
            [{"id": "a", "resources": {"num_gpus": 1.0}}],
            {"resources": {"num_gpus": 1.0}},
            ["in,a,out"],
        ),
        (
            [{"id": "w", "kind": "window", "config": {"key_field": "k"}}],
            {},
            ["in,w,out"],
        ),
    ],
)
def test_neighbours_fuse_unless_something_between_them_says_no(
    operators: list[dict[str, Any]], keys: dict[str, Any], expected: list[str]
) -> None:
    job = _line(*operators, **keys)
    assert [",".join(chain.operators) for chain in fuse(Topology(job))] == expected


def test_parallel_operators_fuse_subtask_by_subtask() -> None:
    job = _line({"id": "a"}, {"id": "b"}, parallelism=3)
    assert _chains(job) == {
        f"in-{i}": [f"in-{i}", f"a-{i}", f"b-{i}", f"out-{i}"] for i in range(3)
    }


def test_a_partitioned_stage_has_a_chain_per_subtask_and_merges_behind() -> None:
    keyed = {
        "id": "w",
        "kind": "window",
        "parallelism": 2,
        "config": WINDOW,
        "edge": {"partitioned": True},
    }
    graph = build_graph(_line({"id": "a"}, keyed))
    assert [plan.chain for plan in graph.chains] == ["in-0", "w-0", "w-1", "out-0"]
    assert [plan.outputs for plan in graph.chains] == [("a-w",), ("w-out",), ("w-out",), ("out",)]
    assert [(e.kind, e.key_fields, e.fused) for e in graph.edges] == [
        (EdgeKind.FORWARD, (), True),
        (EdgeKind.PARTITIONED, ("k",), False),
        (EdgeKind.FORWARD, (), False),
    ]
    assert graph.mode is Mode.CHECKPOINT


def test_each_side_of_a_join_is_partitioned_by_its_own_key(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        sides = {"left_from": "gates", "right_from": "b", "left_key": "x", "right_key": "y"}
        config = {**sides, "window_ms": 1_000}
        entry["operators"][1] = {"id": "text", "kind": "join", "config": config}
        entry["operators"].append({"id": "b", "kind": "source"})
        entry["sources"].append(entry["sources"][0] | {"operator_id": "b"})
        entry["edges"][0]["partitioned"] = True
        entry["edges"].append({"id": "r", "from": "b", "to": "text", "partitioned": True})

    edges = build_graph(job(change)).edges
    assert [(edge.edge, edge.key_fields) for edge in edges] == [
        ("a", ("x",)),
        ("b", ()),
        ("r", ("y",)),
    ]


def test_a_window_over_all_rows_has_no_key() -> None:
    config = WINDOW | {"key_field": "__arkflow_window_all"}
    job = _line({"id": "w", "kind": "window", "config": config, "edge": {"partitioned": True}})
    graph = build_graph(job)
    assert graph.edges[0].key_fields == ()
    [window] = graph.chain(graph.chains[1].chain).operators
    assert window.state is not None
    assert (window.state.key_fields, window.state.count_field) == ((), None)


def _with_errors(job: JobSpec, *starts: str, **sink: Any) -> JobSpec:
    entry = job.model_dump(by_alias=True, exclude_none=True)
    entry["operators"].append({"id": "bad", "kind": "sink"} | sink)
    entry["sinks"].append({"operator_id": "bad", "output_type": "drop"})
    for name in starts:
        entry["edges"].append({"id": f"e-{name}", "from": name, "to": "bad", "type": "error"})
    return JobSpec.model_validate(entry)


def test_a_side_sink_joins_the_one_chain_that_feeds_it() -> None:
    job = _with_errors(_line({"id": "a"}), "in", "a")
    [chain] = build_graph(job).chains
    assert chain.tasks == ("in-0", "a-0", "out-0", "bad-0")
    assert (chain.outputs, chain.error_output) == (("out",), "bad")


def test_a_side_sink_of_two_chains_is_a_chain_of_its_own() -> None:
    job = _with_errors(_line({"id": "a", "chain": False}), "in", "a")
    graph = build_graph(job)
    assert [plan.chain for plan in graph.chains] == ["in-0", "a-0", "out-0", "bad-0"]
    assert [plan.error_output for plan in graph.chains] == ["e-in", "e-a", None, None]
    assert graph.chain(graph.chains[3].chain).outputs == ("bad",)


@pytest.mark.parametrize("sink", [{"chain": False}, {"parallelism": 2}])
def test_a_side_sink_that_differs_from_its_chain_stands_alone(sink: dict[str, Any]) -> None:
    chains = [c.operators for c in fuse(Topology(_with_errors(_line({"id": "a"}), "a", **sink)))]
    assert chains == [("in", "a", "out"), ("bad",)]


def test_late_rows_leave_at_the_source_and_at_the_operator_that_judges_them() -> None:
    time = {
        "mode": "event_time",
        "timestamp_field": "at",
        "watermark": {},
        "late_event_policy": "route",
        "late_event_route": "bad",
    }
    job = _line({"id": "a"}, {"id": "w", "kind": "window", "config": WINDOW})
    entry = _with_errors(job).model_dump(by_alias=True)
    entry["sources"][0]["time"] = time
    graph = build_graph(JobSpec.model_validate(entry))
    late = [(e.edge, e.source, e.fused) for e in graph.edges if e.kind is EdgeKind.LATE]
    assert late == [("late-in-bad", "in", True), ("late-w-bad", "w", True)]
    [chain] = graph.chains
    assert chain.tasks == ("in-0", "a-0", "w-0", "out-0", "bad-0")
    assert (chain.late_output, chain.timed) == ("bad", True)


def test_kept_rows_force_one_worker_and_other_chains_inherit_their_sources() -> None:
    keys: dict[str, Any] = {"__arkflow_processor_parallelism": 4}

    def workers(job: JobSpec) -> list[int]:
        entry = job.model_dump(by_alias=True)
        entry["operators"][0]["config"] = keys
        return [plan.workers for plan in build_graph(JobSpec.model_validate(entry)).chains]

    assert workers(_line({"id": "a"})) == [4]
    assert workers(_line({"id": "a", "chain": False})) == [1, 4, 1]
    assert workers(_line({"id": "a", "stateful": True, "key_field": "k"})) == [1]
    assert workers(_line({"id": "a", "config": {"type": "batch", "count": 1}})) == [1]


def test_resources_of_a_chain_are_those_that_its_operators_share() -> None:
    ask = {"num_cpus": 0.5, "memory_bytes": 10, "custom": {"tpu": 1.0}}
    plans = build_graph(_line({"id": "a"}, resources=ask)).chains
    assert [plan.resources for plan in plans] == [{"num_cpus": 0.5, "memory_bytes": 10, "tpu": 1.0}]


def test_modes_of_jobs() -> None:
    """What decides between ack and checkpoint mode (F0)."""
    checkpoint = {"object_store_uri": "file:///x"}
    exactly = [{"operator_id": "out", "output_type": "file", "config": {"exactly_once": True}}]
    assert build_graph(_line()).mode is Mode.ACK
    assert build_graph(_line(checkpoint=checkpoint)).mode is Mode.CHECKPOINT
    assert build_graph(_line(sinks=exactly)).mode is Mode.CHECKPOINT
    assert build_graph(_line({"id": "b", "config": {"type": "batch"}})).mode is Mode.CHECKPOINT


def test_a_plan_has_a_checkpoint_policy_exactly_in_checkpoint_mode() -> None:
    """F0: the block's values, or an ephemeral folder and 10 s without it; B5, M5."""
    block = {
        "object_store_uri": "s3://b/x",
        "interval_ms": 5,
        "retention": 2,
        "tolerable_failures": 0,
        "timeout_ms": 7,
    }
    graph = build_graph(_line(checkpoint=block, recovery="latest_savepoint"))
    assert graph.checkpoint == CheckpointPlan("s3://b/x", 5, 2, 0, 7, "latest_savepoint")
    assert [plan.mode for plan in graph.chains] == [Mode.CHECKPOINT]
    default = build_graph(_line(checkpoint={"object_store_uri": "file:///x"})).checkpoint
    assert default == CheckpointPlan("file:///x", 30_000)
    unsaved = build_graph(_line({"id": "b", "config": {"type": "batch"}}))
    assert unsaved.checkpoint == CheckpointPlan(root=None, interval_ms=10_000)
    acknowledged = build_graph(_line())
    assert acknowledged.checkpoint is None
    assert [plan.mode for plan in acknowledged.chains] == [Mode.ACK]


@pytest.mark.parametrize(
    ("parallelism", "maximum", "expected"),
    [(2, 16, [(0, 8), (8, 16)]), (3, 128, [(0, 42), (42, 85), (85, 128)]), (1, 1, [(0, 1)])],
)
def test_key_group_ranges_of_the_reference(
    parallelism: int, maximum: int, expected: list[tuple[int, int]]
) -> None:
    found = [key_group_range(i, parallelism, maximum) for i in range(parallelism)]
    assert [(r.start, r.stop) for r in found] == expected


@pytest.mark.parametrize(("subtask", "parallelism"), [(-1, 2), (2, 2), (0, 17), (0, 0)])
def test_a_subtask_that_does_not_exist_owns_no_key_group(subtask: int, parallelism: int) -> None:
    with pytest.raises(ValueError, match="no subtask"):
        key_group_range(subtask, parallelism, 16)


@given(st.integers(1, 300).flatmap(lambda top: st.tuples(st.integers(1, top), st.just(top))))
def test_every_key_group_has_exactly_one_owner(sizes: tuple[int, int]) -> None:
    parallelism, maximum = sizes
    owned = [g for i in range(parallelism) for g in key_group_range(i, parallelism, maximum)]
    assert owned == list(range(maximum))


@st.composite
def _dags(draw: st.DrawFn) -> JobSpec:
    """Any acyclic job: sources first, sinks last, edges of all types, side sinks."""
    size = draw(st.integers(0, 6))
    sources, sinks = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    names = [f"s{i}" for i in range(sources)] + [f"m{i}" for i in range(size)]
    last = [f"z{i}" for i in range(sinks)]
    kinds = st.sampled_from(["map", "map", "map", "window", "udf"])
    operators = []
    for name in names + last:
        kind = {"s": "source", "z": "sink"}.get(name[0]) or draw(kinds)
        operators.append(
            {
                "id": name,
                "kind": kind,
                "config": {"type": "sql"} if kind in ("map", "udf") else {},
                "chain": draw(st.integers(0, 7)) > 0,
                "parallelism": draw(st.sampled_from([1, 1, 1, 2])),
            }
        )
    order = names + last
    style: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
        [{}, {}, {}, {"partitioned": True}, {"type": "rebalance"}, {"type": "error"}]
    )
    edges = []
    for j, end in enumerate(order):
        starts = [n for n in order[:j] if n[0] != "z"] if end[0] != "s" else []
        chosen = draw(st.lists(st.sampled_from(starts), max_size=2, unique=True)) if starts else []
        edges += [{"id": f"{a}-{end}", "from": a, "to": end} | draw(style) for a in chosen]
    time = {"mode": "processing_time"}
    return JobSpec.model_validate(
        {
            "id": "random",
            "version": 1,
            "operators": draw(st.permutations(operators)),
            "edges": draw(st.permutations(edges)),
            "sources": [
                {"operator_id": n, "input_type": "memory", "time": time}
                for n in names
                if n[0] == "s"
            ],
            "sinks": [{"operator_id": n, "output_type": "drop"} for n in last],
        }
    )


def _stupid(job: JobSpec) -> set[frozenset[str]]:
    """G1 word for word: merge sets of names until nothing more merges."""
    spec = {operator.id: operator for operator in job.operators}
    main = [e for e in job.edges if e.type != "error"]
    aside = {e.to for e in job.edges if e.type == "error"}
    groups = [{name} for name in spec]

    def merge(one: str, other: str) -> None:
        a, b = (next(g for g in groups if n in g) for n in (one, other))
        if a is not b:
            groups.remove(b)
            a |= b

    def alike(one: str, other: str) -> bool:
        a, b = spec[one], spec[other]
        return a.chain and b.chain and (a.parallelism or 1) == (b.parallelism or 1)

    for edge in main:
        only = [e for e in main if e.from_ == edge.from_ or e.to == edge.to] == [edge]
        plain = not edge.partitioned and edge.type in (None, "forward")
        if only and plain and edge.to not in aside and alike(edge.from_, edge.to):
            merge(edge.from_, edge.to)
    before = [set(group) for group in groups]
    for name, operator in spec.items():
        feeding = [e.from_ for e in job.edges if e.to == name]
        side = all(e.type == "error" for e in job.edges if e.to == name)
        one = sum(1 for group in before if group & set(feeding)) == 1
        if operator.kind == "sink" and side and one and all(alike(f, name) for f in feeding):
            merge(feeding[0], name)
    return {frozenset(group) for group in groups}


@settings(max_examples=60, deadline=None)
@given(_dags())
def test_fusion_equals_the_stupid_merge_of_sets(job: JobSpec) -> None:
    clever = [chain.operators for chain in fuse(Topology(job))]
    assert {frozenset(names) for names in clever} == _stupid(job)
    assert sorted(n for names in clever for n in names) == sorted(o.id for o in job.operators)


@settings(max_examples=50, deadline=None)
@given(_dags())
def test_validation_of_any_graph_ends_and_is_the_same_twice(job: JobSpec) -> None:
    assert validate_job(job) == validate_job(job)
