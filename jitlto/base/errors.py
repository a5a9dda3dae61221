"""The exceptions: everything that jitlto raises on purpose is a :class:`JitltoError`.

A message says what is wrong, where it is, and what to do about it. The parts are separate attributes, so that a command
can format them and a program can read them. Each class has a stable ``code``; a case within it has a longer one that
begins with the class's, such as ``matrix-empty`` for a :class:`MatrixError`. ``docs/errors.md`` lists them.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what takes a millisecond, of a cold launch
    from collections.abc import Sequence

    from jitlto.base.diagnostic import Diagnostic, Location


class JitltoError(Exception):
    """Base of all of jitlto's errors.

    Args:
        what: What is wrong, in one sentence.
        code: The case, a word that begins with the class's code; by default the class's own.
        where: The place in a file, or the fragment, parameter or device concerned.
        hint: What to do about it.
        notes: Other places that belong to it.
        causes: Of an error that stands for several, each of them.
        log: Of a compiler or linker, unabridged.
    """

    code = "jitlto"

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        if code is not None:
            cls.code = code

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        where: Location | str | None = None,
        hint: str | None = None,
        notes: Sequence[Diagnostic] = (),
        causes: Sequence[Diagnostic] = (),
        log: str = "",
    ) -> None:
        super().__init__(what, where, hint)
        self.what, self.place, self.hint, self.log = what, where, hint, log
        self.notes, self.causes = tuple(notes), tuple(causes)
        self.code = code or self.code

    @property
    def where(self) -> str | None:
        """The place as text."""
        return None if self.place is None else str(self.place)

    @property
    def diagnostic(self) -> Diagnostic:
        """The error as a value."""
        from jitlto.base.diagnostic import Diagnostic  # of errors that are shown

        return Diagnostic.at(self.place, self.what, self.code, notes=self.notes, hint=self.hint)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All that it stands for, each cause once."""
        return self.causes or (self.diagnostic,)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by attributes: errors cross from worker processes with all that they carry."""
        return (copyreg.__newobj__, (type(self), *self.args), self.__dict__)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return "\n\n".join(map(str, (self.diagnostic, *self.causes)))


class MatrixError(JitltoError, code="matrix"):
    """A matrix is malformed or breaks a rule of the matrix product."""


class FamilyError(JitltoError, code="family"):
    """A ``family.toml`` is missing, malformed or contradicts itself."""


class ProjectError(JitltoError, code="project"):
    """A package's ``[tool.jitlto]`` is missing, malformed, or at odds with its families, entry points or database."""


class RenderError(JitltoError, code="render"):
    """A template cannot be rendered with one of its combinations."""


class ToolchainError(JitltoError, code="toolchain"):
    """A compiler, linker or other CUDA component is missing or unusable."""


class CompileError(JitltoError, code="compile"):
    """A source does not compile; ``log`` holds the compiler's messages."""


class ForeignBuildError(JitltoError, code="import"):
    """The build files of another project cannot be read as declarations; ``log`` holds what CMake wrote."""


class BuildError(JitltoError, code="build"):
    """Fragments compile, but cannot form a consistent database."""


class DatabaseError(JitltoError, code="database"):
    """A fragment database is missing, damaged, foreign or too new."""


class ManifestError(JitltoError, code="manifest"):
    """A manifest is missing, malformed or badly signed, or a file does not match it."""


class WisdomError(JitltoError, code="wisdom"):
    """A file of wisdom is missing, damaged, foreign or too new, or cannot be written."""


class TuningError(JitltoError, code="tuning"):
    """A variant cannot be tuned, or its results are not those of the default."""


class StoreError(JitltoError, code="store"):
    """A shared store is declared wrongly, cannot be reached, or refuses or fails what is asked of it."""


class RejectedEntryError(StoreError, code="store-rejected"):
    """What a shared store holds under a name is not a good entry of that name; ``what`` is the same for each such."""


class RegistryError(JitltoError, code="registry"):
    """No database holds the requested family, or several do."""


class PlanError(JitltoError, code="plan"):
    """A configuration does not resolve to one set of fragments."""


class UnknownParameterError(PlanError, code="plan-unknown-parameter"):
    """A configuration names a parameter that the family does not have."""


class UnknownValueError(PlanError, code="plan-unknown-value"):
    """A configuration gives a parameter a value that no fragment has."""


class AmbiguousConfigurationError(PlanError, code="plan-ambiguous"):
    """A configuration leaves more than one fragment to choose from."""


class MissingProviderError(PlanError, code="plan-missing-provider"):
    """No fragment or input provides a symbol that a fragment requires."""


class InterfaceMismatchError(PlanError, code="plan-interface-mismatch"):
    """A provider and a requirer of one interface disagree about its types."""


class LinkError(JitltoError, code="link"):
    """A plan does not link; ``log`` holds nvJitLink's error and info logs."""


class VersionError(LinkError, code="link-version"):
    """A fragment's compiler and the installed nvJitLink are incompatible."""


class ArchitectureError(LinkError, code="link-architecture"):
    """A fragment's architecture and the target architecture are incompatible."""


class UnresolvedSymbolError(LinkError, code="link-unresolved"):
    """A linked kernel refers to symbols that no input defines.

    Args:
        symbols: Their names, mangled and sorted.
    """

    def __init__(self, what: str, *, symbols: tuple[str, ...] = (), **rest: Any) -> None:
        super().__init__(what, **rest)
        self.symbols = symbols


class NotCachedError(JitltoError, code="not-cached"):
    """A kernel would have to be linked where linking is forbidden."""


class NoDeviceError(JitltoError, code="no-device"):
    """No usable CUDA driver or device."""


class LaunchError(JitltoError, code="launch"):
    """A launch was rejected by jitlto or by the driver."""


class ArgumentError(LaunchError, TypeError, code="launch-argument"):
    """A launch argument does not fit the kernel's signature."""


class OperatorError(JitltoError, code="operator"):
    """An operator of a framework is declared wrongly, or called with what its declaration excludes."""
