"""Plans of operators that keep something per key without windows: what settings mean (J5-J7)."""

from dataclasses import replace

from arkflow_kernel.job import OperatorSpec
from arkflow_kernel.keyed_config import (
    ContinuousConfig,
    DeduplicateConfig,
    KeyedConfig,
    TopNConfig,
    keyed_model,
)
from arkflow_kernel.plan import (
    AggregatePlan,
    ContinuousPlan,
    DeduplicatePlan,
    KeyedPlan,
    StatePlan,
    TopNPlan,
)
from arkflow_kernel.window_config import aggregate_name


def keyed_plan(spec: OperatorSpec) -> KeyedPlan | None:
    """What such an operator does; None for another."""
    model = keyed_model(spec)
    return None if model is None else _plan(model.model_validate(spec.config))


def _plan(config: KeyedConfig) -> KeyedPlan:
    match config:
        case ContinuousConfig():
            listed = config.aggregates
            return ContinuousPlan(
                tuple(AggregatePlan(a.function, a.field, aggregate_name(a)) for a in listed),
                config.timestamp_field,
                config.emit_interval_ms,
                config.overflow is None,
            )
        case TopNConfig():
            return TopNPlan(config.by, config.n, config.order == "desc", config.rank_field)
        case _:
            assert isinstance(config, DeduplicateConfig)
            return DeduplicatePlan()


def keyed_state(
    plan: KeyedPlan, spec: OperatorSpec, state: StatePlan, ttl_ms: int | None
) -> StatePlan:
    """The state of such an operator, given that of any; `ttl_ms` is that of the job's `state`."""
    own = spec.config.get("ttl_ms")
    return replace(state, ttl_ms=ttl_ms if own is None else own, shape=keyed_shape(plan))


def keyed_shape(plan: KeyedPlan) -> str:
    """What the state means, for a person: another one's cannot be gone on with (M6)."""
    match plan:
        case ContinuousPlan():
            kept = ", ".join(f"{a.function}({a.field or '*'})" for a in plan.aggregates)
            return f"aggregates of all rows: {kept}"
        case DeduplicatePlan():
            return "keys that have had a row"
        case TopNPlan():
            which = "greatest" if plan.descending else "least"
            return f"the {plan.count:,} rows with the {which} {plan.by}"


__all__ = ["keyed_plan", "keyed_shape", "keyed_state"]
