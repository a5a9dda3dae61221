"""The build hook for setuptools: a step of ``build`` in every project whose ``pyproject.toml`` has ``[tool.jitlto]``.

It does for wheels, sdists and editable installs what :mod:`~jitlto.packaging.hooks.hatch` does.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Distribution

from jitlto.packaging.pyproject import has_config

_COMMAND = "build_fragments"


def add_to_build(distribution: Distribution) -> None:
    """Add the step; the entry point ``jitlto`` of the group ``setuptools.finalize_distribution_options``.

    setuptools calls it in every project that is built where jitlto is installed, so it loads nothing for the others.
    """
    pyproject = Path("pyproject.toml")
    if not has_config(pyproject):
        return
    from jitlto.packaging.hooks.build_fragments import BuildFragments

    base = distribution.get_command_class("build")
    steps = [*base.sub_commands, (_COMMAND, None)]
    distribution.cmdclass["build"] = type("build", (base,), {"sub_commands": steps})
    distribution.cmdclass[_COMMAND] = BuildFragments
