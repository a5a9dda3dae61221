"""Virtual environments for tests of what is installed: fresh, without pip and index, over the packages at hand."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest


def need(*distributions: str) -> None:
    """Skip where one of these is not installed."""
    for name in distributions:
        try:
            distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed; the extra test brings it")


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own cache directory, into which wheels are installed."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> Environment:
        """Make one that sees what is installed here, but for what its own site-packages hold."""
        need("pip")
        venv.create(path, symlinks=True)
        found = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
        site = next(path.glob("lib/python*/site-packages"))
        (site / "shared.pth").write_text("\n".join(found))
        return cls(path)

    @classmethod
    def holding(cls, path: Path, requirements: Iterable[str]) -> Environment:
        """Make one of what these need and nothing else, from the packages at hand; skips where one is not there."""
        packaging = pytest.importorskip("packaging.requirements")
        venv.create(path, symlinks=True)
        made, waiting, seen = cls(path), list(requirements), set[str]()
        while waiting:
            wanted = packaging.Requirement(waiting.pop())
            if wanted.name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                continue
            seen.add(wanted.name)
            need(wanted.name)
            found = distribution(wanted.name)
            for file in found.files or []:
                if ".." not in file.parts:
                    target = made.site / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.symlink_to(Path(str(file.locate())).resolve())
            waiting += found.requires or []
        return made

    @property
    def site(self) -> Path:
        return next(self.path.glob("lib/python*/site-packages"))

    def run(
        self, *command: str | Path, cwd: Path, seconds: float = 300, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with nothing on its path that the environment does not have."""
        program, *arguments = map(str, command)
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "JITLTO_", "PIP_", "VIRTUAL_ENV"))}
        # What the build backends start (meson, ninja, cmake) is beside the interpreter at hand.
        places = [self.path / "bin", Path(sys.executable).parent, kept.get("PATH", os.defpath)]
        path = os.pathsep.join(map(str, places))
        own = {"PATH": path, "JITLTO_CACHE_DIR": os.environ["JITLTO_CACHE_DIR"]}
        return subprocess.run(
            [str(self.path / "bin" / program), *arguments],
            cwd=cwd,
            env={**kept, **own, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=seconds,
            check=False,
        )

    def must(self, *command: str | Path, cwd: Path, seconds: float = 300, **variables: str) -> str:
        """Run a program that has to succeed; returns what it printed."""
        done = self.run(*command, cwd=cwd, seconds=seconds, **variables)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def pip(self, *arguments: str | Path) -> None:
        """Run pip, which the environment sees among the packages at hand, without an index."""
        command = [str(self.path / "bin/python"), "-I", "-m", "pip", "--disable-pip-version-check"]
        done = subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False, cwd=self.path
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *wheels: Path) -> None:
        self.pip("install", "--quiet", "--no-index", "--no-deps", "--no-compile", *wheels)
