"""Pairs of sides of an interface which differ in one thing, each with a right twin in which they agree.

A *slip* is how two sides come to read a subject in two ways: by a copy of a declaration, an include guard, a macro, an
option. Subjects, slips, where a side does it, and which side that is combine.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tests.support.interface_subjects import PADDED, SIZES, SUBJECTS, TYPES, Subject

KINDS = ("type", "order", "enumerator", "alias", "macro", "guard", "pragma", "specialisation", "option")
_KERNEL, _DEVICE = "kernel", "device"


@dataclass(frozen=True)
class Family:
    """A family of one kernel and one device function: a group, or the caller's own source."""

    kernel: str
    device: str
    headers: Mapping[str, str]  # f.cuh is the interface of the device function; a.cuh, if there is one, another's
    is_callers: bool = False
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by side, or for the family
    archs: Mapping[str, str] = field(default_factory=dict)  # the same
    values: Mapping[str, str] = field(default_factory=dict)  # of the parameter that each side's template has

    @property
    def target(self) -> str:
        """The architecture to link for."""
        return "sm_90a" if "90a" in self.archs.values() else "sm_90"

    def files(self, name: str) -> dict[str, str]:
        """Return the files of the family; a caller's source is none of them."""
        lines = ["[family]", f'name = "{name}"', *self._settings("family")]
        if "a.cuh" in self.headers:
            lines += ["[device.another]", "supplied = true", 'interface = "a.cuh"']
        lines += [
            "[device.f]",
            'interface = "f.cuh"',
            *(["supplied = true"] if self.is_callers else self._group(_DEVICE)),
        ]
        lines += ["[entrypoint.kern]", *self._group(_KERNEL), ""]
        matrices = {f"{side}.json": json.dumps(self._matrix(side)) for side in (_KERNEL, _DEVICE)}
        templates = {"kernel.jinja": self.kernel} | ({} if self.is_callers else {"device.jinja": self.device})
        return {**self.headers, **matrices, **templates, "family.toml": "\n".join(lines)}

    def _group(self, side: str) -> list[str]:
        key = [f"key = {json.dumps(list(self._matrix(side)))}"]
        return [f'template = "{side}.jinja"', f'matrix = "{side}.json"', *key, *self._settings(side)]

    def _matrix(self, side: str) -> dict[str, str]:
        return {f"{side}_value": self.values[side]} if side in self.values else {}

    def _settings(self, which: str) -> list[str]:
        options = [f"options = {json.dumps(self.options[which])}"] if which in self.options else []
        return options + ([f'archs = ["{self.archs[which]}"]'] if which in self.archs else [])


class Pair(NamedTuple):
    """Two families which differ in one thing."""

    kind: str
    name: str  # no other pair has it
    wrong: Family  # its sides do not mean the same
    twin: Family  # the same, and they do
    right: float  # what sides store that do


