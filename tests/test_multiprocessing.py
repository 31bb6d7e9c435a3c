"""sooner.util.multiprocessing.Pool against what the standard library documents for its own.

Tests that take `pool` or `make_pool` run with both: they say what a program may rely on whichever it uses.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, TaskError
from sooner.util import multiprocessing as drop_in
from sooner.util.multiprocessing import AsyncResult, JoinableQueue, Pool
from sooner.util.queue import Queue


@pytest.fixture(scope="module", params=["standard", "sooner"])
def kind(request):
    # All tests of the standard pool come first: it forks, and there is no session yet.
    if request.param == "sooner":
        request.getfixturevalue("shared_session")
    return request.param


@pytest.fixture
def make_pool(kind):
    made = []

    def make(*args, **kwargs):
        cls = Pool if kind == "sooner" else multiprocessing.get_context("fork").Pool
        made.append(cls(*args, **kwargs))
        return made[-1]

    yield make
    for pool in made:
        pool.terminate()
        pool.join()


@pytest.fixture
def pool(make_pool):
    return make_pool(2)


@pytest.fixture
def sooner_pool(shared_session):
    with Pool(2) as pool:
        yield pool


def square(number):
    return number * number


def inverse(number):
    return 1 / number


def power(base, exponent=1):
    return base**exponent


def wait_for_file(path):
    deadline = time.monotonic() + WAIT
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return str(path)


def pid_of(_item=None):
    return os.getpid()


def set_word(word):
    os.environ["POOL_TEST_WORD"] = word


def word_of(_item):
    return os.environ["POOL_TEST_WORD"]


def raise_custom(_item):
    raise CustomError("custom", 5)


class CustomError(Exception):
    def __init__(self, text, code):
        super().__init__(text, code)
        self.code = code


class NotThere:
    """An iterable that breaks after its first items."""

    def __init__(self, good):
        self.good = good

    def __iter__(self):
        yield from range(self.good)
        raise LookupError("the iterable broke")


@pytest.mark.api("util.multiprocessing")
class TestApply:
    def test_arguments(self, pool):
        assert pool.apply(power, (3,)) == 3
        assert pool.apply(power, [3, 4]) == 81
        assert pool.apply(power, (3,), {"exponent": 2}) == 9
        assert pool.apply(square, kwds={"number": 5}) == 25
        assert pool.apply(pow, (2, 10)) == 1024

    def test_an_exception_is_the_one_that_was_raised(self, pool):
        with pytest.raises(ZeroDivisionError) as caught:
            pool.apply(inverse, (0,))
        assert type(caught.value) is ZeroDivisionError
        assert "in inverse" in str(caught.value.__cause__)
        with pytest.raises(CustomError) as caught:
            pool.apply(raise_custom, (1,))
        assert caught.value.code == 5

    def test_async(self, pool):
        result = pool.apply_async(square, (7,))
        assert result.get(timeout=WAIT) == 49
        assert result.get() == 49
        assert result.ready()
        assert result.successful()

    def test_async_that_raises(self, pool):
        result = pool.apply_async(inverse, (0,))
        result.wait(WAIT)
        assert not result.successful()
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                result.get(WAIT)

    def test_a_result_that_is_not_ready(self, pool, tmp_path):
        result = pool.apply_async(wait_for_file, (str(tmp_path / "go"),))
        assert not result.ready()
        with pytest.raises(ValueError, match="not ready"):
            result.successful()
        with pytest.raises(multiprocessing.TimeoutError):
            result.get(timeout=0.01)
        with pytest.raises(multiprocessing.TimeoutError):
            result.get(timeout=0)
        assert result.wait(0.01) is None
        (tmp_path / "go").touch()
        assert result.get(WAIT) == str(tmp_path / "go")

    def test_callbacks(self, pool):
        seen = []
        done = threading.Event()
        pool.apply_async(square, (3,), callback=lambda value: (seen.append(value), done.set()))
        assert done.wait(WAIT)
        failed = threading.Event()
        pool.apply_async(inverse, (0,), error_callback=lambda error: (seen.append(type(error)), failed.set()))
        assert failed.wait(WAIT)
        assert seen == [9, ZeroDivisionError]

    def test_a_callback_comes_before_the_result(self, pool):
        seen = []
        result = pool.apply_async(square, (3,), callback=lambda value: (time.sleep(0.05), seen.append(value)))
        result.get(WAIT)
        assert seen == [9]

    def test_many_calls_with_more_than_the_workers_can_take(self, pool):
        results = [pool.apply_async(square, (n,)) for n in range(500)]
        assert [result.get(WAIT) for result in results] == [n * n for n in range(500)]

    def test_calls_go_on_while_nobody_waits(self, pool, tmp_path):
        for number in range(20):
            pool.apply_async(Path.touch, (tmp_path / str(number),))
        poll("all calls have run", lambda: len(list(tmp_path.iterdir())) == 20)

    def test_several_threads(self, pool):
        results = {}

        def use(thread):
            results[thread] = [pool.apply(power, (thread, n)) for n in range(20)] + pool.map(square, range(50))

        threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert results == {t: [t**n for n in range(20)] + [n * n for n in range(50)] for t in range(4)}


@pytest.mark.api("util.multiprocessing")
class TestMap:
    @pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1000])
    @pytest.mark.parametrize("chunksize", [None, 1, 3, 10_000])
    def test_results_in_order(self, pool, length, chunksize):
        assert pool.map(square, range(length), chunksize) == [n * n for n in range(length)]
        assert pool.map(square, iter(range(length)), chunksize) == [n * n for n in range(length)]

    def test_many_short_calls(self, pool):
        for _ in range(3):
            assert pool.map(square, range(3000), chunksize=1) == [n * n for n in range(3000)]

    @pytest.mark.parametrize("chunksize", [None, 1, 2])
    def test_starmap(self, pool, chunksize):
        assert pool.starmap(power, [(2, 3), [3, 2], (4,)], chunksize) == [8, 9, 4]
        assert pool.starmap_async(power, iter([(2, 3), (3, 2)]), chunksize).get(WAIT) == [8, 9]

    def test_async_with_callbacks(self, pool):
        seen = []
        assert pool.map_async(square, range(10), callback=seen.append).get(WAIT) == [n * n for n in range(10)]
        assert seen == [[n * n for n in range(10)]]
        result = pool.map_async(inverse, [1, 0, 2], error_callback=seen.append)
        with pytest.raises(ZeroDivisionError):
            result.get(WAIT)
        assert isinstance(seen[1], ZeroDivisionError)

    def test_an_empty_map_is_ready(self, pool):
        result = pool.map_async(square, [], callback=lambda _: pytest.fail("called"))
        assert result.ready()
        assert result.successful()
        assert result.get() == []

    @pytest.mark.parametrize("chunksize", [None, 1, 5])
    def test_an_exception(self, pool, chunksize):
        with pytest.raises(ZeroDivisionError):
            pool.map(inverse, [1, 2, 0, 4, 5, 6, 7, 8], chunksize)
        assert pool.map(inverse, [1, 2]) == [1, 0.5]

    def test_an_iterable_that_breaks(self, pool):
        with pytest.raises(LookupError, match="broke"):
            pool.map(square, NotThere(3))

    def test_chunks_are_calls_of_one_worker(self, pool):
        pids = pool.map(pid_of, range(12), chunksize=6)
        assert len(set(pids[:6])) == 1
        assert len(set(pids[6:])) == 1

    def test_two_calls_that_meet(self, pool, tmp_path):
        """Each of them goes to a worker of its own, also after many short ones."""
        pool.map(square, range(2000), chunksize=1)
        for round_ in range(5):
            pair = [
                (tmp_path / f"{round_}a", tmp_path / f"{round_}b"),
                (tmp_path / f"{round_}b", tmp_path / f"{round_}a"),
            ]
            pool.starmap(meet, pair, chunksize=1)

    def test_a_call_that_waits_for_one_behind_it(self, pool, tmp_path):
        """Short calls are sent ahead; those behind a long one must come to run elsewhere."""
        pool.map(square, range(2000), chunksize=1)
        calls = [(square, n) for n in range(300)]
        calls[100] = (wait_for_file, str(tmp_path / "go"))
        calls[101] = calls[102] = calls[110] = (square, 1)
        calls[299] = (Path.touch, tmp_path / "go")
        assert pool.starmap(call, calls, chunksize=1)[100] == str(tmp_path / "go")


def meet(mine, other):
    Path(mine).touch()
    wait_for_file(other)


def call(function, argument):
    return function(argument)


@pytest.mark.api("util.multiprocessing")
class TestImap:
    @pytest.mark.parametrize("chunksize", [1, 3, 100])
    def test_results_in_order(self, pool, chunksize):
        assert list(pool.imap(square, range(50), chunksize)) == [n * n for n in range(50)]
        assert list(pool.imap(square, (n for n in range(50)), chunksize)) == [n * n for n in range(50)]
        assert list(pool.imap(square, [], chunksize)) == []
        assert list(pool.imap(square, iter([]), chunksize)) == []

    @pytest.mark.parametrize("chunksize", [1, 3, 100])
    def test_unordered(self, pool, chunksize):
        assert sorted(pool.imap_unordered(square, range(50), chunksize)) == [n * n for n in range(50)]
        assert sorted(pool.imap_unordered(square, iter(range(50)), chunksize)) == [n * n for n in range(50)]

    def test_many(self, pool):
        assert list(pool.imap(square, range(5000))) == [n * n for n in range(5000)]
        assert sorted(pool.imap_unordered(square, iter(range(5000)))) == [n * n for n in range(5000)]

    def test_an_iterator_that_is_used_up(self, pool):
        results = pool.imap(square, range(2))
        assert iter(results) is results
        assert [next(results), next(results)] == [0, 1]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(results)

    def test_the_first_to_end_comes_first(self, pool, tmp_path):
        calls = [(wait_for_file, str(tmp_path / "go")), (square, 3)]
        results = pool.imap_unordered(call_pair, calls)
        assert results.next(WAIT) == 9
        (tmp_path / "go").touch()
        assert results.next(WAIT) == str(tmp_path / "go")

    def test_next_with_a_timeout(self, pool, tmp_path):
        results = pool.imap(wait_for_file, [str(tmp_path / "go")])
        for _ in range(2):
            with pytest.raises(multiprocessing.TimeoutError):
                results.next(timeout=0.01)
        (tmp_path / "go").touch()
        assert results.next(timeout=WAIT) == str(tmp_path / "go")
        with pytest.raises(StopIteration):
            results.next(timeout=WAIT)

    def test_an_exception_is_raised_at_its_place(self, pool):
        results = pool.imap(inverse, [1, 2, 0, 4])
        assert [next(results), next(results)] == [1, 0.5]
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert next(results) == 0.25
        with pytest.raises(StopIteration):
            next(results)

    @pytest.mark.parametrize("good", [0, 1, 7])
    def test_an_iterable_that_breaks(self, pool, good):
        results = pool.imap(square, NotThere(good))
        assert [next(results) for _ in range(good)] == [n * n for n in range(good)]
        with pytest.raises(LookupError, match="broke"):
            next(results)
        with pytest.raises(StopIteration):
            next(results)
        results = pool.imap_unordered(square, NotThere(good))
        with pytest.raises(LookupError, match="broke"):
            list(results)

    def test_an_iterable_that_waits_for_results(self, pool):
        """A program that finds new work in the results of earlier work."""
        found = multiprocessing.get_context("fork").SimpleQueue()
        found.put(1)
        seen = []
        for number in pool.imap_unordered(square_after, iter(found.get, None)):
            seen.append(number)
            found.put(number if number < 100 else None)
        assert seen == [2, 5, 26, 677]

    def test_join_runs_what_was_not_taken(self, make_pool):
        pool = make_pool(2)
        results = pool.imap(square, (n for n in range(200)))
        more = pool.imap(square, range(200))
        pool.close()
        pool.join()
        assert list(results) == list(more) == [n * n for n in range(200)]


def call_pair(pair):
    return pair[0](pair[1])


def square_after(number):
    return number * number + 1


@pytest.mark.api("util.multiprocessing")
class TestWorkers:
    def test_an_initializer(self, make_pool):
        pool = make_pool(2, initializer=set_word, initargs=("hello",))
        assert set(pool.map(word_of, range(50), chunksize=1)) == {"hello"}

    def test_the_number_of_workers(self, make_pool, tmp_path):
        """As many calls at the same time as there are workers, although there are fewer CPUs."""
        pool = make_pool(3)
        names = [str(tmp_path / str(n)) for n in range(3)]
        assert len(set(pool.starmap(meet_all, [(name, names) for name in names], chunksize=1))) == 3

    def test_no_more_calls_than_workers(self, make_pool, tmp_path):
        pool = make_pool(1)
        first = pool.apply_async(wait_for_file, (str(tmp_path / "go"),))
        second = pool.apply_async(square, (2,))
        second.wait(0.1)
        assert not second.ready()
        (tmp_path / "go").touch()
        assert first.get(WAIT)
        assert second.get(WAIT) == 4

    @pytest.mark.parametrize("maxtasks", [1, 3])
    def test_maxtasksperchild(self, make_pool, maxtasks):
        pool = make_pool(2, maxtasksperchild=maxtasks)
        pids = pool.map(pid_of, range(24), chunksize=2)
        calls = [pids[n] for n in range(0, 24, 2)]
        assert max(calls.count(pid) for pid in calls) <= maxtasks
        assert [pool.apply(square, (n,)) for n in range(8)] == [n * n for n in range(8)]

    def test_a_new_worker_is_initialized(self, make_pool):
        pool = make_pool(1, initializer=set_word, initargs=("again",), maxtasksperchild=1)
        assert pool.map(word_of, range(4), chunksize=1) == ["again"] * 4


def meet_all(mine, names):
    Path(mine).touch()
    for name in names:
        wait_for_file(name)
    return os.getpid()


@pytest.mark.api("util.multiprocessing")
class TestEnd:
    def test_close_and_join(self, make_pool):
        pool = make_pool(2)
        results = [pool.apply_async(square, (n,)) for n in range(100)]
        pool.close()
        pool.join()
        assert all(result.ready() for result in results)
        assert [result.get() for result in results] == [n * n for n in range(100)]
        pool.join()

    @pytest.mark.parametrize("end", ["close", "terminate"])
    def test_no_calls_after_the_end(self, make_pool, end):
        pool = make_pool(2)
        getattr(pool, end)()
        for use in (
            lambda: pool.apply(square, (1,)),
            lambda: pool.apply_async(square, (1,)),
            lambda: pool.map(square, [1]),
            lambda: pool.map_async(square, []),
            lambda: pool.starmap(power, [(1, 2)]),
            lambda: pool.starmap_async(power, [(1, 2)]),
            lambda: pool.imap(square, [1]),
            lambda: pool.imap_unordered(square, [1]),
            pool.__enter__,
        ):
            with pytest.raises(ValueError, match="Pool not running"):
                use()
        pool.join()

    def test_join_needs_an_end(self, pool):
        with pytest.raises(ValueError, match="still running"):
            pool.join()

    def test_the_workers_end(self, make_pool):
        for end in ("close", "terminate"):
            pool = make_pool(2)
            pids = set(pool.map(pid_of, range(20), chunksize=1))
            getattr(pool, end)()
            pool.join()
            poll("the workers are gone", lambda pids=pids: not any(is_alive(pid) for pid in pids))

    def test_terminate_ends_running_calls(self, make_pool, tmp_path):
        pool = make_pool(2)
        pool.apply_async(wait_for_file, (str(tmp_path / "never"),))
        begin = time.monotonic()
        pool.terminate()
        pool.join()
        assert time.monotonic() - begin < WAIT

    def test_a_context_terminates(self, make_pool):
        with make_pool(2) as pool:
            assert pool.apply(square, (2,)) == 4
        with pytest.raises(ValueError, match="not running"):
            pool.apply(square, (2,))

    def test_end_twice(self, make_pool):
        pool = make_pool(1)
        for _ in range(2):
            pool.close()
        for _ in range(2):
            pool.terminate()
            pool.join()

    def test_it_cannot_be_pickled(self, pool):
        with pytest.raises((TypeError, NotImplementedError), match="pool objects cannot be passed"):
            pickle.dumps(pool)

    def test_repr(self, make_pool):
        pool = make_pool(2)
        assert "state=RUN pool_size=2" in repr(pool)


class TestRefused:
    @pytest.mark.parametrize("processes", [0, -1])
    def test_processes(self, make_pool, processes):
        with pytest.raises(ValueError, match=r"processes must be|at least 1"):
            make_pool(processes)

    @pytest.mark.parametrize("processes", ["2", 1.5], ids=repr)
    def test_processes_of_a_wrong_type(self, make_pool, processes):
        with pytest.raises((TypeError, ValueError)):
            make_pool(processes)

    @pytest.mark.parametrize("calls", [0, -1, 1.5, "3"], ids=repr)
    def test_maxtasksperchild(self, make_pool, calls):
        with pytest.raises(ValueError, match="maxtasksperchild"):
            make_pool(1, maxtasksperchild=calls)

    def test_initializer(self, make_pool):
        with pytest.raises(TypeError, match="initializer"):
            make_pool(1, initializer=5)

    @pytest.mark.parametrize("chunksize", [0, -3])
    def test_chunksize(self, pool, chunksize):
        for method in (pool.imap, pool.imap_unordered):
            with pytest.raises(ValueError, match=r"(?i)chunksize"):
                method(square, [1], chunksize)

    def test_what_is_no_function(self, pool):
        with pytest.raises(TypeError, match=r"callable|calls functions"):
            pool.apply(5)

    def test_what_is_no_iterable(self, pool):
        with pytest.raises(TypeError, match="iterable"):
            pool.map(square, 5)


# --- sooner's pool alone


@pytest.mark.parametrize("chunksize", [0, -1, 1.5, "2"], ids=repr)
def test_a_chunksize_that_is_none(sooner_pool, chunksize):
    for method in (
        sooner_pool.map,
        sooner_pool.map_async,
        sooner_pool.starmap,
        sooner_pool.imap,
        sooner_pool.imap_unordered,
    ):
        with pytest.raises(ValueError, match="chunksize must be a whole number of at least 1"):
            method(square, [1], chunksize)


@pytest.mark.parametrize(
    ("option", "value", "error", "match"),
    [
        ("processes", True, ValueError, "processes"),
        ("initargs", 5, TypeError, "iterable"),
        ("context", "fork", TypeError, "context of multiprocessing"),
        ("ray_address", 5, TypeError, "ray_address"),
        ("ray_remote_args", 5, TypeError, "ray_remote_args"),
        ("ray_remote_args", {"num_cpu": 1}, ValueError, "num_cpus"),
        ("ray_remote_args", {"num_cpus": "one"}, ValueError, "num_cpus"),
    ],
)
def test_arguments_it_refuses(shared_session, option, value, error, match):
    with pytest.raises(error, match=match):
        Pool(**{option: value})


def test_callbacks_that_cannot_be_called(sooner_pool):
    for name in ("callback", "error_callback"):
        with pytest.raises(TypeError, match=f"^{name} must be callable"):
            sooner_pool.apply_async(square, (1,), **{name: 5})
        with pytest.raises(TypeError, match=f"^{name} must be callable"):
            sooner_pool.map_async(square, [1], **{name: 5})


def test_defaults(shared_session):
    with Pool() as pool:
        assert "pool_size=2" in repr(pool)
        assert isinstance(pool.apply_async(square, (2,)), AsyncResult)
    with Pool(1, context=multiprocessing.get_context("spawn"), ray_address="local") as pool:
        assert pool.apply(square, (2,)) == 4
    assert drop_in.TimeoutError is multiprocessing.TimeoutError


def test_options_of_the_workers(shared_session):
    with Pool(1, ray_remote_args={"num_cpus": 2}) as pool:
        assert pool.apply(lambda: sooner.get_runtime_context().get_assigned_resources()) == {"CPU": 2}


def test_workers_that_can_never_start(shared_session):
    with Pool(2, ray_remote_args={"num_gpus": 7}) as pool:
        result = pool.apply_async(square, (2,))
        with pytest.raises(multiprocessing.TimeoutError):
            result.get(0.2)


def test_lambdas_and_closures(sooner_pool):
    state = [1]
    assert sooner_pool.map(lambda n: n + state[0], range(5)) == [1, 2, 3, 4, 5]
    state[0] = 10
    assert sooner_pool.map(lambda n: n + state[0], range(5)) == [10, 11, 12, 13, 14]
    functions = [lambda n, k=k: n + k for k in range(200)]
    assert [sooner_pool.apply(function, (1,)) for function in functions] == list(range(1, 201))
    assert sooner_pool.apply(functions[0], (1,)) == 1


def test_functions_are_not_kept(sooner_pool):
    seen = []
    for number in range(3):
        function = eval("lambda item: item + 1")
        assert sooner_pool.map(function, [number]) == [number + 1]
        seen.append(weakref.ref(function))
        del function
    assert [ref() for ref in seen] == [None] * 3


def test_refs_are_replaced_by_their_values(sooner_pool):
    ref = sooner.put(np.ones(100_000))
    assert sooner_pool.apply(np.sum, (ref,)) == 100_000
    assert sooner_pool.apply(np.sum, kwds={"a": ref}) == 100_000
    assert sooner_pool.map(np.sum, [ref] * 5) == [100_000] * 5
    assert sooner_pool.starmap(np.full_like, [(ref, 2.0)] * 3, chunksize=2)[2].sum() == 200_000
    assert list(sooner_pool.imap(np.sum, [ref] * 5, chunksize=2)) == [100_000] * 5


@pytest.mark.parametrize("chunksize", [1, 2, 3, 100])
def test_chunks_of_imap_keep_errors_apart(sooner_pool, chunksize):
    """The standard library ends the iteration at a chunk with an error."""
    results = sooner_pool.imap(inverse, [1, 0, 2, 0, 4], chunksize)
    seen = []
    for _ in range(5):
        try:
            seen.append(next(results))
        except ZeroDivisionError as error:
            seen.append("in inverse" in str(error.__cause__))
    assert seen == [1, True, 0.5, True, 0.25]
    with pytest.raises(StopIteration):
        next(results)


def test_an_error_in_a_chunk_that_cannot_be_pickled(sooner_pool):
    def bad(_item):
        error = ValueError("holds a lock")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(TaskError, match="holds a lock"):
        next(sooner_pool.imap(bad, range(4), chunksize=2))
    with pytest.raises(TaskError, match="holds a lock"):
        sooner_pool.apply(bad, (1,))


@pytest.mark.parametrize("make", [lambda: itertools.count(), lambda: map(abs, itertools.count())], ids=["count", "map"])
def test_imap_takes_an_endless_iterable(sooner_pool, make):
    results = sooner_pool.imap(square, make())
    assert list(itertools.islice(results, 1000)) == [n * n for n in range(1000)]
    chunks = sooner_pool.imap_unordered(square, make(), chunksize=5)
    assert len(list(itertools.islice(chunks, 1000))) == 1000


def test_imap_looks_ahead_by_a_bounded_number(shared_session):
    taken = []
    with Pool(2) as pool:
        results = pool.imap(square, (taken.append(n) or n for n in range(100_000)))
        assert next(results) == 0
        time.sleep(0.1)
        assert len(taken) < 1000
        collection = Taken(100_000, taken)
        taken.clear()
        results = pool.imap(square, collection)
        assert next(results) == 0
        assert len(taken) < 1000


class Taken:
    def __init__(self, length, taken):
        self.length = length
        self.taken = taken

    def __len__(self):
        return self.length

    def __iter__(self):
        return (self.taken.append(n) or n for n in range(self.length))


def test_an_iterator_that_nobody_uses_any_more(sooner_pool):
    before = threading.active_count()
    for _ in range(5):
        next(sooner_pool.imap(square, itertools.count()))
    poll("its thread has ended", lambda: threading.active_count() <= before + 1)


@pytest.mark.parametrize("position", [0, 1])
def test_what_cannot_be_pickled_fails_alone(sooner_pool, position):
    items = [1, 2]
    items[position] = threading.Lock()
    results = sooner_pool.imap(type, items)
    for number in range(2):
        if number == position:
            with pytest.raises(TypeError, match="pickled"):
                next(results)
        else:
            assert next(results) is int
    with pytest.raises(TypeError, match="pickled"):
        sooner_pool.apply_async(lambda lock=items[position]: lock).get(WAIT)
    with pytest.raises(TypeError, match="pickled"):
        sooner_pool.apply(threading.Lock)


def test_a_function_that_cannot_be_loaded_in_the_worker(sooner_pool, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}: raise ImportError('not there')\ndef f(): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    with pytest.raises(Exception, match=r"not there|only_here"):
        sooner_pool.apply(only_here.f)
    assert sooner_pool.apply(square, (2,)) == 4


def test_a_callback_that_raises(sooner_pool, caplog):
    def bad(_value):
        raise LookupError("in the callback")

    assert sooner_pool.apply_async(square, (2,), callback=bad).get(WAIT) == 4
    assert "a callback of a pool raised" in caplog.text
    assert sooner_pool.apply(square, (3,)) == 9


def test_a_callback_may_use_the_pool(sooner_pool):
    seen = []
    done = threading.Event()

    def again(value):
        seen.append(sooner_pool.apply(square, (value,)))
        done.set()

    sooner_pool.apply_async(square, (2,), callback=again)
    assert done.wait(WAIT)
    assert seen == [16]


def test_terminate_ends_who_waits(sooner_pool, tmp_path):
    """The standard library's results would never come."""
    running = sooner_pool.apply_async(wait_for_file, (str(tmp_path / "never"),))
    called = []
    many = sooner_pool.map_async(wait_for_file, [str(tmp_path / "never")] * 9, 1, error_callback=called.append)
    iterator = sooner_pool.imap(square, itertools.count())
    sooner_pool.terminate()
    for result in (running, many):
        with pytest.raises(multiprocessing.ProcessError, match="terminated"):
            result.get(WAIT)
    assert isinstance(called[0], multiprocessing.ProcessError)
    with pytest.raises(multiprocessing.ProcessError, match="terminated"):
        list(iterator)


