"""Arrays in files: what is written into them gets there, or is refused."""

from __future__ import annotations

import os

import numpy as np
import pytest
from support import WAIT

import sooner
from sooner.util.multiprocessing import Pool

pytestmark = pytest.mark.usefixtures("shared_session")

_SIZES = [8, 1_000_000]


def put_square(out, row):
    out[row] = row * row
    return row


def put_into(box, row):
    box["out"][row] = row * row


@pytest.fixture(params=_SIZES)
def out(request, tmp_path):
    return np.memmap(tmp_path / "out", dtype=np.float64, shape=(request.param,), mode="w+")


def is_there(out):
    return out[:8].tolist() == [float(row * row) for row in range(8)]


@pytest.mark.api("values.memmaps")
def test_remote_functions_cannot_write_into_an_array_in_a_file(out):
    out[:] = 3
    step = sooner.remote(put_square)
    with pytest.raises(ValueError, match="read-only"):
        sooner.get(step.remote(out, 1), timeout=WAIT)
    with pytest.raises(ValueError, match="read-only"):
        sooner.get(sooner.remote(put_into).remote({"out": out[::2]}, 1), timeout=WAIT)
    with pytest.raises(ValueError, match="read-only"):
        sooner.get(sooner.remote(lambda: put_square(out, 1)).remote(), timeout=WAIT)
    got = sooner.get(sooner.put(out))
    assert got.tolist()[:3] == [3, 3, 3]
    assert not got.flags.writeable
    # What is read-only is read, as ever.
    reading = np.memmap(out.filename, dtype=np.float64, mode="r")
    assert sooner.get(sooner.remote(lambda a: float(a[0])).remote(reading), timeout=WAIT) == 3


def test_an_executor_and_a_pool_write_into_the_file(out):
    with sooner.Executor(2) as executor:
        list(executor.map(put_square, [out] * 4, range(4)))
        executor.submit(put_into, {"out": out}, 4).result(WAIT)
        executor.submit(lambda: put_square(out, 5)).result(WAIT)
    with Pool(2) as pool:
        pool.starmap(put_square, [(out, 6)])
        pool.apply(put_into, ({"out": out}, 7))
    assert is_there(out)


def test_joblib_writes_into_the_file(out):
    joblib = pytest.importorskip("joblib")
    import sooner.util.joblib

    sooner.util.joblib.register()
    with joblib.parallel_config(backend="sooner", n_jobs=2):
        joblib.Parallel()(joblib.delayed(put_square)(out, row) for row in range(8))
        assert is_there(out)
        out[:] = 0
        # Parts of it, and what is no `memmap` any more.
        rest = np.asarray(out)[1:]
        joblib.Parallel()(joblib.delayed(put_square)(out[:4], row) for row in range(4))
        joblib.Parallel()(joblib.delayed(put_next)(rest, row) for row in range(3, 7))
        assert is_there(out)


def put_next(rest, row):
    rest[row] = (row + 1) ** 2


def test_tables_and_other_layouts(tmp_path):
    table = np.memmap(tmp_path / "table", dtype=np.int32, shape=(6, 5), mode="w+", offset=128, order="F")
    with sooner.Executor(1) as executor:
        for part in (table, table[1:4, ::2], table.T, table[::-1], table[2, 3:4], table[:0]):
            executor.submit(_add_one, part).result(WAIT)
    expected = np.zeros((6, 5), np.int32)
    for part in (expected, expected[1:4, ::2], expected.T, expected[::-1], expected[2, 3:4]):
        part += 1
    assert np.array_equal(table, expected)


def _add_one(part):
    part += 1


def test_a_file_that_is_gone_is_an_error_that_says_so(tmp_path):
    out = np.memmap(tmp_path / "gone", dtype=np.float64, shape=(8,), mode="w+")
    os.unlink(tmp_path / "gone")
    with sooner.Executor(1) as executor, pytest.raises((ValueError, TypeError), match=r"the file .*gone"):
        executor.submit(put_square, out, 1).result(WAIT)
