"""A cluster of two raylets on this host, in a process of its own: Ray's `Cluster` waits for none of
the processes that it starts, and whoever looks into a cluster is connected to it.

Prints the cluster's address, then for each line of its stdin what is there, as JSON; ends with it.
"""

import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table

MIB = 1024 * 1024
PATIENCE = 3


def look() -> dict[str, Any]:
    """Names of the placement groups that are not removed, and what each node has."""
    groups = [each for each in placement_group_table().values() if each["state"] != "REMOVED"]
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    has = {node["NodeID"]: node["Resources"] for node in nodes if node["Alive"]}
    return {"groups": [each["name"] for each in groups], "nodes": has}


def started(folder: str) -> Cluster:
    """A head, and a node with two `tpu` and a label. Raises `Exception` if it does not come up."""
    common: dict[str, Any] = {"num_cpus": 8, "object_store_memory": 128 * MIB}
    cluster = Cluster()
    try:
        cluster.add_node(**common, temp_dir=folder, include_dashboard=False)
        cluster.add_node(**common, resources={"tpu": 2}, labels={"zone": "b"})
        cluster.wait_for_nodes()
    except BaseException:
        cluster.shutdown()  # type: ignore[no-untyped-call]
        raise
    return cluster


def serve(started: Callable[[str], Cluster]) -> None:
    """Start a cluster, answer, end it. `started` is given the folder of its head."""
    folder = tempfile.mkdtemp(prefix="afr-")
    try:
        cluster = _patiently(started, folder)
        try:
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            print(cluster.address, flush=True)
            for _ in sys.stdin:
                print(json.dumps(look()), flush=True)
            ray.shutdown()
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _patiently(started: Callable[[str], Cluster], folder: str) -> Cluster:
    """A busy machine does not start a node within the half minute that Ray waits for one."""
    for _ in range(PATIENCE):
        with suppress(Exception):  # Ray raises nothing more precise
            return started(folder)
    return started(folder)


if __name__ == "__main__":
    serve(started)
