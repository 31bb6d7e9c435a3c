"""What type checkers see of `.remote(...)`, `.options(...)` and `@sooner.method`; nothing of it exists at run time.

A ParamSpec keeps names, keywords and defaults, but cannot say that an argument may also be a reference to a value of
its type. So `.remote` is a list of overloads: the exact parameters first, and then, for one to ten leading positional
arguments, forms in which each of those may be a reference. The types of these arguments are taken out of the ParamSpec
by matching `self` with the protocols `Takes1` to `Takes10`; `TakesMany` are for lists unpacked into `*args`. The
decision record on types of remote calls (docs/adr) has the reasons and what was left out.
"""

from abc import ABCMeta
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, final, overload

from typing_extensions import Unpack

from sooner._sooner import ObjectRef, ObjectRefGenerator
from sooner.actor import ActorClass, ActorHandle, ActorMethod, ActorProxy, TypedActor
from sooner.options import ActorOptions, _MethodOptions, _TaskOptions
from sooner.remote_function import RemoteFunction

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Out = TypeVar("Out")
Out_co = TypeVar("Out_co", covariant=True)
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
T7 = TypeVar("T7")
T8 = TypeVar("T8")
T9 = TypeVar("T9")
T10 = TypeVar("T10")
T1_in = TypeVar("T1_in", contravariant=True)
T2_in = TypeVar("T2_in", contravariant=True)
T3_in = TypeVar("T3_in", contravariant=True)
T4_in = TypeVar("T4_in", contravariant=True)
T5_in = TypeVar("T5_in", contravariant=True)
T6_in = TypeVar("T6_in", contravariant=True)
T7_in = TypeVar("T7_in", contravariant=True)
T8_in = TypeVar("T8_in", contravariant=True)
T9_in = TypeVar("T9_in", contravariant=True)
T10_in = TypeVar("T10_in", contravariant=True)

_Arg: TypeAlias = T | ObjectRef[T]

# Literal numbers of returns of which a list of references comes.
Several: TypeAlias = Literal[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]

# Nothing is of this class, so that a function "returns" it only if it returns Any. Such functions give Any, where
# pyright would take the first overload, the one for generators.
@final
class Nothing: ...

class Takes0(Protocol[Q, R_co]):
    @property
    def _target(self) -> Callable[Q, R_co]: ...

class Takes1(Protocol[T1_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, Q], R_co]: ...

class Takes2(Protocol[T1_in, T2_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, Q], R_co]: ...

class Takes3(Protocol[T1_in, T2_in, T3_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, T3_in, Q], R_co]: ...

class Takes4(Protocol[T1_in, T2_in, T3_in, T4_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, Q], R_co]: ...

class Takes5(Protocol[T1_in, T2_in, T3_in, T4_in, T5_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, T5_in, Q], R_co]: ...

class Takes6(Protocol[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, Q], R_co]: ...

class Takes7(Protocol[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, Q], R_co]: ...

class Takes8(Protocol[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, T8_in, Q, R_co]):
    @property
    def _target(self) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, T8_in, Q], R_co]: ...

class Takes9(Protocol[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, T8_in, T9_in, Q, R_co]):
    @property
    def _target(
        self,
    ) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, T8_in, T9_in, Q], R_co]: ...

class Takes10(Protocol[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, T8_in, T9_in, T10_in, Q, R_co]):
    @property
    def _target(
        self,
    ) -> Callable[Concatenate[T1_in, T2_in, T3_in, T4_in, T5_in, T6_in, T7_in, T8_in, T9_in, T10_in, Q], R_co]: ...

# What takes any number of arguments, after none, one or two others: what can be called with a dozen of them.
class TakesMany0(Protocol[T1_in]):
    @property
    def _target(
        self,
    ) -> Callable[[T1_in, T1_in, T1_in, T1_in, T1_in, T1_in, T1_in, T1_in, T1_in, T1_in, T1_in, T1_in], object]: ...

class TakesMany1(Protocol[T1_in, T2_in]):
    @property
    def _target(
        self,
    ) -> Callable[
        [T1_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in, T2_in], object
    ]: ...

class TakesMany2(Protocol[T1_in, T2_in, T3_in]):
    @property
    def _target(
        self,
    ) -> Callable[
        [T1_in, T2_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in, T3_in], object
    ]: ...

