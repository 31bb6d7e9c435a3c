"""Classes of the main program and of functions keep what a process has set in them, whatever values
arrive.
"""

from __future__ import annotations

import pytest
from support import WAIT, run_driver

import sooner

pytestmark = pytest.mark.usefixtures("shared_session")

_PROGRAM = """
    import abc, dataclasses, enum, sooner

    calls = 0

    class Reading:
        scale = 1
        made = 0

        def __init__(self, n):
            self.n = n
            Reading.made += 1

        def scaled(self):
            global calls
            calls += 1
            return self.n * Reading.scale

        def name(self):
            return "reading"

    class Meta(type):
        pass

    class WithMeta(metaclass=Meta):
        level = 1

    class Shape(abc.ABC):
        sides = 0

        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return 1

    @dataclasses.dataclass
    class Point:
        x: int
        count = 0

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

        def title(self):
            return "plain"

    class Wrong(Exception):
        level = 1

    @sooner.remote
    def make(kind, *args):
        return kind(*args)

    @sooner.remote
    def fail():
        raise Wrong("so")

    sooner.init(num_cpus=2)
"""


def _run(code):
    import textwrap

    return run_driver(textwrap.dedent(_PROGRAM) + textwrap.dedent(code) + "\nsooner.shutdown()\n")


@pytest.mark.api("values.class_state")
def test_get_leaves_the_classes_of_the_program_as_they_are():
    _run("""
        ref = make.remote(Reading, 5)
        sooner.wait([ref])
        stored = sooner.put([Reading(1)] * 3)
        Reading.scale, Reading.name, before = 10, (lambda self: "changed"), Reading.made
        method = Reading.__dict__["scaled"]
        reading = sooner.get(ref)
        assert type(reading) is Reading and type(sooner.get(stored)[0]) is Reading
        assert (Reading.scale, Reading.made, reading.name()) == (10, before, "changed")
        # The methods are those of the program, with its globals.
        assert Reading.__dict__["scaled"] is method
        assert reading.scaled() == 50 and calls == 1
        """)


def test_other_kinds_of_classes_too():
    _run("""
        class Late:
            tries = 0

        kinds = [WithMeta, Square, lambda: Point(1), Late, lambda: Colour.BLUE]
        refs = [make.remote(kind) for kind in kinds]
        sooner.wait(refs, num_returns=len(refs))
        WithMeta.level, Shape.sides, Point.count, Late.tries = 7, 4, 3, 2
        Colour.title = lambda self: "coloured"
        got = sooner.get(refs)
        assert (WithMeta.level, Shape.sides, Point.count, Late.tries) == (7, 4, 3, 2)
        assert got[4] is Colour.BLUE and got[4].title() == "coloured"
        """)


def test_errors_and_what_is_pickled_into_functions_too():
    _run("""
        ref = fail.remote()
        sooner.wait([ref])
        Wrong.level = 9
        try:
            sooner.get(ref)
        except Wrong as error:
            assert error.level == 9
        else:
            raise AssertionError("it did not fail")
        assert Wrong.level == 9
        with sooner.Executor() as executor:
            reading = Reading(1)
            future = executor.submit(lambda: reading)
            Reading.scale = 30
            future.result()
            assert Reading.scale == 30
        """)


def test_an_actor_keeps_what_it_has_set():
    _run("""
        @sooner.remote
        class Station:
            def calibrate(self, scale):
                Reading.scale = scale

            def read(self, reading):
                return reading.scaled(), calls, Reading.made

        station = Station.remote()
        assert sooner.get(station.read.remote(Reading(1))) == (1, 1, 0)
        sooner.get(station.calibrate.remote(100))
        Reading.scale = 3
        assert sooner.get(station.read.remote(Reading(2)))[:2] == (200, 2)
        # What comes through another function is the same class.
        assert sooner.get(station.__ray_call__.remote(lambda self: Reading(1).scaled())) == 100
        """)


