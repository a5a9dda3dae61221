"""The compiled core of launches under any interpreter, against a model of it.

    python tests/support/exercise_core.py

It needs nothing but that interpreter and a C compiler: no GPU, no CUDA and no package. So it also runs under a debug
build (whose count of references it watches), a free-threaded build and a sanitizer:

    python3.13t tests/support/exercise_core.py --seconds 10
    LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
        python tests/support/exercise_core.py --flags="-g -fsanitize=address"

With ``--collect``, garbage is collected at every call, and whenever one makes an object.
"""

import argparse
import ctypes
import gc
import importlib.util
import random
import struct
import sys
import sysconfig
import tempfile
import threading
import time
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOOK = ROOT / "jitlto/packaging/hooks/extension.py"
KINDS = (
    "pointer", "any", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "float", "double", "bool", "bytes", "map"
)  # fmt: skip
DEFAULT = 1  # the handle of the default stream
KERNEL, FUNCTION = 1234, 5678  # handles: for every context, and for one
INVALID_HANDLE = 400


class Config(ctypes.Structure):
    _fields_ = (("extents", ctypes.c_uint * 6), ("shared_memory", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint))  # fmt: skip


class Array:
    """As CuPy's."""

    def __init__(self, dtype: object, address: object, *, contiguous: bool = True) -> None:
        self.dtype, self._c_contiguous = dtype, contiguous
        self.data = type("Memory", (), {"ptr": address})()


class Stream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 99)


