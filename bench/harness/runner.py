"""Runs the agents and probes, one at a time, and gathers what they report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import environment, footprint
from harness.child import Child
from harness.measure import Pace
from plans.catalog import (
    CORE_KEYS,
    EXECUTOR_KEYS,
    IDLE_KEYS,
    JOBLIB_KEYS,
    LIMIT_KEYS,
    POOL_KEYS,
    PROBE_KEYS,
)
from report.results import Results

MIB = 1 << 20
START_LIMIT_S = 90.0
ROW_LIMIT_S = 90.0
# How often an agent is started again for the rows after one that hung.
RESTARTS_MAX = 3
PEER_KEYS: dict[str, tuple[str, ...]] = {
    "sooner": (*CORE_KEYS, *EXECUTOR_KEYS, *POOL_KEYS, *JOBLIB_KEYS),
    "ray": CORE_KEYS,
    "pool": ("task_sync", "tasks_async", "tasks_batch", *POOL_KEYS),
    "executor": ("task_sync", "tasks_async", "tasks_batch", *EXECUTOR_KEYS),
    "dask": (
        "get_small",
        "put_small",
        "task_sync",
        "tasks_async",
        "tasks_batch",
        "actor_sync",
        "actor_async",
    ),
    "loky": JOBLIB_KEYS,
    "limits": LIMIT_KEYS,
}


@dataclass
class Runner:
    """What all measuring processes of one run share.

    Attributes:
        wanted: Keys of the rows to measure.
        unwanted: Keys that a peer leaves out, by peer.
    """

    python: Path
    scratch: Path
    logs: Path
    pace: Pace
    wanted: set[str]
    results: Results
    unwanted: dict[str, tuple[str, ...]]

    def _child(self, module: str, peer: str, arguments: Iterable[object]) -> Child:
        log = self.logs / f"{peer}-{module.rpartition('.')[2]}.log"
        env = environment.child_environment(peer, self.scratch)
        return Child(self.python, module, [str(argument) for argument in arguments], env, log)

    def start_only(self, peer: str) -> None:
        """Start a peer, have its first task answered, and stop it."""
        if "startup" in self.wanted:
            self._agent(peer, [])

    def rows(self, peer: str) -> None:
        """Visit every wanted row of a peer once, in a fresh process."""
        unwanted = self.unwanted.get(peer, ())
        keys = [key for key in PEER_KEYS[peer] if key in self.wanted and key not in unwanted]
        if not keys:
            return
        for _ in range(1 + RESTARTS_MAX):
            keys = self._agent(peer, keys)
            if not keys:
                return
        for key in keys:
            self.results.fail(peer, key, "not run: rows before it hung or crashed too often")

    def _agent(self, peer: str, keys: list[str]) -> list[str]:
        """Run one agent; the keys it did not come to because a row before them never ended."""
        plan = json.dumps({"keys": keys, "pace": asdict(self.pace)})
        with self._child("harness.agent", peer, (peer, environment.workers(), plan)) as child:
            current = None
            limit_s = START_LIMIT_S
            while True:
                try:
                    event = child.event(limit_s)
                    reason = f"the process ended: {child.last_words()}" if event is None else ""
                except TimeoutError:
                    event, reason = None, f"no answer within {limit_s:.0f} s"
                if event is None:
                    child.process.kill()
                    return self._after_loss(peer, keys, current, reason)
                match event["event"]:
                    case "started":
                        limit_s = ROW_LIMIT_S
                        if peer != "limits":
                            self.results.versions[peer] = event["version"]
                            if "startup" in self.wanted:
                                self.results.add(peer, "startup", [event["seconds"]])
                    case "begin":
                        current = event["key"]
                    case "row":
                        self.results.add(peer, event["key"], event["samples"])
                        self._progress(peer, event["key"])
                    case "error":
                        self.results.fail(peer, event["key"], event["text"])
                        self._progress(peer, event["key"], "failed")
                    case "done":
                        return []

    def _after_loss(
        self, peer: str, keys: list[str], current: str | None, reason: str
    ) -> list[str]:
        if current is None:
            for key in keys or ["startup"]:
                self.results.fail(peer, key, f"{peer} did not start: {reason}")
            self._progress(peer, "start", "failed")
            return []
        self.results.fail(peer, current, reason)
        self._progress(peer, current, "failed")
        return keys[keys.index(current) + 1 :]

    def probe(self, name: str, peer: str, argument: int, limit_s: float) -> None:
        """Run one probe in a fresh process."""
        keys = PROBE_KEYS[name]
        if not self.wanted.intersection(keys):
            return
        skipped = self.results.skips.get(peer, {})
        if name == "idle":
            self._idle(peer, limit_s)
            return
        missing = {key for key in keys if key not in skipped}
        reason = "the probe ended without a result"
        with self._child("harness.probes", peer, (name, environment.workers(), argument)) as child:
            deadline = time.monotonic() + limit_s
            try:
                while (event := child.event(deadline - time.monotonic())) is not None:
                    if event["event"] == "row":
                        self._row(event.get("peer", peer), event)
                        missing.discard(event["key"])
                    elif event["event"] == "started":
                        self.results.versions.setdefault(peer, event["version"])
                    elif event["event"] == "done":
                        break
            except TimeoutError:
                child.process.kill()
                reason = f"not done within {limit_s:.0f} s"
            if missing:
                child.process.kill()
                reason = f"{reason}: {child.last_words()}"
        for key in sorted(missing):
            self.results.fail(peer, key, reason)
            self._progress(peer, key, "failed")

    def _row(self, peer: str, event: dict[str, Any]) -> None:
        """Take a row. What it takes turns with is a limit of the machine, measured beside it."""
        key, samples, conditions = event["key"], event["samples"], event.get("conditions")
        if conditions is None:
            self.results.add(peer, key, samples)
            return self._progress(peer, key)
        self.results.under(peer, key, conditions, samples)
        return self._progress(peer, key, conditions["verdict"])

    def _idle(
        self, peer: str, limit_s: float, settle_s: float = 2.0, window_s: float = 5.0
    ) -> None:
        """Weigh a driver before and after it starts the engine, and watch both stand still.

        Memory is proportional: a page that several processes share counts once. All that the engine
        adds is counted, in the driver and beside it.
        """
        with self._child("harness.probes", peer, ("idle", environment.workers(), 0)) as child:
            try:
                if child.event(limit_s) is None:
                    raise TimeoutError
                driver = child.process.pid
                before = footprint.snapshot([driver])
                child.proceed()
                if child.event(limit_s) is None:
                    raise TimeoutError
            except TimeoutError:
                child.process.kill()
                for key in IDLE_KEYS:
                    self.results.fail(peer, key, f"{peer} did not start: {child.last_words()}")
                self._progress(peer, "idle", "failed")
                return
            time.sleep(settle_s)
            # Looking for the processes is work too: it is done before the window.
            pids = child.pids()
            first = footprint.snapshot(pids)
            begin = time.monotonic()
            time.sleep(window_s)
            second = footprint.snapshot(pids)
            cpu = 100 * (second.cpu_s - first.cpu_s) / (time.monotonic() - begin)
            own = footprint.snapshot([driver])
            found = {
                "idle_mib": (second.pss - before.pss) / MIB,
                "idle_others_mib": (second.pss - own.pss) / MIB,
                "idle_driver_mib": (own.pss - before.pss) / MIB,
                "idle_threads": second.threads - before.threads,
                "idle_cpu": cpu,
            }
            for key, number in found.items():
                self.results.add(peer, key, [number])
            self._progress(peer, "idle")
            child.proceed()

    def _progress(self, peer: str, key: str, state: str = "") -> None:
        print(f"    {peer:9} {key:26} {state}".rstrip(), flush=True)
