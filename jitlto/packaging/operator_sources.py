"""Declarations of operators of PyTorch for an existing family, from its kernels' signatures: ``jitlto new --torch``.

They are where an author begins: every array is an argument, also those that a kernel writes to, of any shape, and the
launch is the caller's. What they say is true of the kernels.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from jitlto.base.errors import ProjectError
from jitlto.base.types import Parameter, find_scalar
from jitlto.database import FragmentDatabase
from jitlto.plan import enumeration
from jitlto.plan.enumeration import Kernel

_ADDRESS = "int64"  # the dtype of arrays of pointers
_BYTES = "uint8"  # that of arrays of what no dtype is
_DTYPES = {
    "b1": "bool", "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f2": "float16", "bfloat16": "bfloat16", "f4": "float32", "f8": "float64",
    "c8": "complex64", "c16": "complex128",
}  # fmt: skip
_LAUNCH = ("grid", "block", "shared_memory")
_Values = dict[str, dict[str, None]]  # parameter → its values, in order


@dataclass(frozen=True)
class OperatorSource:
    """An operator as Python: its name, its declaration, and an item of a dict with a call of it."""

    name: str
    declaration: str
    call: str


def make_operators(database: FragmentDatabase, family: str, namespace: str) -> list[OperatorSource]:
    """Return operators for the kernels of a family, those of an entrypoint with the same parameters together.

    Kernels that need a caller's own code, and those that take no array or write to none, are left out.

    Raises:
        ProjectError: If there is no other kernel.
    """
    record, index = database.index(family)
    groups: dict[str, list[Kernel]] = {}
    for kernel in enumeration.enumerate_kernels(index, enumeration.find_user_symbols(record, index)):
        if isinstance(kernel, Kernel) and not kernel.user_symbols and _writes(kernel):
            groups.setdefault(kernel.resolution.entry.key.group, []).append(kernel)
    if not groups:
        what, hint = (
            "no kernel can be an operator",
            "an operator's kernel writes to an array, and needs no caller's code",
        )
        raise ProjectError(what, code="project-operators", where=family, hint=hint)
    several = len({each.key.group for each in index.entrypoints}) > 1
    return [
        _make(name, group if several else "", kernels, namespace)
        for group, members in groups.items()
        for name, kernels in _name_forms(group, _split(members))
    ]


def _writes(kernel: Kernel) -> bool:
    return any(_pointed(p) and "const" not in _pointed(p).split() for p in kernel.resolution.entry.signature)


def _pointed(parameter: Parameter) -> str:
    """Return the type that a parameter points to; empty if it is no pointer."""
    text = parameter.type.strip()
    return text[:-1].strip() if text.endswith("*") else ""


def _dtype(type_name: str) -> str:
    known = find_scalar(type_name)
    return _ADDRESS if type_name.endswith("*") else _DTYPES[known.typestr] if known else _BYTES


def _typed(kernels: Sequence[Kernel]) -> dict[str, str]:
    """Return for each argument that is an array the parameter of the family that is its type in all kernels, if any."""
    found: dict[str, str] = {}
    for place, argument in enumerate(kernels[0].resolution.entry.signature):
        for name in kernels[0].configuration:
            pairs = [
                (_pointed(k.resolution.entry.signature[place]), k.configuration.get(name, ""))
                for k in kernels
                if place < len(k.resolution.entry.signature)
            ]
            if all(find_scalar(a) and find_scalar(a) is find_scalar(b) for a, b in pairs):
                found.setdefault(argument.name, name)
    return found


def _split(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Divide kernels by the parameters that they take, but for the types that a parameter of the family names."""
    typed = _typed(kernels)
    forms: dict[object, list[Kernel]] = {}
    for kernel in kernels:
        taken = []
        for parameter in kernel.resolution.entry.signature:
            pointed, known = _pointed(parameter), find_scalar(parameter.type)
            kind = known.typestr[0] if known else parameter.type
            kind = ("const" in pointed.split(), typed.get(parameter.name) or pointed) if pointed else kind  # type: ignore[assignment]
            taken.append((parameter.name, {"u": "i"}.get(kind, kind) if isinstance(kind, str) else kind))
        forms.setdefault(tuple(taken), []).append(kernel)
    return list(forms.values())


def _values(kernels: Iterable[Kernel]) -> _Values:
    found: _Values = {}
    for kernel in kernels:
        for name, value in kernel.configuration.items():
            found.setdefault(name, {})[value] = None
    return found


def _name_forms(group: str, forms: Sequence[list[Kernel]]) -> list[tuple[str, list[Kernel]]]:
    """Name forms by the group and, if it has several, by the values that tell them apart."""
    values = [_values(kernels) for kernels in forms]
    names, texts = [], [group] * len(forms)
    for name in dict.fromkeys(name for each in values for name in each):
        if len(set(texts)) == len(forms):
            break
        if all(len(each.get(name, {})) == 1 for each in values) and len({*map(tuple, (v[name] for v in values))}) > 1:
            names.append(name)
            texts = ["_".join([group, *(next(iter(each[n])) for n in names)]) for each in values]
    if len(set(texts)) < len(forms):
        texts = [f"{group}_{number}" for number in range(len(forms))]
    plain = ["_".join(re.findall(r"[A-Za-z0-9]+", text)) for text in texts]
    return list(zip(plain, forms, strict=True))