class Protocol:
    """A stream of a library that the core does not know."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class ForeignStream:
    def __init__(self, handle: object) -> None:
        self.cuda_stream = handle


class Index:
    def __init__(self, value: object) -> None:
        self.value = value

    def __index__(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class OtherwiseError(Exception):
    """What the Python way of these launches raises."""


def otherwise(*_: object, **__: object) -> None:
    raise OtherwiseError


def convert(value: object) -> Any:
    """A converter of what the core does not convert itself: bytes as they are, an address as eight."""
    if isinstance(value, Exception):
        raise value
    return value.to_bytes(8, "little") if isinstance(value, int) else value


def alignment(size: int) -> int:
    """That of a parameter: its size, if that is a power of two; 64 at most, as of a tensor map."""
    return min(size, 64) if size & size - 1 == 0 else 2


def load(path: Path, name: str) -> Any:
    loader = ExtensionFileLoader(name, str(path)) if path.suffix == ".so" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def new_launcher(core: Any, signature: object, function: int) -> Any:
    """A launcher as ``jitlto.Launcher``; what the core does not launch raises an error."""
    launcher = core.make_called_class(type("Launcher", (), {"__call__": otherwise}))()
    launcher._kernel, launcher._function, launcher._quick = KERNEL, function, signature
    return launcher


class Exercise:
    """Random launches of random signatures; each is compared with what the model expects."""

    def __init__(self, core: Any, seed: int) -> None:
        self.core, self.random = core, random.Random(seed)  # noqa: S311
        self.dtypes = [object(), object()]
        self.status = 0
        self.kernel = KERNEL  # the handle that is to be launched
        self.foreign: int | None = None  # one of another context
        self.seen: dict[int, tuple[Any, ...]] = {}  # by thread
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(Config), ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_void_p)] * 2
        )
        self.driver = prototype(self.launch)
        self.address = ctypes.cast(self.driver, ctypes.c_void_p).value

    def launch(self, config: Any, kernel: int, values: Any, extra: Any) -> int:
        end, places = 0, []
        for size in self.sizes:
            places.append(-(-end // alignment(size)) * alignment(size))
            end = places[-1] + size
        one_by_one = not self.sizes or max(map(alignment, self.sizes)) > 16
        told = bool(extra) and (extra[0], extra[2], extra[4], ctypes.c_size_t.from_address(extra[3]).value)
        if told != (not one_by_one and (1, 2, None, end)) or bool(values) != one_by_one:
            raise SystemExit(f"{end} bytes of arguments: {told}")
        start = 0 if one_by_one else extra[1]
        read = [
            ctypes.string_at(values[number] if one_by_one else start + place, size)
            for number, (place, size) in enumerate(zip(places, self.sizes, strict=True))
        ]
        found = config[0]
        self.seen[threading.get_ident()] = (
            tuple(found.extents), found.shared_memory, found.stream, found.attributes, found.count,
            kernel, None, *read,
        )  # fmt: skip
        return INVALID_HANDLE if kernel == self.foreign else self.status

    def value(self, kind: str) -> tuple[object, bytes | None]:
        """An argument, and the bytes that the kernel is given; None where the Python way is taken."""
        pick = self.random.choice
        if kind in ("pointer", "any"):
            dtype = self.dtypes[0]
            address = self.random.getrandbits(47)
            packed = struct.pack("<Q", address)
            other = None if kind == "pointer" else packed
            array = Array
            return pick([
                (None, bytes(8)), (array(dtype, address), packed), (array(self.dtypes[1], address), other),
                (array(dtype, address, contiguous=False), None), (array(dtype, 0), None), (packed, packed),
                (Array(dtype, -1), None), (Array(dtype, "x"), None), (address, packed), (object(), None),
            ])  # fmt: skip
        if kind[0] in "iu":
            bits, signed = int(kind[1:]), kind[0] == "i"
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            number = pick([low, high, low - 1, high + 1, 0, 1, self.random.randint(low, high), 1 << 70, -(1 << 70)])
            packed_ = (number & (1 << bits) - 1).to_bytes(bits // 8, "little") if low <= number <= high else None
            return pick([
                (number, packed_), (Index(number), packed_), (Index(ValueError()), None), (Index("x"), None),
                (True, b"\1".ljust(bits // 8, b"\0")), (1.0, None), (None, None),
            ])  # fmt: skip
        if kind in ("float", "double"):
            number_ = pick(
                [0.0, -0.0, 1.5, float("inf"), 3.5e38, -3.5e38, 1e300, self.random.gauss(0, 1e30), 7, 1 << 2000]
            )
            if isinstance(number_, int) and number_ > 7:
                return number_, None
            if kind == "double":
                return number_, struct.pack("<d", number_)
            fits = abs(number_) <= 3.4028234663852886e38 or number_ == float("inf")
            return number_, struct.pack("<f", number_) if fits else None
        if kind == "bool":
            return pick([(True, b"\1"), (False, b"\0"), (b"\1", b"\1"), (1, None), (TypeError(), None)])
        if kind == "map":
            return pick([(b"*" * 128, b"*" * 128), (b"*" * 64, None)])
        return pick([(b"abcdef", b"abcdef"), (b"abc", None), (bytearray(b"ABCDEF"), None), (5.5, None),
                     (KeyError(), None), (object(), None)])  # fmt: skip

    def row(self, kind: str) -> tuple[tuple[Any, ...], int]:
        core = self.core
        if kind in ("pointer", "any"):
            dtype = self.dtypes[0] if kind == "pointer" else None
            return (core.POINTER, 8, 8, False, 2, 32, dtype, None, convert), 8
        if kind[0] in "iu":
            size = int(kind[1:]) // 8
            return (core.INTEGER, size, size, kind[0] == "i", 0, 0, None, None, convert), size
        known = {"float": (core.FLOAT, 4), "double": (core.DOUBLE, 8), "bool": (core.BOOLEAN, 1)}
        known["map"] = (core.CONVERTED, 128)
        number, size = known.get(kind, (core.CONVERTED, 6))
        return (number, size, alignment(size), False, 0, 0, None, None, convert), size

    def extent(self) -> tuple[object, tuple[int, ...] | None]:
        return self.random.choice([
            (1, (1, 1, 1)), ((2, 3), (2, 3, 1)), ((2, 3, 4), (2, 3, 4)), (0, None), ([2], None), ((), None),
            ((1, 2, 3, 4), None), ((1, True), None), (1 << 40, None), (-1, None), ("1", None), (2.0, None),
        ] + [(number, (number, 1, 1)) for number in range(1, 30)])  # fmt: skip

    def stream(self) -> tuple[object, int | None]:
        return self.random.choice([
            (None, DEFAULT), (0, DEFAULT), (5, 5), (-5, None), (Stream(), 99), (ForeignStream(1 << 40), 1 << 40),
            (ForeignStream(0), DEFAULT),
            (ForeignStream("x"), None), (Protocol(77), 77), (Protocol(0), DEFAULT), (object(), None),
            (True, None), (1 << 64, None),
        ])  # fmt: skip

    def keywords(self) -> tuple[dict[str, Any], int | None]:
        return self.random.choice([
            ({}, 0), ({}, 0), ({"shared_memory": 0}, 0), ({"cluster": None, "cooperative": False}, 0),
            ({"shared_memory": 8}, None), ({"shared_memory": -1}, None), ({"shared_memory": 1 << 40}, None),
            ({"shared_memory": True}, None), ({"cooperative": True}, None), ({"cluster": 1}, None), ({"more": 1}, None),
        ])  # fmt: skip

    def signature(self, launches: int) -> None:
        """Some launches of one random signature."""
        kinds = [self.random.choice(KINDS) for _ in range(self.random.choice((0, 0, 1, 2, 4, 9)))]
        rows, self.sizes = [row for row, _ in map(self.row, kinds)], [size for _, size in map(self.row, kinds)]

        function = self.random.choice((0, FUNCTION))
        self.kernel, self.foreign = function or KERNEL, None
        signature = self.core.make_signature(
            tuple(rows), self.address, 0, DEFAULT, Stream, lambda array: isinstance(array, Array) or None,
            lambda stream: "cuda_stream" if isinstance(stream, ForeignStream) else None,
        )  # fmt: skip
        launcher = new_launcher(self.core, signature, function)
        for number in range(launches):
            if number == launches // 2:  # the stream of another context, and no function from then on
                self.kernel, self.foreign = KERNEL, FUNCTION
            self.one(launcher, kinds)
        self.core.forget()
        self.same(launcher, (None, 1, 1, *[None] * len(kinds)), {}, None)

    def one(self, launcher: Any, kinds: list[str]) -> None:
        values = [self.value(kind) for kind in kinds]
        (grid, blocks), (block, threads), (stream, handle) = self.extent(), self.extent(), self.stream()
        keywords, shared_memory = self.keywords()
        parts = (blocks, threads, handle, shared_memory, *(packed for _, packed in values))
        missing = self.random.random() < 0.02
        self.status = int(self.random.random() < 0.02)
        expected = None
        if not missing and not self.status and None not in parts:
            extents = (*(blocks or ()), *(threads or ()))
            expected = (extents, shared_memory, handle, None, 0, self.kernel, None, *(packed for _, packed in values))
        arguments = [value for value, _ in values]
        if missing:
            arguments.append(None)
        self.same(launcher, (stream, grid, block, *arguments), keywords, expected)
        self.status = 0

    def same(self, launcher: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], expected: object) -> None:
        self.seen.clear()
        if gc.get_threshold()[0] == 1:
            gc.collect()
        try:
            launcher(*arguments, **keywords)
            found = self.seen[threading.get_ident()]
        except OtherwiseError:
            found = None
        if found != expected:
            raise SystemExit(f"{arguments} {keywords}: {found} instead of {expected}")


def in_threads(core: Any, seed: int, count: int = 4) -> None:
    """Launches of one signature from several threads, which all learn the same types."""
    exercise = Exercise(core, seed)
    exercise.sizes = [8, 4]
    rows = tuple(exercise.row(kind)[0] for kind in ("any", "i32"))
    signature = core.make_signature(rows, exercise.address, 0, DEFAULT, Stream, lambda _: True, lambda _: None)
    launcher = new_launcher(core, signature, 0)
    classes = [type("Array", (Array,), {}) for _ in range(20)]
    failures: list[object] = []

    def work() -> None:
        for number in range(200):
            array = classes[number % len(classes)](None, 4096 + number)
            try:
                launcher(None, 1, 1, array, number)
            except OtherwiseError:
                continue  # the table of types is full
            seen = exercise.seen[threading.get_ident()][-2:]
            if seen != (struct.pack("<Q", 4096 + number), struct.pack("<i", number)):
                failures.append(seen)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"in threads: {failures[0]}")


def look_up(core: Any, seed: int, count: int) -> None:
    """Look-ups in several threads that remember and forget at the same time: each answer is that of its arguments."""
    values = [0, 1, True, 300, 10**30, "a", "b" * 40, None, int, 0.5, object()]
    failures: list[object] = []

    def answer(_: object, *args: object, **how: object) -> object:
        found = (args, how)
        if object not in map(type, (*args, *how.values())):
            core.remember(asked._quick, (*args, *how.values()), tuple(how), found)
        return found

    called = core.make_called_class(type("Called", (), {"__call__": answer}))
    kind: Any = type("Asked", (called,), {"_ask_launcher": answer})
    kind.launcher = core.make_lookup(kind, "launcher")
    asked = kind()
    asked._quick = [None] * 128

    def work(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - not for secrets
        for number in range(count):
            args = tuple(chance.choices(values, k=chance.randrange(4)))
            how = {name: chance.choice(values) for name in chance.sample("abc", chance.randrange(4))}
            found = (asked.launcher if number % 2 else asked)(*args, **how)
            if repr(found) != repr((args, how)):  # which tells 1 from True
                failures.append((args, how, found))
            if chance.random() < 0.01:
                asked._quick[:] = [None] * chance.choice([64, 128, 4096])

    threads = [threading.Thread(target=work, args=(seed + number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"looked up: {failures[0]}")


def run(core: Any, seconds: float, seed: int) -> int:
    """Exercise it; returns the number of signatures."""
    end, signatures = time.monotonic() + seconds, 0
    while time.monotonic() < end or signatures < 2:
        Exercise(core, seed + signatures).signature(150)
        in_threads(core, seed + signatures)
        look_up(core, seed + signatures, 300)
        signatures += 1
    if hasattr(sys, "gettotalrefcount") and gc.get_threshold()[0] > 1:  # it would take minutes
        count_references(core)
    return signatures


def count_references(core: Any, times: int = 12) -> None:
    """Do the same work several times, in a debug build: it must not leave references behind."""
    counts = [0] * times
    for number in range(times):
        for seed in range(8):
            Exercise(core, seed).signature(100)
            look_up(core, seed, 100)
        gc.collect()
        counts[number] = sys.gettotalrefcount()  # type: ignore[attr-defined]
    late = counts[times // 2 :]
    if late[-1] - late[0] > 2 * len(late):  # the counts themselves are objects too
        raise SystemExit(f"references leak: {late}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flags", default="", help="for the compiler")
    parser.add_argument("--core", type=Path, help="the core, compiled")
    parser.add_argument("--collect", action="store_true", help="collect garbage at every call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = options.core
        if path is None:
            hook = load(HOOK, "extension")
            flags = ["-UNDEBUG", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
            path = hook.compile_extension(ROOT / hook.SOURCE, Path(directory), [*flags, *options.flags.split()])
        core = load(path, "_launch")
        if options.collect:
            gc.set_threshold(1, 1, 1)
        signatures = run(core, options.seconds, options.seed)
    debug = ", references counted" if hasattr(sys, "gettotalrefcount") else ""
    gil = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", without the GIL"
    print(f"{sysconfig.get_config_var('SOABI')}: {signatures} signatures{debug}{gil}")


if __name__ == "__main__":
    main()
