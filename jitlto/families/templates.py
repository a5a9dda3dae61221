"""Rendering: one template and one combination give one ``.cu`` source, and the headers generated for it."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitlto.base.diagnostic import Diagnostic, Location, Severity
from jitlto.base.errors import FamilyError, RenderError
from jitlto.base.text import suggest
from jitlto.base.toml_reader import find_place
from jitlto.families.declaration import FamilyDeclaration, GroupDeclaration, read_matrix
from jitlto.families.matrix import MOST_COMBINATIONS, Matrix
from jitlto.record.fragment import FragmentKey, Role, Values
from jitlto.record.headers import interfaces_first

if TYPE_CHECKING:  # Jinja takes 80 ms, and callers' side never renders
    from jitlto.families.language import Template

# Comments and blanks of C++, except single spaces, which need no change. Literals come first, which may look like them.
_TOKEN = re.compile(
    r"""(?P<kept>
        R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" |
        '(?:(?<=[0-9a-fA-F]')(?<!u8')(?=[0-9a-fA-F])|(?:\\.|[^'\\\n])*')  # the first separates the digits of a number
    )
    | (?: [ ](?=[\s/]) | [\t\n\v\f\r] | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )
      (?: \s | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )*""",
    re.S | re.X,
)


class RenderedHeaders(dict[str, bytes]):
    """The generated headers of a combination, by name. One is rendered when it is looked up, and here from then on.

    Args:
        templates: Of all headers, by name.
        combination, group: The values, and the group that has them.

    Raises:
        RenderError: From a look-up: the template is malformed or uses an undefined name.
    """

    def __init__(self, templates: Mapping[str, Template], combination: Mapping[str, str], group: str) -> None:
        super().__init__()
        self.templates, self._combination, self._group = templates, combination, group

    def __missing__(self, name: str) -> bytes:
        try:
            self[name] = text = self.templates[name].render(self._combination)[0].encode()
        except RenderError as error:
            raise _in_context(error, self._combination, self._group) from None
        return text

    def place(self, name: str, line: int) -> Location:
        """Return the place in its template of a line of a header."""
        values = {each: self._combination[each] for each in self._combination if each in self.templates[name].used}
        return self.templates[name].place(self._combination, line, f"({describe_combination(values)})")


@dataclass(frozen=True, slots=True)
class RenderedSource:
    """One source to compile, and where it came from."""

    key: FragmentKey
    group: GroupDeclaration
    combination: Mapping[str, str]  # all parameters, also those outside the key
    text: str  # the rendered template
    params: tuple[str, ...]  # the kernel's declared parameters, rendered
    headers: RenderedHeaders  # those that it may include, and are generated for it

    family: Path  # where it is declared
    matrix: Matrix
    template: Template
    interfaces: tuple[str, ...] = ()  # the family's, in order; none of what was compiled elsewhere

    @property
    def source(self) -> str:
        """Source to compile: the text behind all interfaces of the family, so that both sides of each see one text."""
        return interfaces_first(self.interfaces) + self.text

    @property
    def pairs(self) -> Values:
        """What a configuration selects it by: the parameters of its key and, of an entrypoint, ``entry``, its group."""
        entry = (("entry", self.group.name),) if self.group.role is Role.ENTRYPOINT else ()
        return (*self.key.parameters, *entry)

    @property
    def about(self) -> str:
        """Group and combination, for the end of a message."""
        return f"(group {self.group.name}, {describe_combination(self.combination)})"

    @property
    def origin(self) -> Location:
        """The template; or where a value is written, or the group, on which the path of a file depends."""
        if self.group.template:
            return Location(str(self.group.template), about=self.about)
        values = (self.matrix.find(*each) for each in self.combination.items() if each[0] in self.template.used)
        found = next((each for each in values if isinstance(each, Location)), None) if self.group.binary else None
        return replace(found or self.declared("binary" if self.group.binary else "instantiate"), about=self.about)

    def declared(self, *at: str | int) -> Location:
        """Return the place in ``family.toml`` of its group's table, or of what names and numbers lead to there."""
        return find_place(self.family, (self.group.role, self.group.name), *at)

    def place(self, line: int) -> Location:
        """Return the place in its template of a line of the text."""
        return self.template.place(self.combination, line, self.about) if self.group.template else self.origin

    def place_in(self, name: str, line: int) -> Location | None:
        """Return the place of a line of the text, or of a header that is generated for it; None of another file."""
        if name == f"{self.key}.cu":
            return self.place(line)
        return self.headers.place(name, line) if name in self.headers else None

    def find(self, word: str) -> Location:
        """Return the place of the first mention of a word in the text, or of its first line."""
        match = re.search(rf"\b{re.escape(word)}\b", self.text)
        return self.place(self.text.count("\n", 0, match.start()) + 1 if match else 1)


