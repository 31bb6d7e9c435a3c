"""What can happen to values on disk: files that are damaged, and no descriptors for new ones."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from support import WAIT, no_descriptors, poll, spilled_is_written

import sooner
from sooner.exceptions import ObjectLostError
from sooner.util import state

MIB = 1 << 20
STORE_MIB = 32
VALUE_MIB = 4
# Four times what there is room for.
COUNT = 4 * STORE_MIB // VALUE_MIB


def value(number):
    return np.full(VALUE_MIB * MIB // 8, number)


@sooner.remote
def make(number):
    return value(number)


@pytest.fixture
def session(nothing_left, tmp_path):
    context = sooner.init(num_cpus=1, object_store_memory=STORE_MIB * MIB, spill_directories=[tmp_path])
    nothing_left.append(context["session_dir"])
    yield
    sooner.shutdown()


def on_disk():
    return {row.object_id for row in state.list_objects(limit=1000) if row.location == "on disk"}


def is_calm():
    """Whether what is on disk is written, and nothing follows: values go there a moment ahead of need."""
    before = on_disk()
    is_written = spilled_is_written()
    time.sleep(0.3)
    return is_written and on_disk() == before


def damage_files(directory):
    """Turns one byte in each MiB of the files there, which have no names. Gives how many files there were."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{name}"
        try:
            # The file behind the memory has no bytes.
            is_file = os.readlink(link).startswith(str(directory)) and os.stat(link).st_blocks > 0
        except FileNotFoundError:
            continue
        if not is_file:
            continue
        found += 1
        with open(link, "r+b", buffering=0) as file:
            for at in range(MIB // 2, os.stat(link).st_size, MIB):
                (byte,) = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([byte ^ 0xFF]), at)
    return found


@pytest.mark.parametrize("by_task", [True, False], ids=["task", "put"])
def test_a_value_in_a_damaged_file_is_made_again_or_an_error(session, tmp_path, by_task):
    refs = [make.remote(number) if by_task else sooner.put(value(number)) for number in range(COUNT)]
    sooner.wait(refs, num_returns=COUNT, timeout=WAIT, fetch_local=False)
    poll("most are on disk", lambda: len(on_disk()) >= COUNT // 2)
    poll("no value is on its way to disk", is_calm)
    damaged = on_disk()
    assert damage_files(tmp_path) > 0
    for number, ref in enumerate(refs):
        if by_task or ref.hex() not in damaged:
            assert (sooner.get(ref, timeout=WAIT) == number).all()
            continue
        with pytest.raises(ObjectLostError, match="no copy of its value is left"):
            sooner.get(ref, timeout=WAIT)


def test_without_descriptors_values_stay_and_go_to_disk_later(session):
    refs = [sooner.put(value(number)) for number in range(3)]
    with no_descriptors(os.getpid()):
        # What is in the file behind the memory needs no descriptor.
        refs += [sooner.put(value(number)) for number in range(3, COUNT)]
        assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(COUNT))
    # It is tried again when somebody wants room, after a pause.
    poll("values go to disk", lambda: sooner.put(value(-1)) and on_disk())
    assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(COUNT))
