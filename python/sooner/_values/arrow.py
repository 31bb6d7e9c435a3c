"""Pickling of Arrow's tables and arrays: a slice of a table does not take the table along.

pyarrow pickles whole buffers, of which a slice is only a part. Where the buffers are much larger than the
slice, the slice is written in Arrow's stream format instead, which cuts buffers. Reading it makes no copy.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

# Unused bytes that a value may take along, beside as many as it uses.
_SPARE_BYTES = 4 << 10


@functools.cache
def reducers() -> dict[type, Callable[[Any], Any]]:
    """The reducers by class, for `pickle`, which looks for exact classes."""
    table: dict[type, Callable[[Any], Any]] = {
        pa.Table: _reduce_table,
        pa.RecordBatch: _reduce_batch,
        pa.ChunkedArray: _reduce_chunks,
    }
    table.update(dict.fromkeys(_subclasses(pa.Array), _reduce_array))
    return table


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    subclasses: list[type[Any]] = cls.__subclasses__()
    for subclass in subclasses:
        if not issubclass(subclass, pa.ExtensionArray):
            yield subclass
            yield from _subclasses(subclass)


def _reduce_table(table: Any) -> Any:
    if not _takes_more(table) or any(map(_is_extended, table.schema.types)):
        return table.__reduce_ex__(5)
    return _read_table, (_stream(table),)


def _reduce_batch(batch: Any) -> Any:
    if not _takes_more(batch) or any(map(_is_extended, batch.schema.types)):
        return batch.__reduce_ex__(5)
    return _read_batch, (_stream(batch),)


def _reduce_chunks(chunks: Any) -> Any:
    if not _takes_more(chunks) or _is_extended(chunks.type):
        return chunks.__reduce_ex__(5)
    return _read_chunks, (_stream(pa.table([chunks], names=[""])),)


def _reduce_array(array: Any) -> Any:
    if not _takes_more(array) or _is_extended(array.type):
        return array.__reduce_ex__(5)
    return _read_array, (_stream(pa.record_batch([array], names=[""])),)


def _takes_more(value: Any) -> bool:
    """Whether the buffers of a value hold much more than it uses of them."""
    held = value.get_total_buffer_size()
    return bool(held > 2 * value.nbytes + _SPARE_BYTES)


def _is_extended(kind: Any) -> bool:
    """Whether a type is or holds one that users have defined: the stream format needs those registered."""
    if isinstance(kind, pa.BaseExtensionType):
        return True
    if pa.types.is_dictionary(kind):
        return _is_extended(kind.value_type)
    return any(_is_extended(kind.field(index).type) for index in range(kind.num_fields))


def _stream(value: Any) -> pickle.PickleBuffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    return pickle.PickleBuffer(sink.getvalue())


def _read_table(buffer: Any) -> Any:
    return pa.ipc.open_stream(pa.py_buffer(buffer)).read_all()


def _read_batch(buffer: Any) -> Any:
    with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
        return reader.read_next_batch()


def _read_chunks(buffer: Any) -> Any:
    return _read_table(buffer).column(0)


def _read_array(buffer: Any) -> Any:
    return _read_batch(buffer).column(0)
