"""A toolchain that compiles nothing, for tests of what is decided before a compile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jitlto.base.versions import Version
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.record.fragment import ImageKind


class FakeToolchain:
    """A name, a version and an identity."""

    name, version, identity = "fake", Version(1, 0), "fake 1.0"

    def identify(self, images: Sequence[ImageKind]) -> str:
        return self.identity

    def header_roots(self) -> list[Path]:
        return []

    def compile(self, job: CompileJob) -> CompiledSource:
        raise NotImplementedError
