"""Numeric libraries use as many threads as a task or an actor has CPUs, unless the user has said how many."""

from __future__ import annotations

import pytest
from support import run_driver

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_PROGRAM = """
    import os, sooner
    NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

    def variables():
        return [os.environ.get(name) for name in NAMES]

    seen = sooner.remote(variables)

    @sooner.remote
    class Actor:
        def variables(self):
            return variables()

    def blas_threads():
        import numpy, threadpoolctl
        numpy.ones((2, 2)) @ numpy.ones((2, 2))
        return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}

    blas = sooner.remote(blas_threads)
"""


def _run(code, **environment):
    import os
    import textwrap

    clean = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    run_driver(textwrap.dedent(_PROGRAM) + textwrap.dedent(code) + "\nsooner.shutdown()\n", env=clean | environment)


@pytest.mark.api("own.threads")
def test_the_variables_follow_num_cpus():
    _run("""
        sooner.init(num_cpus=4)
        for cpus, threads in ((1, "1"), (3, "3"), (0.5, "1"), (2.5, "2"), (1, "1"), (0, "1")):
            assert sooner.get(seen.options(num_cpus=cpus).remote()) == [threads] * 4, cpus
        assert sooner.get(Actor.remote().variables.remote()) == ["1"] * 4
        assert sooner.get(Actor.options(num_cpus=2).remote().variables.remote()) == ["2"] * 4
        # The program itself is left alone.
        assert variables() == [None] * 4
        """)


@pytest.mark.parametrize("preload", [[], ["numpy"]])
def test_loaded_libraries_are_told(preload):
    pytest.importorskip("threadpoolctl")
    _run(f"""
        sooner.init(num_cpus=3, preload={preload})
        for cpus in (1, 3, 2, 1):
            assert sooner.get(blas.options(num_cpus=cpus).remote()) == {{cpus}}, cpus
        """)


def test_what_the_user_has_set_stays():
    _run(
        """
        sooner.init(num_cpus=4)
        for cpus in (1, 2):
            assert sooner.get(seen.options(num_cpus=cpus).remote()) == ["7", None, None, None]
        """,
        OMP_NUM_THREADS="7",
    )
    _run(
        """
        sooner.init(num_cpus=4)
        for cpus in (1, 2):
            assert sooner.get(seen.options(num_cpus=cpus).remote()) == [str(cpus), str(cpus), "5", str(cpus)]
        """,
        MKL_NUM_THREADS="5",
    )


def test_what_a_task_has_set_does_not_stay():
    _run("""
        sooner.init(num_cpus=2)

        @sooner.remote
        def choose():
            os.environ["OPENBLAS_NUM_THREADS"] = "2"

        sooner.get(choose.remote())
        assert sooner.get(seen.options(num_cpus=2).remote()) == ["2", "2", "2", "2"]
        assert sooner.get(seen.remote()) == ["1", "1", "1", "1"]
        """)
