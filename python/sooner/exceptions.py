"""The errors that sooner raises.

Every class here derives from `SoonerError` and survives pickling. The names that programs written for Ray
import (`RayError`, `RayTaskError`, ...) are aliases of the same classes.

An exception of user code comes back as a `TaskError` that is also an instance of the class that was raised,
so both `except TaskError` and `except ValueError` work.

Invariants:
    1. Importing this module costs less than 3 ms: nothing heavy is imported at module level.
    2. An instance unpickles without its `__init__` being called, so signatures may differ between classes.

Example:
    >>> from sooner.exceptions import GetTimeoutError, SoonerError
    >>> issubclass(GetTimeoutError, SoonerError) and issubclass(GetTimeoutError, TimeoutError)
    True
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

__all__ = [
    "ActorAlreadyExistsError",
    "ActorDiedError",
    "ActorError",
    "ActorHandleNotFoundError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "AsyncioActorExit",
    "AuthenticationError",
    "CrossLanguageError",
    "GetTimeoutError",
    "LocalNodeDiedError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectNotAvailableError",
    "ObjectReconstructionFailedError",
    "ObjectReconstructionFailedLineageEvictedError",
    "ObjectRefStreamEndOfStreamError",
    "ObjectStoreFullError",
    "OufOfBandObjectRefSerializationException",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PeerUnreachableError",
    "PendingCallsLimitExceeded",
    "PlasmaObjectNotAvailable",
    "RayActorError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "ReferenceCountingAssertionError",
    "RpcError",
    "RuntimeEnvSetupError",
    "SoonerError",
    "SoonerSystemError",
    "StreamingGeneratorReplayInconsistentError",
    "TaskCancelledError",
    "TaskError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "UnserializableException",
    "UntrustedPathError",
    "UserCodeException",
    "WorkerCrashedError",
]


class SoonerError(Exception):
    """Base of all errors of sooner.

    Example:
        >>> SoonerError.from_bytes(WorkerCrashedError("worker 17 is gone").to_bytes())
        WorkerCrashedError('worker 17 is gone')
    """

    _default_message: ClassVar[str] = ""

    def __init__(self, *args: object) -> None:
        if not args and self._default_message:
            args = (self._default_message,)
        super().__init__(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        # Pickle forgets the cause of an exception. For an actor that died in its constructor it is the
        # message.
        if isinstance(self.__cause__, SoonerError):
            state["__cause__"] = self.__cause__
        return _restore, (type(self), self.args), state

    def to_bytes(self) -> bytes:
        """Return this error as bytes for `from_bytes`."""
        from sooner._values.pickling import dumps  # circle

        return dumps(self)

    @staticmethod
    def from_bytes(data: bytes) -> SoonerError:
        """Return the error that `to_bytes` wrote.

        Raises:
            ValueError: The bytes hold something else.
        """
        import pickle  # start-up: 2.5 ms

        try:
            error = pickle.loads(data)
        except Exception as failure:
            raise ValueError(f"these bytes hold no error of sooner: {failure}") from failure
        if not isinstance(error, SoonerError):
            raise ValueError(f"these bytes hold a {type(error).__name__}, not an error of sooner")
        return error

    @staticmethod
    def from_sooner_exception(error: BaseException | bytes) -> SoonerError:
        """Return what a caller should raise for `error`.

        Bytes are decoded; a `TaskError` also takes the class of its cause; an error of sooner is returned as
        it is; any other exception is wrapped in a `UserCodeException`.

        Example:
            >>> SoonerError.from_sooner_exception(KeyError("k"))
            UserCodeException("KeyError: 'k'")
        """
        if isinstance(error, bytes):
            error = SoonerError.from_bytes(error)
        if isinstance(error, TaskError):
            return error.as_instanceof_cause()
        if isinstance(error, SoonerError):
            return error
        wrapped = UserCodeException(f"{type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return wrapped

    from_ray_exception = from_sooner_exception


def _restore(cls: type[SoonerError], args: tuple[object, ...]) -> SoonerError:
    """Rebuild an unpickled error without calling its `__init__`."""
    error: SoonerError = cls.__new__(cls)
    error.args = args
    return error


class TaskError(SoonerError):
    """User code raised an exception in a task or an actor.

    What `sooner.get` raises is the result of `as_instanceof_cause`: an instance of this class and of the
    class of the cause. `str()` shows the traceback of the worker.

    Attributes:
        function_name: The task's function, or `Class.method`.
        traceback_str: The traceback, as formatted where the exception was raised.
        cause: The exception itself, or an `UnserializableException` that stands for it.
        proctitle: Title of the worker process.
        pid: Process id of the worker.
        ip: Address of the worker's node.
        actor_repr: `repr()` of the actor.
        actor_id: Id of the actor (hex).

    Example:
        >>> error = TaskError("f", "Traceback ...", ValueError("boom")).as_instanceof_cause()
        >>> isinstance(error, ValueError), isinstance(error, TaskError), type(error).__name__, error.args
        (True, True, 'TaskError(ValueError)', ('boom',))
    """

    _sooner_dual_of: ClassVar[type[BaseException] | None] = None

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException | None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> None:
        super().__init__(function_name, traceback_str)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle
        self.pid = pid
        self.ip = ip
        self.actor_repr = actor_repr
        self.actor_id = actor_id

    def __init_subclass__(cls, **kwargs: object) -> None:
        # The author of the cause's class never wrote the dual class: registries of subclasses must not see
        # it.
        if "_sooner_dual_of" not in cls.__dict__:
            super().__init_subclass__(**kwargs)

    def as_instanceof_cause(self) -> TaskError:
        """Return this error as an instance of the cause's class, too.

        Returns the plain error itself where that is impossible or would be harmful: a class that cannot be
        combined; one that steers the interpreter instead of reporting an error (`SystemExit`,
        `KeyboardInterrupt`, `StopIteration`, `asyncio.CancelledError`, ...), because raising it in the caller
        would end a loop or the program without a word.
        """
        from sooner._errors.dual import dual_instance  # circle

        return dual_instance(self) or self

    def make_dual_exception_instance(self) -> TaskError:
        """Like `as_instanceof_cause`, but refuse where there is no such instance.

        Raises:
            TypeError: The cause's class cannot be combined with this one.
        """
        from sooner._errors.dual import dual_instance  # circle

        dual = dual_instance(self)
        if dual is None:
            raise TypeError(f"{type(self.cause).__name__} cannot be combined with {type(self).__name__}")
        return dual

    def __str__(self) -> str:
        facts = {"pid": self.pid, "ip": self.ip, "actor_id": self.actor_id, "repr": self.actor_repr}
        told = ", ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        header = f"{self.proctitle or f'sooner::{self.function_name}()'}{f' ({told})' if told else ''}"
        return f"{header}\n{self.traceback_str}".rstrip()

    def __repr__(self) -> str:
        inside = "None" if self.cause is None else _safe_repr(self.cause)
        return f"TaskError({self.function_name!r}, cause={inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        from sooner._errors.packing import reduce_task_error  # circle

        return reduce_task_error(self)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # The cause's class may define `__reduce_ex__`, which knows nothing of the fields of a `TaskError`.
        return TaskError.__reduce__(self)


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as failure:
        return f"<{type(value).__name__} whose repr raises {type(failure).__name__}>"


class ActorError(SoonerError):
    """A call failed because of its actor. Base class.

    Attributes:
        actor_id: Id of the actor (hex), where known.
        error_msg: What happened.
        actor_init_failed: The constructor raised, so the actor never came up.
        preempted: The actor's node was taken away.

    Example:
        >>> ActorError(error_msg="it left").error_msg
        'it left'
    """

    _default_message = "The actor failed before it finished this call."

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str | None = None,
        actor_init_failed: bool = False,
        preempted: bool = False,
    ) -> None:
        self.actor_id = actor_id
        self.error_msg = error_msg or self._default_message
        self.actor_init_failed = actor_init_failed
        self.preempted = preempted
        super().__init__(self.error_msg)


class ActorDiedError(ActorError):
    """The actor is gone for good.

    Attributes:
        cause: What the constructor raised, when `actor_init_failed`.

    Example:
        >>> str(ActorDiedError("killed by sooner.kill"))
        'killed by sooner.kill'
    """

    _default_message = "The actor died before it finished this call."

    def __init__(
        self,
        cause: TaskError | str | None = None,
        *,
        actor_id: str | None = None,
        error_msg: str | None = None,
        actor_init_failed: bool | None = None,
        preempted: bool = False,
    ) -> None:
        origin = cause if isinstance(cause, TaskError) else None
        if error_msg is None and origin is not None:
            error_msg = f"The actor died because its constructor raised:\n{origin}"
        elif error_msg is None and isinstance(cause, str):
            error_msg = cause
        init_failed = origin is not None if actor_init_failed is None else actor_init_failed
        super().__init__(actor_id or (origin.actor_id if origin else None), error_msg, init_failed, preempted)
        self.cause = origin
        if origin is not None:
            self.__cause__ = origin


class ActorUnavailableError(ActorError):
    """The actor cannot be reached at the moment. The call may have been executed; a later one may succeed.

    Example:
        >>> str(ActorUnavailableError("it restarts", actor_id="0a1b"))
        'it restarts'
    """

    _default_message = "The actor cannot be reached at the moment. The call may have been executed."

    def __init__(self, error_message: str | None = None, actor_id: str | None = None) -> None:
        super().__init__(actor_id, error_message)


class WorkerCrashedError(SoonerError):
    """The worker process ended in the middle of the task."""

    _default_message = "The worker process ended in the middle of the task."


class NodeDiedError(SoonerError):
    """The node of the task or object is gone."""

    _default_message = "The node is gone."


class LocalNodeDiedError(SoonerError):
    """The node that this process belongs to is gone, or has let go of it: its session has ended.

    Raised by a call that waits at that moment, and by every later one until `sooner.init()` begins a new
    session: a program never goes on in another session without knowing it.
    """

    _default_message = "The node of this process is gone."


class TaskCancelledError(SoonerError):
    """The task was cancelled with `sooner.cancel`.

    Attributes:
        task_id: Id of the task (hex), where known.

    Example:
        >>> str(TaskCancelledError("0a1b"))
        'Task 0a1b was cancelled.'
    """

    def __init__(self, task_id: str | None = None, error_message: str | None = None) -> None:
        self.task_id = task_id
        named = f"Task {task_id} was cancelled." if task_id else "This task was cancelled."
        super().__init__(error_message or named)


class GetTimeoutError(SoonerError, TimeoutError):
    """`sooner.get(..., timeout=...)` ended before the value was there."""

    _default_message = "The value was not there within the timeout."


class ObjectLostError(SoonerError):
    """The value of an object is lost.

    Attributes:
        object_ref_hex: Id of the object (hex), where known.
        owner_address: Where its owner lives, or lived.
        call_site: Where the reference was made, when call sites are recorded.

    Example:
        >>> str(ObjectLostError("0a1b"))
        'Object 0a1b: all copies of the value are lost.'
    """

    _default_message = "all copies of the value are lost."

    def __init__(
        self,
        object_ref_hex: str | None = None,
        owner_address: str | None = None,
        call_site: str = "",
        *,
        message: str | None = None,
    ) -> None:
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site
        if message is None:
            message = f"Object {object_ref_hex or '(unknown)'}: {self._default_message}"
            if call_site:
                message += f" It was made at: {call_site}"
        super().__init__(message)


class OwnerDiedError(ObjectLostError):
    """The process that owns the object is gone, and the object with it."""

    _default_message = "its owner is gone, and the object with it."


class PeerUnreachableError(ObjectLostError):
    """The object is there, but no connection can be made to the process that has it.

    Two programs that joined a cluster from machines without a node cannot be dialled, so neither reads
    what the other owns.
    """

    _default_message = "no connection can be made to the process that has it."


class ObjectReconstructionFailedError(ObjectLostError):
    """The value is lost and cannot be computed again.

    Attributes:
        reason: Why not.

    Example:
        >>> str(ObjectReconstructionFailedError("0a1b", reason="It was made by put."))
        'Object 0a1b: the value is lost and cannot be computed again. It was made by put.'
    """

    _default_message = "the value is lost and cannot be computed again."

    def __init__(
        self,
        object_ref_hex: str | None = None,
        reason: str = "",
        owner_address: str | None = None,
        call_site: str = "",
        *,
        message: str | None = None,
    ) -> None:
        self.reason = reason
        if message is None and reason:
            message = f"Object {object_ref_hex or '(unknown)'}: {self._default_message} {reason}"
        super().__init__(object_ref_hex, owner_address, call_site, message=message)


class ObjectReconstructionFailedLineageEvictedError(ObjectReconstructionFailedError):
    """The value is lost, and the description of the task that made it was given up to save memory."""

    _default_message = "the value is lost, and the description of the task that made it was given up to save memory."


class ObjectFetchTimedOutError(ObjectLostError):
    """The value could not be fetched from any node that should have it."""

    _default_message = "no node that should have the value has sent it in time."


class ObjectFreedError(ObjectLostError):
    """The value was freed by hand, but the reference is still used."""

    _default_message = "the value was freed by hand. Free an object only when no reference to it is used any more."


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The value was deleted while references existed. A defect of sooner."""

    _default_message = "the value was deleted while references to it existed. This is a defect of sooner."


