"""A disk that is full: what is on it can be read, and what needs it is refused with the reason."""

from __future__ import annotations

import os
import subprocess

import pytest
from support import run_driver

_PROGRAM = """
    import subprocess, sys, time
    import numpy as np, sooner
    from sooner.exceptions import OutOfDiskError

    top = sys.argv[1]
    sooner.init(num_cpus=2, object_store_memory=32 << 20, spill_directories=[top])
    refs = []

    @sooner.remote
    def total(array):
        return int(array[0]), int(array[-1])

    try:
        while len(refs) < 60:
            refs.append(sooner.put(np.full(1 << 18, len(refs))))
    except OutOfDiskError as error:
        assert top in str(error)
    assert 20 < len(refs) < 60
"""


@pytest.fixture
def small_disk(tmp_path):
    command = ["mount", "-t", "tmpfs", "-o", "size=30m,mode=0700", "tmpfs", str(tmp_path)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def _run(small_disk, code):
    import textwrap

    run_driver(textwrap.dedent(_PROGRAM) + textwrap.dedent(code) + "\nsooner.shutdown()\n", small_disk)


@pytest.mark.api("values.full_disk")
def test_values_on_a_full_disk_can_be_read(small_disk):
    _run(
        small_disk,
        """
        begin = time.monotonic()
        for number, ref in enumerate(refs):
            array = sooner.get(ref, timeout=60)
            assert array[0] == array[-1] == number
            del array
        assert time.monotonic() - begin < 60
        for number in (0, 5, len(refs) - 1):
            assert sooner.get(total.remote(refs[number]), timeout=60) == (number, number)
        # Reading has made room for nothing new.
        try:
            sooner.put(np.zeros(4 << 18))
        except OutOfDiskError:
            pass
        else:
            raise AssertionError("the disk is full")
        """,
    )


def test_every_reason_has_a_name():
    from sooner._errors import packing
    from sooner._state import task_rows

    for code in packing._SYSTEM_ERRORS:
        assert task_rows._ERROR_TYPES[code], code
    assert len(set(task_rows._ERROR_TYPES)) == len(task_rows._ERROR_TYPES) == max(packing._SYSTEM_ERRORS) + 1
    # The outcome of an execution is the code of its failure and one.
    assert task_rows.error_type(25 + 1) == "OUT_OF_DISK"
    assert task_rows.error_type(24 + 1) == "PEER_UNREACHABLE"
    assert task_rows.error_type(200) == "SYSTEM_ERROR"


def test_work_goes_on_when_the_disk_has_room_again(small_disk):
    _run(
        small_disk,
        """
        assert sooner.get(refs[0], timeout=60)[0] == 0
        subprocess.run(["mount", "-o", "remount,size=200m", top], check=True)
        refs += [sooner.put(np.full(1 << 18, number)) for number in range(len(refs), len(refs) + 10)]
        for number, ref in enumerate(refs):
            assert sooner.get(ref, timeout=60)[0] == number
        """,
    )
