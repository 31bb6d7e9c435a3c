"""What becomes of calls of a pool when handing over their outcomes raises, and of a pool without a
session.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os

import pytest
from support import WAIT, run_driver

import sooner
from sooner.util.multiprocessing import JoinableQueue, Pool


def square(number):
    return number * number


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """No attribute of an instance can be set, its `__cause__` included."""

    key: str


def raise_frozen(key):
    raise FrozenError(key)


def test_an_exception_whose_attributes_cannot_be_set(shared_session):
    pool = Pool(2)
    result = pool.apply_async(raise_frozen, ("a",))
    with pytest.raises(FrozenError) as caught:
        result.get(WAIT)
    assert "FrozenError: a" in str(caught.value.__cause__)
    for chunksize in (1, 2):
        with pytest.raises(FrozenError):
            pool.map(raise_frozen, "abc", chunksize)
        with pytest.raises(FrozenError):
            list(pool.imap(raise_frozen, "abc", chunksize))
    assert pool.apply(square, (3,)) == 9
    pool.close()
    pool.join()


class Loads:
    """Raises where it is read, which is in another process than the one that it was made in."""

    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return _raise_elsewhere, (os.getpid(), self.kind)


def _raise_elsewhere(pid, kind):
    if pid != os.getpid():
        raise kind("bad")


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError, FrozenError]
)
def test_whatever_reading_a_result_raises_is_that_of_its_call(shared_session, kind):
    """And not of every later one."""
    pool = Pool(1)
    results = [pool.apply_async(square, (n,)) for n in range(3)]
    results[1:1] = [pool.apply_async(Loads, (kind,)) for _ in range(2)]
    for result in results[1:3]:
        with pytest.raises(kind):
            result.get(WAIT)
    assert [result.get(WAIT) for result in results[:1] + results[3:]] == [0, 1, 4]
    assert pool.apply(square, (3,)) == 9
    pool.close()
    pool.join()


def test_an_interrupt_while_arguments_are_pickled(shared_session):
    class Argument:
        def __reduce__(self):
            raise KeyboardInterrupt

    pool = Pool(2)
    for arguments in ([Argument()], [1, Argument(), 2], [1] * 20 + [Argument()]):
        with pytest.raises(KeyboardInterrupt):
            pool.map(square, arguments, chunksize=1)
    assert pool.apply(square, (3,)) == 9
    pool.close()
    pool.join()


def test_a_pool_begins_no_session(tmp_path):
    """Neither a call that waits when the session of the pool ends, nor a later one."""
    done = run_driver(
        """
        import os, sys, threading, time, sooner
        from sooner.util.multiprocessing import Pool

        def sleep(path):
            open(path, "w").close()
            time.sleep(100)

        def fails(use):
            try:
                use()
            except Exception as error:
                return True

        sooner.init(num_cpus=1)
        pool, idle = Pool(1), Pool(1)
        outcomes = []
        waits = threading.Thread(target=lambda: outcomes.append(fails(lambda: pool.map(sleep, sys.argv[1:]))))
        waits.start()
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        sooner.shutdown()
        waits.join()
        print(outcomes, fails(lambda: pool.map(abs, [1])), fails(lambda: pool.apply(len, ("a",))))
        print(fails(lambda: idle.map(abs, [1])), fails(lambda: idle.imap(abs, [1]).next()))
        for one in (pool, idle):
            one.close()
            one.join()
        print(sooner.is_initialized())
        """,
        tmp_path / "began",
    )
    assert done.stdout == "[True] True True\nTrue True\nFalse\n", done.stderr


def test_a_handle_of_a_queue_that_is_closed(shared_session):
    queue = JoinableQueue()
    queue.put("work")
    queue.close()
    queue.close()
    queue.join_thread()
    queue.cancel_join_thread()
    for use in (lambda: queue.put(1), queue.get, queue.get_nowait, lambda: queue.put_nowait_batch([1])):
        with pytest.raises(ValueError, match="closed"):
            use()

    @sooner.remote
    def work(queue):
        item = queue.get(timeout=WAIT)
        queue.task_done()
        return item

    # A handle that was passed on is another one.
    assert sooner.get(work.remote(queue), timeout=WAIT) == "work"
    queue.join()
    queue.shutdown()
