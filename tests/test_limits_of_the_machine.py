"""Limits of the process and of the machine: what a message says, and what goes on all the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from support import run_driver

_PROGRAM = """
import sys, sooner
sooner.init(num_cpus=1)
assert sooner.get(sooner.remote(lambda: 1).remote(), timeout=60) == 1
"""


@pytest.mark.parametrize("count", [700, 20_000])
def test_a_long_path_does_not_break_the_start(count):
    run_driver(f"""
        import sys, sooner
        sys.path += [f"/nowhere/{{'ä' * 60}}/{{number}}" for number in range({count})]
        sooner.init(num_cpus=1)
        path, argv = sooner.get(sooner.remote(lambda: (sys.path, sys.argv[1:])).remote(), timeout=60)
        assert [entry for entry in path if "nowhere" in entry] == sys.path[-{count}:]
        assert not any("nowhere" in argument or len(argument) > 4096 for argument in argv)
        sooner.shutdown()
        """)


def test_a_long_command_line_does_not_break_the_start():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *["x" * 100_000] * 10],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_program_without_memory_goes_on_with_sooner():
    # The first task of a program takes memory for what is recorded of tasks: as much as there is.
    done = run_driver(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        import sooner
        sooner.init(num_cpus=1, object_store_memory=32 << 20)

        @sooner.remote
        def one():
            return 1

        # Code that is imported by the first task.
        one.options(name="one")
        kept = []
        try:
            while True:
                kept.append(bytearray(1 << 20))
        except MemoryError:
            del kept[-6:]
        try:
            got = sooner.get(one.remote())
        except MemoryError:
            got = "an error of Python's"
        kept.clear()
        print(got)
        assert sooner.get([one.remote() for _ in range(100)]) == [1] * 100
        """
    )
    assert done.stdout in ("1\n", "an error of Python's\n")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("-v 3000000", r"3072000000 bytes of address space \(ulimit -v\)"),
        ("-f 1000", r"files of 1024000 bytes \(ulimit -f\)"),
        ("-n 12", r"\(ulimit -n\)"),
    ],
)
def test_an_error_of_init_says_whose_limit_it_is(limit, expected):
    import re

    command = f'ulimit {limit}; exec "$0" -c "$1"'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, textwrap.dedent(_PROGRAM)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(expected, last), last
    assert "SOONER_TMPDIR" not in last
