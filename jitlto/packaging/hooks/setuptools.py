"""The build hook for setuptools: a part of ``build_py`` in every project that has ``[tool.jitlto]``.

It does for wheels, sdists and editable installs what :mod:`~jitlto.packaging.hooks.hatch` does.
"""

from pathlib import Path

from setuptools import Distribution

from jitlto.families.pyproject import has_config


def add_to_build(distribution: Distribution) -> None:
    """Add the step; the entry point ``jitlto`` of the group ``setuptools.finalize_distribution_options``.

    setuptools calls it in every project that is built where jitlto is installed, so it loads nothing for the others.
    """
    if has_config(Path("pyproject.toml")):
        from jitlto.packaging.hooks.build_fragments import BuildFragments

        base = distribution.get_command_class("build_py")  # which may be the project's own
        distribution.cmdclass["build_py"] = type("build_py", (BuildFragments, base), {})
