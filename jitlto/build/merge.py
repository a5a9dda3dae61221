"""Merging: join the parts of a sharded build, or complete databases of different families, into one database."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import astuple

from jitlto.base.cached import cached_property
from jitlto.base.errors import BuildError
from jitlto.base.text import describe_differences, pluralize
from jitlto.build import proof, validate
from jitlto.build.cache.cache import Cache
from jitlto.build.interfaces import check_interfaces
from jitlto.build.uses import check_uses
from jitlto.cuda.compatibility import mixed_compilers
from jitlto.database import FragmentDatabase, writer
from jitlto.record.family_record import FamilyRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey, ImageKind

_MAX_LISTED = 3


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The result of a merge."""

    path: Path  # the database
    digest: str  # its logical digest
    fragments: tuple[Fragment, ...]  # all that it holds, sorted by key
    advice: tuple[str, ...]  # warnings about code that is allowed but probably a mistake


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking for cycles: fragments have none, and it takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_collector_paused()
def merge_databases(
    paths: Sequence[Path],
    output: Path,
    *,
    allow_gaps: bool = False,
    allow_mixed: bool = False,
    prefer: Literal["first", "last"] | None = None,
    allow_incomplete: bool = False,
    cache: Cache | None = None,
) -> MergeReport:
    """Merge parts of one build, complete databases of different families, or both, into one database.

    Merged parts are byte for byte the result of an unsharded build, in any order of the parts.

    Args:
        paths: At least one.
        output: The database file. It is written after all checks, or not at all.
        allow_gaps: Leave out fragments that no part holds.
        allow_mixed: Accept parts from different compilers.
        prefer: The input to prefer if fragments with the same key or families with the same name differ.
        allow_incomplete: Write the database although kernels lack something, and report that as advice.
        cache: The build cache, which keeps what was proved of databases; None to plan every kernel again.

    Raises:
        DatabaseError: If an input cannot be read or is damaged, or the output cannot be written.
        BuildError: If the inputs do not belong together, cannot form a consistent database, or have a kernel that does
            not plan.
    """
    paths, output = [Path(path) for path in paths], Path(output)
    if not paths:
        raise BuildError("nothing to merge", code="build-no-parts", hint="give the parts, or complete databases")
    with ExitStack() as stack:
        opened = [stack.enter_context(FragmentDatabase(path)) for path in paths]
        for one in opened:
            one.verify(keep=True)
        merger = _Merger(opened[::-1] if prefer == "last" else opened, allow_gaps, allow_mixed, prefer is not None)
        families = merger.merge()
        fragments: list[Fragment] = []
        records = {family.record.name: family.record for family in families}
        check_uses(records)
        for family in families:
            fragments += [fragment for fragment, _ in family.fragments.values()]
        for family in families:
            record = family.record.with_used(records)
            planned = record.select(fragments)
            if family.faults is not None:
                check_interfaces(record, planned, family.faults)
            validate.check_layouts(planned)
            merger.advice += _report_mixed(record.name, planned)
        blobs = _Images(families)
        gaps = [key for family in families for key in family.gaps]
        whole = [*records.values()], fragments, gaps, cache.store if cache else None
        check = partial(proof.prove_once, merger.advice, *whole, allow_incomplete=allow_incomplete)
        digest = writer.write(output, [*records.values()], fragments, blobs, gaps=gaps, check=check)
    return MergeReport(output, digest, tuple(fragments), tuple(dict.fromkeys(merger.advice)))


@dataclass(frozen=True, slots=True)
class _Family:
    record: FamilyRecord
    path: Path
    fragments: Mapping[FragmentKey, tuple[Fragment, FragmentDatabase]]  # sorted by key
    gaps: tuple[FragmentKey, ...]  # declared fragments that no database holds
    faults: Sequence[tuple[str, str, str]] | None  # of parts, whose checks are done by the merge


