"""What is computed once is so in several threads too, and no thread waits for another to do it."""

import re
import threading

import pytest

from jitlto.base.cached import cached_property
from tests.support.process import output_of
from tests.support.source_code import PACKAGE


class Owner:
    def __init__(self) -> None:
        self.begun, self.go_on, self.computed = threading.Event(), threading.Event(), 0

    @cached_property
    def value(self) -> int:
        """What is computed."""
        self.computed += 1
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            self.go_on.wait()
        return 7


def test_a_property_is_computed_once() -> None:
    owner = Owner()
    assert (owner.value, owner.value, owner.computed) == (7, 7, 1)
    assert Owner.value.__doc__ == "What is computed."


def test_a_thread_that_computes_a_property_holds_no_other_up() -> None:
    """Whose lock a fork would leave locked."""
    owner = Owner()
    thread = threading.Thread(target=lambda: owner.value)
    thread.start()
    owner.begun.wait()
    assert Owner().value == 7
    assert owner.value == 7
    owner.go_on.set()
    thread.join()


def test_no_module_takes_the_standard_librarys() -> None:
    taken = [path for path in PACKAGE.rglob("*.py") if re.search(r"functools\b.*cached_property", path.read_text())]
    assert taken == [PACKAGE / "base" / "cached.py"]


FIRST = """
import sys, threading, types
import msgspec
from jitlto.base.cached import decoder
sys.setswitchinterval(1e-6)

def use(kind):
    barrier.wait()
    decoder(kind).decode(b'{"parts": [{"parts": []}]}')

for number in range(20):
    module = sys.modules["kinds"] = types.ModuleType("kinds")  # where msgspec evaluates the annotations
    module.msgspec, module.Kind0 = msgspec, int
    for depth in range(1, 9):
        exec(f"class Kind{depth}(msgspec.Struct): parts: 'tuple[Kind{depth - 1}, ...]' = ()", vars(module))
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=use, args=(module.Kind8,)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("done")
"""


@pytest.mark.slow
def test_the_first_decodes_of_several_threads_do_not_end_the_process() -> None:
    assert output_of(FIRST, seconds=120) == "done\n"
