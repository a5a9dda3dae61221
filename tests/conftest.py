"""What all tests share: a small family, the shipped families built once, and the rule for tests that need a GPU."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

from jitlto import database
from jitlto.base.errors import NoDeviceError
from jitlto.build.cache.cache import Cache, open_cache
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.pipeline import BuildReport, build
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.launch.launcher import Launcher
from jitlto.plan.plan import Plan
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from tests.support import arrays, shipped
from tests.support.environments import need
from tests.support.families import MINI, compiler, write_family
from tests.support.process import ROOT
from tests.support.store_server import Server, s3_server
from tests.support.tuned import PlannedFamily, build_tuned, open_tuned

# Whether a commit passes depends on the commit. `pytest --hypothesis-profile=default` draws other examples in each run.
settings.register_profile("repeatable", max_examples=50, derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let several runs, each with a toolkit of its own, share what is the same for all."""
    parser.addoption(
        "--share", default="1/1", metavar="N/M", help="of what is the same for every toolkit, run the Nth of M shares"
    )
    parser.addoption("--fast", action="store_true", help="launch the shipped families' kernels in the fast tier alone")


def pytest_configure(config: pytest.Config) -> None:
    """Have interrupts arrive: whoever starts the tests in the background of a shell script has them ignored.

    With ``--fast`` no kernel with LTO is found in a cache.
    """
    if config.getoption("--fast"):
        os.environ["JITLTO_CACHE"] = "off"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """Have garbage collections pass over what there was before the tests of a file."""
    gc.collect()
    gc.freeze()


#: What these folders test is the same whatever toolkit compiles and links.
ONE_MAJOR = (
    "base", "build/cache", "build/execution", "cli", "database", "docs", "families/test_matrix", "frameworks",
    "packaging", "record", "report", "runtime/discovery", "stores", "tuning",
)  # fmt: skip
#: Of the others, these run their slow tests with each toolkit, too; all run their fast ones. nvcc is of one major.
EACH_MAJOR = (
    "compatibility", "cuda", "families/test_search", "families/test_transport.py", "link", "plan/user_code",
    "compile/test_nvcc", "plan/test_plan",
)  # fmt: skip
#: The files that take longest: begun first, they do not end alone.
LONGEST = (
    "test_docs.py", "test_downstream.py", "test_fft.py", "test_compare.py", "test_compiled_exercise.py", "test_site.py",
    "test_ivf_flat_batch.py", "test_transport_host.py", "test_fuzz_build.py", "test_headers.py", "test_search.py",
    "test_shared_builds.py", "test_workflow.py", "test_foreign.py", "test_interface_pairs.py",
)  # fmt: skip
#: Fixtures that compile a shipped family or build a wheel: who needs one is slow.
SLOW_FIXTURES = {
    "shipped_path", "fft_path", "segment_reduce", "transport", "ivf_flat", "ivf_flat_batch", "jitlto_wheel",
}  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what needs a slow fixture; skip what launches where nothing can be launched.

    A test that bounds a time is tried again: what the code can keep, a machine may miss that does other work meanwhile.
    What is the same for every toolkit is run with one CUDA major where there are several.
    """
    number, count = map(int, config.getoption("--share").split("/"))
    others = []
    for item in items:
        if item.get_closest_marker("timing"):
            item.add_marker(pytest.mark.flaky(reruns=2))
        if not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        place = item.path.relative_to(ROOT / "tests").as_posix()
        is_slow = item.get_closest_marker("slow") and not place.startswith(EACH_MAJOR)
        # Files of one subject share what they build: their names begin alike.
        letter = item.path.name.removeprefix("test_")[0]
        if (is_slow or place.startswith(ONE_MAJOR)) and ord(letter) % count != number - 1:
            others.append(item)
    _skip_without_device(items)
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(map(id, others))
        items[:] = [item for item in items if id(item) not in left]
    sizes = Counter(item.path for item in items)
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (ranks.get(item.path.name, len(ranks)), -sizes[item.path], item.path))


def _skip_without_device(items: list[pytest.Item]) -> None:
    """Skip what launches where nothing can be launched, with the driver's own reason."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    try:
        device.current()
    except NoDeviceError as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=error.what))