def describe_combination(combination: Mapping[str, str]) -> str:
    """Describe a combination in one line."""
    return ", ".join(f"{name}={value}" for name, value in combination.items()) or "the empty combination"


def render_family(
    family: FamilyDeclaration, *, on_warning: Callable[[Diagnostic], object] = lambda _: None
) -> Iterator[RenderedSource]:
    """Render every combination of every group, groups by name, combinations in matrix order.

    What is rendered of a group with a binary is the path of the file. Headers that are looked up before the next source
    is asked for are a part of the source; :func:`jitlto.build.rendered_families.render` looks up what it may include.

    Args:
        family: The declaration.
        on_warning: Gets what the naming convention has to say of the matrices.

    Raises:
        MatrixError: A matrix breaks a rule.
        RenderError: A template is malformed or uses an undefined name; it names file, line, group and combination.
        FamilyError: Two combinations of a group have one key, lack a key parameter, or have different keys and the same
            source; or nothing uses a key parameter.
    """
    from jitlto.families.language import Template  # Jinja takes 80 ms, and callers' side never renders

    idle: dict[tuple[str, str], tuple[Matrix, set[str]]] = {}  # what no group uses, by matrix
    for group in family.groups:
        if group.supplied:
            continue
        matrix = read_matrix(group)
        for warning in matrix.warnings:
            on_warning(warning)
        template = Template(group.template or family.path, group.syntax, group.params, family.templates)
        template.text, interfaces = group.text, () if group.binary else family.interfaces
        generated = {
            name: Template(path, "jinja" if path.suffix == ".jinja" else "cmake", (), family.templates)
            for name, path in family.generated
        }
        keys: dict[tuple[tuple[str, str], ...], list[FragmentKey]] = defaultdict(list)
        combinations = _list_combinations(family, group, matrix)
        for key, combination in combinations.items():
            try:
                text, params = template.render(combination)
            except RenderError as error:
                if error.place is None:
                    entry = (number for number, each in enumerate(group.params) if repr(each) in error.what)
                    error.place = family.place(group, "params", *entry)
                elif group.template is None:
                    error.place = family.place(group, "binary" if group.binary else "instantiate")
                raise _in_context(error, combination, group.name) from None
            headers = RenderedHeaders(generated, combination, group.name)
            made_of = family.path, matrix, template
            yield RenderedSource(key, group, combination, text, params, headers, *made_of, interfaces)
            contents = {"": text} | {name: headers[name].decode() for name in sorted(headers)}
            keys[tuple((name, _digest_plain(each)) for name, each in contents.items())].append(key)
        _check_sources(family, group, keys)
        names = {name for combination in combinations.values() for name in combination}
        used = names & template.used.union(*(each.used for each in generated.values()))
        _check_used(family, group, used)
        left = names.difference(used, group.key)
        place = str(group.matrix), group.name if group.document is not None else ""
        idle[place] = matrix, idle.get(place, (matrix, left))[1] & left
    for _, (matrix, names) in sorted(idle.items(), key=lambda each: each[0]):
        for name in sorted(names):
            what = f"nothing uses {name}: no template, params or key of {family.name}"
            on_warning(Diagnostic.at(matrix.find(name), what, "matrix-idle", Severity.WARNING, hint="remove it"))