class Submit(Generic[P, Out_co]):
    """`.remote` of what takes `P`: gives `Out_co`."""

    @property
    def _target(self) -> Callable[P, object]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Out_co: ...
    @overload
    def __call__(self: Takes1[T1, Q, object], a1: _Arg[T1], /, *args: Q.args, **kwargs: Q.kwargs) -> Out_co: ...
    @overload
    def __call__(
        self: Takes2[T1, T2, Q, object], a1: _Arg[T1], a2: _Arg[T2], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes3[T1, T2, T3, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes4[T1, T2, T3, T4, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes5[T1, T2, T3, T4, T5, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        a5: _Arg[T5],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes6[T1, T2, T3, T4, T5, T6, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        a5: _Arg[T5],
        a6: _Arg[T6],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes7[T1, T2, T3, T4, T5, T6, T7, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        a5: _Arg[T5],
        a6: _Arg[T6],
        a7: _Arg[T7],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes8[T1, T2, T3, T4, T5, T6, T7, T8, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        a5: _Arg[T5],
        a6: _Arg[T6],
        a7: _Arg[T7],
        a8: _Arg[T8],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes9[T1, T2, T3, T4, T5, T6, T7, T8, T9, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        a5: _Arg[T5],
        a6: _Arg[T6],
        a7: _Arg[T7],
        a8: _Arg[T8],
        a9: _Arg[T9],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(
        self: Takes10[T1, T2, T3, T4, T5, T6, T7, T8, T9, T10, Q, object],
        a1: _Arg[T1],
        a2: _Arg[T2],
        a3: _Arg[T3],
        a4: _Arg[T4],
        a5: _Arg[T5],
        a6: _Arg[T6],
        a7: _Arg[T7],
        a8: _Arg[T8],
        a9: _Arg[T9],
        a10: _Arg[T10],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Out_co: ...
    @overload
    def __call__(self: TakesMany0[T1], *args: _Arg[T1]) -> Out_co: ...
    @overload
    def __call__(self: TakesMany1[T1, T2], a1: _Arg[T1], /, *args: _Arg[T2]) -> Out_co: ...
    @overload
    def __call__(self: TakesMany2[T1, T2, T3], a1: _Arg[T1], a2: _Arg[T2], /, *args: _Arg[T3]) -> Out_co: ...

# --- functions ---------------------------------------------------------------------------------------

class RemoteOf:
    """`.remote` of a function; what comes of it depends on what the function returns."""

    @overload
    def __get__(self, instance: RemoteFunction[P, Nothing], owner: Any, /) -> Submit[P, Any]: ...
    @overload
    def __get__(self, instance: RemoteFunction[P, Iterator[T]], owner: Any, /) -> Submit[P, ObjectRefGenerator[T]]: ...
    @overload
    def __get__(self, instance: RemoteFunction[P, T], owner: Any, /) -> Submit[P, ObjectRef[T]]: ...

class RemoteFunctionAs(RemoteFunction[P, Any], Generic[P, Out_co]):
    """A remote function with a number of returns."""

    remote: Submit[P, Out_co]
    @overload  # type: ignore[override]
    def options(self, **options: Unpack[_TaskOptions]) -> RemoteFunctionAs[P, Out_co]: ...
    @overload
    def options(self, *, num_returns: Literal[0], **options: Unpack[_TaskOptions]) -> RemoteFunctionAs[P, None]: ...
    @overload
    def options(
        self, *, num_returns: Several, **options: Unpack[_TaskOptions]
    ) -> RemoteFunctionAs[P, list[ObjectRef[Any]]]: ...
    @overload
    def options(
        self, *, num_returns: int | Literal["streaming", "dynamic"] | None, **options: Unpack[_TaskOptions]
    ) -> RemoteFunctionAs[P, Any]: ...

class FunctionDecorator(Protocol):
    """`@sooner.remote(...)` with options that only functions have."""

    def __call__(self, target: Callable[P, T], /) -> RemoteFunction[P, T]: ...

class FunctionDecoratorAs(Protocol[Out_co]):
    """`@sooner.remote(num_returns=...)`."""

    def __call__(self, target: Callable[P, object], /) -> RemoteFunctionAs[P, Out_co]: ...

# --- classes -----------------------------------------------------------------------------------------

class ClassObject(Protocol):
    """A class itself. mypy does not take a variable of type `type[X]` for one, and has no parameters for it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def mro(self) -> list[type]: ...

Class = TypeVar("Class", bound=ClassObject)
TypedClass = TypeVar("TypedClass", bound=type[TypedActor])

class ActorClassOf(ActorClass[Any], Generic[Class]):
    """An actor class whose constructor is known. Its parameter is the type of the class object itself."""

    @property
    def _target(self) -> Class: ...
    @property
    def remote(self: Takes0[Q, T]) -> Submit[Q, ActorHandle[T]]: ...
    def options(self, **options: Unpack[ActorOptions]) -> ActorClassOf[Class]: ...

class TypedActorClassOf(ActorClass[Any], Generic[TypedClass]):
    """An actor class whose constructor and methods are known."""

    @property
    def _target(self) -> TypedClass: ...
    @property
    def remote(self: Takes0[Q, T]) -> Submit[Q, ActorProxy[T]]: ...  # type: ignore[override]
    def options(self, **options: Unpack[ActorOptions]) -> TypedActorClassOf[TypedClass]: ...

class TypedActorType(ABCMeta):
    """The class of `TypedActor`'s subclasses: mypy ignores that a decorator made another one of them an actor class."""

    @property
    def remote(cls: Callable[Q, T]) -> Submit[Q, ActorProxy[T]]: ...
    def options(cls: TypedClass, **options: Unpack[ActorOptions]) -> TypedActorClassOf[TypedClass]: ...  # type: ignore[misc]

class ClassDecorator(Protocol):
    """`@sooner.remote(...)` with options that only classes have."""

    @overload
    def __call__(self, target: TypedClass, /) -> TypedActorClassOf[TypedClass]: ...
    @overload
    def __call__(self, target: Class, /) -> ActorClassOf[Class]: ...
    @overload
    def __call__(self, target: type[T], /) -> ActorClass[T]: ...

class Decorator(Protocol):
    """`@sooner.remote(...)` with options that functions and classes have."""

    @overload
    def __call__(self, target: TypedClass, /) -> TypedActorClassOf[TypedClass]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Class, /) -> ActorClassOf[Class]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: type[T], /) -> ActorClass[T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[P, T], /) -> RemoteFunction[P, T]: ...

# --- methods -----------------------------------------------------------------------------------------

class RemoteMethod(ActorMethod, Generic[P, Out_co]):
    """A method of an actor, seen through its handle."""

    remote: Submit[P, Out_co]  # type: ignore[assignment]
    @overload  # type: ignore[override]
    def options(self, **options: Unpack[_MethodOptions]) -> RemoteMethod[P, Out_co]: ...
    @overload
    def options(self, *, num_returns: Literal[0], **options: Unpack[_MethodOptions]) -> RemoteMethod[P, None]: ...
    @overload
    def options(
        self, *, num_returns: Several, **options: Unpack[_MethodOptions]
    ) -> RemoteMethod[P, list[ObjectRef[Any]]]: ...
    @overload
    def options(
        self, *, num_returns: Literal["streaming"], **options: Unpack[_MethodOptions]
    ) -> RemoteMethod[P, Out_co]: ...
    @overload
    def options(
        self, *, num_returns: int | Literal["dynamic"] | None, **options: Unpack[_MethodOptions]
    ) -> RemoteMethod[P, Any]: ...

class Method(Generic[P, R_co]):
    """A method with `@sooner.method`: plain on the object itself, remote on a handle."""

    @overload
    def __get__(self: Method[P, Nothing], instance: None, owner: Any, /) -> RemoteMethod[P, Any]: ...
    @overload
    def __get__(
        self: Method[P, Coroutine[Any, Any, T]], instance: None, owner: Any, /
    ) -> RemoteMethod[P, ObjectRef[T]]: ...
    @overload
    def __get__(
        self: Method[P, AsyncIterator[T] | Iterator[T]], instance: None, owner: Any, /
    ) -> RemoteMethod[P, ObjectRefGenerator[T]]: ...
    @overload
    def __get__(self, instance: None, owner: Any, /) -> RemoteMethod[P, ObjectRef[R_co]]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Callable[P, R_co]: ...

class MethodAs(Generic[P, R_co, Out_co]):
    """A method with `@sooner.method(num_returns=...)`."""

    @overload
    def __get__(self, instance: None, owner: Any, /) -> RemoteMethod[P, Out_co]: ...
    @overload
    def __get__(self, instance: object, owner: Any, /) -> Callable[P, R_co]: ...

class MethodDecorator(Protocol):
    """`@sooner.method(...)`."""

    def __call__(self, function: Callable[Concatenate[Any, P], T], /) -> Method[P, T]: ...

class MethodDecoratorAs(Protocol[Out_co]):
    """`@sooner.method(num_returns=...)`."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> MethodAs[P, R, Out_co]: ...
