"""The exceptions: everything that jitlto raises on purpose is a :class:`JitltoError`.

A message says what is wrong, where it is, and what to do about it. The parts are kept apart so that a command can lay
them out and a program can read them. Each class has a stable ``code``; a case within it has a longer
one that begins with the class's, such as ``matrix-empty`` for a :class:`MatrixError`. ``docs/errors.md`` lists
them.
"""

from __future__ import annotations


class JitltoError(Exception):
    """Base of all of jitlto's errors.

    Args:
        what: What is wrong, in one sentence.
        code: The case, a word that begins with the class's code; by default the class's own.
        where: The file, line, fragment, parameter or device concerned.
        hint: What to do about it.
    """

    code: str = "jitlto"

    def __init__(
        self, what: str, *, code: str | None = None, where: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.code = code or type(self).code
        self.where = where
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by attributes: errors cross from worker processes with all that they carry."""
        return (_rebuild, (type(self), self.__dict__.copy()))

    def __str__(self) -> str:
        first, newline, rest = self.what.partition("\n")  # a compiler's log may follow the first line
        text = f"{self.where or ''}{': ' if self.where else ''}{first} [{self.code}]{newline}{rest}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


def _rebuild(cls: type[JitltoError], state: dict[str, object]) -> JitltoError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["what"], state["where"], state["hint"])
    error.__dict__.update(state)
    return error


class MatrixError(JitltoError):
    """A matrix is malformed or breaks a rule of the matrix product."""

    code = "matrix"


class FamilyError(JitltoError):
    """A ``family.toml`` is missing, malformed or contradicts itself."""

    code = "family"


class ProjectError(JitltoError):
    """A package's ``[tool.jitlto]`` is missing, malformed, or at odds with its families, entry points or database."""

    code = "project"


class RenderError(JitltoError):
    """A template cannot be rendered with one of its combinations."""

    code = "render"


class ToolchainError(JitltoError):
    """A compiler, linker or other CUDA component is missing or unusable."""

    code = "toolchain"


class LoggedError(JitltoError):
    """An error that a tool below explained in a log of its own.

    Args:
        log: The tool's log, unabridged.
    """

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        where: str | None = None,
        hint: str | None = None,
        log: str = "",
    ) -> None:
        super().__init__(what, code=code, where=where, hint=hint)
        self.log = log


class CompileError(LoggedError):
    """A source does not compile; ``log`` holds the compiler's own words."""

    code = "compile"


class BuildError(JitltoError):
    """Fragments compile one by one but do not make a sound database together."""

    code = "build"


class DatabaseError(JitltoError):
    """A fragment database is missing, damaged, foreign or too new."""

    code = "database"


class ManifestError(JitltoError):
    """A manifest is missing, malformed or badly signed, or a file is not what it says."""

    code = "manifest"


class RegistryError(JitltoError):
    """No database, or more than one, holds the family asked for."""

    code = "registry"


class PlanError(JitltoError):
    """A configuration does not resolve to one set of fragments."""

    code = "plan"


class UnknownParameterError(PlanError):
    """A configuration names a parameter that the family does not have."""

    code = "plan-unknown-parameter"


class UnknownValueError(PlanError):
    """A configuration gives a parameter a value that no fragment has."""

    code = "plan-unknown-value"


class AmbiguousConfigurationError(PlanError):
    """A configuration leaves more than one fragment to choose from."""

    code = "plan-ambiguous"


class MissingProviderError(PlanError):
    """Nobody provides a symbol that a fragment requires."""

    code = "plan-missing-provider"


class InterfaceMismatchError(PlanError):
    """A provider and a requirer of one interface disagree about its types."""

    code = "plan-interface-mismatch"


class LinkError(LoggedError):
    """A plan does not link; ``log`` holds nvJitLink's error and info logs."""

    code = "link"


class VersionError(LinkError):
    """A fragment's compiler and the nvJitLink at hand do not go together."""

    code = "link-version"


class ArchitectureError(LinkError):
    """A fragment's architecture and the target architecture do not go together."""

    code = "link-architecture"


class UnresolvedSymbolError(LinkError):
    """A linked kernel refers to a symbol that no input defines."""

    code = "link-unresolved"


class NotCachedError(JitltoError):
    """A kernel would have to be linked where linking is forbidden."""

    code = "not-cached"


class NoDeviceError(JitltoError):
    """No usable CUDA driver or device."""

    code = "no-device"


class LaunchError(JitltoError):
    """A launch was refused before or by the driver."""

    code = "launch"


class ArgumentError(LaunchError, TypeError):
    """A launch argument does not fit the kernel's signature."""

    code = "launch-argument"
