"""Classes and functions of a script are in workers what they are in the program, for whoever looks for
them by name.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest
from support import WAIT, run_driver

from sooner._values import classes

_ENUMERATIONS = """
    import enum, datetime, functools, pickle, sooner

    made = []

    class Planet(enum.Enum):
        MERCURY = (3.3e23, 2.4e6)
        EARTH = (5.9e24, 6.3e6)
        TERRA = (5.9e24, 6.3e6)

        def __init__(self, mass, radius):
            self.mass = mass
            self.radius = radius
            made.append(self._name_)

        @property
        def gravity(self):
            return self.mass / self.radius**2

        def next(self):
            return HOME

    class Coordinate(bytes, enum.Enum):
        PX = (0, "P.X")
        PY = (1, "P.Y")

        def __new__(cls, value, label):
            made = bytes.__new__(cls, [value])
            made._value_ = value
            made.label = label
            return made

    class Right(enum.Flag):
        READ = 4
        WRITE = 2
        RUN = 1
        BOTH = 6

        def default(self):
            return ALL

    class Kept(enum.IntFlag, boundary=enum.KEEP):
        A = 1

    class Number(enum.IntEnum):
        ONE = 1
        TWO = 2

        @classmethod
        def _missing_(cls, value):
            return cls.ONE if value == "uno" else None

    class Text(enum.StrEnum):
        A = enum.auto()

        def __str__(self):
            return f"!{self.value}"

    class Named(enum.Enum):
        def _generate_next_value_(name, start, count, last):
            return name.lower()

        NORTH = enum.auto()

    class Day(datetime.date, enum.Enum):
        NEW = 2000, 1, 1

    class Listed(list, enum.Enum):
        PAIR = ([1, 2],)

    class Unhashable(enum.Enum):
        A = [1]

    class Field(enum.Enum):
        name = "n"
        plain = "p"

    class Called(enum.Enum):
        MAX = functools.partial(max, 1)

        def __call__(self, *args):
            return self.value(*args)

    class Friends(enum.Enum):
        A = 1
        B = 2

    class Meta(enum.EnumMeta):
        def __new__(meta, name, bases, namespace, *, level, **keywords):
            made.append(name)
            cls = super().__new__(meta, name, bases, namespace, **keywords)
            cls.level = level
            return cls

        def __init__(cls, *args, level, **keywords):
            super().__init__(*args, **keywords)

        @classmethod
        def __prepare__(meta, name, bases, *, level, **keywords):
            return super().__prepare__(name, bases, **keywords)

    class WithMeta(enum.Enum, metaclass=Meta, level=3):
        A = 1

    Functional = enum.Enum("Functional", "A B")
    HOME = Planet.EARTH
    ALL = Right.READ | Right.RUN
    Friends.A.friend = Friends.B
    members = [
        Planet.EARTH, Coordinate.PY, Right.READ, Right.BOTH, ALL, Number.TWO, Text.A, Named.NORTH, Day.NEW, Listed.PAIR,
        Field.name, Functional.B, WithMeta.A, Friends.A,
    ]

    def same(a, b):
        assert a == b, (a, b)

    def check():
        same((Planet.EARTH.mass, Planet.EARTH.gravity), (5.9e24, 5.9e24 / 6.3e6**2))
        same((Planet.TERRA is Planet.EARTH, Planet((5.9e24, 6.3e6)) is Planet.EARTH), (True, True))
        same((list(Planet.__members__), len(Planet)), (["MERCURY", "EARTH", "TERRA"], 2))
        same(Planet.MERCURY.next() is Planet.EARTH, True)
        same((Coordinate.PX.label, Coordinate(1) is Coordinate.PY, bytes(Coordinate.PY)), ("P.X", True, b"\\1"))
        same((Right.READ | Right.WRITE, list(Right), Right.READ.default()),
             (Right.BOTH, [Right.READ, Right.WRITE, Right.RUN], Right(5)))
        same((~Right.READ, list(Right.__members__)), (Right(3), ["READ", "WRITE", "RUN", "BOTH"]))
        same((Kept(9).value, Kept.A | 2), (9, Kept(3)))
        try:
            Right(8)
        except ValueError:
            pass
        else:
            raise AssertionError("Right(8)")
        same((Number("uno"), Number.ONE + 1, Number(2) is Number.TWO), (Number.ONE, 2, True))
        same((str(Text.A), Text("a") is Text.A, Text.A + "x"), ("!a", True, "ax"))
        same((Named("north") is Named.NORTH, Named.NORTH.name), (True, "NORTH"))
        same((Day.NEW.year, list(Listed.PAIR), Unhashable([1]) is Unhashable.A), (2000, [1, 2], True))
        same((Field.plain.name, Field.name.name, Field("n") is Field.name), ("plain", "name", True))
        same((Called.MAX(0, 5), Functional["B"] is Functional(2), WithMeta.level), (5, True, 3))
        same(Friends.A.friend is Friends.B, True)
        try:
            Planet.EARTH = 1
        except AttributeError:
            pass
        else:
            raise AssertionError("set")
        return made

    def given(*members):
        for member in members:
            same(type(member)(member.value) is member, True)
            same(pickle.loads(pickle.dumps(member)) is member, True)
        return members
