"""Actors: state, order, names, handles, several methods, the end of an actor."""

from __future__ import annotations

import os
import threading
import time
import uuid

import pytest
from support import WAIT, is_alive, poll, run_driver

import sooner
from sooner.exceptions import ActorAlreadyExistsError, ActorDiedError, TaskError

pytestmark = pytest.mark.usefixtures("shared_session")


class PlainCounter:
    """Counts."""

    def __init__(self, start=0, *, step=1):
        self.value = start
        self.step = step

    def add(self, n=None):
        self.value += self.step if n is None else n
        return self.value

    def read(self):
        return self.value

    def pid(self):
        return os.getpid()

    def fail(self, text):
        raise LookupError(text)


Counter = sooner.remote(PlainCounter)


@sooner.remote
class Recorder:
    """Remembers what it was told, in order."""

    def __init__(self):
        self.told = []

    def tell(self, *what):
        self.told.append(what[0] if len(what) == 1 else what)

    def all(self):
        return self.told


@sooner.remote
def identity(value):
    return value


@sooner.remote
def call(handle, method, *args):
    return sooner.get(getattr(handle, method).remote(*args))


@pytest.fixture
def name():
    """A name that no other test has."""
    return f"actor-{uuid.uuid4().hex}"


@pytest.mark.api("actor.class")
def test_an_actor_keeps_its_state():
    counter = Counter.remote()
    assert sooner.get([counter.add.remote() for _ in range(10)], timeout=WAIT) == list(range(1, 11))
    assert sooner.get(counter.read.remote(), timeout=WAIT) == 10


@pytest.mark.api("actor.class")
def test_constructor_arguments():
    assert sooner.get(Counter.remote(5).add.remote(), timeout=WAIT) == 6
    assert sooner.get(Counter.remote(start=5, step=10).add.remote(), timeout=WAIT) == 15


def test_a_ref_as_a_constructor_argument():
    assert sooner.get(Counter.remote(identity.remote(40), step=sooner.put(2)).add.remote(), timeout=WAIT) == 42


def test_a_large_constructor_argument():
    actor = Counter.remote(b"x" * (1 << 20))
    assert len(sooner.get(actor.read.remote(), timeout=WAIT)) == 1 << 20


def test_actors_live_in_processes_of_their_own():
    actors = [Counter.remote() for _ in range(3)]
    pids = sooner.get([actor.pid.remote() for actor in actors], timeout=WAIT)
    assert len({*pids, os.getpid()}) == 4
    assert sooner.get([actor.pid.remote() for actor in actors], timeout=WAIT) == pids


def test_more_actors_than_cpus():
    actors = [Counter.remote(n) for n in range(12)]
    assert sooner.get([actor.read.remote() for actor in actors], timeout=WAIT) == list(range(12))


def test_tasks_run_beside_many_actors():
    actors = [Counter.remote() for _ in range(6)]
    sooner.get([actor.read.remote() for actor in actors], timeout=WAIT)
    assert sooner.get(identity.remote("free"), timeout=WAIT) == "free"


@pytest.mark.api("actor.order")
def test_calls_of_one_caller_run_in_order():
    recorder = Recorder.remote()
    for n in range(2000):
        recorder.tell.remote(n)
    assert sooner.get(recorder.all.remote(), timeout=WAIT) == list(range(2000))


def test_calls_made_before_the_constructor_is_done_wait_for_it(tmp_path):
    gate = tmp_path / "gate"

    @sooner.remote
    class Slow:
        def __init__(self):
            while not gate.exists():
                time.sleep(0.005)
            self.log = ["constructed"]

        def note(self, n):
            self.log.append(n)
            return self.log

    slow = Slow.remote()
    refs = [slow.note.remote(n) for n in range(3)]
    gate.touch()
    assert sooner.get(refs[-1], timeout=WAIT) == ["constructed", 0, 1, 2]


