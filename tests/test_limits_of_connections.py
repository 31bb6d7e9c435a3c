"""Processes that have no descriptors left for connections to others, and have some again.

Connections wait meanwhile, and nothing that was said over them is lost. What waits for long ends with the
cause.
"""

from __future__ import annotations

import os
import textwrap

import pytest
from clusters import cluster_of
from support import run_driver

pytestmark = pytest.mark.waits

# Descriptors of a process are used up, but for some.
_HELD = r"""
import os, re, resource, threading, time
import numpy as np
import sooner

FILES = r"may have \d+ files open \(ulimit -n\)"

class Files:
    def __init__(self, most, left=1):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        self.limits, self.open = limits, []
        try:
            while True:
                self.open.append(open(os.devnull))
        except OSError:
            for _ in range(left):
                self.open.pop().close()

    def close(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
        while self.open:
            self.open.pop().close()

@sooner.remote
def one():
    return 1

@sooner.remote
def ones(count):
    return np.ones(count)

@sooner.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count
"""


def _run(code: str, environment: dict[str, str] | None = None, timeout: float = 170) -> str:
    program = _HELD + textwrap.dedent(code)
    return run_driver(program, env=environment or dict(os.environ), timeout=timeout).stderr


def test_who_asks_for_the_state_without_descriptors_hears_whose_limit_it_is():
    _run(
        """
        sooner.init(num_cpus=1)
        from sooner import state
        questions = [sooner.nodes, sooner.cluster_resources, state.list_tasks, state.list_objects]
        for question in questions:
            question()
        for question in questions:
            files = Files(64, left=0)
            try:
                question()
            except OSError as error:
                assert re.search(FILES, str(error)), (question, error)
            finally:
                files.close()
        assert len(sooner.nodes()) == 1
        """
    )


def test_a_driver_without_descriptors_goes_on_when_it_has_some_again(node):
    said = _run(
        """
        sooner.init(address="auto")
        files = Files(64, left=0)
        counter = Counter.remote()
        counts = [counter.add.remote() for _ in range(100)]
        values = [ones.remote(50_000) for _ in range(20)]
        refs = [one.remote() for _ in range(50)]
        kept = sooner.put(np.ones(50_000))
        assert sooner.get(kept).sum() == 50_000
        assert sooner.wait(refs + counts, timeout=2)[0] == []
        files.close()
        assert sooner.get(counts, timeout=60) == list(range(1, 101))
        assert sooner.get(refs, timeout=60) == [1] * 50
        assert all(value.sum() == 50_000 for value in sooner.get(values, timeout=60))
        assert sooner.get(counter.add.remote(), timeout=60) == 101
        """,
        node.environment,
    )
    assert "Traceback" not in said


@pytest.mark.parametrize(("kind", "error"), [("task", "WorkerCrashedError"), ("actor", "ActorDiedError")])
def test_what_waits_long_for_a_connection_of_its_driver_ends_with_the_cause(node, kind, error):
    # One at a time. What tells of the first has a descriptor for a moment; the second's connection could get
    # it.
    _run(
        f"""
        sooner.init(address="auto")
        other = Counter.options(name="other").remote()
        files = Files(64, left=0)
        task = one.options(max_retries=0).remote() if {kind == "task"} else Counter.remote().add.remote()
        try:
            found = f"no error, but {{sooner.get(task, timeout=60)!r}}"
        except Exception as error:
            found = f"{{type(error).__name__}}: {{error}}"
        assert re.match(rf"{error}: [^$]*{{FILES}}", found), found
        # It goes on in the same session.
        files.close()
        assert sooner.get([one.remote() for _ in range(20)], timeout=60) == [1] * 20
        assert sooner.get(Counter.remote().add.remote(), timeout=60) == 1
        """,
        node.environment,
    )


@pytest.mark.parametrize("kind", ["task", "actor"])
def test_a_worker_without_descriptors_goes_on_when_it_has_some_again(kind):
    _run(
        f"""
        sooner.init(num_cpus=4)

        def body():
            files = Files(64, left=0)
            threading.Timer(3, files.close).start()
            counter = Counter.remote()
            counts = [counter.add.remote() for _ in range(100)]
            refs = [one.remote() for _ in range(20)]
            kept = sooner.put(np.ones(50_000))
            assert sooner.get(kept).sum() == 50_000
            assert sooner.get(counts, timeout=40) == list(range(1, 101))
            assert sooner.get(refs, timeout=40) == [1] * 20
            assert sooner.get(ones.remote(50_000), timeout=40).sum() == 50_000
            return os.getpid()

        if {kind!r} == "task":
            task = sooner.remote(max_retries=0)(body)
            assert sooner.get(task.remote(), timeout=100) > 0
        else:
            class Body:
                def run(self):
                    return body()

                def pid(self):
                    return os.getpid()

            actor = sooner.remote(Body).remote()
            assert sooner.get(actor.run.remote(), timeout=100) == sooner.get(actor.pid.remote(), timeout=60)
        """
    )


def test_a_worker_without_descriptors_for_long_ends_with_the_cause():
    _run(
        """
        sooner.init(num_cpus=4)

        @sooner.remote(max_retries=0)
        def task():
            task.files = Files(64, left=0)
            return sooner.get([one.remote() for _ in range(4)])

        try:
            raise AssertionError(sooner.get(task.remote(), timeout=60))
        except sooner.exceptions.SoonerError as error:
            assert re.search(FILES, str(error)), error
        assert sooner.get([one.remote() for _ in range(20)], timeout=60) == [1] * 20
        """
    )


@pytest.mark.parametrize("is_short", [True, False])
def test_a_driver_without_descriptors_for_a_line_to_another_node_is_told_so(is_short):
    with cluster_of(0, {"num_cpus": 2}) as made:
        _run(
            f"""
            sooner.init(address={made.head_node.session_dir!r})
            files = Files(64, left=0)
            ref = one.options(max_retries=0).remote()
            if {is_short}:
                assert sooner.wait([ref], timeout=4)[0] == []
                files.close()
                assert sooner.get(ref, timeout=60) == 1
            else:
                try:
                    raise AssertionError(sooner.get(ref, timeout=60))
                except sooner.exceptions.SoonerError as error:
                    assert re.search(FILES, str(error)), error
                files.close()
            assert sooner.get([one.remote() for _ in range(20)], timeout=60) == [1] * 20
            """
        )
