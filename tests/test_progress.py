"""Progress bars: `sooner.progress`, `sooner.util.progress.tqdm`, and programs that draw bars of their own."""

from __future__ import annotations

import itertools
import re

import pytest
from screen import on_terminal
from support import run_driver

import sooner
from sooner.util.progress import progress, tqdm

HEAD = """
import os, sys, time
from pathlib import Path
import sooner
from sooner.util.progress import tqdm
sooner.init(num_cpus=2)

def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.005)

@sooner.remote(num_cpus=0)
def when(path, value=None):
    wait_for(path)
    return value

@sooner.remote
def square(n):
    return n * n
"""


@pytest.mark.api("own.progress")
@pytest.mark.usefixtures("shared_session")
class TestInThisProcess:
    """The driver's standard error is captured here: no terminal."""

    def test_progress_yields_results(self, capsys):
        square = sooner.remote(lambda n: n * n)
        assert sorted(sooner.progress([square.remote(n) for n in range(50)])) == sorted(n * n for n in range(50))
        last = capsys.readouterr().err.splitlines()[-1]
        assert re.fullmatch(r"100% 50/50 \[\d\d:\d\d<00:00, .*it/s\]", last), last
        assert list(sooner.progress([])) == []

    def test_progress_yields_references(self):
        refs = [sooner.put(n) for n in range(3)]
        assert list(progress(iter(refs), yield_obj_refs=True, disable=True)) == refs

    def test_progress_ends_with_an_error(self, capsys):
        def bad():
            raise LookupError("why")

        with pytest.raises(LookupError, match="why"):
            list(progress([sooner.remote(bad).remote()], description="bad"))
        assert capsys.readouterr().err.startswith("bad: 0% 0/1 ")

    def test_options_of_progress(self, capsys):
        refs = [sooner.put(n) for n in range(4)]
        list(progress(refs, description="puts", total=8, unit="put"))
        assert re.match(r"puts: 50% 4/8 .*put", capsys.readouterr().err)
        list(progress(refs, leave=False))
        list(progress(refs, disable=True))
        assert capsys.readouterr().err == ""

    def test_tqdm(self, capsys):
        with tqdm(total=10, desc="work", unit="step") as bar:
            bar.update()
            bar.update(3.5)
            bar.set_description("other")
            bar.set_postfix(loss=0.123456, kind="a")
            assert (bar.n, bar.total, len(bar), bool(bar)) == (4.5, 10, 10, True)
        bar.close()
        assert re.fullmatch(r"other: 45% 4\.5/10 \[.*step.*, loss=0\.123, kind=a\]\n", capsys.readouterr().err)

    def test_tqdm_iterates(self, capsys):
        assert list(tqdm("abc", desc="letters")) == ["a", "b", "c"]
        assert re.match(r"letters: 100% 3/3 ", capsys.readouterr().err)
        assert list(tqdm((n for n in range(5)), unit="x")) == [0, 1, 2, 3, 4]
        assert re.match(r"5x \[", capsys.readouterr().err)
        for _ in tqdm(range(5), desc="left"):
            break
        assert re.match(r"left: 0% 0/5 ", capsys.readouterr().err)

    def test_a_title_cannot_break_the_line(self, capsys):
        list(tqdm([1], desc="two\nlines\x1b[2J\r"))
        assert re.fullmatch(r"two lines : 100% 1/1 .*\n", capsys.readouterr().err)

    def test_refusals(self):
        with pytest.raises(TypeError, match="put it into a list"):
            sooner.progress(sooner.put(1))
        with pytest.raises(TypeError, match="iterable"):
            sooner.progress(5)
        with pytest.raises(TypeError, match="ObjectRef"):
            sooner.progress([5])
        ref = sooner.put(1)
        with pytest.raises(ValueError, match="twice"):
            sooner.progress([ref, ref])
        with pytest.raises(TypeError, match="total must be a number"):
            sooner.progress([ref], total="3")
        with pytest.raises(TypeError, match="total="):
            tqdm(5)
        for name in ("total", "initial"):
            with pytest.raises(ValueError, match=f"{name} must be"):
                tqdm(**{name: -1})
            with pytest.raises(ValueError, match=f"{name} must be"):
                tqdm(**{name: float("nan")})
            with pytest.raises(TypeError, match=f"{name} must be"):
                tqdm(**{name: True})
        with pytest.raises(TypeError, match="no iterable"):
            list(tqdm(disable=True))
        with pytest.raises(TypeError, match="no length"):
            len(tqdm(disable=True))