@pytest.mark.api("actor.order")
def test_order_holds_when_an_argument_is_late(tmp_path):
    """A call that waits for a ref holds back the calls behind it."""
    gate = tmp_path / "gate"

    @sooner.remote
    def late():
        while not gate.exists():
            time.sleep(0.005)
        return "first"

    recorder = Recorder.remote()
    recorder.tell.remote(late.remote())
    recorder.tell.remote("second")
    told = recorder.all.remote()
    assert sooner.wait([told], timeout=0.2) == ([], [told])
    gate.touch()
    assert sooner.get(told, timeout=WAIT) == ["first", "second"]


def test_order_holds_with_large_and_small_arguments():
    recorder = Recorder.remote()
    expected = [bytes([n]) * (1 << 20 if n % 3 == 0 else 10) for n in range(30)]
    for value in expected:
        recorder.tell.remote(value)
    assert sooner.get(recorder.all.remote(), timeout=WAIT) == expected


@pytest.mark.api("actor.order")
def test_calls_from_several_callers_each_keep_their_order():
    recorder = Recorder.remote()

    @sooner.remote
    def caller(handle, who):
        sooner.get([handle.tell.remote(who, n) for n in range(200)])

    sooner.get([caller.remote(recorder, who) for who in "abc"], timeout=WAIT)
    told = sooner.get(recorder.all.remote(), timeout=WAIT)
    for who in "abc":
        assert [n for by, n in told if by == who] == list(range(200))


def test_calls_do_not_overlap():
    @sooner.remote
    class Alone:
        def __init__(self):
            self.inside = 0

        def enter(self):
            self.inside += 1
            time.sleep(0.001)
            seen = self.inside
            self.inside -= 1
            return seen

    alone = Alone.remote()

    @sooner.remote
    def caller(handle):
        return sooner.get([handle.enter.remote() for _ in range(20)])

    assert sooner.get([caller.remote(alone) for _ in range(3)], timeout=WAIT) == [[1] * 20] * 3


def test_an_error_in_a_method_leaves_the_actor_alive():
    counter = Counter.remote()
    with pytest.raises(LookupError, match="lost key") as caught:
        sooner.get(counter.fail.remote("lost key"), timeout=WAIT)
    assert isinstance(caught.value, TaskError)
    assert "fail" in str(caught.value)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


def test_methods_of_every_kind():
    class Base:
        def inherited(self):
            return "inherited"

        def overridden(self):
            return "base"

    @sooner.remote
    class Kinds(Base):
        constant = "class attribute"

        def overridden(self):
            return f"child of {super().overridden()}"

        @staticmethod
        def static(x):
            return x * 2

        @classmethod
        def of_class(cls, x):
            return cls.constant, x

        def _private(self):
            return "private"

        def __call__(self, x):
            return ("called", x)

        def with_everything(self, a, /, b, *rest, c, d=4, **more):
            return a, b, rest, c, d, more

    kinds = Kinds.remote()
    refs = [
        kinds.inherited.remote(),
        kinds.overridden.remote(),
        kinds.static.remote(4),
        kinds.of_class.remote(5),
        kinds._private.remote(),
        kinds.__call__.remote(6),
        kinds.with_everything.remote(1, 2, 3, c=4, e=5),
    ]
    assert sooner.get(refs, timeout=WAIT) == [
        "inherited",
        "child of base",
        8,
        ("class attribute", 5),
        "private",
        ("called", 6),
        (1, 2, (3,), 4, 4, {"e": 5}),
    ]


def test_inheritance_from_the_plain_class():
    @sooner.remote
    class Doubling(PlainCounter):
        def add(self, n=None):
            super().add(n)
            return super().add(n)

    assert sooner.get(Doubling.remote(1).add.remote(10), timeout=WAIT) == 21


@pytest.mark.api("actor.class")
def test_inheritance_from_an_actor_class_is_refused():
    with pytest.raises(TypeError, match="inherit"):

        class Child(Counter):
            pass


