"""Warnings about code that carries data along."""

from __future__ import annotations

import pytest
from support import run_driver

HEAD = """
import logging, numpy as np, sooner
sooner.init(num_cpus=1)
table = np.ones(3_000_000)
small = np.ones(1000)
"""


def warnings(code):
    done = run_driver(HEAD + code)
    return [line for line in done.stderr.splitlines() if "the code of" in line]


@pytest.mark.api("own.advice")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            """
@sooner.remote
def total():
    return table.sum() + small.sum()
assert sooner.get(total.remote()) == 3_001_000
""",
            "the code of total takes 24 MB, most of it in the global 'table' (ndarray, 24 MB). ",
        ),
        (
            """
def make(data):
    @sooner.remote
    def total():
        return len(data)
    return total
sooner.get(make([b"x" * 1000] * 3 + [bytes(11 << 20)]).remote())
""",
            "the code of make.<locals>.total takes 12 MB, most of it in the closure variable 'data' (list, 12 MB). ",
        ),
        (
            """
@sooner.remote
class Model:
    def predict(self):
        return table.sum()
sooner.get(Model.remote().predict.remote())
""",
            "the code of Model takes 24 MB, most of it in the global 'table' (ndarray, 24 MB). ",
        ),
        (
            """
@sooner.remote
class Model:
    weights = table
    def predict(self):
        return self.weights.sum()
sooner.get(Model.remote().predict.remote())
""",
            "the code of Model takes 24 MB, most of it in the class attribute 'weights' (ndarray, 24 MB). ",
        ),
    ],
    ids=["global", "closure", "method", "class attribute"],
)
def test_large_code(code, expected):
    [line] = warnings(code)
    assert expected in line
    place, line_number, _ = line.split(":", 2)
    assert place == "<string>"
    number = int(line_number)
    source = (HEAD + code).split("\n")
    assert any(word in "\n".join(source[number - 1 : number + 1]) for word in ("def total", "def predict"))


@pytest.mark.api("own.advice")
def test_once_per_place():
    found = warnings(
        """
def make():
    @sooner.remote
    def total():
        return table.sum()
    return total
for _ in range(3):
    sooner.get(make().remote())
sooner.get(make().options(num_cpus=0).remote())
"""
    )
    assert len(found) == 1


def test_what_is_fine():
    assert (
        warnings(
            """
ref = sooner.put(table)
@sooner.remote
def total(array):
    return array.sum() + small.sum() + len(sooner.get(ref))
sooner.get(total.remote(table))
sooner.get(total.remote(ref))
"""
        )
        == []
    )


def test_the_logger_can_be_silenced():
    assert (
        warnings(
            """
logging.getLogger("sooner").setLevel(logging.ERROR)
sooner.get(sooner.remote(lambda: table.sum()).remote())
"""
        )
        == []
    )


@pytest.mark.api("own.advice")
def test_waiting_for_tasks_one_by_one_is_noticed_once():
    done = run_driver("""
        import time, sooner

        sooner.init(num_cpus=2)

        @sooner.remote
        def slow():
            time.sleep(0.11)

        @sooner.remote
        class Actor:
            def slow(self):
                time.sleep(0.11)

        actor = Actor.remote()
        for _ in range(22):
            sooner.get(actor.slow.remote())
        print("actors are fine", flush=True)
        for _ in range(42):
            sooner.get(slow.remote())
        sooner.get([slow.remote() for _ in range(10)])
    """)
    assert done.stderr.count("were waited for one by one") == 1
    assert "<string>:20: 2" in done.stderr