@dataclass(frozen=True)
class _Case:
    """A subject, two readings of it, and who slips: that side then takes the second."""

    subject: Subject
    readings: tuple[str, str]
    side: str
    is_callers: bool  # the device function

    @property
    def other(self) -> str:
        return _DEVICE if self.side == _KERNEL else _KERNEL

    def interface(self, number: int) -> str:
        return self.subject.interface(self.readings[number])

    def wrong(self, interface: str, brought: Mapping[str, str], where: str, **more: Any) -> Family:
        """Return a family whose sides do not agree, see :meth:`_family`."""
        return self._family(interface, brought, where, **{"words": self.readings, **more})

    def twin(self, interface: str, brought: str, where: str, **more: Any) -> Family:
        """Return one whose sides do, where the side that slips brings along something of its own."""
        return self._family(interface, {self.side: brought}, where, **{"words": (self.readings[1],) * 2, **more})

    def _family(
        self,
        interface: str,
        brought: Mapping[str, str],
        where: str,
        *,
        words: Sequence[str],
        behind: bool = False,
        alone: bool = False,
        headers: Mapping[str, str] = {},
        **settings: Mapping[str, Any],
    ) -> Family:
        """Return a family.

        Args:
            interface: The text of ``f.cuh``.
            brought: What each side brings along.
            where: ``source``, ``header``, ``deep``, ``another`` (interface), ``option`` or ``template``.
            words: What stands for @ in the code of the other side and of the one that slips.
            behind: What is brought along is behind the interface.
            alone: The side that slips does not include the interface.
            headers, settings: Further headers; options and archs.
        """
        headers = {"f.cuh": f"#pragma once\n{interface}", **headers}
        options, values, sources = dict(settings.get("options", {})), {}, {}
        for side, code in ((_KERNEL, self.subject.kernel), (_DEVICE, self.subject.device)):
            text = brought.get(side, "")
            define = re.match(r"#define (\w+) ?(.*)\n", text)
            if where == "option" and define:
                options[side], text = [f"-D{define[1]}={define[2]}"], text[define.end() :]
            elif where == "template" and define:
                values[side], text = define[2], f"#define {define[1]} {{{{{side}_value}}}}\n{text[define.end() :]}"
            elif where in ("header", "deep", "another") and text:
                name = "a.cuh" if where == "another" else f"{side}.cuh"
                headers |= {name: f"#pragma once\n{text}"}
                if where == "deep":
                    headers |= {name: f'#pragma once\n#include "own/{name}"\n', f"own/{name}": text}
                text = f'#include "{name}"\n'
            include = "" if alone and side == self.side else '#include "f.cuh"\n'
            body = f"__global__ void kern(float* o) {{ {code} }}" if side == _KERNEL else code
            source = f"{include}{text}{body}\n" if behind else f"{text}{include}{body}\n"
            sources[side] = source.replace("@", words[side == self.side])
        archs = settings.get("archs", {})
        return Family(sources[_KERNEL], sources[_DEVICE], headers, self.is_callers, options, archs, values)


class _Slip(NamedTuple):
    kind: str  # empty for that of the subject
    name: str
    where: str
    fits: Callable[[Subject], bool]
    make: Callable[[_Case], tuple[Family, Family]]  # the wrong one and its twin


_MINE = "struct mine { char c; int x; };\n"  # what a side may well bring along


def _guarded(guard: str, text: str) -> str:
    return f"#ifndef {guard}\n#define {guard}\n{text}\n#endif\n"


def _any(_subject: Subject) -> bool:
    return True


def _differs_in_types(subject: Subject) -> bool:
    return "@" in subject.types and "@" not in subject.declares


def _has_types(subject: Subject) -> bool:
    return set(subject.readings) <= set(TYPES)


def _copy(where: str) -> _Slip:
    """One side has a copy of the declarations."""

    def make(case: _Case) -> tuple[Family, Family]:
        wrong = case.wrong(case.interface(0), {case.side: case.interface(1)}, where, alone=True)
        return wrong, case.twin(case.interface(1), _MINE, where, alone=True)

    return _Slip("", f"copy in {where}", where, _any, make)


def _definition(where: str, behind: bool) -> _Slip:
    """The interface only declares a type, which each side defines."""

    def make(case: _Case) -> tuple[Family, Family]:
        types = (case.subject.types.replace("@", reading) + "\n" for reading in case.readings)
        brought = dict(zip((case.other, case.side), types, strict=True))
        wrong = case.wrong(f"{case.subject.forward}\n{case.subject.declares}\n", brought, where, behind=behind)
        return wrong, case.twin(case.interface(1), _MINE, where, behind=behind)

    def fits(subject: Subject) -> bool:
        return bool(subject.forward) and _differs_in_types(subject)

    return _Slip("", f"definition in {where}{' behind' * behind}", where, fits, make)