def test_an_initializer_that_raises(shared_session):
    """The standard library would start workers for ever."""

    def bad():
        raise LookupError("in the initializer")

    with Pool(2, initializer=bad) as pool:
        for use in (
            lambda: pool.apply(square, (1,)),
            lambda: pool.map(square, range(9)),
            lambda: list(pool.imap(square, [1])),
        ):
            with pytest.raises(ActorDiedError, match="in the initializer"):
                use()


def test_an_initializer_runs_once_in_each_worker(shared_session, tmp_path):
    def note():
        (tmp_path / f"{os.getpid()}-{time.monotonic_ns()}").touch()

    with Pool(3, initializer=note) as pool:
        pool.map(square, range(100), chunksize=1)
        poll("all have begun", lambda: len(list(tmp_path.iterdir())) == 3)


@pytest.mark.chaos
def test_a_worker_that_dies(sooner_pool):
    """The standard library's pool would wait for ever."""
    with pytest.raises(ActorDiedError):
        sooner_pool.apply(os._exit, (1,))
    results = sooner_pool.imap(lambda n: os._exit(1) if n == 2 else n, range(6))
    seen = []
    for _ in range(6):
        try:
            seen.append(next(results))
        except ActorDiedError:
            seen.append("died")
    assert seen[2] == "died"
    assert sooner_pool.map(square, range(100)) == [n * n for n in range(100)]


