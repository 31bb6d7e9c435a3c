"""A Dask graph as it will be submitted: the tasks it needs, their order, and which tasks become one.

Two things happen to a graph here. Aliases are resolved. And tasks that only take one item each of another
task's result, as in the second half of a shuffle, become returns of that task: a consumer then pulls its item
and not the whole result. Nothing is submitted or computed here, and no graph is changed, because it may
belong to a collection.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from dask._expr import Expr, HLGExpr
from dask._task_spec import (
    Alias,
    DataNode,
    GraphNode,
    Task,
    TaskRef,
    convert_legacy_graph,
)
from dask.core import flatten
from dask.optimization import default_fused_keys_renamer
from dask.order import order
from dask.utils import ensure_dict

import sooner
from sooner.util.dask.bodies import with_faster_bodies
from sooner.util.dask.shuffle import one_stage_shuffles, split

Key = Hashable

# Items that one task returns, at most, not counting its end. Takers of more items stay tasks.
_ITEMS_MAX = 4096
# Users of one result that are ordered after each other, at most; more users stay in Dask's order.
_SIBLINGS_MAX = 8


class Graph:
    """What has to be computed for some keys.

    Args:
        graph: A graph as `graph_of` returns it.
        keys: What is wanted.
        apart: Tasks that must stay tasks, since they have options of their own.
        splits: Whether takers of items become returns.

    Attributes:
        nodes: The tasks and data that are needed, without aliases, in the order in which they are executed:
            Dask's, but for tasks that need the same result and nothing else.
        names: The keys that each task depends on, as it knows them.
        takers: By a task that returns items: the tasks that take them.
        uses: By key: how many tasks use it, and one more if it is wanted.

    Raises:
        KeyError: A wanted key is not in the graph.
        ValueError: A task depends on a key that is not in the graph.
    """

    def __init__(
        self, graph: Mapping[Key, GraphNode], keys: Iterable[Key], apart: Mapping[Key, object], splits: bool
    ) -> None:
        wanted = list(keys)
        needed = _needed(graph, wanted)
        self._aliases = {key: node.target for key, node in needed.items() if isinstance(node, Alias)}
        places: dict[Any, int] = order(needed)
        ordered = [key for key in sorted(needed, key=places.__getitem__) if key not in self._aliases]
        self.names: dict[Key, tuple[Key, ...]] = {key: tuple(needed[key].dependencies) for key in ordered}
        users: dict[Key, list[Key]] = {key: [] for key in ordered}
        for key, names in self.names.items():
            for name in names:
                users[self.origin(name)].append(key)
        self.nodes: dict[Key, GraphNode] = {key: needed[key] for key in self._with_siblings(ordered, users)}
        results = {self.origin(key) for key in wanted}
        self.takers: dict[Key, list[Key]] = {}
        if splits:
            self._split(users, results, apart)
        self.uses = {key: len(used) + (key in results) for key, used in users.items()}

    def origin(self, key: Key) -> Key:
        """The key of the task or data behind a key, which may be an alias."""
        while key in self._aliases:
            key = self._aliases[key]
        return key

    def tasks(self) -> list[Key]:
        """The keys that will be tasks of sooner, in order."""
        taken = {key for takers in self.takers.values() for key in takers}
        return [key for key, node in self.nodes.items() if not isinstance(node, DataNode) and key not in taken]

    def _with_siblings(self, ordered: list[Key], users: dict[Key, list[Key]]) -> Iterator[Key]:
        """The keys in order, except that tasks that need only one and the same result follow each other.

        Dask's order completes one output of the graph after the other. Where the least, the largest and a
        sketch of each partition are computed, Dask's order makes all partitions for the first output, and
        keeps them for the second and the third: all the data is written to disk and read twice. A chain of
        tasks that needs only one of these results follows it, since its own result may be smaller.
        """
        done: set[Key] = set()
        for key in ordered:
            if key in done:
                continue
            siblings = self._siblings(key, users)
            for sibling in (key, *(one for one in siblings if one != key)):
                chain = self._chain(sibling, users) if siblings else [sibling]
                yield from (one for one in chain if one not in done)
                done.update(chain)

    def _siblings(self, key: Key, users: dict[Key, list[Key]]) -> list[Key]:
        if len(self.names[key]) != 1:
            return []
        siblings = users[self.origin(self.names[key][0])]
        is_few = 1 < len(siblings) <= _SIBLINGS_MAX
        return siblings if is_few and all(len(self.names[sibling]) == 1 for sibling in siblings) else []

    def _chain(self, key: Key, users: dict[Key, list[Key]]) -> list[Key]:
        found = [key]
        while len(users[key]) == 1 and len(self.names[users[key][0]]) == 1:
            (key,) = users[key]
            found.append(key)
        return found

    def _split(self, users: dict[Key, list[Key]], results: set[Key], apart: Mapping[Key, object]) -> None:
        taken: set[Key] = set()
        for key, node in self.nodes.items():
            used = users[key]
            if isinstance(node, DataNode) or key in results or key in taken or not 0 < len(used) <= _ITEMS_MAX:
                continue
            indices = [None if user in apart else index_taken(self.nodes[user]) for user in used]
            if any(index is None for index in indices):
                continue
            if len(used) > 1 and not are_disjoint([index[0] for index in indices if index is not None]):
                # The items may overlap: together they would be larger than the result they are taken from.
                continue
            self.takers[key] = list(used)
            taken.update(used)


def graph_of(dsk: Any, splits: bool = False) -> dict[Key, GraphNode]:
    """The graph in Dask's present form.

    Args:
        dsk: A mapping in the present or former form, or an expression.
        splits: Whether takers of items will become returns, so that shuffles have one stage.
    """
    layers = ensure_dict(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
    if splits and isinstance(dsk, Expr):
        layers = {**layers, **one_stage_shuffles(dsk)}
    graph: dict[Key, GraphNode] = convert_legacy_graph(layers)
    return with_faster_bodies(graph) if isinstance(dsk, Expr) else graph


def fused(dsk: Any, keys: Iterable[Key], splits: bool = False) -> dict[Key, GraphNode]:
    """The graph of data frames with one task for what makes one partition, so that nothing between is stored.

    Dask does so itself for arrays and bags; what users wrote as tasks of their own, it leaves as it is.
    Operations that work partition by partition are fused first, also where two of them read the same
    partition, as in a shuffle; then the chains that remain.

    Args:
        dsk: A mapping or an expression, as for `graph_of`. Only expressions of data frames are changed.
        keys: What is wanted.
        splits: As for `graph_of`.
    """
    if not isinstance(dsk, Expr) or any(isinstance(part, HLGExpr) for part in dsk.walk()):
        return graph_of(dsk, splits)
    wanted = set(keys)
    # A node that is not needed counts as a user, and would keep a needed node from having only one user.
    return _fused_chains(_needed(_fused_blockwise(dsk, wanted, splits), list(wanted)), wanted)


def _fused_chains(graph: dict[Key, GraphNode], wanted: set[Key]) -> dict[Key, GraphNode]:
    """The graph with each chain made one task: nodes with one user each, which depends on nothing else.

    The nodes that a shuffle takes apart together are fused with the task that does so, although they are
    several.

    Dask's own function leaves a node alone when it first reaches the node from one outside its chain, such as
    one that takes an item of its result: partitions would be stored, only to be taken apart by another task
    of a shuffle.
    """
    users: dict[Key, list[Key]] = {}
    for key, node in graph.items():
        for name in node.dependencies:
            users.setdefault(name, []).append(key)
    following: dict[Key, Key] = {}
    for key, node in graph.items():
        used = users.get(key, [])
        if len(used) != 1 or key in wanted or node.block_fusion:
            continue
        (user,) = used
        if _takes_one(graph[user]) and not graph[user].block_fusion:
            following[key] = user
    before: dict[Key, list[Key]] = {}
    for key, user in following.items():
        before.setdefault(user, []).append(key)
    found: dict[Key, GraphNode] = {}
    for key, node in graph.items():
        if key in following:
            continue
        chain = _chain_before(key, before)
        if len(chain) == 1:
            found[key] = node
            continue
        name = default_fused_keys_renamer(chain)
        found[name] = Task.fuse(*(graph[one] for one in chain), key=name)
        if name != key:
            found[key] = Alias(key, name)
    return found


def _takes_one(node: GraphNode) -> bool:
    return len(node.dependencies) == 1 or (type(node) is Task and node.func is split)


def _chain_before(key: Key, before: dict[Key, list[Key]]) -> list[Key]:
    """The nodes that are fused into the last one, in an order in which they can be computed."""
    chain = [key]
    for one in chain:
        chain.extend(before.get(one, []))
    return chain[::-1]


def _fused_blockwise(dsk: Expr, wanted: set[Key], splits: bool) -> dict[Key, GraphNode]:
    try:
        from dask.dataframe.dask_expr._expr import optimize_blockwise_fusion
    except ImportError:
        # Without pandas there are no data frames.
        return graph_of(dsk, splits)
    named = list(flatten(dsk.__dask_keys__()))
    if not wanted <= set(named):
        return graph_of(dsk, splits)
    # All collections of a computation are optimized together: what two of them share stays one task, computed
    # once.
    expression = optimize_blockwise_fusion(dsk)
    found = graph_of(expression, splits)
    # A fused task has a new name. The caller knows the old one.
    for key, other in zip(named, flatten(expression.__dask_keys__()), strict=True):
        if key != other:
            found[key] = Alias(key, other)
    return found


def _needed(graph: Mapping[Key, GraphNode], keys: list[Key]) -> dict[Key, GraphNode]:
    needed: dict[Key, GraphNode] = {}
    for key in keys:
        if key not in graph:
            raise KeyError(key)
    stack = list(keys)
    while stack:
        key = stack.pop()
        if key in needed:
            continue
        node = needed[key] = graph[key]
        for name in node.dependencies:
            if name not in graph:
                raise ValueError(f"{key!r} depends on {name!r}, which is not in the graph")
            if name not in needed:
                stack.append(name)
    return needed


def _getters() -> frozenset[Any]:
    found: set[Any] = {operator.getitem, dict.get}
    try:
        from dask.array.chunk import getitem
    except ImportError:
        # Dask's arrays need NumPy.
        return frozenset(found)
    return frozenset({*found, getitem})


_GETTERS = _getters()


def index_taken(node: GraphNode) -> tuple[Any] | None:
    """The index, in a tuple, if a task does nothing but take one item of the result of another one; else
    None.

    Args:
        node: The task.
    """
    if type(node) is not Task or node.kwargs or len(node.args) < 2:
        return None
    try:
        if node.func not in _GETTERS:
            return None
    except TypeError:
        return None
    source, index, *rest = node.args
    if not isinstance(source, TaskRef | Alias) or len(node.dependencies) != 1:
        return None
    if any(isinstance(arg, GraphNode | TaskRef | sooner.ObjectRef) for arg in (index, *rest)):
        return None
    return (index,)


def are_disjoint(indices: list[Any]) -> bool:
    """Whether items at these indices certainly have nothing in common: distinct names or numbers, or parts of
        a grid.

    Args:
        indices: Of the same container.
    """
    if all(isinstance(index, int | str) for index in indices):
        # A negative number may name the same item as another index.
        is_clear = all(isinstance(index, str) or index >= 0 for index in indices)
        return is_clear and len(set(indices)) == len(indices)
    if not all(isinstance(index, tuple) and len(index) == len(indices[0]) for index in indices):
        return False
    cells = [tuple(_interval(part) for part in index) for index in indices]
    if any(part is None for cell in cells for part in cell) or len(set(cells)) != len(cells):
        return False
    return all(_are_apart({part for part in axis if part is not None}) for axis in zip(*cells, strict=True))


def _interval(part: Any) -> tuple[int, int] | None:
    if isinstance(part, int) and part >= 0:
        return part, part + 1
    if isinstance(part, slice) and part.step in (None, 1):
        begin = 0 if part.start is None else part.start
        if isinstance(begin, int) and isinstance(part.stop, int) and 0 <= begin <= part.stop:
            return begin, part.stop
    return None


def _are_apart(intervals: set[tuple[int, int]]) -> bool:
    ordered = sorted(intervals)
    return all(one[1] <= other[0] for one, other in itertools.pairwise(ordered))