def _hidden(where: str) -> _Slip:
    """A side defines the guard of the interface."""

    def make(case: _Case) -> tuple[Family, Family]:
        first, second = ({"f.cuh": _guarded("F_CUH", case.interface(number))} for number in (0, 1))
        wrong = case.wrong("", {case.side: f"#define F_CUH\n{case.interface(1)}"}, where, headers=first)
        return wrong, case.twin("", f"#define MINE_CUH\n{_MINE}", where, headers=second)

    return _Slip("option" if where == "option" else "guard", f"guard in {where}", where, _any, make)


def _common_guard(where: str) -> _Slip:
    """A side defines the types of the interface behind the guard of the header that the interface has them from."""

    def make(case: _Case) -> tuple[Family, Family]:
        first, second = (_guarded("T_CUH", case.subject.types.replace("@", each)) for each in case.readings)
        interface = f'#include "t.cuh"\n{case.subject.declares}\n'
        wrong = case.wrong(interface, {case.side: second}, where, headers={"t.cuh": first})
        return wrong, case.twin(interface, _guarded("MINE_CUH", _MINE), where, headers={"t.cuh": second})

    return _Slip("guard", f"guard of types in {where}", where, _differs_in_types, make)


_CONDITIONS = {
    "ifdef": ("WIDE 1", "#ifdef WIDE"),
    "if": ("WIDE 1", "#if WIDE"),
    "comparison": ("WIDE 2", "#if defined(WIDE) && WIDE > 1"),
    "default": ("WIDE 2", "#ifndef WIDE\n#define WIDE 1\n#endif\n#if WIDE == 2"),
    "macro of a macro": ("WIDE 1", "#ifdef WIDE\n#define MODE 2\n#else\n#define MODE 1\n#endif\n#if MODE == 2"),
}


def _condition(form: str, where: str) -> _Slip:
    """What the interface declares depends on a macro that one side defines."""
    define, condition = _CONDITIONS[form]

    def make(case: _Case) -> tuple[Family, Family]:
        interface = f"{condition}\n{case.interface(1)}#else\n{case.interface(0)}#endif\n"
        wrong = case.wrong(interface, {case.side: f"#define {define}\n"}, where)
        return wrong, case.twin(f"#define {define}\n{interface}", f"#define MINE {define[-1]}\n", where)

    return _Slip("option" if where == "option" else "macro", f"{form} in {where}", where, _any, make)


def _value(form: str, where: str) -> _Slip:
    """What the interface declares has a macro in it that a side defines."""
    behind = form == "redefined"

    def make(case: _Case) -> tuple[Family, Family]:
        default, define = (f"#define SLOT {reading}\n" for reading in case.readings)
        interface, words = case.subject.interface("SLOT"), ("SLOT", "SLOT")
        brought = {case.side: f"#undef SLOT\n{define}" if behind else define}
        if form == "own":
            wrong, brought = interface, {**brought, case.other: default}
        else:
            wrong = f"#ifndef SLOT\n{default}#endif\n{interface}"
        mine, headers = f"#define MINE {case.readings[1]}\n", {"config.cuh": define}
        twin = case.twin(
            f'#include "config.cuh"\n{interface}', mine, where, words=words, behind=behind, headers=headers
        )
        return case.wrong(wrong, brought, where, words=words, behind=behind), twin

    def fits(subject: Subject) -> bool:
        return where != "template" or all(one.isalnum() for each in subject.readings for one in each)

    return _Slip("option" if where == "option" else "macro", f"{form} value in {where}", where, fits, make)


_ALIASES = {
    "using": "using real = @;",
    "typedef": "typedef @ real;",
    "namespace": "namespace kinds { using real = @; }\nusing kinds::real;",
    "template": "template <class T> struct kind { using type = @; };\nusing real = kind<int>::type;",
}


