"""Notebooks: how objects look, where lines and bars go, and what an interrupt does."""

from __future__ import annotations

import os
import re
import textwrap

import pytest
from support import WAIT, run_driver

import sooner

# What sooner uses of IPython, for drivers that believe to be a kernel.
IPYTHON = """
import contextvars, types

cell = contextvars.ContextVar("cell", default=None)
shown = []
callbacks = []

class Events:
    def register(self, name, callback):
        assert name == "pre_run_cell"
        callbacks.append(callback)

_shell = types.SimpleNamespace(kernel=True, events=Events())

def get_ipython():
    return _shell

def run_cell(name, code):
    def run():
        cell.set(name)
        for callback in callbacks:
            callback(None)
        return code()
    return contextvars.copy_context().run(run)
"""

DISPLAY = """
from IPython import cell, shown

class Handle:
    def update(self, shown_now):
        shown.append((cell.get(), "update", shown_now))

def display(shown_now, display_id=False):
    assert display_id is True
    shown.append((cell.get(), "new", shown_now))
    return Handle()
"""

HEAD = """
import os, signal, sys, threading, time
import IPython, IPython.display
import sooner
"""


@pytest.fixture
def kernel(tmp_path):
    """Options of `run_driver` for a program that runs in a kernel."""
    package = tmp_path / "IPython"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(IPYTHON))
    (package / "display.py").write_text(textwrap.dedent(DISPLAY))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    return {"env": {**os.environ, "PYTHONPATH": path}}


def cells(html):
    """The table of a piece of HTML: name -> value."""
    found = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", html)
    assert html.count("<tr>") == len(found)
    return dict(found)


@pytest.mark.api("own.notebooks")
@pytest.mark.usefixtures("shared_session")
class TestLooks:
    def test_a_session(self, shared_session):
        table = cells(shared_session._repr_html_())
        assert table["address"] == "local"
        assert table["directory"] == shared_session["session_dir"]
        assert table["resource CPU"] == "2 of 2 free"
        assert table["resource memory"].endswith("GiB free")

    def test_an_actor_and_its_class(self):
        @sooner.remote(num_cpus=0, name="<b>bold</b>")
        class Trainer:
            """Trains <i>things</i>.

            Not shown.
            """

            def __init__(self, rate=0.5):
                self.rate = rate

            def train(self):
                return self.rate

            def _private(self):
                pass

        html = Trainer._repr_html_()
        assert "Trains &lt;i&gt;things&lt;/i&gt;." in html
        assert "Not shown" not in html
        table = cells(html)
        assert table["call"] == "Trainer.remote(rate=0.5)"
        assert table["methods"] == "train"
        assert "&lt;b&gt;bold&lt;/b&gt;" in table["options"]
        actor = Trainer.remote()
        table = cells(actor._repr_html_())
        assert (table["class"], table["id"], table["methods"]) == ("Trainer", actor._actor_id, "train")

    def test_a_function(self):
        @sooner.remote
        def add(a: int, b="<b>"):
            return a

        table = cells(add._repr_html_())
        assert table["call"].startswith("add.remote(a:")
        assert "b=&#x27;&lt;b&gt;&#x27;" in table["call"]
        assert "options" not in table
        assert cells(sooner.remote(min)._repr_html_())["call"] == "min.remote(...)"

    def test_a_reference(self):
        from sooner._progress.html import ref_html

        ref = sooner.put(1)
        sooner.get(ref, timeout=WAIT)
        assert cells(ref_html(ref)) == {"id": ref.hex(), "state": "ready", "owner": ref.owner_address()}


def test_looks_after_the_session():
    done = run_driver(
        """
        import sooner
        from sooner._progress.html import ref_html
        context = sooner.init(num_cpus=1)
        ref = sooner.put(1)
        sooner.shutdown()
        print(context._repr_html_(), ref_html(ref))
        sooner.init(num_cpus=1)
        print(context._repr_html_(), ref_html(ref))
        """
    )
    for line in done.stdout.splitlines():
        assert "ended</td>" in line
        assert "of a session that has ended" in line


@pytest.mark.api("own.notebooks")
def test_lines_go_to_the_cell_that_ran_last(kernel):
    done = run_driver(
        HEAD
        + """
class Stream:
    def __init__(self):
        self.written = []
    def write(self, text):
        self.written.append((IPython.cell.get(), text))
    def flush(self):
        pass

sys.stdout, real = Stream(), sys.stdout
say = sooner.remote(print)

def wait_for(count):
    while len(sys.stdout.written) < count:
        time.sleep(0.01)

def one():
    sooner.init(num_cpus=1)
    sooner.get(say.remote("first"))
    wait_for(1)

def two():
    sooner.get(say.remote("second"))
    wait_for(2)

IPython.run_cell("one", one)
IPython.run_cell("two", two)
print(*((cell, text.split(") ")[1].strip()) for cell, text in sys.stdout.written), file=real)
""",
        **kernel,
    )
    assert done.stdout == "('one', 'first') ('two', 'second')\n"


