"""Where a call believes it runs when calls nest, when threads ask, and when a session starts by itself; signatures."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from support import WAIT, run_driver

import weft

pytestmark = pytest.mark.usefixtures("shared_session")


@weft.remote
def task_id():
    return weft.get_runtime_context().get_task_id()


@weft.remote
def actor_id():
    return weft.get_runtime_context().get_actor_id()


@weft.remote
class Named:
    def name(self):
        return weft.get_runtime_context().get_task_name()

    def actor_of_a_task(self):
        return weft.get(actor_id.remote())

    def add(self, a, b=2, *, c=3):
        return a + b + c


def test_nested_tasks_have_ids_of_their_own():
    @weft.remote
    def outer():
        before = weft.get_runtime_context().get_task_id()
        return before, weft.get(task_id.remote()), weft.get_runtime_context().get_task_id()

    before, inner, after = weft.get(outer.remote(), timeout=WAIT)
    assert before == after
    assert inner != before


def test_a_thread_of_a_task_can_ask():
    @weft.remote
    def with_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(weft.get_runtime_context().get_worker_id()))
        thread.start()
        thread.join()
        return found[0], weft.get_runtime_context().get_worker_id()

    in_thread, in_main = weft.get(with_thread.remote(), timeout=WAIT)
    assert in_thread == in_main


def test_the_name_of_a_call():
    named = Named.remote()
    plain, other = named.name.remote(), named.name.options(name="this call").remote()
    assert weft.get(plain, timeout=WAIT).endswith("name")
    assert weft.get(other, timeout=WAIT) == "this call"


def test_a_task_of_an_actor_is_not_in_the_actor():
    assert weft.get(Named.remote().actor_of_a_task.remote(), timeout=WAIT) is None


def test_an_event_loop_inside_a_task():
    @weft.remote
    def inside():
        async def main():
            return await asyncio.gather(*(task_id.remote() for _ in range(20)))

        return asyncio.run(main())

    assert len(set(weft.get(inside.remote(), timeout=WAIT))) == 20


def test_a_ready_ref_does_not_starve_the_loop():
    async def main():
        ref = weft.put(1)
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        for _ in range(100):
            await ref
        beside.cancel()
        return turns

    assert asyncio.run(main()) >= 50


@pytest.mark.api("task.remote")
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"d": 1}), ((), {"b": 1})],
    ids=["too few", "too many", "twice", "unknown", "first missing"],
)
def test_arguments_that_do_not_fit_are_refused_at_the_call(args, kwargs):
    @weft.remote
    def add(a, b=2, *, c=3):
        return a + b + c

    named = Named.remote()
    for call in (add.remote, add.options(num_cpus=0.5).remote, named.add.remote):
        with pytest.raises(TypeError):
            call(*args, **kwargs)
    # The name of the wrong argument does not break the next call.
    assert weft.get([add.remote(1), named.add.remote(1, c=0)], timeout=WAIT) == [6, 3]


def test_arguments_of_a_constructor_are_checked_at_the_call():
    @weft.remote
    class Needs:
        def __init__(self, a, *, b):
            self.sum = a + b

        def read(self):
            return self.sum

    for args, kwargs in [((), {}), ((1,), {}), ((1, 2), {}), ((1,), {"b": 2, "c": 3})]:
        with pytest.raises(TypeError):
            Needs.remote(*args, **kwargs)
    assert weft.get(Needs.remote(1, b=2).read.remote(), timeout=WAIT) == 3


def test_the_namespace_of_init_and_the_start_on_first_use():
    done = run_driver("""
        import weft
        with weft.init(num_cpus=1, namespace="rooms"):
            @weft.remote
            def inside():
                return weft.get_runtime_context().namespace
            print(weft.get_runtime_context().namespace, weft.get(inside.remote(), timeout=60))
            first = weft.get_runtime_context().get_job_id()
        assert not weft.is_initialized()
        second = weft.get_runtime_context().get_job_id()
        print(weft.is_initialized(), first != second)
    """)
    assert done.stdout.split() == ["rooms", "rooms", "True", "True"]


# --- what errors say of the call --------------------------------------------------------------------------------------


@pytest.mark.api("own.call_sites")
def test_an_error_names_large_arguments():
    @weft.remote
    def fail(data, flag, *, extra):
        raise ValueError("no")

    large = weft.put(bytearray(2_000_000))
    with pytest.raises(ValueError, match="no") as caught:
        weft.get(fail.remote(large, True, extra=b"x" * 5000))
    assert re.search(r"arguments: 0: 2\.0 MB, 1: \d+ B, extra: 5\.0 kB", str(caught.value))
    with pytest.raises(ValueError, match="no") as caught:
        weft.get(fail.remote(1, True, extra=2))
    assert "arguments:" not in str(caught.value)
    assert "submitted at" not in str(caught.value)


@pytest.mark.api("own.call_sites")
def test_an_error_says_where_the_task_was_submitted_when_asked_to():
    done = run_driver("""
        import weft

        weft.init(num_cpus=2, record_call_sites=True)

        @weft.remote
        def fail():
            raise ValueError("no")

        @weft.remote
        def outer():
            weft.get(fail.remote())

        def submit(function):
            return function.remote()

        for function in (fail, outer):
            try:
                weft.get(submit(function))
            except ValueError as error:
                print(str(error))
    """)
    assert done.stdout.count("submitted at <string>:") == 3
    assert " in submit" in done.stdout
    assert " in outer" in done.stdout
