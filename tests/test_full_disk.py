"""A disk that is full: what is on it can be read, and what needs it is refused with the reason."""

from __future__ import annotations

import os
import subprocess

import pytest
from support import run_driver

from sooner import _sooner
from sooner._errors import packing
from sooner._state import task_rows
from sooner.exceptions import OutOfDiskError

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


def test_every_failure_has_a_name_and_an_error():
    names = _sooner.FAILURES
    assert len(set(names)) == len(names)
    # A task's own exception comes with the failure.
    assert set(packing._SYSTEM_ERRORS) == set(names) - {"TASK_EXECUTION_EXCEPTION"}
    for code, name in enumerate(names):
        # The outcome of an execution is the code of its failure and one.
        assert task_rows.error_type(code + 1) == name
        error = packing.system_error(code, "what happened")
        assert ("does not know" in str(error)) == (code == 0), error
    assert task_rows.error_type(0) is None
    assert task_rows.error_type(len(names) + 1) == "SYSTEM_ERROR"
    assert "does not know" in str(packing.system_error(len(names), "what happened"))
    assert type(packing.system_error(names.index("OUT_OF_DISK"), "")) is OutOfDiskError
