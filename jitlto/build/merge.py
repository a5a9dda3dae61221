"""Merging: the parts of a sharded build become what one build would have written; complete databases are joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jitlto.build import validate
from jitlto.errors import BuildError
from jitlto.model.family_record import FamilyRecord, PartRecord
from jitlto.model.fragment import Fragment, FragmentKey
from jitlto.storage import database
from jitlto.storage.database import FragmentDatabase

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did.

    Parameters
    ----------
    path : Path
        The database.
    digest : str
        Its logical digest.
    fragments : tuple of Fragment
        All that it holds, sorted by key.
    advice : tuple of str
        What is allowed but probably not meant.
    """

    path: Path
    digest: str
    fragments: tuple[Fragment, ...]
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """A family, where each of its fragments lies, and what these include if their build left checks to the merge.

    ``gaps`` are the fragments that belong to it and that nobody holds.
    """

    record: FamilyRecord
    fragments: Mapping[FragmentKey, tuple[Fragment, FragmentDatabase]]
    includes: Mapping[FragmentKey, frozenset[str]] | None
    path: Path
    gaps: tuple[FragmentKey, ...]


def merge_databases(
    paths: Sequence[Path],
    output: Path,
    *,
    allow_gaps: bool = False,
    allow_mixed: bool = False,
    prefer: Literal["first", "last"] | None = None,
) -> MergeReport:
    """Merge parts of one build, complete databases of different families, or both, into one database.

    The parts of a build give the bytes that the build gives in one piece, whatever their order.

    Parameters
    ----------
    paths : sequence of Path
        At least one.
    output : Path
        The database file. It appears when everything has held, or not at all.
    allow_gaps : bool, optional
        Leave out fragments that no part holds.
    allow_mixed : bool, optional
        Take parts that different compilers made.
    prefer : {"first", "last"}, optional
        Of several fragments with one key, and of several databases that hold a family, which to take where they
        differ.

    Returns
    -------
    MergeReport

    Raises
    ------
    DatabaseError
        If one of them cannot be read or is damaged, or the output cannot be written.
    BuildError
        If they do not belong together, or what they make is not sound.
    """
    if not paths:
        raise BuildError("nothing to merge", hint="name parts, or complete databases")
    with ExitStack() as stack:
        opened = [stack.enter_context(FragmentDatabase(path)) for path in paths]
        for one in opened:
            one.verify()
        if prefer is None:
            _check_complete(opened)
        if prefer == "last":
            opened.reverse()
        advice: list[str] = []
        held: dict[str, _Held] = {}
        for family in _families(opened, allow_gaps, allow_mixed, prefer is not None, advice):
            name = family.record.name
            if name not in held:
                held[name] = family
            elif difference := _difference(held[name], family):
                _refuse_or_advise(
                    f"{family.path} and {held[name].path} both hold the family {name}: {difference}",
                    f"taken from {held[name].path}",
                    "leave one of them out, or take one with --prefer first or --prefer last",
                    advice if prefer else None,
                )
        fragments = []
        for _, family in sorted(held.items()):
            own = [fragment for _, (fragment, _) in sorted(family.fragments.items())]
            if family.includes is not None:
                validate.check_interface_includes(family.record, own, family.includes)
            advice += validate.check_fragments(family.record, own)
            fragments += own
        blobs = {
            image.sha256: source.read(image)
            for family in held.values()
            for fragment, source in family.fragments.values()
            for image in fragment.images
        }
        gaps = [key for family in held.values() for key in family.gaps]
        digest = database.write(output, [family.record for family in held.values()], fragments, blobs, gaps=gaps)
    return MergeReport(output, digest, tuple(fragments), tuple(advice))


def _check_complete(opened: Sequence[FragmentDatabase]) -> None:
    complete = {name: one.path for one in opened if one.part is None for name in one.families}
    for one in opened:
        for name in one.families if one.part is not None else ():
            if name in complete:
                raise BuildError(
                    f"{complete[name]} holds the whole family {name}, and this is {one.part} of a build of it",
                    where=str(one.path),
                    hint="merge the parts alone; the complete database needs none",
                )


def _families(
    opened: Sequence[FragmentDatabase], allow_gaps: bool, allow_mixed: bool, prefer: bool, advice: list[str]
) -> Iterable[_Held]:
    """Every family of every whole: all parts make one, which stands where the first of them does."""
    parts = [(one, one.part) for one in opened if one.part is not None]
    for one in opened:
        if one.part is None:
            for name, record in one.families.items():
                fragments = {fragment.key: (fragment, one) for fragment in one.fragments(name)}
                gaps = tuple(key for key in one.gaps if key.family == name)
                yield _Held(record, fragments, None, one.path, gaps)
        elif one is parts[0][0]:
            _check_whole(parts)
            _check_toolchains(parts, advice if allow_mixed else None)
            yield from _joined(parts, advice, prefer, allow_gaps)


