"""Metrics of one's own and those of the engine."""

from __future__ import annotations

import os
import signal

import pytest
from support import poll

import sooner
from sooner.util import metrics
from sooner.util.metrics import Counter, Gauge, Histogram


def values():
    """Name with tags -> value, of everything that is shown now."""
    lines = [line for line in metrics.prometheus_text().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.api("metrics")
def test_counters_of_all_processes_add_up(shared_session):
    counter = Counter("add_up_total", description="Things", tag_keys=("kind",))

    @sooner.remote
    def count(kind):
        counter.inc(2, tags={"kind": kind})

    sooner.get([count.remote("a") for _ in range(5)] + [count.remote("b")])
    counter.inc(tags={"kind": "a"})
    shown = values()
    assert shown['add_up_total{kind="a"}'] == 11
    assert shown['add_up_total{kind="b"}'] == 2
    assert "# HELP add_up_total Things\n# TYPE add_up_total counter" in metrics.prometheus_text()


def test_what_a_dead_worker_counted_stays(shared_session):
    @sooner.remote
    class Counting:
        def count(self):
            Counter("survives_total").inc(3)
            return os.getpid()

    actor = Counting.remote()
    worker = sooner.get(actor.count.remote())
    assert values()["survives_total"] == 3
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(sooner.exceptions.ActorDiedError):
        sooner.get(actor.count.remote())
    assert values()["survives_total"] == 3


def test_an_actor_that_leaves_reports_first(shared_session):
    @sooner.remote
    class Counting:
        def count(self):
            Counter("leaves_total").inc()

    actor = Counting.remote()
    sooner.get(actor.count.remote())
    del actor
    poll("it has left", lambda: values()['sooner_workers{state="actor"}'] == 0)
    assert values()["leaves_total"] == 1


def test_a_report_comes_by_itself(shared_session):
    @sooner.remote
    class Counting:
        def count(self):
            Counter("by_itself_total").inc()
            return os.getpid()

    actor = Counting.remote()
    worker = sooner.get(actor.count.remote())
    # A question would make it report; a kill does not.
    from time import sleep

    sleep(2.5)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(sooner.exceptions.ActorDiedError):
        sooner.get(actor.count.remote())
    assert values()["by_itself_total"] == 1


@pytest.mark.api("metrics")
def test_gauges_belong_to_their_process(shared_session):
    @sooner.remote
    class Level:
        def set(self, value):
            Gauge("level").set(value)
            return sooner.get_runtime_context().get_worker_id()

    a, b = Level.remote(), Level.remote()
    first, second = sooner.get([a.set.remote(1.5), b.set.remote(7)])
    sooner.get(b.set.remote(8))
    shown = values()
    assert shown[f'level{{WorkerId="{first}"}}'] == 1.5
    assert shown[f'level{{WorkerId="{second}"}}'] == 8


@pytest.mark.api("metrics")
def test_histograms_count_what_is_at_most_a_boundary(shared_session):
    seconds = Histogram("seconds", boundaries=[0.1, 1, 10], tag_keys=("op",))

    @sooner.remote
    def observe(value):
        seconds.observe(value, tags={"op": "read"})

    sooner.get([observe.remote(value) for value in (0.1, 0.5, 5, 50)])
    shown = values()
    buckets = [shown[f'seconds_bucket{{op="read",le="{end}"}}'] for end in ("0.1", "1", "10", "+Inf")]
    assert buckets == [1, 2, 3, 4]
    assert shown['seconds_count{op="read"}'] == 4
    assert shown['seconds_sum{op="read"}'] == pytest.approx(55.6)


def test_default_tags_and_info(shared_session):
    counter = Counter("defaults_total", description="d", tag_keys=("zone", "route"))
    assert counter.set_default_tags({"zone": "eu"}) is counter
    counter.inc(1, tags={"route": 'a"b\\c\nd'})
    counter.inc(1, tags={"zone": "us"})
    assert counter.info == {
        "name": "defaults_total",
        "description": "d",
        "tag_keys": ("zone", "route"),
        "default_tags": {"zone": "eu"},
    }
    shown = values()
    assert shown['defaults_total{zone="eu",route="a\\"b\\\\c\\nd"}'] == 1
    assert shown['defaults_total{zone="us"}'] == 1
    assert Histogram("defaults_seconds", boundaries=[1]).info["boundaries"] == [1.0]


@pytest.mark.api("metrics")
def test_the_engine_has_metrics_of_its_own(shared_session):
    @sooner.remote(max_retries=0)
    def fails():
        raise ValueError

    before = values()
    sooner.get([sooner.remote(lambda: None).remote() for _ in range(3)])
    with pytest.raises(ValueError):  # noqa: PT011  which text it has does not matter
        sooner.get(fails.remote())
    ref = sooner.put(bytes(1 << 20))
    shown = values()
    assert shown["sooner_tasks_finished_total"] - before.get("sooner_tasks_finished_total", 0) == 3
    assert shown["sooner_tasks_failed_total"] - before.get("sooner_tasks_failed_total", 0) == 1
    assert shown["sooner_store_used_bytes"] >= 1 << 20
    assert shown['sooner_resource_total{resource="CPU"}'] == 2
    assert sum(value for name, value in shown.items() if name.startswith("sooner_workers{")) >= 1
    del ref


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Counter("1st"), ValueError, "metric's name"),
        (lambda: Counter(""), ValueError, "metric's name"),
        (lambda: Counter("sooner_mine"), ValueError, "the engine's"),
        (lambda: Counter("c", description=3), TypeError, "description"),
        (lambda: Counter("c", tag_keys="key"), TypeError, "tag_keys"),
        (lambda: Counter("c", tag_keys=("a-b",)), ValueError, "tag key"),
        (lambda: Histogram("h"), ValueError, "boundaries"),
        (lambda: Histogram("h", boundaries=[2, 1]), ValueError, "boundaries"),
        (lambda: Histogram("h", boundaries=["a"]), ValueError, "boundaries"),
        (lambda: Counter("neg_total").inc(-1), ValueError, "only grows"),
        (lambda: Counter("str_total").inc("1"), TypeError, "finite number"),
        (lambda: Gauge("nan").set(float("nan")), TypeError, "finite number"),
        (lambda: Counter("tagged_total").inc(1, tags={"x": "y"}), ValueError, "not a tag"),
        (lambda: Counter("typed_total", tag_keys=("x",)).inc(1, tags={"x": 1}), TypeError, "must be a string"),
        (lambda: Counter("mapped_total").inc(1, tags=["x"]), TypeError, "must be a dict"),
    ],
)
def test_wrong_metrics(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_one_name_is_one_metric(shared_session):
    Counter("taken_total", tag_keys=("a",))
    Counter("taken_total", tag_keys=("a",)).inc(1)
    with pytest.raises(ValueError, match="exists with another type"):
        Gauge("taken_total")


def test_metrics_travel(shared_session):
    histogram = Histogram("travels_seconds", boundaries=[1], tag_keys=("a",)).set_default_tags({"a": "b"})
    other = sooner.get(sooner.remote(lambda metric: (metric.observe(0.5), metric)[1]).remote(histogram))
    assert other.info == histogram.info
    assert values()['travels_seconds_count{a="b"}'] == 1
