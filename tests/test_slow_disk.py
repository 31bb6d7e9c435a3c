"""Values that go to a disk which writes and reads some megabytes per second: slower, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from support import WAIT, poll

import sooner
from sooner._state.snapshot import METRICS, Snapshot

MIB = 1 << 20
STORE = 32 * MIB
VALUE = 4 * MIB
# Two and a half times what there is room for.
COUNT = 20
# What the disk moves (bytes per second): a fraction of what a spinning one does.
RATE = 32 * MIB
THROTTLES = [Path(f"/sys/fs/cgroup/blkio/blkio.throttle.{way}_bps_device") for way in ("write", "read")]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT).stdout.strip()


def set_rate(device, rate):
    for throttle in THROTTLES:
        throttle.write_text(f"{device} {rate}\n")


@pytest.fixture
def slow_disk(tmp_path):
    """A directory on a file system of its own, whose device the kernel slows down."""
    if os.getuid() != 0 or not all(throttle.exists() for throttle in THROTTLES):
        pytest.skip("slowing down a disk takes root and the blkio controller of control groups in version 1")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4: apt-get install e2fsprogs")
    image, place = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(256 * MIB)
    run("mkfs.ext4", "-q", "-F", str(image))
    try:
        loop = run("losetup", "--find", "--show", str(image))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device: {error.stderr}")
    device = Path(f"/sys/block/{Path(loop).name}/dev").read_text().strip()
    try:
        place.mkdir()
        run("mount", loop, str(place))
        try:
            set_rate(device, RATE)
            yield place
        finally:
            set_rate(device, 0)
            run("umount", str(place))
    finally:
        run("losetup", "--detach", loop)


@pytest.fixture
def session(slow_disk, nothing_left):
    context = sooner.init(num_cpus=2, object_store_memory=STORE, spill_directories=[str(slow_disk)])
    nothing_left.append(context["session_dir"])
    yield context["session_dir"]
    sooner.shutdown()


def written(session):
    rows = {row["name"]: row["values"] for row in Snapshot(session, METRICS).node["metrics"]}
    return rows["sooner_node_spilled_written_bytes"][0]


@sooner.remote
def add(one, other):
    return one + other


def test_values_come_back_and_others_are_not_held_up(session):
    refs = []

    def put_all():
        refs.extend(sooner.put(np.full(VALUE // 8, number)) for number in range(COUNT))

    writer = threading.Thread(target=put_all)
    writer.start()
    done = 0
    while writer.is_alive():
        assert sooner.get(add.remote(done, 1), timeout=WAIT) == done + 1
        done += 1
    writer.join()
    # That took more than a second: most of what has no room at the end is on the disk.
    assert written(session) >= (COUNT * VALUE - STORE) // 2
    assert done > 100
    for number, ref in enumerate(refs):
        found = sooner.get(ref, timeout=WAIT)
        assert (found == number).all()
        del found


def test_arguments_come_from_it_and_results_go_there(session):
    count = COUNT // 2
    made = [add.remote(np.full(VALUE // 8, number), 0) for number in range(count)]
    sums = [add.remote(one, other) for one, other in zip(made, reversed(made), strict=True)]
    for ref in sums:
        found = sooner.get(ref, timeout=WAIT)
        assert (found == count - 1).all()
        del found


def test_a_session_ends_while_it_writes(session):
    refs = [sooner.put(np.full(VALUE // 8, number)) for number in range(STORE // VALUE + 2)]
    poll("it writes", lambda: written(session) > 0)
    sooner.shutdown()
    del refs