def test_its_processes(shared_session):
    """Programs look for them in the attribute that the standard pool has."""
    with Pool(3, maxtasksperchild=1) as pool:
        before = [process.pid for process in pool._pool]
        assert len(set(before)) == 3
        assert all(process.is_alive() for process in pool._pool)
        old = pool._pool[0]
        busy = pool.apply_async(time.sleep, (0.5,))
        # Also of one that is in a call, without waiting for it.
        assert {process.pid for process in pool._pool} == set(before)
        busy.get(WAIT)
        pool.map(square, range(9), chunksize=1)
        pool._repopulate_pool()
        assert not set(before) & {process.pid for process in pool._pool}
        poll("the first one has ended", lambda: not old.is_alive() and old.pid is None)


def test_imap_leaves_out_the_chunk_that_its_iterable_did_not_fill(pool):
    for chunksize, before in ((1, 7), (2, 6), (4, 4)):
        results = pool.imap(square, NotThere(7), chunksize)
        assert [next(results) for _ in range(before)] == [n * n for n in range(before)]
        with pytest.raises(LookupError, match="broke"):
            next(results)


def test_what_an_argument_raises_when_it_is_pickled_comes_as_it_is(pool):
    class Argument:
        def __reduce__(self):
            raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        pool.map(square, [Argument()] * 3)


