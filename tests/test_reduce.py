"""sooner.reduce and sooner.reduce_first: what they combine, in which order, and how they fail."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
from support import WAIT, poll, run_driver

import sooner
from sooner.exceptions import (
    GetTimeoutError,
    ObjectFreedError,
    ObjectLostError,
    OwnerDiedError,
    TaskCancelledError,
    TaskError,
    WorkerCrashedError,
)
from sooner.util import state
from sooner.util.testing import lose_objects

pytestmark = pytest.mark.usefixtures("shared_session")

UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
DTYPES = ("float16", "float32", "float64", "int32", "int64")
# A value of the second size travels in shared memory, and is folded by several threads.
SIZES = (1000, 3_000_000)


def get(refs):
    return sooner.get(refs, timeout=WAIT)


@sooner.remote(num_cpus=0)
def late(value, path):
    """A value that comes when a file is there."""
    while not path.exists():
        time.sleep(0.01)
    return value


@sooner.remote(num_cpus=0)
def fails(text):
    raise KeyError(text)


def arrays_of(dtype, count, size=1000, seed=0):
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        info = np.iinfo(dtype)
        return [generator.integers(info.min, info.max, size, dtype=dtype) for _ in range(count)]
    return [generator.standard_normal(size).astype(dtype) for _ in range(count)]


class TestWhatItCombines:
    @pytest.mark.api("own.reduce")
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("op", [*UFUNCS, "mean"])
    def test_it_gives_the_bits_of_numpy(self, op, dtype):
        arrays = arrays_of(dtype, 20)
        refs = [sooner.put(array) for array in arrays]
        if op == "mean" and np.dtype(dtype).kind == "i":
            with pytest.raises(TypeError, match=r"source 0 of 20 .* an array of int.* mean of whole numbers is none"):
                get(sooner.reduce(refs, op))
            return
        with np.errstate(over="ignore"):
            expected = arrays[0].copy()
            for array in arrays[1:]:
                UFUNCS.get(op, np.add)(expected, array, out=expected)
        if op == "mean":
            expected /= expected.dtype.type(20)
        found = get(sooner.reduce(refs, op, order="given"))
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
        np.testing.assert_allclose(get(sooner.reduce(refs, op)), expected, rtol=0.01, atol=0.1)

    @pytest.mark.parametrize("size", SIZES)
    def test_large_values_and_many_of_them(self, size):
        refs = [sooner.put(np.full(size, float(number))) for number in range(20)]
        for order in ("arrival", "given"):
            total = get(sooner.reduce(refs, order=order))
            assert total.shape == (size,)
            assert (total == 190.0).all()

    def test_values_that_are_no_number_come_out(self):
        refs = [sooner.put(np.array([1.0, np.nan, np.inf])), sooner.put(np.array([np.nan, 1.0, -np.inf]))]
        assert np.isnan(get(sooner.reduce(refs, "min"))[:2]).all()
        assert np.isnan(get(sooner.reduce(refs, "max"))[:2]).all()
        assert np.isnan(get(sooner.reduce(refs))).all()

    def test_whole_numbers_wrap_around(self):
        largest = np.array([np.iinfo(np.int32).max], dtype=np.int32)
        assert get(sooner.reduce([sooner.put(largest), sooner.put(np.ones(1, np.int32))])) == np.iinfo(np.int32).min

    @pytest.mark.parametrize(
        "array",
        [
            np.arange(12.0).reshape(3, 4)[:, ::2],
            np.asfortranarray(np.arange(12.0).reshape(3, 4)),
            np.arange(12, dtype=">f8").reshape(3, 4),
            np.arange(12, dtype=">i4"),
            np.zeros((0, 3), np.float32),
            np.array(3.0),
        ],
        ids=["strided", "fortran", "big-endian", "big-endian-whole", "empty", "no-dimension"],
    )
    def test_arrays_of_any_layout(self, array):
        found = get(sooner.reduce([sooner.put(array), sooner.put(array)]))
        np.testing.assert_array_equal(found, array + array)
        assert type(found) is np.ndarray
        assert found.shape == array.shape
        assert found.dtype == array.dtype.newbyteorder("=")

    def test_numbers_of_numpy(self):
        found = get(sooner.reduce([sooner.put(np.float32(1.5)), sooner.put(np.float32(2))]))
        assert (type(found), found) == (np.float32, 3.5)

    def test_floats(self):
        refs = [sooner.put(0.25), sooner.put(1.5)]
        assert [get(sooner.reduce(refs, op)) for op in ("sum", "prod", "min", "mean")] == [1.75, 0.375, 0.25, 0.875]
        assert type(get(sooner.reduce(refs))) is float

    def test_arrays_of_arrow(self):
        arrow = pytest.importorskip("pyarrow")
        refs = [
            sooner.put(arrow.array([1.0, 2.0], arrow.float32())),
            sooner.put(arrow.array([3.0, 4.0], arrow.float32())),
        ]
        assert get(sooner.reduce(refs)).equals(arrow.array([4.0, 6.0], arrow.float32()))
        with pytest.raises(TypeError, match=r"source 1 of 2 .* an Arrow array with 1 nulls"):
            get(
                sooner.reduce(
                    [sooner.put(arrow.array([1])), sooner.put(arrow.array([None], arrow.int64()))], order="given"
                )
            )

    def test_one_source_and_one_that_occurs_twice(self):
        ref = sooner.put(np.arange(3.0))
        np.testing.assert_array_equal(get(sooner.reduce([ref])), np.arange(3.0))
        for order in ("arrival", "given"):
            np.testing.assert_array_equal(get(sooner.reduce([ref, ref, ref], order=order)), 3 * np.arange(3.0))

    def test_the_items_of_a_generator(self):
        @sooner.remote(num_returns="streaming")
        def chunks():
            for number in range(5):
                yield np.full(10, number)

        assert (get(sooner.reduce(chunks.remote())) == 10).all()


class TestOrder:
    def test_the_order_that_is_given_decides_the_bits(self):
        refs = [sooner.put(np.array([value], np.float32)) for value in (1e8, 1.0, 1.0, -1e8)]
        assert get(sooner.reduce(refs, order="given")) == 0.0
        assert get(sooner.reduce(refs[::-1], order="given")) == 0.0
        assert get(sooner.reduce([refs[0], refs[3], refs[1], refs[2]], order="given")) == 2.0

    def test_it_returns_before_its_sources_are_there(self, tmp_path):
        refs = [late.remote(np.ones(10), tmp_path / str(number)) for number in range(3)]
        totals = [sooner.reduce(refs, order=order) for order in ("arrival", "given")]
        with pytest.raises(GetTimeoutError):
            sooner.get(totals, timeout=0.2)
        for number in (2, 0, 1):
            (tmp_path / str(number)).touch()
        for total in get(totals):
            assert (total == 3).all()

    def test_a_result_is_a_source(self):
        refs = [sooner.put(np.ones(3)) for _ in range(4)]
        total = sooner.reduce([sooner.reduce(refs), sooner.reduce(refs, "prod")])
        assert (get(total) == 5).all()

    def test_it_takes_no_cpu_while_it_waits(self):
        @sooner.remote(num_cpus=sooner.cluster_resources()["CPU"])
        def takes_all(value):
            return np.full(10, value)

        totals = [sooner.reduce([takes_all.remote(number), takes_all.remote(2)]) for number in range(4)]
        assert [total[0] for total in get(totals)] == [2, 3, 4, 5]


class TestFirst:
    @pytest.mark.api("own.reduce_first")
    def test_the_first_that_arrive_are_in_the_result(self, tmp_path):
        refs = [late.remote(np.full(4, 10.0**number), tmp_path / str(number)) for number in range(4)]
        total, chosen = sooner.reduce_first(refs, 2)
        (tmp_path / "3").touch()
        assert get(refs[3])[0] == 1000
        (tmp_path / "1").touch()
        # If the task that chooses notices both at once, they are in the order of the list.
        assert sorted(get(chosen)) == [1, 3]
        assert (get(total) == 1010).all()
        # The others can still be used.
        (tmp_path / "0").touch()
        assert get(refs[0])[0] == 1

    def test_a_source_that_failed_is_replaced_by_the_next(self):
        refs = [fails.remote("one"), sooner.put(np.ones(2)), fails.remote("two"), sooner.put(np.ones(2))]
        total, chosen = sooner.reduce_first(refs, 2, "mean")
        assert sorted(get(chosen)) == [1, 3]
        assert (get(total) == 1).all()

    def test_too_few_succeed(self):
        total, chosen = sooner.reduce_first([fails.remote("one"), sooner.put(np.ones(2))], 2)
        for ref in (total, chosen):
            with pytest.raises(KeyError, match="one"):
                get(ref)

    def test_a_result_that_is_made_again_has_the_same_sources(self, tmp_path):
        size = 100_000
        refs = [late.remote(np.full(size, 10.0**number), tmp_path / str(number)) for number in range(3)]
        (tmp_path / "2").touch()
        total, chosen = sooner.reduce_first(refs, 1)
        assert get(chosen) == [2]
        assert get(total)[0] == 100
        gc.collect()
        (tmp_path / "0").touch()
        get(refs[0])
        assert lose_objects([total]) == 1
        assert get(total)[0] == 100


class TestFailures:
    def test_a_failed_source_fails_the_result_with_its_error_and_place(self):
        refs = [sooner.put(np.ones(2)), fails.remote("gone")]
        for order in ("arrival", "given"):
            with pytest.raises(KeyError, match="gone") as caught:
                get(sooner.reduce(refs, order=order))
            assert isinstance(caught.value, TaskError)
            assert f"source 1 of 2 (task {refs[1].task_id().hex()})" in str(caught.value)

    @pytest.mark.parametrize(
        "other",
        [np.ones(3), np.ones((2, 1)), np.ones(2, np.float32), np.float64(1)],
        ids=["length", "dimensions", "dtype", "kind"],
    )
    def test_sources_that_do_not_fit_together(self, other):
        refs = [sooner.put(np.ones(2)), sooner.put(other)]
        with pytest.raises(ValueError, match=r"all sources must have one kind, dtype and shape") as caught:
            get(sooner.reduce(refs, order="given"))
        assert "source 0 of 2" in str(caught.value)
        assert "source 1 of 2" in str(caught.value)
        assert "array of float64 with shape (2,)" in str(caught.value)
        with pytest.raises(ValueError, match="all sources must have one kind"):
            get(sooner.reduce(refs))

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ([1, 2], "of type list.*tree_reduce"),
            (3, "of type int.*tree_reduce"),
            (np.array([object()]), "elements are object"),
            (np.ones(2, bool), "elements are bool"),
            (np.ones(2, np.uint8), "elements are uint8"),
            (np.ones(2, complex), "elements are complex128"),
            (np.ma.array([1.0]), "is a MaskedArray"),
        ],
        ids=["list", "int", "object", "bool", "uint8", "complex", "masked"],
    )
    def test_values_of_another_kind(self, value, text):
        with pytest.raises(TypeError, match=f"(?s)source 0 of 1 .*{text}"):
            get(sooner.reduce([sooner.put(value)]))

    def test_a_source_that_was_cancelled_or_freed(self, tmp_path):
        cancelled = late.remote(np.ones(1), tmp_path / "never")
        total = sooner.reduce([cancelled])
        sooner.cancel(cancelled)
        with pytest.raises(TaskCancelledError):
            get(total)
        freed = sooner.put(np.ones(100_000))
        sooner.internal.free([freed])
        with pytest.raises(ObjectFreedError):
            get(sooner.reduce([freed]))

    def test_a_source_whose_worker_dies(self):
        @sooner.remote(max_retries=0)
        def dies():
            import os

            os._exit(1)

        with pytest.raises(WorkerCrashedError):
            get(sooner.reduce([sooner.put(np.ones(1)), dies.remote()]))

    def test_a_reduction_is_cancelled(self, tmp_path):
        total = sooner.reduce([late.remote(np.ones(1), tmp_path / "never")])
        sooner.cancel(total)
        with pytest.raises(TaskCancelledError):
            get(total)

    @pytest.mark.parametrize("reduces", [sooner.reduce, lambda refs, **kw: sooner.reduce_first(refs, 1, **kw)])
    def test_bad_arguments(self, reduces):
        ref = sooner.put(np.ones(1))
        with pytest.raises(ValueError, match="at least one reference"):
            reduces([])
        with pytest.raises(TypeError, match="not one: put it into a list"):
            reduces(ref)
        with pytest.raises(TypeError, match="iterable of ObjectRefs, not int"):
            reduces(3)
        with pytest.raises(TypeError, match=r"item 1 of refs is of type ndarray.*sooner\.put"):
            reduces([ref, np.ones(1)])
        with pytest.raises(ValueError, match=r"op must be one of 'sum', .*'mean', not 'add'"):
            reduces([ref], op="add")

    @pytest.mark.parametrize("num", [0, 3, -1, True, 1.0, None, np.array([1, 2])])
    def test_a_number_of_sources_that_cannot_be(self, num):
        with pytest.raises(ValueError, match="num must be a whole number from 1 to the number of references, 2"):
            sooner.reduce_first([sooner.put(np.ones(1))] * 2, num)

    def test_an_order_that_does_not_exist(self):
        with pytest.raises(ValueError, match="order must be one of 'arrival', 'given', not 'rank'"):
            sooner.reduce([sooner.put(np.ones(1))], order="rank")


def reductions():
    """How many tasks there were that combined something."""
    return sum(row.name.startswith("reduce") for row in state.list_tasks(limit=100_000))


class TestAtOnce:
    @pytest.mark.parametrize("order", ["arrival", "given"])
    @pytest.mark.parametrize("size", [0, 3, 2000])
    def test_small_sources_that_are_there_need_no_task(self, size, order):
        before = reductions()
        total = sooner.reduce([sooner.put(np.full(size, number)) for number in (1.0, 2.0, 4.0)], order=order)
        assert sooner.wait([total], timeout=0) == ([total], [])
        found = get(total)
        np.testing.assert_array_equal(found, np.full(size, 7.0))
        assert not found.flags.writeable
        assert reductions() == before

    def test_every_kind(self):
        before = reductions()
        assert type(get(sooner.reduce([sooner.put(1.0), sooner.put(2.0)], "mean"))) is float
        assert type(get(sooner.reduce([sooner.put(np.int32(2)), sooner.put(np.int32(3))], "prod"))) is np.int32
        large = [sooner.put(np.ones((50, 100), ">f4"))] * 2
        assert get(sooner.reduce(large)).shape == (50, 100)
        assert reductions() == before

    def test_what_was_made_by_tasks_and_lies_in_messages(self):
        refs = [sooner.remote(lambda number=number: np.full(3, number)).remote() for number in range(3)]
        get(refs)
        before = reductions()
        total, chosen = sooner.reduce_first(refs, 2)
        assert (get(total).tolist(), get(chosen)) == ([1, 1, 1], [0, 1])
        assert reductions() == before

    def test_values_in_the_store_and_late_ones_are_left_to_a_task(self, tmp_path):
        small, large = sooner.put(np.ones(3)), sooner.put(np.ones(100_000))
        missing = late.remote(np.ones(3), tmp_path / "go")
        before = reductions()
        totals = [sooner.reduce([large]), sooner.reduce([small, missing]), sooner.reduce([small] * 100_000)]
        (tmp_path / "go").touch()
        assert [float(value[0]) for value in get(totals)] == [1, 2, 100_000]
        poll("they are listed", lambda: reductions() == before + 3)

    def test_a_program_without_numpy_stays_so(self):
        done = run_driver(
            """
            import sys, sooner
            sooner.init(num_cpus=1)
            print(sooner.get(sooner.reduce([sooner.put(1.5), sooner.put(2.0)])), "numpy" in sys.modules)
            """
        )
        assert done.stdout.split() == ["3.5", "False"]


def large_objects():
    """The ids of values that are in the store."""
    gc.collect()
    return {row.object_id for row in state.list_objects(limit=100_000) if row.object_size >= 800_000}


class TestWaiting:
    """A reduction waits for its sources at its caller, without a process."""

    @staticmethod
    def arrays(count):
        """Arrays of ones, and their references, that come when they are sealed."""
        made = [sooner.empty(1000) for _ in range(count)]
        for array, _ in made:
            array[:] = 1
        return [ref for _, ref in made]

    def test_a_hundred_wait_without_a_process(self):
        refs = self.arrays(3)
        totals = [sooner.reduce(refs) for _ in range(98)]
        (first, _), (second, _) = sooner.reduce_first(refs, 1), sooner.reduce_first(refs, 2)
        rows = state.list_tasks(filters=[("state", "=", "PENDING_ARGS_AVAIL")], limit=1000)
        waiting = [row for row in rows if row.name.startswith("reduce") and row.worker_id is None]
        # The sums of what is chosen wait for the choice.
        assert len(waiting) == 98 + 2 * 2
        refs[1].seal()
        assert get(first)[0] == 1
        refs[2].seal()
        assert get(second)[0] == 2
        assert sooner.wait(totals, num_returns=1, timeout=0)[0] == []
        refs[0].seal()
        assert [total[0] for total in get(totals)] == [3] * 98

    @pytest.mark.parametrize("order", ["arrival", "given"])
    def test_it_fails_as_soon_as_a_source_does(self, order):
        (never,) = self.arrays(1)
        with pytest.raises(KeyError, match="lost"):
            get(sooner.reduce([never, fails.remote("lost")], order=order))
        failed = fails.remote("known before")
        sooner.wait([failed], timeout=WAIT)
        with pytest.raises(KeyError, match="known before"):
            get(sooner.reduce([never, failed], order=order))

    def test_the_first_ones_are_awaited_as_long_as_there_are_enough(self, tmp_path):
        never, other = self.arrays(2)
        failed = fails.remote("one")
        total, chosen = sooner.reduce_first([never, failed, late.remote(np.ones(1000), tmp_path / "go"), other], 2)
        sooner.wait([failed], timeout=WAIT)
        other.seal()
        assert sooner.wait([total], timeout=0.2)[0] == []
        (tmp_path / "go").touch()
        assert sorted(get(chosen)) == [2, 3]
        assert get(total)[0] == 2

    def test_a_source_that_occurs_twice_comes_twice_at_once(self):
        never, one, two = self.arrays(3)
        total, chosen = sooner.reduce_first([never, one, two, two, one], 4)
        one.seal()
        assert sooner.wait([total], timeout=0.2)[0] == []
        two.seal()
        assert sorted(get(chosen)) == [1, 2, 3, 4]

    def test_a_source_that_occurs_twice_fails_twice_at_once(self, tmp_path):
        (never,) = self.arrays(1)
        one = late.remote(np.ones(1000), tmp_path / "go")
        two = fails.remote("two")
        total, chosen = sooner.reduce_first([never, one, two, two, one], 4)
        for ref in (total, chosen):
            with pytest.raises(KeyError, match="two"):
                get(ref)
        (tmp_path / "go").touch()

    def test_many_sources_wait_together(self):
        # Their list is longer than what travels in a message.
        refs = self.arrays(2)
        small = sooner.put(np.ones(1000))
        total = sooner.reduce([refs[0], *[small] * 3, refs[1], *[sooner.put(np.ones(1000)) for _ in range(20_000)]])
        assert sooner.wait([total], timeout=0.2)[0] == []
        assert {row.worker_id for row in state.list_tasks(filters=[("state", "=", "PENDING_ARGS_AVAIL")])} == {None}
        for ref in refs:
            ref.seal()
        assert get(total)[0] == 20_005

    def test_a_task_may_give_the_sum_away_before_its_sources_are_there(self):
        refs = self.arrays(3)

        @sooner.remote
        def ask(sources):
            return sooner.reduce(sources)

        inner = get(ask.remote(refs))
        assert sooner.wait([inner], timeout=0.2)[0] == []
        for ref in refs:
            ref.seal()
        assert get(inner)[0] == 3

    def test_the_owner_of_a_source_dies(self):
        @sooner.remote
        class Owner:
            def make(self):
                _, ref = sooner.empty(1000)
                self.kept = ref
                return [ref]

        owner, (never,) = Owner.remote(), self.arrays(1)
        (ref,) = get(owner.make.remote())
        total = sooner.reduce([never, ref])
        sooner.kill(owner)
        with pytest.raises(OwnerDiedError):
            get(total)

    def test_the_last_handle_of_an_open_array_goes(self):
        (never,) = self.arrays(1)
        total = sooner.reduce([never])
        del never
        gc.collect()
        with pytest.raises(ObjectLostError):
            get(total)


def test_values_are_freed(tmp_path):
    before = large_objects()
    refs = [late.remote(np.ones(100_000), tmp_path / "now") for _ in range(4)]
    total = sooner.reduce(refs)
    del refs
    (tmp_path / "now").touch()
    assert get(total)[0] == 4
    poll("only the total and what it is made of is left", lambda: len(large_objects() - before) <= 5)
    del total
    poll("nothing is left", lambda: large_objects() == before)


def test_in_local_mode():
    done = run_driver(
        """
