"""`inspect_serializability`: everything inside a value that cannot be pickled, as a tree."""

from __future__ import annotations

import sys
from typing import IO, Any

from sooner._errors.culprit import Search, is_too_deep, show, verdict


class FailureTuple:
    """A part of a value that cannot be pickled, and of which no part is to blame.

    Attributes:
        obj: The part.
        name: How its parent refers to it, for instance "closure variable 'lock'".
        parent: What refers to it.
    """

    def __init__(self, obj: Any, name: str, parent: Any) -> None:
        self.obj = obj
        self.name = name
        self.parent = parent

    def __repr__(self) -> str:
        return f"FailureTuple({self.name}: {show(self.obj)}, parent={show(self.parent)})"


def inspect_serializability(
    obj: Any, name: str | None = None, depth: int = 3, print_file: IO[str] | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Say whether a value can be passed to tasks and actors, and print what stands in the way.

    Nothing is sent, and references inside the value are left alone.

    Args:
        obj: The value: anything, also a function or class with what it captures.
        name: How to call it in the tree; its `repr` by default.
        depth: Levels below the value that are searched, at least 1.
        print_file: Where to print; standard output by default.

    Returns:
        Whether it can be pickled, and the parts that cannot.

    Raises:
        ValueError: `depth` is below 1.

    Example:
        >>> import threading, sooner.util
        >>> good, failures = sooner.util.inspect_serializability({"lock": threading.Lock()}, name="state")
        state: cannot pickle '_thread.lock' object
        └─ ['lock']: <unlocked _thread.lock object>
             cannot pickle '_thread.lock' object
             what to do: Make the lock inside the task or actor.
        >>> good, [failure.name for failure in failures]
        (False, ["['lock']"])
    """
    levels: Any = depth
    if isinstance(levels, bool) or not isinstance(levels, int) or levels < 1:
        raise ValueError(f"depth must be a whole number of at least 1, not {depth!r}")
    title = show(obj) if name is None else str(name)
    tree = _Tree()
    failure = tree.search.failure(obj)
    if failure is None:
        tree.lines.append(f"{title}: can be pickled")
    else:
        tree.lines.append(f"{title}: {verdict(failure, obj)[0]}")
        tree.grow(obj, title, None, failure, "", depth)
        if tree.search.note:
            tree.lines.append(f"note: {tree.search.note}; there may be more")
    print("\n".join(tree.lines), file=print_file or sys.stdout)
    return failure is None, tree.failures


class _Tree:
    def __init__(self) -> None:
        self.search = Search()
        self.lines: list[str] = []
        self.failures: set[FailureTuple] = set()

    def grow(self, value: Any, name: str, parent: Any, failure: BaseException, indent: str, depth: int) -> None:
        """Adds what is to blame inside `value`, or `value` itself."""
        # Every part of a value that is nested too deeply fails for the same reason.
        parts = [] if depth == 0 or is_too_deep(failure) else list(self.search.failing_parts(value))
        for number, (label, part, reason) in enumerate(parts, start=1):
            if not label:
                # A step that users do not see.
                self.grow(part, name, parent, reason, indent, depth)
                continue
            is_last = number == len(parts)
            self.lines.append(f"{indent}{'└─' if is_last else '├─'} {label}: {show(part)}")
            self.grow(part, label, value, reason, indent + ("   " if is_last else "│  "), depth - 1)
        if not parts:
            self.failures.add(FailureTuple(value, name, parent))
            said, advice = verdict(failure, value)
            self.lines += [f"{indent}  {said}", f"{indent}  what to do: {advice}"]