"""


def test_classes_of_main_travel_by_value() -> None:
    code = """
        import dataclasses, sooner
        @dataclasses.dataclass
        class Box:
            n: int
        class Oops(Exception): pass
        @sooner.remote
        def grow(box):
            if box.n < 0: raise Oops("negative")
            return Box(box.n + 1)
        sooner.init(num_cpus=1)
        assert sooner.get(grow.remote(Box(1)), timeout=30) == Box(2)
        try: sooner.get(grow.remote(Box(-1)), timeout=30)
        except Oops as error: print("ok", type(error).__name__)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "ok TaskError(Oops)", done.stderr


def test_enumerations_are_in_workers_what_they_are_in_the_program() -> None:
    run_driver(
        textwrap.dedent(_ENUMERATIONS)
        + textwrap.dedent("""
        made_here = list(check())
        with sooner.init(num_cpus=1):
            run = lambda function, *args: sooner.get(sooner.remote(function).remote(*args), timeout=60)
            # Nothing is made again, here or there.
            assert run(check) == made_here == made
            got = run(given, *members)
            assert all(one is other for one, other in zip(got, members)), got
            assert made == made_here
        """)
    )


_HOOKS = """
    import abc, enum, sys, typing, sooner

    class Plugin:
        known = {}

        def __init_subclass__(cls, *, key, **keywords):
            super().__init_subclass__(**keywords)
            Plugin.known[key] = cls
            ran.append(key)

    ran = []

    class One(Plugin, key="one"):
        pass

    class Two(One, key="two"):
        __slots__ = ()

    class Defaults:
        def __init_subclass__(cls, key="none"):
            ran.append((cls.__name__, key))
            cls.key = key

    class Three(Defaults, key="three"):
        pass

    class Meta(type):
        def __new__(meta, name, bases, namespace, *, table):
            cls = super().__new__(meta, name, bases, namespace)
            cls.table = table
            ran.append(table)
            return cls

        def __init__(cls, name, bases, namespace, *, table):
            super().__init__(name, bases, namespace)

        @classmethod
        def __prepare__(meta, name, bases, *, table):
            return {}

        def __setattr__(cls, name, value):
            if name != "table":
                raise AttributeError(name)
            super().__setattr__(name, value)

    class Four(metaclass=Meta, table="things"):
        level = 4

    class Named:
        def __set_name__(self, owner, name):
            self.name = name
            ran.append(name)

        def __get__(self, instance, owner):
            return self.name

        def __set__(self, instance, value):
            ran.append(value)

    class Five:
        field = Named()

    T = typing.TypeVar("T")

    class Generic(typing.Generic[T], Plugin, key="generic"):
        pass

    class Six(Generic[int], key="six"):
        pass

    class Abstract(abc.ABC):
        def __init_subclass__(cls, *, key):
            ran.append(key)

        @abc.abstractmethod
        def call(self): ...

        # An abstract class has a method of this name.
        def register(self): ...

    class Seven(Abstract, key="seven"):
        def call(self):
            return 7

    class Virtual:
        pass

    abc.ABCMeta.register(Abstract, Virtual)

    class Wrong(Exception):
        def __init_subclass__(cls, *, code):
            cls.code = code

    class Eight(Wrong, code=8):
        pass

    def check(*given):
        assert One is Plugin.known["one"] and Two is Plugin.known["two"]
        assert Three.key == "three" and (Four.table, Four.level) == ("things", 4) and Five().field == "field"
        assert Six.__orig_bases__ == (Generic[int],) and Generic[int].__args__ == (int,)
        assert Seven().call() == 7 and issubclass(Virtual, Abstract) and Eight.code == 8
        try:
            Abstract()
        except TypeError:
            pass
        else:
            raise AssertionError("abstract")
        kinds = One, Two, Three, Four, Five, Six, Seven, Eight
        assert all(type(one) is kind for one, kind in zip(given, kinds))
        # Hooks are in force for what is defined later.
        class Later(Plugin, key="later"):
            pass
        assert Plugin.known.pop("later") is Later and ran.pop() == "later"
        return ran, given
"""