def test_an_actor_without_methods_or_constructor():
    @sooner.remote
    class Empty:
        pass

    assert sooner.get(Empty.remote().__ray_ready__.remote(), timeout=WAIT) is True


@pytest.mark.api("actor.ready", "actor.call")
def test_built_in_methods():
    counter = Counter.remote(3)
    assert sooner.get(counter.__ray_ready__.remote(), timeout=WAIT) is True
    assert sooner.get(counter.__ray_call__.remote(lambda self, x: self.value + x, 4), timeout=WAIT) == 7


@pytest.mark.api("method", "method.num_returns")
def test_several_returns_of_a_method():
    @sooner.remote
    class Splitter:
        @sooner.method(num_returns=2)
        def halves(self, n):
            return n // 2, n - n // 2

        def whole(self, n):
            return n, n

        @sooner.method(num_returns=0)
        def nothing(self):
            pass

    splitter = Splitter.remote()
    assert sooner.get(splitter.halves.remote(9), timeout=WAIT) == [4, 5]
    assert sooner.get(splitter.whole.options(num_returns=2).remote(3), timeout=WAIT) == [3, 3]
    assert sooner.get(splitter.whole.remote(3), timeout=WAIT) == (3, 3)
    assert splitter.nothing.remote() is None


def test_results_of_methods_as_arguments():
    counter = Counter.remote()
    assert sooner.get(identity.remote(counter.add.remote(5)), timeout=WAIT) == 5
    assert sooner.get(counter.add.remote(counter.add.remote(5)), timeout=WAIT) == 20


@pytest.mark.api("actor.class", "actor.handle")
def test_direct_use_is_refused():
    with pytest.raises(TypeError, match="remote"):
        Counter()
    counter = Counter.remote()
    with pytest.raises(TypeError, match="remote"):
        counter.add()


@pytest.mark.api("actor.handle")
def test_an_unknown_method():
    with pytest.raises(AttributeError, match="subtract"):
        Counter.remote().subtract  # noqa: B018


@pytest.mark.api("actor.handle")
def test_handles_are_values():
    one, two = Counter.remote(), Counter.remote()
    same = sooner.get(identity.remote(one), timeout=WAIT)
    assert one == same != two
    assert hash(one) == hash(same)
    assert len({one, two, same}) == 2
    assert one._actor_id == same._actor_id != two._actor_id
    assert "PlainCounter" in repr(one)
    assert one._actor_id in repr(one)


@pytest.mark.api("actor.handle")
def test_a_handle_passed_to_a_task_inside_a_value_and_in_a_closure():
    counter = Counter.remote()

    @sooner.remote
    def inside(box):
        return sooner.get(box["counter"].add.remote())

    @sooner.remote
    def captured():
        return sooner.get(counter.add.remote())

    assert sooner.get(call.remote(counter, "add"), timeout=WAIT) == 1
    assert sooner.get(inside.remote({"counter": counter}), timeout=WAIT) == 2
    assert sooner.get(captured.remote(), timeout=WAIT) == 3
    assert sooner.get(call.remote(sooner.put(counter), "add"), timeout=WAIT) == 4
    assert sooner.get(counter.read.remote(), timeout=WAIT) == 4


def test_an_actor_calls_another():
    @sooner.remote
    class Front:
        def __init__(self, back):
            self.back = back

        def add(self, n):
            return sooner.get(self.back.add.remote(n))

    back = Counter.remote()
    front = Front.remote(back)
    assert sooner.get([front.add.remote(n) for n in (1, 2)], timeout=WAIT) == [1, 3]
    assert sooner.get(back.read.remote(), timeout=WAIT) == 3


def test_an_actor_made_in_a_task_and_returned():
    @sooner.remote
    def make(start):
        counter = Counter.remote(start)
        sooner.get(counter.add.remote())
        return counter

    counter = sooner.get(make.remote(10), timeout=WAIT)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 12


