"""Dask's tests for schedulers, `dask.utils_test.GetFunctionTestMixin`, over both of sooner's."""

from __future__ import annotations

import pytest

theirs = pytest.importorskip("dask.utils_test", reason="dask is not installed")

from sooner.util.dask import sooner_dask_get, sooner_dask_get_sync  # noqa: E402


class TestSoonerDaskGet(theirs.GetFunctionTestMixin):  # type: ignore[misc, name-defined]
    get = staticmethod(sooner_dask_get)


class TestSoonerDaskGetSync(theirs.GetFunctionTestMixin):  # type: ignore[misc, name-defined]
    get = staticmethod(sooner_dask_get_sync)
