"""Actors: `@sooner.remote` on a class, handles, methods, names, `kill`, and news of their ends."""

from __future__ import annotations

import functools
import inspect
import pickle
import time
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from sooner import _sooner
from sooner._engine.checkpoints import check_call, check_class
from sooner._options.checks import LaterAttribute
from sooner._options.placing import placed
from sooner._options.signature import Signature, code_of, describe, describe_method
from sooner._values.code import Code
from sooner.exceptions import ActorAlreadyExistsError
from sooner.ids import ActorID
from sooner.options import actor_resources, check_combination, returns_of, validate

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sooner import _typing as kinds
    from sooner._options.traits import ActorTraits
    from sooner.options import ActorOptions, _MethodOptions

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS_ATTRIBUTE = "__sooner_method_options__"
# Descriptors that become a method when they are looked up.
_UNBOUND = (staticmethod, classmethod, functools.partialmethod, functools.singledispatchmethod)
_BUILTIN = ("__ray_ready__", "__ray_call__", "__ray_terminate__")
_ASYNC_CONCURRENCY = 1000
# Special methods of the handle itself: to make, copy, pickle and show it. Libraries look for some of them on
# instances.
_OF_HANDLES = {
    *dir(object),
    "__getattr__",
    "__copy__",
    "__deepcopy__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
}
_OF_HANDLES |= {"__getnewargs_ex__", "__del__", "__set_name__", "__class_getitem__"}
_OF_HANDLES |= {"__dlpack__", "__dlpack_device__", "__fspath__"}
# Attributes that are computed on first use, if the class came from another process.
_DESCRIBED = ("_info", "_is_async", "_exported", "_constructor", "__name__")
# How often a call is retried that ran when the process of an actor with checkpoints ended. The actor's other
# calls are always repeated.
_KEPT_CALL_RETRIES = 3
# Options of an actor that decide how its methods are called.
_CALL_OPTIONS = (
    "max_task_retries",
    "max_pending_calls",
    "concurrency_groups",
    "allow_out_of_order_execution",
    "checkpoint_every",
    "lifetime",
)
# How long `get_if_exists` waits for an ending actor to give up its name, and how often it looks (seconds).
_ENDING_SECONDS = 30.0
_LOOK_SECONDS = 0.002


class MethodInfo(NamedTuple):
    """What a handle knows of a method."""

    signature: Signature
    options: dict[str, Any]
    is_generator: bool = False


class ActorInfo(NamedTuple):
    """What a handle knows of its class."""

    class_name: str
    methods: dict[str, MethodInfo]
    options: dict[str, Any]


@overload
def method(target: Callable[Concatenate[Any, P], T], /) -> kinds.Method[P, T]: ...
@overload
def method(**options: Unpack[_MethodOptions]) -> kinds.MethodDecorator: ...
@overload
def method(*, num_returns: Literal[0], **options: Unpack[_MethodOptions]) -> kinds.MethodDecoratorAs[None]: ...
@overload
def method(
    *, num_returns: kinds.Several, **options: Unpack[_MethodOptions]
) -> kinds.MethodDecoratorAs[list[_sooner.ObjectRef[Any]]]: ...
@overload
def method(*, num_returns: Literal["streaming"], **options: Unpack[_MethodOptions]) -> kinds.MethodDecorator: ...
@overload
def method(
    *, num_returns: int | Literal["dynamic"] | None, **options: Unpack[_MethodOptions]
) -> kinds.MethodDecoratorAs[Any]: ...
def method(*targets: Any, **options: Any) -> Any:
    """Marks a method of an actor, and sets defaults for its calls.

    The mark alone, `@sooner.method`, changes nothing when the program runs: it tells type checkers what a
    call through a handle takes and gives.

    Args:
        *targets: The method, when used without options.
        **options: See `sooner.options.MethodOptions`.

    Returns:
        The method, or a decorator when options are given.

    Raises:
        TypeError: What is decorated is no method.
        ValueError: There are neither a method nor options, or an option does not exist or has a wrong value.

    Example:
        >>> import sooner
        >>> class Splitter:
        ...     @sooner.method(num_returns=2)
        ...     def split(self, pair: tuple[int, int]) -> tuple[int, int]:
        ...         return pair
    """
    if len(targets) == 1 and not options and (callable(targets[0]) or isinstance(targets[0], _UNBOUND)):
        return targets[0]
    if targets:
        raise TypeError(
            "sooner.method is used as @sooner.method or @sooner.method(num_returns=2, ...): "
            f"positional arguments {targets!r} are not options"
        )
    if not options:
        raise ValueError("@sooner.method() needs at least one option, for instance @sooner.method(num_returns=2)")
    checked = validate("method", options)

    def decorate(function: F) -> F:
        try:
            setattr(function, _OPTIONS_ATTRIBUTE, checked)
        except AttributeError:
            raise TypeError(f"sooner.method marks a method that is written in Python, not {function!r}") from None
        return function

    return decorate


