"""CPython's tests of executors, `test.test_concurrent_futures`, over `sooner.Executor`."""

from __future__ import annotations

import multiprocessing
import sys
import unittest
from collections.abc import Callable
from typing import Any

import cpython
import pytest

cpython.find("test_concurrent_futures")

from test.test_concurrent_futures import (  # noqa: E402
    test_as_completed,
    test_deadlock,
    test_init,
    test_process_pool,
    test_shutdown,
    test_wait,
)
from test.test_concurrent_futures.util import ExecutorMixin  # noqa: E402

import sooner  # noqa: E402


class _OverSooner(ExecutorMixin):
    """Makes `self.executor`, as the mixins of the suite do for the executors of the standard library."""

    executor_type = sooner.Executor

    def get_context(self) -> Any:
        return multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def _programs_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite's programs take the executor from the standard library: they shall take ours."""
    run: Callable[..., Any] = test_shutdown.assert_python_ok

    def run_with_ours(option: str, program: str) -> Any:
        before, name, after = program.partition("from concurrent.futures import Executor")
        assert name, program
        head = f"import sys; sys.path[:0] = {sys.path[:1]!r}\n"
        return run(option, head + before + "from sooner import Executor" + after)

    monkeypatch.setattr(test_shutdown, "assert_python_ok", run_with_ours)


class ProcessPoolExecutorTest(_OverSooner, test_process_pool.ProcessPoolExecutorTest, unittest.TestCase):
    pass


class ShutdownTest(_OverSooner, test_shutdown.ExecutorShutdownTest, unittest.TestCase):
    pass


class InitializerTest(test_init.InitializerMixin, _OverSooner, unittest.TestCase):
    pass


class FailingInitializerTest(test_init.FailingInitializerMixin, _OverSooner, unittest.TestCase):
    pass


class DeadlockTest(_OverSooner, test_deadlock.ExecutorDeadlockTest, unittest.TestCase):
    TIMEOUT = 60


class WaitTest(_OverSooner, test_wait.WaitTests, unittest.TestCase):
    pass


class AsCompletedTest(_OverSooner, test_as_completed.AsCompletedTests, unittest.TestCase):
    pass
