"""News of actors: their end for `wait` and `await`, and how often they began anew."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest
from support import WAIT, poll, stop

import sooner
from sooner.exceptions import ActorDiedError
from sooner.util import ended, incarnation


@sooner.remote(num_cpus=0)
class Worker:
    def pid(self):
        return os.getpid()

    def exit(self):
        os._exit(3)

    def leave(self):
        sooner.actor.exit_actor()

    def block(self, seconds):
        threading.Event().wait(seconds)


@sooner.remote(num_cpus=0)
class Failing:
    def __init__(self):
        raise ValueError("not today")


def test_the_end_of_an_actor_is_news_for_wait(sooner_session):
    first, second = Worker.remote(), Worker.remote()
    ends = [ended(first), ended(second)]
    sooner.get([first.pid.remote(), second.pid.remote()])
    assert sooner.wait(ends, num_returns=2, timeout=0)[0] == []
    second.exit.remote()
    assert sooner.wait(ends, timeout=WAIT)[0] == [ends[1]]
    with pytest.raises(ActorDiedError, match="status 3"):
        sooner.get(ends[1])
    assert sooner.get(first.pid.remote()) != os.getpid()


@pytest.mark.parametrize("how", ["kill", "exit_actor", "constructor", "signal"])
def test_every_way_to_end_is_news(sooner_session, how):
    actor = Failing.remote() if how == "constructor" else Worker.remote()
    end = ended(actor)
    if how == "kill":
        sooner.kill(actor)
    elif how == "exit_actor":
        actor.leave.remote()
    elif how == "signal":
        os.kill(sooner.get(actor.pid.remote()), signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        sooner.get(end, timeout=WAIT)


def test_a_busy_and_a_stopped_actor_are_not_asked(sooner_session):
    actor = Worker.remote()
    pid = sooner.get(actor.pid.remote())
    actor.block.remote(60)
    stop(pid)
    end = ended(actor)
    assert incarnation(actor) == 0
    sooner.kill(actor)
    assert sooner.wait([end], timeout=WAIT)[0] == [end]


def test_an_actor_that_is_dead_already(sooner_session):
    actor = Worker.remote()
    sooner.get(actor.pid.remote())
    sooner.kill(actor)
    sooner.wait([ended(actor)], timeout=WAIT)
    again = ended(actor)
    with pytest.raises(ActorDiedError):
        sooner.get(again, timeout=WAIT)
    # Who gets the reference from here learns the same.
    with pytest.raises(ActorDiedError):
        sooner.get(sooner.remote(lambda refs: sooner.get(refs[0])).remote([again]), timeout=WAIT)


def test_there_is_one_reference_for_an_actor_as_long_as_it_lives(sooner_session):
    actor = Worker.remote()
    assert ended(actor) == ended(actor)
    other = Worker.remote()
    assert ended(actor) != ended(other)


def test_it_does_not_keep_the_actor(sooner_session):
    actor = Worker.remote()
    pid = sooner.get(actor.pid.remote())
    end = ended(actor)
    del actor
    with pytest.raises(ActorDiedError, match="handle"):
        sooner.get(end, timeout=WAIT)
    poll("its process ends", lambda: not os.path.exists(f"/proc/{pid}"))


def test_it_can_be_dropped_and_asked_for_again(sooner_session):
    actor = Worker.remote()
    sooner.get(actor.pid.remote())
    for _ in range(100):
        ended(actor)
    end = ended(actor)
    assert sooner.wait([end], timeout=0)[0] == []
    sooner.kill(actor)
    with pytest.raises(ActorDiedError):
        sooner.get(end, timeout=WAIT)


def test_it_can_be_awaited(sooner_session):
    async def first_end():
        actors = [Worker.remote() for _ in range(3)]
        ends = {asyncio.ensure_future(_of(ended(actor))): number for number, actor in enumerate(actors)}
        actors[1].exit.remote()
        done, rest = await asyncio.wait(ends, timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
        for other in rest:
            other.cancel()
        return [(ends[one], type(one.exception())) for one in done]

    async def _of(ref):
        return await ref

    assert asyncio.run(first_end()) == [(1, ActorDiedError)]


def test_other_processes_learn_of_it_too(sooner_session):
    actor = Worker.remote()
    pid = sooner.get(actor.pid.remote())

    @sooner.remote(num_cpus=0, num_returns="streaming")
    def watch(actor):
        end = ended(actor)
        yield sooner.wait([end], timeout=0)[0] == []
        try:
            sooner.get(end, timeout=WAIT)
        except ActorDiedError as error:
            yield str(error)

    seen = watch.remote(actor)
    assert sooner.get(next(seen), timeout=WAIT)
    os.kill(pid, signal.SIGKILL)
    assert "signal 9" in sooner.get(next(seen), timeout=WAIT)


def test_a_restart_is_no_end_and_a_new_incarnation(sooner_session):
    actor = Worker.options(max_restarts=2).remote()
    end = ended(actor)
    for number in range(3):
        pid = poll("it is called", lambda: _pid(actor))
        assert incarnation(actor) == number
        assert sooner.wait([end], timeout=0)[0] == []
        os.kill(pid, signal.SIGKILL)
        poll("it has ended", lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
    with pytest.raises(ActorDiedError):
        sooner.get(end, timeout=WAIT)
    assert incarnation(actor) == 2


def _pid(actor):
    try:
        return sooner.get(actor.pid.remote(), timeout=WAIT)
    except sooner.exceptions.ActorUnavailableError:
        return None


def test_a_process_that_never_called_the_actor_knows_its_incarnation(sooner_session):
    actor = Worker.options(max_restarts=1, max_task_retries=-1).remote()
    os.kill(sooner.get(actor.pid.remote()), signal.SIGKILL)
    sooner.get(actor.pid.remote(), timeout=WAIT)
    # The handle is in a list: as an argument by itself it would be the same.
    assert sooner.get(sooner.remote(lambda actors: incarnation(actors[0])).remote([actor])) == incarnation(actor)


def test_what_is_no_actor_is_refused(sooner_session):
    for wrong in (None, 3, Worker, sooner.put(1)):
        with pytest.raises(TypeError, match=r"sooner.util.ended\(\) takes an actor handle"):
            ended(wrong)
        with pytest.raises(TypeError, match=r"sooner.util.incarnation\(\) takes an actor handle"):
            incarnation(wrong)


def test_a_handle_of_an_earlier_session_is_refused(sooner_session):
    actor = Worker.remote()
    end = ended(actor)
    sooner.shutdown()
    with pytest.raises(ValueError, match="session that has ended"):
        ended(actor)
    with pytest.raises(ValueError, match="session that has ended"):
        incarnation(actor)
    with pytest.raises(ValueError, match="session that has ended"):
        sooner.get(end)


def test_in_local_mode():
    with sooner.init(local_mode=True):
        actor = Worker.remote()
        end = ended(actor)
        assert (incarnation(actor), sooner.wait([end], timeout=0)[0]) == (0, [])
        sooner.kill(actor)
        with pytest.raises(ActorDiedError):
            sooner.get(end, timeout=WAIT)
