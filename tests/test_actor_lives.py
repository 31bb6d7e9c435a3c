"""What counts as a life of an actor, and what does not."""

from __future__ import annotations

import os
import signal

import pytest
from support import WAIT, poll, stop

import sooner
from sooner.exceptions import ActorDiedError, ActorUnavailableError
from sooner.util import state


@sooner.remote
class Counter:
    def __init__(self):
        self.calls = 0

    def count(self):
        self.calls += 1
        return self.calls

    def end(self):
        os._exit(1)


# The worker that stands still cannot say what it knows.
@pytest.mark.filterwarnings("ignore:what these know is missing")
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_worker_that_ends_before_it_is_an_actor_costs_the_actor_nothing(restarts):
    with sooner.init(num_cpus=1):
        worker = sooner.get(sooner.remote(os.getpid).remote())
        # It is given the actor, and never reads so.
        stop(worker)
        actor = Counter.options(max_restarts=restarts).remote()
        calls = [actor.count.remote() for _ in range(3)]
        poll("it has that worker", lambda: [row.pid for row in state.list_actors()] == [worker])
        os.kill(worker, signal.SIGKILL)
        assert sooner.get(calls, timeout=WAIT) == [1, 2, 3], "none of them had been executed"
        with pytest.raises((ActorDiedError, ActorUnavailableError)):
            sooner.get(actor.end.remote(), timeout=WAIT)
        if restarts:
            assert sooner.get(actor.count.remote(), timeout=WAIT) == 1, "it has the lives that it was given"
        else:
            with pytest.raises(ActorDiedError):
                sooner.get(actor.count.remote(), timeout=WAIT)
