"""Fragments whose code is the same under different keys: a value that stands in a source, but changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from jitlto.build.findings import Finding, Kind
from jitlto.record.fragment import Fragment, ImageKind


def find_same_code(fragments: Iterable[Fragment]) -> Iterator[Finding]:
    """Note the parameters of each group whose values make no difference for some of its fragments.

    Compared are the PTX images, which the name of a source is no part of; the LTO-IR of a fragment without PTX.
    """
    alike: dict[tuple[str, tuple[str, ...]], list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        images = list(fragment.images_of(ImageKind.PTX)) or fragment.images
        if images:
            alike[fragment.key.group, tuple(image.sha256 for image in images)].append(fragment)
    found: dict[tuple[str, tuple[str, ...]], list[Sequence[Fragment]]] = defaultdict(list)
    for (group, _), same in alike.items():
        if len(same) > 1:
            found[group, _differing(same)].append(same)
    for (group, parameters), sets in sorted(found.items(), key=lambda item: item[0]):
        one, other, *_ = (fragment.key for fragment in sets[0])
        more = sum(map(len, sets)) - 2
        likewise = f" (and {more} more of {group} likewise)" if more else ""
        message = (
            f"{one} and {other} have the same code{likewise}: {', '.join(parameters)} changes nothing compiled there"
        )
        yield Finding(Kind.SAME_CODE, message, None, str(one), dict(one.parameters))


def _differing(same: Sequence[Fragment]) -> tuple[str, ...]:
    first = dict(same[0].key.parameters)
    return tuple(sorted({n for fragment in same for n, value in fragment.key.parameters if first.get(n) != value}))
