"""The groups of this process: how one joins, leaves, and finds them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError
from sooner.util import clock
from sooner.util.checks import check_at_least, is_whole
from sooner.util.collective.coordinator import WORLD_SIZE_MAX
from sooner.util.collective.errors import CollectiveError, CollectiveTimeoutError
from sooner.util.collective.group import Group, checked_timeout, coordinator_name
from sooner.util.collective.types import Backend

JOIN_SECONDS = 30.0
# As the default of torch.distributed on GPUs. The death of a member ends an operation long before.
OPERATION_SECONDS = 600.0

# How long a member that leaves waits for the others to read what it gave them.
LEAVE_SECONDS = 10.0

# How long a group that could not be made waits for those that had joined to leave.
_DISMISS_SECONDS = 5.0
_DISMISS_PAUSE_SECONDS = 0.05

# The longest name of a group (characters): its actor has a longer one.
_NAME_MAX = 1000
# How much later than the members the program that has them join gives up (seconds).
_ANSWER_SECONDS = 10.0

_groups: dict[str, Group] = {}
_lock = threading.Lock()
# Names of groups that a thread of this process is joining.
_joining: set[str] = set()


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = Backend.SOONER,
    group_name: str = "default",
    gloo_timeout: float | None = None,
    *,
    timeout: float = JOIN_SECONDS,
    operation_timeout: float = OPERATION_SECONDS,
) -> None:
    """Join a group, and wait until all members have joined.

    A group that is broken, because a member died or left, gives its name to a new one of the same name.

    Args:
        world_size: How many members the group has.
        rank: The place of this one, from 0 on.
        backend: "sooner", or one of Ray's names ("nccl", "gloo", "torch_gloo", "mpi", "hccl"), which mean the
            same here.
        group_name: The group is found by this name in the session's namespace: 1 to 1,000 characters.
        gloo_timeout: `timeout` as Ray has it, in milliseconds.
        timeout: Seconds for the others to come.
        operation_timeout: Seconds for each operation that is not given its own.

    Raises:
        ValueError: An argument has a wrong value.
        CollectiveError: The group exists, its place is taken, or it has another size; or this is local mode,
            in which a group has one member.
        CollectiveTimeoutError: Some members did not join; the message names their ranks.
        CollectiveMemberDiedError: A member died meanwhile.
    """
    _join(world_size, rank, backend, group_name, _patience(timeout, gloo_timeout), operation_timeout, _ticket())


def _join(
    world_size: int, rank: int, backend: str, group_name: str, timeout: float, operation_timeout: float, ticket: bytes
) -> None:
    check_at_least("world_size", world_size, 1)
    if world_size > WORLD_SIZE_MAX:
        raise ValueError(f"world_size is {WORLD_SIZE_MAX} at most, not {world_size}")
    check_rank("rank", rank, world_size)
    _check_backend(backend)
    _check_name(group_name)
    patience = checked_timeout("operation_timeout", operation_timeout)
    group = Group(group_name, world_size.__index__(), rank.__index__(), patience, ticket)
    former = _found(group_name)
    with _lock:
        if group_name in _joining:
            raise CollectiveError(f"another thread of this process is joining group {group_name!r}", rank)
        _joining.add(group_name)
    try:
        group.join(former, timeout)
        with _lock:
            _groups[group_name] = group
    finally:
        with _lock:
            _joining.discard(group_name)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = Backend.SOONER,
    group_name: str = "default",
    gloo_timeout: float | None = None,
    *,
    timeout: float = JOIN_SECONDS,
    operation_timeout: float = OPERATION_SECONDS,
) -> None:
    """Have actors join a group, and wait until all have joined. Their classes need no method for it.

    It waits until the actors are free, where Ray's function returns at once and members join with their first
    operation. If one does not join, all leave again.

    Args:
        actors: Their handles.
        world_size: How many members the group has: all of these.
        ranks: The place of each actor.
        backend: See `init_collective_group`.
        group_name: See `init_collective_group`.
        gloo_timeout: `timeout` as Ray has it, in milliseconds.
        timeout: Seconds for the actors to come.
        operation_timeout: See `init_collective_group`.

    Raises:
        TypeError: An actor is no handle, or `actors` or `ranks` is no sequence.
        ValueError: An actor is there twice, or the ranks are not 0 to `world_size` - 1.
        CollectiveError: See `init_collective_group`.
        CollectiveTimeoutError: An actor did not join in time, for instance because another call runs in it.
        ActorDiedError: An actor is dead.
    """
    handles, places = _listed("actors", "actor handles", actors), _listed("ranks", "whole numbers", ranks)
    check_at_least("world_size", world_size, 1)
    for actor in handles:
        if not isinstance(actor, sooner.ActorHandle):
            raise TypeError(f"actors must be actor handles, not {type(actor).__name__}")
    if len(set(handles)) != len(handles):
        raise ValueError("actors: an actor has one place in a group, and one of these is there twice")
    if not all(map(is_whole, places)) or sorted(places) != list(range(world_size)) or len(handles) != world_size:
        raise ValueError(
            f"a group of {world_size} has {world_size} actors with the ranks 0 to {world_size - 1}, "
            f"not {len(handles)} actors with the ranks {places}"
        )
    _check_backend(backend)
    _check_name(group_name)
    patience = _patience(timeout, gloo_timeout)
    times = patience, checked_timeout("operation_timeout", operation_timeout)
    tickets = [_ticket() for _ in handles]
    calls = {
        actor.__ray_call__.remote(_join_as, world_size, rank, backend, group_name, *times, ticket): rank
        for actor, rank, ticket in zip(handles, places, tickets, strict=True)
    }
    try:
        _await_joined(group_name, calls, patience)
    except BaseException:
        for call in calls:
            sooner.cancel(call)
        _dismiss(group_name, tickets, list(calls))
        raise


def _await_joined(group_name: str, calls: dict[sooner.ObjectRef[None], int], timeout: float) -> None:
    deadline = clock.monotonic() + timeout + _ANSWER_SECONDS
    left = dict(calls)
    while left:
        # The first error, and not that of the first actor.
        ready, _ = sooner.wait(list(left), timeout=max(0.0, deadline - clock.monotonic()))
        if not ready:
            late = sorted(left.values())
            text = f"group {group_name!r}: actors did not begin to join within {timeout:g} s; their ranks: {late}"
            raise CollectiveTimeoutError(text, late[0])
        sooner.get(ready)
        del left[ready[0]]


def _dismiss(group_name: str, tickets: Iterable[bytes], calls: list[sooner.ObjectRef[None]]) -> None:
    """Have those leave that wait in a join: nobody can stop a call, and whoever makes the group again finds
    them free.
    """
    deadline = clock.monotonic() + _DISMISS_SECONDS
    while calls and clock.monotonic() < deadline:
        # There is no coordinator before the first of them asks for it.
        with contextlib.suppress(ValueError, ActorDiedError, ActorUnavailableError, GetTimeoutError):
            coordinator = sooner.get_actor(coordinator_name(group_name))
            left = [coordinator.leave.remote(ticket) for ticket in tickets]
            sooner.get(left, timeout=max(0.0, deadline - clock.monotonic()))
        _, calls = sooner.wait(calls, num_returns=len(calls), timeout=_DISMISS_PAUSE_SECONDS)


def _join_as(_actor: Any, *place: Any) -> None:
    _join(*place)


def destroy_collective_group(group_name: str = "default", *, timeout: float = LEAVE_SECONDS) -> None:
    """Leave a group. Its name is free, and operations of the other members fail; nothing happens if there is
    none.

    First it waits until the others have received what this member sent, and read what it gave in the last
    operation: both end with this process. A member that ends by itself calls this function before.

    Args:
        group_name: The group.
        timeout: Seconds to wait for the others. What they have not read then is lost.

    Raises:
        ValueError: `timeout` is no number of seconds.
    """
    patience = checked_timeout("timeout", timeout)
    group = _found(group_name)
    if group is not None:
        with _lock:
            if _groups.get(group_name) is group:
                del _groups[group_name]
        try:
            group.finish(patience)
        finally:
            group.leave()


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this process has joined a group, which may be broken, and has not destroyed it."""
    return _found(group_name) is not None


