"""The setuptools command ``build_py`` of a project with families, which builds their database too."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

from jitlto.base.errors import JitltoError
from jitlto.packaging import project
from jitlto.packaging.pack import build_files

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def _setup_errors() -> Iterator[None]:
    try:
        yield
    except JitltoError as error:
        raise SetupError(f"jitlto: {error}") from error


class BuildFragments(build_py):
    """Build a package's fragment database into ``build_lib``; for an editable install, only check the declaration."""

    @_setup_errors()
    def run(self) -> None:
        super().run()
        package = project.load_package(Path("pyproject.toml"))
        if not self.editable_mode:
            build_files(package, Path(self.build_lib), _log.warning, _log.info)

    @_setup_errors()
    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = list(super().get_outputs(include_bytecode))
        places = () if self.editable_mode else project.load_package(Path("pyproject.toml")).config.places
        return [*outputs, *(str(Path(self.build_lib, place)) for place in places)]

    @_setup_errors()
    def get_source_files(self) -> list[str]:
        """List the files that an sdist must hold, relative to the project."""
        package = project.load_package(Path("pyproject.toml"))
        own = [os.path.relpath(path, package.config.root) for path in project.list_sources(package)]
        return [*super().get_source_files(), *own]
