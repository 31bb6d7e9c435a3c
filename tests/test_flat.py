"""sooner.util.flat: trees of arrays as one buffer, and back."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import os
import pickle
import random
from collections import OrderedDict, defaultdict, namedtuple
from fractions import Fraction

import numpy as np
import pytest
from support import WAIT, run_driver

import sooner
from sooner.util import flat as module
from sooner.util.flat import Flat, Layout, LayoutError

Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Layer:
    weight: object
    bias: object

    def __post_init__(self):
        self.calls = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    inner: object


class MyDict(dict):
    pass


def model(width=3, dtype=np.float32):
    return {
        "layers": [
            Layer(np.arange(4 * width, dtype=dtype).reshape(4, width), np.zeros(width, dtype)),
            Layer(np.ones((width, 2), dtype), np.full(2, 7, dtype)),
        ],
        "norm": Point(np.ones(width, dtype), dtype(2)),
    }


def same(left, right):
    """Whether two trees have the same containers, in the same order, and equal leaves of the same shape."""
    if isinstance(left, np.ndarray | int | float | complex | np.generic):
        return isinstance(right, np.ndarray) and np.shape(left) == right.shape and np.array_equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    names = [field.name for field in dataclasses.fields(left)]
    return all(same(getattr(left, name), getattr(right, name)) for name in names)


# --- there and
# back ----------------------------------------------------------------------------------------------------


@pytest.mark.api("own.flat")
def test_a_tree_is_one_buffer_and_comes_back_as_views():
    tree = model()
    flat = Flat.of(tree)
    assert flat.buffer.tolist() == [*range(12), 0, 0, 0, *[1] * 6, 7, 7, 1, 1, 1, 2]
    assert flat.buffer.dtype == np.float32
    assert flat.buffer.flags.owndata
    assert flat.buffer.flags.writeable
    back = flat.tree()
    assert same(tree, back)
    back["layers"][0].bias[1] = 5
    back["norm"].y[()] = 6
    assert flat.buffer[13] == 5
    assert flat.buffer[-1] == 6
    assert tree["layers"][0].bias[1] == 0


def test_another_buffer_is_seen_through_the_same_tree():
    flat = Flat.of(model())
    other = 2 * flat.buffer
    back = flat.tree(other)
    assert np.shares_memory(back["layers"][1].bias, other)
    assert not np.shares_memory(back["layers"][1].bias, flat.buffer)
    assert back["layers"][1].bias.tolist() == [14, 14]
    other.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        flat.tree(other)["layers"][1].bias[0] = 1
    assert same(flat.tree(other), flat.tree(Flat(other, flat.layout)))


def random_leaf(rng, leaves):
    shape = tuple(rng.choice([0, 1, 1, 2, 3, 4]) for _ in range(rng.randrange(4)))
    array = np.array([rng.random() for _ in range(int(np.prod(shape)))]).reshape(shape)
    leaves.append(array)
    match rng.randrange(6):
        case 0:
            return array.astype(">f8")
        case 1:
            return np.asfortranarray(array)
        case 2 if array.ndim:
            return np.repeat(array, 2, axis=0)[::2]
        case 3 if array.ndim:
            return array[::-1].copy()[::-1]
        case 4 if not array.ndim:
            return float(array)
    return array


def random_tree(rng, depth, leaves):
    if depth == 0 or rng.random() < 0.2:
        return random_leaf(rng, leaves)
    kind = rng.choice([dict, OrderedDict, list, tuple, Point, Layer, Frozen])
    if kind in (Point, Layer):
        return kind(random_tree(rng, depth - 1, leaves), random_tree(rng, depth - 1, leaves))
    if kind is Frozen:
        return Frozen(random_tree(rng, depth - 1, leaves))
    count = rng.randrange(4)
    if kind in (list, tuple):
        return kind(random_tree(rng, depth - 1, leaves) for _ in range(count))
    keys = rng.sample(["a", "b", "a.b", "", "[0]", "ключ", "a\nb", "\ud800", 0, 1, -1], count)
    return kind((key, random_tree(rng, depth - 1, leaves)) for key in keys)


@pytest.mark.parametrize("seed", range(200))
def test_random_trees_come_back(seed):
    rng = random.Random(seed)
    leaves = []
    tree = random_tree(rng, 4, leaves)
    if not leaves:
        with pytest.raises(ValueError, match="no leaf"):
            Flat.of(tree)
        return
    flat = Flat.of(tree)
    assert flat.buffer.tolist() == [number for leaf in leaves for number in leaf.ravel().tolist()]
    assert flat.buffer.flags.c_contiguous
    assert same(tree, flat.tree())
    assert flat.layout == Layout.of(tree)
    assert flat.layout.buffer(tree).tolist() == flat.buffer.tolist()
    assert flat.layout.size == flat.buffer.size
    moved = pickle.loads(pickle.dumps(flat, protocol=5))
    assert moved.layout.hash == flat.layout.hash
    assert same(tree, moved.tree())
    moved.check(flat)


def test_random_trees_that_differ_have_other_hashes():
    """The layouts of equal hashes describe the same tree, as far as its leaves are of one size."""
    by_hash = {}
    for seed in range(400):
        leaves = []
        tree = random_tree(random.Random(seed), 3, leaves)
        if leaves:
            zeros = Flat.of(tree)
            zeros.buffer[:] = 0
            assert same(by_hash.setdefault(zeros.layout.hash, zeros.tree()), zeros.tree())
    assert len(by_hash) > 100


# --- leaves ---


def test_numbers_come_back_as_arrays_without_dimensions():
    back = Flat.of([1.5, np.float64(2.5), np.array(3.5)]).tree()
    assert all(isinstance(leaf, np.ndarray) and leaf.shape == () for leaf in back)
    assert [float(leaf) for leaf in back] == [1.5, 2.5, 3.5]
    assert Flat.of([1, 2]).buffer.dtype == np.int64
    assert Flat.of([True, False]).buffer.dtype == np.bool_
    assert Flat.of(1j).tree() == 1j


def test_a_leaf_alone_is_a_tree():
    array = np.arange(6).reshape(2, 3)
    flat = Flat.of(array)
    assert flat.tree().tolist() == array.tolist()
    with pytest.raises(LayoutError, match=r"expected the root with shape \(2, 3\), found the root as list"):
        flat.check(Layout.of([array]))


def test_arrays_of_size_zero_have_their_place():
    flat = Flat.of({"a": np.zeros((0, 3)), "b": np.ones(2), "c": np.zeros((2, 0))})
    assert flat.buffer.tolist() == [1, 1]
    assert {key: leaf.shape for key, leaf in flat.tree().items()} == {"a": (0, 3), "b": (2,), "c": (2, 0)}
    assert Flat.of(np.zeros((0, 3))).buffer.shape == (0,)


def test_an_array_that_is_there_twice_is_copied_twice():
    array = np.ones(2)
    shared = [array, array]
    flat = Flat.of({"a": shared, "b": shared})
    assert flat.buffer.size == 8
    flat.tree()["a"][0][:] = 3
    assert flat.buffer.tolist() == [3, 3, *[1] * 6]


def test_memory_maps(tmp_path):
    mapped = np.memmap(tmp_path / "file", dtype=np.float32, shape=(4,), mode="w+")
    mapped[:] = 3
    flat = Flat.of({"w": mapped})
    assert type(flat.buffer) is np.ndarray
    leaf = flat.tree(mapped)["w"]
    assert type(leaf) is np.ndarray
    leaf[0] = 9
    assert mapped[0] == 9


def test_dataclasses_are_made_without_their_constructor():
    back = Flat.of(Layer(np.ones(1), np.ones(1))).tree()
    assert type(back) is Layer
    assert not hasattr(back, "calls")


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (None, "NoneType"),
        ("text", "class str"),
        (b"bytes", "class bytes"),
        ({1, 2}, "class set"),
        (Fraction(1, 2), "Fraction"),
        (iter([("a", 1.0)]), "list_iterator"),
        (Layer, "class type"),
        (MyDict(a=1.0), "MyDict"),
        (defaultdict(list, a=1.0), "defaultdict"),
        (np.array(["a"]), "dtype <U1"),
        (np.array([None]), "dtype object"),
        (np.array([1, 2], "M8[s]"), r"dtype datetime64\[s\]"),
        (np.zeros(2, [("a", "f8")]), "dtype"),
        (np.ma.masked_array([1.0], [True]), "MaskedArray"),
        (2**70, "class int with dtype object"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_leaf_is_refused_with_its_path(bad, found):
    for make in (Flat.of, Layout.of, Layout.of({"a": 1.0}).buffer):
        with pytest.raises(
            TypeError, match=rf"cannot flatten layers\[0\]\.bias: found .*{found}.*; expected a numeric"
        ):
            make({"layers": [Layer(np.ones(1), bad)]})


def test_keys_that_are_neither_text_nor_whole_numbers_are_refused():
    for key in ((1, 2), None, 1.5, True, np.int64(1)):
        with pytest.raises(TypeError, match=r"cannot flatten a\['b\.c'\]: its key"):
            Flat.of({"a": {"b.c": {key: 1.0}}})


@pytest.mark.parametrize("tree", [{}, [], (), {"a": [], "b": ({},)}], ids=repr)
def test_a_tree_without_leaves_is_refused(tree):
    for make in (Flat.of, Layout.of):
        with pytest.raises(ValueError, match="no leaf"):
            make(tree)
    with pytest.raises(ValueError, match="no leaf"):
        Flat.of(tree, cast=np.float32)


def test_a_cycle_is_refused():
    tree = {"a": [1.0]}
    tree["a"].append((tree["a"],))
    with pytest.raises(ValueError, match=r"cycle: a\[1\]\[0\] is a again"):
        Flat.of(tree)
    layer = Layer(1.0, None)
    layer.bias = {"self": layer}
    with pytest.raises(ValueError, match=r"cycle: bias\.self is the root again"):
        Flat.of(layer)


def test_a_tree_that_is_too_deep_is_refused():
    tree = 1.0
    for _ in range(200):
        tree = [tree]
    assert same(tree, Flat.of(tree).tree())
    with pytest.raises(ValueError, match="more than 200 containers"):
        Flat.of([tree])


# --- dtypes ---


def test_several_dtypes_are_refused_by_name():
    tree = {"a": np.ones(2, np.float32), "b": [np.ones(2, np.float32), np.ones(2)]}
    with pytest.raises(TypeError, match=r"a has float32, b\[1\] has float64; say with cast="):
        Flat.of(tree)
    flat = Flat.of(tree, cast=np.float32)
    assert flat.buffer.dtype == np.float32
    assert [leaf.dtype.name for leaf in flat.tree()["b"]] == ["float32", "float32"]
    assert flat.layout.buffer(tree).dtype == np.float32


@pytest.mark.parametrize(
    ("given", "wanted"), [("i8", "f4"), ("f8", "f2"), ("?", "f4"), ("f4", "c8"), ("u1", "i2"), (">i4", "i8")]
)
def test_casts(given, wanted):
    flat = Flat.of({"a": np.array([0, 1], given)}, cast=wanted)
    assert flat.buffer.dtype == np.dtype(wanted)
    assert flat.buffer.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("given", "wanted"), [("f4", "i8"), ("c8", "f8"), ("i8", "i4"), ("i8", "u8"), ("i4", "?"), ("f4", "?")]
)
def test_casts_that_would_change_values_are_refused(given, wanted):
    with pytest.raises(TypeError, match=r"a\[0\] has dtype .* cannot be cast to "):
        Flat.of({"a": [np.ones(2, given)]}, cast=wanted)


def test_what_is_too_large_for_the_dtype_becomes_infinite():
    with pytest.warns(RuntimeWarning, match="overflow"):
        flat = Flat.of([np.array([70_000, 1])], cast="f2")
    assert flat.buffer.tolist() == [np.inf, 1]


def test_a_field_without_a_value_is_named():
    layer = Layer(np.ones(1), np.ones(1))
    del layer.bias
    with pytest.raises(TypeError, match=r"cannot flatten layers\[0\]\.bias: the field is not set"):
        Flat.of({"layers": [layer]})


def test_a_flat_without_a_layout():
    with pytest.raises(TypeError, match="a Flat has a Layout, not str"):
        Flat(np.ones(1), "x")


def test_dtypes_that_nothing_is_cast_to():
    for cast in ("U3", object, "M8[s]", [("a", "f8")]):
        with pytest.raises(TypeError, match="numeric dtype"):
            Flat.of([1.0], cast=cast)


def test_byte_orders_make_no_difference():
    big, little = np.arange(3, dtype=">f4"), np.arange(3, dtype="<f4")
    flat = Flat.of([big, little])
    assert flat.buffer.dtype.isnative
    assert flat.buffer.tolist() == [0, 1, 2, 0, 1, 2]
    assert Flat.of(big, cast=">f4").buffer.dtype.isnative
    assert Layout.of(big) == Layout.of(little)


# --- buffers that do not
# fit -------------------------------------------------------------------------------------------


def test_buffers_that_do_not_fit():
    flat = Flat.of(model())
    size = flat.buffer.size
    for bad, error, message in (
        (np.zeros(size), TypeError, "must have dtype float32, not float64"),
        (np.zeros(size, ">f4"), TypeError, "must have dtype float32, not >f4"),
        (np.zeros(size + 1, np.float32), ValueError, rf"must have shape \({size},\), not \({size + 1},\)"),
        (np.zeros((1, size), np.float32), ValueError, "must have shape"),
        (np.zeros(2 * size, np.float32)[::2], ValueError, "contiguous"),
        ([0.0] * size, TypeError, "NumPy array of dtype float32, not list"),
        (np.ma.zeros(size, np.float32), TypeError, "not MaskedArray"),
    ):
        for use in (flat.tree, flat.layout.tree, lambda buffer: Flat(buffer, flat.layout)):
            with pytest.raises(error, match=message):
                use(bad)
    flat.buffer = flat.buffer[1:]
    with pytest.raises(ValueError, match="must have shape"):
        flat.tree()


# --- layouts ---


def variants():
    one, two = np.zeros(1), np.zeros(2)
    return {
        "dict": {"a": one, "b": two},
        "another shape": {"a": one, "b": np.zeros((1, 2))},
        "another dtype": {"a": one.astype("f4"), "b": two.astype("f4")},
        "another order": {"b": two, "a": one},
        "another name": {"a": one, "c": two},
        "one less": {"a": one},
        "one more": {"a": one, "b": two, "c": []},
        "an OrderedDict": OrderedDict(a=one, b=two),
        "numbers as keys": {0: one, 1: two},
        "digits as keys": {"0": one, "1": two},
        "a list": [one, two],
        "a tuple": (one, two),
        "a named tuple": Point(one, two),
        "another class": namedtuple("Pair", ["x", "y"])(one, two),
        "a dataclass": Layer(one, two),
        "a named tuple of this name": namedtuple("Layer", ["weight", "bias"])(one, two),
        "deeper": {"a": [one], "b": two},
        "a path as a key": {"a[0]": one, "b": two},
    }


@pytest.mark.api("own.flat")
def test_layouts_are_equal_or_told_apart():
    layouts = {name: Layout.of(tree) for name, tree in variants().items()}
    assert len({layout.hash for layout in layouts.values()}) == len(layouts)
    assert len(set(layouts.values())) == len(layouts)
    for name, tree in variants().items():
        flat = Flat.of(tree)
        assert flat.layout == layouts[name]
        assert hash(flat.layout) == hash(layouts[name])
        assert flat.layout != flat.layout.hash
        flat.check(layouts[name])
        flat.check(layouts[name].hash)
        for other, layout in layouts.items():
            if other != name:
                for wrong in (layout, layout.hash, Flat.of(variants()[other])):
                    with pytest.raises(LayoutError):
                        flat.check(wrong)


def test_numbers_and_dtypes_before_a_cast_are_no_part_of_a_layout():
    assert Layout.of({"a": 1.0}) == Layout.of({"a": np.zeros(())})
    assert Layout.of({"a": 1}, cast="f4") == Layout.of({"a": np.float32(2)})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (model(4), r"expected layers\[0\]\.weight with shape \(4, 3\), found layers\[0\]\.weight with shape \(4, 4\)$"),
        (model(dtype=np.float64), "expected dtype float32, found float64$"),
        ({**model(), "head": np.float32(1)}, r"expected nothing more, found head with shape \(\)$"),
        ({"layers": model()["layers"]}, "expected norm as named tuple Point, found nothing more$"),
        (list(model().values()), "expected the root as dict, found the root as list$"),
    ],
)
def test_the_first_path_that_differs_is_named(other, message):
    flat, theirs = Flat.of(model()), Flat.of(other)
    for use in (flat.check, flat.tree, flat.layout.check):
        with pytest.raises(LayoutError, match=message):
            use(theirs)
    with pytest.raises(LayoutError, match=message):
        flat.layout.buffer(other)
    with pytest.raises(LayoutError, match=f"expected the hash {flat.layout.hash}, found {theirs.layout.hash}"):
        flat.check(theirs.layout.hash)
    assert issubclass(LayoutError, ValueError)


def test_only_layouts_are_compared():
    flat = Flat.of(1.0)
    for wrong in (None, 1, flat.buffer):
        with pytest.raises(TypeError, match="a Layout, a Flat or a hash, not"):
            flat.check(wrong)


def test_hashes_do_not_depend_on_the_process():
    code = """
        import dataclasses, sys
        import numpy as np
        from sooner.util.flat import Flat, Layout
        @dataclasses.dataclass
        class Layer:
            weight: object
            bias: object
        tree = {"layers": [Layer(np.ones((2, 3)), 1.0)], "a.b": (np.zeros(0), {7: np.ones(1)}), "größe": 2.0}
        assert "torch" not in sys.modules
        print(hash("a"), Layout.of(tree).hash, Flat.of(tree).layout.hash)
    """
    tree = {"layers": [Layer(np.ones((2, 3)), 1.0)], "a.b": (np.zeros(0), {7: np.ones(1)}), "größe": 2.0}
    here = Layout.of(tree).hash
    hashes = []
    for seed in ("1", "2"):
        done = run_driver(code, env={**os.environ, "PYTHONHASHSEED": seed})
        text_hash, *found = done.stdout.split()
        assert found == [here, here]
        hashes.append(text_hash)
    assert hashes[0] != hashes[1]
    assert len(here) == 32
    assert int(here, 16) > 0


# --- on the
# way ---


def test_the_buffer_is_pickled_out_of_band():
    flat = Flat.of({"a": np.zeros(100_000), "b": np.ones(3)})
    buffers = []
    data = pickle.dumps(flat, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 2_000
    assert [buffer.raw().nbytes for buffer in buffers] == [flat.buffer.nbytes]
    assert np.shares_memory(pickle.loads(data, buffers=buffers).buffer, flat.buffer)
    twin = copy.deepcopy(flat)
    twin.buffer[0] = 5
    assert flat.buffer[0] == 0
    assert twin.layout == flat.layout


@pytest.mark.api("own.flat")
def test_a_flat_through_the_store(shared_session):
    ref = sooner.put(Flat.of({"a": np.zeros(100_000), "b": Layer(np.ones(3), 2.0)}))
    flat = sooner.get(ref, timeout=WAIT)
    assert not flat.buffer.flags.writeable
    back = flat.tree()
    assert back["b"].weight.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        back["b"].weight[0] = 2
    own = sooner.get(ref, timeout=WAIT, copy=True)
    own.tree()["b"].weight[0] = 2
    assert own.buffer[100_000] == 2
    assert sooner.get(ref, timeout=WAIT).buffer[100_000] == 1


@pytest.mark.api("own.flat")
def test_steps_of_training_in_tasks(shared_session):
    @sooner.remote
    def gradient(layout, weights, factor):
        tree = layout.tree(weights)
        first, second = tree["layers"]
        assert not first.weight.flags.writeable
        layers = [Layer(factor * first.weight, first.bias), Layer(second.weight, second.bias)]
        return layout.buffer({"layers": layers, "norm": tree["norm"]})

    flat = Flat.of(model())
    weights = sooner.put(flat.buffer)
    refs = [gradient.remote(flat.layout, weights, np.float32(factor)) for factor in (1, 2)]
    total = sum(sooner.get(refs, timeout=WAIT))
    back = flat.tree(total)
    assert np.array_equal(back["layers"][0].weight, 3 * model()["layers"][0].weight)
    assert np.array_equal(back["layers"][1].weight, 2 * model()["layers"][1].weight)
    assert type(back["norm"]) is Point


@pytest.mark.api("own.flat")
def test_a_worker_with_another_model_is_told_so(shared_session):
    @sooner.remote
    def gradient(layout):
        return layout.buffer(model(width=5))

    @sooner.remote
    def make():
        return Flat.of(model(width=5))

    flat = Flat.of(model())
    message = r"expected layers\[0\]\.weight with shape \(4, 3\), found layers\[0\]\.weight with shape \(4, 5\)"
    with pytest.raises(LayoutError, match=message):
        sooner.get(gradient.remote(flat.layout), timeout=WAIT)
    with pytest.raises(LayoutError, match=message):
        flat.tree(sooner.get(make.remote(), timeout=WAIT))


def test_the_example_and_the_names():
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted == 3
    assert sooner.util.flat is module
    flat = Flat.of(model())
    assert repr(flat) == f"<Flat of <Layout {flat.layout.hash}: 27 x float32, 6 leaves>>"
