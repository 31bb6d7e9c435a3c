"""The most memory that the processes of one measurement held at the same time.

    python -m harness.heaviest <marker of the run>

Samples until a line or the end comes on standard input, then writes the peaks as JSON. A process of
its own, so that the one that is measured pays nothing for it. It carries the marker of the run like
all others and is left out.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from harness import footprint

EVERY_S = 1.0
# Where shared memory of the systems lies: memfds, and files of /dev/shm.
_SHARED = ("/memfd:", "/dev/shm/")


class Heaviest:
    """Samples beside the `with` statement; afterwards its attributes are peaks in bytes.

    `private` is heaps and stacks, a page that forked processes share counted once; `shared` is what
    memfds and files of /dev/shm take, mapped or not; `total` is the peak of their sum.
    """

    def __init__(self) -> None:
        self.total = self.private = self.shared = 0

    def __enter__(self) -> Heaviest:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.heaviest", os.environ["BENCH_RUN"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        told, _ = self._process.communicate("\n", timeout=60)
        peaks = json.loads(told)
        self.total, self.private, self.shared = peaks["total"], peaks["private"], peaks["shared"]


def weigh(pids: list[int]) -> tuple[int, int]:
    """What processes hold now: in heaps of their own, and in shared memory."""
    private = 0
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            private += footprint.rollup_bytes(pid, "Pss_Anon")
            for entry in (footprint.PROC / str(pid) / "fd").iterdir():
                _look(entry, files)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return private, sum(files.values())


def _look(entry: Path, files: dict[tuple[int, int], int]) -> None:
    try:
        if str(entry.readlink()).startswith(_SHARED):
            found = entry.stat()
            files[found.st_dev, found.st_ino] = 512 * found.st_blocks
    except (FileNotFoundError, ProcessLookupError):
        return


def main() -> None:
    """Sample until told to stop."""
    marker = sys.argv[1]
    peaks = {"total": 0, "private": 0, "shared": 0}
    while True:
        is_told = bool(select.select([sys.stdin], [], [], EVERY_S)[0])
        pids = [pid for pid in footprint.marked(marker) if pid != os.getpid()]
        private, shared = weigh(pids)
        for name, size in {"total": private + shared, "private": private, "shared": shared}.items():
            peaks[name] = max(peaks[name], size)
        if is_told:
            break
    print(json.dumps(peaks), flush=True)


if __name__ == "__main__":
    main()
