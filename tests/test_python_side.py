"""What the engine calls in Python: it is there, and takes what it is called with."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import sooner._engine
from sooner import _sooner

NAMES = _sooner.python_side()


@pytest.mark.parametrize(("module", "name", "counts"), NAMES, ids=[f"{row[0]}.{row[1]}" for row in NAMES])
def test_is_there_and_takes_its_arguments(module, name, counts):
    found = getattr(importlib.import_module(module), name)
    if counts:
        signature = inspect.signature(found)
        for count in counts:
            signature.bind(*range(count))
        if inspect.isfunction(found):
            with pytest.raises(TypeError):
                signature.bind(*range(20))


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(sooner._engine.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    seen = sorted((node.module, alias.asname) for node in imports for alias in node.names)
    assert seen == sorted((module, name) for module, name, _ in NAMES)


def test_the_engine_names_python_in_one_place():
    source = Path(__file__).parent.parent / "crates/sooner-python/src"
    for path in source.rglob("*.rs"):
        text = path.read_text()
        assert path.name == "python_side.rs" or 'import("sooner.' not in text.replace('import("sooner._sooner")', ""), (
            path
        )


def test_a_record_is_read_as_it_is_told():
    from sooner._state.snapshot import _RECORD, Execution

    assert Execution._fields == tuple(name for name, _ in _sooner.RECORD)
    assert len(_RECORD.unpack(bytes(_RECORD.size))) == len(Execution._fields)
