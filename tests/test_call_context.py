"""Where a call believes it runs when calls nest, when threads ask, and when a session starts by itself;
signatures.
"""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from support import WAIT, run_driver

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote
def task_id():
    return sooner.get_runtime_context().get_task_id()


@sooner.remote
def actor_id():
    return sooner.get_runtime_context().get_actor_id()


@sooner.remote
class Named:
    def name(self):
        return sooner.get_runtime_context().get_task_name()

    def actor_of_a_task(self):
        return sooner.get(actor_id.remote())

    def add(self, a, b=2, *, c=3):
        return a + b + c


def test_nested_tasks_have_ids_of_their_own():
    @sooner.remote
    def outer():
        before = sooner.get_runtime_context().get_task_id()
        return before, sooner.get(task_id.remote()), sooner.get_runtime_context().get_task_id()

    before, inner, after = sooner.get(outer.remote(), timeout=WAIT)
    assert before == after
    assert inner != before


def test_a_thread_of_a_task_can_ask():
    @sooner.remote
    def with_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(sooner.get_runtime_context().get_worker_id()))
        thread.start()
        thread.join()
        return found[0], sooner.get_runtime_context().get_worker_id()

    in_thread, in_main = sooner.get(with_thread.remote(), timeout=WAIT)
    assert in_thread == in_main


def test_the_name_of_a_call():
    named = Named.remote()
    plain, other = named.name.remote(), named.name.options(name="this call").remote()
    assert sooner.get(plain, timeout=WAIT).endswith("name")
    assert sooner.get(other, timeout=WAIT) == "this call"


def test_a_task_of_an_actor_is_not_in_the_actor():
    assert sooner.get(Named.remote().actor_of_a_task.remote(), timeout=WAIT) is None


def test_an_event_loop_inside_a_task():
    @sooner.remote
    def inside():
        async def main():
            return await asyncio.gather(*(task_id.remote() for _ in range(20)))

        return asyncio.run(main())

    assert len(set(sooner.get(inside.remote(), timeout=WAIT))) == 20


def test_a_ready_ref_does_not_starve_the_loop():
    async def main():
        ref = sooner.put(1)
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
    @sooner.remote
    def add(a, b=2, *, c=3):
        return a + b + c

    named = Named.remote()
    for call in (add.remote, add.options(num_cpus=0.5).remote, named.add.remote):
        with pytest.raises(TypeError):
            call(*args, **kwargs)
    # The name of the wrong argument does not break the next call.
    assert sooner.get([add.remote(1), named.add.remote(1, c=0)], timeout=WAIT) == [6, 3]


def test_arguments_of_a_constructor_are_checked_at_the_call():
    @sooner.remote
    class Needs:
        def __init__(self, a, *, b):
            self.sum = a + b

        def read(self):
            return self.sum

    for args, kwargs in [((), {}), ((1,), {}), ((1, 2), {}), ((1,), {"b": 2, "c": 3})]:
        with pytest.raises(TypeError):
            Needs.remote(*args, **kwargs)
    assert sooner.get(Needs.remote(1, b=2).read.remote(), timeout=WAIT) == 3


def test_the_namespace_of_init_and_the_start_on_first_use():
    done = run_driver("""
        import sooner
        with sooner.init(num_cpus=1, namespace="rooms"):
            @sooner.remote
            def inside():
                return sooner.get_runtime_context().namespace
            print(sooner.get_runtime_context().namespace, sooner.get(inside.remote(), timeout=60))
            first = sooner.get_runtime_context().get_job_id()
        assert not sooner.is_initialized()
        second = sooner.get_runtime_context().get_job_id()
        print(sooner.is_initialized(), first != second)
    """)
    assert done.stdout.split() == ["rooms", "rooms", "True", "True"]


# --- what errors say of the
# call --------------------------------------------------------------------------------------


@pytest.mark.api("own.call_sites")
def test_an_error_names_large_arguments():
    @sooner.remote
    def fail(data, flag, *, extra):
        raise ValueError("no")

    large = sooner.put(bytearray(2_000_000))
    with pytest.raises(ValueError, match="no") as caught:
        sooner.get(fail.remote(large, True, extra=b"x" * 5000))
    assert re.search(r"arguments: 0: 2\.0 MB, 1: \d+ B, extra: 5\.0 kB", str(caught.value))
    with pytest.raises(ValueError, match="no") as caught:
        sooner.get(fail.remote(1, True, extra=2))
    assert "arguments:" not in str(caught.value)
    assert "submitted at" not in str(caught.value)


@pytest.mark.api("own.call_sites")
def test_an_error_says_where_the_task_was_submitted_when_asked_to():
    done = run_driver("""
        import sooner

        sooner.init(num_cpus=2, record_call_sites=True)

        @sooner.remote
        def fail():
            raise ValueError("no")

        @sooner.remote
        def outer():
            sooner.get(fail.remote())

        def submit(function):
            return function.remote()

        for function in (fail, outer):
            try:
                sooner.get(submit(function))
            except ValueError as error:
                print(str(error))
    """)
    assert done.stdout.count("submitted at <string>:") == 3
    assert " in submit" in done.stdout
    assert " in outer" in done.stdout
