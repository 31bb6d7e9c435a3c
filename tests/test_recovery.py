"""Lost values come back by executing the tasks that made them again (Ownership, section 4.3)."""

import itertools
import os
import time

import pytest
from support import WAIT, poll

import sooner
from sooner import exceptions
from sooner.util import state
from sooner.util.testing import lose_objects

LARGE = 1 << 20


@pytest.fixture
def session():
    sooner.init(num_cpus=2)
    yield
    sooner.shutdown()


@pytest.fixture
def small_lineage():
    sooner.init(num_cpus=2, lineage_bytes=10_000)
    yield
    sooner.shutdown()


@sooner.remote
def fill(letter, log=None):
    if log is not None:
        with open(log, "a") as file:
            file.write("x")
    return letter * LARGE


@sooner.remote
def join(*parts):
    return b"".join(parts)


@sooner.remote
def first_bytes(value):
    return value[:1]


@sooner.remote
def length_of(refs):
    return [len(value) for value in sooner.get(refs)]


@sooner.remote
class Maker:
    def __init__(self):
        self.made = 0

    def fill(self, letter):
        self.made += 1
        return letter * LARGE

    def head(self, value):
        return value[:1]

    def count(self):
        return self.made

    def keep(self, refs):
        self.refs = refs

    def read(self):
        return sooner.get(self.refs[0])[:1]


def executions(log):
    return log.stat().st_size if log.exists() else 0


def test_a_lost_result_is_computed_again(session, tmp_path):
    ref = fill.remote(b"a", tmp_path / "log")
    assert sooner.get(ref) == b"a" * LARGE
    assert lose_objects(ref) == 1
    assert sooner.get(ref) == b"a" * LARGE
    assert executions(tmp_path / "log") == 2


def test_what_was_read_before_the_loss_stays_readable(session):
    numpy = pytest.importorskip("numpy")

    @sooner.remote
    def array():
        return numpy.arange(LARGE)

    ref = array.remote()
    before = sooner.get(ref)
    lose_objects(ref)
    after = sooner.get(ref)
    assert before[-1] == after[-1] == LARGE - 1
    del ref, after
    others = [sooner.put(numpy.full(LARGE, n)) for n in range(4)]
    assert before.sum() == LARGE * (LARGE - 1) // 2
    del others


def test_lost_arguments_are_computed_again_first(session, tmp_path):
    log = tmp_path / "log"
    parts = [fill.remote(letter, log) for letter in (b"a", b"b")]
    whole = join.remote(*parts)
    assert len(sooner.get(whole)) == 2 * LARGE
    # Nothing but the lineage of the result knows the arguments from here on: their memory is free.
    del parts
    poll("the arguments go", lambda: in_use() <= 2)
    lose_objects(whole)
    assert sooner.get(whole) == b"a" * LARGE + b"b" * LARGE
    assert executions(log) == 4
    poll("the arguments go again", lambda: in_use() <= 2)


def in_use():
    return sum(1 for record in state.list_objects() if record.location is not None)


def test_a_long_chain_comes_back_from_its_beginning(session):
    @sooner.remote
    def longer(value):
        return value + b"y"

    ref = fill.remote(b"x")
    for _ in range(50):
        ref = longer.remote(ref)
    assert len(sooner.get(ref)) == LARGE + 50
    lose_objects(ref)
    assert sooner.get(ref) == b"x" * LARGE + b"y" * 50


def test_tasks_and_calls_get_a_lost_argument_again(session):
    ref = fill.remote(b"a")
    actor = Maker.remote()
    assert sooner.get([first_bytes.remote(ref), actor.head.remote(ref)]) == [b"a", b"a"]
    for _ in range(3):
        calls = [actor.head.remote(ref) for _ in range(5)] + [first_bytes.remote(ref) for _ in range(5)]
        lose_objects(ref) if sooner.get(ref) else None
        assert sooner.get(calls) == [b"a"] * 10


def test_borrowers_ask_again(session):
    ref = fill.options(max_retries=-1).remote(b"a")
    actor = Maker.remote()
    sooner.get(actor.keep.remote([ref]))
    assert sooner.get(actor.read.remote()) == b"a"
    for _ in range(5):
        lose_objects(ref)
        assert sooner.get(actor.read.remote()) == b"a"
        assert sooner.get(length_of.remote([ref])) == [LARGE]


def test_a_borrower_may_lose_what_the_owner_holds(session):
    @sooner.remote
    def lose(refs):
        sooner.get(refs)
        return lose_objects(refs)

    ref = fill.remote(b"a")
    sooner.get(ref)
    assert sooner.get(lose.remote([ref])) == 1
    assert sooner.get(ref) == b"a" * LARGE


