"""Ids as values."""

from __future__ import annotations

import pickle

import pytest

import sooner
from sooner import ids

CLASSES = [value for value in vars(ids).values() if isinstance(value, type) and issubclass(value, ids.BaseID)]


@pytest.mark.api("ids")
@pytest.mark.parametrize("cls", CLASSES)
def test_round_trips(cls):
    made = cls.from_random()
    assert cls.from_binary(made.binary()) == made == cls.from_hex(made.hex())
    assert pickle.loads(pickle.dumps(made)) == made
    assert len(made.binary()) == cls.size()
    assert hash(made) == hash(cls(made.binary()))
    assert made.hex() in repr(made)
    assert not made.is_nil()
    assert cls.nil().is_nil()
    assert made != cls.nil()


@pytest.mark.api("ids")
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("wrong", [b"", b"1" * 99, "text", 3, None])
def test_wrong_bytes(cls, wrong):
    with pytest.raises(ValueError, match=r"has \d+ bytes"):
        cls(wrong)


@pytest.mark.api("ids")
@pytest.mark.parametrize("wrong", ["", "zz" * 16, "00", None, 5])
def test_wrong_text(wrong):
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        ids.TaskID.from_hex(wrong)


def test_classes_are_not_mixed():
    assert ids.TaskID.nil() != ids.ActorID.nil()


@pytest.mark.api("ids")
def test_the_engine_shows_the_same_text(shared_session):
    @sooner.remote
    def own():
        context = sooner.get_runtime_context()
        return context.get_task_id(), context.get_node_id(), context.get_worker_id(), context.get_job_id()

    ref = own.remote()
    task, node, worker, job = sooner.get(ref)
    assert sooner.TaskID.from_hex(task) == sooner.TaskID.from_hex(ref.task_id())
    for cls, text in ((sooner.NodeID, node), (sooner.WorkerID, worker), (sooner.JobID, job)):
        assert cls.from_hex(text).hex() == text
    assert sooner.ObjectRef.size() == len(ref.binary())