class ObjectNotAvailableError(SoonerError):
    """The value is not in the local store."""

    _default_message = "The value is not in the local store."


class ObjectStoreFullError(SoonerError):
    """The object store has no room for the value."""

    _default_message = "The object store has no room for the value."


class OutOfDiskError(ObjectStoreFullError):
    """The object store has no room for the value, and nothing that is in it can be written to disk: the text
        says why.

    It is an `ObjectStoreFullError`, so programs that catch that catch this one, too.
    """

    _default_message = "The object store has no room for the value, and the disk takes nothing more."


class OutOfMemoryError(SoonerError):
    """The node ran out of memory, and the task was stopped to save it. The text has a table of who held
    how much.
    """

    _default_message = "The node ran out of memory, and the task was stopped."


class TaskUnschedulableError(SoonerError):
    """No node can ever run the task, or none could start a worker for it for long: the text says what was
    used up.
    """

    _default_message = "No node can ever run this task."

    def __init__(self, error_message: str | None = None) -> None:
        self.error_message = error_message or self._default_message
        super().__init__(self.error_message)


class ActorUnschedulableError(SoonerError):
    """No node can ever hold the actor."""

    _default_message = "No node can ever hold this actor."

    def __init__(self, error_message: str | None = None) -> None:
        self.error_message = error_message or self._default_message
        super().__init__(self.error_message)


