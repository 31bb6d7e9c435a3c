"""What workers print: the prefix, nothing dropped and nothing merged, the files and their end."""

from __future__ import annotations

import collections
import os
import re

import pytest
from support import run_driver, running_driver

HEAD = """
import ctypes, io, logging, os, subprocess, sys, threading, time
from pathlib import Path
import sooner
context = sooner.init(num_cpus=2, **{})
def get(refs):
    return sooner.get(refs, timeout=100)
"""

LINE = re.compile(r"\((?P<name>.*?) pid=(?P<pid>\d+)\) (?P<text>.*)")


def run(body, options="dict()", **kwargs):
    """Runs a driver and ends its session, so that all lines are out."""
    done = run_driver(HEAD.format(options) + body + "\nsooner.shutdown()\n", **kwargs)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def lines(text):
    """(name, text) of each line; every line must have a prefix."""
    found = [LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    assert all(found), text
    return [(match["name"], match["text"]) for match in found]


def test_the_prefix_is_function_and_pid():
    done = run("""
@sooner.remote
def train(n):
    print("epoch", n)
    return os.getpid()
pid = get(train.remote(3))
sooner.shutdown()
print("pid", pid)
""")
    line, _, pid = done.stdout.rstrip("\n").partition("\npid ")
    assert line == f"(train pid={pid}) epoch 3"


def test_each_stream_reaches_its_own():
    done = run("""
@sooner.remote
def both():
    print("to stdout")
    print("to stderr", file=sys.stderr)
get(both.remote())
""")
    assert lines(done.stdout) == [("both", "to stdout")]
    assert lines(done.stderr) == [("both", "to stderr")]


def test_nothing_is_dropped_and_nothing_merged():
    """Equal lines are counted, different ones are whole, and each worker's are in order."""
    done = run("""
@sooner.remote(num_cpus=0.25)
def chatter(who):
    for n in range(500):
        print("the same line")
        print(f"{who}:{n}:" + "x" * (n % 200))
get([chatter.remote(who) for who in range(20)])
""")
    found = [text for _, text in lines(done.stdout)]
    assert len(found) == 20 * 500 * 2
    assert found.count("the same line") == 20 * 500
    told = collections.defaultdict(list)
    for text in found:
        if text != "the same line":
            who, n, rest = text.split(":")
            assert rest == "x" * (int(n) % 200)
            told[who].append(int(n))
    assert dict(told) == {str(who): list(range(500)) for who in range(20)}


def test_lines_are_under_the_name_of_the_task_that_printed_them():
    done = run("""
def make(name):
    def f(n):
        print(name, n)
    f.__name__ = name
    return sooner.remote(f)
functions = [make("first"), make("second"), make("third")]
get([f.remote(n) for n in range(100) for f in functions])
""")
    found = lines(done.stdout)
    assert len(found) == 300
    assert all(text.split()[0] == name for name, text in found)


def test_actors_print_under_their_class():
    done = run("""
@sooner.remote
class Trainer:
    def __init__(self):
        print("constructed")
    def step(self):
        print("step")
trainer = Trainer.remote()
get([trainer.step.remote() for _ in range(3)])
""")
    assert lines(done.stdout) == [("Trainer", "constructed")] + [("Trainer", "step")] * 3


def test_an_actor_with_a_repr_prints_under_it():
    done = run("""
@sooner.remote
class Trainer:
    def __init__(self, rank):
        self.rank = rank
    def __repr__(self):
        return f"Trainer(rank={self.rank})"
    def step(self):
        print("step")
get(Trainer.remote(7).step.remote())
""")
    assert lines(done.stdout) == [("Trainer(rank=7)", "step")]


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_lines_of_calls_at_the_same_time_are_whole(kind):
    done = run(f"""
@sooner.remote{"(max_concurrency=8)" if kind == "threads" else ""}
class Many:
    {"async " if kind == "loop" else ""}def say(self, who):
        for n in range(200):
            print(who, "y" * 300)
many = Many.remote()
get([many.say.remote(who) for who in range(8)])
""")
    found = collections.Counter(text for _, text in lines(done.stdout))
    assert found == {f"{who} {'y' * 300}": 200 for who in range(8)}


def test_partial_lines_are_joined():
    done = run("""
@sooner.remote
def counts():
    for n in range(5):
        print(n, end=" ", flush=True)
        time.sleep(0.02)
    print("done")
get(counts.remote())
""")
    assert lines(done.stdout) == [("counts", "0 1 2 3 4 done")]


def test_a_line_without_an_end_is_not_lost():
    done = run("""
@sooner.remote
def first():
    print("no end", end="")
@sooner.remote
class Actor:
    def f(self):
        sys.stderr.write("nor here")
actor = Actor.remote()
get([first.remote(), actor.f.remote()])
""")
    assert lines(done.stdout) == [("first", "no end")]
    assert lines(done.stderr) == [("Actor", "nor here")]


def test_empty_lines_and_lines_of_blanks():
    done = run(r"""
@sooner.remote
def blank():
    print()
    print("  indented")
    print("a\n\nb")
    print("tab\tand \x1b[31mcolour\x1b[0m")
get(blank.remote())
""")
    assert [text for _, text in lines(done.stdout)] == [
        "",
        "  indented",
        "a",
        "",
        "b",
        "tab\tand \x1b[31mcolour\x1b[0m",
    ]


def test_text_that_is_not_ascii():
    done = run(
        r"""
@sooner.remote
def text():
    print("grüße €𝄞")
    print("lone \ud800 surrogate")
    sys.stdout.buffer.write(b"bytes \xff\xfe here\n")
    os.write(1, b"raw \xff here\n")
    print("still alive")
get(text.remote())
""",
        encoding="utf-8",
        errors="strict",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )
    found = [text for _, text in lines(done.stdout)]
    assert found[0] == "grüße €𝄞"
    assert found[1].startswith("lone ")
    assert [text.split()[0] for text in found[2:4]] == ["bytes", "raw"]
    assert found[4] == "still alive"


def test_a_very_long_line_is_complete():
    """It may be shown in parts, but every character of it is there."""
    done = run("""
@sooner.remote
def long():
    print("z" * 5_000_000)
    print("after")
get(long.remote())
""")
    found = [text for _, text in lines(done.stdout)]
    assert "".join(found) == "z" * 5_000_000 + "after"


def test_writes_below_python():
    done = run(r"""
@sooner.remote
def low():
    os.write(1, b"written to 1\n")
    os.write(2, b"written to 2\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"put by C")
    libc.fflush(None)
    subprocess.run(["sh", "-c", "echo by a child; echo by a child to stderr >&2"], check=True)
get(low.remote())
""")
    assert [text for _, text in lines(done.stdout)] == ["written to 1", "put by C", "by a child"]
    assert [text for _, text in lines(done.stderr)] == ["written to 2", "by a child to stderr"]


def test_the_order_of_python_and_c_writes_stays():
    done = run(r"""
@sooner.remote
def mixed():
    for n in range(200):
        print("python", n)
        os.write(1, f"raw {n}\n".encode())
get(mixed.remote())
""")
    expected = [f"{kind} {n}" for n in range(200) for kind in ("python", "raw")]
    assert [text for _, text in lines(done.stdout)] == expected


def test_what_a_task_logs():
    done = run("""
@sooner.remote
def logs():
    logging.warning("careful")
get(logs.remote())
""")
    assert lines(done.stderr) == [("logs", "WARNING:root:careful")]


def test_the_streams_are_text_streams():
    done = run(r"""
@sooner.remote
def uses():
    assert sys.stdout.writable() and not sys.stdout.readable() and not sys.stdout.isatty()
    assert (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
    assert sys.__stdout__ is not None and not sys.stdout.closed
    assert sys.stdout.encoding.lower().replace("-", "") == "utf8"
    assert sys.stdout.errors
    sys.stdout.writelines(["one\n", "two\n"])
    print("three", file=sys.__stdout__)
    with io.StringIO() as box:
        real, sys.stdout = sys.stdout, box
        print("not shown")
        sys.stdout = real
    sys.stdout.flush()
    try:
        input()
    except EOFError:
        print("no input")
get(uses.remote())
""")
    assert [text for _, text in lines(done.stdout)] == ["one", "two", "three", "no input"]


def test_a_thread_that_outlives_its_task():
    done = run("""
@sooner.remote
class Host:
    def start(self):
        self.thread = threading.Thread(target=lambda: [print("from a thread") for _ in range(10)])
        self.thread.start()
    def end(self):
        self.thread.join()
host = Host.remote()
get([host.start.remote(), host.end.remote()])
""")
    assert lines(done.stdout) == [("Host", "from a thread")] * 10


def test_the_last_words_of_a_killed_worker():
    done = run("""
@sooner.remote(max_retries=0)
def dies():
    print("last words")
    print("and a partial", end="", flush=True)
    os.kill(os.getpid(), 9)
try:
    get(dies.remote())
except sooner.exceptions.WorkerCrashedError:
    pass
""")
    assert ("dies", "last words") in lines(done.stdout)


def test_output_of_an_actor_that_ends():
    done = run("""
@sooner.remote
class Ends:
    def ready(self):
        import atexit
        atexit.register(print, "goodbye")
ends = Ends.remote()
get(ends.ready.remote())
del ends
time.sleep(0.5)
""")
    assert lines(done.stdout) == [("Ends", "goodbye")]


def test_nested_tasks_print_to_the_driver():
    done = run("""
@sooner.remote
def inner():
    print("inner speaks")
@sooner.remote
def outer():
    print("outer speaks")
    sooner.get(inner.remote())
    print("outer again")
get(outer.remote())
""")
    assert sorted(lines(done.stdout)) == [
        ("inner", "inner speaks"),
        ("outer", "outer again"),
        ("outer", "outer speaks"),
    ]


def test_the_drivers_own_stream_is_used():
    done = run("""
@sooner.remote
def speaks():
    print("hello")
real, sys.stdout = sys.stdout, io.StringIO()
get(speaks.remote())
sooner.shutdown()
text, sys.stdout = sys.stdout.getvalue(), real
print("caught", text.strip())
""")
    assert re.fullmatch(r"caught \(speaks pid=\d+\) hello\n", done.stdout)


def test_a_driver_whose_terminal_is_gone_goes_on():
    done = run("""
@sooner.remote
def speaks(n):
    print("x" * 1000)
    return n
reader, writer = os.pipe()
os.close(reader)
sys.stdout = os.fdopen(writer, "w")
result = get([speaks.remote(n) for n in range(100)])
sys.stdout = None
assert get([speaks.remote(n) for n in range(100)]) == result
sys.stderr.write(f"{len(result)} results\\n")
""")
    assert done.stderr == "100 results\n"


def test_a_driver_that_shows_slowly_loses_nothing():
    done = run("""
@sooner.remote
def speaks(who):
    for n in range(2000):
        print(who, n, "x" * 100)
class Slow(io.StringIO):
    def write(self, text):
        time.sleep(0.001)
        return super().write(text)
real, sys.stdout = sys.stdout, Slow()
get([speaks.remote(who) for who in "ab"])
sooner.shutdown()
text, sys.stdout = sys.stdout.getvalue(), real
print(text.count("\\n"))
""")
    assert done.stdout == "4000\n"


FILES = """
@sooner.remote
def speaks(n):
    print("line", n)
    print("problem", n, file=sys.stderr)
get([speaks.remote(n) for n in range(20)])
def all_text():
    return "".join(path.read_text() for path in Path(context["session_dir"], "logs").rglob("*") if path.is_file())
until = time.monotonic() + 60
while not all(f"{what} {n}\\n" in all_text() for n in range(20) for what in ("line", "problem")):
    assert time.monotonic() < until, all_text()
    time.sleep(0.01)
"""


def test_lines_are_kept_in_files_of_a_private_directory():
    done = run(
        FILES
        + """
modes = {os.stat(path).st_mode & 0o777 for path in (context["session_dir"], context["session_dir"] + "/logs")}
print(modes == {0o700})
"""
    )
    assert "True\n" in done.stdout


@pytest.mark.api("init.logging")
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_lines_can_be_kept_from_the_terminal(how):
    options = "dict(log_to_driver=False)" if how == "argument" else "dict()"
    env = os.environ | ({"SOONER_LOG_TO_DRIVER": "0"} if how == "environment" else {})
    done = run(FILES, options, env=env)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.api("init.logging")
def test_the_argument_wins_over_the_environment():
    done = run(FILES, "dict(log_to_driver=True)", env=os.environ | {"SOONER_LOG_TO_DRIVER": "0"})
    assert done.stdout.count("line") == 20


def test_files_are_rotated():
    """What is kept is bounded, and it is the end that is kept."""
    done = run(
        """
@sooner.remote
def chatty():
    block = "\\n".join(["q" * 1023] * 1024)
    for _ in range(100):
        print(block)
    print("the last line")
get(chatty.remote())
logs = Path(context["session_dir"], "logs")
until = time.monotonic() + 60
while not any(b"the last line" in path.read_bytes()[-4096:] for path in logs.rglob("*") if path.is_file()):
    assert time.monotonic() < until
    time.sleep(0.05)
print(sum(path.stat().st_size for path in logs.rglob("*")))
""",
        "dict(log_to_driver=False)",
    )
    assert 1 << 20 < int(done.stdout) < 60 << 20


def test_files_are_gone_after_the_session(short_dir):
    run(FILES, env=os.environ | {"SOONER_TMPDIR": str(short_dir)})
    assert not [path for path in short_dir.rglob("*") if path.is_file()]


def test_files_are_gone_after_an_exit_without_shutdown(short_dir):
    run_driver(HEAD.format("dict()") + FILES, env=os.environ | {"SOONER_TMPDIR": str(short_dir)})
    assert not [path for path in short_dir.rglob("*") if path.is_file()]


def test_lines_come_while_the_task_runs():
    code = """
@sooner.remote
def speaks(path):
    print("early")
    while not path.exists():
        time.sleep(0.01)
import tempfile
gate = Path(tempfile.mkdtemp()) / "gate"
ref = speaks.remote(gate)
sys.stdin.readline()
gate.touch()
get(ref)
"""
    with running_driver(HEAD.format("dict()") + code) as driver:
        assert LINE.fullmatch(driver.stdout.readline().rstrip("\n"))["text"] == "early"
        driver.stdin.write("go\n")
        driver.stdin.flush()
        assert driver.wait(timeout=100) == 0


def test_modes_do_not_depend_on_the_umask():
    done = run(
        """
print(oct(os.stat(context["session_dir"] + "/logs").st_mode & 0o777))
""",
        preexec_fn=lambda: os.umask(0),
    )
    assert done.stdout == "0o700\n"