def _list_combinations(
    family: FamilyDeclaration, group: GroupDeclaration, matrix: Matrix
) -> dict[FragmentKey, Mapping[str, str]]:
    """Return the combinations of a group by their keys, in matrix order."""
    if matrix.count > MOST_COMBINATIONS:
        what = f"{group.matrix} gives more than {MOST_COMBINATIONS:,} combinations"
        hint = "split the group and link the parts: N + M fragments give N x M kernels"
        where = family.place(group, "matrix")
        raise FamilyError(what, code="family-too-many-combinations", where=where, hint=hint)
    combinations: dict[FragmentKey, Mapping[str, str]] = {}
    for values in matrix.combinations():
        combination = {name: str(value) for name, value in values.items()}  # strict: strings already
        for name in group.key:
            if name not in combination:
                values_of = f"{describe_combination(combination)} of {group.matrix or 'no matrix'}"
                what = f"key has {name!r}, which {values_of} has not"
                hint = "remove it from key, or add it to every branch of the matrix"
                if near := suggest(name, combination):
                    hint = f"{near} correct key or the matrix"
                where = family.place(group, "key", group.key.index(name))
                raise FamilyError(what, code="family-missing-key-parameter", where=where, hint=hint)
        key = FragmentKey.make(family.name, group.name, {name: combination[name] for name in group.key})
        if key in combinations:
            both = "; and ".join(map(describe_combination, (combinations[key], combination)))
            what = f"two combinations of {group.matrix} have the key {key}: {both}"
            differing = {name for name, _ in combinations[key].items() ^ combination.items()}
            hint = f"add to key what tells them apart: {' or '.join(sorted(differing))}"
            where = family.place(group, "key")
            raise FamilyError(what, code="family-duplicate-key", where=where, hint=hint)
        combinations[key] = combination
    return combinations


def _check_sources(
    family: FamilyDeclaration, group: GroupDeclaration, by_content: Mapping[Any, Sequence[FragmentKey]]
) -> None:
    """Check that keys have different sources, unless they differ in ``shared`` parameters alone.

    Whoever asked for another value of a parameter on which no source depends would get the same kernel. Of headers only
    generated ones need be compared, which are among the contents by name: all sources of a group find the same others.
    """
    for content, (first, *others) in by_content.items():
        generated = "".join(f" and in {name}" for name, _ in content[1:])
        for other in others:
            differing = [n for n, value in other.parameters if (n, value) not in first.parameters]
            if undeclared := [name for name in differing if name not in group.shared]:
                names, shared = " and ".join(undeclared), json.dumps([*group.shared, *undeclared])
                what = f"{first} and {other} have the same source: nothing in it{generated} depends on {names}"
                hint = f"use {names} in {group.source}, or remove it from key and from the matrix; "
                hint += f"if the two are meant to be the same, declare it: shared = {shared}"
                where = family.place(group, "key", group.key.index(undeclared[0]))
                raise FamilyError(what, code="family-same-source", where=where, hint=hint)


def _check_used(family: FamilyDeclaration, group: GroupDeclaration, used: Collection[str]) -> None:
    """Check that each key parameter is used, or may stand for one that is, or tells fragments of groups apart."""
    left = [name for name in group.key if name not in used and name not in group.shared]
    if not (left and family.has_kernels) or not set(used).issubset(group.key):
        return  # without kernels, another family uses its groups, and may tell them apart by any parameter
    families = (family, *family.all_used().values())
    deciding = {name for each in families for other in each.groups if other is not group for name in other.key}
    if name := next((name for name in left if name not in deciding), None):
        what = f"nothing uses the key parameter {name}: {group.source} and params do without it"
        shared = json.dumps([*group.shared, name])
        hint = f"use it in the template, remove it from key and from the matrix, or declare it: shared = {shared}"
        where = family.place(group, "key", group.key.index(name))
        raise FamilyError(what, code="family-unused-key", where=where, hint=hint)


def _in_context(error: RenderError, combination: Mapping[str, str], group: str) -> RenderError:
    error.what = f"{error.what} (group {group}, {describe_combination(combination)})"
    return error


def _digest_plain(text: str) -> str:
    """Return the SHA-256 of a source without comments and blanks, equal for sources that differ in nothing else."""
    plain = _TOKEN.sub(lambda m: m[0] if m["kept"] is not None else "\n" if "\n" in m[0] else " ", text)
    return hashlib.sha256(plain.strip().encode()).hexdigest()
