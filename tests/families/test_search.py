"""The family ``search``: all of its kernels plan, a covering set links for every target, and no call is left."""

import pytest

from jitlto.cuda import nvjitlink
from jitlto.runtime.family import KernelFamily
from tests.support.shipped import ARCHS, check_links, check_plans, check_ptx_keeps_calls, cover


def test_there_are_4_kernels_of_each_entrypoint(search: KernelFamily) -> None:
    check_plans(search, 4)


@pytest.mark.parametrize("arch", ["sm_90", *ARCHS])
def test_kernels_link_and_nothing_is_left_to_call(search: KernelFamily, arch: str) -> None:
    check_links(search, arch, cover(search, 2 if arch == "sm_90" else 1))


def test_ptx_links_too_and_keeps_the_calls(search: KernelFamily) -> None:
    check_ptx_keeps_calls(search, next(search.configurations()))


def test_the_fragments_link_with_the_nvjitlink_at_hand(search: KernelFamily) -> None:
    linker = nvjitlink.version()
    versions = {image.version for f in search.database.fragments("search") for image in f.images}
    assert all(version.major == linker.major and version <= linker for version in versions)
