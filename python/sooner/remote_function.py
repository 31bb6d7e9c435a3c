"""Remote functions: `@sooner.remote` on a function, `.remote(...)`, `.options(...)`, and `cancel`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, get_origin, overload

from sooner import _sooner
from sooner._options.checks import LaterAttribute
from sooner._options.placing import placed
from sooner._options.signature import describe
from sooner._values.code import Code
from sooner.options import check_combination, resources_of, returns_of, validate

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sooner import _typing as kinds
    from sooner.actor import ActorClass
    from sooner.options import ActorOptions, _PlacedOptions, _TaskOptions

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MAX_RETRIES = 3
# Attributes that are computed on first use, if the function came from another process.
_DESCRIBED = ("remote", "_exported", "__name__", "__wrapped__")


class RemoteFunction(Generic[P, T_co]):
    """A function whose calls run as tasks on other processes.

    Made by `sooner.remote`; calling it directly is an error. `remote(*args, **kwargs)` submits a task and
    returns an `ObjectRef` at once (a list of them for `num_returns` > 1, None for 0). Arguments that are
    references are replaced by their values before the function runs; references inside other arguments stay
    references.

    Example:
        >>> import sooner
        >>> @sooner.remote(num_cpus=0.5)
        ... def double(x: int) -> int:
        ...     return 2 * x
        >>> sooner.get(double.remote(21))  # doctest: +SKIP
        42
    """

    remote: kinds.RemoteOf

    def __init__(
        self,
        function: Callable[P, T_co],
        options: dict[str, Any],
        exported: _sooner.Exported | None = None,
        takes_copies: bool = False,
    ) -> None:
        check_combination("task", options)
        self._function = function
        self._options = options
        self._takes_copies = takes_copies
        self._describe(exported)

    def _describe(self, exported: _sooner.Exported | None = None) -> None:
        function, options = self._function, self._options
        name = getattr(function, "__name__", type(function).__name__)
        retry = options.get("retry_exceptions") or False
        if exported is None or isinstance(retry, tuple):
            classes = retry if isinstance(retry, tuple) else None
            code = Code(function, hides_gpus=options.get("num_gpus") == 0)
            exported = _sooner.Exported(code, name, classes, self._takes_copies)
        self._exported = exported
        self.__name__ = name
        self.__doc__ = getattr(function, "__doc__", None)
        self.__module__ = getattr(function, "__module__", __name__)
        self.__wrapped__ = function
        signature = describe(function, name)
        returns, stream = returns_of(options, inspect.isgeneratorfunction(function))
        held = resources_of(options, "task")
        self.remote = _sooner.TaskSubmitter(  # type: ignore[assignment]
            exported,
            {
                "name": options.get("name") or name,
                "resources": list(held.items()),
                "returns": returns,
                "stream": stream,
                "retries": options.get("max_retries", _MAX_RETRIES),
                "retry_exceptions": bool(retry),
                # GPU memory that a task keeps is freed only when its process ends: one call per process by
                # default.
                "max_calls": options.get("max_calls", 1 if held.get("GPU") else 0) or 0,
                "arity": signature.arity(),
                "check": signature.check,
                "is_recorded": options.get("enable_task_events", True),
                "placed": placed(options, f"{name}()", held, held),
            },
        )

    @overload
    def options(self, **options: Unpack[_TaskOptions]) -> RemoteFunction[P, T_co]: ...
    @overload
    def options(
        self, *, num_returns: Literal["streaming"], **options: Unpack[_TaskOptions]
    ) -> RemoteFunction[P, T_co]: ...
    @overload
    def options(
        self, *, num_returns: Literal[1], **options: Unpack[_TaskOptions]
    ) -> kinds.RemoteFunctionAs[P, _sooner.ObjectRef[T_co]]: ...
    @overload
    def options(
        self, *, num_returns: Literal[0], **options: Unpack[_TaskOptions]
    ) -> kinds.RemoteFunctionAs[P, None]: ...
    @overload
    def options(
        self, *, num_returns: kinds.Several, **options: Unpack[_TaskOptions]
    ) -> kinds.RemoteFunctionAs[P, list[_sooner.ObjectRef[Any]]]: ...
    @overload
    def options(
        self, *, num_returns: int | Literal["dynamic"] | None, **options: Unpack[_TaskOptions]
    ) -> kinds.RemoteFunctionAs[P, Any]: ...
    def options(self, **options: Any) -> RemoteFunction[P, Any]:
        """The same function with other options.

        Args:
            **options: As for `sooner.remote`; what is not given stays.

        Returns:
            A new remote function; this one is unchanged.

        Raises:
            ValueError: An option does not exist or has a wrong value.
        """
        merged = self._options | validate("task", options)
        is_same = (merged.get("num_gpus") == 0) == (self._options.get("num_gpus") == 0)
        exported = self._exported if is_same else None
        return RemoteFunction(self._function, merged, exported, self._takes_copies)

    def given_options(self) -> dict[str, Any]:
        """Returns the options that this function was given, normalised.

        `other.options(**function.given_options())` gives them to another remote function.
        """
        return dict(self._options)

    def _remote(self, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    if not TYPE_CHECKING:
        # Type checkers see no such methods and report the calls.
        bind = LaterAttribute("graphs of tasks")

        def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
            """Refuses a direct call."""
            raise TypeError(
                f"{self.__name__} is a remote function: call {self.__name__}.remote(...) to run it as a task, "
                f"or {self.__name__}._function(...) to run it here"
            )

        def __getattr__(self, name: str) -> Any:
            if name in _DESCRIBED and "_function" in self.__dict__:
                self._describe()
                return self.__dict__[name]
            if name == "bind":
                # Raises the explanation again, which Python dropped before it called `__getattr__`.
                return type(self).__dict__[name].__get__(self, type(self))
            raise AttributeError(f"a remote function has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # The function may refer to its own `RemoteFunction`, and then still lacks its defaults when this
        # pickle is read.
        return _blank_function, (), (self._function, self._options, self._takes_copies)

    def __setstate__(self, state: tuple[Callable[P, T_co], dict[str, Any], bool]) -> None:
        self._function, self._options, self._takes_copies = state

    def __repr__(self) -> str:
        return f"RemoteFunction({self.__name__})"

    def _repr_html_(self) -> str:
        from sooner._progress.html import function_html  # start-up: 4.0 ms

        return function_html(self)


def _blank_function() -> RemoteFunction[Any, Any]:
    return RemoteFunction.__new__(RemoteFunction)


def _make(target: Any, options: dict[str, Any]) -> Any:
    given = target
    # `Box[int]` makes a `Box`.
    while get_origin(target) is not None and hasattr(target, "__origin__"):
        target = target.__origin__
    if inspect.isclass(target):
        from sooner.actor import ActorClass  # start-up: 23.3 ms

        return ActorClass(target, validate("actor", options))
    if target is not given:
        raise TypeError(f"sooner.remote takes a function or a class, not {given}")
    _refuse_remote(target)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        while isinstance(target, functools.partial):
            target = target.func
        name = getattr(target, "__name__", type(target).__name__)
        raise ValueError(
            f"{name} is an async function: async functions run as methods of actors. "
            "Make it an async method of a class, or call asyncio.run() in a plain function"
        )
    if not callable(target):
        raise TypeError(f"sooner.remote takes a function or a class, not {type(target).__name__}")
    return RemoteFunction(target, validate("task", options))


def _refuse_remote(target: Any) -> None:
    if isinstance(target, RemoteFunction):
        raise TypeError(f"{target.__name__} is a remote function already: use .options(...) to change its options")
    # `target` can come from an actor only if the module was imported.
    actor = sys.modules.get("sooner.actor")
    if actor is None:
        return
    if isinstance(target, actor.ActorClass):
        raise TypeError(f"{target.__name__} is an actor class already: use .options(...) to change its options")
    if isinstance(target, actor.ActorMethod):
        raise TypeError(f"{target!r} is a method of an actor: it is called with .remote(), and needs no sooner.remote")


@overload
def remote(target: kinds.TypedClass, /) -> kinds.TypedActorClassOf[kinds.TypedClass]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: kinds.Class, /) -> kinds.ActorClassOf[kinds.Class]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: type[T], /) -> ActorClass[T]: ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[P, T], /) -> RemoteFunction[P, T]: ...
@overload
def remote(**options: Unpack[_PlacedOptions]) -> kinds.Decorator: ...
@overload
def remote(**options: Unpack[_TaskOptions]) -> kinds.FunctionDecorator: ...
@overload
def remote(*, num_returns: Literal[0], **options: Unpack[_TaskOptions]) -> kinds.FunctionDecoratorAs[None]: ...
@overload
def remote(
    *, num_returns: kinds.Several, **options: Unpack[_TaskOptions]
) -> kinds.FunctionDecoratorAs[list[_sooner.ObjectRef[Any]]]: ...
@overload
def remote(*, num_returns: Literal["streaming"], **options: Unpack[_TaskOptions]) -> kinds.FunctionDecorator: ...
@overload
def remote(
    *, num_returns: int | Literal["dynamic"] | None, **options: Unpack[_TaskOptions]
) -> kinds.FunctionDecoratorAs[Any]: ...
@overload
def remote(**options: Unpack[ActorOptions]) -> kinds.ClassDecorator: ...
def remote(*targets: Any, **options: Any) -> Any:
    """Makes a function or class remote.

    Args:
        *targets: The function or class, when used without options.
        **options: Options of tasks (`sooner.options.TaskOptions`) or actors (`sooner.options.ActorOptions`).

    Returns:
        A `RemoteFunction` or `ActorClass`, or a decorator when options are given.

    Raises:
        TypeError: The target is neither a function nor a class, or is remote already.
        ValueError: An option does not exist or has a wrong value.
    """
    if len(targets) == 1 and not options and (callable(targets[0]) or isinstance(targets[0], RemoteFunction)):
        return _make(targets[0], {})
    if targets:
        raise TypeError(
            "sooner.remote is used as @sooner.remote, @sooner.remote(num_cpus=2, ...) or sooner.remote(function): "
            f"positional arguments {targets!r} are not options"
        )
    return lambda target: _make(target, options)


def cancel(
    ref: _sooner.ObjectRef[Any] | _sooner.ObjectRefGenerator[Any], *, force: bool = False, recursive: bool = True
) -> None:
    """Cancels the task that makes an object.

    A queued task never runs. A running one is interrupted (`KeyboardInterrupt` in a task, cancellation of the
    coroutine in an asyncio actor, a flag in the runtime context of other actor calls), also while it sleeps;
    with `force` its worker process is killed. A task that has ended keeps its result. A cancelled task is
    never retried.

    Args:
        ref: What the task's `.remote()` gave: a reference, or the generator of a streaming task.
        force: Kill the worker process.
        recursive: Cancel what the task has submitted, too.

    Raises:
        TypeError: `ref` is not an `ObjectRef`.
        ValueError: `force` with a call of an actor.
    """
    if not isinstance(ref, _sooner.ObjectRef | _sooner.ObjectRefGenerator):
        raise TypeError(f"sooner.cancel() takes an ObjectRef or a generator of them, not {type(ref).__name__}")
    _sooner.cancel_task(ref, force, recursive)
