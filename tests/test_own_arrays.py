"""Whose arrays are: read-only views with remote functions, of any size; the callee's own with Pool and
Executor.
"""

from __future__ import annotations

import numpy as np
import pytest
from support import WAIT

import sooner
from sooner.util.multiprocessing import Pool

pytestmark = pytest.mark.usefixtures("shared_session")

_SIZES = [10, 1_000_000]


def centre(array):
    array -= array.mean()
    return array


def is_writeable(array):
    return array.flags.writeable


@pytest.mark.parametrize("size", _SIZES)
def test_arrays_of_remote_functions_are_read_only_whatever_their_size(size):
    check = sooner.remote(is_writeable)
    make = sooner.remote(np.ones)
    assert not sooner.get(check.remote(np.ones(size)), timeout=WAIT)
    assert not sooner.get(check.remote(sooner.put(np.ones(size))), timeout=WAIT)
    assert not sooner.get(make.remote(size), timeout=WAIT).flags.writeable
    assert not make.remote(size).future().result(WAIT).flags.writeable
    assert sooner.get(make.remote(size), timeout=WAIT, copy=True).flags.writeable


@pytest.mark.api("own.arrays")
@pytest.mark.parametrize("size", _SIZES)
def test_arrays_of_an_executor_are_its_callees(size):
    given = np.arange(float(size))
    with sooner.Executor(2) as executor:
        futures = [executor.submit(centre, given), executor.submit(lambda a: centre(a), given)]
        futures.append(executor.submit(centre, sooner.put(given)))
        futures += [executor.submit(centre, array) for array in [given] * 2]
        for future in futures:
            result = future.result(WAIT)
            assert abs(result.sum()) < 1
            result += 1
        (mapped,) = executor.map(centre, [given])
        mapped[0] = 5
    assert given[1] == 1


@pytest.mark.parametrize("size", _SIZES)
def test_arrays_of_a_pool_are_its_callees(size):
    given = np.arange(float(size))
    ref = sooner.put(given)
    with Pool(2) as pool:
        results = pool.map(centre, [given, ref])
        results.append(pool.apply(centre, (given,)))
        results += pool.imap_unordered(centre, [given])
        results += pool.starmap(centre, [(given,)])
        results.append(pool.apply_async(centre, (given,)).get(WAIT))
        for result in results:
            result += 1
    assert given[1] == 1
    assert sooner.get(ref)[1] == 1


def test_frames_of_a_pool_can_be_written_to():
    pd = pytest.importorskip("pandas")
    with Pool(1) as pool:
        (frame,) = pool.map(_fill, [pd.DataFrame({"x": [1.0, 2.0]})])
    frame.loc[1, "x"] = 3
    assert frame["x"].tolist() == [5, 3]


def _fill(frame):
    frame.loc[0, "x"] = 5.0
    return frame


def test_in_local_mode_too():
    from support import run_driver

    run_driver(
        """
        import numpy as np, sooner
        from sooner.util.multiprocessing import Pool
        def centre(a):
            a -= a.mean()
            return a
        sooner.init(local_mode=True)
        with Pool(1) as pool, sooner.Executor() as executor:
            pool.map(centre, [np.ones(3)])[0][0] = 1
            executor.submit(centre, np.ones(3)).result()[0] = 1
        """
    )