@pytest.mark.api("own.progress")
def test_in_a_pipe_there_are_lines():
    done = run_driver(
        HEAD
        + """
@sooner.remote
def slow(n):
    time.sleep(0.02)
    return n
print(sum(sooner.progress([slow.remote(n) for n in range(300)], description="slow")))
"""
    )
    assert done.stdout == f"{sum(range(300))}\n"
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 10
    percents = [int(re.fullmatch(r"slow: (\d+)% \d+/300 \[.*\]", line)[1]) for line in lines]
    assert percents[-1] == 100
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(percents[:-1]))


def test_on_a_terminal_lines_go_above_the_bar(tmp_path):
    code = """
@sooner.remote
def say(n):
    print("line", n)
    return n
refs = [say.remote(n) for n in range(20)]
seen = []
for n in sooner.progress([*refs, when.remote(sys.argv[1])], description="all"):
    seen.append(n)
    if len(seen) == 20:
        print("the driver too")
        print("in", end=" ")
        print("pieces", end="")
        print(flush=True)
print("after", type(sys.stdout).__name__, type(sys.stderr).__name__)
sooner.shutdown()
"""
    with on_terminal(HEAD + code, tmp_path / "go") as program:
        screen = program.wait_for(
            "the bar stands below 22 lines", lambda lines: len(lines) == 23 and re.search(r"all:.*20/21", lines[-1])
        )
        assert {"the driver too", "in pieces"} < set(screen[:-1])
        (tmp_path / "go").touch()
        screen = program.finish()
    said = sorted(int(line.rpartition(" ")[2]) for line in screen if re.fullmatch(r"\(say pid=\d+\) line \d+", line))
    assert said == list(range(20))
    assert screen[-1] == "after TextIOWrapper TextIOWrapper"
    assert re.fullmatch(r"all: 100%\|█+\| 21/21 \[.*\]", screen[-2])
    assert len(screen) == 24


@pytest.mark.api("own.progress")
def test_bars_of_workers_and_driver_stand_below_each_other(tmp_path):
    code = """
@sooner.remote
def work(name, path):
    with tqdm(total=10, desc=name) as bar:
        bar.update(5)
        bar.refresh()
        wait_for(path)
        print("end of", name)
    return name
refs = [work.remote(name, sys.argv[1] + name) for name in "ab"]
for name in sooner.progress(refs, description="driver"):
    Path(sys.argv[1] + "got-" + name).touch()
wait_for(sys.argv[1] + "end")
sooner.shutdown()
"""
    with on_terminal(HEAD + code, f"{tmp_path}/") as program:
        is_half = re.compile(r"\(work pid=\d+\) (?P<name>[ab]):  50%\|█+ +\| 5/10 ")
        screen = program.wait_for(
            "two bars of workers and one of the driver",
            lambda lines: sum(bool(is_half.match(line)) for line in lines) == 2 and len(lines) == 3,
        )
        assert sum(line.startswith("driver:   0%|") for line in screen) == 1
        (tmp_path / "a").touch()
        screen = program.wait_for(
            "one bar is gone",
            lambda lines: any("end of a" in line for line in lines) and any("| 1/2" in line for line in lines),
        )
        screen = program.wait_for("its line is left", lambda lines: len(lines) == 3)
        assert re.fullmatch(r"\(work pid=\d+\) end of a", screen[0])
        (tmp_path / "b").touch()
        (tmp_path / "end").touch()
        screen = program.finish()
    assert sorted(line.split(" ", 2)[2] for line in screen if line.startswith("(")) == ["end of a", "end of b"]
    assert [line[:12] for line in screen if line.startswith("driver")] == ["driver: 100%"]
    assert len(screen) == 3


def test_more_bars_than_lines(tmp_path):
    code = """
bars = [tqdm(total=2, desc=f"bar {n}", leave=n == 0) for n in range(20)]
wait_for(sys.argv[1])
for bar in bars:
    bar.close()
"""
    with on_terminal(HEAD + code, tmp_path / "go", lines=10, columns=40) as program:
        screen = program.wait_for("all bars", lambda lines: lines[-1] == "... and 12 more")
        assert len(screen) == 9
        assert all(len(line) < 40 for line in screen)
        (tmp_path / "go").touch()
        assert [line[:6] for line in program.finish()] == ["bar 0:"]


@pytest.mark.chaos
def test_the_bar_of_a_worker_that_dies_goes(tmp_path):
    code = """
@sooner.remote(max_retries=0)
def dies(path):
    bar = tqdm(total=10, desc="doomed")
    wait_for(path)
    os._exit(1)
ref = dies.remote(sys.argv[1])
try:
    for _ in sooner.progress([ref], description="driver"):
        pass
except sooner.exceptions.WorkerCrashedError:
    pass
sooner.shutdown()
print("end")
"""
    with on_terminal(HEAD + code, tmp_path / "go") as program:
        program.wait_for("the bar", lambda lines: any("doomed" in line for line in lines))
        (tmp_path / "go").touch()
        screen = program.finish()
    assert not any("doomed" in line for line in screen)
    assert screen[-1] == "end"


