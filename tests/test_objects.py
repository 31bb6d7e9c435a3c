"""Objects: every kind of value there and back, sharing without copies, references inside values,
lifetimes.
"""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import gc
import math
import mmap
import os
import pathlib
import pickle
import re
import sys
import uuid
import weakref

import numpy as np
import pytest
from support import WAIT, memfds_of, poll, run_driver

import sooner
from sooner.util import state

pytestmark = pytest.mark.usefixtures("shared_session")

# Above the inline limit of 100 KiB by far.
LARGE = 1 << 20


@dataclasses.dataclass
class Held:
    ref: object


@sooner.remote
def identity(value):
    return value


@sooner.remote
def boxed(box):
    """Its argument, as a reference gave it."""
    return sooner.get(box[0])


def there_and_back(value):
    """The value by put, by a task's argument and result, inside a list, and by a reference as an argument."""
    yield sooner.get(sooner.put(value), timeout=WAIT)
    yield sooner.get(identity.remote(value), timeout=WAIT)
    yield sooner.get(identity.remote([value]), timeout=WAIT)[0]
    yield sooner.get(identity.remote(sooner.put(value)), timeout=WAIT)
    yield sooner.get(boxed.remote([sooner.put(value)]), timeout=WAIT)


def nested_tuple(depth):
    value = 1
    for _ in range(depth):
        value = (value,)
    return value


class Color(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


class MyInt(int):
    pass


class MyStr(str):
    __slots__ = ()


class MyBytes(bytes):
    pass


class MyFloat(float):
    pass


class MyTuple(tuple):
    __slots__ = ()


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Data:
    x: int
    y: list


PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    255,
    256,
    2**31,
    -(2**31) - 1,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**63) - 1,
    2**64,
    10**4000,
    -(10**4000),
    0.0,
    1.5,
    math.inf,
    -math.inf,
    sys.float_info.min,
    5e-324,
    1e308,
    3 + 4j,
    "",
    "text",
    "\0",
    "a\0b",
    "ü€𝄞",
    "\ud800",
    "ok\udcffno",
    "x" * 65_536,
    "x" * 65_537,
    "€" * 100_000,
    b"",
    b"bytes",
    b"\0" * 65_536,
    b"\0" * 65_537,
    b"\xff" * LARGE,
    (),
    (1,),
    (1, "a", None, 2.5, b"b"),
    nested_tuple(4),
    nested_tuple(5),
    nested_tuple(9),
    tuple(range(31)),
    tuple(range(32)),
    tuple(range(33)),
    tuple(range(300)),
    (2**70, "\ud800"),
    [],
    [[]],
    [1, [2, [3]]],
    {},
    {"a": 1, 2: "b", None: (3,)},
    set(),
    {1, "a"},
    frozenset(),
    frozenset({1, 2}),
    ...,
    NotImplemented,
    int,
    len,
    range(0),
    range(1, 10, 3),
    slice(1, 2, 3),
]

RICH = [
    bytearray(b"mutable"),
    bytearray(),
    bytearray(LARGE),
    array.array("d", [1.0, 2.0]),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    dt.timedelta(days=-1, microseconds=3),
    uuid.UUID(int=5),
    pathlib.PurePosixPath("/a/b"),
    re.compile(r"a+", re.IGNORECASE),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.Counter("aab"),
    collections.deque([1, 2], maxlen=5),
    collections.defaultdict(list, {"k": [1]}),
    Color.RED,
    Flags.A | Flags.B,
    MyInt(3),
    MyInt(2**80),
    MyStr("s"),
    MyBytes(b"b"),
    MyFloat(2.5),
    MyTuple((1, 2)),
    Pair(1, "b"),
    Pair(Pair(1, 2), ()),
    Data(1, [2]),
    ValueError("as a value"),
    np.int64(3),
    np.float32(1.5),
    np.bool_(True),
    np.str_("s"),
    np.datetime64("2024-01-01"),
]


@pytest.mark.api("put")
@pytest.mark.parametrize("value", PLAIN + RICH, ids=lambda v: type(v).__name__)
def test_values_come_back_equal_and_of_the_same_class(value):
    for back in there_and_back(value):
        assert type(back) is type(value)
        if isinstance(value, BaseException):
            assert back.args == value.args
        else:
            assert back == value


def test_booleans_and_none_stay_singletons():
    for value in (None, True, False, ..., NotImplemented):
        for back in there_and_back(value):
            assert back is value


