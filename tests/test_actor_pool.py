"""ActorPool with several calls at each actor, and with a factory that replaces actors that died.

What every pool does is in `test_util.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support import WAIT, poll, run_driver

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError
from sooner.util import ActorPool

pytestmark = pytest.mark.usefixtures("shared_session")


@sooner.remote(num_cpus=0)
class Worker:
    def echo(self, number):
        return number

    def log(self, number, path):
        with Path(path).open("a") as file:
            file.write(f"{number}\n")
        return number

    def wait_for(self, number, path):
        deadline = time.monotonic() + WAIT
        while not Path(path).exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return number

    def die_at(self, number, *bad):
        if number in bad:
            os._exit(1)
        return number

    def wait_and_die(self, path):
        self.wait_for(0, path)
        os._exit(1)

    def made(self, make):
        return make()


@sooner.remote(num_cpus=0)
class Meeting:
    """Counts how many calls it has at once."""

    def __init__(self):
        self.now = self.most = 0

    async def meet(self, number, path):
        self.now += 1
        self.most = max(self.most, self.now)
        while not Path(path).exists():
            await asyncio.sleep(0.005)
        self.now -= 1
        return number

    async def counts(self):
        return self.now, self.most


@sooner.remote(num_cpus=0)
class Broken:
    def __init__(self):
        raise ValueError("no such device")

    def echo(self, number):
        return number


class Factory:
    """Makes workers, and counts its calls. First it raises what it was given."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return Worker.remote()


def echo(actor, number):
    return actor.echo.remote(number)


def die_at(*bad):
    return lambda actor, number: actor.die_at.remote(number, *bad)


def drain(get_next):
    """What is left, in its order: a value, or the type of what was raised."""
    found = []
    while True:
        try:
            found.append(get_next())
        except StopIteration:
            return found
        except Exception as error:
            found.append(type(error))


# --- in_flight ---------------------------------------------------------------------------------------------


@pytest.mark.api("own.actor_pool")
def test_the_next_call_is_at_the_actor_when_one_ends(tmp_path):
    go, log = tmp_path / "go", tmp_path / "log"
    pool = ActorPool([Worker.remote()], in_flight=2)
    sent = []

    def call(actor, number):
        sent.append(number)
        return actor.wait_for.remote(number, str(go)) if number == 0 else actor.log.remote(number, str(log))

    for number in range(3):
        pool.submit(call, number)
    assert sent == [0, 1]
    go.touch()
    # Nobody asks the pool meanwhile.
    poll("the second call has run", lambda: log.exists() and log.read_text() == "1\n")
    assert sent == [0, 1]
    assert drain(pool.get_next) == [0, 1, 2]
    assert log.read_text() == "1\n2\n"


@pytest.mark.api("own.actor_pool")
@pytest.mark.parametrize("use", [ActorPool.map, ActorPool.map_unordered])
def test_each_actor_has_so_many_calls_and_no_more(tmp_path, use):
    go = tmp_path / "go"
    actors = [Meeting.remote() for _ in range(2)]
    results = use(ActorPool(actors, in_flight=3), lambda actor, n: actor.meet.remote(n, str(go)), range(10))
    for actor in actors:
        poll("three calls have met", lambda actor=actor: sooner.get(actor.counts.remote())[0] == 3)
    go.touch()
    assert sorted(results) == list(range(10))
    assert [sooner.get(actor.counts.remote()) for actor in actors] == [(0, 3), (0, 3)]


def test_a_call_goes_to_the_least_busy_actor(tmp_path):
    go = tmp_path / "go"
    busy, quick = Worker.remote(), Worker.remote()
    pool = ActorPool([busy, quick], in_flight=2)
    chosen = []

    def call(actor, number):
        chosen.append("busy" if actor == busy else "quick")
        return actor.wait_for.remote(number, str(go)) if actor == busy else actor.echo.remote(number)

    for number in range(4):
        pool.submit(call, number)
    assert chosen == ["busy", "quick"] * 2
    assert [pool.get_next_unordered(), pool.get_next_unordered()] == [1, 3]
    for number in range(4, 7):
        pool.submit(call, number)
    # The last one waits.
    assert chosen[4:] == ["quick", "quick"]
    assert {pool.get_next_unordered() for _ in range(3)} == {4, 5, 6}
    assert chosen[6:] == ["quick"]
    go.touch()
    assert drain(pool.get_next) == [0, 2]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_actors_that_are_equally_busy_take_turns(in_flight):
    actors = [Worker.remote() for _ in range(3)]
    pool = ActorPool(actors, in_flight)
    chosen = []

    def call(actor, number):
        chosen.append(actors.index(actor))
        return actor.echo.remote(number)

    for number in range(7):
        pool.submit(call, number)
        assert pool.get_next() == number
    assert chosen == [0, 1, 2, 0, 1, 2, 0]


