"""Planners: resolve a configuration of a family, and code that the caller adds to it, to a plan.

Modules for callers' inputs are imported only if there are inputs: they take 5 to 30 ms to import, planning takes 2 ms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jitlto.base.errors import JitltoError, PlanError
from jitlto.base.events import Kind
from jitlto.base.mangling import base_name, demangle, qualified_name
from jitlto.base.text import abbreviate, check_type
from jitlto.base.versions import Architecture
from jitlto.cuda import device, nvjitlink
from jitlto.cuda.nvjitlink import InputKind
from jitlto.plan.configuration import LINK_MODES, normalize_configuration
from jitlto.plan.images import select_image
from jitlto.plan.plan import Plan, Request, SuppliedInput
from jitlto.plan.resolve import Resolution, choose_entry, resolve
from jitlto.plan.supplied import UserSymbols
from jitlto.record.fragment import Fragment, FragmentKey, ImageKind, Role, SymbolKind, agrees

if TYPE_CHECKING:  # not imported at run time: a plan without a caller's inputs needs none of them
    from jitlto.database.index import Index
    from jitlto.plan.user_code import inputs
    from jitlto.plan.user_code.numba_compiler import PythonFunction
    from jitlto.record.family_record import FamilyRecord


Loaded = TypeVar("Loaded")


def parse_target(arch: str | Architecture | None) -> Architecture | None:
    """Return the target that a caller names; None for that of the current device.

    Raises:
        PlanError: If it is no architecture.
    """
    try:
        return arch if arch is None or isinstance(arch, Architecture) else Architecture.parse(arch)
    except JitltoError as error:
        raise PlanError(error.what, code="plan-invalid-link", hint=error.hint) from None


class Planner(Generic[Loaded]):
    """Resolves one configuration of a family, with the fragments and code that the caller adds to it.

    Created by :meth:`KernelFamily.planner`. The ``add`` methods return the planner, so that calls can be chained.

    Args:
        family: The :class:`KernelFamily` to plan for; its module is above.
        entry: The entrypoint's group, if the family has several.
        configuration: Parameter values as text, numbers, booleans or dtypes.
    """

    def __init__(self, family: Any, entry: str | None, configuration: Mapping[str, object]) -> None:
        if entry is not None:
            check_type(entry, str, "entry must be the name of a group")
        self._family = family
        self._entry = entry
        self._configuration = normalize_configuration(configuration, family.parameters, family.name)
        self._pinned: list[Fragment] = []
        self._functions: list[PythonFunction] = []
        self._supplied: list[SuppliedInput] = []

    def add(self, key: str | FragmentKey) -> Planner[Loaded]:
        """Add the fragment with this key, even if the configuration would choose a different one.

        Raises:
            PlanError: If the database has no such fragment.
        """
        try:
            text = key if isinstance(key, str) else abbreviate(key)
            parsed = key if isinstance(key, FragmentKey) else FragmentKey.parse(text)
        except JitltoError as error:
            raise PlanError(error.what, code="plan-invalid-key", hint=error.hint) from None
        database, record = self._family.database, self._family.record
        fragment = database.get(parsed)
        if fragment is None or not record.select([fragment]):
            given, group = dict(parsed.parameters), record.group(parsed.group)
            missing = [name for name in group.key if name not in given] if group else []
            raise PlanError(
                f"no fragment {parsed} in family {self._family.name}",
                code="plan-unknown-fragment",
                where=str(self._family.path),
                hint=f"give {' and '.join(missing)}" if missing else "`jitlto ls -l DB` lists them",
            )
        self._pinned.append(fragment)
        return self

    def callback(self, group: str, arch: str | Architecture | None = None) -> tuple[str, bytes]:
        """Return a device function for another linker; see ``KernelFamily.callback``."""
        check_type(group, str, "group must be a name")
        self.add(FragmentKey.make(self._family.name, group, self._configuration))
        fragment = self._pinned[-1]
        functions = [symbol.name for symbol in fragment.provides if symbol.kind is SymbolKind.FUNCTION]
        if fragment.role is not Role.DEVICE or len(functions) != 1 or fragment.requires:
            symbols = (", ".join(demangle(each.name) for each in of) for of in (fragment.provides, fragment.requires))
            what = "is no callback: it defines {} and requires {}".format(*(each or "nothing" for each in symbols))
            hint = "define one function in it, and what that calls as static functions"
            raise PlanError(f"{fragment.key} {what}", code="plan-callback", hint=hint)
        name = base_name(functions[0])
        # cuFFT compiles a declaration with this name, and links what that declares (seen in 12.0).
        if name == functions[0] or name != qualified_name(functions[0]):
            what = f"defines {demangle(functions[0])}, which a library cannot declare by its name"
            hint = 'define it as a C++ function: not extern "C", from a template, or in a namespace'
            raise PlanError(f"{fragment.key} {what}", code="plan-callback", hint=hint)
        target = parse_target(arch) or device.architecture()
        image = select_image(fragment, ImageKind.LTOIR, target, nvjitlink.version())
        return name, self._family.database.read(image)

    def add_source(self, text: str, name: str = "user.cu") -> Planner[Loaded]:
        """Add a device function as CUDA C++; it replaces the group that defines the same symbol.

        The family's interface headers are included before it; toolkit headers can be included.

        Args:
            text: The source.
            name: The source's name in error messages.
        """
        try:
            data = text.encode()
            name.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            where = name if isinstance(name, str) else None
            raise PlanError(
                "the source is not text",
                code="plan-invalid-input",
                where=where,
                hint="give CUDA C++ and its name as str",
            ) from error
        self._supplied.append((name, data, None))
        return self

    def add_function(self, function: object, group: str | None = None) -> Planner[Loaded]:
        """Add a device function in Python, which numba-cuda compiles; it replaces a group.

        It is compiled for the types that the group's interface declares, and its result is converted to the declared
        type.

        Args:
            function (function): A Python function, with or without the decorator ``numba.cuda.jit``.
            group: The group that it replaces; by default the one with the function's name.

        Raises:
            PlanError: If it is not a Python function.
        """
        from jitlto.plan.user_code import python_functions

        self._functions.append(python_functions.python_function(function, group))
        return self

    def add_ltoir(self, data: bytes, name: str = "user.ltoir") -> Planner[Loaded]:
        """Add LTO-IR, bare or in a fatbin."""
        data = _bytes(data, name)
        kind = InputKind.FATBIN if data[:4] == b"\x50\xed\x55\xba" else InputKind.LTOIR
        self._supplied.append((name, data, kind))
        return self

    def add_ptx(self, data: bytes | str, name: str = "user.ptx") -> Planner[Loaded]:
        """Add relocatable PTX. Nothing is optimised across it, not even in an LTO link."""
        content = data.encode(errors="replace") if isinstance(data, str) else _bytes(data, name)
        self._supplied.append((name, content, InputKind.PTX))
        return self

    def add_binary(self, data: bytes, kind: str, name: str | None = None) -> Planner[Loaded]:
        """Add a ``fatbin``, ``cubin``, ``object`` or ``library``, given as bytes."""
        allowed = (InputKind.FATBIN, InputKind.CUBIN, InputKind.OBJECT, InputKind.LIBRARY)
        if kind not in allowed:
            raise PlanError(
                f"unknown kind of input {abbreviate(kind)}",
                code="plan-invalid-input",
                hint=f"one of {', '.join(allowed)}",
            )
        name = name or f"user.{kind}"
        self._supplied.append((name, _bytes(data, name), InputKind(kind)))
        return self

    def plan(
        self,
        *,
        arch: str | Architecture | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
    ) -> Plan:
        """Resolve the configuration to a plan.

        Args:
            arch: The target, e.g. ``sm_90``; by default that of the current device, determined when it is needed.
            link_mode: ``lto``: link-time optimisation. ``ptx`` and ``sass``: link PTX or cubins,
                with calls between the fragments.
            link_options: Overrides of the family's link options; see :class:`~jitlto.record.options.LinkOptions`.

        Raises:
            PlanError: Or a subclass, if the configuration does not select exactly one set of fragments.
            CompileError: If an added source or function does not compile.
            ToolchainError: If the compiler for it is not installed.
        """
        if link_mode not in LINK_MODES:
            what = f"unknown link mode {abbreviate(link_mode)}"
            raise PlanError(what, code="plan-link-mode", hint="use lto, ptx or sass")
        begin, events = time.perf_counter(), self._family.session.events
        with events.step("plan", self._family.name):
            plan = self._plan(arch, link_mode, link_options or {})
        events.emit(Kind.PLANNED, plan.entry.key.text, seconds=time.perf_counter() - begin)
        return plan

    def _plan(self, arch: str | Architecture | None, link_mode: str, link_options: Mapping[str, object]) -> Plan:
        family = self._family
        database, record, index = family.database, family.record, family.index
        target = parse_target(arch)
        try:
            callers = record.for_callers_code(link_options)
        except JitltoError as error:
            raise PlanError(error.what, code="plan-invalid-link", hint=error.hint) from None
        options = record.link.merge(link_options)
        supplied = self._inputs(callers, index) if self._supplied or self._functions else []
        resolution = self._resolve(index, [item.symbols for item in supplied], options.libraries)
        request = None  # a Python function cannot be recorded
        if not self._functions:
            pinned = tuple(str(fragment.key) for fragment in self._pinned)
            asked = (self._configuration, pinned, tuple(self._supplied), link_mode, dict(link_options))
            request = Request(family.name, self._entry, *asked)
        about = (family.name, resolution, tuple(supplied), options, record.link, link_mode, target)
        return Plan(*about, database, family.session, request, family.again())

    def launcher(self, *, link_mode: str = "lto", link_options: Mapping[str, object] | None = None) -> Loaded:
        """Plan, link and load; return the launcher on the current device."""
        launcher: Loaded = self._family.load(self.plan(link_mode=link_mode, link_options=link_options))
        return launcher

    def add_inputs(self, supplied: Sequence[SuppliedInput]) -> Planner[Loaded]:
        """Add inputs as they are in a request."""
        self._supplied += supplied
        return self

    def _resolve(
        self, index: Index, supplied: Sequence[UserSymbols], libraries: Sequence[str] | None = None
    ) -> Resolution:
        how: dict[str, Any] = {"entry_group": self._entry, "pinned": self._pinned, "libraries": libraries}
        return resolve(index, self._configuration, supplied=supplied, **how)

    def _inputs(self, record: FamilyRecord, index: Index) -> list[inputs.UserInput]:
        from jitlto.plan.user_code import inputs, python_functions

        common: dict[str, str] = {}  # the values on which the interfaces depend
        if record.choices:
            entry = choose_entry(index, self._configuration, self._entry, self._pinned)
            common = {name: value for name, value in entry.key.parameters if name in record.common}
            record = record.choose(common)
        store = self._family.session.kernel_cache.store
        is_binary = [kind not in (None, InputKind.PTX) for _, _, kind in self._supplied]
        planned = index.fragments if self._functions or any(is_binary) else []
        fragments = [fragment for fragment in planned if agrees(fragment.key.parameters, common)]
        known = {symbol.name: symbol for fragment in fragments for symbol in fragment.provides}
        supplied = []
        for name, data, kind in self._supplied:
            if kind is None:
                supplied.append(inputs.from_source(data.decode(), name, record, store))
            else:
                supplied.append(inputs.from_binary(data, kind, name, known))
            known |= {symbol.name: symbol for symbol in supplied[-1].symbols.provides}
        supplied = [item.requiring(known) if each else item for item, each in zip(supplied, is_binary, strict=True)]
        if self._functions:
            plan = partial(self._resolve, index)
            supplied += python_functions.from_functions(
                self._functions, record, fragments, index, supplied, plan, store
            )
        return supplied


def _bytes(data: object, name: str) -> bytes:
    """Return the bytes of an input that supports the buffer protocol."""
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]
    except TypeError:
        raise PlanError(
            f"input is {type(data).__name__}, not bytes",
            code="plan-invalid-input",
            where=name,
            hint="give the file's content",
        ) from None