@contextmanager
def _cache_in(directory: Path) -> Iterator[None]:
    """Settings and caches as if the user's cache lay in a directory, for this process and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLTO_CACHE_DIR", str(directory))
        session.default.reset()
        yield
    session.default.reset()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is taken from or left in the user's cache, by the commands that tests start either."""
    with _cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_disk_to_wait_for() -> Iterator[None]:
    """Skip fsync: tests write hundreds of databases, and none must survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def empty_cache(tmp_path: Path) -> Iterator[Path]:
    """A cache directory of the test's own, empty."""
    directory = tmp_path / "own-cache"
    with _cache_in(directory):
        yield directory


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessExecutor]:
    """Worker processes for the builds of a module."""
    with ProcessExecutor(2) as pool:
        yield pool


BuildFamily = Callable[..., BuildReport]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """A build cache that the tests of a module share."""
    opened = open_cache(tmp_path_factory.mktemp("cache"))
    assert opened is not None
    return opened


@pytest.fixture
def build_family(tmp_path: Path) -> BuildFamily:
    """Build a family given as files (name → text) into ``tmp_path / "<name>.fragdb"``."""

    def make(files: dict[str, str], name: str = "family", *, allow_incomplete: bool = False) -> BuildReport:
        families = [declaration.load_family(write_family(tmp_path / name, files))]
        output = tmp_path / f"{name}.fragdb"
        return build(families, output, executor=compiler(), allow_incomplete=allow_incomplete)

    return make


@pytest.fixture(scope="session")
def mini_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the family ``mini``."""
    directory = tmp_path_factory.mktemp("mini")
    path = write_family(directory, MINI)
    return build([declaration.load_family(path)], directory / "mini.fragdb", jobs=1).path


@pytest.fixture(scope="session")
def sass_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the family ``mini`` that holds cubins for sm_80 and sm_90 too."""
    directory = tmp_path_factory.mktemp("sass")
    toml = MINI["family.toml"].replace("[family]", '[family]\nsass = ["90", "80"]', 1)
    path = write_family(directory, MINI | {"family.toml": toml})
    return build([declaration.load_family(path)], directory / "mini.fragdb", jobs=1).path


@pytest.fixture(name="database")
def _database(mini_path: Path, tmp_path: Path) -> Path:
    """A copy of it, beside which there is nothing."""
    return Path(shutil.copy(mini_path, tmp_path / "mini.fragdb"))


@pytest.fixture
def mini(mini_path: Path) -> Iterator[KernelFamily]:
    """The family ``mini``, opened afresh."""
    with FragmentDatabase(mini_path) as database:
        yield KernelFamily("mini", database)


@pytest.fixture
def plan(mini: KernelFamily) -> Plan:
    """A plan of the family ``mini``."""
    return mini.plan(arch="sm_90", data_type="float", op_name="twice")