def test_results_keep_their_order(tmp_path):
    go = tmp_path / "go"
    pool = ActorPool([Worker.remote() for _ in range(2)], in_flight=3)

    def call(actor, number):
        return actor.wait_for.remote(number, str(go)) if number == 0 else actor.echo.remote(number)

    results = pool.map(call, range(20))
    # It is at the other actor, and ended long before the first.
    assert pool.get_next_unordered(timeout=WAIT) == 1
    go.touch()
    assert list(results) == [0, *range(2, 20)]


def test_an_actor_that_has_room_is_free_and_one_without_calls_is_idle(tmp_path):
    go = tmp_path / "go"
    actors = [Worker.remote() for _ in range(2)]
    pool = ActorPool(actors, in_flight=2)

    def wait(actor, number):
        return actor.wait_for.remote(number, str(go))

    pool.submit(wait, 0)
    assert pool.has_free()
    assert pool.pop_idle() == actors[1]
    # The other one has a call, and may have one more.
    assert pool.has_free()
    assert pool.pop_idle() is None
    with pytest.raises(ValueError, match="already"):
        pool.push(actors[0])
    pool.submit(wait, 1)
    assert not pool.has_free()
    pool.submit(wait, 2)
    pool.push(actors[1])
    assert pool.has_free()
    assert pool.pop_idle() is None
    go.touch()
    assert drain(pool.get_next) == [0, 1, 2]
    assert {pool.pop_idle(), pool.pop_idle()} == set(actors)
    assert not pool.has_free()


def test_a_call_that_was_not_made_takes_no_place():
    pool = ActorPool([Worker.remote()], in_flight=2)
    sent = []

    def call(actor, number):
        if number < 0:
            raise KeyError(number)
        sent.append(number)
        return actor.echo.remote(number)

    for _ in range(3):
        with pytest.raises(KeyError):
            pool.submit(call, -1)
    for number in range(3):
        pool.submit(call, number)
    assert sent == [0, 1]
    assert drain(pool.get_next) == [0, 1, 2]


def test_an_interrupt_as_a_call_is_made_costs_no_place():
    pool = ActorPool([Worker.remote()], in_flight=2)

    def interrupted(_actor, _number):
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            pool.submit(interrupted, 0)
    assert list(pool.map(echo, range(5))) == list(range(5))
    assert pool.pop_idle() is not None


def test_an_interrupt_while_a_result_is_awaited_costs_none(tmp_path):
    go = tmp_path / "go"
    pool = ActorPool([Worker.remote()], in_flight=2)
    for number in range(4):
        pool.submit(lambda actor, n: actor.wait_for.remote(n, str(go)), number)
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        pool.get_next()
    go.touch()
    assert drain(pool.get_next) == [0, 1, 2, 3]
    assert pool.pop_idle() is not None


def test_calls_that_are_given_up_behind_each_other(tmp_path):
    go = tmp_path / "go"
    pool = ActorPool([Worker.remote()], in_flight=2)
    for number in range(4):
        pool.submit(lambda actor, n: actor.wait_for.remote(n, str(go)), number)
    # One that runs, one that is queued at the actor, and one that waits in the pool.
    for _ in range(3):
        with pytest.raises(TimeoutError):
            pool.get_next(timeout=0, ignore_if_timedout=True)
    go.touch()
    assert drain(pool.get_next) == [3]
    assert pool.pop_idle() is not None


def test_a_map_goes_on_after_an_error():
    pool = ActorPool([Worker.remote()], in_flight=2)

    def call(actor, number):
        return actor.made.remote(Stops if number == 1 else dict)

    results = pool.map(call, range(4))
    assert next(results) == {}
    # As the error of a call it would end a loop without a word.
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(results)
    assert list(results) == [{}, {}]
    assert list(results) == []


class Stops:
    def __reduce__(self):
        return _stop_elsewhere, (os.getpid(),)


def _stop_elsewhere(pid):
    if pid != os.getpid():
        raise StopIteration("read")


@pytest.mark.parametrize("in_flight", [0, -1, True, 1.5, "2", None], ids=repr)
def test_an_in_flight_that_is_none(in_flight):
    with pytest.raises(ValueError, match="in_flight"):
        ActorPool([], in_flight=in_flight)


# --- factory -----------------------------------------------------------------------------------------------


