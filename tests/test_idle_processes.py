"""A process answers, and what its threads leave leaves it, while none of them waits and while its worker
is idle.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support import poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError
from sooner.util import metrics
from sooner.util.metrics import Counter

# Longer than an idle worker needs to sleep in earnest (seconds).
_IDLE = 0.3


def _later(work) -> None:
    def run():
        time.sleep(_IDLE)
        work()
        # What this thread leaves leaves without a word of its own.
        threading.Event().wait()

    threading.Thread(target=run, daemon=True).start()


@sooner.remote(num_cpus=0)
class Other:
    def pid(self):
        return os.getpid()

    def stay(self):
        threading.Event().wait()

    def mark(self, path):
        Path(path).touch()


class Holder:
    """Starts threads that do something while its worker is idle."""

    def prepare(self):
        self.other = Other.options(max_concurrency=2).remote()
        return sooner.get(self.other.pid.remote())

    def forget_later(self):
        _later(lambda: delattr(self, "other"))

    def call_later(self, path):
        def call():
            self.refs = [self.other.stay.remote(), self.other.mark.remote(path)]

        _later(call)

    def count_later(self, name):
        _later(Counter(name).inc)
        return os.getpid()


class AsyncHolder(Holder):
    async def ready(self): ...


@sooner.remote
def in_task(name, *args):
    """What the worker of a task does after it."""
    holder = Holder()
    pid = holder.prepare()
    getattr(holder, name)(*args)
    return pid


_KINDS = pytest.mark.parametrize(
    ("cls", "options"),
    [(Holder, {}), (Holder, {"max_concurrency": 3}), (AsyncHolder, {})],
    ids=["actor", "threads", "asyncio"],
)


@_KINDS
def test_a_reference_that_a_thread_of_an_idle_actor_drops_is_dropped(shared_session, cls, options):
    holder = sooner.remote(cls).options(**options).remote()
    other = sooner.get(holder.prepare.remote())
    sooner.get(holder.forget_later.remote())
    poll(
        "the last handle of the other actor has gone, and so has its process",
        lambda: not Path(f"/proc/{other}").exists(),
    )


def test_a_reference_that_a_thread_of_an_idle_worker_drops_is_dropped(shared_session):
    other = sooner.get(in_task.remote("forget_later"))
    poll("the last handle of the actor has gone, and so has its process", lambda: not Path(f"/proc/{other}").exists())


@_KINDS
def test_calls_that_a_thread_of_an_idle_actor_makes_leave(shared_session, tmp_path, cls, options):
    """The second call of a burst waits for company, and nothing else happens in this process."""
    holder = sooner.remote(cls).options(**options).remote()
    sooner.get(holder.prepare.remote())
    sooner.get(holder.call_later.remote(str(tmp_path / "mark")))
    poll("the second call has run", (tmp_path / "mark").exists)


@_KINDS
def test_what_a_thread_of_an_idle_actor_measures_is_told(shared_session, cls, options):
    name = f"idle_{cls.__name__}_{len(options)}_total".lower()
    holder = sooner.remote(cls).options(**options).remote()
    worker = sooner.get(holder.count_later.remote(name))
    # A question would make it report; its end does not.
    time.sleep(_IDLE + 2.5)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        sooner.get(holder.__ray_ready__.remote())
    assert f"{name} 1" in metrics.prometheus_text()


# A task asks the program for a value while that does something else.
_READER = """
        import signal, sys, time, sooner
        from pathlib import Path

        mark = Path(sys.argv[1])
        sooner.init(num_cpus=1)

        @sooner.remote
        def read_later(refs):
            time.sleep(1)
            mark.write_text(str(sooner.get(refs[0])))
            return "read"

        def wait_for_reader():
            end = time.monotonic() + 60
            while not (mark.exists() and mark.read_text()):
                assert time.monotonic() < end, "nobody answered"
                time.sleep(0.01)
"""


@pytest.mark.parametrize("wait", ["sooner.get(done)", "sooner.wait([done])"])
def test_a_program_whose_wait_was_interrupted_answers(tmp_path, wait):
    """An owner is asked for its values while it does something else, after Ctrl-C or an alarm."""
    run_driver(
        _READER
        + f"""

        class Stop(BaseException): ...

        def stop(*_):
            raise Stop

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        done = read_later.remote([sooner.put(7)])
        try:
            {wait}
        except Stop:
            pass
        else:
            sys.exit("it was not interrupted")
        wait_for_reader()
        """,
        tmp_path / "mark",
    )


def test_a_program_in_a_signal_handler_answers(tmp_path):
    """The handler runs in the middle of a wait, and takes its time."""
    run_driver(
        _READER
        + """

        def handler(*_):
            wait_for_reader()

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        assert sooner.get(read_later.remote([sooner.put(7)])) == "read"
        """,
        tmp_path / "mark",
    )
