"""How each system is started on shaped hosts, and its program run there.

All get the same hosts, links and repetitions. sooner, Ray and Dask have a node or worker per host
and a driver on the first; OpenMPI and Gloo a process per host. What a system starts inherits the
marker of the probe, so whatever is left of it ends with that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bodies.hosts import Plan
from systems import gloo
from systems.shaped import BENCH, Bed

# Several values of 64 MB and what they leave behind.
STORE_BYTES = 512 << 20
PINS = 1000
RAY_PORT = 6379
DASK_PORT = 8786
READY_S = 60.0
# What is told to every OpenMPI: one process per host, TCP only, and no spinning, because the hosts
# share the processors.
OPENMPI = {
    "pml": "ob1",
    "btl": "tcp,self",
    "btl_tcp_if_include": "eth0",
    "mpi_yield_when_idle": "1",
}
# Pipelines in segments, instead of what OpenMPI chooses.
OPENMPI_TUNED = {
    "coll": "^han,adapt",
    "coll_tuned_use_dynamic_rules": "1",
    "coll_tuned_bcast_algorithm": "3",
    "coll_tuned_bcast_algorithm_segmentsize": str(128 << 10),
    "coll_tuned_reduce_algorithm": "3",
    "coll_tuned_reduce_algorithm_segmentsize": str(128 << 10),
    # A ring.
    "coll_tuned_allreduce_algorithm": "4",
}
# Runs a script whose first argument is the name of a host of its own.
_AS_HOST = ("unshare", "--uts", "sh", "-c")
Program = subprocess.Popen[str]


class Sooner:
    """A node on each host, the head on the first, where the driver is."""

    def __init__(self, bed: Bed, plan: Plan) -> None:
        self._bed = bed
        first = bed.hosts[0]
        store = f"--object-store-memory={STORE_BYTES}"
        head = first.json("start", "--head", "--num-cpus=0", f"--host={first.address}", store)
        self._address: str = head["address"]
        self._token = first.sooner("token").stdout.strip()
        pids = [head["pid"], *(self.join(number) for number in range(1, plan.hosts))]
        given = replace(plan, address=head["session_dir"], pids=pids)
        self.program = _objects(bed, given)

    def join(self, number: int) -> int:
        """Start the node of a host; its process."""
        told = self._bed.hosts[number].json(
            "start",
            f"--address={self._address}",
            "--num-cpus=1",
            f"--resources={_pins(number)}",
            f"--object-store-memory={STORE_BYTES}",
            SOONER_TOKEN=self._token,
        )
        return int(told["pid"])


class Ray:
    """A node on each host, the head on the first, where the driver is."""

    def __init__(self, bed: Bed, plan: Plan) -> None:
        address = f"{bed.hosts[0].address}:{RAY_PORT}"
        # A head that others can reach wants a token of them.
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
        command = str(Path(sys.executable).with_name("ray"))
        for number, host in enumerate(bed.hosts):
            role = ["--head", f"--port={RAY_PORT}", "--include-dashboard=false"]
            started = bed.start(
                number,
                command,
                "start",
                *([f"--address={address}"] if number else role),
                f"--node-ip-address={host.address}",
                f"--num-cpus={min(1, number)}",
                f"--resources={_pins(number)}",
                f"--object-store-memory={STORE_BYTES}",
                "--disable-usage-stats",
                **secret,
            )
            said, _ = started.communicate(timeout=READY_S)
            if started.returncode:
                raise RuntimeError(f"Ray did not start on host {number}: {said.strip()}")
        self.program = _objects(bed, replace(plan, address=address), **secret)


class Dask:
    """The scheduler on the first host, and a worker with one thread on each."""

    def __init__(self, bed: Bed, plan: Plan) -> None:
        address = f"tcp://{bed.hosts[0].address}:{DASK_PORT}"
        _dask(bed, 0, "scheduler", f"--port={DASK_PORT}", "--no-dashboard")
        for number in range(plan.hosts):
            _dask(
                bed,
                number,
                "worker",
                address,
                f"--name={number}",
                "--nthreads=1",
                "--no-nanny",
                "--no-dashboard",
                "--memory-limit=0",
            )
        self.program = _script(bed, "systems.hosts_dask", replace(plan, address=address))


class OpenMpi:
    """A rank on each host, with OpenMPI's own choice of algorithms, or the best known one."""

    def __init__(self, bed: Bed, plan: Plan, settings: dict[str, str]) -> None:
        agent = bed.hosts[0].base / "agent"
        agent.write_text(_agent(bed))
        agent.chmod(0o700)
        given = {**OPENMPI, **settings}
        self.program = bed.start(
            0,
            *_AS_HOST,
            'hostname "$0" && exec "$@"',
            _name(0),
            str(Path(sys.executable).with_name("mpirun")),
            "--allow-run-as-root",
            "--host",
            ",".join(f"{host.address}:1" for host in bed.hosts),
            "--map-by",
            "node",
            "--bind-to",
            "none",
            "--prtemca",
            "plm_ssh_agent",
            str(agent),
            "--prtemca",
            "prte_if_include",
            "eth0",
            *(word for name, value in given.items() for word in ("--mca", name, value)),
            # What a rank inherits of the environment is up to mpirun.
            "env",
            f"PYTHONPATH={BENCH}",
            sys.executable,
            "-m",
            "systems.hosts_openmpi",
            plan.text(),
            TMPDIR=str(bed.hosts[0].base),
        )


