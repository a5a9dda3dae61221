"""jitlto's own build hook for hatchling: compiles the core of launches, where there is a C compiler.

``JITLTO_EXTENSION=required`` makes a missing compiler an error, and ``off`` leaves the core out: the wheel is then
``py3-none-any``, and launches go the Python way. In a checkout, ``python -m jitlto.packaging.hooks.extension``
builds it in place, as an editable install does.

Hatchling loads this file by its path, where nothing else of jitlto can be imported.
"""

import os
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.config import BuilderConfig
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    Base = BuildHookInterface[BuilderConfig]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as Base
    except ImportError:  # when it is run as a program
        Base = object

SOURCE = Path("jitlto/launch/_launch.c")


class ExtensionError(Exception):
    """The extension cannot be built; the message says why."""


class ExtensionHook(Base):
    """Add the extension to a wheel, or build it in place for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add a file to a build; hatchling calls it before it builds."""
        wanted = os.environ.get("JITLTO_EXTENSION") or "auto"
        if wanted not in ("auto", "required", "off"):
            self.app.abort(f"JITLTO_EXTENSION: invalid value {wanted!r}; use auto, required or off")
        if wanted == "off":
            return
        source = Path(self.root, SOURCE)
        # Removed together with this object, after the wheel is written.
        self._directory = tempfile.TemporaryDirectory(prefix="jitlto-")
        directory = source.parent if version == "editable" else Path(self._directory.name)
        try:
            built = compile_extension(source, directory)
        except ExtensionError as error:
            if wanted == "required":
                self.app.abort(f"the compiled core of launches: {error}")
            self.app.display_warning(f"without the compiled core of launches: {error}")
            return
        if version != "editable":
            build_data["force_include"][str(built)] = str(SOURCE.parent / built.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_extension(source: Path, directory: Path, flags: Iterable[str] = ()) -> Path:
    """Compile the extension for this interpreter into a directory, with the interpreter's own compiler and flags.

    Returns:
        The shared object.

    Raises:
        ExtensionError: If there is no compiler or no ``Python.h``, or compiling fails.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise ExtensionError(f"there is no {include / 'Python.h'} (Debian: python3-dev)")
    target = directory / (source.stem + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    # Renamed into place: a process may have the earlier one loaded.
    made = target.with_name(f"{target.name}.{os.getpid()}")
    # -fno-plt: a call of the interpreter by way of the linkage table costs a miss of the cache more.
    options = ["-O3", "-DNDEBUG", "-fPIC", "-fno-plt", "-shared", "-std=c11", f"-I{include}", *flags]
    command = [*compiler, *options, str(source), "-o", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ExtensionError(f"the compiler {compiler[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        made.unlink(missing_ok=True)
        raise ExtensionError(f"{shlex.join(command)}\n{done.stderr}")
    made.replace(target)
    return target


if __name__ == "__main__":
    source = Path(__file__).resolve().parents[3] / SOURCE
    print(compile_extension(source, source.parent))
