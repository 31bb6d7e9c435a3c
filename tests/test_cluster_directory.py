"""The cluster directory: a head believes what is its user's alone, and says of anything else whose it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import Node, run_command

STRANGER = 65534
is_root = pytest.mark.skipif(os.getuid() != 0, reason="acting as another user needs root")


def refused(base: Path, directory: Path | None = None) -> str:
    """What a head says that does not start."""
    options = () if directory is None else (f"--cluster-dir={directory}",)
    done = run_command("start", "--head", *options, base=base, check=1)
    assert done.stderr.startswith("sooner start: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def directory(short_dir: Path) -> Path:
    """The cluster directory of a head that has ended."""
    Node(short_dir).run("stop")
    return short_dir / f"sooner-{os.getuid()}" / "cluster"


def test_a_directory_is_made_where_nobody_else_can_exchange_it(short_dir):
    place = short_dir / "above" / "cluster"
    node = Node(short_dir, f"--cluster-dir={place}")
    node.run("stop")
    assert place.stat().st_mode & 0o777 == 0o700
    # A directory like /tmp: others may make something there, and not put it in the place of what is
    # another's.
    place.parent.chmod(0o1777)
    Node(short_dir, f"--cluster-dir={place}").run("stop")


def test_a_link_is_not_followed(short_dir):
    (short_dir / "real").mkdir(0o700)
    link = short_dir / "link"
    link.symlink_to(short_dir / "real")
    said = refused(short_dir, link)
    assert f"the cluster directory {link} " in said
    assert "it is a link, made by user " in said
    assert list((short_dir / "real").iterdir()) == []
    # On the way there are those of the user and the administrator.
    (short_dir / "way").symlink_to(short_dir)
    Node(short_dir, f"--cluster-dir={short_dir}/way/real").run("stop")


def test_a_directory_that_everybody_could_exchange_is_refused(short_dir):
    above = short_dir / "above"
    above.mkdir()
    above.chmod(0o777)
    assert f"everybody may write to {above}" in refused(short_dir, above / "cluster")
    assert list(above.iterdir()) == []


@is_root
@pytest.mark.parametrize("what", ["itself", "above", "link", "link on the way"])
def test_a_directory_of_another_user_is_refused_by_name(short_dir, what):
    short_dir.chmod(0o755)
    above, real = short_dir / "above", short_dir / "real"
    place = shown = above / "cluster"
    place.mkdir(0o700, parents=True)
    (real / "cluster").mkdir(0o700, parents=True)
    if what == "link":
        place = shown = short_dir / "link"
        place.symlink_to(real / "cluster")
    elif what == "link on the way":
        shown = short_dir / "link"
        shown.symlink_to(real)
        place = shown / "cluster"
    elif what == "above":
        shown = above
    os.chown(shown, STRANGER, STRANGER, follow_symlinks=False)
    said = refused(short_dir, place)
    assert "user nobody (65534)" in said
    assert str(shown) in said
    assert "name another with --cluster-dir" in said


def put_in_its_place(path: Path, what: str) -> None:
    """Something else than the file that a head has made."""
    if what == "stranger's":
        os.chown(path, STRANGER, STRANGER)
        return
    if what == "open":
        path.chmod(0o666)
        return
    moved = path.with_name("moved")
    path.rename(moved)
    if what == "link":
        path.symlink_to(moved)
    elif what == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(0o700)


KINDS = ["open", "link", "pipe", "directory", pytest.param("stranger's", marks=is_root)]
SAID = {
    "open": "its mode is 0666",
    "link": "it is a link, made by user ",
    "pipe": "it is no file, and belongs to user ",
    "directory": "it is no file, and belongs to user ",
    "stranger's": "it belongs to user nobody (65534)",
}


@pytest.mark.parametrize("name", ["control.redb", "lock"])
@pytest.mark.parametrize("what", KINDS)
def test_a_head_does_not_believe_a_store_that_is_not_its_users_alone(short_dir, directory, name, what):
    path = directory / name
    put_in_its_place(path, what)
    said = refused(short_dir)
    assert f"{path}: {SAID[what]}" in said
    assert "name another directory with --cluster-dir" in said


@pytest.mark.parametrize("what", KINDS)
def test_what_stands_in_the_place_of_the_lock_of_heads_is_named(short_dir, what):
    base = short_dir / f"sooner-{os.getuid()}"
    base.mkdir(0o700)
    path = base / "head.lock"
    path.touch(0o600)
    put_in_its_place(path, what)
    said = refused(short_dir)
    assert f"{path}: {SAID[what]}" in said
    assert "remove it, or set SOONER_TMPDIR to another directory" in said


@pytest.mark.parametrize("what", ["link", "pipe", "directory"])
def test_a_token_of_the_directory_is_a_file(short_dir, directory, what):
    put_in_its_place(directory / "token", what)
    done = run_command("start", "--head", base=short_dir, check=7)
    assert f"the token file {directory}/token is not a file" in done.stderr


@is_root
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_token_of_another_user_is_refused_by_name(short_dir, directory, mode):
    """Also by root, who could read it."""
    path = directory / "token"
    os.chown(path, STRANGER, STRANGER)
    path.chmod(mode)
    for command, status in ((("start", "--head"), 7), (("token",), 1), (("token", "rotate"), 1)):
        said = run_command(*command, base=short_dir, check=status).stderr
        assert f"the token file {path} belongs to user nobody (65534), not to you: name a file of yours" in said


@pytest.mark.parametrize("size", [1, 100, 4096, 8192, 65536])
def test_a_store_that_was_cut_is_called_damaged(short_dir, directory, size):
    os.truncate(directory / "control.redb", size)
    assert f"{directory}/control.redb is damaged or no control store: " in refused(short_dir)