class Gloo:
    """A process on each host, in C++."""

    def __init__(self, bed: Bed, plan: Plan) -> None:
        driver, libraries = gloo.driver()
        meeting = bed.hosts[0].base / "meeting"
        meeting.mkdir()
        started = [
            bed.start(
                number,
                str(driver),
                str(number),
                str(plan.hosts),
                str(meeting),
                str(plan.warm),
                str(plan.turns),
                str(plan.limit_s),
                *map(str, plan.sizes),
                LD_LIBRARY_PATH=libraries,
            )
            for number in range(plan.hosts)
        ]
        self.program = started[0]


SYSTEMS: dict[str, Callable[[Bed, Plan], Any]] = {
    "sooner": Sooner,
    "ray": Ray,
    "dask": Dask,
    "openmpi": lambda bed, plan: OpenMpi(bed, plan, OPENMPI_TUNED),
    "openmpi_default": lambda bed, plan: OpenMpi(bed, plan, {}),
    "gloo": Gloo,
}


def run(name: str, bed: Bed, plan: Plan) -> Iterator[dict[str, Any]]:
    """Start a system and give what its program tells. A node that it has killed starts again."""
    system = SYSTEMS[name](bed, plan)
    program: Program = system.program
    assert program.stdin is not None
    assert program.stdout is not None
    for line in program.stdout:
        if not line.startswith("{"):
            print(line, end="", flush=True)
            continue
        event = json.loads(line)
        if event["event"] == "killed":
            program.stdin.write(f"{system.join(event['host'])}\n")
            program.stdin.flush()
        elif event["event"] == "done":
            return
        else:
            yield event
    raise RuntimeError(f"the program of {name} ended with exit status {program.wait()}")


def _pins(number: int) -> str:
    return json.dumps({f"host{number}": PINS})


def _script(bed: Bed, module: str, plan: Plan, **environment: str) -> Program:
    return bed.start(0, sys.executable, "-m", module, plan.text(), **environment)


def _objects(bed: Bed, plan: Plan, **environment: str) -> Program:
    return _script(bed, "systems.hosts_objects", plan, **environment)


def _dask(bed: Bed, number: int, role: str, *arguments: str) -> None:
    bed.start(
        number,
        str(Path(sys.executable).with_name("dask")),
        role,
        f"--host={bed.hosts[number].address}",
        *arguments,
    )


def _name(number: int) -> str:
    return f"bench-host-{number}"


def _agent(bed: Bed) -> str:
    """What OpenMPI starts instead of ssh: `agent ADDRESS COMMAND...`, the command on that host.

    A host has a name of its own, or its process would be taken for one of the same machine.
    """
    cases = "\n".join(
        f"{host.address}) pid={host.space.pid} name={_name(number)} ;;"
        for number, host in enumerate(bed.hosts)
    )
    return f"""#!/bin/sh
address=$1
shift
case $address in
{cases}
*) echo "no such host: $address" >&2; exit 1 ;;
esac
in_host="nsenter --net=/proc/$pid/ns/net -- {" ".join(_AS_HOST)}"
exec $in_host 'hostname "$0" && eval "$1"' "$name" "$*"
"""