def _method_info(cls: type, name: str, function: Any) -> MethodInfo:
    code = code_of(function)
    is_generator = inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)
    # If `sooner.method` was applied to a `classmethod` or the like, that object has the mark, not its
    # function.
    raw = inspect.getattr_static(cls, name)
    options = getattr(raw, _OPTIONS_ATTRIBUTE, None) or getattr(function, _OPTIONS_ATTRIBUTE, {})
    return MethodInfo(describe_method(cls, name, function), options, is_generator)


def _can_be_called(cls: type, name: str) -> bool:
    """Whether a special method such as `__len__` is the actor's: its class has it, and handles do not."""
    if name in _OF_HANDLES or name.startswith("__array"):
        return False
    return any(name in vars(base) for base in cls.__mro__ if base is not object)


def describe_class(cls: type, options: dict[str, Any]) -> ActorInfo:
    """What a handle on an actor of this class, created with these options, knows."""
    methods = {
        name: _method_info(cls, name, function)
        for name, function in inspect.getmembers(cls, callable)
        if not name.startswith("__") or _can_be_called(cls, name)
    }
    for name in _BUILTIN:
        own = {"read_only": True} if name == "__ray_ready__" else {}
        methods[name] = MethodInfo(Signature(name, (("args", 2, False), ("kwargs", 4, False))), own)
    return ActorInfo(cls.__name__, methods, {name: options[name] for name in _CALL_OPTIONS if name in options})