def _alias(form: str, where: str, guard: str) -> _Slip:
    """What the interface declares has an alias in it that a side defines."""

    def make(case: _Case) -> tuple[Family, Family]:
        first, second = (f"{_ALIASES[form].replace('@', reading)}\n" for reading in case.readings)
        interface, words = case.subject.interface("real"), ("real", "real")
        included = f'#include "t.cuh"\n{interface}'
        if guard:  # which the interface, or a header of it, has around the alias
            text = included if guard == "header" else _guarded("REAL", first) + interface
            brought = {case.side: _guarded("REAL", second)}
            wrong = case.wrong(text, brought, where, words=words, headers={"t.cuh": _guarded("REAL", first)})
        else:
            wrong = case.wrong(interface, {case.side: second, case.other: first}, where, words=words)
        mine = f"using mine = {case.readings[1]};\n"
        return wrong, case.twin(included, mine, where, words=words, headers={"t.cuh": f"#pragma once\n{second}"})

    return _Slip("alias", f"{form} in {where}{f', guard of {guard}' * bool(guard)}", where, _has_types, make)


_TRAIT = "template <class T> struct trait { using type = @; };"
# The general template, its specialisation, and what stands for @, also where a template depends on it.
_SPECIAL = {
    "trait": (_TRAIT, "template <> struct trait<int> { using type = @; };", "trait<int>::type"),
    "partial trait": (_TRAIT, "template <class T> struct trait<T*> { using type = @; };", "trait<int*>::type"),
    "trait through a macro": (_TRAIT, "#define FOR(T) template <> struct trait<T> { using type = @; }\nFOR(int);",
                              "trait<int>::type"),
    "trait by another name": (_TRAIT, "#define NAME trait\ntemplate <> struct NAME<int> { using type = @; };",
                              "trait<int>::type"),
    "member of a template": ("template <class T> struct trait { struct in { using type = @; }; };",
                             "template <> struct trait<int>::in { using type = @; };", "trait<int>::in::type"),
    "overload": ("template <class T> struct tag { };\ntemplate <class T> __device__ @ pick(const T&);",
                 "template <class T> __device__ @ pick(const tag<T>&);", "decltype(pick(tag<int>()))"),
    "number": ("template <class T> struct trait { static constexpr int n = @; };",
               "template <> struct trait<int> { static constexpr int n = @; };", "trait<int>::n"),
    "variable": ("template <class T> constexpr int count = @;", "template <> constexpr int count<int> = @;",
                 "count<int>"),
    "function": ("template <class T> __host__ __device__ constexpr int count() { return @; }",
                 "template <> __host__ __device__ constexpr int count<int>() { return @; }", "count<int>()"),
}  # fmt: skip
_STRUCTURE, _LAZY, _INSTANCE = "struct S {", "template <class T> struct S_ {", "using S = S_<int>;"


def _is_structure(subject: Subject) -> bool:
    return re.match(r"[^@]*\nstruct S", subject.types) is not None


def _special(form: str, where: str, behind: bool) -> _Slip:
    """A side specialises a template on which the types of the interface depend; behind it, if they are templates."""
    general, special, word = _SPECIAL[form]
    is_type = "type" in word or "decltype" in word
    lazy = ("typename " if "::type" in word else "") + word.replace("int", "T")

    def make(case: _Case) -> tuple[Family, Family]:
        types = case.subject.types.replace("@", lazy if behind else word)
        types = f"{types.replace(_STRUCTURE, _LAZY)}\n{_INSTANCE}" if behind else types
        interface = f'#include "trait.cuh"\n{types}\n{case.subject.declares.replace("@", word)}\n'
        first, second = general.replace("@", case.readings[0]), special.replace("@", case.readings[1])
        more = {"words": (word, word), "behind": behind}
        headers = {"trait.cuh": f"#pragma once\n{first}\n"}
        wrong = case.wrong(interface, {case.side: f'#include "trait.cuh"\n{second}\n'}, where, headers=headers, **more)
        headers = {"trait.cuh": f"#pragma once\n{first}\n{second}\n"}
        return wrong, case.twin(interface, _MINE, where, headers=headers, **more)

    def fits(subject: Subject) -> bool:
        return (_is_structure(subject) or not behind) and (
            _has_types(subject) if is_type else subject.readings == SIZES
        )

    return _Slip("specialisation", f"{form} in {where}{' behind' * behind}", where, fits, make)


