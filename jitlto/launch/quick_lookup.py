"""Look-ups of launchers that were asked for before, by functions made for the parameters of a family.

A method with ``**configuration`` makes a dict and several tuples of it in each call. A function whose own parameters
are those of the family takes a quarter of the time, and the compiled core's (``_lookup.c``) less than a tenth.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import TYPE_CHECKING, Any

from jitlto.base.types import is_exact
from jitlto.cuda import device
from jitlto.launch.core import extension, new_called

if TYPE_CHECKING:
    from jitlto.launch.launcher import Launcher

_MOST_PARAMETERS = 16  # each that is not given costs a call time too
_MISSING = object()  # in the place of a value that is not given

_TEMPLATE = """
def launcher(self, *, {parameters}entry=None, link_mode="lto", link_options=None, **others):
    if link_options is None and not others:
        try:
            # The types too: to Python 1, 1.0 and True are equal.
            return self._quick[{parameters}{types}entry, link_mode]
        except (KeyError, TypeError):
            pass  # TypeError: a value that cannot be hashed
    return find(self, ({parameters}), entry, link_mode, link_options, others)
"""

_families: weakref.WeakSet[Any] = weakref.WeakSet()


def install(family: Any, base: type[Any]) -> None:
    """Give a ``KernelFamily`` a faster method ``launcher``, which falls back on that of ``base``, its class.

    Only where all devices are of one architecture, so that the current device does not matter.
    """
    names = tuple(family.parameters)
    reserved = {"self", "entry", "link_mode", "link_options", "others"}
    overridden = type(family).launcher is not base.launcher
    if device.kind() != 0 or overridden or len(names) > _MOST_PARAMETERS or not reserved.isdisjoint(names):
        return
    core = extension()
    family.__class__ = _family_class(type(family), base, names, core)  # type: ignore[arg-type]  # a class can be hashed
    if core is not None:
        family._compiled_table = core.make_table()
    _families.add(family)


def new_dispatcher(cls: type[Any], base: type[Any]) -> Any:
    """Make a ``Dispatcher``, with the compiled core's method ``__call__`` before that of ``base``, if there is one."""
    core = extension() if cls.__call__ is base.__call__ else None
    dispatcher = new_called(cls, core, None if core is None else core.make_lookup)
    dispatcher._compiled_table = None if core is None else core.make_table()
    return dispatcher


def after_fork() -> None:
    """Forget, in a forked process, all launchers: they cannot be used there, which the slow way reports."""
    for family in _families:
        family.forget_quick()


@cache
def _family_class(cls: type[Any], base: type[Any], names: tuple[str, ...], core: ModuleType | None) -> type[Any]:
    from jitlto.launch.launcher import subclass  # imported lazily: loads cuda.core, which a dispatcher need not

    method = _make_launcher(base, names)

    def launcher(family: Any, *args: Any, **how: Any) -> Launcher:
        found = method(family, *args, **how)
        values = tuple(how.values())
        if "link_options" not in how and all(value is None or is_exact(value) for value in values):
            family._compiled_table.remember(values, tuple(how), found)
        return found

    launcher.__doc__ = method.__doc__
    return subclass(cls, launcher=method if core is None else core.make_lookup(launcher))


def _make_launcher(base: type[Any], names: tuple[str, ...]) -> Callable[..., Launcher]:
    def find(
        family: Any,
        values: tuple[object, ...],
        entry: Any,
        link_mode: Any,
        link_options: Mapping[str, object] | None,
        others: dict[str, object],
    ) -> Launcher:
        given: dict[str, Any] = {n: v for n, v in zip(names, values, strict=True) if v is not _MISSING}
        launcher: Launcher = base.launcher(
            family, entry=entry, link_mode=link_mode, link_options=link_options, **given, **others
        )
        exact = all(map(is_exact, given.values())) and type(entry) in (str, NoneType) and type(link_mode) is str
        if exact and link_options is None and not others:
            family._quick[(*values, *map(type, values), entry, link_mode)] = launcher
        return launcher

    function = FunctionType(_code(names), {"find": find}, "launcher")
    function.__kwdefaults__ = dict.fromkeys(names, _MISSING) | {
        "entry": None, "link_mode": "lto", "link_options": None
    }  # fmt: skip
    function.__doc__ = base.launcher.__doc__
    return function


def _code(names: tuple[str, ...]) -> CodeType:
    """Return the code for a family's parameters, whose names are put in place of others: they are no part of a text."""
    stand_ins = [f"p{number}" for number in range(len(names))]
    source = _TEMPLATE.format(
        parameters="".join(f"{name}, " for name in stand_ins),
        types="".join(f"type({name}), " for name in stand_ins),
    )
    (code,) = (constant for constant in _compile(source).co_consts if isinstance(constant, CodeType))
    renamed = dict(zip(stand_ins, names, strict=True))
    return code.replace(co_varnames=tuple(renamed.get(name, name) for name in code.co_varnames))


def _compile(source: str) -> CodeType:
    return compile(source, "<jitlto look-up>", "exec")