@pytest.mark.api("errors.lost_reasons")
def test_what_put_made_stays_lost(session):
    ref = sooner.put(b"a" * LARGE)
    lose_objects(ref)
    with pytest.raises(exceptions.ObjectLostError, match=r"made by sooner.put\(\)") as caught:
        sooner.get(ref)
    assert type(caught.value) is exceptions.ObjectLostError
    with pytest.raises(exceptions.ObjectLostError):
        sooner.get(first_bytes.remote(ref))


def test_calls_are_repeated_only_where_that_is_allowed(session):
    actor = Maker.remote()
    ref = actor.fill.remote(b"a")
    sooner.get(ref)
    lose_objects(ref)
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match="max_task_retries"):
        sooner.get(ref)
    again = Maker.options(max_restarts=1, max_task_retries=2).remote()
    ref = again.fill.remote(b"a")
    sooner.get(ref)
    lose_objects(ref)
    assert sooner.get(ref) == b"a" * LARGE
    assert sooner.get(again.count.remote()) == 2


@sooner.remote(num_returns="streaming")
def items(count, log=None):
    """Endless if `count` is None. The log has a letter for each item that was asked for."""
    for i in itertools.count() if count is None else range(count):
        if log is not None:
            with open(log, "a") as file:
                file.write("x")
        yield bytes([i]) * LARGE


def firsts(refs):
    return [value[0] for value in sooner.get(refs, timeout=WAIT)]


@pytest.mark.api("failure.lost_items")
@pytest.mark.parametrize("limit", [-1, 1])
def test_items_of_a_generator_are_made_again(session, limit):
    refs = list(items.options(_generator_backpressure_num_objects=limit).remote(4))
    lose_objects(refs[1:3])
    assert firsts(refs) == [0, 1, 2, 3]
    lose_objects(refs)
    assert firsts(refs[::-1]) == [3, 2, 1, 0]


def test_items_of_one_list_are_made_again(session):
    outer = items.options(num_returns="dynamic").remote(3)
    refs = list(sooner.get(outer))
    lose_objects(refs)
    assert firsts(refs) == [0, 1, 2]
    del outer
    lose_objects(refs[2])
    assert firsts(refs[2:]) == [2]


def test_what_was_made_of_items_is_made_again(session):
    double = sooner.remote(lambda value: value * 2)
    made = [double.remote(ref) for ref in items.remote(3)]
    sooner.wait(made, num_returns=3)
    poll("the items go", lambda: in_use() == 3)
    lose_objects(made)
    assert [(value[0], len(value)) for value in sooner.get(made, timeout=WAIT)] == [(i, 2 * LARGE) for i in range(3)]


def test_an_endless_generator_is_repeated_as_far_as_it_was_read(session):
    generator = items.remote(None)
    refs = [next(generator) for _ in range(3)]
    sooner.wait(refs, num_returns=3)
    lose_objects(refs)
    assert firsts(refs) == [0, 1, 2], "it was running"
    generator.close()
    poll("it ends", lambda: sooner.available_resources().get("CPU", 0) == 2)
    lose_objects(refs[:2])
    assert firsts(refs) == [0, 1, 2]
    poll("it ends again", lambda: sooner.available_resources().get("CPU", 0) == 2)


def test_an_item_is_made_again_while_its_generator_waits_for_the_reader(session):
    generator = items.options(_generator_backpressure_num_objects=1).remote(4)
    first = next(generator)
    sooner.wait([generator])
    lose_objects(first)
    assert firsts([first]) == [0]
    assert firsts(list(generator)) == [1, 2, 3]


def test_items_of_an_actor_are_made_again_where_calls_may_be(session):
    @sooner.remote(max_restarts=1)
    class Source:
        def items(self):
            yield b"a" * LARGE
            yield b"b" * LARGE

    source = Source.remote()
    refs = list(source.items.remote())
    lose_objects(refs)
    with pytest.raises(exceptions.ObjectLostError, match="max_task_retries"):
        sooner.get(refs[0], timeout=WAIT)
    refs = list(source.items.options(max_task_retries=2).remote())
    lose_objects(refs)
    assert [value[:1] for value in sooner.get(refs, timeout=WAIT)] == [b"a", b"b"]


def test_items_stay_lost_that_may_not_or_do_not_come_again(session, tmp_path):
    @sooner.remote(num_returns="streaming")
    def fewer(log):
        with open(log, "a") as file:
            file.write("x")
        for _ in range(4 - executions(log)):
            yield b"a" * LARGE

    refs = list(items.options(max_retries=0).remote(1))
    lose_objects(refs)
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match="no retries left"):
        sooner.get(refs[0], timeout=WAIT)
    refs = list(fewer.remote(tmp_path / "log"))
    lose_objects(refs)
    assert firsts(refs[:2]) == [ord("a")] * 2
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match=r"item 3 of .*fewer.* after item 2"):
        sooner.get(refs[2], timeout=WAIT)
    generator = items.remote(None)
    first = next(generator)
    sooner.cancel(generator)
    list(generator)
    lose_objects(first)
    with pytest.raises(exceptions.ObjectLostError, match="cancelled"):
        sooner.get(first, timeout=WAIT)


