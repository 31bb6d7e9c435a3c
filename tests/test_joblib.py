"""sooner's joblib backend against what joblib documents, and scikit-learn through it."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
from support import WAIT, poll, run_driver

import sooner

joblib = pytest.importorskip("joblib")
from joblib import Parallel, delayed, parallel_config  # noqa: E402

import sooner.util.joblib  # noqa: E402

pytestmark = pytest.mark.usefixtures("shared_session", "backend")

MIB = 1 << 20


@pytest.fixture(scope="module")
def backend():
    sooner.util.joblib.register()
    with parallel_config(backend="sooner", n_jobs=2):
        yield


def square(number):
    return number * number


def inverse(number):
    return 1 / number


def pid_of(_item):
    return os.getpid()


def wait_for_file(path):
    deadline = time.monotonic() + WAIT
    while not Path(path).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return str(path)


def sleep_with_marks(begun, ended):
    Path(begun).touch()
    try:
        time.sleep(10 * WAIT)
    finally:
        Path(ended).touch()


def is_view(array):
    return not array.flags.owndata, array.flags.writeable, float(array.sum())


@pytest.mark.api("util.joblib")
def test_results_in_order():
    assert Parallel()(delayed(square)(n) for n in range(1000)) == [n * n for n in range(1000)]
    assert Parallel()(delayed(square)(number=n) for n in range(10)) == [n * n for n in range(10)]
    assert Parallel()(delayed(lambda n: n + 1)(n) for n in range(10)) == list(range(1, 11))
    assert Parallel()([]) == []


def test_calls_run_in_workers():
    assert os.getpid() not in Parallel()(delayed(pid_of)(n) for n in range(20))


@pytest.mark.parametrize("name", ["sooner", "ray"])
def test_names(name):
    with parallel_config(backend=name, n_jobs=2):
        assert Parallel()(delayed(square)(n) for n in range(5)) == [0, 1, 4, 9, 16]
    assert Parallel(n_jobs=2, backend=name)(delayed(square)(n) for n in range(5)) == [0, 1, 4, 9, 16]


@pytest.mark.api("util.joblib")
def test_all_ways_to_register():
    assert sooner.util.joblib.register_ray is sooner.util.joblib.register
    assert sooner.util.joblib.register_sooner is sooner.util.joblib.register


@pytest.mark.parametrize("batch_size", ["auto", 1, 7])
@pytest.mark.parametrize("pre_dispatch", ["2 * n_jobs", "all", 3])
def test_batches(batch_size, pre_dispatch):
    parallel = Parallel(batch_size=batch_size, pre_dispatch=pre_dispatch)
    assert parallel(delayed(square)(n) for n in range(100)) == [n * n for n in range(100)]


def test_one_parallel_for_several_calls():
    with Parallel(n_jobs=2) as parallel:
        for _ in range(3):
            assert parallel(delayed(square)(n) for n in range(20)) == [n * n for n in range(20)]


@pytest.mark.api("util.joblib")
@pytest.mark.parametrize("return_as", ["generator", "generator_unordered"])
def test_generators(return_as):
    results = Parallel(return_as=return_as)(delayed(square)(n) for n in range(100))
    assert iter(results) is results
    found = list(results)
    assert (found if return_as == "generator" else sorted(found)) == [n * n for n in range(100)]


def test_a_generator_gives_results_while_others_run(tmp_path):
    calls = [delayed(wait_for_file)(str(tmp_path / "go")), delayed(square)(3)]
    results = Parallel(return_as="generator_unordered", batch_size=1)(calls)
    assert next(results) == 9
    (tmp_path / "go").touch()
    assert list(results) == [str(tmp_path / "go")]


def test_a_generator_that_is_dropped(tmp_path):
    marks = [(tmp_path / f"begun{n}", tmp_path / f"ended{n}") for n in range(2)]
    results = Parallel(return_as="generator", batch_size=1)(delayed(sleep_with_marks)(*pair) for pair in marks)
    poll("both run", lambda: all(begun.exists() for begun, _ in marks))
    with pytest.warns(UserWarning, match="have been cancelled"):
        del results
    poll("both are interrupted", lambda: all(ended.exists() for _, ended in marks))
    assert Parallel()(delayed(square)(n) for n in range(5)) == [0, 1, 4, 9, 16]


@pytest.mark.api("util.joblib")
@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_an_exception_is_the_one_that_was_raised(return_as):
    with pytest.raises(ZeroDivisionError) as caught:
        list(Parallel(return_as=return_as)(delayed(inverse)(n) for n in [1, 2, 0, 4]))
    assert type(caught.value) is ZeroDivisionError
    assert "in inverse" in str(caught.value.__cause__)


def test_an_error_aborts_the_rest(tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"

    def fail():
        wait_for_file(begun)
        raise LookupError("in a call")

    calls = [delayed(sleep_with_marks)(begun, ended), delayed(fail)()]
    with pytest.raises(LookupError, match="in a call"):
        Parallel(batch_size=1)(calls)
    poll("the other one is interrupted", ended.exists)
    with Parallel(n_jobs=2) as parallel:
        with pytest.raises(ZeroDivisionError):
            parallel(delayed(inverse)(n) for n in [1, 0])
        assert parallel(delayed(inverse)(n) for n in [1, 2]) == [1, 0.5]


def test_an_iterable_that_breaks():
    def calls():
        yield delayed(square)(1)
        raise LookupError("the iterable broke")

    with pytest.raises(LookupError, match="broke"):
        Parallel()(calls())


def test_what_cannot_be_pickled():
    with pytest.raises(TypeError, match="pickle"):
        Parallel()(delayed(square)(threading.Lock()) for _ in range(4))
    with pytest.raises(TypeError, match="pickle"):
        Parallel()(delayed(threading.Lock)() for _ in range(4))


def test_a_timeout(tmp_path):
    begin = time.monotonic()
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.2, batch_size=1)(delayed(wait_for_file)(str(tmp_path / "never")) for _ in range(2))
    assert time.monotonic() - begin < WAIT
    assert Parallel(timeout=WAIT)(delayed(square)(n) for n in range(5)) == [0, 1, 4, 9, 16]


def test_effective_n_jobs():
    assert joblib.effective_n_jobs(3) == 3
    assert joblib.effective_n_jobs(-1) == 2
    assert joblib.effective_n_jobs(-2) == 1
    assert joblib.effective_n_jobs(-9) == 1
    with pytest.raises(ValueError, match="n_jobs == 0"):
        joblib.effective_n_jobs(0)
    with parallel_config(backend="sooner"):
        assert joblib.effective_n_jobs() == 2


def test_one_job_runs_here():
    assert Parallel(n_jobs=1)(delayed(pid_of)(n) for n in range(3)) == [os.getpid()] * 3


def test_as_many_calls_at_a_time_as_jobs(tmp_path):
    """More than there are CPUs, and no more than asked for."""

    def meet(mine):
        (tmp_path / mine).touch()
        for name in "abc":
            wait_for_file(tmp_path / name)
        return os.getpid()

    assert len(set(Parallel(n_jobs=3, batch_size=1)(delayed(meet)(name) for name in "abc"))) == 3


def test_threads_and_shared_memory_stay_here():
    seen = []
    Parallel(n_jobs=2, require="sharedmem")(delayed(seen.append)(n) for n in range(5))
    assert sorted(seen) == list(range(5))


class TestLargeArrays:
    def test_an_array_is_put_once(self):
        array = np.ones(100 * MIB // 8)
        before = sooner.available_resources()["object_store_memory"]
        parallel = Parallel(n_jobs=2, return_as="generator", batch_size=1)
        results = parallel(delayed(is_view)(array) for _ in range(100))
        assert next(results) == (True, False, array.size)
        used = before - sooner.available_resources()["object_store_memory"]
        assert used < 150 * MIB
        assert list(results) == [(True, False, array.size)] * 99

    def test_arrays_inside_other_objects(self):
        array = np.ones(2 * MIB // 8)
        calls = (delayed(lambda box: is_view(box["array"][0]))({"array": [array]}) for _ in range(4))
        assert Parallel()(calls) == [(True, False, array.size)] * 4
        assert Parallel()(delayed(is_view)(array=array) for _ in range(4)) == [(True, False, array.size)] * 4

    def test_small_arrays_are_copies(self):
        array = np.ones(1000)
        assert Parallel()(delayed(is_view)(array) for _ in range(4))[0][1:] == (True, 1000.0)

    @pytest.mark.parametrize("limit", [1000, "1K", "0.5K"])
    def test_max_nbytes(self, limit):
        array = np.ones(1000)
        assert Parallel(max_nbytes=limit)(delayed(is_view)(array) for _ in range(4))[0][:2] == (True, False)
        assert Parallel(max_nbytes=None)(delayed(is_view)(array) for _ in range(4))[0][1] is True

    @pytest.mark.parametrize("mode", ["c", None])
    def test_arrays_that_calls_may_write(self, mode):
        def fill(array, value):
            array[:] = value
            return float(array.sum())

        array = np.zeros(2 * MIB // 8)
        sums = Parallel(mmap_mode=mode)(delayed(fill)(array, n) for n in range(4))
        assert sums == [n * array.size for n in range(4)]
        assert array.sum() == 0

    def test_arrays_of_objects(self):
        array = np.array([str(n) for n in range(200_000)], dtype=object)
        assert Parallel()(delayed(len)(array) for _ in range(2)) == [200_000] * 2

    def test_arrays_that_live_for_one_call(self):
        """Each is another one, although they may have the same address."""
        calls = (delayed(np.max)(np.full(2 * MIB // 8, float(n))) for n in range(50))
        assert Parallel()(calls) == [float(n) for n in range(50)]

    def test_slices(self):
        array = np.arange(4 * MIB // 8).reshape(4, -1)
        sums = Parallel(max_nbytes=1000)(delayed(np.sum)(array[:, n::2]) for n in range(2))
        assert sum(sums) == array.sum()

    @pytest.mark.parametrize("mode", ["r+", "w+"])
    def test_modes_that_do_not_exist(self, mode):
        with pytest.raises(ValueError, match="mmap_mode"):
            Parallel(n_jobs=2, backend="sooner", mmap_mode=mode)(delayed(square)(n) for n in range(2))

    @pytest.mark.parametrize("limit", [-1, 1.5, []], ids=repr)
    def test_limits_that_are_none(self, limit):
        with pytest.raises(ValueError, match="max_nbytes"):
            Parallel(n_jobs=2, backend="sooner", max_nbytes=limit)(delayed(square)(n) for n in range(2))


class TestNested:
    def test_the_default_is_threads(self):
        def outer(n):
            inner = Parallel(n_jobs=2)(delayed(lambda m: (os.getpid(), n * m))(m) for m in range(3))
            return {pid for pid, _ in inner} == {os.getpid()}, [value for _, value in inner]

        assert Parallel()(delayed(outer)(n) for n in range(4)) == [(True, [0, n, 2 * n]) for n in range(4)]

    def test_sooner_in_sooner(self):
        """All CPUs are held by calls that wait for inner ones."""

        def outer(n):
            with parallel_config(backend="sooner", n_jobs=2):
                return sum(Parallel()(delayed(square)(n + m) for m in range(3)))

        assert Parallel(batch_size=1)(delayed(outer)(n) for n in range(6)) == [
            sum((n + m) ** 2 for m in range(3)) for n in range(6)
        ]

    def test_in_a_task(self):
        @sooner.remote
        def task():
            sooner.util.joblib.register()
            return Parallel(n_jobs=2, backend="sooner")(delayed(square)(n) for n in range(5))

        assert sooner.get([task.remote() for _ in range(2)], timeout=WAIT) == [[0, 1, 4, 9, 16]] * 2


_greeting = "none"


def greet(greeting, path):
    global _greeting
    _greeting = greeting
    (path / str(os.getpid())).touch()


def greeting(path):
    return _greeting, (path / str(os.getpid())).exists()


def test_an_initializer_runs_in_each_worker(tmp_path):
    options = {"initializer": greet, "initargs": ("hello", tmp_path)}
    assert Parallel(n_jobs=2, **options)(delayed(greeting)(tmp_path) for _ in range(20)) == [("hello", True)] * 20
    options["initargs"] = ("again", tmp_path)
    with parallel_config(backend="sooner", n_jobs=2, **options):
        assert Parallel()(delayed(greeting)(tmp_path) for _ in range(20)) == [("again", True)] * 20


def test_an_initializer_that_fails():
    with pytest.raises(BrokenProcessPool, match="ZeroDivisionError"):
        Parallel(n_jobs=2, initializer=divmod, initargs=(1, 0))(delayed(square)(n) for n in range(20))


def test_inside_multiprocessing():
    """A forked copy of the program has no session, and must not start one that nobody ends."""
    done = run_driver(
        """
        import warnings
        import sooner
        import sooner.util.joblib
        from joblib import Parallel, delayed
        sooner.util.joblib.register()
        sooner.init(num_cpus=2)
        def inner(_):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return Parallel(n_jobs=2, backend="sooner")(delayed(abs)(n) for n in (-1, 2)), str(caught[-1].message)
        for values, message in Parallel(n_jobs=2, backend="multiprocessing")(delayed(inner)(n) for n in range(2)):
            print(values, message)
        """
    )
    message = "sooner-backed parallel loops cannot be called in a multiprocessing, setting n_jobs=1"
    assert done.stdout == f"[1, 2] {message}\n" * 2, done.stderr


def test_workers_that_an_error_ended_are_made_again():
    with Parallel(n_jobs=2) as parallel:
        before = parallel._backend._workers
        assert before is not None
        with pytest.raises(ZeroDivisionError):
            parallel(delayed(divmod)(1, n) for n in (1, 0))
        assert parallel._backend._workers not in (None, before)
        assert parallel(delayed(square)(n) for n in range(3)) == [0, 1, 4]


def threads_of_blas(_item):
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_of_libraries():
    pytest.importorskip("threadpoolctl")
    with parallel_config(backend="sooner", n_jobs=2, inner_max_num_threads=1):
        assert Parallel()(delayed(threads_of_blas)(n) for n in range(4)) == [{1}] * 4


def test_options_of_the_tasks():
    def cpus(_):
        return sooner.get_runtime_context().get_assigned_resources()["CPU"]

    with parallel_config(backend="sooner", n_jobs=2, ray_remote_args={"num_cpus": 2}):
        assert Parallel()(delayed(cpus)(n) for n in range(2)) == [2, 2]
    with pytest.raises(ValueError, match="num_cpus"), parallel_config(backend="sooner", ray_remote_args={"num_cpu": 2}):
        Parallel(n_jobs=2)(delayed(square)(n) for n in range(2))


def test_without_joblib(tmp_path):
    (tmp_path / "joblib.py").write_text("raise ImportError('not installed')\n")
    done = run_driver(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        try:
            import sooner.util.joblib
        except ImportError as error:
            print(error)
        """,
        tmp_path,
    )
    assert done.stdout.startswith("sooner.util.joblib needs joblib")