def test_hooks_of_classes_run_once_where_the_class_is_defined() -> None:
    run_driver(
        textwrap.dedent(_HOOKS)
        + textwrap.dedent("""
        values = One(), Two(), Three(), Four(), Five(), Six(), Seven(), Eight()
        ran_here = list(check(*values)[0])
        known = dict(Plugin.known)
        with sooner.init(num_cpus=1):
            there, got = sooner.get(sooner.remote(check).remote(*values), timeout=60)
            assert there == ran_here == ran, (there, ran_here, ran)
            assert [type(value) for value in got] == [type(value) for value in values]
            # A class that workers define comes here; its hook ran there.
            def define():
                class New(Plugin, key="new"):
                    level = 9
                return New
            New = sooner.get(sooner.remote(define).remote(), timeout=60)
            assert New.level == 9 and issubclass(New, Plugin)
            assert ran == ran_here and Plugin.known == known
        """)
    )


def test_what_libraries_do_when_a_class_is_defined_they_do_in_workers(tmp_path) -> None:
    (tmp_path / "library_of_hooks.py").write_text(
        textwrap.dedent("""
        known = []

        class Easy:
            def __init_subclass__(cls, **keywords):
                known.append(cls.__name__)

        class Hard:
            def __init_subclass__(cls, *, key):
                known.append(key)

        class Meta(type):
            def __init__(cls, name, bases, namespace):
                super().__init__(name, bases, namespace)
                known.append(name)

        class Strict(type):
            def __new__(meta, name, bases, namespace, *, key):
                return super().__new__(meta, name, bases, namespace)

            def __init__(cls, name, bases, namespace, *, key):
                super().__init__(name, bases, namespace)
        """)
    )
    run_driver(
        """
        import sys, sooner
        sys.path.insert(0, sys.argv[1])
        import library_of_hooks as library

        class A(library.Easy): level = 1
        class B(library.Hard, key="b"): level = 2
        class C(metaclass=library.Meta): level = 3
        class D(metaclass=library.Strict, key="d"): level = 4

        def check():
            return [A.level, B.level, C.level, D.level], sorted(library.known)

        with sooner.init(num_cpus=1):
            assert check() == ([1, 2, 3, 4], ["A", "C", "b"])
            # The keyword of B is not known any more.
            found = sooner.get(sooner.remote(check).remote(), timeout=60)
            assert found == ([1, 2, 3, 4], ["A", "C"]), found
        """,
        tmp_path,
    )


def test_instances_have_the_slots_of_their_class() -> None:
    run_driver("""
        import dataclasses, weakref, sooner

        class Private:
            __slots__ = ("__x", "y", "__weakref__")
            def __init__(self):
                self.__x = 3
            def x(self):
                return self.__x

        class Below(Private):
            __slots__ = "z"

        class Open(Private):
            pass

        @dataclasses.dataclass(slots=True)
        class Point:
            x: int

        def check(private, below, there):
            assert (private.x(), below.x(), Private().x(), there.x, Point(4).x) == (3, 3, 3, 5, 4)
            for value in private, below, there:
                assert not hasattr(value, "__dict__")
            try:
                below.other = 1
            except AttributeError:
                pass
            else:
                raise AssertionError("other")
            below.z = Open().more = weakref.ref(private)
            assert Private.__slots__ == ("__x", "y", "__weakref__")
            assert (Private.__basicsize__, Below.__basicsize__, Open.__basicsize__) == sizes
            return Private()

        sizes = Private.__basicsize__, Below.__basicsize__, Open.__basicsize__
        with sooner.init(num_cpus=1):
            got = sooner.get(sooner.remote(check).remote(Private(), Below(), Point(5)), timeout=60)
            assert type(got) is Private and got.x() == 3
        """)