import numpy as np, sooner
sooner.init(local_mode=True)
refs = [sooner.put(np.full(3, float(number))) for number in range(4)]
print(sooner.get(sooner.reduce(refs)).tolist(), sooner.get(sooner.reduce(refs, "max", order="given")).tolist())
total, chosen = sooner.reduce_first(refs, 2)
print(sooner.get(total).tolist(), sooner.get(chosen))
"""
    )
    assert done.stdout == "[6.0, 6.0, 6.0] [3.0, 3.0, 3.0]\n[1.0, 1.0, 1.0] [0, 1]\n"


def test_in_local_mode_of_an_array_that_is_not_sealed():
    done = run_driver(
        """
import numpy as np, sooner
sooner.init(local_mode=True)
array, ref = sooner.empty(3)
ready = sooner.put(np.full(3, 2.0))
total = sooner.reduce([ref, ready, ref])
first, chosen = sooner.reduce_first([ref, ready], 1)
both, places = sooner.reduce_first([ref, ready], 2)
print(sooner.get(first).tolist(), sooner.get(chosen), sooner.wait([total, both], timeout=0.1)[0])
array[:] = 1
ref.seal()
print(sooner.get(total).tolist(), sooner.get(both).tolist(), sorted(sooner.get(places)))

@sooner.remote
def fails():
    raise KeyError("source")

never, kept = sooner.empty(3)
for order in ("arrival", "given"):
    try:
        sooner.get(sooner.reduce([kept, fails.remote()], order=order))
    except KeyError as error:
        print(order, "source 1 of 2" in str(error))
made = [sooner.empty(3) for _ in range(3)]
x, one, two = (one for _, one in made)
for one_array, _ in made:
    one_array[:] = 1
last, _ = sooner.reduce_first([x, one, two, two, one], 4)
x.seal()
one.seal()
print(sooner.wait([last, ready], timeout=0)[0] == [ready])
two.seal()
print(sooner.get(last).tolist())
"""
    )
    assert done.stdout == (
        "[2.0, 2.0, 2.0] [1] []\n[4.0, 4.0, 4.0] [3.0, 3.0, 3.0] [0, 1]\n"
        "arrival True\ngiven True\nTrue\n[4.0, 4.0, 4.0]\n"
    )
