"""A cluster of four raylets on this host, with 16 CPUs each by what they declare.

In a process of its own, as that of `two_nodes.py`, which answers in the same way.
"""

from typing import Any

from ray.cluster_utils import Cluster

from tests.integration.two_nodes import MIB, serve

NODES = 4


def started(folder: str) -> Cluster:
    """A head and three more nodes. Raises `Exception` if they do not come up."""
    common: dict[str, Any] = {"num_cpus": 16, "object_store_memory": 80 * MIB}
    cluster = Cluster()
    try:
        cluster.add_node(**common, temp_dir=folder, include_dashboard=False)
        for _ in range(NODES - 1):
            cluster.add_node(**common)
        cluster.wait_for_nodes()
    except BaseException:
        cluster.shutdown()  # type: ignore[no-untyped-call]
        raise
    return cluster


if __name__ == "__main__":
    serve(started)
