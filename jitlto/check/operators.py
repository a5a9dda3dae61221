"""The check of a package's operators: every dtype and every flag chooses a kernel that takes the call and links."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec

from jitlto.base.diagnostic import Diagnostic
from jitlto.base.errors import JitltoError, OperatorError
from jitlto.base.versions import Architecture
from jitlto.build.causes import Found, found_in, group_causes
from jitlto.frameworks.declaration import Operator, declared
from jitlto.frameworks.fit import check_call
from jitlto.frameworks.parts import Array
from jitlto.frameworks.shapes import shape_of
from jitlto.link.parallel import run_parallel
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily

_SIZE = 64  # of a dimension of which no example is given


class OperatorCheck(msgspec.Struct, frozen=True):
    """An operator as checked: the number of calls, and of kernels that they choose, and what these are linked for."""

    operator: str
    calls: int
    kernels: int
    archs: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def holds(self) -> bool:
        """Whether every call is right."""
        return not self.diagnostics


def find_operators(name: str) -> list[Operator]:
    """Import a package with all of its modules, or a module, and return the operators that it declares, by name.

    Raises:
        OperatorError: If something cannot be imported, or declares no operator.
        JitltoError: That an import raises.
    """
    before = set(declared)
    module = _import(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}.", lambda _: None):
        if not found.name.endswith(".__main__"):
            _import(found.name)
    operators = sorted(set(declared) - before, key=lambda operator: operator.qualname)
    if not operators:
        what, hint = "declares no operator", "name the module whose import declares them"
        raise OperatorError(what, code="operator-import", where=name, hint=hint)
    return operators


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except JitltoError:
        raise  # a declaration that contradicts itself, or PyTorch that is not installed
    except Exception as error:  # what a module does on import is its own affair
        hint = "give the name that Python imports, and install the package and what it imports: pip install -e ."
        if not isinstance(error, ImportError) and all(map(str.isidentifier, name.split("."))):
            hint = f"correct the module; this shows where it fails: python -c 'import {name}'"
        what = f"cannot be imported: {type(error).__name__}: {error}"
        raise OperatorError(what, code="operator-import", where=name or repr(name), hint=hint) from error


def check_operators(
    target: str, archs: Sequence[Architecture] = (), *, workers: int | None = None
) -> tuple[OperatorCheck, ...]:
    """Check the operators of a package: that calls of every dtype and flag plan, fit the kernel's signature, and link.

    They link for these architectures; by default, for the lowest that a kernel's fragments run on.

    Raises:
        OperatorError: As :func:`find_operators`; or if the values of a flag are not known.
    """
    return tuple(_check(operator, archs, workers) for operator in find_operators(target))


def _check(operator: Operator, archs: Sequence[Architecture], workers: int | None) -> OperatorCheck:
    calls, failures, plans = 0, list[Found](), dict[Plan, None]()
    if not isinstance(operator.loaded, KernelFamily):
        what, hint = "its family is no family of a database", "name the family, or return what jitlto.load does"
        raise operator.error(what, hint, "import")
    for call in (call for examples in operator.examples for call in _calls(operator, examples)):
        calls += 1
        try:
            if plan := check_call(operator, _arguments(operator, call)):
                plans[plan] = None
        except Exception as raised:  # noqa: BLE001 - the functions of a declaration may raise anything
            what = f"a function of the declaration fails: {type(raised).__name__}: {raised}"
            hint = "correct it; name the flags and sizes that it takes in examples"
            error = raised if isinstance(raised, JitltoError) else operator.error(what, hint)
            shown = {name: str(value) for name, value in call.items()}
            failures.append(found_in(error, operator.qualname, shown))

    def lowest(plan: Plan) -> Architecture:
        return max(min(image.architecture for image in fragment.images) for fragment in plan.fragments)

    jobs = [plan.for_arch(arch) for plan in plans for arch in archs or [lowest(plan)]]
    for _, plan, result in run_parallel(lambda plan: plan.link(), jobs, workers):
        if isinstance(result, JitltoError):
            failures.append(found_in(result, operator.qualname, plan.configuration, plan.target.sm))
    targets = tuple(target.sm for target in sorted({job.target for job in jobs}))
    return OperatorCheck(operator.qualname, calls, len(plans), targets, group_causes(failures))


def _calls(operator: Operator, examples: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield values of all that tells calls of an operator apart: dtypes, optional arrays, flags and sizes.

    Raises:
        OperatorError: If the values of a flag are not known.
    """
    used = {array.dtype for array in operator.arrays}
    values: dict[str, Sequence[Any]] = {
        name: several for name, several in (operator.dtypes or {}).items() if name in used
    }
    values |= {array.name: (True, False) for array in operator.arrays if array.optional}
    values |= {flag.name: (False, True) for flag in operator.flags if flag.type == "bool"}
    values |= {size.removeprefix("*"): ((_SIZE,),) if size[0] == "*" else (_SIZE,) for size in operator.sizes}
    values |= examples
    for flag in operator.flags:
        if flag.name not in values:
            what = f"the values of the flag {flag.name} are not known"
            hint = f'name them in the declaration: examples=[{{"{flag.name}": (...,)}}]'
            raise operator.error(what, hint, "argument")
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _arguments(operator: Operator, call: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call as :meth:`Operator.bind` takes them."""
    values: list[Any] = []
    for argument in operator.arguments:
        if isinstance(argument, Array):
            shape = shape_of(operator.patterns[argument.name], SimpleNamespace(**call))
            given = not argument.optional or call[argument.name]
            values.append((shape, call.get(argument.dtype, argument.dtype)) if given else None)
        else:
            values.append(call.get(argument.name))  # of a scalar none
    return values
