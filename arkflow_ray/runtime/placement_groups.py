"""Ray's side of placement: its nodes, and the placement groups of one run of a job (P6, K7)."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from arkflow_kernel.chain_slots import Amounts
from arkflow_ray.runtime.demands import Node


class RayCluster:
    """The Ray that this process is connected to: a `placement.Cluster` for one run of a job."""

    def __init__(self, run: str) -> None:
        self._run = run

    def nodes(self) -> list[Node]:
        """See `placement.Cluster`."""
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return [
            Node(dict(node["Resources"]), dict(node.get("Labels", {})))
            for node in nodes
            if node["Alive"]
        ]

    def free(self) -> Amounts:
        """See `placement.Cluster`."""
        free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        return free

    def reserve(self, bundles: Sequence[Amounts], strategy: str, labels: Mapping[str, str]) -> Any:
        """See `placement.Cluster`."""
        more: dict[str, Any] = {}
        if labels:
            more["bundle_label_selector"] = [dict(labels)] * len(bundles)
        name = f"{_prefix(self._run)}{secrets.token_hex(6)}"
        return placement_group([dict(each) for each in bundles], strategy, name, **more)

    def is_ready(self, group: PlacementGroup, timeout_s: float) -> bool:
        """See `placement.Cluster`."""
        return bool(group.wait(timeout_s))

    def is_at_work_on(self, group: PlacementGroup) -> bool:
        """See `placement.Cluster`."""
        told: dict[str, Any] = placement_group_table(group)
        return told["stats"]["scheduling_state"] in ("QUEUED", "SCHEDULING_STARTED")

    def is_there(self, group: PlacementGroup) -> bool:
        """See `placement.Cluster`."""
        told: dict[str, Any] = placement_group_table(group)
        return bool(told["state"] == "CREATED")

    def remove(self, group: PlacementGroup) -> None:
        """See `placement.Cluster`."""
        remove_placement_group(group)

    def remove_left(self) -> None:
        """See `placement.Cluster`."""
        remove_groups(self._run)


def remove_groups(run: str) -> None:
    """Remove all groups of a run. Whatever sits in them is killed by that."""
    for told in placement_group_table().values():
        if told["name"].startswith(_prefix(run)) and told["state"] != "REMOVED":
            with suppress(ValueError, RayError):  # it has gone meanwhile
                remove_placement_group(get_placement_group(told["name"]))


def _prefix(run: str) -> str:
    """How the names of the groups of one run of a job begin."""
    return f"arkflow-{run}-"


__all__ = ["RayCluster", "remove_groups"]
