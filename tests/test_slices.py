"""What is a part of something larger travels without the rest of it."""

from __future__ import annotations

import numpy as np
import pytest
from support import WAIT

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")

_ROWS = 300_000
_SMALL = 20_000


def size_of(value):
    ref = sooner.put(value)
    (found,) = sooner.experimental.get_local_object_locations([ref]).values()
    return found["object_size"], sooner.get(ref, timeout=WAIT)


@pytest.fixture(scope="module")
def table():
    pa = pytest.importorskip("pyarrow")
    return pa.table(
        {
            "number": np.arange(_ROWS),
            "text": pa.array([f"row {n}" for n in range(_ROWS)]),
            "list": pa.array([[n, n] for n in range(_ROWS)]),
            "maybe": pa.array([None if n % 3 else n for n in range(_ROWS)]),
            "struct": pa.array([{"a": n} for n in range(_ROWS)]),
        }
    )


def test_slices_of_arrays():
    whole = np.arange(_ROWS * 4).reshape(_ROWS, 4)
    for part in (whole[5:15], whole[5:15, 1], whole[::50_000], whole.T[:, :10], whole[-1], whole[7:7]):
        size, got = size_of(part)
        assert size < _SMALL
        assert np.array_equal(got, part)


@pytest.mark.api("values.slices")
def test_slices_of_arrow_tables(table):
    size, got = size_of(table.slice(1_000, 10))
    assert size < _SMALL
    assert got.equals(table.slice(1_000, 10))
    size, got = size_of(table.to_batches()[0].slice(5, 3))
    assert size < _SMALL
    assert got.to_pylist() == table.to_batches()[0].slice(5, 3).to_pylist()
    size, got = size_of(table.slice(3, 0))
    assert size < _SMALL
    assert got.num_rows == 0
    assert got.schema == table.schema
    size, got = size_of({"inside": [table.slice(_ROWS - 1)]})
    assert size < _SMALL
    assert got["inside"][0].to_pylist() == table.slice(_ROWS - 1).to_pylist()


def test_slices_of_arrow_columns(table):
    for name in table.column_names:
        column = table.column(name).slice(17, 4)
        size, got = size_of(column)
        assert size < _SMALL
        assert got.equals(column)
        size, got = size_of(column.chunk(0))
        assert size < _SMALL
        assert got.equals(column.chunk(0))
        assert type(got) is type(column.chunk(0))


def test_whole_tables_are_not_copied(table):
    ref = sooner.put(table)
    first, again = sooner.get(ref, timeout=WAIT), sooner.get(ref, timeout=WAIT)
    assert first.equals(table)
    # The numbers lie in the store.
    address = [t.column("number").chunk(0).buffers()[1].address for t in (first, again)]
    assert address[0] == address[1]


def test_slices_in_arguments_returns_and_closures(table):
    part = table.slice(100, 2)
    expected = part.to_pylist()

    @sooner.remote
    def echo(given):
        assert given.get_total_buffer_size() < _SMALL
        assert part.get_total_buffer_size() < _SMALL
        return given.slice(1)

    got = sooner.get(echo.remote(part), timeout=WAIT)
    assert got.to_pylist() == expected[1:]
    assert got.get_total_buffer_size() < _SMALL


def test_slices_of_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": np.arange(_ROWS), "s": [f"row {n}" for n in range(_ROWS)]})
    frame["c"] = frame["x"].astype("float64")
    part = frame.iloc[50:60]
    size, got = size_of(part)
    assert size < _SMALL
    pd.testing.assert_frame_equal(got, part)


def test_types_of_users_stay_what_they_are(table):
    pa = pytest.importorskip("pyarrow")
    size, got = size_of(pa.array(["a", "b", "a"] * 10_000).dictionary_encode().slice(4, 2))
    assert size < _SMALL
    assert got.to_pylist() == ["b", "a"]
    marked = pa.ExtensionArray.from_storage(_Marked(), pa.array(range(50_000)))
    part = pa.table({"m": marked}).slice(2, 3)
    _, got = size_of(part)
    assert got.schema.field("m").type == _Marked()
    assert got.column("m").to_pylist() == part.column("m").to_pylist()


try:
    import pyarrow as pa

    class _Marked(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int64(), "sooner.test.marked")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            return cls()
except ImportError:
    pass
