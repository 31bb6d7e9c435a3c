"""What puts, gets, tasks, calls and starts cost beside a former revision: instructions and times.

    python bench/before.py [--revision d2f95a3] [--turns 5] [--counts 1]

Builds the extension of both revisions the same way (profile `fast`; the former one in a work tree
below bench/scratch, which stays for the next time): that takes minutes, and Rust and valgrind.
Instructions are those of the thread that calls, per call: the difference between a long loop and a
short one. They hardly depend on what else the machine does, but of tasks and calls on how many
replies another thread reads: 3 % to and fro, so several counts and their medians say more. Times
are medians of runs in turns. Of tasks and calls there are a hundred at a time; node and workers are
processes of their own, whose instructions are not counted. A start is that of a session with one
worker and its first task, and its end: only its time is taken, as valgrind does not know how to
start a template.

The exit code is 1 if a call takes more than 3 % more instructions than before.
"""

from __future__ import annotations

import argparse
import compileall
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from harness import environment

# The last one without spilling.
REVISION = "d2f95a3"
MORE_MAX = 1.03
SCRATCH = environment.BENCH / "scratch"
# For each kind of call: how many the short and the long loop have under callgrind, and when timed.
CALLS = {
    "put_small": (5_000, 25_000, 2_000_000),
    "get_small": (5_000, 25_000, 2_000_000),
    "put_1_mb": (200, 1_000, 5_000),
    "get_1_mb": (2_000, 10_000, 200_000),
    "task": (1_000, 5_000, 50_000),
    "call": (1_000, 5_000, 100_000),
    "start": (0, 0, 20),
}
# What runs in a process of its own, with one of the two revisions on its path.
BODY = """
import os, subprocess, sys, tempfile, time
import numpy as np
import sooner

kind, count = sys.argv[1], int(sys.argv[2])
value = 0 if kind.endswith("small") else np.ones(1_000_000 // 8)
at_once = 1

@sooner.remote
def task():
    return 1

@sooner.remote
class Actor:
    def call(self):
        return 1

def start():
    sooner.init(num_cpus=1, object_store_memory=256_000_000)
    assert sooner.get(task.remote()) == 1
    sooner.shutdown()

def command(*arguments):
    subprocess.run([sys.executable, "-m", "sooner", *arguments], check=True, capture_output=True)

if kind == "start":
    run = start
    run()
else:
    base = tempfile.TemporaryDirectory()
    os.environ["SOONER_TMPDIR"] = base.name
    # valgrind cannot map the address space for memory in a file behind the store.
    limits = ("--num-cpus=1", "--object-store-memory=256000000", "--spill-directory=")
    command("start", "--head", *limits)
    sooner.init(address="auto")
    ref = sooner.put(value)
    actor = Actor.options(num_cpus=0).remote()
    if kind in ("task", "call"):
        at_once = 100
        submit = task.remote if kind == "task" else actor.call.remote
        run = lambda: sooner.get([submit() for _ in range(at_once)])
    else:
        run = (lambda: sooner.put(value)) if kind.startswith("put") else (lambda: sooner.get(ref))
    for _ in range(500 // at_once):
        run()
begin = time.perf_counter()
for _ in range(count // at_once):
    run()
print(count / (time.perf_counter() - begin))
if kind != "start":
    sooner.shutdown()
    command("stop", "--force")
    base.cleanup()
"""


