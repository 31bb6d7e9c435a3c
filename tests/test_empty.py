"""sooner.empty: arrays that are written in the store, their seal, and those that nobody seals."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support import WAIT, poll_store_has_room, run_driver, why

import sooner
from sooner.exceptions import ObjectLostError, ObjectStoreFullError, OwnerDiedError, TaskError
from sooner.state import list_objects

pytestmark = pytest.mark.usefixtures("small_session")

LARGE = 300_000


@pytest.fixture(scope="module")
def small_session():
    """Some tests fill the store."""
    with sooner.init(num_cpus=2, object_store_memory=256 << 20) as context:
        yield context


def get(refs):
    return sooner.get(refs, timeout=WAIT)


def filled(value, size=LARGE, dtype="float64"):
    array, ref = sooner.empty(size, dtype)
    array[...] = value
    return array, ref


@sooner.remote
def total(array):
    return float(array.sum())


@sooner.remote
def made(value, size):
    array, _ = filled(value, size)
    return array


@sooner.remote
def made_ref(value, size):
    _, ref = filled(value, size)
    return ref


@sooner.remote(num_cpus=0)
class Writer:
    """Writes one array again and again."""

    def __init__(self, size):
        self.array, self.ref = filled(0, size)

    def step(self, value):
        self.array[...] = value
        return self.array

    def give(self):
        return [self.ref]

    def is_writable(self):
        return self.array.flags.writeable

    def lend(self, reader):
        """Passes the reference on before it is sealed."""
        return reader.remote(self.ref)

    def drop(self):
        del self.array, self.ref


@sooner.remote(num_cpus=0)
class Keeper:
    """Keeps references beyond the task that gives them to it."""

    def keep(self, refs):
        self.refs = refs

    def kept(self):
        return self.refs


class TestSeal:
    @pytest.mark.api("own.empty")
    @pytest.mark.parametrize("size", [3, LARGE])
    def test_readers_wait_until_the_array_is_sealed(self, size):
        array, ref = sooner.empty(size)
        reader = total.remote(ref)
        assert sooner.wait([ref, reader], timeout=0.2) == ([], [ref, reader])
        array[:] = 2
        ref.seal()
        assert get(reader) == 2.0 * size
        assert (get(ref) == 2).all()
        for sealed in (array, get(ref)):
            assert not sealed.flags.writeable
            with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
                sealed.flags.writeable = True

    @pytest.mark.parametrize(
        "shape", [(), 0, (3, 0), 5, (2, 3), [4], (np.int64(2), 2), np.array([2, 3]), np.array(2), range(2, 4)]
    )
    def test_every_shape(self, shape):
        array, ref = sooner.empty(shape, np.int32)
        expected = np.empty(shape, np.int32)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        array[...] = np.arange(array.size).reshape(array.shape)
        ref.seal()
        np.testing.assert_array_equal(get(ref), array)

    @pytest.mark.parametrize("dtype", ["bool", "float16", ">f8", "complex64", "S3", "U2", [("a", "<i4"), ("b", ">f8")]])
    def test_every_dtype_of_fixed_size(self, dtype):
        array, ref = sooner.empty(4, dtype)
        array[...] = np.ones(4, np.int8).astype(dtype)
        ref.seal()
        found = get(ref)
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(found, array)

    @pytest.mark.parametrize("dtype", ["3f4", "(2,3)i2", ("f8", (2, 2)), [("a", "i4", 3)]])
    def test_a_dtype_with_lengths_of_its_own(self, dtype):
        array, ref = sooner.empty((2, 1), dtype)
        expected = np.zeros((2, 1), dtype)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        array[...] = expected
        ref.seal()
        np.testing.assert_array_equal(get(ref), expected)

    def test_the_default_is_numpys(self):
        array, _ = sooner.empty(1)
        assert array.dtype == np.empty(1).dtype

    def test_the_reference_alone_can_seal(self):
        array, ref = filled(3)
        del array
        ref.seal()
        assert (get(ref) == 3).all()

    def test_another_thread_may_wait_for_it(self):
        array, ref = sooner.empty(LARGE)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(sooner.get, ref)
            array[:] = 4
            ref.seal()
            assert (waiting.result(WAIT) == 4).all()

    def test_a_coroutine_may_wait_for_it(self):
        async def program():
            array, ref = sooner.empty(LARGE)

            async def read():
                return await ref

            waiting = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            array[:] = 4
            ref.seal()
            return await asyncio.wait_for(waiting, WAIT)

        assert (asyncio.run(program()) == 4).all()

    def test_an_actor_writes_while_its_reader_waits(self):
        writer = Writer.remote(LARGE)
        reader = get(writer.lend.remote(total))
        assert sooner.wait([reader], timeout=0.2)[0] == []
        assert (get(writer.step.remote(5)) == 5).all()
        assert sooner.wait([reader], timeout=0.2)[0] == [], "a copy was returned, and the array is written on"
        get(writer.give.remote())
        assert get(reader) == 5.0 * LARGE

    def test_inside_a_value(self):
        array, ref = sooner.empty(LARGE)
        outer = sooner.put({"inner": [ref]})
        array[:] = 6
        ref.seal()
        assert (get(get(outer)["inner"][0]) == 6).all()

    def test_put_copies_what_is_written(self):
        array, ref = filled(7)
        copy = sooner.put(array)
        array[:] = 8
        ref.seal()
        assert (get(copy) == 7).all()
        assert (get(ref) == 8).all()


class TestReturned:
    @pytest.mark.parametrize("size", [3, LARGE])
    def test_the_array(self, size):
        found = get(made.remote(3, size))
        assert (found == 3).all()
        assert not found.flags.writeable

    def test_a_small_one_stays_in_the_store(self):
        ref = made.remote(3, 10)
        sooner.wait([ref], timeout=WAIT)
        (row,) = list_objects(filters=[("object_id", "=", ref.hex())])
        assert row.location == "shared memory"

    @pytest.mark.parametrize("size", [3, LARGE])
    def test_the_reference(self, size):
        assert (get(get(made_ref.remote(4, size))) == 4).all()

    def test_inside_something_and_in_another_shape(self):
        @sooner.remote
        def structure():
            array, _ = filled(5)
            return {"values": array.reshape(3, -1).view("int64"), "more": "x" * 100}

        found = get(structure.remote())
        assert found["values"].shape == (3, LARGE // 3)
        assert (found["values"].view("float64") == 5).all()
        assert found["more"] == "x" * 100

    def test_a_part_and_several(self):
        @sooner.remote(num_returns=3)
        def parts():
            (one, _), (two, _) = filled(1), filled(2)
            return one[1:], two, (filled(3)[0], filled(4)[0])

        one, two, (three, four) = get(list(parts.remote()))
        assert [one.size, one[0], two[0], three[0], four[0]] == [LARGE - 1, 1, 2, 3, 4]

    def test_a_generator(self):
        @sooner.remote(num_returns="streaming")
        def items():
            for value in range(3):
                yield filled(value)[0]
                yield filled(value)[1]

        values = [get(ref) for ref in items.remote()]
        assert [value[0] for value in values[::2]] == [0, 1, 2]
        assert [get(value)[0] for value in values[1::2]] == [0, 1, 2]

    def test_an_actor_that_keeps_the_array_writes_on(self):
        writer = Writer.remote(LARGE)
        first, second = get(writer.step.remote(1)), get(writer.step.remote(2))
        assert (first[0], second[0], get(writer.is_writable.remote())) == (1, 2, True)
        (ref,) = get(writer.give.remote())
        assert get(ref)[0] == 2
        assert not get(writer.is_writable.remote())
        with pytest.raises(ValueError, match="read-only"):
            get(writer.step.remote(3))

    @pytest.mark.parametrize("kind", ["asyncio", "threads"])
    def test_actors_of_every_kind(self, kind):
        @sooner.remote
        class Async:
            async def make(self):
                return filled(9)[0]

        @sooner.remote(max_concurrency=2)
        class Threads:
            def make(self):
                return filled(9)[0]

        actor = (Async if kind == "asyncio" else Threads).remote()
        assert (get(actor.make.remote()) == 9).all()

    def test_an_array_that_others_wait_for(self):
        @sooner.remote
        def lends(reader):
            array, ref = sooner.empty(LARGE)
            waiting = reader.remote(ref)
            array[:] = 6
            return array, waiting

        @sooner.remote
        def lends_and_returns_the_array(keeper, reader):
            array, ref = sooner.empty(LARGE)
            sooner.get(keeper.keep.remote([reader.remote(ref)]))
            array[:] = 6
            return array

        array, waiting = get(lends.remote(total))
        assert (array[0], get(waiting)) == (6, 6.0 * LARGE)
        keeper = Keeper.remote()
        assert get(lends_and_returns_the_array.remote(keeper, total))[0] == 6
        assert get(get(keeper.kept.remote())[0]) == 6.0 * LARGE

    def test_its_memory_is_not_copied(self):
        size = int(sooner.cluster_resources()["object_store_memory"] * 0.6)

        @sooner.remote
        def large():
            array, _ = sooner.empty(size, "uint8")
            array[0] = array[-1] = 1
            return array

        # Two of them are more than there is, and what is written cannot be spilled.
        found = get(large.remote())
        assert (found.size, found[0], found[-1]) == (size, 1, 1)

    @pytest.mark.parametrize("in_place", [True, False])
    def test_nothing_stays_if_another_value_cannot_be_returned(self, in_place):
        size = int(sooner.cluster_resources()["object_store_memory"] * 0.4)

        @sooner.remote(num_returns=2, max_retries=0)
        def fails():
            array = sooner.empty(size, "uint8")[0] if in_place else np.ones(size, "uint8")
            return array, threading.Lock()

        # An array and what is not returned of it are more than there is.
        for _ in range(3):
            with pytest.raises(TypeError, match="pickle"):
                get(fails.remote()[0])
        poll_store_has_room(2 * size)


class TestNotSealed:
    def test_dropping_both_fails_those_who_wait(self):
        array, ref = filled(1)
        waiting = total.remote(ref)
        del array
        assert sooner.wait([waiting], timeout=0.1)[0] == []
        del ref
        with pytest.raises(ObjectLostError, match="dropped before it was sealed: call seal"):
            get(waiting)

    def test_its_memory_is_free_then(self):
        size = int(sooner.cluster_resources()["object_store_memory"] * 0.6)
        for _ in range(3):
            array, ref = sooner.empty(size, "uint8")
            del array, ref
        poll_store_has_room(size)

    def test_a_task_that_forgets_to_seal(self):
        @sooner.remote
        def forgets(reader):
            _, ref = filled(1)
            return reader.remote(ref)

        with pytest.raises(ObjectLostError, match="dropped before it was sealed"):
            get(get(forgets.remote(total)))

    def test_an_actor_that_drops_it(self):
        writer = Writer.remote(LARGE)
        waiting = get(writer.lend.remote(total))
        get(writer.drop.remote())
        with pytest.raises(ObjectLostError, match="dropped before it was sealed"):
            get(waiting)

    def test_a_writer_that_dies(self):
        writer = Writer.remote(LARGE)
        waiting = get(writer.lend.remote(total))
        sooner.kill(writer)
        with pytest.raises((OwnerDiedError, ObjectLostError, TaskError)):
            get(waiting)

    def test_a_task_that_fails_after_it_lent_it(self):
        @sooner.remote(max_retries=0)
        def fails(keeper, reader):
            _, ref = filled(1)
            sooner.get(keeper.keep.remote([reader.remote(ref)]))
            raise KeyError("no")

        keeper = Keeper.remote()
        with pytest.raises(KeyError):
            get(fails.remote(keeper, total))
        with pytest.raises(ObjectLostError, match="dropped before it was sealed"):
            get(get(keeper.kept.remote())[0])


class TestSeen:
    def test_the_state_api_lists_it_as_unsealed(self):
        array, ref = filled(1)
        (row,) = list_objects(filters=[("object_id", "=", ref.hex())])
        assert (row.task_status, row.location) == ("PENDING", "unsealed")
        assert row.object_size >= array.nbytes
        ref.seal()
        (row,) = list_objects(filters=[("object_id", "=", ref.hex())])
        assert (row.task_status, row.location) == ("FINISHED", "shared memory")

    def test_sooner_why_says_who_writes_what_a_task_waits_for(self):
        array, ref = filled(1)
        waiting = total.remote(ref)
        writer = f"driver {os.getpid()}"
        assert f"object {ref.hex()} is being written by {writer}, and not sealed" in why(waiting.task_id().hex())
        text = why(ref.hex())
        assert ", being written, not sealed)" in text
        assert "total(), which waits for its arguments" in text
        ref.seal()
        assert get(waiting) == array.sum()


class TestRefused:
    def test_sealing_twice_or_something_else(self):
        array, ref = filled(1)
        ref.seal()
        with pytest.raises(ValueError, match=r"sealed already, was not made by sooner\.empty"):
            ref.seal()
        with pytest.raises(ValueError, match=r"sealed already, was not made by sooner\.empty"):
            sooner.put(1).seal()
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2

    def test_sealing_what_another_process_writes(self):
        @sooner.remote
        def seals(refs):
            refs[0].seal()

        array, ref = filled(1)
        with pytest.raises(ValueError, match="Only the process that made the array can seal it"):
            get(seals.remote([ref]))
        ref.seal()
        assert (get(ref) == array).all()

    def test_waiting_for_oneself(self):
        # A process of its own: another thread could seal the array.
        done = run_driver(
            """
            import sooner
            sooner.init(num_cpus=1)
            array, ref = sooner.empty(3)
            for wait in (sooner.get, sooner.take, lambda ref: sooner.get([sooner.put(1), ref]),
                         lambda ref: sooner.wait([ref]), lambda ref: sooner.wait([ref, sooner.put(1)], num_returns=2)):
                try:
                    wait(ref)
                except ValueError as error:
                    print("this thread writes the array and waits for it" in str(error))
            print(len(sooner.wait([ref, sooner.put(1)])[0]), len(sooner.wait([ref], timeout=0.01)[0]))
            try:
                sooner.get(ref, timeout=0.01)
            except sooner.exceptions.GetTimeoutError:
                print("timeout")
            array[:] = 1
            ref.seal()
            print(sooner.get(ref).sum())
            """
        )
        assert done.stdout.split() == [*["True"] * 5, "1", "0", "timeout", "3.0"]

    def test_a_task_that_waits_for_itself(self):
        @sooner.remote
        def waits():
            array, ref = sooner.empty(3)
            return sooner.get(ref) + array

        with pytest.raises(ValueError, match="this thread writes the array and waits for it"):
            get(waits.remote())

    @pytest.mark.parametrize("dtype", [object, "M8[s]", "m8[ms]", [("a", object)]])
    def test_elements_that_cannot_be_shared(self, dtype):
        with pytest.raises(TypeError, match=r"cannot make an array of .* cannot be shared in memory"):
            sooner.empty(3, dtype)

    def test_no_dtype(self):
        with pytest.raises(TypeError, match="nope"):
            sooner.empty(3, "nope")

    @pytest.mark.parametrize(
        "shape", ["ab", 2.5, None, (1, "x"), (1, 2.0), {1: 2}.items(), {1, 2}, {2: 1}, True, [True], np.ones(2)]
    )
    def test_no_shape(self, shape):
        with pytest.raises(TypeError, match="shape must be a whole number or a sequence of them"):
            sooner.empty(shape)

    @pytest.mark.parametrize("shape", [-1, (2, -3)])
    def test_negative_lengths(self, shape):
        with pytest.raises(ValueError, match="lengths of an array are 0 or more"):
            sooner.empty(shape)

    def test_more_dimensions_than_numpy_has(self):
        with pytest.raises(ValueError, match="no array of 65 dimensions"):
            sooner.empty((1,) * 65)

    @pytest.mark.parametrize("shape", [(0, 1 << 62, 1 << 62), 1 << 60, (1 << 40, 1 << 40), 1 << 45])
    def test_more_than_there_is(self, shape):
        with pytest.raises((ObjectStoreFullError, ValueError)):
            sooner.empty(shape)
        assert (get(made.remote(1, LARGE)) == 1).all()