@pytest.mark.api("own.actor_pool")
@pytest.mark.parametrize("use", [ActorPool.map, ActorPool.map_unordered])
def test_an_actor_that_died_is_replaced(use):
    factory = Factory()
    results = use(ActorPool([Worker.remote()], factory=factory), die_at(1, 3), range(6))
    assert drain(results.__next__) == [0, ActorDiedError, 2, ActorDiedError, 4, 5]
    assert factory.calls == 2


@pytest.mark.api("own.actor_pool")
def test_an_actor_with_several_calls_is_replaced_once(tmp_path):
    """Those behind the call in which it died fail, too, and those that wait in the pool do not."""
    go = tmp_path / "go"
    factory = Factory()
    pool = ActorPool([Worker.remote()], in_flight=3, factory=factory)
    pool.submit(lambda actor, path: actor.wait_and_die.remote(path), str(go))
    for number in range(1, 6):
        pool.submit(echo, number)
    go.touch()
    assert drain(pool.get_next) == [ActorDiedError] * 3 + [3, 4, 5]
    assert factory.calls == 1
    # Of its calls none is counted any more, for the new one neither.
    assert pool.pop_idle() is not None
    assert pool.pop_idle() is None


def test_an_actor_that_is_killed_among_others(tmp_path):
    go, begun = tmp_path / "go", tmp_path / "begun"
    actors = [Worker.remote() for _ in range(2)]
    factory = Factory()
    pool = ActorPool(actors, in_flight=2, factory=factory)
    pool.submit(lambda actor, n: actor.log.remote(n, str(begun)), 0)
    for number in range(1, 8):
        pool.submit(lambda actor, n: actor.wait_for.remote(n, str(go)), number)
    poll("the first call has run", begun.exists)
    assert pool.get_next() == 0
    # The first actor has the calls 2 and 4, the second has 1 and 3.
    sooner.kill(actors[0])
    with pytest.raises(ActorDiedError):
        pool.get_next_unordered()
    go.touch()
    rest = drain(pool.get_next)
    assert [each for each in rest if each is not ActorDiedError] == [1, 3, 5, 6, 7]
    assert rest.count(ActorDiedError) == 1
    assert factory.calls == 1


def test_all_actors_die_at_once():
    actors = [Worker.remote() for _ in range(3)]
    factory = Factory()
    pool = ActorPool(actors, in_flight=2, factory=factory)
    for actor in actors:
        sooner.kill(actor)
    # They had nothing to do: the next calls tell.
    results = pool.map(echo, range(20))
    assert drain(results.__next__) == [ActorDiedError] * 6 + list(range(6, 20))
    assert factory.calls == 3
    assert len({pool.pop_idle() for _ in range(3)} - {None}) == 3


def test_a_call_that_is_given_up_and_its_actor_dies(tmp_path):
    go = tmp_path / "go"
    factory = Factory()
    pool = ActorPool([Worker.remote()], factory=factory)
    pool.submit(lambda actor, path: actor.wait_and_die.remote(path), str(go))
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0, ignore_if_timedout=True)
    pool.submit(echo, 1)
    go.touch()
    assert drain(pool.get_next) == [1]
    assert factory.calls == 1


def test_an_actor_that_restarts_is_not_replaced():
    factory = Factory()
    pool = ActorPool([Worker.options(max_restarts=1).remote()], factory=factory)
    assert drain(pool.map(die_at(1), range(4)).__next__) == [0, ActorUnavailableError, 2, 3]
    assert factory.calls == 0
    assert drain(pool.map(die_at(1), range(4)).__next__) == [0, ActorDiedError, 2, 3]
    assert factory.calls == 1


def test_a_dead_actor_of_somebody_else_is_none_of_the_pool():
    """The call raised the death of another actor."""
    stranger = Worker.remote()
    sooner.kill(stranger)

    def ask(stranger):
        return sooner.get(stranger.echo.remote(1))

    factory = Factory()
    pool = ActorPool([Worker.remote()], factory=factory)
    pool.submit(lambda actor, _: actor.made.remote(lambda: ask(stranger)), None)
    with pytest.raises(ActorDiedError):
        pool.get_next()
    assert factory.calls == 0
    assert pool.pop_idle() is not None


def test_without_a_factory_the_others_take_what_waits(tmp_path):
    go = tmp_path / "go"
    pool = ActorPool([Worker.remote() for _ in range(2)], in_flight=2)
    pool.submit(lambda actor, path: actor.wait_and_die.remote(path), str(go))
    for number in range(1, 8):
        pool.submit(echo, number)
    go.touch()
    assert drain(pool.get_next) == [ActorDiedError, 1, ActorDiedError, *range(3, 8)]
    assert pool.pop_idle() is not None
    assert pool.pop_idle() is None