class _Images(Mapping[str, bytes]):
    """The images of merged families by SHA-256, each read when it is looked up."""

    def __init__(self, families: Iterable[_Family]) -> None:
        self._sources = {
            image.sha256: (image, source)
            for family in families
            for fragment, source in family.fragments.values()
            for image in fragment.images
        }

    def __getitem__(self, sha256: str) -> bytes:
        image, source = self._sources[sha256]
        return source.read(image)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


@dataclass
class _Merger:
    """Joins the families of several databases; if allowed, the earlier of two differing databases is preferred."""

    opened: Sequence[FragmentDatabase]
    allow_gaps: bool
    allow_mixed: bool
    allow_conflicts: bool
    advice: list[str] = field(default_factory=list)

    @cached_property
    def _parts(self) -> list[tuple[FragmentDatabase, PartRecord]]:
        return [(one, one.part) for one in self.opened if one.part]

    def merge(self) -> list[_Family]:
        """Merge all families, sorted by name."""
        if not self.allow_conflicts:
            self._check_not_both()
        families: dict[str, _Family] = {}
        for family in self._read_families():
            known = families.setdefault(family.record.name, family)
            if known is not family and (difference := _find_difference(known, family)):
                self._conflict(
                    f"{family.path} and {known.path} both hold the family {known.record.name}: {difference}", known.path
                )
        return [family for _, family in sorted(families.items())]

    def _read_families(self) -> Iterable[_Family]:
        """Read the families of every database; those of all parts are joined, in the place of the first part."""
        for one in self.opened:
            if one.part is None:
                for name, record in one.families.items():
                    fragments = {fragment.key: (fragment, one) for fragment in one.fragments(name)}
                    gaps = tuple(key for key in one.gaps if key.family == name)
                    yield _Family(record, one.path, fragments, gaps, None)
            elif one is self._parts[0][0]:
                self._check_one_build()
                self._check_compilers()
                yield from self._join_parts()

    def _check_not_both(self) -> None:
        complete = {name: one.path for one in self.opened if one.part is None for name in one.families}
        for part, record in self._parts:
            for name in part.families:
                if name in complete:
                    what = f"{record} of a build of family {name}, which is complete in {complete[name]}"
                    shared = any(name in each.uses for each in part.families.values())
                    hint = "merge the parts first, and their result with complete databases"
                    hint = hint if shared else "merge only the parts, or use the complete database"
                    raise BuildError(what, code="build-part-and-whole", where=str(part.path), hint=hint)

    def _check_one_build(self) -> None:
        first, expected = self._parts[0]
        for other, part in self._parts[1:]:
            if part.whole == expected.whole and other.families == first.families:
                continue
            odd = sorted(set(part.keys) ^ set(expected.keys))
            records = sorted(name for name, record in other.families.items() if record != first.families.get(name))
            if odd:
                why = f"only the build of {(other if odd[0] in part.keys else first).path} has {odd[0]}"
            elif records:
                why = f"family {records[0]} is declared differently"
            else:
                why = "the sources differ"
            what = f"not a part of the same build as {first.path}: {why}"
            hint = "build all parts from the same sources, with the same list of families"
            raise BuildError(what, code="build-foreign-part", where=str(other.path), hint=hint)

    def _check_compilers(self) -> None:
        seen: dict[str, tuple[str, Path]] = {}
        for source, part in self._parts:
            for family, identity in part.toolchains:
                if source.fragments(family):
                    other, path = seen.setdefault(family, (identity, source.path))
                    if other != identity:
                        theirs, ours = describe_differences(other, identity)
                        self._fail_or_advise(
                            f"family {family} was compiled by {theirs} in {path}, and by {ours} in {source.path}",
                            code="build-mixed-compilers",
                            hint="build all parts with the same compiler, or mix them with --allow-mixed",
                            allowed="mixed as requested" if self.allow_mixed else None,
                        )

    def _join_parts(self) -> Iterable[_Family]:
        fragments: dict[FragmentKey, tuple[Fragment, FragmentDatabase]] = {}
        for source, _ in self._parts:
            for fragment in source.fragments():
                known, holder = fragments.setdefault(fragment.key, (fragment, source))
                if known != fragment:
                    self._conflict(f"{fragment.key} differs between {holder.path} and {source.path}", holder.path)
        gaps = self._find_gaps(fragments)
        faults = sorted({fault for _, part in self._parts for fault in part.faults})
        # Every part has the advice on all matrices.
        self.advice += dict.fromkeys(text for _, part in self._parts for text in part.advice)
        first, part = self._parts[0]
        # The keys of the build are sorted, and all that there are unless a part was made by hand.
        in_order = part.keys if len(fragments) + len(gaps) == len(part.keys) else sorted(fragments, key=astuple)
        for name, record in first.families.items():
            own = {key: fragments[key] for key in in_order if key.family == name and key in fragments}
            yield _Family(record, first.path, own, tuple(key for key in gaps if key.family == name), faults)

    def _find_gaps(self, fragments: Mapping[FragmentKey, object]) -> list[FragmentKey]:
        """Find the fragments that no part holds; an error unless gaps are allowed."""
        gaps = [key for key in self._parts[0][1].keys if key not in fragments]
        if not gaps:
            return gaps
        counts = sorted({part.count for _, part in self._parts})
        absent = sorted(set(range(1, counts[0] + 1)) - {part.number for _, part in self._parts})
        if len(counts) > 1:
            what = f"parts of builds in {' and '.join(map(str, counts))} parts"
            hint = "build all parts with the same number of shards"
        elif absent:
            numbers = ", ".join(map(str, absent))
            what = f"missing part{'s' if len(absent) > 1 else ''} {numbers} of {counts[0]}"
            hint = f"build with --shard {absent[0]}/{counts[0]} and merge again"
        else:
            what = f"the {counts[0]} parts are incomplete"
            hint = "build all parts with the same compiler and the same --costs"
        listed = ", ".join(map(str, gaps[:_MAX_LISTED])) + (", ..." if len(gaps) > _MAX_LISTED else "")
        self._fail_or_advise(
            f"{what}: {pluralize(len(gaps), 'fragment')} in no part: {listed}",
            code="build-missing-parts",
            hint=f"{hint}, or leave the missing fragments out with --allow-gaps",
            allowed="left out as requested" if self.allow_gaps else None,
        )
        return gaps

    def _conflict(self, what: str, taken: Path) -> None:
        self._fail_or_advise(
            what,
            code="build-conflict",
            hint="leave out one of them, or give --prefer first or --prefer last",
            allowed=f"taken from {taken}" if self.allow_conflicts else None,
        )

    def _fail_or_advise(self, what: str, *, code: str, hint: str, allowed: str | None) -> None:
        """Raise an error, or add advice if the caller allows it."""
        if allowed is None:
            raise BuildError(what, code=code, hint=hint)
        self.advice.append(f"{what}: {allowed}")


def _report_mixed(family: str, fragments: Sequence[Fragment]) -> Iterable[str]:
    """Report LTO-IR of several CUDA majors, and what becomes of kernels that contain it."""
    if versions := mixed_compilers(fragments):
        without = sum(not any(fragment.images_of(ImageKind.PTX)) for fragment in fragments)
        how = "link as PTX, without LTO"
        if without:
            how = f"do not link if they contain a fragment without PTX, of which there are {without}"
        yield f"{family} holds LTO-IR made by CUDA {versions}, which does not link together: kernels of both {how}"


def _find_difference(one: _Family, other: _Family) -> str | None:
    """Describe the first difference between two versions of a family; None if they are equal."""
    if one.record != other.record:
        return "it is declared differently"
    for key in sorted(one.fragments.keys() | other.fragments.keys()):
        a, b = one.fragments.get(key), other.fragments.get(key)
        if a is None or b is None:
            return f"{key} is in {(one if b is None else other).path} only"
        if a[0] != b[0]:
            return f"{key} differs"
    return "different fragments are left out" if one.gaps != other.gaps else None
