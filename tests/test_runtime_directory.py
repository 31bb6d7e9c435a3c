"""A runtime directory that is full, may not be written to, or is removed while a session runs.

Whatever cannot be done says where; what runs goes on; and when there is room again, or another directory,
all goes on.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import is_alive, poll, run_command, run_driver

NEEDS_MOUNTS = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("mount"), reason="only root can mount")

_USES = """
import sooner, sys, time
sooner.init({})
one = sooner.remote(lambda: 1)
assert sum(sooner.get([one.remote() for _ in range(20)], timeout=30)) == 20
"""
_INIT, _AUTO = _USES.format("num_cpus=1"), _USES.format("address='auto'")


@contextlib.contextmanager
def _mounted(options: str) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="sooner-m-", dir="/tmp"))
    command = ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "none", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        place.rmdir()
        pytest.skip("this machine lets nobody mount")
    try:
        yield place
    finally:
        run_command("stop", "--force", base=place, check=None)
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


def _fill(place: Path, kind: str) -> None:
    with contextlib.suppress(OSError):
        if kind == "inodes":
            for number in range(10_000):
                (place / f"fill{number}").touch()
        with (place / "fill").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass


def _free(place: Path) -> None:
    for path in place.glob("fill*"):
        path.unlink()


def _environment(place: Path) -> dict[str, str]:
    return {**os.environ, "SOONER_TMPDIR": str(place)}


def _program(code: str, place: Path) -> subprocess.CompletedProcess:
    return run_driver(code, env=_environment(place), check=False, timeout=60)


def _names_the_place(done: subprocess.CompletedProcess, place: Path) -> None:
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1, done
    assert str(place) in last, last
    assert re.search("No space left on device|Read-only file system", last), last


@NEEDS_MOUNTS
@pytest.mark.parametrize(("kind", "options"), [("space", "size=4m"), ("inodes", "nr_inodes=40")])
def test_nothing_starts_in_a_full_directory_and_it_is_named(kind, options):
    with _mounted(options) as place:
        _fill(place, kind)
        for _ in range(3):
            _names_the_place(_program(_INIT, place), place)
            _names_the_place(run_command("start", "--head", base=place, check=None), place)
        assert "no program of yours runs sooner" in run_command("status", base=place, check=3).stderr
        # Nothing is left of what could not start.
        assert not list(place.glob("sooner-*/new-*"))
        _free(place)
        run_command("start", "--head", "--num-cpus=1", base=place)
        for code in (_INIT, _AUTO):
            done = _program(code, place)
            assert done.returncode == 0, done.stderr


@NEEDS_MOUNTS
def test_nothing_starts_in_a_directory_that_is_read_only():
    with _mounted("size=4m") as place:
        remount = ["mount", "-o", "remount,{}", str(place)]
        subprocess.run([part.format("ro") for part in remount], check=True)
        _names_the_place(_program(_INIT, place), place)
        _names_the_place(run_command("start", "--head", base=place, check=None), place)
        run_command("status", base=place, check=3)
        run_command("stop", base=place)
        subprocess.run([part.format("rw") for part in remount], check=True)
        assert _program(_INIT, place).returncode == 0


@NEEDS_MOUNTS
@pytest.mark.parametrize(("kind", "options"), [("space", "size=12m"), ("inodes", "nr_inodes=80")])
def test_a_session_goes_on_when_its_directory_becomes_full(kind, options):
    with _mounted(options) as place:
        run_command("start", "--head", "--num-cpus=4", base=place)
        _fill(place, kind)
        code = f"""
            {_AUTO}

            @sooner.remote
            class Actor:
                def value(self, text):
                    print(text)
                    return b"x" * 5_000_000

            actors = [Actor.remote() for _ in range(3)]
            assert all(len(sooner.get(actor.value.remote("hello"), timeout=30)) == 5_000_000 for actor in actors)
            sooner.shutdown()
            """
        code = code.replace(_AUTO, _AUTO.replace("\n", "\n" + " " * 12))
        for _ in range(2):
            done = _program(code, place)
            assert done.returncode == 0, done.stderr
            _names_the_place(_program(_INIT, place), place)
        run_command("status", base=place)
        run_command("list", "actors", base=place)
        _free(place)
        assert _program(_INIT, place).returncode == 0
        assert _program(code, place).returncode == 0
        assert "ended" in run_command("stop", base=place).stdout


def _remove(directory):
    """Removes a directory with all that is there. What lives there may make a file meanwhile."""
    poll("it is removed", lambda: shutil.rmtree(directory, ignore_errors=True) or not directory.exists())


@pytest.mark.parametrize("what", ["the directory of all", "the node's"])
def test_a_node_ends_whose_directory_was_removed(what, short_dir):
    def pid_and_directory():
        (directory,) = (short_dir / f"sooner-{os.getuid()}").glob("node-*")
        return int(directory.name.split("-")[1]), directory

    run_command("start", "--head", "--num-cpus=2", base=short_dir)
    pid, directory = pid_and_directory()
    with subprocess.Popen(
        [sys.executable, "-c", _AUTO + "print('begun', flush=True)\ninput()\nsooner.shutdown()\nprint('over')"],
        env=_environment(short_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout.readline() == "begun\n"
        _remove(directory.parent if what == "the directory of all" else directory)
        assert run_command("status", base=short_dir, check=3).stderr
        assert "no node of yours" in _program(_AUTO, short_dir).stderr
        poll("the node has ended", lambda: not is_alive(pid), 30)
        output, _ = program.communicate("\n", timeout=30)
    assert output == "over\n"
    assert run_command("stop", base=short_dir).stdout
    # Nothing of it is in the way of the next one.
    run_command("start", "--head", "--num-cpus=2", base=short_dir)
    again, _ = pid_and_directory()
    assert again != pid
    done = _program(_AUTO, short_dir)
    assert done.returncode == 0, done.stderr
    run_command("stop", base=short_dir)


def test_a_program_whose_directory_was_removed_goes_on_and_begins_again(short_dir):
    code = f"""
        import os, shutil
        {_INIT}
        place = sooner.init(ignore_reinit_error=True)["session_dir"]
        while os.path.exists(os.path.dirname(place)):
            # What lives there may make a file meanwhile.
            shutil.rmtree(os.path.dirname(place), ignore_errors=True)
        assert sum(sooner.get([one.options(num_cpus=0).remote() for _ in range(20)], timeout=30)) == 20

        @sooner.remote
        class Actor:
            def value(self):
                return 1

        actors = [Actor.options(num_cpus=0).remote() for _ in range(3)]
        assert sooner.get([actor.value.remote() for actor in actors], timeout=30) == [1] * 3
        sooner.shutdown()
        assert not os.path.exists(os.path.dirname(place))
        {_INIT}
        """
    done = _program(code.replace(_INIT, _INIT.replace("\n", "\n" + " " * 8)), short_dir)
    assert done.returncode == 0, done.stderr
