"""Values for which there is no room in memory go to an object store that speaks S3; nothing of them is
left there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from object_stores import SECRET, Relay, Server
from support import WAIT, poll, running_driver

import sooner
from sooner._session import spilling
from sooner._state.snapshot import METRICS, Snapshot
from sooner.cluster_utils import Cluster
from sooner.exceptions import ObjectStoreFullError, OutOfDiskError

pytest.importorskip("moto.server", reason="needs requirements/object_store.txt")

MIB = 1 << 20
STORE_MIB = 64
VALUE_MIB = 8
# Almost three times what there is room for.
COUNT = 22
BUCKET = "sooner-tests"


def value(number, size=VALUE_MIB * MIB):
    return np.full(size // 8, number)


def metric(name):
    session = sooner.init(ignore_reinit_error=True)["session_dir"]
    series = {series["name"]: series["values"] for series in Snapshot(session, METRICS).node["metrics"]}
    return series[f"sooner_node_{name}"][0]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("s3") / "log") as made:
        made.make_bucket(BUCKET)
        yield made


@pytest.fixture
def prefix(server, monkeypatch, request):
    """The URL of a place where nobody else writes; the environment says how to get there."""
    use(monkeypatch, server.url)
    return f"{BUCKET}/{request.node.name.replace('[', '-').replace(']', '')}"


def use(monkeypatch, endpoint, key="someone", secret=SECRET):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def init(prefix, **arguments):
    return sooner.init(
        num_cpus=2, object_store_memory=STORE_MIB * MIB, spill_directories=[f"s3://{prefix}"], **arguments
    )


@pytest.fixture
def session(nothing_left, prefix):
    context = init(prefix)
    nothing_left.append(context["session_dir"])
    yield context
    sooner.shutdown()


def objects_below(server, prefix):
    """Keys of values; those of markers do not count."""
    _, _, below = prefix.partition("/")
    keys = [key for key in server.keys(BUCKET) if key.startswith(f"{below}/")]
    return [key for key in keys if not key.endswith("/session")]


@sooner.remote
def make(number, size=VALUE_MIB * MIB):
    return value(number, size)


@sooner.remote
def first(array):
    return int(array[0]), len(array)


def test_more_is_put_than_there_is_room_for(server, session, prefix):
    refs = [sooner.put(value(number)) for number in range(COUNT)]
    assert metric("spilled_written_bytes") >= (COUNT * VALUE_MIB - STORE_MIB) * MIB
    for number, ref in enumerate(refs):
        assert (sooner.get(ref) == number).all()
    assert (sooner.get(refs[0]) == 0).all(), "again, from the beginning"
    assert sooner.get([first.remote(ref) for ref in refs], timeout=WAIT) == [
        (n, VALUE_MIB * MIB // 8) for n in range(COUNT)
    ]
    assert objects_below(server, prefix)
    refs.clear()
    del ref
    poll("nothing is there any more", lambda: not objects_below(server, prefix))
    assert metric("spill_files_bytes") == 0


def test_tasks_return_more_than_there_is_room_for(session):
    made = [make.remote(number) for number in range(COUNT)]
    assert sooner.get([first.remote(ref) for ref in made], timeout=WAIT) == [
        (number, VALUE_MIB * MIB // 8) for number in range(COUNT)
    ]


def test_a_value_of_many_objects_comes_back(session):
    draw = np.random.default_rng(7)
    arrays = [draw.integers(0, 1 << 40, 45 * MIB // 8 + 3) for _ in range(3)]
    refs = [sooner.put(array) for array in arrays]
    assert metric("spilled_bytes") > 45 * MIB
    for array, ref in zip(arrays, refs, strict=True):
        assert (sooner.get(ref) == array).all()


def test_a_value_larger_than_the_store_is_in_the_file_behind_the_memory(session):
    if not spilling._on_disk(os.environ.get("SOONER_TMPDIR", "/tmp")):
        pytest.skip("no directory on a disk for it")
    assert sooner.get(sooner.put(value(3, 2 * STORE_MIB * MIB))).sum() == 3 * 2 * STORE_MIB * MIB // 8


def test_many_small_values_are_few_objects(server, session, prefix):
    size, count = 100 << 10, 1500
    refs = [sooner.put(value(number, size)) for number in range(count)]
    written = metric("spilled_written_bytes")
    assert written >= count * size - STORE_MIB * MIB
    puts = server.count("PUT", prefix)
    assert puts < written / size / 10, "they are fused"
    assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(count))


def test_objects_that_are_mostly_dead_are_rewritten(server, session, prefix):
    size, count = 100 << 10, 1500
    refs = [sooner.put(value(number, size)) for number in range(count)]
    before = metric("spill_files_bytes")
    refs = refs[::5]
    poll("most of it is given back", lambda: metric("spill_files_bytes") < before / 2)
    poll("what is there is needed", lambda: metric("spill_files_bytes") <= 2.5 * metric("spilled_bytes"))
    assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(0, count, 5))


def test_nothing_is_left_at_the_end(server, nothing_left, prefix):
    with init(prefix) as context:
        nothing_left.append(context["session_dir"])
        refs = [sooner.put(value(number)) for number in range(COUNT)]
        assert objects_below(server, prefix)
        del refs
        held = [sooner.put(value(number)) for number in range(COUNT)]
        assert objects_below(server, prefix)
    assert not [key for key in server.keys(BUCKET) if key.startswith(prefix.partition("/")[2])]
    del held


DRIVER = """
    import sys
    import numpy as np
    import sooner

    sooner.init(num_cpus=1, object_store_memory=64 << 20, spill_directories=[sys.argv[1]])
    refs = [sooner.put(np.full(1 << 20, number)) for number in range(22)]
    print("full", flush=True)
    sys.stdin.readline()
    assert [int(sooner.get(ref)[0]) for ref in refs] == list(range(22))