def test_not_a_number_and_the_sign_of_zero():
    for back in there_and_back((math.nan, -0.0, 0.0)):
        assert math.isnan(back[0])
        assert [math.copysign(1, zero) for zero in back[1:]] == [-1, 1]


def test_one_and_true_and_one_point_zero_are_not_mixed_up():
    for back in there_and_back((1, True, 1.0)):
        assert [type(item) for item in back] == [int, bool, float]


def test_namedtuples_keep_their_fields_inside_tuples():
    for back in there_and_back((1, Pair(2, 3))):
        assert back[1].b == 3


def test_attributes_of_subclasses_stay():
    value = MyInt(7)
    value.unit = "m"
    for back in there_and_back((value,)):
        assert back[0].unit == "m"


def test_self_referential_values():
    ring = [1]
    ring.append(ring)
    for back in there_and_back(ring):
        assert back[1] is back
    node = {}
    node["self"] = (node,)
    for back in there_and_back(node):
        assert back["self"][0] is back


def test_shared_parts_stay_shared():
    part = ["shared"]
    for back in there_and_back([part, part]):
        assert back[0] is back[1]


def test_deep_values():
    value = ()
    for _ in range(200):
        value = (value,)
    for back in there_and_back(value):
        assert back == value


def test_a_value_with_many_parts():
    value = {str(n): (n, [n]) for n in range(50_000)}
    assert sooner.get(sooner.put(value)) == value


@pytest.mark.parametrize("size", [0, 1, 8, 4095, 102_399, 102_400, 102_401, 1_000_003])
def test_bytes_of_sizes_around_the_limits(size):
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    for back in there_and_back(value):
        assert back == value


def test_lambdas_local_classes_and_modules_travel():
    class Local:
        def __init__(self, x):
            self.x = x

        def double(self):
            return self.x * 2

    assert sooner.get(identity.remote(lambda x: x + 1), timeout=WAIT)(1) == 2
    assert sooner.get(identity.remote(Local(4)), timeout=WAIT).double() == 8
    assert sooner.get(identity.remote(math), timeout=WAIT) is math


def test_recursive_closures_travel():
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    assert sooner.get(sooner.remote(factorial).remote(10), timeout=WAIT) == 3_628_800


@pytest.mark.api("put")
def test_put_stores_a_copy():
    value = [1]
    ref = sooner.put(value)
    value.append(2)
    assert sooner.get(ref) == [1]
    sooner.get(ref).append(3)
    assert sooner.get(ref) == [1]


@pytest.mark.api("put")
def test_put_of_an_array_stores_a_copy():
    source = np.zeros(LARGE, dtype=np.uint8)
    ref = sooner.put(source)
    source[:] = 7
    assert not sooner.get(ref).any()