# --- factories that fail -----------------------------------------------------------------------------------


def test_a_factory_that_raises_costs_no_result(tmp_path):
    go = tmp_path / "go"
    factory = Factory(OSError("no machine is left"))
    pool = ActorPool([Worker.remote() for _ in range(2)], in_flight=2, factory=factory)
    pool.submit(lambda actor, path: actor.wait_and_die.remote(path), str(go))
    for number in range(1, 8):
        pool.submit(echo, number)
    go.touch()
    found = drain(pool.get_next)
    assert found.count(OSError) == 1
    assert [each for each in found if each is not OSError] == [ActorDiedError, 1, ActorDiedError, *range(3, 8)]
    assert factory.calls == 1


def test_what_a_factory_raised_says_so():
    pool = ActorPool([Worker.remote()], factory=Factory(OSError("no machine is left")))
    pool.submit(die_at(0), 0)
    with pytest.raises(OSError, match="no machine is left") as caught:
        pool.get_next()
    (note,) = caught.value.__notes__
    assert "factory" in note
    assert "left in the pool: 0" in note
    with pytest.raises(ActorDiedError):
        pool.get_next()
    assert not pool.has_next()


@pytest.mark.parametrize("ask", [ActorPool.has_free, ActorPool.pop_idle, lambda pool: pool.map(echo, [])])
def test_whoever_asks_the_pool_is_told_once(ask):
    factory = Factory(OSError("no machine is left"))
    pool = ActorPool([Worker.remote()], factory=factory)
    pool.submit(die_at(0), 0)
    with pytest.raises(OSError, match="no machine"):
        poll("the death is noticed", lambda: ask(pool) and None)
    ask(pool)
    assert factory.calls == 1


def test_no_actor_is_left_and_the_factory_makes_none():
    factory = Factory(OSError("no machine is left"))
    pool = ActorPool([Worker.remote()], factory=factory)
    results = pool.map(die_at(0), range(4))
    # The factory's, that of the call, and one for all those that waited.
    assert drain(results.__next__) == [OSError, ActorDiedError, ActorDiedError]
    # It is not asked again.
    assert drain(pool.map(echo, range(4)).__next__) == [ActorDiedError]
    assert factory.calls == 1
    pool.push(Worker.remote())
    assert list(pool.map(echo, range(4))) == [0, 1, 2, 3]


def test_a_factory_that_raises_for_one_of_two():
    actors = [Worker.remote() for _ in range(2)]
    factory = Factory(OSError("no machine is left"))
    pool = ActorPool(actors, factory=factory)
    for actor in actors:
        sooner.kill(actor)
    found = drain(pool.map(echo, range(6)).__next__)
    assert found.count(OSError) == 1
    assert [each for each in found if each is not OSError] == [ActorDiedError] * 2 + [2, 3, 4, 5]
    assert factory.calls == 2


@pytest.mark.parametrize("made", [5, None, "actor", Worker], ids=["int", "none", "str", "class"])
def test_a_factory_that_makes_no_handle(made):
    calls = []
    pool = ActorPool([Worker.remote() for _ in range(2)], factory=lambda: calls.append(1) or made)
    for number in range(4):
        pool.submit(die_at(0), number)
    found = []
    with pytest.raises(TypeError, match=f"factory of an ActorPool returns actor handles, not {type(made).__name__}"):
        while True:
            found.append(one(pool))
    found += drain(pool.get_next)
    assert found == [ActorDiedError, 1, 2, 3]
    assert len(calls) == 1


def one(pool):
    try:
        return pool.get_next()
    except ActorDiedError:
        return ActorDiedError


def test_a_factory_that_gives_an_actor_of_the_pool():
    actors = [Worker.remote() for _ in range(2)]
    pool = ActorPool(actors, factory=lambda: actors[1])
    sooner.kill(actors[0])
    found = drain(pool.map(echo, range(4)).__next__)
    assert found.count(ValueError) == 1
    assert [each for each in found if each is not ValueError] == [ActorDiedError, 1, 2, 3]


def test_a_factory_that_gives_the_dead_actor_again():
    actor = Worker.remote()
    calls = []
    pool = ActorPool([actor], in_flight=2, factory=lambda: calls.append(1) or actor)
    sooner.kill(actor)
    assert drain(pool.map(echo, range(5)).__next__) == [ActorDiedError] * 5
    assert len(calls) == 3