class ActorClass(Generic[C]):
    """A class whose instances live in processes of their own.

    Made by `sooner.remote`. `remote(*args, **kwargs)` creates an actor and returns its handle at once; the
    constructor runs in the actor's process. An actor without a name ends when its last handle is gone and its
    calls are done.

    Example:
        >>> import sooner
        >>> @sooner.remote
        ... class Counter:
        ...     def __init__(self) -> None:
        ...         self.value = 0
        ...
        ...     def add(self, n: int) -> int:
        ...         self.value += n
        ...         return self.value
        >>> counter = Counter.remote()  # doctest: +SKIP
        >>> sooner.get(counter.add.remote(2))  # doctest: +SKIP
        2
    """

    def __init__(self, cls: type[C], options: dict[str, Any], like: ActorClass[C] | None = None) -> None:
        if any(isinstance(base, ActorClass) for base in getattr(cls, "__orig_bases__", cls.__bases__)):
            raise TypeError(f"{cls.__name__} inherits from an actor class: inherit from the plain class instead")
        check_combination("actor", options)
        if options.get("checkpoint_every"):
            check_class(cls, options)
        self._cls = cls
        self._options = options
        self._describe(like)

    def _describe(self, like: ActorClass[C] | None = None) -> None:
        cls, options = self._cls, self._options
        self._is_async: bool = is_async(cls) if like is None else like._is_async
        self._info = describe_class(cls, self._ordered(options))
        if "enable_task_events" in options:
            own = {"enable_task_events": options["enable_task_events"]}
            methods = {name: info._replace(options=own | info.options) for name, info in self._info.methods.items()}
            self._info = self._info._replace(methods=methods)
        self._hides_gpus: bool = options.get("num_gpus") == 0
        made = None
        if like is not None and like._info.options == self._info.options and like._hides_gpus == self._hides_gpus:
            made = like._exported
        code = Code(cls, hides_gpus=self._hides_gpus)
        self._exported: _sooner.Exported = made or _sooner.Exported(code, cls.__name__, self._info.options)
        self._constructor = describe(cls, cls.__name__)
        self.__name__ = cls.__name__
        self.__doc__ = cls.__doc__
        self.__module__ = cls.__module__

    def options(self, **options: Unpack[ActorOptions]) -> ActorClass[C]:
        """The same class with other options.

        Args:
            **options: As for `sooner.remote`; what is not given stays.

        Returns:
            A new actor class; this one is unchanged.

        Raises:
            ValueError: An option does not exist or has a wrong value.
        """
        return ActorClass(self._cls, self._options | validate("actor", cast("dict[str, Any]", options)), self)

    def _ordered(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options, with `allow_out_of_order_execution` filled in for actors whose calls overlap."""
        calls = options.get("max_concurrency") or 1
        if not self._is_async and calls <= 1:
            return options
        if options.get("checkpoint_every"):
            # Methods that are coroutines themselves are refused by name.
            raise ValueError(
                f"checkpoint_every does not go with the coroutines of partial methods of {self._cls.__name__}"
            )
        is_unordered = options.get("allow_out_of_order_execution")
        if is_unordered is None:
            return options | {"allow_out_of_order_execution": True}
        if not is_unordered:
            why = "has coroutine methods" if self._is_async else f"has max_concurrency={calls}"
            raise ValueError(
                f"allow_out_of_order_execution=False is not for {self._cls.__name__}, which {why}: its calls overlap "
                "and begin as their arguments come. Leave the option out, or use plain methods and max_concurrency=1"
            )
        return options

    def remote(self, /, *args: Any, **kwargs: Any) -> ActorHandle[C]:
        """Creates an actor.

        Args:
            *args: Positional arguments of the constructor.
            **kwargs: Keyword arguments of the constructor.

        Returns:
            Its handle.

        Raises:
            TypeError: The arguments do not fit the constructor, or cannot be pickled.
            ValueError: A method belongs to a concurrency group that the actor does not have.
            ActorAlreadyExistsError: The name is taken.
        """
        from sooner.context import ensure_started  # start-up: 37.5 ms

        self._constructor.check(*args, **kwargs)
        for method_name, info in self._info.methods.items():
            group_index(self._info, info.options.get("concurrency_group"), method_name)
        context = ensure_started()
        options = self._options
        name = options.get("name")
        namespace = options.get("namespace") or context.namespace
        if name is None or not options.get("get_if_exists"):
            return self._create(args, kwargs, name, namespace)
        deadline = time.monotonic() + _ENDING_SECONDS
        while True:
            found = _find_counted(name, namespace)
            if found is not None:
                return found
            try:
                return self._create(args, kwargs, name, namespace)
            except ActorAlreadyExistsError:
                # Another process created the actor first; or the actor of that name is ending, because its
                # last handle has just been dropped.
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_SECONDS)

    def _create(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None, namespace: str
    ) -> ActorHandle[C]:
        options = self._options
        placement, lifetime = actor_resources(options)
        calls = options.get("max_concurrency")
        if calls is None:
            calls = _ASYNC_CONCURRENCY if self._is_async else 1
        groups = list((options.get("concurrency_groups") or {}).values())
        every = options.get("checkpoint_every")
        title = self._cls.__name__
        traits: ActorTraits = {
            "title": title,
            "placement": list(placement.items()),
            "lifetime": list(lifetime.items()),
            "concurrency": calls + sum(groups),
            "groups": groups or None,
            "restarts": options.get("max_restarts", -1 if every else 0),
            "is_detached": options.get("lifetime") == "detached",
            "checkpoint_every": every,
            "name": None if name is None else (namespace, name, pickle.dumps(tuple(self._info))),
            "placed": placed(options, f"actor {title}", lifetime, placement),
        }
        return ActorHandle(_sooner.create_actor(self._exported, args, kwargs or None, traits), self._info)

    def _remote(
        self, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, **options: Any
    ) -> ActorHandle[C]:
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    if not TYPE_CHECKING:
        # Type checkers see no such methods and report the calls.
        bind = LaterAttribute("graphs of tasks")

        def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
            """Refuses a direct call."""
            raise TypeError(f"{self.__name__} is an actor class: create an actor with {self.__name__}.remote(...)")

        def __getattr__(self, name: str) -> Any:
            """What the class has: constants, static and class methods."""
            fields = self.__dict__
            if name in _DESCRIBED and "_cls" in fields:
                self._describe()
                return fields[name]
            if name == "bind":
                # Raises the explanation again, which Python dropped before it called `__getattr__`.
                return type(self).__dict__[name].__get__(self, type(self))
            if "_cls" not in fields or (name.startswith("__") and name.endswith("__")):
                raise AttributeError(f"an actor class has no attribute {name!r}")
            try:
                return getattr(fields["_cls"], name)
            except AttributeError:
                raise AttributeError(f"actor class {self.__name__} has no attribute {name!r}") from None

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise TypeError(f"{self.__name__} is an actor class and cannot be inherited from: inherit from the plain class")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._cls)})

    def __reduce__(self) -> tuple[Any, ...]:
        # The class may refer to its own `ActorClass`, and is then still empty when this pickle is read: it is
        # inspected on first use.
        return _blank_class, (), (self._cls, self._options)

    def __setstate__(self, state: tuple[type[C], dict[str, Any]]) -> None:
        self._cls, self._options = state

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"

    def _repr_html_(self) -> str:
        from sooner._progress.html import class_html  # start-up: 3.8 ms

        return class_html(self)


def _blank_class() -> ActorClass[Any]:
    return ActorClass.__new__(ActorClass)


def is_async(cls: type) -> bool:
    """Whether a class has coroutine methods: then all its calls run in one event loop."""
    methods = (code_of(function) for _, function in inspect.getmembers(cls, callable))
    return any(inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code) for code in methods)


def group_index(info: ActorInfo, group: str | None, method_name: str) -> int | None:
    """The place of a concurrency group among those of an actor.

    Raises:
        ValueError: The actor has no such group.
    """
    if group is None:
        return None
    groups = list(info.options.get("concurrency_groups") or {})
    if group not in groups:
        raise ValueError(
            f"{info.class_name}.{method_name} belongs to the concurrency group {group!r}, which the actor does not "
            f"have: it has {', '.join(map(repr, groups)) or 'none'}. "
            f"Give concurrency_groups={{{group!r}: n}} to its class"
        )
    return groups.index(group)


class ActorMethod:
    """A method of an actor: `.remote(...)` calls it, `.options(...)` changes how."""

    def __init__(self, ref: _sooner.ObjectRef[Any], name: str, info: ActorInfo, options: dict[str, Any]) -> None:
        own = info.methods[name]
        merged = own.options | options
        returns, stream = returns_of(merged, own.is_generator)
        every = info.options.get("checkpoint_every")
        retries = merged.get("max_task_retries")
        if retries is None:
            retries = info.options.get("max_task_retries")
        if retries is None:
            retries = _KEPT_CALL_RETRIES if every else 0
        group = group_index(info, merged.get("concurrency_group"), name)
        retry = merged.get("retry_exceptions") or False
        retry_on = _sooner.Exported(None, name, retry) if isinstance(retry, tuple) else None
        is_unordered = bool(info.options.get("allow_out_of_order_execution"))
        is_kept = None
        if every:
            is_kept = not merged.get("read_only", False)
            check_call(info.class_name, name, stream is not None, bool(retry), is_kept)
        self._parts = (ref, name, info, options)
        self.remote = _sooner.MethodSubmitter(
            ref,
            {
                "name": name,
                "title": merged.get("name"),
                "returns": returns,
                "stream": stream,
                "retries": retries,
                "retry_exceptions": bool(retry),
                "retry_on": retry_on,
                "group": group,
                "is_unordered": is_unordered,
                "pending_max": info.options.get("max_pending_calls", -1),
                "is_kept": is_kept,
                "arity": own.signature.arity(),
                "check": own.signature.check,
                "is_recorded": merged.get("enable_task_events", True),
            },
        )

    @overload
    def options(self, **options: Unpack[_MethodOptions]) -> ActorMethod: ...
    @overload
    def options(
        self, *, num_returns: int | Literal["streaming", "dynamic"] | None, **options: Unpack[_MethodOptions]
    ) -> ActorMethod: ...
    def options(self, **options: Any) -> ActorMethod:
        """The same method with other options.

        Args:
            **options: See `sooner.options.MethodOptions`.

        Returns:
            A new method; this one is unchanged.

        Raises:
            ValueError: An option does not exist or has a wrong value.
        """
        ref, name, info, before = self._parts
        return ActorMethod(ref, name, info, before | validate("method", options))

    def _remote(self, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        target = self.options(**options) if options else self
        return target.remote(*(args or ()), **(kwargs or {}))

    if not TYPE_CHECKING:
        # Type checkers see no such methods and report the calls.
        bind = LaterAttribute("graphs of tasks")

        def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
            """Refuses a direct call."""
            name = self._parts[1]
            raise TypeError(f"methods of actors are called with .remote(): use handle.{name}.remote(...)")

    def __reduce__(self) -> tuple[Any, ...]:
        ref, name, info, options = self._parts
        return _rebuild_method, (ref, name, tuple(info), options)

    def __repr__(self) -> str:
        return f"ActorMethod({self._parts[2].methods[self._parts[1]].signature.name})"


class ActorHandle(Generic[C]):
    """A handle on an actor. It can be passed to tasks and other actors, compared and hashed."""

    def __init__(self, ref: _sooner.ObjectRef[Any], info: ActorInfo) -> None:
        self._ref = ref
        self._info = info

    @property
    def _actor_id(self) -> ActorID:
        return ActorID.from_hex(self._ref.task_id())

    _ray_actor_id = _actor_id

    def __getattr__(self, name: str) -> ActorMethod:
        if name.startswith("_") and name not in self.__dict__.get("_info", ActorInfo("", {}, {})).methods:
            raise AttributeError(name)
        info = self._info.methods.get(name)
        if info is None:
            raise AttributeError(f"actor class {self._info.class_name} has no method {name!r}")
        made = ActorMethod(self._ref, name, self._info, {})
        self.__dict__[name] = made
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_handle, (self._ref, tuple(self._info))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._ref == other._ref

    def __hash__(self) -> int:
        return hash(self._ref)

    def __repr__(self) -> str:
        return f"Actor({self._info.class_name}, {self._actor_id})"

    def _repr_html_(self) -> str:
        from sooner._progress.html import actor_html  # start-up: 3.8 ms

        return actor_html(self)


if TYPE_CHECKING:
    _TypedActorType = kinds.TypedActorType
else:
    _TypedActorType = type


class TypedActor(metaclass=_TypedActorType):
    """A class whose methods type checkers know through a handle, too.

    It does nothing when the program runs. Of a class that inherits from it, `.remote(...)` gives an
    `ActorProxy`: calls of its methods with `@sooner.method` are checked, and those of other names are errors.

    Example:
        >>> import sooner
        >>> class Counter(sooner.TypedActor):
        ...     @sooner.method
        ...     def add(self, n: int) -> int:
        ...         return n
        >>> RemoteCounter = sooner.remote(Counter)
    """

    if TYPE_CHECKING:
        _actor_id: ClassVar[ActorID]
        _ray_actor_id: ClassVar[ActorID]
        __ray_ready__: ClassVar[kinds.RemoteMethod[[], _sooner.ObjectRef[bool]]]
        __ray_call__: ClassVar[ActorMethod]
        __ray_terminate__: ClassVar[ActorMethod]


if TYPE_CHECKING:
    # A class object, because its attributes are what checkers can look up. `ActorHandle` is there for handles
    # of other classes, whose methods are then known only as far as the class tells.
    ActorProxy: TypeAlias = type[C]
    AnyHandle: TypeAlias = ActorHandle[Any] | type[TypedActor]
else:
    ActorProxy = ActorHandle


def _rebuild_handle(ref: _sooner.ObjectRef[Any], info: tuple[Any, ...]) -> ActorHandle[Any]:
    return ActorHandle(ref, ActorInfo(*info))


def _rebuild_method(
    ref: _sooner.ObjectRef[Any], name: str, info: tuple[Any, ...], options: dict[str, Any]
) -> ActorMethod:
    return ActorMethod(ref, name, ActorInfo(*info), options)


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """A handle of a named actor. It does not keep the actor alive, as little as the name does.

    Args:
        name: Its name.
        namespace: Its namespace; the session's by default.

    Returns:
        A handle.

    Raises:
        ValueError: No actor of that name lives in the namespace.
    """
    from sooner.context import ensure_started  # start-up: 37.5 ms

    if not name:
        raise ValueError(f"an actor's name is a non-empty string, not {name!r}")
    return _named(name, namespace or ensure_started().namespace, is_weak=True)


def _named(name: str, namespace: str, *, is_weak: bool) -> ActorHandle[Any]:
    ref, info = _sooner.find_name(namespace, name, is_weak)
    return _rebuild_handle(ref, pickle.loads(info))


def _find_counted(name: str, namespace: str) -> ActorHandle[Any] | None:
    """The handle of a named actor that does not end before this handle is dropped; None if there is none."""
    try:
        handle = _named(name, namespace, is_weak=False)
    except ValueError:
        return None
    is_detached = handle._info.options.get("lifetime") == "detached"
    return handle if is_detached or _sooner.is_counted(handle._ref) else None


@overload
def list_named_actors(all_namespaces: Literal[False] = False) -> list[str]: ...
@overload
def list_named_actors(all_namespaces: Literal[True]) -> list[dict[str, str]]: ...
def list_named_actors(all_namespaces: bool = False) -> list[str] | list[dict[str, str]]:
    """The names of the named actors that live.

    Args:
        all_namespaces: Of all namespaces, not only the session's own.

    Returns:
        Names; with `all_namespaces`, dictionaries with `name` and `namespace`.
    """
    from sooner.context import ensure_started  # start-up: 37.5 ms

    context = ensure_started()
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for namespace, name in _sooner.list_names(None)]
    return [name for _, name in _sooner.list_names(context.namespace)]


def kill(actor: AnyHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once: its process is killed, running and queued calls raise `ActorDiedError`.

    Args:
        actor: Its handle.
        no_restart: End it for good. With False, an actor that has restarts left (`max_restarts`) starts
            again.

    Raises:
        ValueError: `actor` is not a handle.
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(
            f"sooner.kill() takes an actor handle, not {type(actor).__name__}: use sooner.cancel() for tasks"
        )
    _sooner.kill_actor(actor._ref, f"actor {actor._info.class_name}", not no_restart)


def ended(actor: AnyHandle) -> _sooner.ObjectRef[NoReturn]:
    """A reference that fails when an actor is dead for good.

    It is for `wait` and `await`, among references of calls: whoever waits for an answer of the actor learns
    of its end in the same place. No call is parked in the actor for it.

    The reference does not keep the actor alive. An actor that is dead already gives one that has failed. A
    restart is no end: see `incarnation`.

    Args:
        actor: Its handle.

    Returns:
        A reference that never has a value. The same one each time as long as the actor lives, in each
        process. `get` and `await` raise `ActorDiedError` with the reason when the actor is dead.

    Raises:
        TypeError: `actor` is no handle.
        ValueError: The handle belongs to a session that has ended.

    Example:
        >>> worker = Worker.remote()  # doctest: +SKIP
        >>> answer, end = worker.work.remote(), sooner.util.ended(worker)  # doctest: +SKIP
        >>> sooner.wait([answer, end])[0] == [answer]  # doctest: +SKIP
        True
    """
    return _sooner.end_of_actor(_check_handle(actor, "ended")._ref)


def incarnation(actor: AnyHandle) -> int:
    """How often an actor has begun anew in another process, because the one before had ended.

    What an actor without checkpoints had in memory is gone when this number has changed.

    Args:
        actor: Its handle.

    Returns:
        0 for the first process of the actor, 1 for the one after, and so on. While an actor waits for its
        next process, the number that it has had. An answer that this process has does not take a message;
        otherwise the node is asked.

    Raises:
        TypeError: `actor` is no handle.
        ValueError: The handle belongs to a session that has ended, or nothing is known of the actor any more,
            because it has been dead for long.
    """
    handle = _check_handle(actor, "incarnation")
    known = _sooner.actor_restarts(handle._ref)
    if known is not None:
        return known
    from sooner import state  # start-up: 6.2 ms, and most programs ask for no state

    row = state.get_actor(handle._actor_id.hex())
    if row is None:
        raise ValueError(f"nothing is known of {handle!r} any more: it has been dead for long")
    return row.restarts


def _check_handle(actor: object, name: str) -> ActorHandle[Any]:
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"sooner.util.{name}() takes an actor handle, not {type(actor).__name__}")
    return actor


def put_owned(value: Any, owner: Any) -> _sooner.ObjectRef[Any]:
    """What `sooner.put(value, _owner=actor)` does: the actor puts the value, between two of its calls."""
    if not isinstance(owner, ActorHandle):
        raise TypeError(f"sooner.put(_owner=) takes an actor handle, not {type(owner).__name__}")
    if isinstance(value, _sooner.ObjectRef):
        raise TypeError("sooner.put() takes a value, not an ObjectRef: pass the reference on as it is")
    # In a list: a value that is passed by itself could be replaced by what it refers to.
    (ref,) = _sooner.get(owner.__ray_call__.remote(_put_here, [value]))
    made: _sooner.ObjectRef[Any] = ref
    return made


def _put_here(_actor: Any, box: list[Any]) -> list[_sooner.ObjectRef[Any]]:
    return [_sooner.put(box[0])]


def exit_actor() -> NoReturn:
    """Ends the actor this code runs in, as intended: it does not restart.

    Its clean-up hook and `atexit` functions run. The call that ends it, the calls that wait and later ones
    raise `ActorDiedError`.

    Raises:
        RuntimeError: This code does not run in an actor.
    """
    from sooner._engine import worker  # start-up: 33.0 ms
    from sooner.runtime_context import current_actor  # start-up: 2.2 ms

    if current_actor() is None:
        raise RuntimeError(
            "sooner.actor.exit_actor() ends the actor it is called in, but this code does not run in an actor"
        )
    raise worker.ActorExit("exit_actor() was called")
