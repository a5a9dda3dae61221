"""The links of a check: failures by cause, and what nvJitLink cannot read."""

import time

from jitlto.base.errors import VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.check.links import require_readable
from jitlto.cuda import nvjitlink
from jitlto.link.parallel import run_parallel
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises


def test_a_caller_that_stops_does_not_wait_for_the_rest() -> None:
    taken = []

    def call(number: int) -> None:
        taken.append(number)
        time.sleep(0.01)

    outcomes = run_parallel(call, list(range(1000)), 2)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert len(taken) < 1000


def image(kind: ImageKind, version: Version, isa: Version | None = None) -> Image:
    return Image(kind, Architecture(75), "0" * 64, 1, "nvrtc", version, isa)


def test_a_database_that_nvjitlink_cannot_read_is_refused_in_one_message(mini: KernelFamily) -> None:
    newer = Version(99, 0)
    ltoir, ptx = image(ImageKind.LTOIR, newer), image(ImageKind.PTX, newer, Version(7, 0))

    def made(*images: Image) -> list[Fragment]:
        return [Fragment(FragmentKey.make("f", "k", {}), Role.DEVICE, "", (), (), (), images)]

    require_readable(mini.database.fragments("mini"), "x.fragdb")
    with raises(VersionError, "link-version", "f/k[]", "LTO-IR", "99.0", where="x.fragdb", hint="nvJitLink"):
        require_readable(made(ltoir, ptx), "x.fragdb")
    older = image(ImageKind.LTOIR, Version(11, 8))
    with raises(VersionError, "link-version", "11.8", hint=f"CUDA {nvjitlink.version().major}"):
        require_readable(made(older), "x.fragdb")
    for images in ((ptx,), ()):
        with raises(VersionError, "link-version-no-image", "f/k[]"):
            require_readable(made(*images), "x.fragdb")