class TaskPlacementGroupRemoved(SoonerError):
    """The placement group of the task was removed."""

    _default_message = "The placement group of this task was removed."


class ActorPlacementGroupRemoved(SoonerError):
    """The placement group of the actor was removed."""

    _default_message = "The placement group of this actor was removed."


class PendingCallsLimitExceeded(SoonerError):
    """More calls wait for the actor than `max_pending_calls` allows. This call was not executed.

    Also: a submission on the thread of an event loop, beyond `max_pending_tasks` of `sooner.init`. It was
        not executed.
    """

    _default_message = "More calls wait for this actor than max_pending_calls allows. This call was not executed."


class AsyncioActorExit(SoonerError):
    """Ends an asyncio actor from inside one of its methods."""


class RuntimeEnvSetupError(SoonerError):
    """The runtime environment of the task or actor could not be set up.

    Example:
        >>> str(RuntimeEnvSetupError("no such directory: src"))
        'The runtime environment could not be set up: no such directory: src'
    """

    def __init__(self, error_message: str | None = None) -> None:
        self.error_message = error_message
        why = f": {error_message}" if error_message else "."
        super().__init__(f"The runtime environment could not be set up{why}")


class ActorAlreadyExistsError(SoonerError, ValueError):
    """An actor of this name exists already in the namespace."""

    _default_message = "An actor of this name exists already."