def _run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    found = subprocess.run(
        command, cwd=cwd, env=env, timeout=3600, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed in {cwd}:\n{found.stderr[-2000:]}")
    return found.stdout + found.stderr


def build(revision: str) -> dict[str, Path]:
    """Build both; where Python finds each."""
    former = SCRATCH / revision
    if not former.exists():
        SCRATCH.mkdir(exist_ok=True)
        _run("git", "worktree", "prune", cwd=environment.REPOSITORY)
        _run("git", "worktree", "add", "--detach", former, revision, cwd=environment.REPOSITORY)
    paths = {}
    for name, top, target in (
        ("before", former, former.with_name(f"target-{revision}")),
        ("now", environment.REPOSITORY, SCRATCH / "target-now"),
    ):
        print(f"==> building {name}, in {top}", flush=True)
        # valgrind hides the vDSO, which the engine would look for.
        flags = {
            "RUSTFLAGS": "--cfg=rustix_use_libc",
            "CARGO_TARGET_DIR": str(target),
            # What the tests want of the profile, and a measurement does not.
            "CARGO_PROFILE_FAST_DEBUG_ASSERTIONS": "false",
            "CARGO_PROFILE_FAST_OVERFLOW_CHECKS": "false",
            "CARGO_PROFILE_FAST_OPT_LEVEL": "3",
        }
        env = {**os.environ, **flags, "PYO3_PYTHON": sys.executable}
        _run(
            "cargo",
            "build",
            "--quiet",
            "--profile",
            "fast",
            # The profile optimises libraries little, and did not in all revisions.
            "--config",
            'profile.fast.package."*".opt-level=3',
            "-p",
            "sooner-python",
            cwd=top,
            env=env,
        )
        # A copy of the package, so that no extension that is in use is replaced.
        package = SCRATCH / f"package-{name}"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(
            top / "python", package, ignore=shutil.ignore_patterns("_sooner.*.so", "__pycache__")
        )
        extension = f"_sooner{sysconfig.get_config_var('EXT_SUFFIX')}"
        shutil.copyfile(
            target / "fast" / "libsooner_python.so",
            package / "sooner" / extension,
        )
        # As it is for whoever has used it before, whatever this environment says of bytecode.
        compileall.compile_dir(package, quiet=2)
        paths[name] = package
    return paths


def _command(path: Path, kind: str, count: int, *before: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(path), "PYTHONHASHSEED": "0"}
    return _run(*before, sys.executable, "-c", BODY, kind, str(count), cwd=SCRATCH, env=env)


def instructions(path: Path, kind: str) -> float:
    """Of the thread that calls, per call; not a number where they are not counted."""
    short, long, _ = CALLS[kind]
    if short == long:
        return math.nan
    counted = [_counted(path, kind, count) for count in (short, long)]
    return (counted[1] - counted[0]) / (long - short)


def _counted(path: Path, kind: str, count: int) -> int:
    """Instructions of the first thread of a loop, which makes the calls."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "callgrind")
        tool = ("--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}")
        _command(path, kind, count, "valgrind", *tool)
        found = re.search(r"^totals: (\d+)", Path(f"{out}-01").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"callgrind did not say what it counted for {kind}")
    return int(found[1])


def main() -> int:
    """Compare; the exit code."""
    parser = argparse.ArgumentParser(
        prog="bench/before.py", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--revision", default=REVISION, help="default: %(default)s")
    parser.add_argument(
        "--turns", type=int, default=5, help="timed runs of each; default: %(default)s"
    )
    parser.add_argument(
        "--counts",
        type=int,
        default=1,
        help="times that instructions are counted; default: %(default)s",
    )
    options = parser.parse_args()
    paths = build(options.revision)
    print(f"{'':10} {'instructions per call':>32} {'calls per second':>32}")
    print(
        f"{'':10} {'before':>10} {'now':>10} {'ratio':>10} {'before':>10} {'now':>10} {'ratio':>10}"
    )
    worst = 0.0
    for kind, (_, _, count) in CALLS.items():
        counts: dict[str, list[float]] = {"before": [], "now": []}
        for _ in range(options.counts):
            for name, path in paths.items():
                counts[name].append(instructions(path, kind))
        old, new = (statistics.median(counts[name]) for name in ("before", "now"))
        rates: dict[str, list[float]] = {"before": [], "now": []}
        for _ in range(options.turns):
            for name, path in paths.items():
                rates[name].append(float(_command(path, kind, count).splitlines()[0]))
        slow, fast = (statistics.median(rates[name]) for name in ("before", "now"))
        print(
            f"{kind:10} {old:10,.0f} {new:10,.0f} {new / old:9.3f}x"
            f" {slow:10,.0f} {fast:10,.0f} {fast / slow:9.3f}x",
            flush=True,
        )
        worst = worst if math.isnan(new) else max(worst, new / old)
    is_met = worst <= MORE_MAX
    verdict = "met" if is_met else "MISSED"
    print(f"goal <= {MORE_MAX:g} x the instructions: {verdict} {worst:.3f} x")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
