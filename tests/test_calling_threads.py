"""Programs whose threads call sooner at the same time, or whose objects do so as they end."""

from __future__ import annotations

from support import run_driver

HEAD = """
import sys, threading, sooner

@sooner.remote
def identity(x):
    return x

def get(refs):
    return sooner.get(refs, timeout=60)
"""


def test_the_first_calls_of_a_program_come_from_many_threads_at_once():
    code = (
        HEAD
        + """
sys.setswitchinterval(1e-6)
begun = []
found = []

def calls(number):
    while not begun:
        pass
    found.append(get(identity.remote(number)))

sooner.init(num_cpus=1)
threads = [threading.Thread(target=calls, args=(number,)) for number in range(16)]
for thread in threads:
    thread.start()
begun.append(True)
for thread in threads:
    thread.join()
assert sorted(found) == list(range(16))
print("done")
"""
    )
    # What happens once in a process is tried in several.
    for _ in range(12):
        assert run_driver(code).stdout == "done\n"


def test_an_object_in_a_list_that_workers_follow_calls_a_task_as_it_ends():
    done = run_driver(
        HEAD
        + """
class Argument(str):
    def __del__(self):
        print("ends", get(identity.remote(1)))

sooner.init(num_cpus=1)
sys.argv.append(Argument("one"))
assert get(identity.remote(2)) == 2
sys.argv.pop()
assert get(identity.remote(3)) == 3
del Argument.__del__
"""
    )
    assert done.stdout == "ends 1\n"