def test_hooks_are_silent_in_the_thread_alone_that_reads_a_class() -> None:
    ran = []

    class Base:
        def __init_subclass__(cls, **keywords: int) -> None:
            ran.append((cls.__name__, keywords))

    hook = vars(Base)["__init_subclass__"]
    with classes._silencing, classes._silenced((Base,)):
        type("Here", (Base,), {})
        thread = threading.Thread(target=lambda: type("There", (Base,), {}, level=1))
        thread.start()
        thread.join(WAIT)
    type("Later", (Base,), {})
    assert ran == [("There", {"level": 1}), ("Later", {})]
    assert vars(Base)["__init_subclass__"] is hook


def test_workers_find_by_name_what_the_script_defines() -> None:
    run_driver("""
        import concurrent.futures, functools, multiprocessing, pickle, sys, typing, sooner

        def helper(x):
            return x + 1

        @functools.lru_cache
        def cached(x):
            return x + 2

        def wrapping(function):
            @functools.wraps(function)
            def wrapped(*args):
                return function(*args) * 10
            return wrapped

        @wrapping
        def decorated(x):
            return x

        UserId = typing.NewType("UserId", int)
        P = typing.ParamSpec("P")
        T = typing.TypeVar("T")
        Ts = typing.TypeVarTuple("Ts")

        def typed(function: typing.Callable[P, T]) -> typing.Callable[P, T]:
            return function

        class Job(typing.Generic[P, T]):
            pass

        class Row(typing.Generic[typing.Unpack[Ts]]):
            pass

        def named(given):
            import __main__
            assert __main__.helper(1) == 2 and __main__.decorated(1) == 10
            for value in helper, cached, decorated, UserId, P, Ts, given:
                assert pickle.loads(pickle.dumps(value)) is value, value
            assert given is UserId
            assert typing.get_type_hints(typed)["function"].__args__[0] is P
            assert Job[[int], str].__args__ == ((int,), str) and Row[int, str].__args__ == (int, str)
            # What comes from the program alone.
            for name in "main", "sys", "s", "d", "a", "nothing", "__path__", "__file__":
                assert not hasattr(__main__, name), name
            return given, P, Ts

        def pooled():
            with multiprocessing.get_context("fork").Pool(1) as pool:
                return pool.map(helper, [1]) + pool.map(cached, [1]) + pool.map(decorated, [1])

        def executed():
            context = multiprocessing.get_context("fork")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
                return list(executor.map(helper, [1]))

        def plainly():
            return pickle.loads(pickle.dumps(helper))(1)

        with sooner.init(num_cpus=1):
            run = lambda function, *args: sooner.get(sooner.remote(function).remote(*args), timeout=60)
            assert run(named, UserId) == (UserId, P, Ts)
            # Each task has brought functions of its own, and finds them also after those of others.
            tasks = [sooner.remote(function) for function in (pooled, executed, plainly)]
            for _ in range(2):
                assert sooner.get([task.remote() for task in tasks], timeout=60) == [[2, 3, 10], [2], 2]
        """)


_SCRIPT = """
    import inspect, multiprocessing, sys
    import sooner

    print("begins", __name__)

    class Job:
        level = 1

    def helper(x):
        return x + Job.level

    def source():
        import __main__
        return inspect.getsource(Job), inspect.getsource(helper), __main__.__file__

    def spawned(function):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.map(function, [1])

    def program(function):
        with sooner.init(num_cpus=1):
            job, text, file = sooner.get(sooner.remote(source).remote(), timeout=60)
            assert job.splitlines() == ["class Job:", "    level = 1"], job
            assert text.startswith("def helper"), text
            assert file == __file__, file
            print(sooner.get(sooner.remote(spawned).remote(function), timeout=60))
"""


@pytest.mark.parametrize(
    ("end", "started", "printed"),
    [
        ('if __name__ == "__main__":\n    program(helper)\n', "script", "[2]"),
        # It would begin all over.
        ("program(abs)\n", "script", "[1]"),
        ('if __name__ == "__main__":\n    program(abs)\n', "module", "[1]"),
    ],
    ids=["guarded", "unguarded", "module"],
)
def test_workers_know_the_file_of_the_script(tmp_path, end, started, printed) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").touch()
    script = package / "program.py"
    script.write_text(
        ("from . import other\n" if started == "module" else "") + textwrap.dedent(_SCRIPT) + textwrap.dedent(end)
    )
    done = subprocess.run(
        [sys.executable, *([script] if started == "script" else ["-m", "package.program"])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # What the worker prints comes whenever it comes.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("(worker ")]
    assert (lines[0], lines[-1]) == ("begins __main__", printed), done.stdout
    assert lines.count("begins __main__") == 1, done.stdout
