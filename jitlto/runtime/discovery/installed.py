"""The families of installed packages, and the state of their databases."""

from dataclasses import dataclass, replace

from jitlto.base.errors import JitltoError
from jitlto.runtime.discovery import editable, entry_points
from jitlto.runtime.discovery.entry_points import InstalledFamily
from jitlto.runtime.discovery.registry import Registry


@dataclass(frozen=True, slots=True)
class ListedFamily:
    """A family of an installed package, and the state of its database."""

    family: str
    distribution: str
    version: str
    editable: str | None
    database: str | None = None
    trouble: str | None = None
    remedy: str | None = None


def installed_families(registry: Registry) -> list[ListedFamily]:
    """Return the families of installed packages, without building any; known databases are not opened again."""
    families = sorted(entry_points.families(), key=lambda each: (each.family, each.distribution))
    return [_listed(each, registry) for each in families]


def _listed(each: InstalledFamily, registry: Registry) -> ListedFamily:
    source = each.source
    listed = ListedFamily(each.family, each.distribution, each.version, str(source) if source else None)
    try:
        if source is None:
            file = registry.of_package(each)
        else:
            if not source.is_dir():
                remedy = f"install it again, or pip uninstall {each.distribution}"
                return replace(listed, trouble=f"its source tree is gone: {source}", remedy=remedy)
            path = editable.locate_database(each, source, registry.settings)
            if not path.is_file():
                builds = "; first use builds it" if path.is_relative_to(registry.settings.cache_dir) else ""
                return replace(listed, trouble=f"not built yet{builds}")
            file = registry.file(path)
        listed = replace(listed, database=str(file.path))
        file.require(each.family)
    except JitltoError as error:
        return replace(listed, database=error.where, trouble=error.what, remedy=error.hint)
    except OSError as error:
        return replace(listed, trouble=error.strerror or str(error))
    return listed
