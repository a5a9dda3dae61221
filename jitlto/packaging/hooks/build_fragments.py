"""The setuptools command that builds a package's fragment database, as a step of ``build``."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from setuptools import Command
from setuptools.errors import SetupError

from jitlto.base.errors import JitltoError
from jitlto.packaging import project
from jitlto.packaging.pack import build_pack

_log = logging.getLogger(__name__)


class BuildFragments(Command):
    """Build a package's fragment database into ``build_lib``; a :class:`setuptools.command.build.SubCommand`."""

    description = "build the kernel families that [tool.jitlto] declares"
    user_options: list[tuple[str, str | None, str]] = []  # noqa: RUF012 - as setuptools declares it

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Build the database; for an editable install, only check the declaration."""
        with _setup_errors():
            package = project.load_package(Path("pyproject.toml"))
            if self.editable_mode:
                return
            output = Path(self.build_lib or "", package.config.database)
            output.parent.mkdir(parents=True, exist_ok=True)
            report = project.build_package(package.config.path, output)
            build_pack(package.config, output)
        for advice in report.advice:
            _log.warning("jitlto: %s", advice)
        _log.info("jitlto: %s", project.summarize(report))

    def get_outputs(self) -> list[str]:
        if self.editable_mode:
            return []
        with _setup_errors():
            package = project.load_package(Path("pyproject.toml")).config
        output = Path(self.build_lib or "", package.database)
        return [str(output), *([str(output.with_suffix(".pack"))] if package.pack else [])]

    def get_output_mapping(self) -> dict[str, str]:
        return {}  # no output stands for a file of the source tree

    def get_source_files(self) -> list[str]:
        """List the files that an sdist must hold, relative to the project."""
        with _setup_errors():
            package = project.load_package(Path("pyproject.toml"))
            return [os.path.relpath(path, package.config.root) for path in project.list_sources(package)]


@contextlib.contextmanager
def _setup_errors() -> Iterator[None]:
    try:
        yield
    except JitltoError as error:
        raise SetupError(f"jitlto: {error}") from error