@pytest.mark.parametrize("chunksize", [1, 2])
def test_an_item_of_starmap_that_is_not_iterable(make_pool, chunksize):
    pool = make_pool(2)
    with pytest.raises(TypeError, match="iterable"):
        pool.starmap(power, [(2, 3), 2, (3, 2)], chunksize)
    assert pool.starmap(power, [(2, 3), [3]], chunksize) == [8, 3]
    pool.close()
    pool.join()


def test_an_item_of_starmap_that_is_not_iterable_fails_its_map_alone(make_pool, tmp_path):
    """Also when it is looked at while nobody waits."""
    pool = make_pool(2)
    other = pool.map_async(wait_for_file, [tmp_path / "go"] * 2, chunksize=1)
    failed = []
    is_done = threading.Event()

    def note(error):
        failed.append(error)
        is_done.set()

    pool.starmap_async(power, [(1,)] * 300 + [7], chunksize=1, error_callback=note)
    (tmp_path / "go").touch()
    assert is_done.wait(WAIT)
    assert isinstance(failed[0], TypeError)
    assert other.get(WAIT) == [str(tmp_path / "go")] * 2
    assert pool.apply(power, (2, 3)) == 8
    pool.close()
    pool.join()


def test_an_unclosed_pool_warns(shared_session):
    pool = Pool(1)
    pid = pool.apply(pid_of)
    with pytest.warns(ResourceWarning, match="unclosed running multiprocessing pool"):
        del pool
    poll("its worker has ended", lambda: not is_alive(pid))