_Parts = Sequence[tuple[FragmentDatabase, PartRecord]]


def _check_whole(parts: _Parts) -> None:
    first, wanted = parts[0]
    for other, part in parts[1:]:
        if part.whole == wanted.whole and other.families == first.families:
            continue
        odd = sorted(set(part.keys) ^ set(wanted.keys))
        records = sorted(n for n, record in other.families.items() if record != first.families.get(n))
        if odd:
            why = f"{odd[0]} belongs to the build of {(other if odd[0] in part.keys else first).path} only"
        elif records:
            why = f"family {records[0]} is declared differently"
        else:
            why = "the sources were not the same"
        raise BuildError(
            f"is no part of the build that {first.path} is a part of: {why}",
            where=str(other.path),
            hint="build all parts from the same sources, with the same list of families",
        )


def _check_toolchains(parts: _Parts, advice: list[str] | None) -> None:
    seen: dict[str, tuple[str, Path]] = {}
    for source, part in parts:
        for family, identity in part.toolchains:
            if not source.fragments(family):
                continue
            other, path = seen.setdefault(family, (identity, source.path))
            if other != identity:
                _refuse_or_advise(
                    f"the family {family} was compiled by {other} in {path}, and by {identity} in {source.path}",
                    "mixed as asked",
                    "build all parts with the same compiler, or mix them with --allow-mixed",
                    advice,
                )


def _joined(parts: _Parts, advice: list[str], prefer: bool, allow_gaps: bool) -> Iterable[_Held]:
    fragments: dict[FragmentKey, tuple[Fragment, FragmentDatabase]] = {}
    for source, _ in parts:
        for fragment in source.fragments():
            known, holder = fragments.setdefault(fragment.key, (fragment, source))
            if known != fragment:
                _refuse_or_advise(
                    f"{fragment.key} in {source.path} is not the {fragment.key} in {holder.path}",
                    f"taken from {holder.path}",
                    "leave one of them out, or take one with --prefer first or --prefer last",
                    advice if prefer else None,
                )
    missing = _check_gaps(parts, fragments, advice if allow_gaps else None)
    includes: dict[FragmentKey, frozenset[str]] = dict.fromkeys(fragments, frozenset())
    for source, part in parts:
        for key, names in part.includes:
            if fragments[key][1] is source:
                includes[key] = frozenset(names)
    # Every part carries the advice on all matrices.
    advice += dict.fromkeys(text for _, part in parts for text in part.advice)
    for name, record in parts[0][0].families.items():
        own = {key: held for key, held in fragments.items() if key.family == name}
        gaps = tuple(key for key in missing if key.family == name)
        yield _Held(record, own, includes, parts[0][0].path, gaps)


def _check_gaps(parts: _Parts, fragments: Mapping[FragmentKey, object], advice: list[str] | None) -> list[FragmentKey]:
    """What no part holds; an error, unless it is allowed."""
    missing = [key for key in parts[0][1].keys if key not in fragments]
    if not missing:
        return missing
    listed = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
    counts = sorted({part.count for _, part in parts})
    absent = sorted(set(range(1, counts[0] + 1)) - {part.number for _, part in parts})
    if len(counts) > 1:
        what = f"parts of {' and of '.join(map(str, counts))} do not make a whole"
        hint = "build all parts with one number of shards"
    elif absent:
        numbers = ", ".join(map(str, absent))
        what = f"parts {numbers} of {counts[0]} are" if len(absent) > 1 else f"part {numbers} of {counts[0]} is"
        what += " missing"
        hint = f"build with --shard {absent[0]}/{counts[0]} and merge again"
    else:
        what = f"the {counts[0]} parts do not make a whole"
        hint = "build all parts with the same compiler and the same --costs"
    _refuse_or_advise(
        f"{what}: no part holds {listed}" + (f" ({len(missing)} in all)" if len(missing) > _SHOWN else ""),
        "left out as asked",
        f"{hint}, or leave out what is missing with --allow-gaps",
        advice,
    )
    return missing


def _difference(one: _Held, other: _Held) -> str | None:
    """How two states of a family differ, None if they are the same."""
    if one.record != other.record:
        return "it is declared differently"
    for key in sorted(one.fragments.keys() | other.fragments.keys()):
        a, b = one.fragments.get(key), other.fragments.get(key)
        if a is None or b is None:
            return f"{key} is in {(one if b is None else other).path} only"
        if a[0] != b[0]:
            return f"{key} is not the same"
    return "it lacks other fragments" if one.gaps != other.gaps else None


def _refuse_or_advise(what: str, done: str, hint: str, advice: list[str] | None) -> None:
    """An error, or advice where the caller has allowed it."""
    if advice is None:
        raise BuildError(what, hint=hint)
    advice.append(f"{what}: {done}")
