"""Sets back a task's changes to its process: signal handlers, environment, working directory, `settings.py`.

The next task does not find them. The former value is recorded by the function that changes it, so a task
without changes pays nothing. Changes that a module makes while it is imported stay, as the module does.
Changes by an actor are never set back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from types import BuiltinFunctionType
from typing import Any

from sooner import _sooner
from sooner._engine.settings import Setting, table

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
# Modules that may be imported before `hook` runs, and have copied functions of other modules.
_COPIES = ("locale", "threading", "tracemalloc")

_handlers: dict[int, Any] = {}
_environment: dict[str, str | None] = {}
_directory: str | None = None
# Settings with their former values, by their place in the table and their key.
_settings: dict[tuple[int, Hashable], tuple[Setting, Any]] = {}
_touches_streams = False
# Whether changes are recorded: not while the worker takes over the program's state, and not in an actor.
_is_noting = False


def _led_here(frame: Any, has_led: Callable[[Any], bool]) -> bool:
    while frame is not None:
        if has_led(frame):
            return True
        frame = frame.f_back
    return False


def _imports(frame: Any) -> bool:
    return bool(frame.f_code.co_filename == _IMPORT_SYSTEM)


def _initializes(frame: Any) -> bool:
    is_named = frame.f_code.co_name == "_initialize"
    return is_named and bool(frame.f_globals.get("__name__") == "sooner.util.executor")


def is_importing(frame: Any) -> bool:
    """Whether a module is being imported in this frame or in one that has led to it."""
    return _led_here(frame, _imports)


def _stays(frame: Any) -> bool:
    """Whether a change in this frame is for later tasks, too: by an import, or an executor's initializer."""
    return _led_here(frame, lambda one: _imports(one) or _initializes(one))


def hook() -> None:
    """In the template, before user imports: makes functions that change the process record former values."""
    signal.signal = noted(signal.signal, before=_noting(_note_signal), module="signal")
    for name in ("putenv", "unsetenv"):
        setattr(os, name, noted(getattr(os, name), before=_noting(_note_variable)))
    for name in ("chdir", "fchdir"):
        setattr(os, name, noted(getattr(os, name), before=_noting(_note_directory)))
    made: dict[Any, Any] = {}
    for place, setting in enumerate(table()):
        for name in setting.names:
            if function := getattr(setting.module, name, None):
                note = _noting_setting(place, setting)
                made[function] = noted(function, before=note, module=setting.module.__name__)
                setattr(setting.module, name, made[function])
    for module in map(sys.modules.get, _COPIES):
        for name, value in list(vars(module).items()) if module is not None else ():
            if isinstance(value, BuiltinFunctionType) and value in made:
                setattr(module, name, made[value])
    # Other ways to close a stream are noticed when the worker waits for its next task.
    os.close = noted(os.close, before=_note_stream)
    os.dup2 = noted(os.dup2, before=lambda fd=-1, fd2=-1, inheritable=True: _note_stream(fd2))


def begin() -> None:
    """In a worker, before its first task."""
    global _is_noting
    _is_noting = True


def end() -> None:
    """Stops recording: the process becomes an actor, whose changes stay, or was forked and is no worker."""
    global _is_noting
    _is_noting = False


def keeps_streams() -> bool:
    """Whether new standard streams are for later tasks, too. The engine asks only if they have changed."""
    executor: Any = sys.modules.get("sooner.util.executor")
    keeps = executor is not None and bool(executor.has_new_streams)
    if executor is not None:
        executor.has_new_streams = False
    return keeps


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Changes that are made meanwhile are not recorded, and stay."""
    global _is_noting
    before, _is_noting = _is_noting, False
    try:
        yield
    finally:
        _is_noting = before


class _Noted:
    """A function of a module, with a call before or after it. Like a C function, it binds to no instance."""

    def __init__(
        self,
        function: Callable[..., Any],
        before: Callable[..., None] | None,
        after: Callable[[], None] | None,
        module: str,
    ) -> None:
        self.__wrapped__ = function
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = module
        self._before = before
        self._after = after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._before is not None:
            self._before(*args, **kwargs)
        try:
            return self.__wrapped__(*args, **kwargs)
        finally:
            if self._after is not None:
                self._after()

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def noted(
    function: Callable[..., Any],
    before: Callable[..., None] | None = None,
    after: Callable[[], None] | None = None,
    module: str = "os",
) -> Callable[..., Any]:
    """Wraps the function of a module with a call before it (with its arguments) or after it."""
    made = _Noted(function, before, after, module)
    if function in os.supports_fd:
        os.supports_fd.add(made)
    return made


def _noting(note: Callable[[Any], None]) -> Callable[..., None]:
    def before(*args: Any, **options: Any) -> None:
        given = [*args, *options.values()]
        # Two frames up is the caller of the wrapped function.
        if _is_noting and given and not _stays(sys._getframe(2)):
            note(given[0])
            # Makes the engine call `end_line` after the task.
            _sooner.line_begun()

    return before


def _noting_setting(place: int, setting: Setting) -> Callable[..., None]:
    def note(*args: Any, **options: Any) -> None:
        if not _is_noting or _stays(sys._getframe(2)):
            return
        # Errors in the arguments are reported by the function itself.
        with contextlib.suppress(TypeError, ValueError, OSError), paused():
            key = setting.key(*args, **options)
            if (place, key) not in _settings:
                _settings[place, key] = setting, setting.read(key)
            _sooner.line_begun()

    return note


def _note_signal(number: Any) -> None:
    with contextlib.suppress(ValueError, TypeError):
        _handlers.setdefault(int(number), signal.getsignal(number))


def _note_variable(name: Any) -> None:
    name = os.fsdecode(name)
    # `putenv` and `unsetenv` are called before `os.environ` has the new value.
    _environment.setdefault(name, os.environ.get(name))


def _note_directory(_: Any) -> None:
    global _directory
    if _directory is None:
        with contextlib.suppress(OSError):
            _directory = os.getcwd()  # noqa: PTH109  nothing is imported for it


def _note_stream(fd: int = -1) -> None:
    """Records that a standard stream is closed or replaced."""
    global _touches_streams
    if _is_noting and fd in (0, 1, 2):
        _touches_streams = True
        _sooner.line_begun()


def _set_variable(name: str, value: str | None) -> None:
    if value is not None:
        os.environ[name] = value
        return
    os.environ.pop(name, None)
    # A variable set by `os.putenv` is not in `os.environ`. An error in the name was the task's to see.
    with contextlib.suppress(OSError, ValueError):
        os.unsetenv(name)


def after_task() -> None:
    """Sets back the changes of the task that ran on this thread."""
    global _directory, _touches_streams
    if _touches_streams:
        _touches_streams = False
        _sooner.mend_streams()
    if not (_handlers or _environment or _directory or _settings):
        return
    with paused():
        # Several functions may set one thing: the first of them recorded its original value.
        latest_first = list(reversed(_settings.items()))
        for (_, key), (setting, value) in sorted(latest_first, key=lambda item: not item[1][0].is_timer):
            try:
                setting.write(key, value)
            except (OSError, ValueError):
                _sooner.retire_worker()
        for number, handler in _handlers.items():
            if handler is not None:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, handler)
        for name, value in _environment.items():
            _set_variable(name, value)
        if "TZ" in _environment:
            # The time zone in force is the value of TZ at the last call of `tzset`.
            time.tzset()
        if _directory is not None:
            with contextlib.suppress(OSError):
                os.chdir(_directory)
    _settings.clear()
    _handlers.clear()
    _environment.clear()
    _directory = None
