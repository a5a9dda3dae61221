"""Device functions for libraries that link them themselves, such as cuFFT with its LTO callbacks."""

from collections.abc import Mapping, Sequence

from jitlto.base.errors import PlanError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture
from jitlto.cuda import device, nvjitlink
from jitlto.cuda.compatibility import select_image
from jitlto.database import FragmentDatabase
from jitlto.plan import resolve_errors
from jitlto.plan.configuration import normalize_configuration
from jitlto.record.fragment import ImageKind, Role, SymbolKind, agrees


def find(
    database: FragmentDatabase,
    family: str,
    group: str,
    parameters: Mapping[str, Sequence[str]],
    arch: str | Architecture | None,
    configuration: Mapping[str, object],
) -> tuple[str, bytes]:
    """Return the symbol and the LTO-IR; see :meth:`~jitlto.runtime.family.KernelFamily.callback`.

    Args:
        database: The database.
        family, parameters: The family's name, and its parameters with their values.
        group, arch, configuration: The caller's.
    """
    values, record = normalize_configuration(configuration, parameters, family), database.families[family]
    pool = [f for f in database.planned(family)[1] if f.key.group == group and f.role is Role.DEVICE]
    if not pool:
        hint = f"the groups are {', '.join(each.name for each in record.groups)}"
        raise PlanError(f"no fragment in a device group {group!r}", code="plan-unknown-group", where=family, hint=hint)
    found = [fragment for fragment in pool if agrees(fragment.key.parameters, values)]
    if len(found) > 1:
        raise resolve_errors.undecided({f"several fragments of {group} agree": found}, values, values)
    if not found:
        raise resolve_errors.no_value(f"fragment of {group}", [fragment.key for fragment in pool], values)
    (fragment,) = found
    functions = [each for each in fragment.provides if each.kind is SymbolKind.FUNCTION]
    functions = [each for each in functions if not each.weak] or functions
    if len(functions) != 1 or fragment.requires:
        defines, requires = (
            ", ".join(demangle(each.name) for each in several) for several in (functions, fragment.requires)
        )
        what = f"{fragment.key} is no callback: it defines {defines or 'no function'}"
        hint = "define one function in it, and what that calls as static or inline functions"
        raise PlanError(f"{what}; it requires {requires}" if requires else what, code="plan-callback", hint=hint)
    target = Architecture.parse(arch) if isinstance(arch, str) else arch or device.architecture()
    return functions[0].name, database.read(select_image(fragment, ImageKind.LTOIR, target, nvjitlink.version()))
