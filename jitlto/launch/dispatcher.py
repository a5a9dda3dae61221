"""Dispatchers: choose a launcher by parameter values that are passed with each call."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

from jitlto.base.errors import PlanError
from jitlto.base.frozen import Shared
from jitlto.base.text import check_type
from jitlto.base.types import is_exact
from jitlto.cuda.device import kind
from jitlto.launch.quick_lookup import new_dispatcher
from jitlto.plan.configuration import LINK_MODES, normalize_configuration, unknown_link_mode

if TYPE_CHECKING:
    from typing import Protocol

    class Forgetting(Protocol):
        """What remembers launchers."""

        def forget_quick(self) -> None: ...

    from jitlto.launch.launcher import Launcher

    class LaunchedFamily(Protocol):
        """The parts of a family that whatever chooses a launcher uses."""

        name: str
        parameters: Mapping[str, tuple[str, ...]]
        entrypoints: tuple[str, ...]

        def launcher(
            self,
            *,
            entry: str | None = None,
            link_mode: str = "lto",
            link_options: Mapping[str, object] | None = None,
            **configuration: object,
        ) -> Launcher: ...

    class DispatchedFamily(LaunchedFamily, Protocol):
        """The parts of a family that a dispatcher uses."""

        def accepted_values(self, name: str) -> Sequence[str]: ...

        def dispatcher(self, *names: str, **how: Any) -> Dispatcher: ...


_dispatchers: weakref.WeakSet[Forgetting] = weakref.WeakSet()


class Dispatcher(Shared):
    """Chooses a launcher by values that are passed with each call; a known kernel costs one dict look-up.

    Created by :meth:`KernelFamily.dispatcher`. Thread-safe.
    """

    __slots__ = ("__dict__", "__weakref__", "_compiled_table")  # as KernelFamily's
    _compiled_table: Any

    def __new__(cls, *_: object, **_more: object) -> Dispatcher:
        """Create an instance of a class that the compiled core makes, if there is one, because it calls that faster."""
        return new_dispatcher(cls, Dispatcher)  # type: ignore[no-any-return]

    def __init__(
        self,
        family: DispatchedFamily,
        names: Sequence[str],
        fixed: Mapping[str, object],
        entry: str | None,
        link_mode: str,
        link_options: Mapping[str, object] | None,
    ) -> None:
        for name in names:
            check_type(name, str, "a parameter must be a name")
        check_type(entry, (str, NoneType), "entry must be the name of a group")
        check_type(link_options, (Mapping, NoneType), "link options must be a dict")
        twice = [name for name in names if name in fixed or list(names).count(name) > 1]
        if twice:
            raise PlanError(
                f"parameter {twice[0]!r} is given twice", code="plan-duplicate-parameter", where=family.name
            )
        if link_mode not in LINK_MODES:
            raise unknown_link_mode(link_mode)
        groups = family.entrypoints
        if entry is not None and entry not in groups:
            raise PlanError(
                f"unknown entrypoint {entry!r}",
                code="plan-unknown-entrypoint",
                where=family.name,
                hint=f"the entrypoints are {', '.join(groups)}",
            )
        for name in names:
            normalize_configuration({name: family.parameters.get(name, ("",))[0]}, family.parameters, family.name)
        normalize_configuration(fixed, family.parameters, family.name)
        self.names = tuple(names)
        #: Kind of device → values → launcher.
        self.tables: defaultdict[int, dict[object, Launcher]] = defaultdict(dict)
        #: Those of the only kind where all devices are of one architecture, so that a call need not ask for its own.
        self.quick: dict[object, Launcher] = {}
        self._typed = any(_has_equal_numbers(family.accepted_values(name)) for name in names)
        self._family = family
        self._fixed = dict(fixed)
        # Copied, so that callers can change their dict later.
        self._how = {"entry": entry, "link_mode": link_mode, "link_options": dict(link_options or {})}
        watch(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made again, in another process, by its family."""
        return partial(self._family.dispatcher, *self.names, **self._how, **self._fixed), ()

    def __call__(self, *values: object) -> Launcher:
        """Return the launcher for these values, one for each name.

        Raises:
            JitltoError: As :meth:`KernelFamily.launcher`.
        """
        try:
            return self.quick[(*values, *map(type, values)) if self._typed else values]
        except (KeyError, TypeError):
            pass
        request = (*values, *map(type, values)) if self._typed else values
        table = self.tables[current := kind()]
        try:
            launcher = table[request]
        except (KeyError, TypeError):  # TypeError: a value that cannot be hashed, which planning reports
            launcher = self._find(values)
            if not all(map(is_exact, values)):
                return launcher
            table[request] = launcher
        if current == 0:  # all devices are of one architecture: the current one does not matter
            self._remember(request, values, launcher)
        return launcher

    def _remember(self, request: tuple[object, ...], values: tuple[object, ...], launcher: Launcher) -> None:
        self.quick[request] = launcher
        if self._compiled_table is not None:
            self._compiled_table.remember(values, (), launcher)

    def forget_quick(self) -> None:
        """Empty the tables of the quick look-up."""
        self.quick.clear()
        if self._compiled_table is not None:
            self._compiled_table.forget()

    def _find(self, values: tuple[object, ...]) -> Launcher:
        if len(values) != len(self.names):
            raise PlanError(
                f"{len(values)} values given for {len(self.names)} parameters",
                code="plan-value-count",
                where=self._family.name,
                hint=f"give one value for each of {', '.join(self.names)}",
            )
        chosen = dict(zip(self.names, values, strict=True))
        return self._family.launcher(**self._how, **self._fixed, **chosen)  # type: ignore[arg-type]


def watch(chooser: Forgetting) -> None:
    """Have something that remembers launchers forget them in a forked process, where they cannot be used."""
    _dispatchers.add(chooser)


def after_fork() -> None:
    """Have dispatchers, in a forked process, ask for the device again, which cannot be used there."""
    for dispatcher in _dispatchers:
        dispatcher.forget_quick()


def _has_equal_numbers(values: Sequence[str]) -> bool:
    """Return whether some of a parameter's values are equal in Python, such as ``1``, ``1.0`` and ``true``."""
    return len(set(map(_as_number, values))) < len(values)


def _as_number(value: str) -> object:
    try:
        return float({"true": "1", "false": "0"}.get(value, value))
    except ValueError:
        return value