def test_a_pool_in_a_task(shared_session):
    @sooner.remote
    def outer():
        with Pool(2) as pool:
            return pool.map(square, range(10))

    assert sooner.get([outer.remote() for _ in range(2)], timeout=WAIT) == [[n * n for n in range(10)]] * 2


def test_a_pool_beside_tasks_that_hold_all_cpus(shared_session, tmp_path):
    hold = sooner.remote(wait_for_file)
    refs = [hold.remote(str(tmp_path / "go")) for _ in range(2)]
    with Pool(2) as pool:
        assert pool.map(square, range(10)) == [n * n for n in range(10)]
    (tmp_path / "go").touch()
    sooner.get(refs, timeout=WAIT)


def test_no_session(tmp_path):
    """A pool starts one; when it ends first, calls fail instead of hanging."""
    done = run_driver(
        """
        import time, sooner
        from sooner.util.multiprocessing import Pool
        pool = Pool(2, ray_address="local")
        print(pool.map(abs, [-1, -2]))
        result = pool.apply_async(time.sleep, (100,))
        sooner.shutdown()
        for use in (lambda: result.get(30), lambda: pool.apply(abs, (1,))):
            try:
                use()
            except Exception as error:
                print("failed")
        pool.terminate()
        pool.join()
        """
    )
    assert done.stdout == "[1, 2]\nfailed\nfailed\n", done.stderr