class ActorHandleNotFoundError(SoonerError, ValueError):
    """The handle belongs to no actor of this session."""

    _default_message = "This handle belongs to no actor of this session."


class ObjectRefStreamEndOfStreamError(SoonerError):
    """The generator has no further item."""


class StreamingGeneratorReplayInconsistentError(SoonerError):
    """A generator that was run again gave a different number of items."""


class SoonerSystemError(SoonerError):
    """sooner itself failed.

    Attributes:
        client_exc: What went wrong: an exception or a text.
        traceback_str: Where, if known.

    Example:
        >>> str(SoonerSystemError("the node sent a frame of unknown kind 99"))
        'sooner failed: the node sent a frame of unknown kind 99'
    """

    def __init__(self, client_exc: BaseException | str, traceback_str: str | None = None) -> None:
        self.client_exc = client_exc
        self.traceback_str = traceback_str
        where = f"\ntraceback: {traceback_str}" if traceback_str else ""
        super().__init__(f"sooner failed: {client_exc}{where}")


class RpcError(SoonerError):
    """A message to another process of sooner was not answered as it should be.

    Attributes:
        rpc_code: Number of the failure, where there is one.

    Example:
        >>> RpcError("node 2 does not answer", rpc_code=14).rpc_code
        14
    """

    def __init__(self, message: str, rpc_code: int | None = None) -> None:
        self.message = message
        self.rpc_code = rpc_code
        super().__init__(message)


