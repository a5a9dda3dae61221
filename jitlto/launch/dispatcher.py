"""Dispatchers: choose a launcher by parameter values that are passed with each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jitlto.base.errors import PlanError
from jitlto.base.frozen import Shared
from jitlto.base.text import check_type
from jitlto.launch.core import Answers, called, remembered
from jitlto.plan.configuration import normalize_configuration

if TYPE_CHECKING:
    from jitlto.launch.launcher import Launcher


@called
class Dispatcher(Shared):
    """Chooses a launcher by values that are passed with each call; a known kernel costs one look-up.

    Created by :meth:`KernelFamily.dispatcher`. Thread-safe.
    """

    __slots__ = ("__dict__", "__weakref__")

    def __init__(
        self,
        family: Any,  # a KernelFamily, whose module imports this one
        names: Sequence[str],
        fixed: Mapping[str, object],
        entry: str | None,
        link_mode: str,
        link_options: Mapping[str, object] | None,
    ) -> None:
        for name in names:
            check_type(name, str, "a parameter must be a name")
        twice = [name for name in names if name in fixed or list(names).count(name) > 1]
        if twice:
            raise PlanError(
                f"parameter {twice[0]!r} is given twice", code="plan-duplicate-parameter", where=family.name
            )
        for name in names:
            normalize_configuration({name: family.parameters.get(name, ("",))[0]}, family.parameters, family.name)
        normalize_configuration(fixed, family.parameters, family.name)
        if link_options is not None:
            check_type(link_options, Mapping, "link options must be a dict")
        self.names = tuple(names)
        self._quick = Answers()
        self._family = family
        self._fixed = dict(fixed)
        how = {"entry": entry, "link_mode": link_mode, "link_options": dict(link_options or {})}
        # As a caller of the family would ask, who leaves out what is the default.
        self._how: dict[str, Any] = {name: value for name, value in how.items() if value not in (None, "lto", {})}

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made again, in another process, by its family."""
        return partial(self._family.dispatcher, *self.names, **self._how, **self._fixed), ()

    @remembered
    def __call__(self, *values: object) -> Launcher:
        """Return the launcher for these values, one for each name.

        Raises:
            JitltoError: As :meth:`KernelFamily.launcher`.
        """
        if len(values) != len(self.names):
            raise PlanError(
                f"{len(values)} values given for {len(self.names)} parameters",
                code="plan-value-count",
                where=self._family.name,
                hint=f"give one value for each of {', '.join(self.names)}",
            )
        chosen = dict(zip(self.names, values, strict=True))
        launcher: Launcher = self._family.launcher(**self._how, **self._fixed, **chosen)
        return launcher