# A program that draws as tqdm does: each state over the one before, the last with a line end.
FRAMES = """
@sooner.remote
def draws(path, leave=True):
    for percent in range(0, 101, 10):
        sys.stderr.write(f"\\r{percent:3}%|{'#' * (percent // 10):10}|")
        sys.stderr.flush()
        time.sleep(0.07)
        if percent == 50:
            wait_for(path)
            print("half")
    if not leave:
        sys.stderr.write("\\r" + " " * 20 + "\\r")
    elif leave is True:
        sys.stderr.write("\\n")
"""


@pytest.mark.api("own.bars")
def test_bars_of_other_libraries_in_a_pipe(tmp_path):
    (tmp_path / "go").touch()
    done = run_driver(
        HEAD
        + FRAMES
        + """
sooner.get([draws.remote(sys.argv[1], leave) for leave in (True, False, "no end")])
sooner.shutdown()
""",
        tmp_path / "go",
    )
    prefix = r"\(draws pid=\d+\) "
    assert re.fullmatch(rf"({prefix}100%\|##########\|\n){{2}}", done.stderr), done.stderr
    assert re.fullmatch(rf"({prefix}half\n){{3}}", done.stdout), done.stdout


@pytest.mark.api("own.bars")
def test_bars_of_other_libraries_on_a_terminal(tmp_path):
    code = """
sooner.get(draws.remote(sys.argv[1]))
sooner.shutdown()
"""
    with on_terminal(HEAD + FRAMES + code, tmp_path / "go") as program:
        screen = program.wait_for("a bar half way", lambda lines: any("%|#" in line for line in lines))
        assert re.fullmatch(r"\(draws pid=\d+\) +\d+%\|#+ *\|", screen[0])
        (tmp_path / "go").touch()
        screen = program.finish()
    assert [line.partition(") ")[2] for line in screen] == ["half", "100%|##########|"]


def test_carriage_returns_and_cursor_moves_of_c_code():
    done = run_driver(
        HEAD
        + r"""
@sooner.remote
def moves():
    os.write(2, b"first\rsecond\r\n\x1b[2Aup\x1b[K \x1b[31mred\x1b[0m\n")
    os.write(2, b"begun ")
    tqdm([], desc="bar").close()
    os.write(2, b"\x1ebar:{no json\n\x1ebar:[1]\n\x1ebar:{\"key\": 5}\n")
    return 1
sooner.get(moves.remote())
sooner.shutdown()
"""
    )
    lines = [line.partition(") ")[2] for line in done.stderr.split("\n")]
    # What only looks like a bar is shown as it is.
    assert lines[:3] == ["second", "up \x1b[31mred\x1b[0m", "begun "]
    assert lines[3:5] == ["\x1ebar:{no json", "\x1ebar:[1]"]


@pytest.mark.api("own.bars")
def test_rich_in_a_task():
    pytest.importorskip("rich")
    done = run_driver(
        HEAD
        + """
@sooner.remote
def rich_bar():
    from rich.console import Console
    from rich.progress import Progress
    with Progress(console=Console(file=sys.stderr, force_terminal=True, width=60)) as bars:
        task = bars.add_task("rich", total=10)
        for _ in range(10):
            bars.advance(task)
            time.sleep(0.01)
sooner.get(rich_bar.remote())
sooner.shutdown()
"""
    )
    assert "100%" in done.stderr
    assert not re.search(r"\r|\x1b\[[0-9;?]*[^0-9;?m]", done.stderr)


@pytest.mark.api("own.progress")
def test_actors_have_bars(tmp_path):
    code = """
@sooner.remote
class Trainer:
    def train(self, path):
        for step in tqdm(range(2), desc="steps"):
            if step:
                wait_for(path)

    async def later(self):
        pass
ref = Trainer.remote().train.remote(sys.argv[1])
sooner.get(ref)
sooner.shutdown()
print("end")
"""
    with on_terminal(HEAD + code, tmp_path / "go") as program:
        program.wait_for("its bar", lambda lines: re.match(r"\(Trainer pid=\d+\) steps: +\d+%", lines[0]))
        (tmp_path / "go").touch()
        assert program.finish() == ["end"]


def test_progress_over_a_generator(shared_session):
    @sooner.remote
    def count(n):
        yield from range(n)

    assert list(sooner.progress(count.remote(5), total=5, disable=True)) == [0, 1, 2, 3, 4]
    refs = list(sooner.progress(count.remote(2), yield_obj_refs=True, disable=True))
    assert sooner.get(refs) == [0, 1]
