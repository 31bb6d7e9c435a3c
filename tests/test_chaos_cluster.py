"""A workload with known answers on a cluster whose nodes, processes, head and network fail at random.

`SOONER_CHAOS_SECONDS` says for how long; `make chaos` takes three minutes, the test suite ten seconds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from proxy import Faults, Proxy
from storm import Keeper, Storm, make, send, sha, what_is_held
from support import WAIT, is_alive, parent_of, poll, processes_of, run_command

import sooner
from sooner.util import placement_group, remove_placement_group
from sooner.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SECONDS = float(os.environ.get("SOONER_CHAOS_SECONDS", "10"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(max(300, SECONDS + 200))]

# Of a node that the storm goes over, so that work is on several.
CPUS = 2
BAD_NETWORK = Faults(corrupt=0.02, lose=0.02, double=0.02, swap=0.02, cut=0.02, delay=0.02)


class Host:
    """Where one node of the cluster is, is killed, and is started again."""

    def __init__(self, name, base, *options):
        self.base = base
        self.options = [f"--node-name={name}", *options]
        self.node = None
        self.may_lose_template = False

    def start(self, head=None, token=None):
        """Starts the node, a head if no head is given. Asks again for a while: the head may be away."""
        role = ["--head"] if head is None else [f"--address={head}"]
        environment = {} if token is None else {"SOONER_TOKEN": token}
        command = ["start", *role, "--object-store-memory=64M", "--json", *self.options]

        def started():
            done = run_command(*command, base=self.base, check=None, **environment)
            told = json.loads(done.stdout)
            # The name of a node that was killed is taken until that is known.
            assert done.returncode in (0, 3, 4, 5, 8), told
            return told if done.returncode == 0 else None

        self.node = poll(f"{self.options[0]} has started", started)
        self.may_lose_template = True

    @property
    def pid(self):
        return self.node["pid"]

    def kill(self):
        # It may have ended: what nobody could reach for too long is gone.
        send(self.pid, signal.SIGKILL)
        poll("it is gone", lambda: not is_alive(self.pid))

    def workers(self):
        return sorted(processes_of(self.pid) - {self.pid, *self.templates()})

    def templates(self):
        """Those that the node started itself; they start the workers."""
        return [pid for pid in processes_of(self.pid) if parent_of(pid) == self.pid]


class Places:
    """A head, a node where the program is and that nothing happens to, and two others, one behind a proxy."""

    def __init__(self, base):
        paths = {name: base / name for name in ("h", "p", "a", "b")}
        for path in paths.values():
            path.mkdir(mode=0o700)
        self.head = Host("head", paths["h"], "--num-cpus=0", "--health-timeout=3")
        self.program = Host("program", paths["p"], "--num-cpus=1")
        self.near = Host("near", paths["a"], f"--num-cpus={CPUS}")
        self.far = Host("far", paths["b"], f"--num-cpus={CPUS}")
        self.head.start()
        self.token = run_command("token", base=paths["h"]).stdout.strip()
        self.proxy = Proxy(self.head.node["address"], seed=9)
        for host in (self.program, self.near, self.far):
            self.join(host)

    def join(self, host):
        host.start(self.proxy.address if host is self.far else self.head.node["address"], self.token)

    def mend(self):
        """Starts the far node again if it has ended, as one does that the head could not reach for too
        long.
        """
        if not is_alive(self.far.pid):
            self.join(self.far)

    def close(self):
        self.proxy.close()
        for host in (self.program, self.near, self.far, self.head):
            run_command("stop", "--force", base=host.base, check=None)


class Havoc(Storm):
    """Everything that can happen to nodes and the head, one after the other."""

    def __init__(self, places, seed, seconds):
        super().__init__(seed, seconds)
        self.places = places

    def disturb(self):
        places, chance = self.places, self.chance
        harm = [
            (6, self.kill_worker),
            (3, self.stop_worker),
            (1, self.kill_template),
            (2, self.kill_node),
            (2, self.stop_node),
            (2, self.kill_head),
            (2, self.spoil_network),
        ]
        weights, acts = [weight for weight, _ in harm], [act for _, act in harm]
        # Each of them once, whatever chance says.
        first = chance.sample(acts, len(acts))
        try:
            while time.monotonic() < self.deadline or first:
                time.sleep(chance.uniform(0.05, 0.3))
                act = first.pop() if first else chance.choices(acts, weights)[0]
                act()
                self.done[act.__name__] += 1
        finally:
            places.proxy.faults = Faults()

    def victim(self):
        return self.chance.choice([self.places.near, self.places.far])

    def kill_worker(self):
        if workers := self.victim().workers():
            send(self.chance.choice(workers), signal.SIGKILL)

    def kill_template(self):
        """Once in a node's life: one whose templates end again and again gives up, and says so."""
        host = self.victim()
        if host.may_lose_template and (templates := host.templates()):
            host.may_lose_template = False
            send(templates[0], signal.SIGKILL)

    def stop_worker(self):
        if workers := self.victim().workers():
            self.stop(self.chance.choice(workers), 0.4)

    def stop_node(self):
        # Well below the time after which it is gone.
        self.stop(self.victim().pid, 0.8)

    def stop(self, pid, longest):
        if send(pid, signal.SIGSTOP):
            time.sleep(self.chance.uniform(0, longest))
            send(pid, signal.SIGCONT)

    def kill_node(self):
        host = self.victim()
        host.kill()
        time.sleep(self.chance.uniform(0, 0.5))
        self.places.proxy.faults = Faults()
        self.places.join(host)

    def kill_head(self):
        self.places.head.kill()
        time.sleep(self.chance.uniform(0, 0.5))
        self.places.head.start()

    def spoil_network(self):
        self.places.proxy.faults = self.chance.choice([BAD_NETWORK, Faults(vanish=True), Faults()])
        if self.chance.random() < 0.5:
            self.places.proxy.cut_all()

    def named_actors(self, seed):
        """A name that was given is found, whoever has been killed since."""
        name = seed.replace(" ", "-")
        kept = Keeper.options(name=name, lifetime="detached").remote()
        sooner.get(kept.next.remote(), timeout=WAIT)
        found = sooner.get(sooner.get_actor(name).next.remote(), timeout=WAIT)
        self.check("named actors", found[1] >= 1)
        sooner.kill(kept)

    def groups(self, seed):
        group = placement_group([{"CPU": 0.5}] * 2, "SPREAD")
        sooner.get(group.ready(), timeout=WAIT)
        strategy = PlacementGroupSchedulingStrategy(group)
        value = sooner.get(make.options(scheduling_strategy=strategy).remote(seed), timeout=WAIT)
        self.check("groups", len(sha(value)) == 64)
        remove_placement_group(group)

    def work(self):
        return [*super().work(), self.named_actors, self.groups]


