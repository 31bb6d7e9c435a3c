"""A group as one of its members sees it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, ObjectLostError
from sooner.util import clock, state
from sooner.util.checks import is_number
from sooner.util.collective.coordinator import CALLS_MAX, Coordinator
from sooner.util.collective.errors import CollectiveError, Failure
from sooner.util.collective.generation import SENDS_MAX
from sooner.util.collective.types import Call, Patience

# How long an answer of the coordinator may take beyond the timeout that it knows itself (seconds).
_SLACK_SECONDS = 10.0
# The pause before a member looks for the coordinator again that ended while it was asked (seconds).
_AGAIN_SECONDS = 0.01
# The pause between looks at what others have not read yet: the first, and the longest (seconds).
_LOOK_SECONDS = 0.005
_LOOK_SECONDS_MAX = 0.2
# Longer waits (seconds) overflow the clocks of event loops.
_PATIENCE_SECONDS_MAX = 1e8

_Refs = list["sooner.ObjectRef[Any] | None"]


class Group:
    """A member's place in a group. Made by `join`.

    A group of one has no coordinator: nothing is sent.

    Attributes:
        name: Of the group.
        world_size: Its number of members.
        rank: The place of this member.
        worker: The process it is in.
        task: The task it is in; None for an actor and a driver.
    """

    def __init__(self, name: str, world_size: int, rank: int, default_timeout: float, ticket: bytes) -> None:
        self.name = name
        self.world_size = world_size
        self.rank = rank
        self.worker, self.task, self._who = _here()
        self._default_timeout = default_timeout
        self._ticket = ticket
        self._coordinator: Any = None
        # What fails when this process ends; the coordinator watches it.
        self._token: sooner.ObjectRef[Any] | None = None
        self._failure: Failure | None = None
        self._lock = threading.Lock()
        # The next number: of operations, of messages to each rank, and of messages from each rank.
        self._numbers: dict[tuple[str, int], int] = {}
        # Ids of values that others may not have read: of the last operation, and messages to each rank.
        self._given: dict[tuple[str, int], deque[str]] = {}

    def is_of_session(self) -> bool:
        """Whether the session that it belongs to still runs."""
        return sooner.is_initialized() and _here()[0] == self.worker

    def is_here(self) -> bool:
        """Whether the running code is what has joined, rather than a later task of the same process."""
        if not self.is_of_session():
            return False
        task = _here()[1]
        # Threads that a task has started know no task.
        return self.task is None or task is None or task == self.task

    def join(self, former: Group | None, timeout: float) -> None:
        """Take the place, and wait until all others have taken theirs.

        Args:
            former: What this process was in a group of this name before.
            timeout: Seconds to wait.

        Raises:
            CollectiveError: The place is taken, the group has another size, or a member has died meanwhile.
            CollectiveTimeoutError: Some members did not come.
        """
        is_alone = self.world_size == 1 or (former is not None and former.world_size == 1)
        if former is not None and is_alone:
            # No coordinator knows both.
            if former._failure is None:
                raise CollectiveError(f"group {self.name!r} exists already: destroy it first", former.rank)
            former.leave()
            former = None
        if self.world_size == 1:
            return
        deadline = clock.monotonic() + timeout
        while True:
            left = max(0.0, deadline - clock.monotonic())
            try:
                failure = self._ask_to_join(former, Patience(left, timeout))
                break
            except (ActorDiedError, ActorUnavailableError) as error:
                # It had no member, and ended just then.
                if clock.monotonic() > deadline:
                    raise CollectiveError(f"group {self.name!r} has no coordinator: {error}") from error
            except GetTimeoutError:
                failure = self._silence(timeout)
                break
            time.sleep(_AGAIN_SECONDS)
        if failure is not None:
            self._token = None
            raise failure.error()

    def _ask_to_join(self, former: Group | None, patience: Patience) -> Failure | None:
        options: dict[str, Any] = {
            "name": coordinator_name(self.name),
            "get_if_exists": True,
            "lifetime": "detached",
            "num_cpus": 0,
            "max_concurrency": CALLS_MAX,
        }
        coordinator = sooner.remote(Coordinator).options(**options).remote(self.name)
        apart = coordinator.is_apart_from.remote(self.worker)
        if not sooner.get(apart, timeout=patience.left + _SLACK_SECONDS):
            sooner.kill(coordinator)
            raise CollectiveError("with init(local_mode=True) a group has one member: world_size must be 1", self.rank)
        self._coordinator = coordinator
        self._token = coordinator.stay.remote(self._ticket)
        place = self.world_size, self.rank, self._who
        before = former._ticket if former is not None else None
        try:
            answer: Failure | None = sooner.get(
                coordinator.join.remote(self._ticket, before, *place, [self._token], patience),
                timeout=patience.left + _SLACK_SECONDS,
            )
        except BaseException:
            # For instance, Ctrl-C.
            coordinator.leave.remote(self._ticket)
            raise
        return answer

    def finish(self, timeout: float) -> None:
        """Wait until the others have read what this member gave them; at most `timeout` seconds."""
        deadline = clock.monotonic() + timeout
        pause = _LOOK_SECONDS
        for value in [value for values in list(self._given.values()) for value in values]:
            while self._failure is None and (left := deadline - clock.monotonic()) > 0 and _is_known(value, left):
                time.sleep(pause)
                pause = min(2 * pause, _LOOK_SECONDS_MAX)

    def leave(self) -> None:
        """Leave the group, which breaks it for the others. Its name is free when this returns."""
        self._failure = self._failure or Failure("broken", f"this member has left group {self.name!r}")
        self._token = None
        if self._coordinator is not None:
            with contextlib.suppress(ActorDiedError, ActorUnavailableError, GetTimeoutError):
                sooner.get(self._coordinator.leave.remote(self._ticket), timeout=_SLACK_SECONDS)

    @contextlib.contextmanager
    def operation(self, call: Call, timeout: float | None) -> Iterator[Operation]:
        """Take part in an operation. If this block raises, the operation fails for all members."""
        with self._part(call, timeout, ("all", 0)) as part:
            yield part

    def send(self, call: Call, to: int, value: Any, timeout: float | None) -> None:
        """Hand a message over to another member."""
        with self._part(call, timeout, ("to", to)) as part:
            given = self._given.setdefault(("to", to), deque(maxlen=SENDS_MAX + 1))
            part.ask(
                lambda left: self._coordinator.send.remote(
                    self._ticket, to, part.number, call, [_put(value, given)], left
                )
            )

    def recv(self, call: Call, source: int, timeout: float | None) -> Any:
        """Wait for a message of another member."""
        with self._part(call, timeout, ("from", source)) as part:
            place = self._ticket, source, part.number, call
            refs = part.ask(lambda left: self._coordinator.recv.remote(*place, left))
            return part.fetch({source: refs[0]})[source]

    @contextlib.contextmanager
    def _part(self, call: Call, timeout: float | None, counter: tuple[str, int]) -> Iterator[Operation]:
        seconds = self._default_timeout if timeout is None else checked_timeout("timeout", timeout)
        with self._lock:
            self.check()
            number = self._numbers.get(counter, 0)
            self._numbers[counter] = number + 1
        try:
            yield Operation(self, call, number, seconds)
        except CollectiveError:
            raise
        except BaseException as error:
            text = f"{call} of group {self.name!r}: rank {self.rank} ended it with {type(error).__name__}: {error}"
            self.fail(Failure("broken", text, self.rank))
            raise

    def check(self) -> None:
        """Raise what has broken the group."""
        if self._failure is not None:
            raise self._failure.error()

    def fail(self, failure: Failure) -> None:
        """Break the group."""
        self._failure = self._failure or failure
        if self._coordinator is not None:
            # The session may have ended.
            with contextlib.suppress(Exception):
                self._coordinator.fail.remote(self._ticket, failure)

    def meet(self, number: int, step: int, call: Call, given: _Refs, left: Patience) -> sooner.ObjectRef[Any]:
        """The call by which this member comes to a step of an operation."""
        answer: sooner.ObjectRef[Any] = self._coordinator.meet.remote(self._ticket, number, step, call, given, left)
        return answer

    def record_given(self, ids: deque[str]) -> None:
        """What this member has given in the latest step of an operation."""
        self._given["all", 0] = ids

    def _silence(self, timeout: float) -> Failure:
        return Failure("timeout", f"the coordinator of group {self.name!r} did not answer within {timeout:g} s")

    def answer_of(self, ref: sooner.ObjectRef[Any], patience: Patience) -> Any:
        """What the coordinator answers.

        Raises:
            CollectiveError: The group is broken.
        """
        try:
            answer = sooner.get(ref, timeout=patience.left + _SLACK_SECONDS)
        except (ActorDiedError, ActorUnavailableError) as error:
            failure = Failure("broken", f"the coordinator of group {self.name!r} is gone: {error}")
        except GetTimeoutError:
            failure = self._silence(patience.whole)
            # It may only be slow: then the others learn of it.
            self.fail(failure)
        else:
            if not isinstance(answer, Failure):
                return answer
            failure = answer
        self._failure = self._failure or failure
        raise failure.error()


class Operation:
    """What one member does in one operation.

    Args:
        group: The member.
        call: What it has called.
        number: Which one it is.
        timeout: Seconds for all of it.
    """

    def __init__(self, group: Group, call: Call, number: int, timeout: float) -> None:
        self.number = number
        self._group = group
        self._call = call
        self._timeout = timeout
        self._deadline = clock.monotonic() + timeout
        self._steps = 0

    def exchange(self, given: list[Any]) -> dict[int, Any]:
        """Give values to others and get those that they give to this member.

        Args:
            given: One value for all; or one for each rank, where None is none; or nothing.

        Returns:
            Values by rank, without that of this member.
        """
        if self._group.world_size == 1:
            return {}
        step = self._steps
        self._steps += 1
        given_ids: deque[str] = deque()
        answer = self.ask(
            lambda left: self._group.meet(self.number, step, self._call, _put_each(given, given_ids), left)
        )
        # All have come to this step: what was given in those before has been read.
        self._group.record_given(given_ids)
        return self.fetch({rank: ref for rank, ref in enumerate(answer) if ref is not None})

    def ask(self, call: Callable[[Patience], sooner.ObjectRef[Any]]) -> Any:
        """Make a call that may wait in the coordinator until the time is over."""
        left = Patience(max(0.0, self._deadline - clock.monotonic()), self._timeout)
        return self._group.answer_of(call(left), left)

    def fetch(self, refs: dict[int, Any]) -> dict[int, Any]:
        """Read values of other members."""
        left = max(0.0, self._deadline - clock.monotonic())
        try:
            return dict(zip(refs, sooner.get(list(refs.values()), timeout=left), strict=True))
        except GetTimeoutError as error:
            failure = self._failure("timeout", f"values did not arrive within {self._timeout:g} s", None)
            self._group.fail(failure)
            raise failure.error() from error
        except ObjectLostError as error:
            rank = self._lost(refs)
            failure = self._failure("died", f"rank {rank} has died before its value was read: {error}", rank)
            self._group.fail(failure)
            raise failure.error() from error

    def _failure(self, kind: str, text: str, rank: int | None) -> Failure:
        return Failure(kind, f"{self._call} of group {self._group.name!r}: {text}", rank)

    def _lost(self, refs: dict[int, Any]) -> int | None:
        for rank, ref in refs.items():
            try:
                sooner.get(ref, timeout=0)
            except ObjectLostError:
                return rank
            except GetTimeoutError:
                continue
        return None


def checked_timeout(name: str, value: float) -> float:
    """A number of seconds.

    Raises:
        ValueError: It is none.
    """
    if not is_number(value) or value < 0:
        raise ValueError(f"{name} must be a number of seconds, 0 or more, not {value!r}")
    return min(float(value), _PATIENCE_SECONDS_MAX)


def coordinator_name(group_name: str) -> str:
    """The name of the actor in which the members of a group meet."""
    return f"collective:{group_name}"


def _put_each(values: list[Any], ids: deque[str]) -> _Refs:
    # In no variable: the call that brings these references to the coordinator keeps them for as long as it
    # runs, and those that want the values have their own then.
    return [None if value is None else _put(value, ids) for value in values]


def _put(value: Any, ids: deque[str]) -> sooner.ObjectRef[Any]:
    ref: sooner.ObjectRef[Any] = sooner.put(value)
    ids.append(ref.hex())
    return ref


def _is_known(value: str, timeout: float) -> bool:
    """Whether this process, its owner, still has a value: it goes with its last reader."""
    only = [("object_id", "=", value)]
    try:
        # What other processes know is no matter.
        return bool(state.list_objects(filters=only, timeout=min(timeout, 1.0), raise_on_missing_output=False))
    except OSError:
        # The session ends.
        return False


def _here() -> tuple[str, str | None, str]:
    """The process that this code runs in, its task unless it is in an actor, and a name of both."""
    context = sooner.get_runtime_context()
    worker = context.get_worker_id()
    pid = os.getpid()
    if context.get_actor_id() is not None:
        return worker, None, f"an actor, pid {pid}"
    task = context.get_task_id()
    return worker, task, f"a task, pid {pid}" if task is not None else f"a driver, pid {pid}"
