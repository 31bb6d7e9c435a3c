"""Collective operations for programs that think in ranks, under the names that Ray's programs use.

Members of a group are actors, tasks or drivers. They exchange references: an actor, `Coordinator`, brings
them together and passes on who has what, and the values go from member to member. NumPy combines them in the
members, in the order of ranks, so that all members have the same bits, in every run.

Each member's operations are numbered. Numbers are taken under a lock: two threads of a member may operate on
one group, but then must agree with the other members about the order. An operation that fails, fails on
all members and breaks the group: every further one raises the same until the group is made again.

All functions wait, and write into their arrays only when all that they write is there. A program that does
not want to wait, or whose members come and go, passes references to tasks instead.
"""

from __future__ import annotations

from typing import NoReturn

from sooner.util.collective.errors import CollectiveError as CollectiveError
from sooner.util.collective.errors import CollectiveMemberDiedError as CollectiveMemberDiedError
from sooner.util.collective.errors import CollectiveMismatchError as CollectiveMismatchError
from sooner.util.collective.errors import CollectiveTimeoutError as CollectiveTimeoutError
from sooner.util.collective.membership import create_collective_group as create_collective_group
from sooner.util.collective.membership import destroy_collective_group as destroy_collective_group
from sooner.util.collective.membership import get_collective_group_size as get_collective_group_size
from sooner.util.collective.membership import get_rank as get_rank
from sooner.util.collective.membership import init_collective_group as init_collective_group
from sooner.util.collective.membership import is_group_initialized as is_group_initialized
from sooner.util.collective.operations import allgather as allgather
from sooner.util.collective.operations import allreduce as allreduce
from sooner.util.collective.operations import barrier as barrier
from sooner.util.collective.operations import broadcast as broadcast
from sooner.util.collective.operations import recv as recv
from sooner.util.collective.operations import reduce as reduce
from sooner.util.collective.operations import reducescatter as reducescatter
from sooner.util.collective.operations import send as send
from sooner.util.collective.types import Backend as Backend
from sooner.util.collective.types import ReduceOp as ReduceOp
from sooner.util.collective.types import gloo_available as gloo_available
from sooner.util.collective.types import nccl_available as nccl_available

__all__ = [
    "Backend",
    "CollectiveError",
    "CollectiveMemberDiedError",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "ReduceOp",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "create_collective_group",
    "destroy_collective_group",
    "get_collective_group_size",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "reduce",
    "reducescatter",
    "send",
]

_LATER = {
    "get_group_handle": "handles of groups: call the functions of this module with the group's name",
    **{
        f"{name}_multigpu": f"operations on GPUs: call {name}() with tensors on the CPU, or use torch.distributed"
        for name in ("allgather", "allreduce", "broadcast", "recv", "reduce", "reducescatter", "send")
    },
}


def __getattr__(name: str) -> NoReturn:
    if name in _LATER:
        raise AttributeError(f"sooner.util.collective.{name}: sooner does not have {_LATER[name]}")
    raise AttributeError(f"module 'sooner.util.collective' has no attribute {name!r}")
