"""Merging: join the parts of a sharded build, or complete databases of different families, into one database."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import astuple

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
    advice: list[str] = []
    with ExitStack() as stack:
        opened = [stack.enter_context(FragmentDatabase(path)) for path in paths]
        for one in opened:
            one.verify(keep=True)
        parts = [(one, one.part) for one in opened if one.part]
        read = [family for one in opened if one.part is None for family in _read(one)]
        if parts:
            _check_not_both(parts, read)
            read += _join(parts, advice, allow_gaps=allow_gaps, allow_mixed=allow_mixed)
        families = _distinct(read)
        records = {family.record.name: family.record for family in families}
        check_uses(records)
        fragments = [fragment for family in families for fragment, _ in family.fragments.values()]
        for family in families:
            record = family.record.with_used(records)
            planned = record.select(fragments)
            if family.faults is not None:
                check_interfaces(record, planned, family.faults)
            validate.check_layouts(planned)
            advice += _report_mixed(record.name, planned)
        gaps = [key for family in families for key in family.gaps]
        whole = [*records.values()], fragments, gaps, cache.store if cache else None
        check = partial(proof.prove_once, advice, *whole, allow_incomplete=allow_incomplete)
        digest = writer.write(output, [*records.values()], fragments, _Images(families), gaps=gaps, check=check)
    return MergeReport(output, digest, tuple(fragments), tuple(dict.fromkeys(advice)))


@dataclass(frozen=True, slots=True)
class _Family:
    record: FamilyRecord
    path: Path
    fragments: Mapping[FragmentKey, tuple[Fragment, FragmentDatabase]]  # sorted by key
    gaps: tuple[FragmentKey, ...]  # declared fragments that no database holds
    faults: Sequence[tuple[str, str, str]] | None  # of parts, whose checks are done by the merge

    @property
    def contents(self) -> tuple[FamilyRecord, list[Fragment], tuple[FragmentKey, ...]]:
        """What is the same in equal families."""
        return self.record, [fragment for fragment, _ in self.fragments.values()], self.gaps


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


def _read(one: FragmentDatabase) -> Iterator[_Family]:
    """Read the families of a complete database."""
    for name, record in one.families.items():
        fragments = {fragment.key: (fragment, one) for fragment in one.fragments(name)}
        yield _Family(record, one.path, fragments, tuple(key for key in one.gaps if key.family == name), None)


def _distinct(families: Iterable[_Family]) -> list[_Family]:
    """Return families sorted by name, each once; BuildError if two of one name differ."""
    found: dict[str, _Family] = {}
    for family in families:
        known = found.setdefault(family.record.name, family)
        if known.contents != family.contents:
            keys = known.fragments.keys() | family.fragments.keys()
            differing = (key for key in sorted(keys) if _fragment(known, key) != _fragment(family, key))
            why = next((f"{key} differs" for key in differing), "it is declared differently")
            what = f"{family.path} and {known.path} both hold the family {family.record.name}: {why}"
            raise BuildError(what, code="build-conflict", hint="leave out one of them")
    return [family for _, family in sorted(found.items())]


def _fragment(family: _Family, key: FragmentKey) -> Fragment | None:
    return family.fragments[key][0] if key in family.fragments else None


# --- parts of one build

_Parts: TypeAlias = Sequence[tuple[FragmentDatabase, PartRecord]]


def _join(parts: _Parts, advice: list[str], *, allow_gaps: bool, allow_mixed: bool) -> Iterator[_Family]:
    """Join the parts of a build: yield its families, and add to the advice what is allowed and was found."""
    _check_one_build(parts)
    for what in _find_mixed(parts):
        hint = "build all parts with the same compiler, or mix them with --allow-mixed"
        _fail_or_advise(advice, allow_mixed, what, "mixed as requested", code="build-mixed-compilers", hint=hint)
    fragments: dict[FragmentKey, tuple[Fragment, FragmentDatabase]] = {}
    for source, _ in parts:
        for fragment in source.fragments():
            known, holder = fragments.setdefault(fragment.key, (fragment, source))
            if known != fragment:
                what = f"{fragment.key} differs between {holder.path} and {source.path}"
                raise BuildError(what, code="build-conflict", hint="leave out one of them")
    first, part = parts[0]
    gaps = [key for key in part.keys if key not in fragments]
    if gaps:
        what, hint = _describe_gaps(parts, gaps)
        hint = f"{hint}, or leave the missing fragments out with --allow-gaps"
        _fail_or_advise(advice, allow_gaps, what, "left out as requested", code="build-missing-parts", hint=hint)
    faults = sorted({fault for _, part in parts for fault in part.faults})
    advice += dict.fromkeys(text for _, part in parts for text in part.advice)  # every part has that on all matrices
    # The keys of the build are sorted, and all that there are unless a part was made by hand.
    in_order = part.keys if len(fragments) + len(gaps) == len(part.keys) else sorted(fragments, key=astuple)
    for name, record in first.families.items():
        own = {key: fragments[key] for key in in_order if key.family == name and key in fragments}
        yield _Family(record, first.path, own, tuple(key for key in gaps if key.family == name), faults)


def _fail_or_advise(advice: list[str], is_allowed: bool, what: str, allowed: str, *, code: str, hint: str) -> None:
    if not is_allowed:
        raise BuildError(what, code=code, hint=hint)
    advice.append(f"{what}: {allowed}")


def _check_not_both(parts: _Parts, complete: Sequence[_Family]) -> None:
    paths = {family.record.name: family.path for family in complete}
    for part, record in parts:
        for name in (each for each in part.families if each in paths):
            what = f"{record} of a build of family {name}, which is complete in {paths[name]}"
            hint = "merge only the parts, or use the complete database"
            if any(name in each.uses for each in part.families.values()):
                hint = "merge the parts first, and their result with complete databases"
            raise BuildError(what, code="build-part-and-whole", where=str(part.path), hint=hint)


def _check_one_build(parts: _Parts) -> None:
    first, expected = parts[0]
    for other, part in parts[1:]:
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


def _find_mixed(parts: _Parts) -> Iterator[str]:
    """Yield the families of which parts were made by other compilers than earlier parts."""
    seen: dict[str, tuple[str, Path]] = {}
    for source, part in parts:
        for family, identity in part.toolchains:
            if source.fragments(family):
                other, path = seen.setdefault(family, (identity, source.path))
                if other != identity:
                    theirs, ours = describe_differences(other, identity)
                    yield f"family {family} was compiled by {theirs} in {path}, and by {ours} in {source.path}"


def _describe_gaps(parts: _Parts, gaps: Sequence[FragmentKey]) -> tuple[str, str]:
    """Return why no part holds some fragments, and the remedy."""
    counts = sorted({part.count for _, part in parts})
    absent = sorted(set(range(1, counts[0] + 1)) - {part.number for _, part in parts})
    if len(counts) > 1:
        what = f"parts of builds in {' and '.join(map(str, counts))} parts"
        hint = "build all parts with the same number of shards"
    elif absent:
        what = f"missing part{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))} of {counts[0]}"
        hint = f"build with --shard {absent[0]}/{counts[0]} and merge again"
    else:
        what, hint = f"the {counts[0]} parts are incomplete", "build all parts with the same compiler"
    listed = ", ".join(map(str, gaps[:_MAX_LISTED])) + (", ..." if len(gaps) > _MAX_LISTED else "")
    return f"{what}: {pluralize(len(gaps), 'fragment')} in no part: {listed}", hint


def _report_mixed(family: str, fragments: Sequence[Fragment]) -> Iterable[str]:
    """Report LTO-IR of several CUDA majors, and what becomes of kernels that contain it."""
    if versions := mixed_compilers(fragments):
        without = sum(not any(fragment.images_of(ImageKind.PTX)) for fragment in fragments)
        how = "link as PTX, without LTO"
        if without:
            how = f"do not link if they contain a fragment without PTX, of which there are {without}"
        yield f"{family} holds LTO-IR made by CUDA {versions}, which does not link together: kernels of both {how}"
