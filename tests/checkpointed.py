"""Actors with checkpoints that several test files use."""

from __future__ import annotations

import os
import signal

import numpy as np
from support import WAIT

import sooner
from sooner.util import state


class Log:
    """Keeps what it was given; notes in a file what it executes."""

    def __init__(self, notes=None):
        self.entries = []
        self.notes = notes
        self.note("init")

    def note(self, text):
        if self.notes is not None:
            with self.notes.open("a") as file:
                file.write(f"{text}\n")

    def add(self, entry):
        self.note(entry)
        self.entries.append(entry)
        return len(self.entries)

    def add_and_raise(self, entry):
        self.entries.append(entry)
        raise ValueError(entry)

    @sooner.method(read_only=True)
    def read(self):
        self.note("read")
        return list(self.entries)

    @sooner.method(read_only=True)
    def pid(self):
        return os.getpid()

    @sooner.method(read_only=True)
    def was_rebuilt(self):
        return sooner.get_runtime_context().was_current_actor_reconstructed

    def die(self, path):
        if not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.add("died")

    def __sooner_checkpoint__(self):
        self.note("checkpoint")
        return list(self.entries)

    def __sooner_restore__(self, state):
        self.note("restore")
        self.entries = state


RemoteLog = sooner.remote(checkpoint_every=5)(Log)


class Box:
    """Its state is whatever it was given last."""

    def __init__(self):
        self.value = None

    def set(self, value):
        self.value = value

    def fill(self, count):
        self.value = np.zeros(count)

    def bump(self):
        self.value += 1

    def put_own(self):
        self.value = sooner.put("its own")

    @sooner.method(read_only=True)
    def get(self):
        return self.value

    @sooner.method(read_only=True)
    def inner(self):
        return sooner.get(self.value[0])

    @sooner.method(read_only=True)
    def pid(self):
        return os.getpid()

    def __sooner_checkpoint__(self):
        return self.value

    def __sooner_restore__(self, value):
        self.value = value


RemoteBox = sooner.remote(checkpoint_every=1)(Box)


def kill(actor):
    """Ends the actor's process after the calls so far."""
    os.kill(sooner.get(actor.pid.remote(), timeout=WAIT), signal.SIGKILL)


def row_of(actor):
    (row,) = [row for row in state.list_actors() if row.actor_id == actor._actor_id]
    return row