def _special_structure(where: str) -> _Slip:
    """A side specialises a template of the interface as a whole."""

    def make(case: _Case) -> tuple[Family, Family]:
        before, _, members = case.subject.types.partition(_STRUCTURE)
        general, special = (members.replace("@", reading) + "\n" for reading in case.readings)
        head, special = f"{before}\n{_LAZY}{general}", f"template <> struct S_<int> {{{special}"
        tail = f"{_INSTANCE}\n{case.subject.declares}\n"
        wrong = case.wrong(f"{head}{tail}", {case.side: special}, where, behind=True)
        return wrong, case.twin(f"{head}{special}{tail}", _MINE, where, behind=True)

    return _Slip("specialisation", f"structure in {where}", where, _is_structure, make)


_PACKS = ("#pragma pack(1)", "#pragma pack(push, 2)", '_Pragma("pack(1)")', "#pragma pack(push)\n#pragma pack(1)")


def _pack(number: int, where: str) -> _Slip:
    """A side, or another interface, leaves a pragma open."""

    def make(case: _Case) -> tuple[Family, Family]:
        types, declares = case.subject.types, case.subject.declares
        packed = f"#pragma pack(push, 2)\n{types}\n#pragma pack(pop)\n{declares}\n"
        mine = f"#pragma pack(push, 1)\n{_MINE}#pragma pack(pop)\n"
        wrong = case.wrong(f"{types}\n{declares}\n", {case.side: f"{_PACKS[number]}\n"}, where)
        return wrong, case.twin(packed, mine, where)

    return _Slip("pragma", f"pack {number} in {where}", where, PADDED.__contains__, make)


_SETTINGS = {
    "archs": ("archs", "90", "#if __CUDA_ARCH__ >= 900"),
    "archs through a macro": ("archs", "90", "#define NEW (__CUDA_ARCH__ > 750)\n#if NEW"),
    "archs of one device": ("archs", "90a", "#ifdef __CUDA_ARCH_FEAT_SM90_ALL"),
    "least archs": ("archs", "90", "#if __CUDA_MINIMUM_ARCH__ >= 900"),
    "option with a macro": ("options", ["--minimal"], "#ifdef __CUDACC_RTC_MINIMAL__"),
    "option with a type": ("options", ["--device-int128"], "#ifdef __CUDACC_RTC_INT128__"),
}
_IS_NEW = "(__CUDA_ARCH__ >= 900 ? @1 : @0)"
_FUNCTION = "constexpr __device__ int width() {{ {} }}".format
_LINES = "\n#if __CUDA_ARCH__ >= 900\nreturn @1;\n#else\nreturn @0;\n#endif\n"
_TARGET = "NV_IF_TARGET(NV_PROVIDES_SM_90, (return @1;), (return @0;))"
# What has one value for new architectures and another for old ones.
_CHOICES = {
    "expression": ("", _IS_NEW),
    "braces": (f"constexpr int width{{{_IS_NEW}}};", "width"),
    "function": (_FUNCTION(f"return {_IS_NEW};"), "width()"),
    "lines of a function": (_FUNCTION(_LINES), "width()"),
    "macro of the toolkit": (f"#include <nv/target>\n{_FUNCTION(_TARGET)}", "width()"),
}


def _setting(name: str) -> _Slip:
    """A group is compiled in another way, and what the interface declares depends on it."""
    setting, value, condition = _SETTINGS[name]

    def make(case: _Case) -> tuple[Family, Family]:
        interface = f"{condition}\n{case.interface(1)}#else\n{case.interface(0)}#endif\n"
        one, all_ = ({setting: {who: value}} for who in (case.side, "family"))
        return case.wrong(interface, {}, "option", **one), case.twin(interface, "", "option", **all_)

    return _Slip("option", name, "option", _any, make)


