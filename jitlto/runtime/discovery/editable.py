"""Databases of packages that are installed editable: built from the source tree, into the user's cache.

The package's ``[tool.jitlto]`` declares what the database is made of. ``jitlto build --project`` builds it, in a
separate process because the run side never imports the build side. A digest of the sources is stored beside the
database; while it stays the same, no build is started. The digest covers whole directories: it may change without need,
but it misses no change, and the build takes unchanged sources from its own cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitlto.base import files
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.files import EDITABLE, digest_of
from jitlto.base.lock import locked
from jitlto.base.user_caches import UserCache
from jitlto.compile.family_files import family_files
from jitlto.cuda import libraries
from jitlto.families import declaration
from jitlto.runtime.discovery.entry_points import InstalledFamily

if TYPE_CHECKING:
    from jitlto.base.config import Config

_log = logging.getLogger(__name__)
_TOOLKITS = ("CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME")  # where compilers are found
_PATIENCE = 600.0  # seconds of waiting for a concurrent build
# The build imports the same modules as this process.
_COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from jitlto.__main__ import main; main()"


def ensure_database(installed: InstalledFamily, source: Path, settings: Config) -> Path:
    """Return the database of a distribution that is installed editable, and build it first if its sources have changed.

    Without ``[tool.jitlto]`` it is a file in the source tree, which is not built here.

    Args:
        installed: The family of the distribution.
        source: The distribution's source tree.
        settings: Determine the directory for such databases.

    Raises:
        DatabaseError: If it cannot be built.
        JitltoError: If the user's cache cannot be used.
    """
    path = locate_database(installed, source, settings)
    if not path.is_relative_to(settings.cache_dir):
        return path
    UserCache("editable", "databases", path.parent.parent, 0).open()  # this user's own: it becomes code
    if not _is_current(path, _state(source, settings)):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with locked(path.with_suffix(".lock"), _PATIENCE, f"builds the fragments of {installed.title}"):
            state = _state(source, settings)
            if not _is_current(path, state):  # nor after another process
                _build(installed, source, path)
                files.write(path.with_suffix(".json"), json.dumps([state, digest_of(path)]).encode())
    return path


def locate_database(installed: InstalledFamily, source: Path, settings: Config) -> Path:
    """Return the path that :func:`ensure_database` would return, without building anything; nothing may be there."""
    if _settings_of(source) is None:
        in_tree = [source / "src" / installed.file, source / installed.file]
        return in_tree[0] if in_tree[0].is_file() else in_tree[1]
    # A different environment has a different compiler.
    of = json.dumps([os.path.realpath(source), sys.prefix, installed.distribution])
    name = hashlib.sha256(of.encode("utf-8", "surrogateescape")).hexdigest()
    return settings.cache_dir / EDITABLE / name / installed.location.name


def _settings_of(source: Path) -> Any:
    """Return ``[tool.jitlto]`` of a package; None if it has none, and what no build takes if it is malformed."""
    try:
        return tomllib.loads((source / "pyproject.toml").read_text("utf-8-sig")).get("tool", {}).get("jitlto")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, AttributeError):
        return {}


def _state(source: Path, settings: Config) -> str | None:
    """Return the SHA-256 of everything that the database is made from; None if only the build knows what that is."""
    if settings.prebuilt:
        return None  # the build takes prebuilt databases instead of sources
    digest = hashlib.sha256(repr([os.environ.get(name) for name in _TOOLKITS]).encode())
    try:
        for place in _compilers():
            status = os.stat(place) if os.path.exists(place) else None  # noqa: PTH110, PTH116 - a string
            digest.update(repr([place, status and (status.st_size, status.st_mtime_ns)]).encode())
        digest.update((source / "pyproject.toml").read_bytes())
        names = _settings_of(source).get("families")
        paths = [declaration.find_family(name, source) for name in names or ()]
        for path in paths or sorted((source / "fragments").glob("*/family.toml")):
            family = declaration.load_family(path)
            for file in family_files((family, *family.all_used().values()), thorough=True):
                digest.update(os.fsencode(file) + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    except (OSError, JitltoError, AttributeError, TypeError):  # the last two of malformed settings
        return None
    return digest.hexdigest()


def _compilers() -> Iterator[str]:
    """Yield the files of NVRTC and nvJitLink; where no package has them, what changes when they are replaced.

    A directory changes its time when a file in it is made or removed.
    """
    for name in ("nvrtc", "nvJitLink"):
        packaged = libraries.find_packaged(*libraries.FILES[name])
        conda, loader = (os.environ.get(variable, "") for variable in _TOOLKITS[:2])
        yield from [packaged] if packaged else [f"{conda}/lib", *loader.split(os.pathsep), "/etc/ld.so.cache"]


def _is_current(path: Path, state: str | None) -> bool:
    """Return whether the database exists and was built from sources in this state."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        # The digest of the file too: an interrupted build may leave a new database with an old record.
        recorded = json.loads(path.with_suffix(".json").read_bytes())
        return state is not None and bool(recorded == [state, digest_of(path)])
    return False


def _build(installed: InstalledFamily, source: Path, path: Path) -> None:
    _log.warning("%s is installed editable from %s: building its fragments", installed.title, source)
    begin = time.monotonic()
    if digest_of(path) is None:
        path.unlink(missing_ok=True)  # damaged: a build replaces only databases
    # Whoever works on a family tries the kernels that it has; planning says what another lacks.
    arguments = ["build", "--project", str(source), "-o", str(path), "--quiet", "--allow-incomplete"]
    command = [sys.executable, "-c", _COMMAND, json.dumps(sys.path), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0 and digest_of(path) is not None:
        _log.warning("built the fragments of %s in %.1f s", installed.title, time.monotonic() - begin)
        return
    message = done.stderr.decode("utf-8", "replace").strip().removeprefix("error: ") or f"exit status {done.returncode}"
    lines = "\n".join(f"    {line}" for line in message.splitlines())
    raise DatabaseError(
        f"cannot build the fragments of {installed.title}, which is installed editable from here:\n{lines}",
        code="database-build-failed",
        where=str(source),
        hint="correct the error; to repeat the build: " + " ".join(["jitlto", *arguments[:3], "-o DB"]),
    )
