"""Plans of joins (J1, J3, J4): what validated settings mean.

What the sources say about late rows is planned at the joins that judge them first.
"""

from arkflow_kernel.job import OperatorSpec
from arkflow_kernel.operator_config import JoinConfig, TemporalJoinConfig, join_model
from arkflow_kernel.plan import JoinPlan, JoinSidePlan, LatePolicy, VersionsPlan
from arkflow_kernel.topology import Topology


def join_plan(topology: Topology, spec: OperatorSpec) -> JoinPlan:
    """The join of an operator of that kind."""
    config = join_model(spec.config).model_validate(spec.config)
    edges = {edge.from_: edge.id for edge in topology.inputs[spec.id]}
    left_outer, right_outer = _outer(config)
    interval = config if isinstance(config, JoinConfig) else None
    return JoinPlan(
        left=JoinSidePlan(
            edges[config.left_from], config.left_key, config.left_timestamp, outer=left_outer
        ),
        right=JoinSidePlan(
            edges[config.right_from], config.right_key, config.right_timestamp, outer=right_outer
        ),
        window_ms=0 if interval is None else interval.window_ms,
        ttl_ms=0 if interval is None else interval.ttl_ms,
        max_per_key=config.max_per_key,
        evicts_oldest=config.on_overflow == "evict_oldest",
        late=_late(topology, spec.id),
        versions=_versions(config),
    )


def _outer(config: JoinConfig | TemporalJoinConfig) -> tuple[bool, bool]:
    """Which sides' rows leave without a match."""
    if isinstance(config, TemporalJoinConfig):
        return config.unmatched == "keep", False
    kind = config.join_type
    return kind in ("left_outer", "full_outer"), kind in ("right_outer", "full_outer")


def _versions(config: JoinConfig | TemporalJoinConfig) -> VersionsPlan | None:
    if isinstance(config, TemporalJoinConfig):
        return VersionsPlan(config.version_ttl_ms)
    return None


def join_shape(plan: JoinPlan) -> str:
    """What the state of a join means, for a person: another one's cannot be gone on with (M6)."""
    if plan.versions is not None:
        ttl = plan.versions.ttl_ms
        held = "" if ttl is None else f" that hold {ttl:,} ms"
        kept = "outer " if plan.left.outer else ""
        return f"{kept}temporal join with versions{held}"
    more = f" and {plan.ttl_ms:,} ms more" if plan.ttl_ms else ""
    return f"{join_kind(plan)} join of rows at most {plan.window_ms:,} ms apart{more}"


def join_kind(plan: JoinPlan) -> str:
    """Which rows leave without a match: `inner`, `left_outer`, `right_outer`, `full_outer`."""
    left, right = plan.left.outer, plan.right.outer
    if left and right:
        return "full_outer"
    if left:
        return "left_outer"
    return "right_outer" if right else "inner"


def _late(topology: Topology, join: str) -> LatePolicy:
    """The policy of the sources whose rows the join judges first, which agree on it (W6)."""
    sources = topology.judged_by(join)
    if not sources:
        return LatePolicy.DROP
    return LatePolicy(topology.sources[sources[0]].time.late_event_policy)


__all__ = ["join_kind", "join_plan", "join_shape"]
