"""A toolchain that compiles nothing, for tests of what is decided before a compile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jitlto.base.versions import Version
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.record.fragment import ImageKind


class FakeToolchain:
    """Finds a header by itself, or none.

    Parameters
    ----------
    header : str, optional
        What it says of any header of its machine.
    """

    name, version, identity = "fake", Version(1, 0), "fake 1.0"

    def __init__(self, header: str | None = None) -> None:
        self.header = header

    def identify(self, images: Sequence[ImageKind]) -> str:
        return self.identity

    def header_roots(self) -> list[Path]:
        return []

    def compile(self, job: CompileJob) -> CompiledSource:
        raise NotImplementedError

    def external(self, name: str) -> str | None:
        return self.header