class TestScikitLearn:
    @pytest.fixture(autouse=True)
    def sklearn(self):
        pytest.importorskip("sklearn")

    @pytest.fixture
    def data(self):
        from sklearn.datasets import make_classification

        return make_classification(n_samples=600, n_features=10, random_state=0)

    def test_a_grid_search(self, data):
        from sklearn.model_selection import GridSearchCV
        from sklearn.tree import DecisionTreeClassifier

        search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3, 5]}, cv=3, n_jobs=2)
        search.fit(*data)
        with parallel_config(backend="sequential"):
            alone = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3, 5]}, cv=3).fit(*data)
        assert search.best_params_ == alone.best_params_
        np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])

    def test_a_random_forest(self, data):
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(n_estimators=20, random_state=0, n_jobs=2).fit(*data)
        with parallel_config(backend="sequential"):
            alone = RandomForestClassifier(n_estimators=20, random_state=0).fit(*data)
        np.testing.assert_array_equal(forest.predict_proba(data[0]), alone.predict_proba(data[0]))
        assert forest.score(*data) > 0.9

    def test_cross_validation_of_a_large_array(self):
        from sklearn.linear_model import Ridge
        from sklearn.model_selection import cross_val_score

        rng = np.random.default_rng(0)
        features = rng.standard_normal((20_000, 10))
        target = features.sum(axis=1)
        assert min(cross_val_score(Ridge(), features, target, n_jobs=2)) > 0.99


def _raises(kind):
    raise kind("by the call")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_whatever_a_call_raises_is_raised(kind):
    with joblib.parallel_config(backend="sooner", n_jobs=2):
        with pytest.raises(kind, match="by the call"):
            joblib.Parallel()(joblib.delayed(_raises)(kind) for _ in range(2))
        assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    key: int


def raise_frozen(key):
    raise FrozenError(key)


@pytest.mark.parametrize("return_as", ["list", "generator"])
def test_an_exception_whose_attributes_cannot_be_set(return_as):
    """joblib sets the traceback of what a batch raises."""
    with pytest.raises(FrozenError) as caught:
        list(Parallel(return_as=return_as)(delayed(raise_frozen)(n) for n in [5] * 4))
    assert caught.value.key == 5
    assert "FrozenError: 5" in str(caught.value)
    assert Parallel()(delayed(square)(n) for n in range(3)) == [0, 1, 4]
