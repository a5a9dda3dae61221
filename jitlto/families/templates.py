"""Rendering: one template and one combination give one ``.cu`` source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base.errors import FamilyError, RenderError
from jitlto.base.text import suggest
from jitlto.families.declaration import FamilyDeclaration, GroupDeclaration
from jitlto.families.matrix import MOST_COMBINATIONS, Matrix, load_matrix
from jitlto.families.rendered_texts import Batch, RenderedTexts, TemplateText
from jitlto.families.same_sources import SameSources, find_words
from jitlto.record.exclusions import is_excluded
from jitlto.record.fragment import FragmentKey, Role
from jitlto.record.headers import interfaces_first

if TYPE_CHECKING:
    from jitlto.families.language import Template

_BATCH = 500  # combinations


@dataclass(frozen=True, slots=True)
class RenderedSource:
    """One source to compile, and where it came from."""

    key: FragmentKey
    group: GroupDeclaration
    combination: Mapping[str, str]  # all parameters, also those outside the key
    text: str  # the rendered template
    params: tuple[str, ...]  # the kernel's declared parameters, rendered

    interfaces: tuple[str, ...] = ()  # the family's, in order
    undeclared: tuple[str, ...] = ()  # the other device groups, those that have no interface

    @property
    def source(self) -> str:
        """Source to compile: the text behind all interfaces of the family, so that both sides of each see one text."""
        return interfaces_first(self.interfaces) + self.text

    @property
    def origin(self) -> str:
        """Template, group and combination, for messages."""
        return f"{self.group.template} (group {self.group.name}, {describe_combination(self.combination)})"


def describe_combination(combination: Mapping[str, str]) -> str:
    """Describe a combination in one line."""
    return ", ".join(f"{name}={value}" for name, value in combination.items()) or "the empty combination"


def render_family(
    family: FamilyDeclaration,
    *,
    on_error: Callable[[RenderedSource, RenderError], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
    known: RenderedTexts | None = None,
) -> Iterator[RenderedSource]:
    """Render every combination of every group that has a template, groups by name, combinations in matrix order.

    Args:
        family: The declaration.
        on_error: Gets each combination that cannot be rendered, without a text; by default the first such error is
            raised.
        on_warning: Gets what the naming convention has to say of the matrices, and their parameters that nothing uses.
        known: What was rendered before.

    Raises:
        MatrixError: A matrix breaks a rule.
        RenderError: A template is malformed or uses an undefined name; it names file, line, group and combination.
        FamilyError: Two combinations of a group have one key, lack a key parameter, or have different keys and the same
            source; nothing uses a key parameter; or an exclusion names a value that the matrix lacks.
    """
    unused: dict[Path, set[str]] = {}
    for group in family.groups:
        if group.matrix is None or group.template is None:
            continue
        matrix = load_matrix(group.matrix)
        if on_warning is not None:
            for warning in matrix.warnings:
                on_warning(warning)
        where = f"{family.path} [{group.role}.{group.name}]"
        keys = _iterate_keys(family, group, matrix, where, on_warning or (lambda _: None))
        words = find_words(group.template)
        used = None if words is None else words.union(re.findall(r"\w+", " ".join(group.params)))
        same = SameSources(group, used, _deciding(family, group))
        for source, outcome in _render(family, group, keys, where, known):
            if isinstance(outcome, str):
                same.add(source.key, source.combination, outcome)
                yield source
            elif on_error is None:
                raise outcome
            else:
                same.has_gaps = True
                on_error(source, outcome)
        same.check(where)
        own = same.unused
        unused[group.matrix] = unused.get(group.matrix, own) & own
    if on_warning is not None:
        for path, name in sorted((path, name) for path, names in unused.items() for name in names):
            on_warning(f"{path}: nothing uses {name}: no template, params or key of {family.name}; remove it")


def _deciding(family: FamilyDeclaration, group: GroupDeclaration) -> set[str]:
    """Return the key parameters that another group has too; all, if the family lends its groups to others."""
    if not family.has_kernels:
        return set(group.key)
    families = (family, *family.all_used().values())
    return {name for each in families for other in each.groups if other is not group for name in other.key}


def _iterate_keys(
    family: FamilyDeclaration, group: GroupDeclaration, matrix: Matrix, where: str, on_warning: Callable[[str], None]
) -> Iterator[tuple[FragmentKey, Mapping[str, str]]]:
    if matrix.count > MOST_COMBINATIONS:
        what = f"{group.matrix} gives more than {MOST_COMBINATIONS:,} combinations"
        hint = "split the group and link the parts: N + M fragments give N x M kernels"
        raise FamilyError(what, code="family-too-many-combinations", where=where, hint=hint)
    combinations: dict[FragmentKey, Mapping[str, str]] = {}
    seen: set[tuple[str, str]] = set()  # values of key parameters
    for values in matrix.combinations():
        combination = {name: str(value) for name, value in values.items()}  # strict: strings already
        for name in group.key:
            if name not in combination:
                what = f"no key parameter {name!r} in {describe_combination(combination)} of {group.matrix}"
                hint = "remove it from key, or add it to every branch of the matrix"
                if near := suggest(name, combination):
                    hint = f"{near} correct key or the matrix"
                raise FamilyError(what, code="family-missing-key-parameter", where=where, hint=hint)
            value = combination[name]
            if value != value.strip() and (name, value) not in seen:
                on_warning(f"{group.matrix}: callers must ask for {name}={value!r} with the blanks at its ends")
            seen.add((name, value))
        if is_excluded(group.exclude, combination):
            continue
        key = FragmentKey.make(family.name, group.name, {name: combination[name] for name in group.key})
        if key in combinations:
            both = "; and ".join(map(describe_combination, (combinations[key], combination)))
            what = f"two combinations of {group.matrix} have the key {key}: {both}"
            differing = {name for name, _ in combinations[key].items() ^ combination.items()}
            hint = f"add to key what tells them apart: {' or '.join(sorted(differing))}"
            raise FamilyError(what, code="family-duplicate-key", where=where, hint=hint)
        combinations[key] = combination
        yield key, combination
    _check_exclusions(group, seen, where)
    if not combinations:
        what, hint = f"exclude leaves no combination of {group.matrix}", "remove the group, or some of its exclusions"
        raise FamilyError(what, code="family-exclude", where=where, hint=hint)


def _check_exclusions(group: GroupDeclaration, seen: Collection[tuple[str, str]], where: str) -> None:
    """Check that each value of an exclusion is in the matrix: otherwise it excludes nothing, or says nothing."""
    for exclusion in group.exclude:
        for name, value in exclusion:
            if (name, value) not in seen:
                known = sorted(other for parameter, other in seen if parameter == name)
                what = f"exclude names {name}={value}, which is in no combination of {group.matrix}"
                hint = suggest(value, known, f"its values are {', '.join(known)}")
                raise FamilyError(what, code="family-exclude", where=where, hint=hint)


def _render(
    family: FamilyDeclaration,
    group: GroupDeclaration,
    keys: Iterator[tuple[FragmentKey, Mapping[str, str]]],
    where: str,
    known: RenderedTexts | None,
) -> Iterator[tuple[RenderedSource, str | RenderError]]:
    """Render the combinations of a group, which is declared at ``where``.

    Each comes with the digest of its plain text, or with its error.
    """
    assert group.template is not None  # noqa: S101 - groups without one are not rendered
    given = TemplateText(group.template, group.syntax, group.params)
    families, interfaces = (family, *family.all_used().values()), family.interfaces
    devices = (each for one in families for each in one.groups if each.role is Role.DEVICE and each is not group)
    undeclared = tuple(each.name for each in devices if not each.interface)
    template: Template | None = None
    while batch := list(islice(keys, _BATCH)):
        combinations = [combination for _, combination in batch]
        found = known.find(given, combinations) if known else None
        if found is None and template is None:
            from jitlto.families.language import Template  # Jinja takes 80 ms

            template = Template(given)
        rendered = []
        for number, (key, combination) in enumerate(batch):
            try:
                if found is not None:
                    one = found.rendered[number]
                else:
                    assert template is not None  # noqa: S101 - made above
                    one = template.render(combination)
                    rendered.append(one)
            except RenderError as error:
                source = RenderedSource(key, group, combination, "", (), interfaces, undeclared)
                yield source, _in_context(error, group, combination, where)
            else:
                yield RenderedSource(key, group, combination, one.text, one.params, interfaces, undeclared), one.digest
        if known is not None and template is not None and len(rendered) == len(batch):
            known.put(given, combinations, Batch(rendered, template.read))


def _in_context(error: RenderError, group: GroupDeclaration, combination: Mapping[str, str], where: str) -> RenderError:
    described = describe_combination(combination)
    context = f"({described})" if error.where is None else f"(group {group.name}, {described})"
    return RenderError(f"{error.what} {context}", code=error.code, where=error.where or where, hint=error.hint)
