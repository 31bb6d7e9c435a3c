"""CPython's tests of pools of processes, from `test._test_multiprocessing`, over
`sooner.util.multiprocessing.Pool`.
"""

from __future__ import annotations

import multiprocessing
import unittest

import cpython
import pytest

cpython.find("_test_multiprocessing")

from test import _test_multiprocessing as theirs  # noqa: E402

from sooner.util.multiprocessing import Pool  # noqa: E402


class _OverSooner(theirs.ProcessesMixin):
    Pool = staticmethod(Pool)


@pytest.fixture(autouse=True)
def _pool_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tests take `multiprocessing.Pool` by its name."""
    monkeypatch.setattr(multiprocessing, "Pool", Pool)


class PoolTest(theirs._TestPool, _OverSooner, unittest.TestCase):
    pass


class PoolWorkerErrorsTest(theirs._TestPoolWorkerErrors, _OverSooner, unittest.TestCase):
    pass


class PoolWorkerLifetimeTest(theirs._TestPoolWorkerLifetime, _OverSooner, unittest.TestCase):
    pass
