"""Sharding: assignment of fragments to N jobs, the same on every machine, and the record of the resulting part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jitlto.base.entry import digest_of
from jitlto.base.errors import BuildError
from jitlto.base.text import check_type
from jitlto.build.execution.request import CompileRequest
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.record.family_record import PartRecord
from jitlto.record.fragment import FragmentKey
from jitlto.record.headers import Source


@dataclass(frozen=True, slots=True)
class Shard:
    """Job ``number`` of the ``count`` jobs of a build, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``I/N``.

        Raises:
            BuildError: If ``text`` is not of this form, or I is not from 1 to N.
        """
        check_type(text, str, "a shard must be text")
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            hint = "write I/N with I from 1 to N: 2/4 is the second of four"
            raise BuildError(f"invalid shard {text!r}", code="build-invalid-shard", hint=hint)
        return shard


def select(requests: Sequence[CompileRequest], shard: Shard) -> list[CompileRequest]:
    """Return a shard's share of the requests of a build: some of every group, and all that one compile makes."""
    compiles = {
        request.key: (request.key.family, request.config.key(Source(request.rendered.source.encode(), {})))
        for request in requests
    }
    distinct = list(dict.fromkeys(compiles[key] for key in sorted(compiles)))
    mine = set(distinct[shard.number - 1 :: shard.count])  # they cost about the same
    return [request for request in requests if compiles[request.key] in mine]


def digest_sources(sources: RenderedFamilies) -> dict[FragmentKey, str]:
    """Return the SHA-256 of everything the author wrote, for each fragment.

    Of the headers only the family's own count: the toolkit's belong to the compiler, which a part records separately.
    """
    found: dict[FragmentKey, str] = {}
    for request in sources.requests:
        rendered, config = request.rendered, request.config
        images = " ".join(f"{kind} {architecture}" for kind, architecture in config.images)
        how = [images, "auto" if config.candidates else "", *config.every_option]
        parts = [request.own_closure.sha256, rendered.group.entry or "", *rendered.params, *how]
        found[request.key] = digest_of("\0".join(parts).encode()).hex()
    return found | {rendered.key: digest_of(data).hex() for rendered, data in sources.binaries}


def make_part_record(
    shard: Shard, sources: RenderedFamilies, faults: Iterable[tuple[str, str]], advice: Sequence[str]
) -> PartRecord:
    """Create the record of a shard of a build, with what the merge checks.

    Args:
        faults: What no interface declares as a fragment of this shard requires it.
        advice: Warnings about the matrices.
    """
    toolchains = {r.key.family: r.config.toolchain.identify(r.config.images) for r in sources.requests}
    contents = digest_sources(sources)
    whole = digest_of("\n".join(sorted(f"{key} {digest}" for key, digest in contents.items())).encode()).hex()
    of = tuple(sorted(toolchains.items())), tuple(sorted(faults)), tuple(advice)
    return PartRecord(shard.number, shard.count, whole, len(contents), *of)
