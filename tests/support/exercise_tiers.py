"""Launchers whose kernel is exchanged, in random interleavings, against a model of them.

    python tests/support/exercise_tiers.py --count 10000

No GPU is needed: the driver notes what it is given. Links are short sleeps, unless ``--real``. Rounds run in processes
that fork, and that end while links are under way; each has to end well, in time and without a word. As for
``exercise_core.py``, ``--core`` names a compiled core, such as one for a sanitizer; ``--core=off`` does without.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import gc
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import filelock  # noqa: E402, F401 - a fork during its import is told that its hook before the fork did not run
import pytest  # noqa: E402
from cuda.bindings import driver  # noqa: E402

import jitlto  # noqa: E402
from jitlto.base.config import Config  # noqa: E402
from jitlto.base.errors import LaunchError, LinkError, NoDeviceError  # noqa: E402
from jitlto.base.events import Event, Kind  # noqa: E402
from jitlto.base.log import LinkWarning  # noqa: E402
from jitlto.base.uninterrupted import uninterrupted  # noqa: E402
from jitlto.cuda import device  # noqa: E402
from jitlto.launch import launcher as launcher_module  # noqa: E402
from jitlto.launch import signature as signature_module  # noqa: E402
from jitlto.link import linker  # noqa: E402
from jitlto.plan.cache_entry import LinkedKernel  # noqa: E402
from jitlto.runtime.session import Session  # noqa: E402
from tests.support import launch_core, launchers  # noqa: E402

LONG = 30  # seconds after which a round hangs
IN_CHILD = 10  # the same of a forked process
CAPTURING = 7  # the handle of a stream that is being captured
BIG = 1024  # threads of a block that no fast kernel can take
KERNELS = [{"data_type": kind, "op_name": op} for kind in ("float", "double") for op in ("twice", "square")]
LATE = {Kind.LINKED, Kind.EXCHANGED}


class TierDriver(launchers.FakeDriver):
    """Notes, for each thread, which kernel it launches with which number; loads what is linked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, core: ModuleType | None) -> None:
        super().__init__(monkeypatch, core)
        self.seen = threading.local()
        self.codes: dict[int, bytes] = {}  # by handle
        self.fast: set[bytes] = set()  # code of the fast tier
        self.refused: set[bytes] = set()  # code that does not load
        self._numbers = iter(range(1, 1 << 60))
        monkeypatch.setattr(launcher_module, "ObjectCode", SimpleNamespace(from_cubin=self._load))
        monkeypatch.setattr(launcher_module, "Launcher", launchers.launcher_class(core))
        monkeypatch.setattr(signature_module, "stream_handle", lambda _: 1)
        monkeypatch.setattr(device, "is_capturing", lambda handle: handle == CAPTURING)
        # As they are, but for the driver.
        current = device.current()
        monkeypatch.setattr(device, "ensure_context", self._ensure)
        monkeypatch.setattr(device, "current", lambda: (self._ensure(), current)[1])
        monkeypatch.setattr(device, "place", lambda: (self._ensure(), 0)[1])

    def _tell_capture(self, stream: int, found: Any) -> int:
        found[0] = stream == CAPTURING
        return 0

    @staticmethod
    def _ensure() -> None:
        device.is_used = True
        if device.is_forked:
            device.raise_forked_error()

    def _load(self, code: bytes, name: str) -> Any:
        if code in self.refused:
            raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
        number = next(self._numbers)
        self.codes[number] = code
        kernel = SimpleNamespace(
            attributes={0: SimpleNamespace(shared_size_bytes=0)}, handle=driver.CUkernel(number)
        )  # fmt: skip
        return SimpleNamespace(get_kernel=lambda _: kernel)

    def cuCtxPushCurrent(self, context: int) -> None:  # noqa: N802
        """Note nothing: each thread has the one context."""

    def cuCtxPopCurrent(self) -> None:  # noqa: N802
        """Note nothing."""

    def tier_of(self, kernel: int) -> str:
        """That of the kernel with a handle."""
        return "fast" if self.codes[kernel] in self.fast else "lto"

    def _launch(self, handle: int, shape: Any, kernel: int, addresses: Any) -> Any:
        if self.tier_of(kernel) == "fast" and shape.block[0] == BIG:
            return launchers.INVALID
        pointer, number = (launchers._read(at, of) for at, of in zip(addresses, self.signatures[kernel], strict=True))
        self.seen.launches.append((kernel, int(handle), int(pointer), int(number), shape.block[0]))
        return launchers.OK


