"""The check of the rooms of the Python package finds what is planted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import tidy_rooms
from test_tidy import write

PLANTED = [
    (
        {"_values/a.py": "from sooner._engine import worker\n", "_engine/worker.py": ""},
        "_values/a.py:1: _values -> _engine (sooner._engine.worker): _values may import base",
    ),
    (
        {"_state/a.py": "from sooner.actor import x\n", "actor.py": ""},
        "_state/a.py:1: _state -> nouns (sooner.actor)",
    ),
    ({"_cellar/a.py": ""}, "_cellar/a.py:1: _cellar is no room of the package"),
    (
        {"a.py": "from sooner import b\n", "b.py": "if x:\n    from sooner.c import y\n", "c.py": "import sooner.a\n"},
        "a circle of imports: sooner.a, sooner.b, sooner.c",
    ),
    ({"a.py": "from sooner.a import x\n"}, "a circle of imports: sooner.a"),
    ({"a.py": "class A:\n    def f(self):\n        import json\n"}, "a.py:3: an import inside a function: say"),
    ({"a.py": "def f():\n    import json  # it is slow\n"}, "a.py:2: an import inside a function: say"),
    ({"a.py": "def f():\n    import json  # start-up: slow\n"}, "a.py:2: an import inside a function: say"),
    ({"a.py": "def f():\n    from sooner import b\n", "b.py": ""}, "a.py:2: an import inside a function: say"),
    (
        {"a.py": "def f():\n    from sooner import b  # circle\n", "b.py": ""},
        "a.py:2: an import inside a function: there is no circle any more",
    ),
]
PASSES = [
    {"_engine/a.py": "from sooner._values import b\nfrom sooner import _sooner\n", "_values/b.py": ""},
    {"_values/b.py": "if TYPE_CHECKING:\n    from sooner.actor import x\n", "actor.py": ""},
    {"a.py": "def f():\n    import json  # start-up: 1.2 ms\n"},
    {"a.py": "def f():\n    import numpy\n"},
    {"a.py": "def f():\n    import json  # noqa: X1  # order: after the fork\n"},
    {"a.py": "def f():\n    from sooner import b  # optional\n", "b.py": ""},
    {"a.py": "def f():\n    from sooner import _sooner\n"},
]


def tree(root: Path, files: dict[str, str]) -> Path:
    write(root, {f"python/sooner/{name}": text for name, text in files.items()} | {"python/sooner/__init__.py": ""})
    return root


@pytest.mark.parametrize(("files", "finding"), PLANTED)
def test_a_planted_fault_is_found(files, finding, tmp_path, monkeypatch):
    monkeypatch.setattr(tidy_rooms, "CIRCLES_MAX", 1)
    found = tidy_rooms.check_rooms(tree(tmp_path, files))
    assert len(found) == 1, found
    assert finding in found[0]


@pytest.mark.parametrize("files", PASSES)
def test_what_is_in_order_passes(files, tmp_path):
    assert tidy_rooms.check_rooms(tree(tmp_path, files)) == []


def test_circles_are_counted_and_may_only_become_less(tmp_path, monkeypatch):
    circle = {
        "actor.py": "from sooner import context\n",
        "context.py": "def f():\n    from sooner import actor  # circle\n",
    }
    root = tree(tmp_path, circle)
    for most, finding in [(0, "1 imports inside functions because of circles, at most 0"), (2, "1 circles are left")]:
        monkeypatch.setattr(tidy_rooms, "CIRCLES_MAX", most)
        assert [finding in line for line in tidy_rooms.check_rooms(root)] == [True]
    monkeypatch.setattr(tidy_rooms, "CIRCLES_MAX", 1)
    assert tidy_rooms.check_rooms(root) == []


def test_the_table_is_in_order_of_floors(tmp_path, monkeypatch):
    monkeypatch.setattr(tidy_rooms, "ROOMS", {"base": ("nouns",), "nouns": ("base",)})
    monkeypatch.setattr(tidy_rooms, "CIRCLES_MAX", 0)
    found = tidy_rooms.check_rooms(tree(tmp_path, {}))
    assert found == ["tools/tidy_rooms.py: base -> nouns: a room stands behind all that it may import"]
