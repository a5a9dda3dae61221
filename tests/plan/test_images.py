"""The choice of images: fragments of several releases are linked in one way, or not at all."""

from jitlto.base.errors import VersionError
from jitlto.base.versions import Architecture, Version
from jitlto.plan.images import newest_foreign, select_image
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from tests.support.errors import raises


def made_by(*versions: str, ptx: bool = True) -> list[Fragment]:
    def images(version: str) -> tuple[Image, ...]:
        how = Architecture(75), "0" * 64, 1, "nvrtc", Version.parse(version)
        both = Image(ImageKind.LTOIR, *how), Image(ImageKind.PTX, *how, Version(8, 0))
        return both if ptx else both[:1]

    return [Fragment(FragmentKey.make("f", f"g{v}", {}), Role.DEVICE, "", (), (), (), images(v)) for v in versions]


def test_fragments_of_two_majors_link_as_ptx_or_not_at_all() -> None:
    linker, target = Version.parse("13.5"), Architecture(90)
    mixed = made_by("12.9", "13.5")
    assert newest_foreign((image for each in mixed for image in each.images), linker) == Version(12, 9)
    assert all(select_image(each, ImageKind.PTX, target, linker).kind is ImageKind.PTX for each in mixed)
    bare = made_by("12.9", "13.5", ptx=False)
    with raises(VersionError, "link-version-no-image", "12.9", "f/g12.9[]", hint="build the family with CUDA 13"):
        select_image(bare[0], ImageKind.PTX, target, linker)
