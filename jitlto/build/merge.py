"""Merging: join the parts of a sharded build, or complete databases of different families, into one database."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from jitlto.base.diagnostic import Diagnostic, Severity
from jitlto.base.errors import BuildError
from jitlto.base.text import describe_differences, pluralize
from jitlto.build.cache.cache import Cache
from jitlto.build.proof import Planned, Proofs, check_interfaces, prove_once
from jitlto.build.uses import check_uses
from jitlto.database import FragmentDatabase, writer
from jitlto.record.family_record import FamilyRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey


@dataclass(frozen=True)
class MergeReport:
    """The result of a merge, or of a build."""

    path: Path  # the database
    digest: str  # its logical digest
    fragments: tuple[Fragment, ...]  # all that it holds, sorted by key
    advice: tuple[Diagnostic, ...]  # warnings about code that is allowed but probably a mistake
    planned: Planned  # its kernels; none of a part


@dataclass(frozen=True, slots=True)
class _Family:
    """A family of a complete database, or joined of parts."""

    record: FamilyRecord
    path: Path
    fragments: Mapping[FragmentKey, Fragment]
    faults: Sequence[tuple[str, str]] = ()  # of parts, which only the whole shows


def merge_databases(
    paths: Sequence[Path],
    output: Path,
    *,
    allow_incomplete: bool = False,
    cache: Cache | None = None,
) -> MergeReport:
    """Merge parts of one build, complete databases of different families, or both, into one database.

    Merged parts are byte for byte the result of an unsharded build, in any order of the parts.

    Args:
        paths: At least one.
        output: The database file. It is written after all checks, or not at all.
        allow_incomplete: Write the database although kernels lack something, and report that as advice.
        cache: The build cache, which keeps what was proved of databases; None to plan every kernel again.

    Raises:
        DatabaseError: If an input cannot be read or is damaged, or the output cannot be written.
        BuildError: If the inputs do not belong together, cannot form a consistent database, or have a kernel that does
            not plan.
    """
    if not paths:
        raise BuildError("nothing to merge", code="build-no-parts", hint="give the parts, or complete databases")
    advice: list[Diagnostic] = []
    with ExitStack() as stack:
        opened = [stack.enter_context(FragmentDatabase(path)) for path in paths]
        for one in opened:
            one.verify()
        families: dict[str, _Family] = {}
        for whole, record in ((one, record) for one in opened if not one.part for record in one.families.values()):
            own = {fragment.key: fragment for fragment in whole.fragments(record.name)}
            known = families.setdefault(record.name, _Family(record, whole.path, own))
            if (known.record, known.fragments) != (record, own):
                raise _conflict(f"the family {record.name}", known.path, whole.path)
        if parts := [(one, one.part) for one in opened if one.part]:
            for part, number in parts:
                for name in part.families.keys() & families.keys():
                    what = f"{number} of a build of family {name}, which is complete in {families[name].path}"
                    hint = "merge the parts alone first, or use the complete database"
                    raise BuildError(what, code="build-part-and-whole", where=str(part.path), hint=hint)
            families |= {family.record.name: family for family in _join(parts, advice)}
        merged = [family for _, family in sorted(families.items())]
        records = {family.record.name: family.record for family in merged}
        check_uses(records)
        fragments = [fragment for family in merged for fragment in family.fragments.values()]
        for family in merged:
            record = family.record.with_used(records)
            check_interfaces(record, record.select(fragments), family.faults)
        proofs, planned = Proofs(cache.store if cache else None), Planned()

        def check(path: Path, digest: str) -> None:
            nonlocal planned
            planned = prove_once(proofs, advice, fragments, path, digest, allow_incomplete=allow_incomplete)

        images = dict(chain.from_iterable(one.images() for one in opened))
        digest = writer.write(output, [*records.values()], fragments, images, check=check)
    return MergeReport(Path(output), digest, tuple(fragments), tuple(dict.fromkeys(advice)), planned)


def _conflict(what: str, one: Path, other: Path) -> BuildError:
    return BuildError(f"{what} differs between {one} and {other}", code="build-conflict", hint="leave out one of them")


# --- parts of one build


def _join(parts: Sequence[tuple[FragmentDatabase, PartRecord]], advice: list[Diagnostic]) -> Iterator[_Family]:
    """Join the parts of a build: yield its families, and add to the advice what is allowed and was found."""
    first, whole = parts[0]
    holders: dict[FragmentKey, tuple[Fragment, Path]] = {}
    compilers: dict[str, tuple[str, Path]] = {}  # of each family, with the first part that has fragments of it
    for source, part in parts:
        if part.whole != whole.whole or source.families != first.families:
            what = f"not a part of the same build as {first.path}: families or sources differ"
            hint = "build all parts from the same sources, with the same list of families"
            raise BuildError(what, code="build-foreign-part", where=str(source.path), hint=hint)
        for fragment in source.fragments():
            known, path = holders.setdefault(fragment.key, (fragment, source.path))
            if known != fragment:
                raise _conflict(str(fragment.key), path, source.path)
        for family, identity in part.toolchains:
            if source.fragments(family):
                other, path = compilers.setdefault(family, (identity, source.path))
                if other != identity:
                    theirs, ours = describe_differences(other, identity)
                    what = f"family {family} was compiled by {theirs} in {path}, and by {ours} in {source.path}"
                    raise BuildError(what, code="build-mixed-compilers", hint="build all parts with the same compiler")
    if (missing := whole.fragments - len(holders)) > 0:
        there = ", ".join(f"{number} of {count}" for number, count in sorted({(p.number, p.count) for _, p in parts}))
        what = f"{pluralize(missing, 'fragment')} in no part; there are the parts {there}"
        hint = "build the others with --shard I/N, all with the same N"
        raise BuildError(what, code="build-missing-parts", hint=hint)
    faults = sorted({fault for _, part in parts for fault in part.faults})
    told = dict.fromkeys(text for _, part in parts for text in part.advice)  # every part has that on all matrices
    advice += [Diagnostic.at(None, text, "", Severity.WARNING) for text in told]
    for name, record in first.families.items():
        own = {key: holders[key][0] for key in sorted(holders) if key.family == name}
        yield _Family(record, first.path, own, faults)
