"""A fork and the end of the interpreter wait for calls of native code, and for imports, in other threads."""

import os
import threading
from pathlib import Path

import pytest

from jitlto.base import uninterrupted as module
from jitlto.base.errors import ToolchainError
from jitlto.base.uninterrupted import uninterrupted
from tests.support.errors import raises
from tests.support.process import output_of, python

# Hooks that are registered later run earlier before a fork, and at the end of the interpreter: ``release`` begins to
# run when the wait is about to begin, and ``report`` when it has ended.
WAIT = """
import atexit, os, sys, threading
inside, release, said = threading.Event(), threading.Event(), []

def report():
    os.write(1, " ".join(said).encode())
{before}
from jitlto.base.uninterrupted import alone, uninterrupted

def work():
    with uninterrupted:
        inside.set()
        release.wait()
        for _ in range(1000):  # many chances to go on without this thread
            os.sched_yield()
        said.append("left")

{after}
thread = threading.Thread(target=work, daemon=True)
thread.start()
inside.wait()
"""


def test_a_fork_waits_until_no_other_thread_is_inside() -> None:
    code = WAIT.format(before="os.register_at_fork(before=report)", after="os.register_at_fork(before=release.set)")
    code += """
child = os.fork()
if child == 0:
    with uninterrupted, alone:
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert output_of(code, seconds=60) == "left7\n"


def test_the_end_of_the_interpreter_waits_until_no_other_thread_is_inside() -> None:
    code = WAIT.format(before="atexit.register(report)", after="atexit.register(release.set)")
    assert output_of(code, seconds=60) == "left"


def test_a_process_forked_from_a_call_that_does_not_end_has_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    inside, release = threading.Event(), threading.Event()

    def work() -> None:
        with uninterrupted:
            inside.set()
            release.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with raises(ToolchainError, "toolchain-forked", hint="spawn"), uninterrupted:
                pass
            status = 7
        finally:
            os._exit(status)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with uninterrupted:  # the parent is not concerned
        pass


FORKS = """
import os, sys, threading, time
import jitlto

family = jitlto.load("mini", sys.argv[1])
plans = [family.plan(arch="sm_90", **each) for each in family.configurations()]
stop = threading.Event()

def link(plan):
    while not stop.is_set():
        plan.link(use_cache=False)

threads = [threading.Thread(target=link, args=(plan,)) for plan in plans[:2]]
[thread.start() for thread in threads]
for number in range(10):
    child = os.fork()
    if child == 0:
        plans[number % 3 % len(plans)].link(use_cache=False)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
"""


@pytest.mark.slow
def test_a_child_forked_while_other_threads_link_links(mini_path: Path) -> None:
    output_of(FORKS, mini_path, seconds=120)


EXITS = """
import sys, threading
import jitlto

linked = threading.Semaphore(0)

def warm():
    family = jitlto.load("search", sys.argv[1])
    while True:
        for each in family.configurations():
            family.plan(arch="sm_90", **each).link(use_cache=False)
            linked.release()

for _ in range(3):
    threading.Thread(target=warm, daemon=True).start()
for _ in range(4):
    linked.acquire()
"""


@pytest.mark.slow
def test_a_process_ends_in_order_while_daemon_threads_link(shipped_path: Path) -> None:
    ended = [python("-c", EXITS, shipped_path, seconds=60) for _ in range(3)]
    assert [(each.returncode, each.stderr) for each in ended] == [(0, "")] * 3
