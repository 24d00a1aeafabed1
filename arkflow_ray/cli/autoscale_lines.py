"""What `status` says of autoscaling, for a person (K6)."""

from collections.abc import Iterator
from typing import Any

from arkflow_kernel.durations import age_text


def autoscale_lines(told: dict[str, Any]) -> Iterator[str]:
    """Lines of a status; none for a job that asks for no autoscaling."""
    scaling = told.get("autoscale")
    if scaling is None:
        return
    yield f"  autoscale {scaling['mode']}: {scaling['text']}"
    for operator, reason in scaling["kept"].items():
        yield f"            '{operator}' stays as it is: {reason}"
    decision = scaling["decision"]
    if decision is not None:
        yield f"  decided   {age_text(decision['age_ms'])} ago: {decision['text']}"


__all__ = ["autoscale_lines"]