def get_rank(group_name: str = "default") -> int:
    """The place of this member; -1 if it has not joined."""
    group = _found(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """The number of members; -1 if this process has not joined."""
    group = _found(group_name)
    return -1 if group is None else group.world_size


def member_of(group_name: str) -> Group:
    """This process's place in a group.

    Raises:
        CollectiveError: It has none.
    """
    group = _found(group_name)
    if group is None:
        raise CollectiveError(
            f"this process is not in group {group_name!r}: call init_collective_group() in each member first"
        )
    return group


def check_rank(name: str, rank: Any, world_size: int) -> None:
    """Raise ValueError unless `rank` is one of the group's."""
    if not is_whole(rank) or not 0 <= rank < world_size:
        raise ValueError(f"{name} must be a rank from 0 to {world_size - 1}, not {rank!r}")


def _found(group_name: str) -> Group | None:
    _check_name(group_name)
    with _lock:
        group = _groups.get(group_name)
        if group is None or group.is_here():
            return group
        # A task has left it behind, or it belongs to a session that has ended.
        del _groups[group_name]
    if group.is_of_session():
        group.leave()
    return None


def _check_backend(backend: Any) -> None:
    if not isinstance(backend, str) or backend.lower() not in list(Backend):
        names = ", ".join(map(repr, map(str, Backend)))
        raise ValueError(f"backend must be one of {names}, not {backend!r}")


def _check_name(group_name: Any) -> None:
    """Raise ValueError unless a group may have this name."""
    if not isinstance(group_name, str) or not 1 <= len(group_name) <= _NAME_MAX:
        raise ValueError(f"group_name must be a string of 1 to {_NAME_MAX} characters, not {group_name!r:.100}")


def _patience(timeout: float, gloo_timeout: float | None) -> float:
    if gloo_timeout is not None:
        return checked_timeout("gloo_timeout", gloo_timeout) / 1000
    return checked_timeout("timeout", timeout)


def _listed(name: str, what: str, given: Any) -> list[Any]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list of {what}, not {type(given).__name__}")
    return list(given)


def _ticket() -> bytes:
    return secrets.token_bytes(12)