class UnserializableException(SoonerError):
    """Stands for an exception that could not be sent from the worker to here.

    Attributes:
        class_name: Module and name of the original's class.
        original_repr: `repr()` of the original.
        original_message: `str()` of the original.
        reason: Why it could not be sent.

    Example:
        >>> error = UnserializableException(
        ...     class_name="job.Broken", original_message="boom", reason="it holds a lock"
        ... )
        >>> print(error)
        job.Broken: boom
        (this stands for the original exception, which could not be sent here: it holds a lock)
    """

    def __init__(
        self,
        original_stack_trace: str = "",
        *,
        class_name: str = "",
        original_repr: str = "",
        original_message: str = "",
        reason: str = "",
    ) -> None:
        self.class_name = class_name
        self.original_repr = original_repr
        self.original_message = original_message
        self.reason = reason
        parts = [original_stack_trace] if original_stack_trace else []
        if class_name:
            parts.append(f"{class_name}: {original_message}" if original_message else class_name)
        why = f": {reason}" if reason else "."
        parts.append(f"(this stands for the original exception, which could not be sent here{why})")
        super().__init__("\n".join(parts))


class OufOfBandObjectRefSerializationException(SoonerError):
    """An object reference was pickled outside of sooner while that is forbidden. The name is spelled as in
    Ray.
    """


class UserCodeException(SoonerError):
    """User code that runs inside sooner itself raised."""


class CrossLanguageError(SoonerError):
    """A task in another language failed."""


class AuthenticationError(SoonerError):
    """The other side did not prove who it is."""


class UntrustedPathError(SoonerError, PermissionError):
    """A directory or socket of sooner's belongs to another user of this machine, or is open to others: not
    used.
    """


RayError = SoonerError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = SoonerSystemError
LocalRayletDiedError = LocalNodeDiedError
PlasmaObjectNotAvailable = ObjectNotAvailableError

# Names of Ray that sooner does not have, and what they belong to.
_LATER = {
    "RayCgraphCapacityExceeded": "compiled graphs",
    "RayChannelError": "compiled graphs",
    "RayChannelTimeoutError": "compiled graphs",
    "RayDirectTransportError": "tensor transport",
}

if not TYPE_CHECKING:
    # Type checkers report other names by themselves.
    def __getattr__(name: str) -> type[SoonerError]:
        if name in _LATER:
            raise AttributeError(f"sooner.exceptions.{name}: this version of sooner does not have {_LATER[name]}")
        raise AttributeError(f"module 'sooner.exceptions' has no attribute {name!r}")
