"""Actors with checkpoints that several test files use."""

from __future__ import annotations

import os
import signal

import numpy as np
from support import WAIT

import weft
from weft.util import state


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

    @weft.method(read_only=True)
    def read(self):
        self.note("read")
        return list(self.entries)

    @weft.method(read_only=True)
    def pid(self):
        return os.getpid()

    @weft.method(read_only=True)
    def was_rebuilt(self):
        return weft.get_runtime_context().was_current_actor_reconstructed

    def die(self, path):
        if not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.add("died")

    def __weft_checkpoint__(self):
        self.note("checkpoint")
        return list(self.entries)

    def __weft_restore__(self, state):
        self.note("restore")
        self.entries = state


RemoteLog = weft.remote(checkpoint_every=5)(Log)


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
        self.value = weft.put("its own")

    @weft.method(read_only=True)
    def get(self):
        return self.value

    @weft.method(read_only=True)
    def inner(self):
        return weft.get(self.value[0])

    @weft.method(read_only=True)
    def pid(self):
        return os.getpid()

    def __weft_checkpoint__(self):
        return self.value

    def __weft_restore__(self, value):
        self.value = value


RemoteBox = weft.remote(checkpoint_every=1)(Box)


def kill(actor):
    """Ends the actor's process after the calls so far."""
    os.kill(weft.get(actor.pid.remote(), timeout=WAIT), signal.SIGKILL)


def row_of(actor):
    (row,) = [row for row in state.list_actors() if row.actor_id == actor._actor_id]
    return row
