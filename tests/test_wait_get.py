"""`get` and `wait`: order, timeouts, kinds of arguments, errors."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from support import WAIT, run_driver

import sooner
from sooner.exceptions import ActorDiedError, GetTimeoutError, TaskError

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def identity(value):
    return value


@sooner.remote(num_cpus=0)
def when(path, value=None):
    """Returns once a file exists."""
    while not path.exists():
        time.sleep(0.005)
    return value


@sooner.remote
def fails(text):
    raise ValueError(text)


@pytest.fixture
def gates(tmp_path):
    """Four gates, and tasks that end when theirs is opened. All are open at the end."""
    paths = [tmp_path / str(n) for n in range(4)]
    yield paths
    for path in paths:
        path.touch()


@pytest.mark.api("get")
def test_get_of_a_list_keeps_its_order():
    refs = [identity.remote(n) for n in range(50)]
    assert sooner.get(refs[::-1], timeout=WAIT) == list(range(50))[::-1]


def test_get_of_a_list_with_repeats():
    ref = identity.remote("x")
    assert sooner.get([ref, ref, ref], timeout=WAIT) == ["x"] * 3


def test_get_of_an_empty_list():
    assert sooner.get([]) == []
    assert sooner.get([], timeout=0) == []


def test_get_twice_gives_the_same():
    ref = identity.remote([1])
    assert sooner.get(ref, timeout=WAIT) == sooner.get(ref) == [1]


def test_get_mixes_puts_results_and_large_values():
    large = b"x" * (1 << 20)
    refs = [sooner.put(1), identity.remote(2), sooner.put(large), identity.remote(large)]
    assert sooner.get(refs, timeout=WAIT) == [1, 2, large, large]


@pytest.mark.api("get")
@pytest.mark.parametrize("value", [1, "ref", None, {"a": 1}, iter([])], ids=lambda v: type(v).__name__)
def test_get_of_something_else(value):
    with pytest.raises(ValueError, match="ObjectRef"):
        sooner.get(value)


def test_get_of_a_list_with_something_else():
    with pytest.raises(ValueError, match=r"ObjectRef.*int"):
        sooner.get([sooner.put(1), 2])


def test_get_of_a_list_of_lists():
    with pytest.raises(ValueError, match=r"ObjectRef.*list"):
        sooner.get([[sooner.put(1)]])


@pytest.mark.api("get", "errors.timeout")
@pytest.mark.parametrize("timeout", [0, 0.0, 0.05, -1], ids=str)
def test_get_with_a_timeout_that_passes(gates, timeout):
    ref = when.remote(gates[0], "late")
    with pytest.raises(GetTimeoutError) as caught:
        sooner.get(ref, timeout=timeout)
    assert isinstance(caught.value, TimeoutError)
    gates[0].touch()
    assert sooner.get(ref, timeout=WAIT) == "late"


def test_get_of_a_list_times_out_when_one_is_missing(gates):
    refs = [identity.remote(1), when.remote(gates[0])]
    with pytest.raises(GetTimeoutError):
        sooner.get(refs, timeout=0.1)


@pytest.mark.api("get")
def test_timeout_0_gives_what_is_there():
    ref = identity.remote(1)
    sooner.wait([ref], timeout=WAIT)
    assert sooner.get(ref, timeout=0) == 1
    assert sooner.get([ref, sooner.put(2)], timeout=0) == [1, 2]


@pytest.mark.api("get")
@pytest.mark.parametrize("timeout", ["1", [], float("nan")], ids=str)
def test_a_timeout_of_another_kind(gates, timeout):
    with pytest.raises((TypeError, ValueError)):
        sooner.get(when.remote(gates[0]), timeout=timeout)


def test_a_huge_timeout():
    assert sooner.get(identity.remote(1), timeout=1e18) == 1
    assert sooner.get(identity.remote(1), timeout=float("inf")) == 1


@pytest.mark.api("get")
def test_an_error_in_a_list_is_raised():
    with pytest.raises(ValueError, match="second") as caught:
        sooner.get([identity.remote(1), fails.remote("second")], timeout=WAIT)
    assert isinstance(caught.value, TaskError)


def test_an_error_is_raised_each_time():
    ref = fails.remote("again")
    for _ in range(3):
        with pytest.raises(ValueError, match="again"):
            sooner.get(ref, timeout=WAIT)


def test_an_error_in_a_list_does_not_wait_for_the_rest(gates):
    """A failed task is reported although another of the list still runs."""
    refs = [when.remote(gates[0]), fails.remote("early")]
    sooner.wait([refs[1]], timeout=WAIT)
    with pytest.raises((ValueError, GetTimeoutError)):
        sooner.get(refs, timeout=0.2)


@pytest.mark.api("wait")
def test_wait_for_one(gates):
    refs = [when.remote(gate, n) for n, gate in enumerate(gates)]
    gates[2].touch()
    ready, rest = sooner.wait(refs, timeout=WAIT)
    assert ready == [refs[2]]
    assert rest == [refs[0], refs[1], refs[3]]


@pytest.mark.api("wait")
def test_wait_keeps_the_order_of_the_list_not_of_completion(gates):
    refs = [when.remote(gate, n) for n, gate in enumerate(gates)]
    gates[3].touch()
    sooner.wait([refs[3]], timeout=WAIT)
    gates[1].touch()
    ready, rest = sooner.wait(refs, num_returns=2, timeout=WAIT)
    assert ready == [refs[1], refs[3]]
    assert rest == [refs[0], refs[2]]


def test_wait_for_all():
    refs = [identity.remote(n) for n in range(100)]
    assert sooner.wait(refs, num_returns=100, timeout=WAIT) == (refs, [])


def test_wait_gives_no_more_than_asked_for():
    refs = [sooner.put(n) for n in range(5)]
    assert sooner.wait(refs, num_returns=2) == (refs[:2], refs[2:])


@pytest.mark.api("wait")
def test_wait_with_a_timeout_gives_what_is_ready(gates):
    refs = [when.remote(gates[0]), sooner.put(1)]
    assert sooner.wait(refs, num_returns=2, timeout=0.1) == ([refs[1]], [refs[0]])
    assert sooner.wait(refs[:1], timeout=0) == ([], refs[:1])


def test_wait_returns_the_refs_that_came_in():
    ref = sooner.put(1)
    (ready,), _ = sooner.wait([ref])
    assert ready is ref


def test_a_failed_task_is_ready():
    ref = fails.remote("x")
    assert sooner.wait([ref], timeout=WAIT) == ([ref], [])


def test_wait_of_an_empty_list():
    """There is nothing to wait for, as in a loop over what is left."""
    assert sooner.wait([]) == ([], [])


@pytest.mark.api("wait")
def test_wait_for_too_many():
    with pytest.raises(ValueError, match="num_returns"):
        sooner.wait([sooner.put(1)], num_returns=2)


@pytest.mark.parametrize("number", [0, -1])
def test_wait_for_none(number):
    with pytest.raises(ValueError, match="num_returns"):
        sooner.wait([sooner.put(1)], num_returns=number)


@pytest.mark.api("wait")
def test_wait_with_a_repeated_ref():
    ref = sooner.put(1)
    with pytest.raises(ValueError, match=r"twice|duplicate|once"):
        sooner.wait([ref, sooner.put(2), ref])


@pytest.mark.api("wait")
@pytest.mark.parametrize("kind", [lambda r: r, lambda r: {r}, lambda r: (r,)], ids=["ref", "set", "tuple"])
def test_wait_takes_a_list(kind):
    with pytest.raises(TypeError, match="list"):
        sooner.wait(kind(sooner.put(1)))


def test_wait_with_something_else_in_the_list():
    with pytest.raises(TypeError, match=r"ObjectRef.*int"):
        sooner.wait([1])


def test_wait_drains_a_thousand_refs():
    """The loop that every program writes."""
    refs = [identity.remote(n) for n in range(1000)]
    values = []
    while refs:
        ready, refs = sooner.wait(refs, timeout=WAIT)
        assert len(ready) == 1
        values += sooner.get(ready)
    assert sorted(values) == list(range(1000))


def test_wait_inside_a_task_on_borrowed_refs(gates):
    @sooner.remote
    def first(refs):
        ready, rest = sooner.wait(refs, num_returns=1, timeout=WAIT)
        return sooner.get(ready[0]), len(rest)

    refs = [when.remote(gates[0]), when.remote(gates[1], "b")]
    result = first.remote(refs)
    gates[1].touch()
    assert sooner.get(result, timeout=WAIT) == ("b", 1)


def test_get_inside_a_task_with_a_timeout(gates):
    @sooner.remote
    def impatient(box):
        try:
            sooner.get(box[0], timeout=0.05)
        except GetTimeoutError:
            return "timed out"

    assert sooner.get(impatient.remote([when.remote(gates[0])]), timeout=WAIT) == "timed out"


@pytest.mark.api("wait")
def test_fetch_local_is_accepted():
    ref = sooner.put(1)
    assert sooner.wait([ref], fetch_local=False) == ([ref], [])


@pytest.mark.api("get")
def test_get_of_a_list_raises_as_soon_as_one_has_failed(gates):
    refs = [when.remote(gates[0]), identity.remote(1), fails.remote("early"), when.remote(gates[1])]
    with pytest.raises(ValueError, match="early"):
        sooner.get(refs, timeout=WAIT)
    assert not gates[0].exists()
    # Nothing was cancelled.
    gates[0].touch()
    assert sooner.get(refs[0], timeout=WAIT) is None


@pytest.mark.api("get")
def test_get_of_a_list_raises_the_first_of_those_that_have_failed(gates):
    refs = [when.remote(gates[0]), fails.remote("first"), fails.remote("second")]
    sooner.wait(refs[1:], num_returns=2, timeout=WAIT)
    for timeout in (0, WAIT, None):
        with pytest.raises(ValueError, match="first"):
            sooner.get(refs, timeout=timeout)
    with pytest.raises(ValueError, match="second"):
        sooner.get(refs[::-1], timeout=0)


def test_get_of_a_list_raises_for_an_actor_that_dies_while_others_go_on(gates):
    @sooner.remote(num_cpus=0)
    class Fleet:
        def run(self, path):
            while not path.exists():
                time.sleep(0.005)

        def pid(self):
            return os.getpid()

    fleet = [Fleet.remote() for _ in range(3)]
    pids = sooner.get([one.pid.remote() for one in fleet], timeout=WAIT)
    refs = [one.run.remote(gates[0]) for one in fleet]
    threading.Timer(0.3, os.kill, (pids[2], signal.SIGKILL)).start()
    with pytest.raises(ActorDiedError):
        sooner.get(refs, timeout=WAIT)


def test_get_of_a_list_raises_for_a_value_of_another_owner_that_fails(gates):
    @sooner.remote(num_cpus=0)
    def outer(path):
        return [fails.options(num_cpus=0).remote("inner")]

    inner = sooner.get(outer.remote(gates[0]), timeout=WAIT)
    with pytest.raises(ValueError, match="inner"):
        sooner.get([when.remote(gates[0]), *inner], timeout=WAIT)


def test_a_timeout_and_a_signal_end_a_get_while_messages_keep_coming():
    done = run_driver(
        """
        import signal, threading, time
        import sooner

        sooner.init(num_cpus=2)
        never = sooner.remote(num_cpus=0)(lambda: time.sleep(600)).remote()

        @sooner.remote
        class Chatty:
            def talk(self):
                for n in range(10**9):
                    yield n

        # Items come as fast as they are read.
        chatty = [Chatty.options(num_cpus=0).remote() for _ in range(3)]
        talks = [one.talk.options(num_returns="streaming").remote() for one in chatty]
        time.sleep(1)
        try:
            sooner.get(never, timeout=1)
        except sooner.exceptions.GetTimeoutError:
            print("timed out", flush=True)

        class Rung(Exception): pass
        def ring(*_): raise Rung
        signal.signal(signal.SIGALRM, ring)
        # A signal that hits between two waits for messages.
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                sooner.get(never)
            except Rung:
                print("rung", flush=True)
        import os
        os._exit(0)
    """,
        timeout=60,
    )
    assert done.stdout.split("\n")[:-1] == ["timed out"] + ["rung"] * 5, done.stderr
