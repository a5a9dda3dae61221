"""A toolchain that compiles nothing, for tests of what is decided before a compile."""

from pathlib import Path

from jitlto.base.versions import Version
from jitlto.compile.compiler import CompiledSource, CompileJob


class FakeToolchain:
    """A name, a version and an identity."""

    name, version, identity = "fake", Version(1, 0), "fake 1.0"

    def identify(self, images: object) -> str:
        return self.identity

    def header_roots(self) -> list[Path]:
        return []

    def compile(self, job: CompileJob) -> CompiledSource:
        raise NotImplementedError