@pytest.mark.parametrize("in_flight", [1, 2])
def test_new_actors_whose_constructor_raises(in_flight):
    calls = []
    pool = ActorPool([Worker.remote()], in_flight, lambda: calls.append(1) or Broken.remote())
    pool.submit(die_at(0), 0)
    for number in range(1, 6):
        pool.submit(echo, number)
    for _ in range(6):
        with pytest.raises(ActorDiedError):
            pool.get_next()
    assert not pool.has_next()
    # One for each actor that died.
    assert len(calls) == 6 // in_flight
    with pytest.raises(ActorDiedError, match="no such device"):
        next(pool.map(echo, [1]))


def test_an_interrupt_in_the_factory_costs_no_actor():
    factory = Factory(KeyboardInterrupt())
    pool = ActorPool([Worker.remote()], factory=factory)
    for number in range(4):
        pool.submit(die_at(0), number)
    with pytest.raises(KeyboardInterrupt):
        pool.get_next()
    assert drain(pool.get_next) == [ActorDiedError, 1, 2, 3]
    assert factory.calls == 2


def test_an_interrupt_in_the_factory_and_then_a_call_that_cannot_be_made(tmp_path):
    """Its error is there at once, whatever else runs."""
    go = tmp_path / "go"
    pool = ActorPool([Worker.remote() for _ in range(2)], factory=Factory(KeyboardInterrupt()))
    pool.submit(die_at(0), 0)
    pool.submit(lambda actor, n: actor.wait_for.remote(n, str(go)), 1)
    pool.submit(lambda _, n: n / 0, 2)
    with pytest.raises(KeyboardInterrupt):
        pool.get_next()
    with pytest.raises(ActorDiedError):
        pool.get_next()
    with pytest.raises(ZeroDivisionError):
        pool.get_next_unordered(timeout=WAIT)
    go.touch()
    assert drain(pool.get_next) == [1]


def test_a_factory_that_uses_the_pool():
    calls = []

    def factory():
        calls.append(1)
        pool.push(Worker.remote())
        pool.submit(echo, 10)
        return Worker.remote()

    pool = ActorPool([Worker.remote()], factory=factory)
    for number in range(3):
        pool.submit(die_at(0), number)
    assert drain(pool.get_next) == [ActorDiedError, 1, 2, 10]
    assert len(calls) == 1
    assert len({pool.pop_idle() for _ in range(3)} - {None}) == 2


def test_an_ended_session_is_no_death(tmp_path):
    """A factory would begin another session."""
    done = run_driver(
        """
        import sys, sooner
        from sooner.util import ActorPool

        @sooner.remote
        class Waits:
            def wait(self, path):
                import os, time
                open(path, "w").close()
                time.sleep(100)

        sooner.init(num_cpus=1)
        pool = ActorPool([Waits.remote()], 2, Waits.remote)
        for _ in range(3):
            pool.submit(lambda actor, path: actor.wait.remote(path), sys.argv[1])
        sooner.shutdown()
        for _ in range(3):
            try:
                pool.get_next()
            except ValueError as error:
                print("session that has ended" in str(error), sooner.is_initialized())
        """,
        tmp_path / "began",
    )
    assert done.stdout == "True False\n" * 3, done.stderr


@pytest.mark.parametrize("factory", [5, "Worker", Worker], ids=["int", "str", "class"])
def test_a_factory_that_cannot_be_called(factory):
    with pytest.raises(TypeError, match=r"factory=Worker\.remote" if factory is Worker else "factory is a function"):
        ActorPool([Worker.remote()], factory=factory)


def test_a_pool_with_a_factory_needs_an_actor():
    with pytest.raises(ValueError, match="at least one actor"):
        ActorPool([], factory=Worker.remote)


class TestWithoutActors:
    def test_calls_wait_for_an_actor_and_are_not_lost(self):
        pool = ActorPool([Worker.remote()])
        taken = pool.pop_idle()
        pool.submit(lambda actor, value: actor.echo.remote(value), 3)
        for take in (pool.get_next, pool.get_next_unordered):
            for timeout in (None, 30):
                with pytest.raises(RuntimeError, match=r"the pool has no actor, and 1 calls wait for one: push\(\)"):
                    take(timeout, ignore_if_timedout=True)
        assert pool.has_next()
        assert not pool.has_free()
        pool.push(taken)
        assert pool.get_next(timeout=WAIT) == 3

    @pytest.mark.parametrize("timeout", ["1", True, float("nan"), [1]])
    def test_a_timeout_that_is_no_number(self, timeout):
        pool = ActorPool([Worker.remote()])
        for take in (pool.get_next, pool.get_next_unordered):
            with pytest.raises(TypeError, match="timeout must be a number of seconds or None"):
                take(timeout)