@pytest.fixture(scope="session")
def tuned_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the family ``mini`` with variants to choose from."""
    return build_tuned(tmp_path_factory.mktemp("tuned"))


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """An S3 server."""
    with s3_server() as server:
        yield server


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty store: a directory, and a bucket of a server."""
    if request.param == "file":
        (tmp_path / "store").mkdir()
        return (tmp_path / "store").as_uri()
    server: Server = request.getfixturevalue("s3")
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return f"{server.url}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def jitlto_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of jitlto as it stands, built by what is installed."""
    need("build", "hatchling")
    output = tmp_path_factory.mktemp("wheel")
    options = ("--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", str(output))
    command = [sys.executable, "-m", "build", *options, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = output.glob("*.whl")
    return wheel


DeclareShipped = Callable[[str], declaration.FamilyDeclaration]
BuildShipped = Callable[..., Path]


@pytest.fixture(scope="session")
def declare_shipped(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> DeclareShipped:
    """The declaration of a shipped family, thinned out but where all of its kernels are launched or linked."""
    directory = tmp_path_factory.mktemp("thin")
    if request.config.getoption("--fast"):
        return shipped.tiered
    try:
        device.current()
    except NoDeviceError:
        if shipped.ALL not in os.environ:
            return lambda name: shipped.thin(name, directory)
    return lambda name: declaration.load_family(declaration.find_family(name))


@pytest.fixture(autouse=True)
def _fast_tier_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--fast``, have no kernel linked with LTO."""
    if request.config.getoption("--fast"):
        link_fast = KernelFamily._link_fast

        def fast_or_fail(family: KernelFamily, plan: Plan) -> Any:
            linked = link_fast(family, plan)
            others = plan.supplied and (plan.request is None or any(kind for *_, kind in plan.request.supplied))
            may = plan.mode == "lto" and plan.options == plan.built and not others
            assert linked or not may, f"{plan} has no fast tier"
            return linked

        monkeypatch.setattr(KernelFamily, "_link_fast", fast_or_fail)
        monkeypatch.setattr(Launcher, "improve", lambda *_: None)


@pytest.fixture(scope="session")
def build_shipped(tmp_path_factory: pytest.TempPathFactory, declare_shipped: DeclareShipped) -> BuildShipped:
    """Build a database of shipped families; what several hold is compiled once."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # of all processes of this run
    cache = open_cache(shared / "shipped")

    def make(*names: str) -> Path:
        with FileLock(shared / "shipped.lock"):
            return build(
                list(map(declare_shipped, names)), tmp_path_factory.mktemp(names[0]) / "families.fragdb", cache=cache
            ).path

    return make


@pytest.fixture(scope="session")
def shipped_path(build_shipped: BuildShipped) -> Path:
    """A database of the shipped families ``search`` and ``transform``."""
    return build_shipped("search", "transform")


@pytest.fixture(scope="session")
def search(shipped_path: Path) -> KernelFamily:
    """The family ``search``."""
    return KernelFamily("search", FragmentDatabase(shipped_path))


@pytest.fixture(scope="session")
def transform(shipped_path: Path) -> KernelFamily:
    """The family ``transform``."""
    return KernelFamily("transform", FragmentDatabase(shipped_path))


@pytest.fixture(scope="session")
def fft_path(build_shipped: BuildShipped) -> Path:
    """A database of the family ``fft``."""
    return build_shipped("fft")


@pytest.fixture(scope="session")
def fft(fft_path: Path) -> KernelFamily:
    """The family ``fft``."""
    return KernelFamily("fft", FragmentDatabase(fft_path))


@pytest.fixture(scope="session")
def segment_reduce(build_shipped: BuildShipped) -> KernelFamily:
    """The family ``segment_reduce``."""
    return KernelFamily("segment_reduce", FragmentDatabase(build_shipped("segment_reduce")))


@pytest.fixture(scope="session")
def transport(build_shipped: BuildShipped) -> KernelFamily:
    """The family ``transport``."""
    return KernelFamily("transport", FragmentDatabase(build_shipped("transport")))


@pytest.fixture(scope="session")
def ivf_flat(build_shipped: BuildShipped) -> KernelFamily:
    """The family ``ivf_flat``, in a database of its own."""
    return KernelFamily("ivf_flat", FragmentDatabase(build_shipped("ivf_flat")))


@pytest.fixture(scope="session")
def ivf_flat_batch(build_shipped: BuildShipped) -> KernelFamily:
    """The family ``ivf_flat_batch``, in a database that holds ``ivf_flat`` too, which it uses."""
    return KernelFamily("ivf_flat_batch", FragmentDatabase(build_shipped("ivf_flat_batch")))


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A device of compute capability 9.0, as far as choosing a kernel asks for one."""
    stand_in = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(device, "current", lambda: stand_in)
    monkeypatch.setattr(device, "place", lambda: 10 * stand_in.compute_capability[0])
    return stand_in


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The databases that were opened, one after the other."""
    paths: list[Path] = []

    class Told(FragmentDatabase):
        def __init__(self, path: str | os.PathLike[str]) -> None:
            paths.append(Path(path))
            super().__init__(path)

    monkeypatch.setattr(database, "FragmentDatabase", Told)
    return paths


@pytest.fixture
def torch_stand_in(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Have the dtypes of the stand-in for PyTorch found; the tensors that were described to a program in C."""
    monkeypatch.setitem(sys.modules, "torch", arrays.TORCH)
    arrays.described.clear()
    return arrays.described


@pytest.fixture
def tuned_copy(tuned_path: Path, tmp_path: Path) -> Path:
    """A copy, beside which wisdom can be put."""
    return Path(shutil.copy(tuned_path, tmp_path / "tuned.fragdb"))


@pytest.fixture
def tuned(tuned_copy: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedFamily:
    """The tuned family on a pretended H200."""
    return open_tuned(tuned_copy, monkeypatch)