def test_an_actor_made_by_an_actor():
    @sooner.remote
    class Parent:
        def __init__(self):
            self.child = Counter.remote(100)

        def child_handle(self):
            return self.child

    parent = Parent.remote()
    child = sooner.get(parent.child_handle.remote(), timeout=WAIT)
    assert sooner.get(child.add.remote(), timeout=WAIT) == 101


def test_an_actor_that_knows_itself():
    @sooner.remote
    class Selfish:
        def me(self):
            return sooner.get_runtime_context().current_actor

        def value(self):
            return "value"

    selfish = Selfish.remote()
    me = sooner.get(selfish.me.remote(), timeout=WAIT)
    assert me == selfish
    assert sooner.get(me.value.remote(), timeout=WAIT) == "value"


def test_a_closure_class_travels():
    base = 40

    @sooner.remote
    class Adds:
        def add(self, n):
            return base + n

    assert sooner.get(Adds.remote().add.remote(2), timeout=WAIT) == 42


@pytest.mark.api("get_actor")
def test_named_actors(name):
    counter = Counter.options(name=name).remote(1)
    found = sooner.get_actor(name)
    assert found == counter
    assert sooner.get(found.add.remote(), timeout=WAIT) == 2
    assert sooner.get(counter.read.remote(), timeout=WAIT) == 2


@pytest.mark.api("get_actor")
def test_a_named_actor_is_found_from_a_task(name):
    counter = Counter.options(name=name).remote(5)

    @sooner.remote
    def find():
        return sooner.get(sooner.get_actor(name).add.remote())

    assert sooner.get(find.remote(), timeout=WAIT) == 6
    assert sooner.get(counter.read.remote(), timeout=WAIT) == 6


@pytest.mark.api("actor.name", "errors.named")
def test_a_name_is_taken_once(name):
    counter = Counter.options(name=name).remote()
    with pytest.raises(ActorAlreadyExistsError, match=name) as caught:
        Counter.options(name=name).remote()
    assert isinstance(caught.value, ValueError)
    assert sooner.get(counter.add.remote(), timeout=WAIT) == 1


@pytest.mark.api("actor.name")
def test_names_live_in_namespaces(name):
    here = Counter.options(name=name).remote(1)
    there = Counter.options(name=name, namespace="elsewhere").remote(2)
    assert sooner.get_actor(name) == here
    assert sooner.get_actor(name, namespace="elsewhere") == there
    with pytest.raises(ValueError, match=name):
        sooner.get_actor(name, namespace="nowhere")


@pytest.mark.api("get_actor")
def test_an_unknown_name(name):
    with pytest.raises(ValueError, match=name):
        sooner.get_actor(name)


@pytest.mark.api("get_actor")
@pytest.mark.parametrize("wrong", ["", None, 5], ids=repr)
def test_a_wrong_name(wrong):
    with pytest.raises((ValueError, TypeError)):
        sooner.get_actor(wrong)


def name_is_free(name):
    try:
        sooner.get_actor(name)
    except ValueError:
        return True
    return False


@pytest.mark.api("actor.name")
def test_a_name_is_free_again_after_kill(name):
    counter = Counter.options(name=name).remote()
    sooner.get(counter.read.remote(), timeout=WAIT)
    sooner.kill(counter)
    poll("the name is free", lambda: name_is_free(name))
    again = Counter.options(name=name).remote(7)
    assert sooner.get(again.read.remote(), timeout=WAIT) == 7


@pytest.mark.api("actor.scope")
def test_an_actor_ends_with_its_last_handle():
    counter = Counter.remote()
    pid = sooner.get(counter.pid.remote(), timeout=WAIT)
    assert is_alive(pid)
    del counter
    poll("the actor is gone", lambda: not is_alive(pid))


