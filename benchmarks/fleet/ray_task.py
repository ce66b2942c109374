"""Runs in Ray's own environment: how long a task takes on the node of its caller, and on another one. Prints JSON."""

from __future__ import annotations

import json
import sys
import time

import ray
from ray.cluster_utils import Cluster


def main(tasks: int) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"here": 1}})
    try:
        cluster.add_node(num_cpus=1, resources={"there": 1})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        cluster.wait_for_nodes()
        nothing = ray.remote(lambda: None)
        found = {}
        for where in ("here", "there"):
            one = nothing.options(resources={where: 0.001}, num_cpus=0)
            # The first ones start the process that runs them.
            for _ in range(20):
                ray.get(one.remote())
            found[where] = [timed(one) for _ in range(tasks)]
        print(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


def timed(task: ray.remote_function.RemoteFunction) -> float:
    began = time.perf_counter()
    ray.get(task.remote())
    return time.perf_counter() - began


if __name__ == "__main__":
    main(int(sys.argv[1]))
