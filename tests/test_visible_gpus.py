"""GPUs: those that the program was shown, their names, processes of their own. No test needs one."""

from __future__ import annotations

import os

import pytest
from support import run_driver

import sooner
from sooner._session import gpus

LOOK = """
import os, sooner
def look():
    context = sooner.get_runtime_context()
    ids = list(map(str, sooner.get_gpu_ids()))
    return os.environ.get("CUDA_VISIBLE_DEVICES"), ids, context.get_accelerator_ids()["GPU"]
"""


@pytest.mark.api("get_gpu_ids")
@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ("3,5", ["3", "5"]),
        (" 2, 7", ["2", "7"]),
        ("GPU-aaaa,GPU-bbbb", ["GPU-aaaa", "GPU-bbbb"]),
        ("MIG-1/2/3", ["MIG-1/2/3"]),
        ("1,-1,2", ["1"]),
    ],
)
def test_tasks_and_actors_get_the_gpus_that_the_program_was_shown(shown, names) -> None:
    run_driver(
        LOOK
        + """
import sys
names = sys.argv[1:]
sooner.init(num_cpus=4, num_gpus=len(names))
assert sooner.get(sooner.remote(num_gpus=len(names))(look).remote()) == (",".join(names), names, names)
class Actor:
    def look(self): return look()
    async def async_look(self): return look()
actors = [sooner.remote(num_gpus=1)(Actor).remote() for _ in names]
seen = sooner.get([a.look.remote() for a in actors] + [a.async_look.remote() for a in actors])
assert sorted(seen) == sorted(2 * [(n, [n], [n]) for n in names]), seen
del actors
halves = sooner.get([sooner.remote(num_gpus=0.5)(look).remote() for _ in names])
assert all(v in names and ids == [v] for v, ids, _ in halves), halves
""",
        *names,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": shown},
    )


@pytest.mark.api("get_gpu_ids")
def test_what_asks_for_no_gpus_sees_none() -> None:
    run_driver(
        LOOK
        + """
sooner.init(num_cpus=1, num_gpus=2)
without = ("", [], [])
task = sooner.remote(look)
assert sooner.get(task.remote()) == ("3,5", [], [])
assert sooner.get(task.options(num_gpus=0).remote()) == without
assert sooner.get(sooner.remote(num_gpus=0)(look).remote()) == without
# Whoever says nothing sees what the node sees, also in the same process.
assert sooner.get([task.remote(), task.options(num_gpus=0).options(num_gpus=None).remote()]) == [("3,5", [], [])] * 2
assert sooner.get(task.options(num_gpus=0).options(num_gpus=1).remote())[0] in ("3", "5")
def items():
    yield look()
assert sooner.get(next(sooner.remote(num_gpus=0, num_returns="streaming")(items).remote())) == without
class Actor:
    def look(self): return look()
actor = sooner.remote(Actor)
assert sooner.get(actor.remote().look.remote()) == ("3,5", [], [])
none = actor.options(num_gpus=0).remote()
assert sooner.get([none.look.remote(), none.look.remote()]) == [without] * 2
""",
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "3,5"},
    )
    run_driver(
        """
        import os, sooner
        sooner.init(local_mode=True, num_cpus=1)
        sooner.get(sooner.remote(num_gpus=0)(lambda: 1).remote())
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5"
        """,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "3,5"},
    )


@pytest.mark.parametrize(("shown", "said"), [("1,2", "names 2 (1,2)"), ("", "names 0 (none)"), ("-1", "names 0")])
def test_more_gpus_than_the_program_was_shown_are_refused(monkeypatch, shown, said) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES") as caught:
        sooner.init(num_cpus=1, num_gpus=3)
    assert said in str(caught.value)


def test_gpus_are_found_where_the_driver_lists_them(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus.count(str(tmp_path / "none")) == 0
    for address in ("0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0"):
        (tmp_path / address).mkdir()
    assert gpus.count(str(tmp_path)) == 3
    for shown, count in (("0", 1), ("0,1,2,3", 3), ("", 0), ("-1", 0), ("GPU-a,GPU-b", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert gpus.count(str(tmp_path)) == count


def test_what_has_gpus_shares_no_process_with_what_has_none() -> None:
    run_driver(
        """
        import os, sooner
        sooner.init(num_cpus=1, num_gpus=1)
        pid = sooner.remote(num_cpus=1)(os.getpid)
        plain = {sooner.get(pid.remote()) for _ in range(3)}
        with_gpu = [sooner.get(pid.options(num_gpus=1).remote()) for _ in range(2)]
        assert len(plain) == 1 and len(set(with_gpu)) == 2, (plain, with_gpu)
        kept = [sooner.get(pid.options(num_gpus=1, max_calls=0).remote()) for _ in range(2)]
        again = sooner.get([pid.remote() for _ in range(3)])
        assert not plain & set(with_gpu + kept) and not set(again) & set(with_gpu + kept)
        assert len(set(kept)) == 1, kept
        """
    )
