"""The whole build: from families to a fragment database."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jitlto import database, toolkit
from jitlto.build import soundness
from jitlto.build.assemble import assemble
from jitlto.build.compiler import compile_all, default_jobs
from jitlto.build.render import Rendered, matrix_warnings, render_family
from jitlto.database import FamilyRecord, GroupRecord
from jitlto.errors import BuildError, FamilyError
from jitlto.family import Family
from jitlto.fragment import Fragment
from jitlto.headers import HeaderSearch

_CLOCK = re.compile(rb"\b__(?:DATE|TIME|TIMESTAMP)__\b")


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did.

    Parameters
    ----------
    path : Path
        The database.
    digest : str
        Its logical digest.
    fragments : tuple of Fragment
        All that it holds.
    advice : tuple of str
        What is allowed but probably not meant.
    seconds : float
        Wall time.
    """

    path: Path
    digest: str
    fragments: tuple[Fragment, ...]
    advice: tuple[str, ...]
    seconds: float


def build(
    families: Sequence[Family],
    output: Path,
    *,
    jobs: int | None = None,
    started: Callable[[int], None] = lambda _: None,
    done: Callable[[Rendered], None] = lambda _: None,
) -> BuildReport:
    """Build families into one database. The file appears when everything has held, or not at all.

    Parameters
    ----------
    families : sequence of Family
        With distinct names.
    output : Path
        The database file.
    jobs : int, optional
        Worker processes; by default as many as cores and memory bear.
    started, done : callable, optional
        Told the number of fragments, then of each that is compiled.

    Returns
    -------
    BuildReport

    Raises
    ------
    JitltoError
        The first thing that does not hold, from the matrix to the file.
    """
    begin = time.perf_counter()
    names = [family.name for family in families]
    for family in families:
        if names.count(family.name) > 1:
            raise FamilyError(
                f"two families are called {family.name!r}", where=str(family.path), hint="give each a name of its own"
            )
    if not output.parent.is_dir():
        raise BuildError(f"the directory {output.parent} does not exist", where=str(output), hint="create it first")
    toolkit.nvrtc_version()
    rendered = {family.name: list(render_family(family)) for family in families}
    started(sum(map(len, rendered.values())))
    advice = [text for family in families for text in matrix_warnings(family)]
    records, fragments, blobs = [], [], {}
    for family in families:
        search = HeaderSearch([*family.include, *toolkit.header_roots()])
        record = family_record(family)
        sources = rendered[family.name]
        _refuse_clock(sources, HeaderSearch(family.include))
        units = compile_all(
            sources,
            search,
            family.architectures,
            family.compiler_options(),
            jobs=jobs or default_jobs(),
            done=done,
        )
        own, includes = [], {}
        for source, unit in zip(sources, units, strict=True):
            fragment, images = assemble(source, unit)
            own.append(fragment)
            includes[fragment.key] = search.reachable(source.source.encode())
            blobs.update(images)
        soundness.check_interfaces(record, own, includes)
        advice += soundness.check(record, own)
        records.append(record)
        fragments += own
    digest = database.write(output, records, fragments, blobs)
    return BuildReport(output, digest, tuple(fragments), tuple(advice), time.perf_counter() - begin)


def _refuse_clock(sources: Sequence[Rendered], own: HeaderSearch) -> None:
    """Refuse what gives other bytes at every build, in the templates and in the family's own headers."""
    for rendered in sources:
        closure = own.closure(rendered.source.encode())
        for name, text in ((str(rendered.group.template), closure.text), *closure.headers.items()):
            if match := _CLOCK.search(text):
                raise BuildError(
                    f"{match[0].decode()} makes every build another one",
                    where=f"{name}:{text[: match.start()].count(bytes([10])) + 1}",
                    hint="pass what is wanted through the matrix, or as an option -DNAME=value",
                )


def family_record(family: Family) -> FamilyRecord:
    """What the run side must know of a family: its groups, and the family's own headers behind its interfaces.

    Raises
    ------
    FamilyError
        If an interface header is not in the family's include directories.
    """
    search = HeaderSearch(family.include)
    for group in family.groups:
        if group.interface and search.find(group.interface) is None:
            raise FamilyError(
                f"interface {group.interface!r} does not exist",
                where=f"{family.path} [{group.role}.{group.name}]",
                hint=f"it is looked for in {', '.join(map(str, family.include))}",
            )
    include = "".join(f'#include "{name}"\n' for name in family.interfaces)
    headers = search.closure(include.encode()).headers
    return FamilyRecord(
        family.name,
        family.compiler_options(),
        family.link,
        family.architectures,
        tuple(GroupRecord(g.name, g.role, g.key, g.interface, g.template is None) for g in family.groups),
        tuple(sorted((name, text.decode("utf-8", "surrogateescape")) for name, text in headers.items())),
    )
