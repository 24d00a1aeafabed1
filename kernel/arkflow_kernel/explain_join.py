"""What an explanation says of a join (C7): as data, and in sentences."""

from dataclasses import dataclass
from typing import Any

from arkflow_kernel.explain_time import late_text
from arkflow_kernel.join_plans import join_kind, join_shape
from arkflow_kernel.plan import JoinPlan, JoinSidePlan, LatePolicy, OperatorPlan
from arkflow_kernel.topology import Topology


@dataclass(frozen=True, slots=True)
class ExplainedSide:
    """A side of a join: the operator that it comes from, its key and its time."""

    source: str
    key: str
    timestamp_field: str


@dataclass(frozen=True, slots=True)
class ExplainedJoin:
    """A join (J1, J3, J9). `text`: what it joins, in a few words. `held_back_ms`: how far its
    watermark is behind that of its inputs. `version_ttl_ms`: of a temporal one, which has no
    `window_ms`.
    """

    join_type: str
    text: str
    left: ExplainedSide
    right: ExplainedSide
    window_ms: int | None
    ttl_ms: int
    version_ttl_ms: int | None
    held_back_ms: int
    max_per_key: int
    on_overflow: str
    late_policy: str
    late_route: str | None


def explained_join(topology: Topology, plan: OperatorPlan) -> ExplainedJoin | None:
    """Of an operator, if it is a join."""
    join = plan.join
    if join is None:
        return None
    routed, versions = join.late is LatePolicy.ROUTE, join.versions
    return ExplainedJoin(
        join_type="temporal" if versions is not None else join_kind(join),
        text=_text(join),
        left=_side(topology, join.left),
        right=_side(topology, join.right),
        window_ms=None if versions is not None else join.window_ms,
        ttl_ms=join.ttl_ms,
        version_ttl_ms=None if versions is None else versions.ttl_ms,
        held_back_ms=join.hold_ms,
        max_per_key=join.max_per_key,
        on_overflow="evict_oldest" if join.evicts_oldest else "fail",
        late_policy=_policy(join),
        late_route=dict(topology.late).get(plan.operator) if routed else None,
    )


def _text(join: JoinPlan) -> str:
    if join.versions is not None:
        return join_shape(join)
    return f"{join_kind(join).replace('_', ' ')} join of rows at most {join.window_ms:,} ms apart"


def _policy(join: JoinPlan) -> str:
    """A join corrects nothing: what is late under `update` is dropped (J4)."""
    return "route" if join.late is LatePolicy.ROUTE else "drop"


def _side(topology: Topology, side: JoinSidePlan) -> ExplainedSide:
    sources = {edge.id: edge.from_ for edge in topology.main}
    return ExplainedSide(sources[side.edge], side.key, side.timestamp_field)


def join_texts(join: dict[str, Any]) -> list[str]:
    """An `ExplainedJoin` that was made a dict."""
    left, right = join["left"], join["right"]
    sides = " with ".join(f"{s['source']} by {s['key']}" for s in (left, right))
    times = " and ".join(dict.fromkeys(s["timestamp_field"] for s in (left, right)))
    told = [f"{join_text(join)}: {sides}, on event time {times}"]
    if join["ttl_ms"]:
        told.append(f"rows kept {join['ttl_ms']:,} ms longer")
    then = "then the oldest go" if join["on_overflow"] == "evict_oldest" else "more fail"
    if join["join_type"] == "temporal":
        told.append("a row leaves when the watermark has passed its time")
        told.append(f"late rows of {left['source']}: {late_text(join)}")
        told.append(f"at most {join['max_per_key']:,} rows of a key wait, {then}")
        return told
    told.append(f"its watermark is {join['held_back_ms']:,} ms behind that of its inputs")
    told.append(f"late rows: {late_text(join)}")
    told.append(f"at most {join['max_per_key']:,} rows of a key and side, {then}")
    return told


def join_text(join: dict[str, Any]) -> str:
    """What it joins, in a few words."""
    return str(join["text"])


__all__ = ["ExplainedJoin", "ExplainedSide", "explained_join", "join_text", "join_texts"]
