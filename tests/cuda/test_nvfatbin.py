"""Fatbins: their images and architectures, also those within objects and archives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.versions import Architecture
from jitlto.cuda import nvfatbin, toolkit
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.record.fragment import ImageKind
from tests.support.compiled import BASE, compiled

TEXT = "__device__ float f(float a) { return a; }"


def fatbin(name: str) -> bytes:
    return nvfatbin.wrap(ImageKind.LTOIR, compiled(TEXT).ltoir[BASE], Architecture.parse(name))


@pytest.mark.parametrize("name", ["80", "90a", "100f"])
def test_the_architecture_of_an_image_has_its_suffix(name: str) -> None:
    if name == "100f" and toolkit.nvfatbin_version() < (12, 9):
        pytest.skip("nvFatbin knows no families")
    assert nvfatbin.find_fatbins(fatbin(name)) == [[(ImageKind.LTOIR, Architecture.parse(name))]]


def test_ptx_is_compressed_and_links_as_the_text_does() -> None:
    text = compiled('extern "C" __global__ void kernel(float* x) {' + "x[threadIdx.x] *= x[1];" * 99 + "}").ptx.encode()
    data = nvfatbin.wrap(ImageKind.PTX, text, BASE)
    assert len(data) < len(text) / 4
    assert nvfatbin.wrap(ImageKind.PTX, text, BASE) == data
    assert nvfatbin.find_fatbins(data) == [[(ImageKind.PTX, BASE)]]
    one, other = (LinkInput(kind, each, "x") for kind, each in ((InputKind.PTX, text), (InputKind.FATBIN, data)))
    assert link([one], Architecture(90), []).data == link([other], Architecture(90), []).data


def test_fatbins_are_found_wherever_they_lie_in_an_archive() -> None:
    data = b"!<arch>\nodd" + fatbin("80") + b"\x50\xed\x55\xba" + fatbin("90") + b"\x50\xed\x55"
    assert nvfatbin.find_fatbins(data) == [[(ImageKind.LTOIR, Architecture(n))] for n in (80, 90)]
    assert nvfatbin.holds_ltoir(data)
    assert not nvfatbin.holds_ltoir(b"!<arch>\n")
    # Each member is linked, so that one which does not fit is enough.
    unfit = {target: nvfatbin.find_unfit(data, Architecture(target)) for target in (75, 80, 90)}
    assert unfit == {75: ["compute_80"], 80: ["compute_90"], 90: []}


@given(st.binary(max_size=200), st.integers(0, 200), st.binary(max_size=20))
def test_damaged_fatbins_are_read_as_far_as_they_go(noise: bytes, at: int, patch: bytes) -> None:
    whole = fatbin("80")
    for data in (noise, whole[:at], whole[:at] + patch + whole[at + len(patch) :], b"\x50\xed\x55\xba" + noise):
        for images in nvfatbin.find_fatbins(data):
            assert images
