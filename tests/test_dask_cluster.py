"""Dask on several nodes: where tasks run, and which way their values go."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sooner
from sooner.cluster_utils import Cluster

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402

from sooner.util.dask import enable_dask_on_sooner  # noqa: E402

MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster():
    # The program's node cannot hold what the others pass to each other.
    head = {"num_cpus": 1, "object_store_memory": 16 * MIB}
    with Cluster(initialize_head=True, head_node_args=head) as made:
        for name in ("one", "two"):
            made.add_node(num_cpus=1, resources={name: 1}, object_store_memory=256 * MIB)
        made.wait_for_nodes()
        made.connect()
        yield made


def node_of(_=None):
    return sooner.get_runtime_context().get_node_id()


def test_values_go_from_node_to_node(cluster):
    two = cluster.worker_nodes[1].node_id
    with dask.annotate(sooner_remote_args={"resources": {"one": 1}}):
        whole = dask.delayed(lambda: {n: np.full(24 * MIB, n, "u1") for n in range(3)})()
    parts = [whole[n] for n in range(3)]
    with dask.annotate(sooner_remote_args={"resources": {"two": 1}}):
        sums = [dask.delayed(lambda array: (node_of(), int(array.sum(dtype=int))))(part) for part in parts]
    with enable_dask_on_sooner():
        assert dask.compute(*sums) == tuple((two, 24 * MIB * n) for n in range(3))


def test_collections(cluster):
    with enable_dask_on_sooner():
        x = da.arange(90_000, chunks=10_000).reshape(300, 300).rechunk((50, 300))
        assert (x + x.T).sum().compute() == 90_000 * 89_999
        table = pd.DataFrame({"a": np.random.default_rng(5).permutation(5000), "b": 1})
        frame = dd.from_pandas(table, npartitions=6)
        ordered = frame.set_index("a").compute()
        assert list(ordered.index) == list(range(5000))
        joined = frame.merge(frame, on="a", shuffle_method="tasks", broadcast=False)
        assert len(joined.compute()) == 5000


def test_options_choose_the_node(cluster):
    with enable_dask_on_sooner():
        places = dask.compute(
            *[dask.delayed(node_of, pure=False)() for _ in range(3)], sooner_remote_args={"num_cpus": 1}
        )
        everywhere = [
            dask.compute(dask.delayed(node_of, pure=False)(), sooner_remote_args={"resources": {name: 1}})[0]
            for name in ("one", "two")
        ]
    assert set(places) <= {node["NodeID"] for node in sooner.nodes()}
    assert everywhere == [node.node_id for node in cluster.worker_nodes]
