"""A cluster of a head and three workers on this host, in a process of its own, for tests that take
nodes away.

Prints its address and its processes as a line of JSON. For each line of its stdin it starts what is
missing of the three workers and prints the same again; it ends with its stdin.
"""

import json
import logging
import shutil
import sys
import tempfile
from contextlib import suppress
from typing import Any, Final

from ray._private import ray_constants
from ray._private.node import Node
from ray.cluster_utils import Cluster

MIB: Final = 1024 * 1024
WORKERS: Final = 3
PATIENCE: Final = 3
STORE: Final[dict[str, Any]] = {"object_store_memory": 100 * MIB}
HEALTH: Final = {
    "health_check_initial_delay_ms": 5_000,
    "health_check_period_ms": 1_000,
    "health_check_timeout_ms": 3_000,
    "health_check_failure_threshold": 4,
}
"""A node that stands still is dead after 16 s instead of a minute."""


class Nodes:
    """The cluster: a head that gives no `hand`, and workers that give one each."""

    def __init__(self, folder: str) -> None:
        self.cluster = Cluster()
        self.workers: list[Node] = []
        try:
            self.cluster.add_node(
                **STORE,
                num_cpus=4,
                temp_dir=folder,
                include_dashboard=False,
                _system_config=HEALTH,
            )
            self.fill()
        except BaseException:
            self.close()
            raise

    def fill(self) -> None:
        """Start workers until there are as many as there shall be."""
        for node in [node for node in self.workers if _raylet(node).poll() is not None]:
            with suppress(Exception):  # what is left of its processes; Ray raises nothing precise
                self.cluster.remove_node(node)
            self.workers.remove(node)
        while len(self.workers) < WORKERS:
            worker = self.cluster.add_node(**STORE, num_cpus=4, resources={"hand": 1})
            self.workers.append(worker)

    def told(self) -> dict[str, Any]:
        """Its address, and the processes by which nodes are taken away."""
        head: Any = self.cluster.head_node
        (gcs,) = head.all_processes[ray_constants.PROCESS_TYPE_GCS_SERVER]
        return {
            "address": self.cluster.address,
            "gcs": gcs.process.pid,
            "raylets": [_raylet(node).pid for node in self.workers],
        }

    def close(self) -> None:
        """End it."""
        self.cluster.shutdown()  # type: ignore[no-untyped-call]


def _raylet(node: Node) -> Any:
    """The process of a node that all its others belong to."""
    (raylet,) = node.all_processes[ray_constants.PROCESS_TYPE_RAYLET]
    return raylet.process


def main() -> None:
    """Start it, tell, mend, end it."""
    logging.disable(logging.WARNING)
    folder = tempfile.mkdtemp(prefix="afn-", dir="/tmp")  # sockets of Ray need a short path
    try:
        nodes = _patiently(folder)
        try:
            print(json.dumps(nodes.told()), flush=True)
            for _ in sys.stdin:
                nodes.fill()
                print(json.dumps(nodes.told()), flush=True)
        finally:
            nodes.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _patiently(folder: str) -> Nodes:
    """A busy machine does not start a node within the half minute that Ray waits for one."""
    for _ in range(PATIENCE):
        with suppress(Exception):  # Ray raises nothing more precise
            return Nodes(folder)
    return Nodes(folder)


if __name__ == "__main__":
    main()