def test_a_named_actor_ends_with_its_last_handle(name):
    counter = Counter.options(name=name).remote()
    pid = sooner.get(counter.pid.remote(), timeout=WAIT)
    del counter
    poll("the actor is gone", lambda: not is_alive(pid))
    poll("the name is free", lambda: name_is_free(name))


def test_an_actor_lives_while_a_handle_lives_in_an_object():
    box = sooner.put([Counter.remote(9)])
    assert sooner.get(sooner.get(box)[0].read.remote(), timeout=WAIT) == 9
    pid = sooner.get(sooner.get(box)[0].pid.remote(), timeout=WAIT)
    assert is_alive(pid)
    assert sooner.get(sooner.get(box)[0].add.remote(), timeout=WAIT) == 10
    del box
    poll("the actor is gone", lambda: not is_alive(pid))


def test_an_actor_lives_while_another_actor_holds_its_handle():
    @sooner.remote
    class Holder:
        def keep(self, box):
            self.box = box

        def use(self):
            return sooner.get(self.box[0].add.remote())

    holder = Holder.remote()
    counter = Counter.remote(1)
    sooner.get(holder.keep.remote([counter]), timeout=WAIT)
    del counter
    assert sooner.get([holder.use.remote(), holder.use.remote()], timeout=WAIT) == [2, 3]


