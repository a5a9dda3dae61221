"""The families of installed packages, and the state of their databases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jitlto.base.errors import JitltoError
from jitlto.runtime.discovery import editable, entry_points
from jitlto.runtime.discovery.entry_points import InstalledFamily
from jitlto.runtime.discovery.registry import Registry


@dataclass(frozen=True, slots=True)
class ListedFamily:
    """A family of an installed package, and the state of its database; ``size`` is in bytes."""

    family: str
    distribution: str
    version: str
    editable: str | None
    database: str | None
    digest: str | None = None
    architectures: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    size: int | None = None
    trouble: str | None = None
    remedy: str | None = None


def installed_families(registry: Registry) -> list[ListedFamily]:
    """Return the families of installed packages, without building any; known databases are not opened again."""
    families = sorted(entry_points.families(), key=lambda each: (each.family, each.distribution))
    return [_listed(each, registry) for each in families]


def _listed(each: InstalledFamily, registry: Registry) -> ListedFamily:
    source = each.source
    known = (each.family, each.distribution, each.version, str(source) if source else None)
    path: Path | None = None
    try:
        if source is None:
            path = each.location
            contents = registry.of_package(each).contents
        else:
            path = editable.locate_database(each, source, registry.settings)
            declared = editable.declared_families(source)
            if declared is not None and each.family not in declared:
                raise editable.outdated_metadata(each, source)
            if not path.is_file():
                return ListedFamily(*known, None, trouble="not built yet; first use builds it")
            contents = registry.file(path).contents
        size = path.stat().st_size
    except JitltoError as error:
        return ListedFamily(*known, str(path or error.where), trouble=error.what, remedy=error.hint)
    except OSError as error:
        return ListedFamily(*known, str(path), trouble=error.strerror or str(error))
    family = contents.families.get(each.family)
    if family is None:
        problem = f"does not hold this family; it holds {', '.join(sorted(contents.families)) or 'none'}"
        return ListedFamily(*known, str(path), contents.digest, size=size, trouble=problem)
    return ListedFamily(*known, str(path), contents.digest, family.architectures, family.compilers, size)