def test_bars_are_one_output_of_their_cell(kernel):
    done = run_driver(
        HEAD
        + """
from sooner.util.progress import tqdm

def one():
    sooner.init(num_cpus=1)

def two():
    for _ in sooner.progress([sooner.put(n) for n in range(3)], description="<refs>"):
        pass

@sooner.remote
def inside():
    with tqdm(total=4, desc="inside", leave=True) as bar:
        bar.update(2)

def three():
    sooner.get(inside.remote())
    sooner.shutdown()

IPython.run_cell("one", one)
IPython.run_cell("two", two)
IPython.run_cell("three", three)
for cell, kind, bars in IPython.shown:
    print(cell, kind, repr(bars), bars._repr_html_(), sep="|")
""",
        **kernel,
    )
    assert "Error" not in done.stderr
    shown = [line.split("|") for line in done.stdout.splitlines()]
    two = [line for line in shown if line[0] == "two"]
    assert [kind for _, kind, *_ in two] == ["new"] + ["update"] * (len(two) - 1)
    assert two[-1][2].startswith("<refs>: 100% 3/3 [")
    assert re.fullmatch(
        r'<div><progress max="100" value="100.0"></progress> &lt;refs&gt;: 100% 3/3 .*</div>', two[-1][3]
    )
    three = [line for line in shown if line[0] == "three"]
    assert re.match(r"\(inside pid=\d+\) inside: 50% 2/4 ", three[-1][2])
    assert len(two) + len(three) == len(shown)


INTERRUPT = """
@sooner.remote(num_cpus=0)
def sleep():
    time.sleep(1000)

def interrupted(verb, refs):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        verb(refs)
    except KeyboardInterrupt:
        return
    raise AssertionError("nobody noticed")

def is_cancelled(ref, seconds=60):
    try:
        sooner.get(ref, timeout=seconds)
    except sooner.exceptions.TaskCancelledError:
        return True
    except TimeoutError:
        return False

signal.signal(signal.SIGINT, signal.default_int_handler)
"""


@pytest.mark.api("own.notebooks")
def test_an_interrupted_wait_cancels_in_a_notebook(kernel):
    done = run_driver(
        HEAD
        + INTERRUPT
        + """
sooner.init(num_cpus=1)
refs = [sleep.remote() for _ in range(4)]
interrupted(sooner.get, refs[:2])
interrupted(sooner.wait, [refs[2]])
print([is_cancelled(ref) for ref in refs[:3]], is_cancelled(refs[3], 0.2))
# What is done stays, and others still work.
put = sooner.put(1)
interrupted(sooner.get, (put, refs[3]))
print(sooner.get(put), is_cancelled(refs[3]))

# An error of a task is no key that was pressed.
@sooner.remote
def raises():
    raise KeyboardInterrupt
other = sleep.remote()
try:
    sooner.get([raises.remote(), other], timeout=2)
except BaseException as error:
    print(type(error).__mro__[0] is not KeyboardInterrupt)
print(is_cancelled(other, 0.2))
sooner.shutdown()
sooner.init(num_cpus=1, cancel_on_interrupt=False)
ref = sleep.remote()
interrupted(sooner.get, ref)
print(is_cancelled(ref, 0.2))
""",
        **kernel,
    )
    assert done.stdout.splitlines() == ["[True, True, True] False", "1 True", "True", "False", "False"]


def test_an_interrupt_in_a_program():
    done = run_driver(
        "import os, signal, threading, time, sooner\n"
        + INTERRUPT
        + """
sooner.init(num_cpus=1)
plain = sooner.get
ref = sleep.remote()
interrupted(sooner.get, ref)
print(is_cancelled(ref, 0.2))
sooner.shutdown()
sooner.init(num_cpus=1, cancel_on_interrupt=True)
ref = sleep.remote()
interrupted(sooner.get, ref)
print(is_cancelled(ref))
sooner.shutdown()
sooner.init(num_cpus=1)
print(sooner.get is plain)
"""
    )
    assert done.stdout.splitlines() == ["False", "True", "True"]


@pytest.mark.parametrize("value", [1, "yes", 0], ids=repr)
def test_cancel_on_interrupt_is_a_flag(value):
    with pytest.raises(ValueError, match="cancel_on_interrupt"):
        sooner.init(cancel_on_interrupt=value)
