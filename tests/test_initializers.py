"""What the initializer of a pool or an executor sets as globals of a script, its functions find."""

from __future__ import annotations

import pytest
from support import run_driver

_PROGRAM = """
    import functools, multiprocessing, os, sys
    import concurrent.futures
    import sooner
    from sooner.util.multiprocessing import Pool

    SET_BEFORE = None
    COUNT = 0

    def begin(value):
        global NEW, SET_BEFORE, MINE
        NEW = SET_BEFORE = value
        MINE = os.getpid()

    class Begins:
        def __call__(self, value):
            begin(value)

    def new(_=None):
        return NEW

    def before(_=None):
        return SET_BEFORE

    def by_helper(_=None):
        return new(), before()

    def pair(a, b):
        return a, b, NEW

    def count(_=None):
        global COUNT
        COUNT += 1
        return COUNT

    def begin_to_count():
        global COUNT
        COUNT = 100

    def is_mine(_=None):
        return os.getpid() == MINE

    def with_default(x, function=new):
        return function(x)

    def wrapped(function):
        @functools.wraps(function)
        def call(*args):
            return function(*args)
        return call

    class Reads:
        def method(self, _=None):
            return NEW

        def __call__(self, _=None):
            return NEW

        @classmethod
        def of_class(cls, _=None):
            return NEW

        @staticmethod
        def of_none(_=None):
            return NEW

    def through(reads):
        return reads.method()

    def make_pool(*args):
        return Pool(2, *args)

    def make_executor(*args):
        return sooner.Executor(2, initializer=args[0], initargs=args[1])

    def run(pool, function, items):
        return list(pool.map(function, items))

    sooner.init(num_cpus=2)
"""


_LIBRARY = """
VALUE = None

def begin(value):
    global VALUE
    VALUE = value

def read(_=None):
    return VALUE
"""


@pytest.mark.parametrize("kind", ["pool", "executor"])
def test_globals_of_a_script_that_an_initializer_sets_are_found(kind) -> None:
    run_driver(
        _PROGRAM
        + f"""
    functions = [new, before, Reads().method, Reads(), Reads.of_class, Reads.of_none, functools.partial(with_default)]
    functions += [lambda x: NEW, wrapped(new), functools.partial(new)]
    with make_{kind}(begin, (5,)) as pool:
        for function in functions:
            assert run(pool, function, range(4)) == [5] * 4, function
        assert run(pool, by_helper, range(4)) == [(5, 5)] * 4
        assert run(pool, through, [Reads(), Reads()]) == [5, 5]
        assert all(run(pool, is_mine, range(20)))
    with make_{kind}(Begins(), (6,)) as pool:
        assert run(pool, by_helper, range(4)) == [(6, 6)] * 4
    with make_{kind}(functools.partial(begin), (7,)) as pool:
        assert run(pool, by_helper, range(4)) == [(7, 7)] * 4
    # The program's own are what they were.
    assert "NEW" not in globals() and SET_BEFORE is None
    """
    )


def test_pools_and_executors_with_initializers_do_not_see_each_others_globals() -> None:
    run_driver(
        _PROGRAM
        + """
    executors = [make_executor(begin, (value,)) for value in range(3)]
    pools = [Pool(1, begin, (value,)) for value in range(3)]
    for _ in range(10):
        for value in range(3):
            assert executors[value].submit(by_helper).result() == (value, value)
            assert executors[value].submit(through, Reads()).result() == value
            assert pools[value].apply(by_helper) == (value, value)
    """
    )


def test_what_calls_make_of_such_globals_stays_in_their_process() -> None:
    run_driver(
        _PROGRAM
        + """
    with Pool(1, begin_to_count) as pool:
        assert [pool.apply(count) for _ in range(3)] == [101, 102, 103]
        assert pool.map(count, range(3), chunksize=1) == [104, 105, 106]
        assert list(pool.imap(count, range(2))) == [107, 108]
        assert pool.apply_async(count).get() == 109
    with sooner.Executor(1, initializer=begin_to_count) as executor:
        pids = set()
        found = [executor.submit(lambda: (os.getpid(), count())).result() for _ in range(6)]
        for pid in {pid for pid, _ in found}:
            counts = [n for one, n in found if one == pid]
            assert counts == list(range(101, 101 + len(counts))), found
    """
    )


def test_every_way_to_call_a_pool_finds_such_globals() -> None:
    run_driver(
        _PROGRAM
        + """
    with Pool(2, begin, (5,)) as pool:
        assert pool.apply(new) == pool.apply_async(new).get() == 5
        assert pool.starmap(pair, [(1, 2), (3, 4)]) == [(1, 2, 5), (3, 4, 5)]
        assert pool.starmap_async(pair, [(1, 2)]).get() == [(1, 2, 5)]
        assert pool.map_async(new, range(3)).get() == [5] * 3
        assert list(pool.imap(new, range(5), chunksize=2)) == [5] * 5
        assert list(pool.imap_unordered(new, range(5))) == [5] * 5
    with make_executor(begin, (5,)) as executor:
        assert list(executor.map(new, range(10), chunksize=3)) == [5] * 10
        assert list(executor.map(pair, [1, 3], [2, 4])) == [(1, 2, 5), (3, 4, 5)]
        assert {future.result() for future in [executor.submit(new) for _ in range(20)]} == {5}
    """
    )


def test_calls_of_joblib_find_such_globals() -> None:
    pytest.importorskip("joblib")
    run_driver(
        _PROGRAM
        + """
    import joblib
    from sooner.util.joblib import register_sooner

    register_sooner()
    calls = [joblib.delayed(by_helper)(n) for n in range(20)]
    found = joblib.Parallel(n_jobs=2, backend="sooner", initializer=begin, initargs=(5,))(calls)
    assert found == [(5, 5)] * 20
    """
    )


def test_modules_that_workers_import_have_one_set_of_globals(tmp_path) -> None:
    (tmp_path / "library.py").write_text(_LIBRARY)
    run_driver(
        """
    import sys
    sys.path.insert(0, sys.argv[1])
    import library, sooner
    from sooner.util.multiprocessing import Pool

    sooner.init(num_cpus=2)
    with Pool(2, library.begin, (5,)) as pool:
        assert pool.map(library.read, range(4)) == [5] * 4
        assert pool.map(lambda _: library.VALUE, range(4)) == [5] * 4
    with sooner.Executor(2, initializer=library.begin, initargs=(6,)) as executor:
        assert list(executor.map(library.read, range(4))) == [6] * 4
    """,
        tmp_path,
    )