def test_nothing_is_left_of_items_that_were_made_again(session):
    refs = list(items.remote(3))
    made = [sooner.remote(lambda value: value[:]).remote(ref) for ref in refs]
    sooner.get(made)
    lose_objects([*refs, *made])
    sooner.get([*refs, *made], timeout=WAIT)
    del refs, made
    poll("the store is empty", lambda: in_use() == 0)


@pytest.mark.api("errors.lost_reasons")
def test_retries_are_used_up(session, tmp_path):
    ref = fill.options(max_retries=2).remote(b"a", tmp_path / "log")
    for _ in range(2):
        sooner.get(ref)
        lose_objects(ref)
    assert sooner.get(ref) == b"a" * LARGE
    lose_objects(ref)
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match="no retries left"):
        sooner.get(ref)
    assert executions(tmp_path / "log") == 3


def test_an_argument_that_cannot_come_back_is_named(session):
    big = sooner.put(b"a" * LARGE)
    whole = join.remote(big, fill.remote(b"b"))
    sooner.get(whole)
    del big
    poll("the argument goes", lambda: in_use() <= 2)
    lose_objects(whole)
    with pytest.raises(exceptions.ObjectReconstructionFailedError, match=r"executing join\(\) again failed: object"):
        sooner.get(whole)


def test_an_exception_of_the_second_execution_is_the_result(session, tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote
    def once():
        if mark.exists():
            raise KeyError("only once")
        mark.touch()
        return b"a" * LARGE

    ref = once.remote()
    sooner.get(ref)
    lose_objects(ref)
    with pytest.raises(KeyError, match="only once"):
        sooner.get(ref)


def test_the_oldest_lineage_goes_first(small_lineage):
    refs = [fill.remote(b"a") for _ in range(60)]
    sooner.get(refs)
    lose_objects([refs[0], refs[-1]])
    assert sooner.get(refs[-1]) == b"a" * LARGE
    with pytest.raises(exceptions.ObjectReconstructionFailedLineageEvictedError, match="lineage_bytes"):
        sooner.get(refs[0])


@pytest.mark.parametrize("wrong", [-1, 1.5, "1 GiB", True])
def test_bad_lineage_bytes(wrong):
    with pytest.raises(ValueError, match="lineage_bytes must be a whole number"):
        sooner.init(lineage_bytes=wrong)


def test_several_returns_come_back_together(session, tmp_path):
    log = tmp_path / "log"

    @sooner.remote(num_returns=3)
    def three():
        with open(log, "a") as file:
            file.write("x")
        return b"a" * LARGE, 5, b"c" * LARGE

    refs = three.remote()
    sooner.get(refs)
    lose_objects([refs[0], refs[2]])
    assert [value if value == 5 else value[:1] for value in sooner.get(refs)] == [b"a", 5, b"c"]
    lose_objects(refs[2])
    assert sooner.get(refs[2])[:1] == b"c"
    assert executions(log) == 3


def test_references_inside_a_lost_value_come_back_with_it(session):
    @sooner.remote
    def nested():
        return [sooner.put(b"inner"), bytes(LARGE)]

    ref = nested.remote()
    inner = sooner.get(ref)[0]
    lose_objects(ref)
    again = sooner.get(ref)[0]
    assert sooner.get([inner, again]) == [b"inner", b"inner"]
    assert inner != again


def test_a_cancelled_recovery(session, tmp_path):
    mark = tmp_path / "mark"

    @sooner.remote
    def slow_the_second_time():
        if mark.exists():
            time.sleep(60)
        mark.touch()
        return bytes(LARGE)

    ref = slow_the_second_time.remote()
    sooner.get(ref)
    lose_objects(ref)
    sooner.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        sooner.get(ref)


def test_a_worker_that_dies_while_it_recovers(session, tmp_path):
    count = tmp_path / "count"

    @sooner.remote
    def dies_the_second_time():
        with open(count, "a") as file:
            file.write("x")
        if count.stat().st_size == 2:
            os._exit(1)
        return bytes(LARGE)

    ref = dies_the_second_time.remote()
    sooner.get(ref)
    lose_objects(ref)
    assert len(sooner.get(ref)) == LARGE
    assert executions(count) == 3


def test_lost_memory_is_used_again(session):
    for _ in range(40):
        refs = [fill.remote(b"a") for _ in range(4)]
        sooner.get(refs)
        lose_objects(refs)
        assert [value[:1] for value in sooner.get(refs)] == [b"a"] * 4
        del refs
    poll("nothing is left", lambda: in_use() == 0)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="takes ObjectRefs, not int"):
        lose_objects([1])