"""


def test_what_a_killed_session_left_is_deleted_by_the_next_one(server, nothing_left, prefix):
    url = f"s3://{prefix}"

    def sessions():
        return {key.split("/")[2] for key in objects_below(server, prefix)}

    with running_driver(DRIVER, url) as killed, running_driver(DRIVER, url) as living:
        assert killed.stdout.readline() == "full\n"
        assert living.stdout.readline() == "full\n"
        killed.kill()
        killed.wait()
        assert len(sessions()) == 2
        with init(prefix) as context:
            nothing_left.append(context["session_dir"])
            poll("half is gone", lambda: len(sessions()) == 1)
        # It finds what it has there.
        living.stdin.write("end\n")
        living.stdin.flush()
        assert living.wait(WAIT) == 0
    assert not objects_below(server, prefix)


def test_nodes_of_clusters_write_there_and_others_read_through_them(server, prefix):
    small = {"object_store_memory": STORE_MIB * MIB, "spill_directories": [f"s3://{prefix}"]}
    with Cluster(initialize_head=True, head_node_args={"num_cpus": 0} | small) as cluster:
        cluster.add_node(num_cpus=2, resources={"makes": 100}, **small)
        cluster.add_node(num_cpus=2, resources={"reads": 100}, **small)
        cluster.wait_for_nodes()
        cluster.connect()
        refs = [make.options(resources={"makes": 1}).remote(number) for number in range(COUNT)]
        large = make.options(resources={"makes": 1}).remote(99, 40 * MIB)
        ready, _ = sooner.wait([*refs, large], num_returns=COUNT + 1, timeout=WAIT, fetch_local=False)
        assert len(ready) == COUNT + 1
        assert objects_below(server, prefix)
        reading = [first.options(resources={"reads": 1}).remote(ref) for ref in [*refs, large]]
        expected = [(number, VALUE_MIB * MIB // 8) for number in range(COUNT)]
        assert sooner.get(reading, timeout=WAIT) == [*expected, (99, 40 * MIB // 8)]
        for number, ref in enumerate(refs):
            array = sooner.get(ref, timeout=WAIT)
            assert (array == number).all()
            del array
        # Nodes are killed at the end, and killed ones leave what they have to the next session.
        del refs, large, ready, ref, reading
        poll("what nobody needs is deleted", lambda: not objects_below(server, prefix))


def test_a_store_that_goes_away_and_comes_back(server, monkeypatch, nothing_left, prefix, capfd):
    # Without a disk there is nowhere else.
    monkeypatch.setattr(spilling, "_on_disk", lambda base: [])
    with Relay(server.url) as relay:
        use(monkeypatch, relay.url)
        with init(prefix) as context:
            nothing_left.append(context["session_dir"])
            refs = [sooner.put(value(number)) for number in range(COUNT)]
            relay.go()
            more = []
            with pytest.raises(OutOfDiskError, match="does not answer"):
                for number in range(COUNT, 2 * COUNT):
                    more.append(sooner.put(value(number)))  # noqa: PERF401  those before the error count
            said = capfd.readouterr().err
            assert "values stay in memory because they cannot be written to disk" in said
            assert SECRET not in said
            relay.come()

            def put():
                with contextlib.suppress(ObjectStoreFullError):
                    return sooner.put(value(COUNT + len(more)))
                return None

            # What could not be written is tried again, after a while.
            while len(more) < COUNT:
                more.append(poll("the store is used again", put))
            for number, ref in enumerate(refs + more):
                assert int(sooner.get(ref)[0]) == number
    assert not objects_below(server, prefix)


def test_the_end_does_not_wait_for_a_store_that_hangs(server, nothing_left, prefix, capfd):
    with init(prefix) as context:
        nothing_left.append(context["session_dir"])
        refs = [sooner.put(value(number)) for number in range(COUNT)]
        with server.hanging():
            sooner.shutdown()
    said = capfd.readouterr().err
    assert "are left in the object store below" in said
    del refs
    left = objects_below(server, prefix)
    assert left
    # This process is there, so they are taken for those of a living session until it is not.
    code = f"import sooner; sooner.init(num_cpus=1, spill_directories=['s3://{prefix}']); import time; time.sleep(0.5)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT)
    after = set(objects_below(server, prefix))
    assert set(left) <= after
    # What was on its way while the store hung may come only now; the other session leaves nothing.
    assert {key.rpartition("/")[0] for key in after} == {key.rpartition("/")[0] for key in left}


def test_objects_that_others_delete_are_values_that_are_lost(server, session, prefix):
    refs = [make.remote(number) for number in range(COUNT)]
    sooner.wait(refs, num_returns=COUNT, timeout=WAIT)
    for key in objects_below(server, prefix):
        server.delete(BUCKET, key)
    # Their tasks are known.
    assert [int(sooner.get(ref, timeout=WAIT)[0]) for ref in refs] == list(range(COUNT))


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (["ftp://bucket/a"], 'no object store for "ftp"'),
        (["s3://"], "names no bucket"),
        ([f"s3://key:{SECRET}@bucket"], "credentials and endpoints are taken from the environment"),
        ([f"s3://bucket?secret={SECRET}"], "credentials and endpoints are taken from the environment"),
        (["s3://bucket", "/tmp"], "stands with 1 more"),
        (["/tmp", "s3://bucket"], "stands with 1 more"),
        (["s3://bucket", "s3://other"], "stands with 1 more"),
    ],
)
def test_wrong_urls_are_refused(places, message):
    with pytest.raises(ValueError, match=message) as caught:
        sooner.init(num_cpus=1, spill_directories=places)
    assert SECRET not in str(caught.value)


def refused(error, message):
    with pytest.raises(error, match=message) as caught:
        init(f"{BUCKET}/refused")
    assert str(caught.value).startswith("spill_directories: ")
    assert SECRET not in str(caught.value)
    assert not sooner.is_initialized()


def test_a_missing_bucket_is_said(server, monkeypatch):
    use(monkeypatch, server.url)
    with pytest.raises(FileNotFoundError, match="s3://nowhere-at-all/x has no such bucket"):
        init("nowhere-at-all/x")
    assert not sooner.is_initialized()


def test_an_endpoint_where_nobody_listens_is_said(monkeypatch):
    use(monkeypatch, "http://127.0.0.1:9")
    refused(ConnectionError, "does not answer")


def test_an_endpoint_that_hangs_is_said(server, monkeypatch):
    use(monkeypatch, server.url)
    with server.hanging():
        refused(ConnectionError, "no answer within 8 s")


def test_an_endpoint_without_encryption_has_to_be_allowed(server, monkeypatch):
    use(monkeypatch, server.url)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    refused(ValueError, "Set AWS_ALLOW_HTTP=true")


def test_no_credentials_at_all_is_said(server, monkeypatch):
    use(monkeypatch, server.url)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    refused(ConnectionError, "AWS_ACCESS_KEY_ID is not set")


def test_half_of_the_credentials_is_said(server, monkeypatch):
    use(monkeypatch, server.url)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    refused(ValueError, "Missing AccessKeyId")


def test_credentials_that_are_not_known_are_refused(tmp_path, monkeypatch):
    # From the second request on it looks at credentials, and it knows nobody.
    with Server(tmp_path / "log", {"INITIAL_NO_AUTH_ACTION_COUNT": "1"}) as strict:
        strict.make_bucket(BUCKET)
        use(monkeypatch, strict.url)
        refused(PermissionError, "refuses these credentials: InvalidAccessKeyId")


def test_a_node_says_why_it_does_not_start(server, tmp_path, monkeypatch):
    use(monkeypatch, server.url)
    command = [sys.executable, "-m", "sooner", "start", "--head", f"--cluster-dir={tmp_path}"]
    for place, said in [
        ("s3://nowhere-at-all/x", "has no such bucket"),
        ("ftp://bucket", "--spill-directory: ftp://bucket is no URL of an object store"),
    ]:
        ended = subprocess.run(
            [*command, f"--spill-directory={place}"], capture_output=True, text=True, timeout=WAIT, check=False
        )
        assert ended.returncode != 0
        assert said in ended.stderr