def test_a_program_that_does_not_close_its_pool():
    done = run_driver(
        """
        from sooner.util.multiprocessing import Pool
        pool = Pool(2)
        print(pool.map(abs, [-1, -2]))
        results = pool.imap(abs, iter(int, 1))
        print(next(results))
        """
    )
    assert done.stdout == "[1, 2]\n0\n"
    assert "Traceback" not in done.stderr


@pytest.mark.api("util.multiprocessing")
class TestJoinableQueue:
    def test_join_waits_for_what_is_not_done(self, shared_session):
        queue = JoinableQueue()
        assert isinstance(queue, Queue)

        @sooner.remote
        def work(queue):
            while (item := queue.get()) is not None:
                time.sleep(0.01 * item)
                queue.task_done()
            queue.task_done()

        for number in (3, 1, None, None):
            queue.put(number)
        workers = [work.remote(queue) for _ in range(2)]
        queue.join()
        assert queue.empty()
        sooner.get(workers, timeout=WAIT)
        queue.shutdown()

    def test_an_empty_queue_has_nothing_to_wait_for(self, shared_session):
        queue = JoinableQueue(maxsize=2)
        queue.join()
        queue.put(1)
        queue.put_nowait_batch([2])
        assert queue.full()
        for _ in range(2):
            queue.get()
            queue.task_done()
        queue.join()
        with pytest.raises(ValueError, match="too many times"):
            queue.task_done()
        queue.shutdown()

    def test_workers_of_a_pool_use_it(self, sooner_pool):
        queue = JoinableQueue()
        sooner_pool.map(queue.put, range(10))
        assert sorted(queue.get() for _ in range(10)) == list(range(10))
        queue.shutdown()

    @pytest.mark.parametrize("size", [None, 1.5, "3", True], ids=repr)
    def test_sizes_that_are_none(self, shared_session, size):
        with pytest.raises(TypeError, match="maxsize"):
            JoinableQueue(size)