ARRAYS = {
    "empty": np.empty(0),
    "scalar": np.array(3.5),
    "small": np.arange(10),
    "large": np.arange(LARGE, dtype=np.float64),
    "fortran": np.asfortranarray(np.arange(LARGE, dtype=np.int32).reshape(1024, -1)),
    "strided": np.arange(LARGE)[::3],
    "reversed": np.arange(LARGE)[::-1],
    "bool": np.arange(LARGE) % 2 == 0,
    "complex": np.ones(LARGE, dtype=np.complex64),
    "big endian": np.arange(LARGE, dtype=">i4"),
    "text": np.array(["a", "bcd"] * 100_000),
    "dates": np.arange("2000-01-01", "2001-01-01", dtype="datetime64[h]"),
    "structured": np.zeros(100_000, dtype=[("x", "f8"), ("y", "i4")]),
    "objects": np.array([{"a": 1}, None, "x"], dtype=object),
    "no rows": np.empty((0, 5)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_arrays(name):
    value = ARRAYS[name]
    for back in there_and_back(value):
        assert back.dtype == value.dtype
        assert back.shape == value.shape
        assert (back == value).all()


@pytest.mark.api("values.zero_copy")
def test_large_arrays_are_read_only_views():
    ref = sooner.put(np.zeros(LARGE))
    view = sooner.get(ref)
    assert not view.flags.writeable
    assert not view.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True
    assert not sooner.get(ref).any()


@pytest.mark.api("values.zero_copy")
def test_views_share_one_copy():
    ref = sooner.put(np.arange(LARGE))
    first, second = sooner.get(ref), sooner.get(ref)
    assert first is not second
    assert np.shares_memory(first, second)
    assert first.ctypes.data % 64 == 0


@pytest.mark.api("values.zero_copy")
def test_a_view_lies_in_the_shared_memory_of_the_node():
    address = sooner.get(sooner.put(np.arange(LARGE))).ctypes.data
    spans = [line.split()[0].split("-") for line in memfds_of("self")]
    assert any(int(low, 16) <= address < int(high, 16) for low, high in spans)


def test_a_task_reads_an_argument_in_place_and_cannot_write_it():
    @sooner.remote
    def look(value):
        spans = [line.split()[0].split("-") for line in memfds_of("self")]
        address = value.ctypes.data
        in_place = any(int(low, 16) <= address < int(high, 16) for low, high in spans)
        return in_place, value.flags.writeable, float(value.sum())

    ref = sooner.put(np.ones(LARGE))
    assert sooner.get([look.remote(ref) for _ in range(4)], timeout=WAIT) == [(True, False, LARGE)] * 4


def test_a_view_outlives_its_ref():
    expected = np.random.default_rng(1).random(LARGE)
    ref = sooner.put(expected)
    view = sooner.get(ref)
    part = view[100:200]
    del ref, view
    gc.collect()
    # What is put now must not land in the memory of the view.
    others = [sooner.put(np.full(LARGE, n)) for n in range(20)]
    assert (part == expected[100:200]).all()
    del others


def test_a_view_in_an_actor_outlives_the_drivers_ref():
    @sooner.remote
    class Keeper:
        def keep(self, value):
            self.value = value

        def total(self):
            return float(self.value.sum())

    keeper = Keeper.remote()
    ref = sooner.put(np.ones(LARGE))
    sooner.get(keeper.keep.remote(ref), timeout=WAIT)
    del ref
    gc.collect()
    for n in range(20):
        sooner.put(np.full(LARGE, n))
    assert sooner.get(keeper.total.remote(), timeout=WAIT) == LARGE


def test_memory_of_dropped_objects_is_used_again():
    """Far more bytes go through the store than it has."""
    total = int(sooner.cluster_resources()["object_store_memory"])
    piece = np.zeros(total // 8, dtype=np.uint8)
    for n in range(12):
        piece[0] = n
        assert sooner.get(sooner.put(piece))[0] == n


def test_memory_of_dropped_results_is_used_again():
    total = int(sooner.cluster_resources()["object_store_memory"])

    @sooner.remote
    def make(size):
        return np.zeros(size, dtype=np.uint8)

    for _ in range(12):
        assert sooner.get(make.remote(total // 8), timeout=WAIT).nbytes == total // 8


@pytest.mark.api("values.zero_copy")
def test_pickle_5_buffers_are_not_copied():
    class Buffered:
        def __init__(self, data):
            self.data = data

        def __reduce_ex__(self, protocol):
            assert protocol == 5
            return Buffered, (pickle.PickleBuffer(self.data),)

    back = sooner.get(sooner.put(Buffered(b"z" * LARGE)))
    view = memoryview(back.data)
    assert view.readonly
    assert view.nbytes == LARGE
    assert bytes(view[:3]) == b"zzz"
    assert back.data is not sooner.get(sooner.put(1))


def test_many_buffers_in_one_value():
    value = [np.full(n * 100, n) for n in range(200)]
    back = sooner.get(identity.remote(value), timeout=WAIT)
    assert all((a == b).all() for a, b in zip(value, back, strict=True))


def test_an_array_inside_other_values():
    value = {"a": [np.arange(LARGE)], "b": (np.zeros(3), "text")}
    back = sooner.get(sooner.put(value))
    assert (back["a"][0] == value["a"][0]).all()
    assert not back["a"][0].flags.writeable


def test_memoryview_of_a_mapping_is_refused_by_name():
    with mmap.mmap(-1, 4096) as region, pytest.raises(TypeError, match="mmap"):
        sooner.put({"region": region})


@pytest.mark.api("task.arguments", "ref.travel")
def test_refs_inside_values():
    inner = sooner.put("inner")
    outer = sooner.put({"ref": inner, "list": [inner, inner]})
    back = sooner.get(outer)
    assert back["ref"] == inner
    assert back["list"] == [inner, inner]
    assert sooner.get(back["ref"]) == "inner"


@pytest.mark.api("ref.travel")
def test_a_ref_inside_an_object_keeps_its_object():
    outer = sooner.put([sooner.put(np.ones(LARGE))])
    gc.collect()
    for n in range(20):
        sooner.put(np.full(LARGE, n))
    assert sooner.get(sooner.get(outer)[0]).sum() == LARGE


@pytest.mark.api("ref.travel")
def test_a_ref_inside_a_result_keeps_its_object():
    @sooner.remote
    def make():
        return [sooner.put(np.ones(LARGE)), sooner.put("small")]

    outer = make.remote()
    large, small = sooner.get(outer, timeout=WAIT)
    del outer
    gc.collect()
    assert sooner.get(small, timeout=WAIT) == "small"
    assert sooner.get(large, timeout=WAIT).sum() == LARGE


def test_refs_nested_through_many_levels():
    ref = sooner.put("core")
    for _ in range(20):
        ref = sooner.put([ref])
    gc.collect()
    for _ in range(20):
        ref = sooner.get(ref)[0]
    assert sooner.get(ref) == "core"


@pytest.mark.api("ref.travel")
def test_a_borrowed_ref_is_passed_on():
    @sooner.remote
    def last(box):
        return sooner.get(box[0])

    @sooner.remote
    def middle(box):
        return sooner.get(last.remote(box))

    for value in ("small", b"l" * LARGE):
        assert sooner.get(middle.remote([sooner.put(value)]), timeout=WAIT) == value


@pytest.mark.api("ref.travel")
def test_an_actor_keeps_a_borrowed_ref():
    @sooner.remote
    class Shelf:
        def keep(self, box):
            self.box = box

        def read(self):
            return sooner.get(self.box[0])

    shelf = Shelf.remote()
    for value in ("small", b"l" * LARGE):
        ref = sooner.put(value)
        sooner.get(shelf.keep.remote([ref]), timeout=WAIT)
        del ref
        gc.collect()
        assert sooner.get(shelf.read.remote(), timeout=WAIT) == value


@pytest.mark.api("task.closures")
def test_a_ref_captured_by_a_function():
    small, large = sooner.put("small"), sooner.put(np.ones(LARGE))

    @sooner.remote
    def f():
        return sooner.get(small), float(sooner.get(large).sum())

    assert sooner.get([f.remote(), f.remote()], timeout=WAIT) == [("small", LARGE)] * 2


@pytest.mark.api("task.closures")
def test_a_captured_ref_lives_as_long_as_the_function():
    ref = sooner.put(np.ones(LARGE))

    @sooner.remote
    def f():
        return float(sooner.get(captured[0]).sum())

    captured = [ref]
    assert sooner.get(f.remote(), timeout=WAIT) == LARGE
    del ref
    captured.clear()
    gc.collect()
    assert sooner.get(f.remote(), timeout=WAIT) == LARGE


def test_a_pending_ref_travels_inside_a_value():
    gate = sooner.put(None)

    @sooner.remote
    def slow(_):
        return "late"

    box = sooner.put([slow.remote(gate)])
    assert sooner.get(boxed.remote([sooner.get(box)[0]]), timeout=WAIT) == "late"


@pytest.mark.api("ref.out_of_band")
def test_out_of_band_pickle_of_a_ref():
    ref = sooner.put("pinned")
    data = pickle.dumps(ref)
    back = pickle.loads(data)
    assert back == ref
    del ref, back
    gc.collect()
    assert sooner.get(pickle.loads(data)) == "pinned"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda ref: dataclasses.replace(Held(ref)).ref])
def test_a_copy_of_a_ref_is_the_ref(copied):
    ref = sooner.put("shared")
    assert copied(ref) is ref
    (held,) = copy.deepcopy([ref])
    assert dataclasses.asdict(Held(held)) == {"ref": ref}
    mine = ref.hex()
    del ref, held
    poll("nothing keeps it", lambda: mine not in {row.object_id for row in state.list_objects()})


@pytest.mark.api("put")
def test_put_of_a_ref_is_refused():
    with pytest.raises(TypeError, match="ObjectRef"):
        sooner.put(sooner.put(1))


@pytest.mark.api("ref.identity", "ref.equality", "ref.owner_address")
def test_identity_of_refs():
    one, two = sooner.put(1), sooner.put(1)
    same = sooner.get(sooner.put([one]))[0]
    assert one != two
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, two, same}) == 2
    assert {one: "x"}[same] == "x"
    assert one != "text"
    assert one.hex() == same.hex() != two.hex()
    assert bytes.fromhex(one.hex()) == one.binary()
    assert one.hex() in repr(one)
    assert not one.is_nil()
    assert len(one.binary()) == sooner.ObjectRef.size()


@pytest.mark.api("ref.identity")
def test_refs_of_one_task_have_its_task_id():
    first, second = identity.options(num_returns=2).remote((1, 2))
    assert first.task_id() == second.task_id() != identity.remote(1).task_id()
    assert first.job_id() == second.job_id()


def test_a_ref_can_be_referenced_weakly():
    ref = sooner.put(1)
    weak = weakref.ref(ref)
    assert weak() is ref
    del ref
    poll("the ref is collected", lambda: gc.collect() >= 0 and weak() is None)


def test_a_ref_cannot_be_iterated_ordered_or_called():
    ref = sooner.put([1])
    with pytest.raises(TypeError):
        iter(ref)
    with pytest.raises(TypeError):
        ref < ref  # noqa: B015
    with pytest.raises(TypeError):
        ref()


def test_values_with_a_finalizer_are_not_kept():
    class Canary:
        pass

    value = Canary()
    weak = weakref.ref(value)
    ref = sooner.put(value)
    task = identity.remote(value)
    sooner.get([ref, task], timeout=WAIT)
    del value
    poll("the engine holds no value", lambda: gc.collect() >= 0 and weak() is None)


def test_ten_thousand_refs_in_one_object():
    refs = [sooner.put(n) for n in range(10_000)]
    back = sooner.get(sooner.put(refs))
    assert back == refs
    assert sooner.get(back[::1000]) == list(range(0, 10_000, 1000))


# --- copies to
# change -------------------------------------------------------------------------------------------------


@pytest.mark.api("own.copy")
@pytest.mark.parametrize("length", [3, 1_000_000], ids=["small", "large"])
def test_a_copy_can_be_changed_and_the_object_stays(length):
    ref = sooner.put({"a": np.zeros(length), "b": np.ones(length)})
    mine = sooner.get(ref, copy=True)
    mine["a"][:] = 5
    mine["b"][-1] = 6
    again = sooner.get(ref)
    assert (again["a"] == 0).all()
    assert (again["b"] == 1).all()
    assert not again["a"].flags.writeable
    assert (mine["a"] == 5).all()
    assert mine["b"][0] == 1


@pytest.mark.api("own.copy")
def test_copies_of_a_list():
    refs = [sooner.put(np.full(100_000, i)) for i in range(3)]
    for i, mine in enumerate(sooner.get(refs, copy=True)):
        mine += 1
        assert (mine == i + 1).all()


@pytest.mark.api("own.copy")
def test_a_copy_outlives_its_reference():
    ref = sooner.put(np.arange(1_000_000))
    mine = sooner.get(ref, copy=True)
    mine[0] = -1
    del ref
    gc.collect()
    # Room for others, which must not be the copy's.
    for _ in range(5):
        sooner.put(np.zeros(1_000_000))
    assert (mine[1:] == np.arange(1, 1_000_000)).all()


@pytest.mark.api("own.take")
def test_take_moves_the_last_reference():
    @sooner.remote
    def zeros():
        return np.zeros(1_000_000)

    ref = zeros.remote()
    mine = sooner.take(ref, timeout=60)
    mine[:] = 3
    for use in (lambda taken: sooner.get([taken]), lambda taken: sooner.put([taken]), identity.remote, sooner.take):
        with pytest.raises((ValueError, TypeError), match="was taken"):
            use(ref)
    with pytest.raises(ValueError, match=r"was taken with sooner.take\(\)"):
        sooner.get(ref)
    del ref
    gc.collect()
    sooner.put(np.ones(1_000_000))
    assert (mine == 3).all()


@pytest.mark.api("own.take")
def test_take_copies_what_others_may_read():
    ref = sooner.put(np.zeros(1_000_000))
    view = sooner.get(ref)
    mine = sooner.take(ref)
    mine[:] = 1
    assert (view == 0).all()
    assert (sooner.get(ref) == 0).all()

    inner = sooner.put(np.zeros(1_000_000))
    outer = sooner.put([inner])
    sooner.take(inner)[:] = 1
    assert (sooner.get(sooner.get(outer)[0]) == 0).all()


def test_take_in_a_task_of_a_borrowed_object():
    @sooner.remote
    def change(refs):
        array = sooner.take(refs[0])
        array[:] = 7
        return float(array.sum())

    ref = sooner.put(np.zeros(1_000_000))
    assert sooner.get(change.remote([ref])) == 7_000_000
    assert (sooner.get(ref) == 0).all()


def test_take_of_an_error_and_of_other_things():
    @sooner.remote
    def fail():
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        sooner.take(fail.remote())
    with pytest.raises(TypeError, match="takes an ObjectRef, not list"):
        sooner.take([sooner.put(1)])
    with pytest.raises(sooner.exceptions.GetTimeoutError):
        sooner.take(sooner.remote(lambda: __import__("time").sleep(3600)).remote(), timeout=0)


# --- references by
# id -------------------------------------------------------------------------------------------------


@pytest.mark.api("ref.from", "ref.call_site")
def test_references_by_id():
    ref = sooner.put([1, 2])
    keep = sooner.put([ref])
    for same in (sooner.ObjectRef.from_hex(ref.hex()), sooner.ObjectRef.from_binary(ref.binary())):
        assert same == ref
        assert sooner.get(same) == [1, 2]
    assert sooner.get(keep)

    @sooner.remote
    def read(text):
        return sooner.get(sooner.ObjectRef.from_hex(text))

    assert sooner.get(read.remote(ref.hex()), timeout=WAIT) == [1, 2]
    nil = sooner.ObjectRef.nil()
    assert nil.is_nil()
    assert not ref.is_nil()
    with pytest.raises(sooner.exceptions.ObjectLostError, match="nil"):
        sooner.get(nil)


@pytest.mark.parametrize("text", ["", "zz", "00" * 19, "é" * 20, "0" * 39])
def test_wrong_ids_are_refused(text):
    with pytest.raises(ValueError, match="40 hexadecimal digits"):
        sooner.ObjectRef.from_hex(text)
    with pytest.raises(ValueError, match="20 bytes"):
        sooner.ObjectRef.from_binary(b"short")


# --- giving objects
# up ------------------------------------------------------------------------------------------------


@pytest.mark.api("values.free")
def test_freed_objects_cannot_be_read_and_give_their_memory_back():
    run_driver("""
        import numpy, pytest, sooner

        sooner.init(num_cpus=1, object_store_memory=64 << 20)
        keep = []
        for _ in range(5):
            ref = sooner.put(numpy.zeros(6_000_000))
            sooner.internal.free(ref)
            sooner.internal.free([ref])
            keep.append(ref)
        with pytest.raises(sooner.exceptions.ObjectFreedError, match="was freed"):
            sooner.get(keep[0])
        ref = sooner.put(numpy.ones(1_000_000))
        view = sooner.get(ref)
        sooner.internal.free(ref)
        other = sooner.put(numpy.zeros(1_000_000))
        assert view.sum() == 1_000_000
    """)


def test_free_refuses_other_things():
    with pytest.raises(TypeError, match="takes ObjectRefs, not int"):
        sooner.internal.free([3])


def test_a_freed_object_that_others_read_stays_for_them():
    inner = sooner.put(np.zeros(100_000))
    outer = sooner.put([inner])
    sooner.internal.free(inner)

    @sooner.remote
    def read(box):
        return float(sooner.get(box[0]).sum())

    assert sooner.get(read.remote(outer), timeout=WAIT) == 0.0


@pytest.mark.api("values.locations")
def test_locations():
    small, large = sooner.put(1), sooner.put(np.zeros(1_000_000))
    found = sooner.experimental.get_object_locations([small, large])
    node = sooner.get_runtime_context().get_node_id()
    assert found[large] == {"node_ids": [node], "object_size": found[large]["object_size"], "did_spill": False}
    assert found[large]["object_size"] > 8_000_000
    assert found[small]["node_ids"] == []


@pytest.mark.api("ref.out_of_band")
@pytest.mark.api("errors.out_of_band")
def test_pickling_references_outside_of_sooner_can_be_forbidden():
    done = run_driver(
        """
        import pickle, sooner

        sooner.init(num_cpus=1)
        ref = sooner.put([1])
        try:
            pickle.dumps(ref)
        except sooner.exceptions.OufOfBandObjectRefSerializationException as error:
            print(error)
        assert sooner.get(sooner.get(sooner.put([ref]))[0]) == [1]
        """,
        env=os.environ | {"SOONER_ALLOW_OUT_OF_BAND_REFS": "0"},
    )
    assert "SOONER_ALLOW_OUT_OF_BAND_REFS=0 forbids" in done.stdout