@pytest.fixture
def places():
    # Short, because the paths of sockets are.
    base = Path(f"/tmp/wt-storm-{os.getpid()}")
    base.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base)
        made = Places(base)
        stack.callback(made.close)
        yield made


def test_a_storm_over_nodes_head_and_network(places, nothing_left):
    sooner.init(address=places.program.node["session_dir"], namespace="storm", log_to_driver=False)
    storm = Havoc(places, 5, SECONDS)
    storm.rage(storm.disturb)
    print(dict(storm.done))
    assert not storm.problems, "\n".join(storm.problems)
    for what in (
        "nested tasks",
        "large values",
        "borrowed refs",
        "generators",
        "actor calls",
        "named actors",
        "groups",
    ):
        assert storm.done[what] > 0, what
    storm.keepers.clear()

    def are_there():
        places.mend()
        return len([node for node in sooner.nodes() if node["Alive"]]) == 4

    poll("all are there", are_there)
    gc.collect()
    try:
        poll("nothing is held", lambda: not what_is_held())
    except AssertionError:
        pytest.fail(f"still held: {what_is_held()}")
    total = 1 + 2 * CPUS
    poll("all CPUs are free", lambda: sooner.available_resources().get("CPU") == total)
    sooner.shutdown()
    for host in (places.near, places.far, places.program, places.head):
        assert is_alive(host.pid), host.options
        run_command("stop", base=host.base)
        poll("nothing is left of it", lambda host=host: not processes_of(host.pid))
