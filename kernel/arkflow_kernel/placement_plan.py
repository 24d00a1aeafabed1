"""Where the chains of a job go on a cluster, as the job asks for it (P6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final


class Placing(Enum):
    """How chains are spread over the nodes.

    COLOCATED, the default: chains that talk most share a node, and subtasks of one operator go to
    several nodes if there are several. PACK: on as few nodes as possible. SPREAD: each chain on
    another node, as far as there are so many. STRICT_SPREAD: no two subtasks of one operator on
    the same node, or the job is not placed.
    """

    COLOCATED = "colocated"
    PACK = "pack"
    SPREAD = "spread"
    STRICT_SPREAD = "strict_spread"


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """`labels` are those that a node must have; without any, every node will do."""

    placing: Placing = Placing.COLOCATED
    labels: Mapping[str, str] = field(default_factory=dict)


ANYWHERE: Final = PlacementPlan()
"""That of a job that says nothing about it."""


def placement_plan(placement: str | Mapping[str, Any]) -> PlacementPlan:
    """The plan of a valid `placement:`. ArkFlow's `split` is SPREAD."""
    if isinstance(placement, str):
        return PlacementPlan(Placing.SPREAD if placement == "split" else Placing(placement))
    placing = Placing(placement.get("strategy", Placing.COLOCATED.value))
    return PlacementPlan(placing, dict(placement.get("labels", {})))


__all__ = ["ANYWHERE", "PlacementPlan", "Placing", "placement_plan"]
