"""What the LTO-IR that a database has for several architectures gains on a target, in machine instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from jitlto.base.errors import JitltoError
from jitlto.base.text import pluralize
from jitlto.base.versions import Architecture, Version
from jitlto.compile import machine_code
from jitlto.compile.machine_code import MachineCode
from jitlto.cuda import nvjitlink
from jitlto.cuda.compatibility import runs_on
from jitlto.database import FragmentDatabase
from jitlto.link.parallel import run_parallel
from jitlto.record.fragment import Fragment, Image, ImageKind

_ISA = Version(7, 0)  # of the stub, which each nvJitLink reads


class ArchGain(Struct, frozen=True):
    """What the images of a group for one architecture gain over those for the one below, on one target.

    Args:
        group: ``family/group``.
        target: What is linked for, alone.
        architecture, below: Of the two images that are compared, such as ``90`` and ``75``.
        compared: The fragments that have both.
        differing: How many of them have other machine code.
        before, after: Machine instructions of these, from the image below and from this one.
        bytes: Of the images for the architecture.
        unlinked: How many do not link alone, so that nothing is known of them.
    """

    group: str
    target: str
    architecture: str
    below: str
    compared: int
    differing: int
    before: int
    after: int
    bytes: int
    unlinked: int = 0

    def __str__(self) -> str:
        what = f"{self.group} on {self.target}: LTO-IR for {self.architecture} instead of {self.below}"
        unlinked = f"; {self.unlinked} do not link alone" if self.unlinked else ""
        if not self.differing:
            return f"{what} makes the same code in all {pluralize(self.compared, 'fragment')}{unlinked}"
        gained = f"{self.after} instead of {self.before} machine instructions"
        which = f"{self.differing} of {pluralize(self.compared, 'fragment')}"
        return f"{what} makes other code in {which}: {gained}{unlinked}"


def compare_archs(
    database: FragmentDatabase,
    families: Iterable[str],
    targets: Sequence[Architecture],
    workers: int | None = None,
    on_link: Callable[[], object] = lambda: None,
) -> tuple[ArchGain, ...]:
    """Compare the images of each fragment for different architectures, by what they are linked to for each target.

    Returns:
        By group, target and architecture; nothing for fragments with one image that runs on a target.

    Raises:
        JitltoError: If nvJitLink is not installed.
    """
    nvjitlink.version()
    pairs: list[tuple[Fragment, Image, Image, Architecture]] = []
    for name in families:
        for fragment in database.iterate(name):
            for target in targets:
                images = _images_for(fragment, target)
                pairs += [(fragment, *both, target) for both in pairwise(images)]
    found: dict[tuple[str, str, str, str], list[tuple[MachineCode, MachineCode] | None]] = {}
    sizes: dict[tuple[str, str, str, str], int] = {}

    def link(pair: tuple[Fragment, Image, Image, Architecture]) -> tuple[MachineCode, MachineCode]:
        fragment, below, image, target = pair
        data = (database.read(each) for each in (below, image))
        one, other = (
            machine_code.compile_alone(each, fragment.provides, fragment.requires, _ISA, target) for each in data
        )
        return one, other

    for _, (fragment, below, image, target), result in run_parallel(link, pairs, workers):
        group = f"{fragment.key.family}/{fragment.key.group}"
        key = (group, target.sm, str(image.architecture), str(below.architecture))
        found.setdefault(key, []).append(None if isinstance(result, JitltoError) else result)
        sizes[key] = sizes.get(key, 0) + image.size
        on_link()
    gains = []
    for key in sorted(found, key=lambda key: (key[0], key[1], Architecture.parse(key[2]))):
        known = [codes for codes in found[key] if codes is not None]
        differing = [(one, other) for one, other in known if one.sha256 != other.sha256]
        before, after = (sum(codes[n].instructions for codes in differing) for n in (0, 1))
        missing = len(found[key]) - len(known)
        gains.append(ArchGain(*key, len(known), len(differing), before, after, sizes[key], missing))
    return tuple(gains)


def _images_for(fragment: Fragment, target: Architecture) -> list[Image]:
    """Return the LTO-IR of a fragment that can be linked for a target, by architecture."""
    fitting = (image for image in fragment.images_of(ImageKind.LTOIR) if runs_on(image.architecture, target))
    return sorted(fitting, key=lambda image: image.architecture)
