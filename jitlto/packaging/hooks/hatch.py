"""The build hook ``jitlto`` for hatchling: ``[tool.hatch.build.hooks.jitlto]``.

It adds the database to a wheel, compiled or taken from ``JITLTO_PREBUILT``, and to an sdist every file that compiling
needs. An editable install gets neither: its database is built from the source tree on first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from jitlto.base.errors import JitltoError, ProjectError
from jitlto.base.files import temporary_directory
from jitlto.packaging import pack, project

# Hatch's own keys; jitlto's are in [tool.jitlto].
_KEYS = {"dependencies", "require-runtime-dependencies", "require-runtime-features", "enable-by-default"}


class JitltoBuildHook(BuildHookInterface[BuilderConfig]):
    """Add a package's fragment database to its wheel."""

    PLUGIN_NAME = "jitlto"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files to a build; hatchling calls it before it builds."""
        try:
            self._initialize(version, build_data)
        except JitltoError as error:
            self.app.abort(f"jitlto: {error}")

    def _initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if unknown := sorted(self.config.keys() - _KEYS):
            where = f"{Path(self.root, 'pyproject.toml')} [tool.hatch.build.hooks.jitlto]"
            hint = "write the keys of jitlto under [tool.jitlto]"
            raise ProjectError(f"unknown key {unknown[0]!r}", code="project-unknown-key", where=where, hint=hint)
        package = project.load_package(Path(self.root))
        if self.target_name == "sdist":
            files = project.list_sources(package)
            build_data["force_include"].update({str(p): str(p.relative_to(package.config.root)) for p in files})
        elif self.target_name == "wheel" and version != "editable":
            # Removed together with this object, after the wheel is written.
            self._directory = temporary_directory("jitlto-")
            output = Path(self._directory.__enter__()) / package.config.database.name
            report = project.build_package(package.config.path, output)
            for advice in report.advice:
                self.app.display_warning(f"jitlto: {advice}")
            self.app.display_info(f"jitlto: {project.summarize(report)}")
            build_data["force_include"][str(output)] = str(package.config.database)
            if linked := pack.build_pack(package.config, output):
                build_data["force_include"][str(linked)] = str(pack.pack_in_wheel(package.config))


@hookimpl
def hatch_register_build_hook() -> type[JitltoBuildHook]:
    """Return the hook, for the entry point ``jitlto`` of the group ``hatch``."""
    return JitltoBuildHook