def _make(name: str, entry: str, kernels: Sequence[Kernel], namespace: str) -> OperatorSource:
    signature, typed = kernels[0].resolution.entry.signature, _typed(kernels)
    values = _values(kernels)
    chosen = _without_dependent(values, kernels, set(typed.values()))
    dtypes = {n: [_dtype(value) for value in values[n]] for n in dict.fromkeys(typed.values()) if n in chosen}
    own = {parameter.name: _usable(parameter.name, _LAUNCH) for parameter in signature}
    names = {n: _usable(n, (*_LAUNCH, *own.values())) for n in chosen}
    flags = [n for n in chosen if n not in dtypes and len(values[n]) > 1]
    required, defaulted, passed, call, example = [], [], [], [], kernels[0].configuration
    for parameter in signature:
        variable = typed.get(parameter.name, "")
        dtype = _dtype(example.get(variable, _pointed(parameter)))
        declared, value, source = _argument(parameter, own[parameter.name], names.get(variable, dtype), dtype)
        passed.append(source)
        if value:
            required.append(declared)
            call.append(value)
        else:
            defaulted.append(declared)
    required += [*(f'Flag("{names[n]}", "str")' for n in flags), 'Flag("grid", "int")']
    defaulted += ['Flag("block", "int", 256)', 'Flag("shared_memory", "int", 0)']
    call += [*(json.dumps(example[n]) for n in flags), "1"]
    configuration = [
        f'"{n}": {f"case.{names[n]}" if n in dtypes or n in flags else json.dumps(next(iter(values[n])))}'
        for n in chosen
    ]
    lines = [
        f'"{namespace}::{name}",',
        "family,",
        *_block("arguments=(", [*required, *defaulted], ")"),
        "outputs=(),",
        *_block("configuration=lambda case: {", configuration, "}"),
        "launch=lambda case: Launch(grid=case.grid, block=case.block, shared_memory=case.shared_memory),",
        *_block("parameters=(", passed, ")"),
    ]
    if dtypes:
        lines += _block("dtypes={", [f'"{names[n]}": {_tuple(several)}' for n, several in dtypes.items()], "}")
    if entry:
        lines.append(f'entry="{entry}",')
    if examples := _examples(kernels, [*dtypes, *flags]):
        lines.append("examples=(")
        for each in examples:
            items = [f'"{names[n]}": {_tuple(map(_dtype, v) if n in dtypes else v)}' for n, v in each.items()]
            lines += [f"    {line}" for line in _block("{", items, "}")]
        lines.append("),")
    body = "\n".join(f"        {line}" for line in lines)
    text = f"{name} = torch_operator(\n    Operator(\n{body}\n    )\n)\n"
    calling = "\n".join(f"    {line}" for line in _block(f'"{name}": lambda: operators.{name}(', call, ")"))
    return OperatorSource(name, text, calling)


def _usable(name: str, taken: Iterable[str]) -> str:
    """Return a name that neither Python nor an operator has another use for."""
    return f"{name}_" if name in taken or keyword.iskeyword(name) or name == "given" else name


def _argument(parameter: Parameter, name: str, variable: str, dtype: str) -> tuple[str, str, str]:
    """Return as Python: an argument, a value for it if it has no default, and what the kernel is passed."""
    pointed, known = _pointed(parameter), find_scalar(parameter.type)
    if pointed:
        mutated = "" if "const" in pointed.split() else ", mutated=True"
        array = f'Array("{name}", "{variable}", "*{name}_sizes"{mutated})'
        return array, f'torch.empty(8, dtype=torch.{dtype}, device="meta")', f'"{name}"'
    kind = {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(known.typestr[0]) if known else None
    if kind:
        return f'Scalar("{name}", "{kind}")', {"bool": "True", "int": "1", "float": "1.0"}[kind], f'"{name}"'
    # A structure: its bytes, for which a program is compiled.
    return f'Flag("{name}", "str", "{"00" * parameter.size}")', "", f"lambda case: bytes.fromhex(case.{name})"


def _without_dependent(values: _Values, kernels: Sequence[Kernel], kept: set[str]) -> list[str]:
    """Return the parameters of a configuration, without those that the value of another decides."""
    chosen = list(values)
    for name in [n for n in reversed(chosen) if n not in kept] + [n for n in reversed(chosen) if n in kept]:
        for other in chosen:
            pairs = {(kernel.configuration.get(other), kernel.configuration.get(name)) for kernel in kernels}
            if other != name and len(values[name]) > 1 and len(pairs) == len(values[other]) and name not in kept:
                chosen.remove(name)
                break
    return chosen


def _examples(kernels: Sequence[Kernel], names: Sequence[str]) -> list[dict[str, list[str]]]:
    """Return alternatives whose products are the kernels, where that of all values is more than these; else none."""
    found = {tuple(kernel.configuration[n] for n in names) for kernel in kernels}
    values = [list(dict.fromkeys(kernel.configuration[n] for kernel in kernels)) for n in names]
    if len(found) == prod(map(len, values)):
        return []
    for place in range(len(names)):
        alternatives = []
        for value in values[place]:
            own = [each for each in found if each[place] == value]
            columns = [
                [v for v in several if v in set(column)]
                for several, column in zip(values, zip(*own, strict=True), strict=True)
            ]
            if len(own) != prod(map(len, columns)):
                break
            alternatives.append(dict(zip(names, columns, strict=True)))
        else:
            return alternatives
    return [{n: [v] for n, v in zip(names, each, strict=True)} for each in sorted(found)]


def _block(begin: str, items: Sequence[str], end: str) -> list[str]:
    return [begin, *(f"    {item}," for item in items), f"{end},"] if items else [f"{begin}{end},"]


def _tuple(values: Iterable[str]) -> str:
    items = [json.dumps(value) for value in values]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
