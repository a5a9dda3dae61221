"""Callers' device functions in Python: each replaces a group, through an adapter to the group's interface."""

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from types import NoneType

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import PlanError
from jitlto.base.mangling import base_name
from jitlto.base.text import abbreviate, check_type, suggest
from jitlto.database.index import Index
from jitlto.plan.resolve import Resolution
from jitlto.plan.supplied import UserSymbols
from jitlto.plan.user_code.adapter import USE_CPP, compile_adapter
from jitlto.plan.user_code.compilation import UserCode
from jitlto.plan.user_code.inputs import Images, UserInput, base_architecture, link_images
from jitlto.plan.user_code.numba_compiler import PythonFunction, compile_function
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, Symbol, SymbolKind


def python_function(function: object, group: str | None = None) -> PythonFunction:
    """Check a function for :meth:`~jitlto.plan.planner.Planner.add_function`.

    Parameters, defaults and errors are those of that method.
    """
    check_type(group, (str, NoneType), "group must be a name")
    plain = getattr(function, "py_func", function)
    if not inspect.isfunction(plain):
        raise PlanError(
            f"expected a Python function, got {type(function).__name__}",
            code="plan-invalid-input",
            where=getattr(function, "__name__", None) or abbreviate(function),
            hint="pass a function written with def or lambda; pass CUDA C++ to add_source",
        )
    return PythonFunction(plain, group or plain.__name__)


def from_functions(
    functions: Sequence[PythonFunction],
    family: FamilyRecord,
    fragments: Sequence[Fragment],
    index: Index,
    supplied: Sequence[UserInput],
    plan: Callable[[Sequence[UserSymbols]], Resolution],
    store: CacheDir | None,
) -> list[UserInput]:
    """Compile callers' Python functions for the symbols that a kernel requires of their groups.

    Args:
        functions: The caller's functions.
        family: The family whose interfaces they implement.
        fragments, index: All fragments of the family, and their index.
        supplied: The caller's other inputs.
        plan: Resolves the kernel with the symbols of inputs.
        store: The user's cache, if any.

    Raises:
        PlanError: If the configuration does not select one kernel, or that kernel requires nothing of a function's
            group.
        InterfaceMismatchError: If the interface has a type unknown to Numba.
        CompileError: If Numba cannot compile a function for the interface's types.
        ToolchainError: If numba-cuda is not installed.
    """
    places = [UserSymbols(each.where, tuple(_defined_by(each, family, fragments, index)), ()) for each in functions]
    others = [item.symbols for item in supplied]
    owners: list[Fragment | UserSymbols] = [*plan([*others, *places]).fragments, *others]
    needed = {symbol.name for owner in owners for symbol in owner.requires}
    return [
        _from_function(each, [s for s in place.provides if s.name in needed], family, store)
        for each, place in zip(functions, places, strict=True)
    ]


def _defined_by(
    function: PythonFunction, family: FamilyRecord, fragments: Sequence[Fragment], index: Index
) -> list[Symbol]:
    """Return the functions that the family requires of a group: provided there, or only declared there."""
    group = family.group(function.group)
    if group is None:
        names = [g.name for g in family.groups]
        raise PlanError(
            f"{family.name} has no group {function.group!r}",
            code="plan-unknown-group",
            where=function.where,
            hint=f"{suggest(function.group, names)} name the function after a group, or pass group=; "
            f"the groups are {', '.join(names)}".lstrip(),
        )
    if not group.interface:
        raise PlanError(
            f"group {group.name} declares no interface header, so its types are unknown",
            code="plan-python-interface",
            where=function.where,
            hint=f"declare interface in family.toml, or {USE_CPP}",
        )
    provided = {s.name for f in fragments if f.key.group == group.name for s in f.provides}
    words = set(re.findall(r"\w+", dict(family.headers).get(group.interface, "")))
    required = {s.name: s for f in fragments for s in f.requires if s.kind is SymbolKind.FUNCTION}
    symbols = [
        symbol
        for name, symbol in sorted(required.items())
        if name in provided or (base_name(name) in words and not index.providers.get(name))
    ]
    # A group may have several functions: choose by the Python function's name.
    return [s for s in symbols if base_name(s.name) == function.function.__name__] or symbols


def _from_function(
    function: PythonFunction, symbols: Sequence[Symbol], family: FamilyRecord, store: CacheDir | None
) -> UserInput:
    where = function.where
    names = sorted({base_name(symbol.name) for symbol in symbols})
    if len(names) > 1:
        raise PlanError(
            f"{function.group} has several functions, none of them named {function.function.__name__}",
            code="plan-python-name",
            where=where,
            hint=f"name the Python function after one of them: {', '.join(names)}",
        )
    base = base_architecture(family)
    compiled: list[UserCode] = []
    images: Images = ()
    for symbol in symbols:
        adapter, inner = compile_adapter(symbol, function.group, where, family, base, store)
        python = compile_function(function, inner, base, fast_math=family.link.fast_math)
        compiled += [adapter, python]
        images += (*link_images(adapter, where), *link_images(python, where, has_inline=False))
    provides = {symbol for each in compiled for symbol in each.module.provides}
    defined = {symbol.name for symbol in provides}
    requires = {symbol for each in compiled for symbol in each.module.requires if symbol.name not in defined}
    return UserInput(
        UserSymbols(where, tuple(sorted(provides)), tuple(sorted(requires))),
        hashlib.sha256("\0".join(each.identity for each in compiled).encode()).hexdigest(),
        images,
    )
