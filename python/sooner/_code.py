"""Functions and classes on their way to workers: pickled with what else the workers must know."""

from __future__ import annotations

import pickle
from typing import Any

from sooner._serializers import Registration, registrations

# A pickle above this size (bytes) carries data along that should be passed as an argument.
_CODE_BYTES_MAX = 10 << 20


class Code:
    """What the engine pickles in place of a function or class, once per session.

    The pickle holds the pickled target, and the serializers that users have registered. They are read first. Only
    here is it known how large the code is.
    """

    def __init__(self, target: Any) -> None:
        self.target = target

    @property
    def place(self) -> str | None:
        """File and line of a function, for advice."""
        code = getattr(self.target, "__code__", None)
        return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        pickled = cloudpickle.dumps(self.target, protocol=5)
        if len(pickled) > _CODE_BYTES_MAX:
            from sooner._advice import large_code

            large_code(self.target, len(pickled))
        return _load, (registrations(), pickled)


def _load(_: tuple[Registration, ...], pickled: bytes) -> Any:
    return pickle.loads(pickled)