def _choice(form: str) -> _Slip:
    """A group is compiled for another architecture, and an expression of the interface depends on it."""
    before, value = _CHOICES[form]

    def make(case: _Case) -> tuple[Family, Family]:
        interface = f"{before}\n{case.subject.interface(value)}"
        for number, reading in enumerate(case.readings):
            interface = interface.replace(f"@{number}", reading)
        one, all_ = ({"archs": {who: "90"}} for who in (case.side, "family"))
        return case.wrong(interface, {}, "option", **one), case.twin(interface, "", "option", **all_)

    return _Slip("option", f"archs in {form}", "option", lambda subject: subject.readings == SIZES, make)


_SOURCES = ("source", "header", "deep")
_PLACES = (*_SOURCES, "another")
_SLIPS = (
    *map(_copy, _PLACES),
    *(_definition(where, behind) for where in _SOURCES for behind in (False, True)),
    *map(_hidden, (*_PLACES, "option")),
    *map(_common_guard, _PLACES),
    *(_condition(form, where) for form in _CONDITIONS for where in (*_PLACES, "template", "option")),
    *(_value(form, where) for form in ("own", "default") for where in (*_PLACES, "template", "option")),
    *(_value("redefined", where) for where in _SOURCES),
    *(_alias(form, where, guard) for form in _ALIASES for where in _PLACES for guard in ("", "it", "header")),
    *(_special(form, where, behind) for form in _SPECIAL for where in _SOURCES for behind in (False, True)),
    *map(_special_structure, _SOURCES),
    *(_pack(number, where) for number in range(len(_PACKS)) for where in _PLACES),
    *map(_setting, _SETTINGS),
    *map(_choice, _CHOICES),
)


def draw_pairs(seed: int) -> Iterator[Pair]:
    """Yield different pairs without end, of each kind in turn."""
    draw, drawn = random.Random(seed), set[str]()  # noqa: S311 - the same pairs in every run
    slips = {kind: [slip for slip in _SLIPS if slip.kind == kind] or _SLIPS[: len(_PLACES) + 6] for kind in KINDS}
    while True:
        for kind in KINDS:
            while (pair := _draw(draw, draw.choice(slips[kind]), kind)) is None or pair.name in drawn:
                pass
            drawn.add(pair.name)
            yield pair


def _draw(draw: random.Random, slip: _Slip, kind: str) -> Pair | None:
    subject = draw.choice(PADDED if kind == "pragma" else SUBJECTS)
    side, is_callers = draw.choice((_KERNEL, _DEVICE)), draw.random() < 0.3
    if not slip.fits(subject) or (slip.kind == "" and subject.kind != kind):
        return None
    if is_callers and side == _DEVICE and slip.where not in ("source", "another"):
        return None  # a caller has neither a header nor an option of its own
    case = _Case(subject, draw.choice(subject.readings), side, is_callers)
    p, q = draw.choice((3, 5, 7)), draw.choice((11, 13, 17, 19))
    wrong, twin = (_numbered(family, {"P": str(p), "Q": str(q)}) for family in slip.make(case))
    who = "caller" if is_callers and side == _DEVICE else f"{side} of a caller" if is_callers else side
    name = f"{kind}: {subject.name}, {' or '.join(filter(None, case.readings))}: {slip.name} of the {who}"
    return Pair(kind, name, wrong, twin, float(p * q))


def _numbered(family: Family, numbers: Mapping[str, str]) -> Family:
    def put(text: str) -> str:
        return re.sub(r"\b[PQ]\b", lambda match: numbers[match[0]], text)

    headers = {name: put(text) for name, text in family.headers.items()}
    return replace(family, kernel=put(family.kernel), device=put(family.device), headers=headers)
