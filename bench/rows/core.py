"""Rows 1 to 22 of the microbenchmark over the core API, for sooner and for Ray alike.

The engine is the one that `bodies.core` imported: one text for both keeps the rows the same.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from bodies import core as bodies_core
from bodies import plain as bodies
from bodies.core import api, ok_task
from harness.measure import Body, Row

MIB = 1 << 20
# The original rows use half the CPUs on either side of a call.
HALF = max(1, (os.cpu_count() or 2) // 2)


def _servers(count: int, cls: type = bodies.Server, **options: Any) -> list[Any]:
    """Start actors and wait until each has answered."""
    actor = api.remote(cls)
    made = [actor.options(**options).remote() if options else actor.remote() for _ in range(count)]
    api.get([server.ok.remote() for server in made])
    return made


def _plain(count: int = 1, **options: Any) -> list[Any]:
    return _servers(count, num_cpus=0, **options)


def _clients(servers: list[list[Any]]) -> list[Any]:
    """Start one client actor for each list of servers."""
    actor = api.remote(bodies_core.ActorClient).options(num_cpus=0)
    clients = [actor.remote(group) for group in servers]
    api.get([client.ready.remote() for client in clients])
    return clients


def _get_small() -> Body:
    ref = api.put(0)
    return lambda: api.get(ref)


def _put_small() -> Body:
    return lambda: api.put(0)


def _put_small_ten_tasks() -> Body:
    task = api.remote(bodies_core.put_small)
    return lambda: api.get([task.remote(100) for _ in range(10)])


def _put_large() -> Body:
    array = bodies_core.touched_zeros(100 * MIB)
    return lambda: api.put(array)


def _put_large_ten_tasks() -> Body:
    task = api.remote(bodies_core.put_large)
    return lambda: api.get([task.remote(10, 10 * MIB) for _ in range(10)])


def _get_large(mebibytes: int) -> Body:
    import numpy as np

    ref = api.put(np.arange(mebibytes * MIB // 8))
    value = api.get(ref)
    # The row asks for no copy: what comes back is a view that nobody can write through.
    assert not value.flags.owndata, "the array was copied"
    assert not value.flags.writeable, "the array is writable, so it cannot be the shared one"
    assert value[-1] == mebibytes * MIB // 8 - 1
    return lambda: api.get(ref)


def _sum(count: int, mebibytes: int) -> Body:
    """Sum arrays of as many actors into one value of the store."""
    made = [server.ones.remote(mebibytes * MIB) for server in _plain(count)]
    api.wait(made, num_returns=count)

    def sooner_sum() -> Any:
        total = api.reduce(made)
        return api.get(total)[0]

    def get_and_add() -> Any:
        total = api.get(made[0]).copy()
        for ref in made[1:]:
            total += api.get(ref)
        return api.get(api.put(total))[0]

    body = sooner_sum if hasattr(api, "reduce") else get_and_add
    assert body() == count, "the sum is another one"
    return body


def _tasks(count: int) -> Body:
    return lambda: api.get([ok_task.remote() for _ in range(count)])


def _read_items(count: int) -> Body:
    generator = api.remote(bodies.items).options(num_returns="streaming")

    def read() -> None:
        for ref in generator.remote(count):
            api.get(ref)

    return read


def _placement_groups(count: int) -> Body:
    # As in Ray's microbenchmark; a share of a CPU, which both have, is its "custom" resource here.
    util = importlib.import_module(f"{api.__name__}.util")

    def create_and_remove() -> None:
        groups = [util.placement_group(bundles=[{"CPU": 0.001}]) for _ in range(count)]
        assert all(group.wait(timeout_seconds=30) for group in groups)
        for group in groups:
            util.remove_placement_group(group)

    return create_and_remove


def _get_ten_thousand_refs() -> Body:
    ref = api.remote(bodies_core.make_refs).remote(10_000)
    assert len(api.get(ref)) == 10_000
    return lambda: api.get(ref)


def _wait_thousand() -> Body:
    def drain() -> None:
        rest = [ok_task.remote() for _ in range(1000)]
        fetch_local = True
        while rest:
            _, rest = api.wait(rest, num_returns=1, fetch_local=fetch_local)
            fetch_local = False

    return drain


def _task_sync() -> Body:
    return lambda: api.get(ok_task.remote())


def _tasks_four_clients(count: int) -> Body:
    actor = api.remote(bodies_core.TaskClient).options(num_cpus=0)
    clients = [actor.remote() for _ in range(4)]
    api.get([client.ready.remote() for client in clients])
    return lambda: api.get([client.submit.remote(count) for client in clients])


def _call_sync(servers: list[Any]) -> Body:
    method = servers[0].ok
    return lambda: api.get(method.remote())


def _call_async(servers: list[Any]) -> Body:
    method = servers[0].ok
    return lambda: api.get([method.remote() for _ in range(1000)])


def _call_with_int(servers: list[Any]) -> Body:
    method = servers[0].ok_of
    return lambda: api.get([method.remote(index) for index in range(1000)])


def _one_to_many(servers: list[Any], count: int) -> Body:
    client = _clients([servers])[0]
    return lambda: api.get(client.call_each.remote(count))


def _many_to_many(servers: list[Any], count: int) -> Body:
    task = api.remote(bodies_core.call_round_robin)
    return lambda: api.get([task.remote(servers, count) for _ in range(4)])


def _many_with_ref() -> Body:
    clients = _clients([[server] for server in _plain(HALF)])
    return lambda: api.get([client.call_each_with_ref.remote(1000) for client in clients])


def _async_servers(count: int = 1) -> list[Any]:
    return _servers(count, bodies.AsyncServer)


def rows(scale: float) -> dict[str, Row]:
    """Every row by its key; `scale` shortens the bodies that take a slow engine half a minute."""
    many, calls = int(10_000 * scale), int(5_000 * scale)
    array_gb, part_gb = 800 * MIB / 1e9, 80 * MIB / 1e9
    return {
        "get_small": Row(_get_small),
        "put_small": Row(_put_small),
        "put_small_ten_tasks": Row(_put_small_ten_tasks, 1000),
        "put_800_mib": Row(_put_large, array_gb, warm=6),
        "tasks_batch": Row(lambda: _tasks(1000)),
        "put_80_mib_ten_tasks": Row(_put_large_ten_tasks, 100 * part_gb, warm=6),
        "get_10k_refs": Row(_get_ten_thousand_refs),
        "wait_1k_refs": Row(_wait_thousand),
        "task_sync": Row(_task_sync),
        "tasks_async": Row(lambda: _tasks(1000), 1000),
        "tasks_four_clients": Row(lambda: _tasks_four_clients(many), 4 * many),
        "actor_sync": Row(lambda: _call_sync(_plain())),
        "actor_async": Row(lambda: _call_async(_plain()), 1000),
        "actor_concurrent": Row(lambda: _call_async(_plain(max_concurrency=16)), 1000),
        "actor_1_n": Row(lambda: _one_to_many(_plain(HALF), calls), calls * HALF),
        "actor_n_n": Row(lambda: _many_to_many(_plain(HALF), calls), 4 * calls),
        "actor_n_n_arg": Row(_many_with_ref, 1000 * HALF),
        "async_actor_sync": Row(lambda: _call_sync(_async_servers())),
        "async_actor_async": Row(lambda: _call_async(_async_servers()), 1000),
        "async_actor_arg": Row(lambda: _call_with_int(_async_servers()), 1000),
        "async_actor_1_n": Row(lambda: _one_to_many(_async_servers(HALF), calls), calls * HALF),
        "async_actor_n_n": Row(lambda: _many_to_many(_async_servers(HALF), calls), 4 * calls),
        "generator": Row(lambda: _read_items(1000), 1000),
        "sum_8_64_mib": Row(lambda: _sum(8, 64), 8 * 64 * MIB / 1e9, warm=6),
        "placement_groups": Row(lambda: _placement_groups(100), 100),
        "get_8_mib": Row(lambda: _get_large(8), micros=True),
        "get_80_mib": Row(lambda: _get_large(80), micros=True),
        "get_800_mib": Row(lambda: _get_large(800), micros=True),
    }