class Kernel:
    """What is to happen to one kernel of a round, and what has been seen of it."""

    def __init__(self, configuration: dict[str, str], fate: str) -> None:
        self.configuration, self.fate = configuration, fate
        self.name = ""  # of its entrypoint, with what tells its kernels apart
        self.is_exchanged = False  # somebody knows it
        self.troubles = 1  # how often what may not recur occurs

    @property
    def stays_fast(self) -> bool:
        return self.fate in ("link fails", "load fails")


class Round:
    """One session, some kernels, some threads."""

    def __init__(
        self,
        seed: int,
        path: Path,
        caches: Path,
        monkeypatch: pytest.MonkeyPatch,
        core: ModuleType | None,
        real: bool = False,
    ) -> None:
        self.seed, self.random = seed, random.Random(seed)  # noqa: S311
        launch_core.use(monkeypatch, core)
        self.driver = TierDriver(monkeypatch, core)
        pick, self.real = self.random.choice, real
        fates = ("good",) if real else ("good", "good", "good", "link fails", "load fails", "no memory", "interrupted")
        self.kernels = {
            (each["data_type"], each["op_name"]): Kernel(each, pick(fates))
            for each in self.random.sample(KERNELS, pick((1, 1, 2, 4)))
        }
        self.failures: list[str] = []
        self.warned: list[str] = []
        self.met: list[str] = []  # errors that a caller got
        # Rounds may share a cache, unless it has what one must not find.
        name = pick(("a", "b", seed)) if {each.fate for each in self.kernels.values()} == {"good"} else seed
        self.directory = caches / str(name)
        settings = {"JITLTO_CACHE_DIR": str(self.directory)} | ({"JITLTO_CACHE": "off"} if pick((0, 1)) else {})
        self.session = Session(Config.read(settings))
        self.family = jitlto.load("mini", path, session=self.session)
        signature = next(iter(self.family.kernels())).resolution.entry.signature
        self.driver.signatures = dict.fromkeys(range(1, 100), signature)
        self.is_strict = not real and self.random.random() < 0.1  # warnings are errors
        self._linker = linker.link_plan
        monkeypatch.setattr(linker, "link_plan", self._link)
        if pick((0, 0, 1)):
            self.session.events.subscribe(partial(self._listen, random.Random(seed)))  # noqa: S311

    def _of(self, plan: Any) -> Kernel:
        wanted = dict(plan.configuration)
        return self.kernels[wanted["data_type"], wanted["op_name"]]

    def _link(self, store: Any, plan: Any, *, is_first: bool = False) -> LinkedKernel:
        linked = (self._linker if self.real else self._pretend)(store, plan, is_first=is_first)
        if is_first:
            self.driver.fast.add(linked.cubin)
        return linked

    def _pretend(self, _: object, plan: Any, *, is_first: bool) -> LinkedKernel:
        kernel = self._of(plan)
        with uninterrupted:
            time.sleep(0 if is_first else self.random.choice((0, 0, 0.0005, 0.003)))
        if not is_first and kernel.fate == "link fails":
            raise LinkError("out of registers")
        if not is_first and kernel.troubles:
            is_behind = isinstance(threading.current_thread(), threading._DummyThread)  # nobody interrupts it
            if kernel.fate == "no memory" or (kernel.fate == "interrupted" and not is_behind):
                kernel.troubles -= 1
                raise MemoryError if kernel.fate == "no memory" else KeyboardInterrupt
        tier = "fast" if is_first else "lto"
        code = f"{tier} {sorted(kernel.configuration.items())}".encode()
        if not is_first and kernel.fate == "load fails":
            self.driver.refused.add(code)
        return LinkedKernel(code, plan.entry.entry, "sm_90", "", 0.0, "fast" if is_first else "link")

    def _listen(self, chance: random.Random, event: Event) -> None:
        """Do what a subscriber may: fail, or ask for any kernel and wait for it."""
        what = chance.choice(("fail", "ask", "nothing", "wait" if event.kind in LATE else "nothing"))
        if what == "fail":
            raise ValueError("a subscriber's own")
        if what in ("ask", "wait") and event.kind in (Kind.LOADED, *LATE):
            launcher = self.family.launcher(**chance.choice([*self.kernels.values()]).configuration)
            if what == "wait":
                launcher.wait()

    # --- what a thread does ---

    def _try(self, action: Callable[[], Any]) -> Any:
        """Do what may meet the trouble of a kernel, which is then gone."""
        while True:
            try:
                return action()
            except (MemoryError, KeyboardInterrupt):
                self.met.append("trouble")
            except LinkWarning:
                self.met.append("warning")

    def _check(self, is_right: object, what: str) -> None:
        if not is_right:
            self.failures.append(what)

    def launch(self, chance: random.Random, kernel: Kernel, launcher: Any) -> None:
        seen = self.driver.seen.launches = []
        number = chance.getrandbits(31)
        stream = chance.choice((1, 1, CAPTURING))
        block = chance.choice((32, 64, BIG))
        how = chance.choice(({}, {}, {"shared_memory": chance.choice((512, 60_000, 100_000))}))
        late, is_failure = kernel.is_exchanged or stream == CAPTURING or block == BIG, False
        try:
            self._try(lambda: launcher(stream, 1, block, None, number, **how))
        except LaunchError:
            is_failure = True
        if is_failure or block == BIG:
            self._check(is_failure == kernel.stays_fast, f"a block of {block} {'failed' * is_failure}")
            self._check(len(seen) == (not is_failure), f"{len(seen)} launches of a block of {block}")
        if is_failure:
            return
        expected = (stream, 0, number, block)
        self._check([each[1:] for each in seen] == [expected], f"launched {seen} instead of {expected}")
        code, tier = self.driver.codes[seen[0][0]], self.driver.tier_of(seen[0][0])
        if not self.real:
            self._check(code.endswith(str(sorted(kernel.configuration.items())).encode()), f"another kernel: {code!r}")
        self._check(not late or tier == "lto" or kernel.stays_fast, f"{tier} after the exchange")
        self.note(kernel, tier)

    def note(self, kernel: Kernel, tier: str) -> None:
        if tier == "lto":
            kernel.is_exchanged = True
            self._check(not kernel.stays_fast, "what failed is there")

    def wait(self, _: random.Random, kernel: Kernel, launcher: Any) -> None:
        self._check(self._try(launcher.wait) is launcher, "wait() returns something else")
        self._check(launcher.tier == ("fast" if kernel.stays_fast else "lto"), f"{launcher.tier} after wait()")
        self.note(kernel, launcher.tier)

    def look(self, _: random.Random, kernel: Kernel, launcher: Any) -> None:
        late, tier = kernel.is_exchanged, launcher.tier
        self._check(not late or tier == "lto", f"{tier} after the exchange")
        self.note(kernel, tier)

    def insist(self, chance: random.Random, kernel: Kernel, launcher: Any) -> None:
        """Want LTO at once, also of a launcher that others have."""
        if kernel.stays_fast and launcher is None:
            return  # who begins without tiers gets an error, which is remembered
        how = {"link_options": {"tiered": False}}
        deeds = [
            lambda: self.family.launcher(**kernel.configuration, **how),
            lambda: self.family.load(self.family.plan(**kernel.configuration, **how)),
        ]
        try:
            found = self._try(chance.choice(deeds))
        except (LinkError, LaunchError):
            self._check(kernel.stays_fast, "an error of what links")
            return
        self._check(not kernel.stays_fast, "no error of what does not link")
        self._check(found is launcher or launcher is None, "two launchers of one kernel")
        self._check(found.tier == "lto", f"{found.tier} for one who wants LTO")
        self.note(kernel, found.tier)

    def handle(self, _: random.Random, kernel: Kernel, launcher: Any) -> None:
        found = self._try(lambda: int(launcher.kernel.handle))
        self._check(kernel.stays_fast or self.driver.tier_of(found) == "lto", "a fast kernel is given away")

    def reset(self, *_: object) -> None:
        self.session.reset()

    def remove(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def collect(self, _: random.Random, __: Kernel, launcher: Any) -> None:
        self._check(copy.copy(launcher) is copy.deepcopy(launcher) is launcher, "a copy")
        gc.collect(0)

    def fork(self, chance: random.Random, kernel: Kernel, launcher: Any) -> None:
        """Fork: the child gets clear errors, or LTO, and does not hang."""
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(IN_CHILD)
                self._in_child(chance, kernel, launcher)
            except BaseException as error:  # noqa: BLE001 - nothing may return into the parent's code
                os.write(2, f"in a forked process: {error!r}\n".encode())
                os._exit(1)
            os._exit(0)
        self._check(time.monotonic() - began < 5, "a fork takes long")
        self._check(os.waitpid(child, 0)[1] == 0, "a forked process fails")

    def _in_child(self, chance: random.Random, kernel: Kernel, launcher: Any) -> None:
        def ask() -> object:
            return self.family.launcher(**kernel.configuration)

        deeds = [ask, partial(launcher, 1, 1, 32, None, 1), launcher.prepare, partial(launcher._grant, 200_000)]
        for deed in chance.sample(deeds, 4):
            with contextlib.suppress(NoDeviceError):
                deed()
                raise SystemExit(f"{deed} raises no error in a forked process")
        try:
            launcher.wait()
        except NoDeviceError:
            self._check(not kernel.is_exchanged, "an error of what is there")

    def work(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        deeds: list[Any] = [self.launch] * 6 + [self.wait, self.look, self.look, self.insist, self.handle, self.collect]
        deeds += [self.reset, self.remove] + [self.fork] * (chance.random() < 0.1)
        for _ in range(chance.randrange(1, 8)):
            kernel = chance.choice([*self.kernels.values()])
            if chance.random() < 0.1:
                self.insist(chance, kernel, None)
            launcher = self._try(partial(self.family.launcher, **kernel.configuration))
            for _ in range(chance.randrange(1, 4)):
                chance.choice(deeds)(chance, kernel, launcher)
            del launcher
            if chance.random() < 0.2:
                time.sleep(chance.choice((0, 0.0002, 0.002)))

    def run(self) -> None:
        """Do it all; raises an error if anything is not as the model has it."""
        sys.setswitchinterval(self.random.choice((1e-6, 1e-5, 1e-4, 5e-3)))

        def work(seed: int) -> None:
            try:
                self.work(seed)
            except BaseException as error:
                logging.getLogger(__name__).exception("a thread failed")
                self.failures.append(f"{type(error).__name__}: {error}")

        with noted(self.warned, self.is_strict):
            threads = [threading.Thread(target=work, args=(self.seed + n,)) for n in range(self.random.randrange(1, 4))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for kernel in self.kernels.values():
                launcher = self._try(partial(self.family.launcher, **kernel.configuration))
                self.wait(self.random, kernel, launcher)
                for _ in range(4):
                    self.launch(self.random, kernel, launcher)
        failing = [kernel for kernel in self.kernels.values() if kernel.stays_fast]
        if not self.is_strict:
            self._check(len(self.warned) == len(failing), f"{len(failing)} kernels stay fast: {self.warned}")
        troubled = [kernel for kernel in self.kernels.values() if kernel.fate in ("no memory", "interrupted")]
        self._check(self.met.count("trouble") <= len(troubled), f"{self.met}: errors of what has no trouble")
        self._check(self.met.count("warning") <= len(failing) * self.is_strict, f"{self.met}: warned twice")
        self._check(len(sys._current_frames()) <= 3, f"threads are left: {threading.enumerate()}")
        if self.failures:
            fates = [kernel.fate for kernel in self.kernels.values()]
            raise SystemExit(f"round {self.seed} ({', '.join(fates)}): {'; '.join(self.failures[:5])}")

    def leave(self) -> None:
        """Have links queued, for a process that is about to end."""
        for kernel in self.kernels.values():
            kernel.fate = "good"  # else a warning might still be said
            self.family.launcher(**kernel.configuration)


@contextlib.contextmanager
def noted(warned: list[str], is_strict: bool) -> Iterator[None]:
    """Note what is warned of, in all threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_strict else "always", LinkWarning)
        warnings.showwarning = lambda message, *_: warned.append(str(message))  # type: ignore[assignment]
        yield


def rounds(path: Path, caches: Path, core: ModuleType | None, seeds: range, real: bool = False) -> None:
    """Do rounds in this process; it ends with links queued."""
    faulthandler.register(signal.SIGALRM, chain=True)  # says where it hangs, and ends the process
    for seed in seeds:
        signal.alarm(LONG)
        with pytest.MonkeyPatch.context() as monkeypatch:
            Round(seed, path, caches, monkeypatch, core, real).run()
    monkeypatch = pytest.MonkeyPatch()  # for as long as the process lives
    warnings.simplefilter("ignore", LinkWarning)  # of links that may fail while it ends
    last = Round(-1 - seeds.start, path, caches, monkeypatch, core, real)
    last.leave()
    signal.alarm(LONG)


def in_processes(path: Path, core: ModuleType | None, count: int, first: int, real: bool, size: int = 50) -> None:
    """Do them in processes of their own, that are forked from this one before it uses CUDA."""
    for start in range(first, first + count, size):
        # The child removes the caches while threads behind may still write into them.
        caching = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with tempfile.TemporaryFile() as said, caching as caches:
            child = os.fork()
            if child == 0:
                os.dup2(said.fileno(), 2)
                rounds(path, Path(caches), core, range(start, min(start + size, first + count)), real)
                sys.exit()  # as a program ends, with what waits for its threads
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        if status or text:
            raise SystemExit(f"rounds from {start} on ended with {status}:\n{text}")


def build_family(directory: Path) -> Path:
    """Build the family that it is done with: both tiers, four kernels."""
    from jitlto.build.pipeline import build
    from jitlto.families import declaration
    from tests.support.families import MINI, tiered, write_family

    directory.mkdir(exist_ok=True)
    build([declaration.load_family(write_family(directory, tiered(MINI)))], directory / "made.fragdb", jobs=1)
    return directory / "made.fragdb"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="rounds")
    parser.add_argument("--seed", type=int, default=0, help="the first round's")
    parser.add_argument("--real", action="store_true", help="link with nvJitLink")
    parser.add_argument("--core", help="the core, compiled; off: none; by default built here")
    parser.add_argument("--family", type=Path, help="the family, built")
    options = parser.parse_args()
    logging.getLogger("jitlto").addHandler(logging.NullHandler())
    if options.core not in (None, "off"):
        os.environ[launch_core.COMPILED] = options.core
    core = None if options.core == "off" else launch_core.core()
    if core is not None:
        sys.modules[launch_core.NAME] = core  # which is told of forks
    directory, parent = tempfile.mkdtemp(), os.getpid()
    try:
        # Built in a process of its own: this one has to be one that forks.
        path = options.family
        if path is None:
            child = os.fork()
            if child == 0:
                build_family(Path(directory))
                os._exit(0)
            os.waitpid(child, 0)
            path = Path(directory, "made.fragdb")
        in_processes(path, core, options.count, options.seed, options.real)
    finally:
        if os.getpid() == parent:  # children end here too, and others need it
            shutil.rmtree(directory)
    print(f"{options.count} rounds")


if __name__ == "__main__":
    main()