def test_a_class_that_a_process_has_not_met_comes_whole():
    class Local:
        factor = 3

        def times(self, n):
            return n * self.factor

    Local.factor = 4

    @sooner.remote
    def use(local):
        return local.times(2), type(local).factor, make_another(local)

    def make_another(local):
        return type(local)().times(5)

    assert sooner.get(use.remote(Local()), timeout=WAIT) == (8, 4, 20)


def test_a_class_whose_state_could_not_be_read_is_completed_by_the_next_value():
    import pickle

    import cloudpickle

    from sooner._values.pickling import dumps

    class Fragile:
        pass

    class Breaks:
        is_broken = True

        def __reduce__(self):
            return _break_once, ()

    Fragile.breaks = Breaks()
    Fragile.whole = 1
    data = dumps(Fragile)
    name = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.pop(Fragile)
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.pop(name)
    # As in another process.
    with pytest.raises(RuntimeError, match="broken"):
        pickle.loads(data)
    again = pickle.loads(data)
    assert again is not Fragile
    assert again.whole == 1


_breaks = [True]


def _break_once():
    if _breaks:
        _breaks.clear()
        raise RuntimeError("broken")
    return


@pytest.mark.api("values.class_state")
def test_annotations_that_are_texts_mean_in_workers_what_they_mean_in_the_program() -> None:
    run_driver(
        """
        from __future__ import annotations
        import collections.abc, dataclasses, enum, pickle, typing
        import sooner

        class Colour(enum.Enum):
            RED = 1

        Numbers = list[int]
        T = typing.TypeVar("T")

        @dataclasses.dataclass
        class Part:
            n: int
            whole: Whole | None = None

        @dataclasses.dataclass
        class Whole:
            parts: list[Part]
            colour: typing.Optional[Colour] = None
            numbers: Numbers | None = None
            items: collections.abc.Sequence[T] = ()
            unknown: "not an expression" = None if False else 1

        class Later(typing.NamedTuple):
            part: Part

        class Typed(typing.TypedDict):
            whole: Whole

        def annotated(part: Part, *, whole: Whole) -> Later: ...

        def hints(thing, leave=()):
            for name in leave:
                thing.__annotations__.pop(name)
            found = typing.get_type_hints(thing)
            return {name: repr(kind) for name, kind in found.items()}

        def is_known(value):
            kind = type(value)
            return kind is typing.get_type_hints(Later)["part"], type(pickle.loads(pickle.dumps(value))) is kind

        sooner.init(num_cpus=1)
        run = lambda f, *args: sooner.get(sooner.remote(f).remote(*args))
        # One class names another that names it.
        for thing in (Part, Later, Typed, annotated):
            assert run(lambda thing: hints(thing), thing) == hints(thing), thing
        found = run(lambda: hints(Whole, ["unknown"]))
        assert len(found) == 4 and found == hints(Whole, ["unknown"]), found
        assert run(is_known, Part(1)) == (True, True), run(is_known, Part(1))

        @sooner.remote
        class Actor:
            def call(self, part: Part) -> Whole:
                return hints(Actor.call)
        try:
            assert sooner.get(Actor.remote().call.remote(Part(1))) == {
                "part": "<class '__main__.Part'>", "return": "<class '__main__.Whole'>"}
        finally:
            sooner.shutdown()
        """
    )


@pytest.mark.api("values.class_state")
def test_a_class_that_is_defined_again_takes_the_place_of_the_other() -> None:
    _run("""
        import pickle
        Again = type("Again", (), {"level": 1, "__module__": "__main__"})
        def levels(value):
            import __main__
            return pickle.loads(pickle.dumps(value)).level, __main__.Again.level
        again = sooner.remote(levels)
        assert sooner.get(again.remote(Again())) == (1, 1)
        Again = type("Again", (), {"level": 2, "__module__": "__main__"})
        assert sooner.get(again.remote(Again())) == (2, 2)
    """)
