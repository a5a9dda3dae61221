"""The build hook ``jitlto`` for hatchling: ``[tool.hatch.build.hooks.jitlto]``, which has no keys of its own.

It adds the database to a wheel, compiled or taken from ``JITLTO_PREBUILT``, and to an sdist every file that compiling
needs. An editable install gets neither: it is the source tree.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from jitlto.base.errors import JitltoError
from jitlto.base.files import temporary_directory
from jitlto.packaging import project
from jitlto.packaging.pack import build_files


class JitltoBuildHook(BuildHookInterface[BuilderConfig]):
    """Add a package's fragment database to its wheel."""

    PLUGIN_NAME = "jitlto"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files to a build; hatchling calls it before it builds."""
        try:
            build_data["force_include"].update(self._files(version))
        except JitltoError as error:
            self.app.abort(f"jitlto: {error}")

    def _files(self, version: str) -> dict[str, str]:
        package = project.load_package(Path(self.root))
        if self.target_name == "sdist":
            return {str(p): str(p.relative_to(package.config.root)) for p in project.list_sources(package)}
        if self.target_name != "wheel" or version == "editable":
            return {}
        # Removed together with this object, after the wheel is written.
        self._directory = temporary_directory("jitlto-")
        directory = Path(self._directory.__enter__())
        build_files(package, directory, self.app.display_warning, self.app.display_info)
        return {str(directory / place): str(place) for place in package.config.places}


@hookimpl
def hatch_register_build_hook() -> type[JitltoBuildHook]:
    """Return the hook, for the entry point ``jitlto`` of the group ``hatch``."""
    return JitltoBuildHook
