"""Code that travels keeps the name of its file, with every version of cloudpickle."""

from __future__ import annotations

import pickle
import types

import cloudpickle
import pytest

from sooner._values import pickling


@pytest.fixture
def newer_cloudpickle(monkeypatch):
    """Versions from 3.1.3 on leave the name of the file out."""
    theirs = cloudpickle.Pickler.dispatch_table[types.CodeType]

    def reduce(code):
        make, parts = theirs(code)
        return make, tuple("<dynamic-code>" if part == code.co_filename else part for part in parts)

    monkeypatch.setitem(cloudpickle.Pickler._dispatch_table, types.CodeType, reduce)
    pickling._code_reducers.cache_clear()
    yield
    monkeypatch.undo()
    pickling._code_reducers.cache_clear()


def check() -> None:
    def outer(x):
        def inner(y):
            return 1 / y

        return inner(x)

    class Local:
        def method(self):
            return [][3]

    again = pickle.loads(pickling.dumps(outer, protocol=5))
    assert again.__code__.co_filename == __file__
    assert again(2) == 0.5
    assert {part.co_filename for part in again.__code__.co_consts if hasattr(part, "co_filename")} == {__file__}
    assert pickle.loads(pickling.dumps([Local]))[0].method.__code__.co_filename == __file__


def test_with_the_version_that_is_installed() -> None:
    check()


def test_with_versions_that_leave_it_out(newer_cloudpickle) -> None:
    lost = pickle.loads(cloudpickle.dumps(lambda: 1))
    assert lost.__code__.co_filename == "<dynamic-code>"
    check()