@pytest.mark.api("actor.scope")
def test_pending_calls_are_done_when_the_last_handle_goes(tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote
    class Writer:
        def write(self, text):
            with mark.open("a") as file:
                file.write(text)
            return text

    writer = Writer.remote()
    refs = [writer.write.remote(str(n)) for n in range(10)]
    del writer
    assert sooner.get(refs, timeout=WAIT) == [str(n) for n in range(10)]
    assert mark.read_text() == "0123456789"


def test_a_call_on_a_temporary_handle():
    assert sooner.get(Counter.remote(1).add.remote(), timeout=WAIT) == 2
    method = Counter.remote(2).add
    assert sooner.get(method.remote(), timeout=WAIT) == 3


@pytest.mark.api("actor.scope")
def test_an_actor_that_ends_runs_its_exit_handlers(tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote
    class Tidy:
        def __init__(self):
            import atexit

            atexit.register(mark.touch)

        def ready(self):
            return True

    tidy = Tidy.remote()
    sooner.get(tidy.ready.remote(), timeout=WAIT)
    del tidy
    poll("the exit handler has run", mark.exists)


def test_an_actor_that_ends_writes_its_files_and_asks_no_object_for_its_class(tmp_path):
    """Proxies, and deprecated names of libraries, run code when they are asked."""
    file, asked = tmp_path / "file", tmp_path / "asked"

    class Proxy:
        def __getattribute__(self, name):
            asked.touch()
            raise RuntimeError("there is nothing behind the proxy")

    @sooner.remote
    class Writer:
        def __init__(self):
            self.proxies = [Proxy() for _ in range(3)]
            # A cycle: it is closed by nothing but the end of the process.
            self.file = open(file, "w")  # noqa: SIM115
            self.myself = self
            self.file.write("written")
            global kept
            kept = [self.proxies, self.file]

        def ready(self):
            return True

    writer = Writer.remote()
    sooner.get(writer.ready.remote(), timeout=WAIT)
    asked.unlink(missing_ok=True)  # pickling the class may have asked
    del writer
    poll("the file is written", lambda: file.exists() and file.read_text() == "written")
    assert not asked.exists()


@pytest.mark.api("kill")
def test_kill():
    counter = Counter.remote()
    pid = sooner.get(counter.pid.remote(), timeout=WAIT)
    sooner.kill(counter)
    # At once: a call after the kill is never served.
    with pytest.raises(ActorDiedError, match="kill"):
        sooner.get(counter.read.remote(), timeout=WAIT)
    poll("the actor is gone", lambda: not is_alive(pid))


@pytest.mark.api("kill")
def test_kill_runs_no_exit_handlers(tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote
    class Tidy:
        def __init__(self):
            import atexit

            atexit.register(mark.touch)

        def pid(self):
            return os.getpid()

    tidy = Tidy.remote()
    pid = sooner.get(tidy.pid.remote(), timeout=WAIT)
    sooner.kill(tidy)
    poll("the actor is gone", lambda: not is_alive(pid))
    assert not mark.exists()


def test_kill_again_and_of_an_actor_that_is_not_up_yet():
    counter = Counter.remote()
    sooner.kill(counter)
    sooner.kill(counter)
    with pytest.raises(ActorDiedError):
        sooner.get(counter.read.remote(), timeout=WAIT)


@pytest.mark.api("kill")
@pytest.mark.parametrize("thing", [None, "counter", Counter], ids=["none", "text", "class"])
def test_kill_of_something_else(thing):
    with pytest.raises((TypeError, ValueError), match="actor handle"):
        sooner.kill(thing)


def dies_with(ref):
    """The error, when the actor is dead. For others than who kills, that takes a moment."""
    try:
        sooner.get(ref, timeout=WAIT)
    except ActorDiedError as error:
        return error
    return None


def test_kill_from_a_task():
    counter = Counter.remote()
    sooner.get(counter.read.remote(), timeout=WAIT)

    @sooner.remote
    def murder(handle):
        sooner.kill(handle)

    sooner.get(murder.remote(counter), timeout=WAIT)
    assert poll("the actor is dead", lambda: dies_with(counter.read.remote()))


def test_calls_and_results_of_a_dead_actor_name_it():
    counter = Counter.remote()
    value = counter.add.remote()
    assert sooner.get(value, timeout=WAIT) == 1
    sooner.kill(counter)
    with pytest.raises(ActorDiedError, match="PlainCounter"):
        sooner.get(counter.read.remote(), timeout=WAIT)
    # What it had returned belongs to the caller.
    assert sooner.get(value, timeout=WAIT) == 1


def test_calls_from_several_threads():
    counter = Counter.remote()
    errors = []

    def work():
        try:
            sooner.get([counter.add.remote() for _ in range(100)], timeout=WAIT)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sooner.get(counter.read.remote(), timeout=WAIT) == 400


def test_actors_come_and_go():
    """Two hundred actors in turn: their processes and memory are given back."""

    # A local class travels by value. Each new process would import this module, and pytest with it,
    # otherwise.
    @sooner.remote
    class Local:
        def __init__(self, n):
            self.n = n

        def next(self):
            return self.n + 1

    for n in range(200):
        assert sooner.get(Local.remote(n).next.remote(), timeout=WAIT) == n + 1


@pytest.mark.api("kill")
@pytest.mark.parametrize("pause", [0, 0.01, 0.04])
@pytest.mark.parametrize("by", ["kill", "del"])
def test_an_actor_that_ends_while_it_is_being_created_leaves_its_cpu_to_the_next(pause, by):
    done = run_driver(
        """
        import sys, time
        import sooner

        sooner.init(num_cpus=1)

        @sooner.remote(num_cpus=1)
        class Whole:
            def f(self):
                return 1

        first = Whole.remote()
        time.sleep(float(sys.argv[1]))
        if sys.argv[2] == "kill":
            sooner.kill(first)
        del first
        print(sooner.get(Whole.remote().f.remote(), timeout=30))
        """,
        pause,
        by,
    )
    assert done.stdout == "1\n"


@pytest.mark.api("kill")
def test_a_kill_with_restart_of_an_actor_that_is_being_created_does_not_end_it():
    @sooner.remote(max_restarts=1, max_task_retries=-1, num_cpus=0)
    class Kept:
        def f(self):
            return 1

    for n in range(5):
        actor = Kept.options(name=f"kept {n}").remote()
        sooner.kill(actor, no_restart=False)
        assert sooner.get(sooner.get_actor(f"kept {n}").f.remote(), timeout=WAIT) == 1
