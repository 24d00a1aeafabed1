"""Valid random jobs for property tests: any graph of a few operators with any parallelism.

Such a job has no error by `validate_job`; it may ask for what this release does not run.
"""

from typing import Any, Final

from hypothesis import strategies as st

from arkflow_kernel.job import JobSpec

_PARALLELISM: Final = st.sampled_from([None, 1, 1, 2, 3])
_KINDS: Final = st.sampled_from(["map", "filter", "udf", "aggregate"])
_SUFFIX: Final = st.sampled_from(["", "", "", "-0", '"', "[0-0]", "\n;", " #1;", "é<b>&"])
_CHANNELS: Final = st.sampled_from(
    [None, {"capacity": 7}, {"capacity_bytes": 5_000}, {"chain_bytes": 40 * 2**20}]
)
_ALIKE: Final[list[dict[str, Any]]] = [{}, {}, {"type": "forward"}]
_ANY: Final[list[dict[str, Any]]] = [
    {"partitioned": True},
    {"type": "rebalance"},
    {"type": "broadcast"},
]


@st.composite
def valid_jobs(draw: st.DrawFn, *, odd_names: bool = False) -> JobSpec:
    """A valid job of two to eight operators. `odd_names`: ids hold quotes, brackets, lines."""
    sources = [_operator(draw, f"s{i}", "source", odd_names) for i in range(draw(_upto(1, 2)))]
    middle = [_operator(draw, f"m{i}", draw(_KINDS), odd_names) for i in range(draw(_upto(0, 4)))]
    sinks = [_operator(draw, f"z{i}", "sink", odd_names) for i in range(draw(_upto(1, 2)))]
    whole = draw(st.sampled_from([1, 2]))
    edges = _main_edges(draw, sources, middle, sinks, whole)
    operators = [*sources, *middle, *sinks]
    edges += _error_edges(draw, operators, edges, whole)
    order = draw(st.permutations(operators))
    time = {"mode": "processing_time"}
    return JobSpec.model_validate(
        {
            "id": "random",
            "version": 1,
            "parallelism": whole,
            "max_parallelism": draw(st.sampled_from([3, 16, 128])),
            "operators": order,
            "edges": draw(st.permutations(edges)),
            "sources": [
                {"operator_id": op["id"], "input_type": "memory", "time": time}
                for op in order
                if op["kind"] == "source"
            ],
            "sinks": [
                {"operator_id": op["id"], "output_type": "drop"}
                for op in order
                if op["kind"] == "sink"
            ],
            "channel": draw(_CHANNELS),
        }
    )


def _upto(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


def _operator(draw: st.DrawFn, name: str, kind: str, odd_names: bool) -> dict[str, Any]:
    found = {
        "id": name + (draw(_SUFFIX) if odd_names else ""),
        "kind": kind,
        "chain": draw(st.integers(0, 5)) > 0,
        "parallelism": draw(_PARALLELISM),
    }
    if kind not in ("source", "sink"):
        keyed = draw(st.booleans())
        found |= {"config": {"type": "sql"}, "stateful": keyed, "key_field": "k" if keyed else None}
    return found


def _main_edges(
    draw: st.DrawFn,
    sources: list[dict[str, Any]],
    middle: list[dict[str, Any]],
    sinks: list[dict[str, Any]],
    whole: int,
) -> list[dict[str, Any]]:
    """Every operator gets rows from one or two before it; none ends without a way to a sink."""
    pairs: dict[tuple[str, str], dict[str, Any]] = {}

    def connect(start: dict[str, Any], end: dict[str, Any]) -> None:
        styles = _styles(start, end, whole)
        pairs.setdefault(
            (start["id"], end["id"]),
            {"id": f"e{len(pairs)}", "from": start["id"], "to": end["id"]}
            | draw(st.sampled_from(styles)),
        )

    for at, end in enumerate(middle):
        before = [*sources, *middle[:at]]
        for start in draw(st.lists(st.sampled_from(before), min_size=1, max_size=2)):
            connect(start, end)
    for end in sinks:
        connect(draw(st.sampled_from([*sources, *middle])), end)
    for start in [*sources, *middle]:
        if not any(start["id"] == begin for begin, _ in pairs):
            connect(start, draw(st.sampled_from(sinks)))
    return list(pairs.values())


def _styles(start: dict[str, Any], end: dict[str, Any], whole: int) -> list[dict[str, Any]]:
    """How an edge between the two may distribute rows (G2, G4)."""
    above, below = (operator["parallelism"] or whole for operator in (start, end))
    if below > 1 and end.get("stateful"):
        return [{"partitioned": True}]
    return [*_ALIKE, *_ANY] if below in (1, above) else _ANY


def _error_edges(
    draw: st.DrawFn, operators: list[dict[str, Any]], edges: list[dict[str, Any]], whole: int
) -> list[dict[str, Any]]:
    """Perhaps error edges, all into one sink: that of a main edge, or one of their own."""
    joined = {(edge["from"], edge["to"]) for edge in edges}
    target = draw(st.sampled_from([None, "own", "own", "shared"]))
    if target is None:
        return []
    if target == "own":
        sink = {"id": "bad", "kind": "sink", "parallelism": draw(_PARALLELISM)}
        operators.append(sink)
    else:
        sink = draw(st.sampled_from([op for op in operators if op["kind"] == "sink"]))
    below = sink["parallelism"] or whole
    starts = [
        op["id"]
        for op in operators
        if op["kind"] != "sink"
        and (op["id"], sink["id"]) not in joined
        and below in (1, op["parallelism"] or whole)
    ]
    chosen = draw(st.lists(st.sampled_from(starts), unique=True)) if starts else []
    if target == "own" and not chosen:
        operators.remove(sink)
    return [
        {"id": f"x-{start}", "from": start, "to": sink["id"], "type": "error"} for start in chosen
    ]


__all__ = ["valid_jobs"]
