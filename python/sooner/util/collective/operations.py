"""The operations: what each member gives, and what it makes of that of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sooner.util.collective.group import Group, Operation
from sooner.util.collective.membership import check_rank, member_of
from sooner.util.collective.tensors import Array, array_of, check_op, combined, cut, dtype_name, flat, write
from sooner.util.collective.types import Call, ReduceOp

# Up to this size (bytes) each member reads whole arrays of all others, which takes one step. Larger ones are
# cut, and each member combines one part, which takes two steps and moves each byte twice, however many
# members there are.
_WHOLE_BYTES_MAX = 64 * 1024


def allreduce(
    tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM, *, timeout: float | None = None
) -> None:
    """Combine the tensors of all members; each has the result in its tensor.

    Args:
        tensor: A NumPy array or a CPU tensor of PyTorch, of the same shape and dtype in all members.
        group_name: The group.
        op: How to combine.
        timeout: Seconds to wait at most; the group's `operation_timeout` by default.

    Raises:
        TypeError: It is no such tensor, or `op` is not for its elements.
        ValueError: It cannot be written, or `timeout` is no number of seconds.
        CollectiveMismatchError: Another member called something else.
        CollectiveMemberDiedError: A member died, or left the group.
        CollectiveTimeoutError: Members did not come in time; the message names their ranks.
        CollectiveError: The group is broken, or this process is not in it.
    """
    group = member_of(group_name)
    array = array_of(tensor, "tensor", is_written=True)
    check_op(op, array)
    with group.operation(_call("allreduce", array, op.name), timeout) as operation:
        write(array, _reduced(group, operation, array, op))


def reduce(
    tensor: Any,
    dst_rank: int = 0,
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
    *,
    timeout: float | None = None,
) -> None:
    """Combine the tensors of all members; `dst_rank` has the result in its tensor, others keep theirs.

    Raises:
        Exception: As `allreduce`; ValueError also if there is no such rank.
    """
    group = member_of(group_name)
    check_rank("dst_rank", dst_rank, group.world_size)
    is_root = group.rank == dst_rank
    array = array_of(tensor, "tensor", is_written=is_root)
    check_op(op, array)
    with group.operation(_call("reduce", array, f"{op.name}, dst_rank={dst_rank}"), timeout) as operation:
        if _is_cut(group, array):
            own = _own_part(group, operation, array, op)
            parts = operation.exchange([own if rank == dst_rank else None for rank in range(group.world_size)])
            if is_root:
                write(array, np.concatenate(_in_order(group, parts, own)))
        else:
            elements = flat(array)
            wholes = operation.exchange([elements if rank == dst_rank else None for rank in range(group.world_size)])
            if is_root:
                write(array, combined(_in_order(group, wholes, elements), op))


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default", *, timeout: float | None = None) -> None:
    """Write the tensor of `src_rank` into those of all others.

    Raises:
        Exception: As `allreduce`; ValueError also if there is no such rank.
    """
    group = member_of(group_name)
    check_rank("src_rank", src_rank, group.world_size)
    is_root = group.rank == src_rank
    array = array_of(tensor, "tensor", is_written=not is_root)
    with group.operation(_call("broadcast", array, f"src_rank={src_rank}"), timeout) as operation:
        values = operation.exchange([flat(array)] if is_root else [])
        if not is_root:
            write(array, values[src_rank])


def allgather(
    tensor_list: Sequence[Any], tensor: Any, group_name: str = "default", *, timeout: float | None = None
) -> None:
    """Write the tensor of each rank into that place of `tensor_list`, in all members.

    Args:
        tensor_list: As many tensors as there are members, each as `tensor`.
        tensor: What this member gives.
        group_name: The group.
        timeout: Seconds to wait at most; the group's `operation_timeout` by default.

    Raises:
        Exception: As `allreduce`; ValueError also if `tensor_list` does not fit.
    """
    group = member_of(group_name)
    array = array_of(tensor, "tensor", is_written=False)
    places = _arrays(group, tensor_list, array, is_written=True)
    with group.operation(_call("allgather", array), timeout) as operation:
        elements = flat(array)
        if any(np.may_share_memory(elements, place) for place in places):
            # What others give is written before it is.
            elements = elements.copy()
        for place, values in zip(places, _in_order(group, operation.exchange([elements]), elements), strict=True):
            write(place, values)


def reducescatter(
    tensor: Any,
    tensor_list: Sequence[Any],
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
    *,
    timeout: float | None = None,
) -> None:
    """Combine what all members have at each place of their lists; rank r has that of place r in `tensor`.

    Args:
        tensor: Where the result goes.
        tensor_list: As many tensors as there are members, each as `tensor`.
        group_name: The group.
        op: How to combine.
        timeout: Seconds to wait at most; the group's `operation_timeout` by default.

    Raises:
        Exception: As `allreduce`; ValueError also if `tensor_list` does not fit.
    """
    group = member_of(group_name)
    array = array_of(tensor, "tensor", is_written=True)
    check_op(op, array)
    given = [flat(one) for one in _arrays(group, tensor_list, array, is_written=False)]
    with group.operation(_call("reducescatter", array, op.name), timeout) as operation:
        write(array, combined(_scattered(group, operation, given), op))


def send(tensor: Any, dst_rank: int, group_name: str = "default", *, timeout: float | None = None) -> None:
    """Send a tensor to one member, which receives it with `recv`; messages arrive in order.

    It waits only while 64 messages to that member have not been received. The tensor may be changed
    afterwards.

    Raises:
        Exception: As `allreduce`; ValueError also if there is no such rank, or it is the sender's own.
    """
    group = member_of(group_name)
    _check_other(group, "dst_rank", dst_rank)
    array = array_of(tensor, "tensor", is_written=False)
    group.send(_call("send", array, f"dst_rank={dst_rank}"), dst_rank, flat(array), timeout)


def recv(tensor: Any, src_rank: int, group_name: str = "default", *, timeout: float | None = None) -> None:
    """Receive into a tensor what one member sends with `send`.

    Raises:
        Exception: As `allreduce`; ValueError also if there is no such rank, or it is the receiver's own.
    """
    group = member_of(group_name)
    _check_other(group, "src_rank", src_rank)
    array = array_of(tensor, "tensor", is_written=True)
    write(array, group.recv(_call("recv", array, f"src_rank={src_rank}"), src_rank, timeout))


def barrier(group_name: str = "default", *, timeout: float | None = None) -> None:
    """Wait until all members have come here.

    Raises:
        Exception: As `allreduce`.
    """
    with member_of(group_name).operation(Call("barrier"), timeout) as operation:
        operation.exchange([])


def _call(name: str, array: Array, detail: str = "") -> Call:
    return Call(name, dtype_name(array), array.shape, detail)


def _is_cut(group: Group, array: Array) -> bool:
    # Of two members, each reads as much in either way.
    return group.world_size > 2 and array.nbytes > _WHOLE_BYTES_MAX


def _reduced(group: Group, operation: Operation, array: Array, op: ReduceOp) -> Array:
    """The elements of all members combined."""
    if not _is_cut(group, array):
        elements = flat(array)
        return combined(_in_order(group, operation.exchange([elements]), elements), op)
    own = _own_part(group, operation, array, op)
    return np.concatenate(_in_order(group, operation.exchange([own]), own))


def _own_part(group: Group, operation: Operation, array: Array, op: ReduceOp) -> Array:
    """The part of this member, with the elements of all combined."""
    return combined(_scattered(group, operation, cut(flat(array), group.world_size)), op)


def _scattered(group: Group, operation: Operation, parts: list[Array]) -> list[Array]:
    """Give each member its part; those of all members for this one, in the order of ranks."""
    given = [None if rank == group.rank else part for rank, part in enumerate(parts)]
    return _in_order(group, operation.exchange(given), parts[group.rank])


def _in_order(group: Group, values: dict[int, Any], own: Array) -> list[Array]:
    values[group.rank] = own
    return [values[rank] for rank in range(group.world_size)]


def _arrays(group: Group, tensors: Sequence[Any], like: Array, *, is_written: bool) -> list[Array]:
    if not hasattr(tensors, "__len__"):
        raise TypeError(f"tensor_list must be a list of tensors, not {type(tensors).__name__}")
    if len(tensors) != group.world_size:
        raise ValueError(f"tensor_list has {len(tensors)} tensors, and group {group.name!r} {group.world_size} members")
    arrays = []
    for place, tensor in enumerate(tensors):
        array = array_of(tensor, f"tensor_list[{place}]", is_written=is_written)
        if (array.shape, dtype_name(array)) != (like.shape, dtype_name(like)):
            raise ValueError(
                f"tensor_list[{place}] is {dtype_name(array)} of shape {array.shape}, "
                f"and tensor {dtype_name(like)} of shape {like.shape}: they must be alike"
            )
        arrays.append(array)
    return arrays


def _check_other(group: Group, name: str, rank: Any) -> None:
    check_rank(name, rank, group.world_size)
    if rank == group.rank:
        raise ValueError(f"{name} is this member itself, rank {rank}")
