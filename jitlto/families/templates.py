"""Rendering: one template and one combination give one ``.cu`` source, and the headers generated for it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitlto.base.errors import FamilyError, RenderError
from jitlto.base.text import suggest
from jitlto.families import plain_text
from jitlto.families.declaration import FamilyDeclaration, GroupDeclaration, read_matrix
from jitlto.families.matrix import MOST_COMBINATIONS, Matrix
from jitlto.record.fragment import FragmentKey, Role, Values
from jitlto.record.headers import interfaces_first

if TYPE_CHECKING:  # Jinja takes 80 ms, and callers' side never renders
    from jitlto.families.language import Template


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
            if error.code == "render-undefined":
                error.hint = f"{error.hint}; what an interface includes is rendered for every entrypoint and group"
            raise _in_context(error, self._combination, self._group) from None
        return text

    def locate(self, text: str) -> str:
        """Return a text in which places in these headers, ``name:1`` or ``name(1)``, are those in their templates."""
        place = rf"(?<![\w./-])({'|'.join(map(re.escape, self)) or '(?!)'})(?::(\d+)|\((\d+)\))"
        return re.sub(place, lambda m: self.templates[m[1]].locate(self._combination, int(m[2] or m[3])), text)


@dataclass(frozen=True, slots=True)
class RenderedSource:
    """One source to compile, and where it came from."""

    key: FragmentKey
    group: GroupDeclaration
    combination: Mapping[str, str]  # all parameters, also those outside the key
    text: str  # the rendered template
    params: tuple[str, ...]  # the kernel's declared parameters, rendered
    headers: RenderedHeaders  # those that it may include, and are generated for it

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
    def origin(self) -> str:
        """Template, group and combination, for messages."""
        return f"{self.group.source} (group {self.group.name}, {describe_combination(self.combination)})"


def describe_combination(combination: Mapping[str, str]) -> str:
    """Describe a combination in one line."""
    return ", ".join(f"{name}={value}" for name, value in combination.items()) or "the empty combination"


def render_family(
    family: FamilyDeclaration, *, on_warning: Callable[[str], object] = lambda _: None
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

    idle: dict[str, set[str]] = {}  # what no group uses, by matrix
    for group in family.groups:
        if group.supplied:
            continue
        matrix = read_matrix(group)
        for warning in matrix.warnings:
            on_warning(warning)
        where = f"{family.path} [{group.role}.{group.name}]"
        template = Template(group.template or family.path, group.syntax, group.params, family.templates)
        template.text, interfaces = group.text, () if group.binary else family.interfaces
        generated = {
            name: Template(path, "jinja" if path.suffix == ".jinja" else "cmake", (), family.templates)
            for name, path in family.generated
        }
        keys: dict[tuple[tuple[str, str], ...], list[FragmentKey]] = defaultdict(list)
        combinations = _list_combinations(family, group, matrix, where)
        for key, combination in combinations.items():
            try:
                text, params = template.render(combination)
            except RenderError as error:
                raise _in_context(error, combination, group.name, where) from None
            headers = RenderedHeaders(generated, combination, group.name)
            yield RenderedSource(key, group, combination, text, params, headers, interfaces)
            contents = {"": text} | {name: headers[name].decode() for name in sorted(headers)}
            keys[tuple((name, plain_text.digest(each)) for name, each in contents.items())].append(key)
        _check_sources(group, keys, where)
        names = {name for combination in combinations.values() for name in combination}
        used = names & template.used.union(*(each.used for each in generated.values()))
        _check_used(family, group, used, where)
        left = names.difference(used, group.key)
        place = where if group.document is not None else str(group.matrix)
        idle[place] = idle.get(place, left) & left
    for place, name in sorted((place, name) for place, names in idle.items() for name in names):
        on_warning(f"{place}: nothing uses {name}: no template, params or key of {family.name}; remove it")


def _list_combinations(
    family: FamilyDeclaration, group: GroupDeclaration, matrix: Matrix, where: str
) -> dict[FragmentKey, Mapping[str, str]]:
    """Return the combinations of a group by their keys, in matrix order."""
    if matrix.count > MOST_COMBINATIONS:
        what = f"{group.matrix} gives more than {MOST_COMBINATIONS:,} combinations"
        hint = "split the group and link the parts: N + M fragments give N x M kernels"
        raise FamilyError(what, code="family-too-many-combinations", where=where, hint=hint)
    combinations: dict[FragmentKey, Mapping[str, str]] = {}
    for values in matrix.combinations():
        combination = {name: str(value) for name, value in values.items()}  # strict: strings already
        for name in group.key:
            if name not in combination:
                what = (
                    f"no key parameter {name!r} in {describe_combination(combination)} of {group.matrix or 'no matrix'}"
                )
                hint = "remove it from key, or add it to every branch of the matrix"
                if near := suggest(name, combination):
                    hint = f"{near} correct key or the matrix"
                raise FamilyError(what, code="family-missing-key-parameter", where=where, hint=hint)
        key = FragmentKey.make(family.name, group.name, {name: combination[name] for name in group.key})
        if key in combinations:
            both = "; and ".join(map(describe_combination, (combinations[key], combination)))
            what = f"two combinations of {group.matrix} have the key {key}: {both}"
            differing = {name for name, _ in combinations[key].items() ^ combination.items()}
            hint = f"add to key what tells them apart: {' or '.join(sorted(differing))}"
            raise FamilyError(what, code="family-duplicate-key", where=where, hint=hint)
        combinations[key] = combination
    return combinations


def _check_sources(group: GroupDeclaration, by_content: Mapping[Any, Sequence[FragmentKey]], where: str) -> None:
    """Check that keys have different sources, unless they differ in ``shared`` parameters alone.

    Whoever asked for another value of a parameter on which no source depends would get the same kernel. Of headers only
    generated ones need be compared: all sources of a group find the same others.

    Args:
        group: The group.
        by_content: The keys by their source and, by name, the generated headers that it may include.
        where: The group's table.
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
                raise FamilyError(what, code="family-same-source", where=where, hint=hint)


def _check_used(family: FamilyDeclaration, group: GroupDeclaration, used: Collection[str], where: str) -> None:
    """Check that each key parameter is used, or may stand for one that is, or tells fragments of groups apart.

    Args:
        family: The group's family.
        group: The group.
        used: The parameters that its template and ``params`` look up.
        where: Its table.
    """
    left = [name for name in group.key if name not in used and name not in group.shared]
    if not (left and family.has_kernels) or not set(used).issubset(group.key):
        return  # without kernels, another family uses its groups, and may tell them apart by any parameter
    families = (family, *family.all_used().values())
    deciding = {name for each in families for other in each.groups if other is not group for name in other.key}
    if name := next((name for name in left if name not in deciding), None):
        what = f"nothing uses the key parameter {name}: {group.source} and params do without it"
        shared = json.dumps([*group.shared, name])
        hint = f"use it in the template, remove it from key and from the matrix, or declare it: shared = {shared}"
        raise FamilyError(what, code="family-unused-key", where=where, hint=hint)


def _in_context(error: RenderError, combination: Mapping[str, str], group: str, where: str = "") -> RenderError:
    described = describe_combination(combination)
    context = f"({described})" if error.where is None else f"(group {group}, {described})"
    return RenderError(f"{error.what} {context}", code=error.code, where=error.where or where, hint=error.hint)
