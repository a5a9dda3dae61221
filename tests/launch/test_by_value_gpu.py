"""What kernels read on a GPU of arguments by value: bit by bit what was passed, however it was passed."""

import ctypes
import enum
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import ArgumentError
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import built

pytestmark = pytest.mark.gpu


def ways(launcher: Any, *args: Any) -> Iterator[None]:
    """Launch in every way: the first launch, and later ones."""
    for _ in range(3):
        launcher(None, 1, 1, *args)
        yield


# --- the other kinds ---

_KINDS = {
    "family.toml": """
[family]
name = "kinds"
archs = ["75"]
options = ["--device-int128"]

[entrypoint.numbers]
matrix = "one.json"
template = "numbers.cu.jinja"

[entrypoint.large]
matrix = "one.json"
template = "large.cu.jinja"

[entrypoint.texture]
matrix = "one.json"
template = "texture.cu.jinja"
""",
    "one.json": "{}",
    "numbers.cu.jinja": """
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
namespace mine {
enum class color : signed char { red = -3 };
enum mode { fast, slow = 70000 };
enum class word : unsigned long long { high = 1ull << 63 };
}
__global__ void numbers(mine::color a, mine::mode b, mine::word c, cuda::std::uintptr_t d, cuda::std::size_t e,
                        cuda::std::ptrdiff_t f, __int128 g, unsigned __int128 h, long long* out) {
  out[0] = static_cast<long long>(a);
  out[1] = b;
  out[2] = static_cast<long long>(c);
  out[3] = static_cast<long long>(d);
  out[4] = static_cast<long long>(e);
  out[5] = f;
  out[6] = static_cast<long long>(g);
  out[7] = static_cast<long long>(g >> 64);
  out[8] = static_cast<long long>(h);
  out[9] = static_cast<long long>(h >> 64);
}
""",
    "large.cu.jinja": """
struct table { unsigned values[1000]; };
__global__ void large(const __grid_constant__ table t, unsigned* out, unsigned n) {
  if (threadIdx.x < n) out[threadIdx.x] = t.values[threadIdx.x];
}
""",
    "texture.cu.jinja": """
__global__ void texture(cudaTextureObject_t image, cudaSurfaceObject_t target, int width, float* out) {
  const int x = threadIdx.x, y = threadIdx.y;
  const float value = tex2D<float>(image, x + 0.5f, y + 0.5f);
  out[y * width + x] = value;
  surf2Dwrite(2.0f * value, target, 4 * x, y);
}
""",
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("kinds"), _KINDS, "kinds")


class Color(enum.Enum):
    RED = -3


def test_enums_and_wide_integers_arrive(kinds: KernelFamily) -> None:
    import cupy as cp

    launcher = kinds.launcher(entry="numbers")
    assert [p.type for p in launcher.signature[:3]] == ["enum mine::color", "enum mine::mode", "enum mine::word"]
    g, h = -(1 << 126) + 5, (1 << 128) - 7
    arguments = (Color.RED, 70000, 1 << 63, (1 << 64) - 2, 1 << 40, -9, g, h)
    expected = np.array([-3, 70000, -(1 << 63), -2, 1 << 40, -9, 5, -(1 << 62), -7, -1], np.int64)
    out = cp.zeros(10, np.int64)
    for _ in ways(launcher, *arguments, out):
        np.testing.assert_array_equal(cp.asnumpy(out), expected)
        out.fill(0)
    for place, wrong, case in ((0, 256, "range"), (1, "fast", "type"), (6, 1 << 127, "range"), (7, -1, "range")):
        with raises(ArgumentError, f"launch-argument-{case}"):
            launcher(None, 1, 1, *arguments[:place], wrong, *arguments[place + 1 :], out)


def test_a_structure_of_kilobytes_arrives(kinds: KernelFamily) -> None:
    import cupy as cp

    values = np.random.default_rng(1).integers(0, 1 << 32, 1000).astype(np.uint32)
    table = type("Table", (ctypes.Structure,), {"_fields_": [("values", ctypes.c_uint32 * 1000)]})
    out = cp.zeros(1000, np.uint32)
    for _ in range(3):
        kinds.launcher(entry="large")(None, 1, 1000, table.from_buffer_copy(values.tobytes()), out, 1000)
        np.testing.assert_array_equal(cp.asnumpy(out), values)
        out.fill(0)
    with raises(ArgumentError, "launch-argument-layout", "3996", "4000"):
        kinds.launcher(entry="large")(None, 1, 1000, values[1:].tobytes(), out, 1000)


def test_texture_and_surface_objects_arrive(kinds: KernelFamily) -> None:
    import cupy as cp
    from cupy.cuda import runtime, texture

    width, height = 8, 4
    image = cp.arange(width * height, dtype=np.float32).reshape(height, width)
    channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    source = texture.CUDAarray(channel, width, height)
    target = texture.CUDAarray(channel, width, height, 0, runtime.cudaArraySurfaceLoadStore)
    source.copy_from(image)
    read = texture.TextureObject(
        texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=source),
        texture.TextureDescriptor(
            (runtime.cudaAddressModeClamp,) * 2, runtime.cudaFilterModePoint, runtime.cudaReadModeElementType
        ),
    )
    write = texture.SurfaceObject(texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=target))
    out, copy = cp.zeros((height, width), np.float32), cp.zeros((height, width), np.float32)
    launcher = kinds.launcher(entry="texture")
    for _ in range(3):
        launcher(None, 1, (width, height), read, write, width, out)
        runtime.deviceSynchronize()
        cp.testing.assert_array_equal(out, image)
        target.copy_to(copy)
        cp.testing.assert_array_equal(copy, 2 * image)
        out.fill(0)


# --- tensor maps ---

_TENSOR_MAPS = {
    "family.toml": """
[family]
name = "maps"
archs = ["90"]

[entrypoint.tile]
matrix = "one.json"
template = "tile.cu.jinja"
""",
    "one.json": "{}",
    "map.cuh": """
#pragma once
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };  // as in cuda.h
""",
    "tile.cu.jinja": """
#include "map.cuh"
// Copies a tile of 8 rows and 16 columns at (x, y) by the tensor memory accelerator.
__global__ void tile(const __grid_constant__ CUtensorMap_st map, float* out, int x, int y) {
  __shared__ alignas(128) float values[128];
  __shared__ alignas(8) unsigned long long barrier;
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(values));
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(512) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, { %2, %3 }], [%4];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(at) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(at) : "memory");
  }
  out[threadIdx.x] = values[threadIdx.x];
}
""",
}


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    from cuda.core import Device

    if Device().compute_capability < (9, 0):
        pytest.skip("the device has no tensor memory accelerator")
    return built(tmp_path_factory.mktemp("maps"), _TENSOR_MAPS, "maps")


def encode_map(array: Any) -> Any:
    """A tensor map of ``cuda.bindings`` with tiles of 8 rows and 16 columns of a float32 array."""
    from cuda.bindings import driver

    rows, columns = array.shape
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        2,
        array.data.ptr,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(4 * columns)],
        [driver.cuuint32_t(16), driver.cuuint32_t(8)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    assert status == driver.CUresult.CUDA_SUCCESS
    return made


def test_a_tile_is_copied_by_a_tensor_map(maps: KernelFamily) -> None:
    import cupy as cp

    launcher = maps.launcher(entry="tile")
    array = cp.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    cp.cuda.runtime.deviceSynchronize()
    descriptor = encode_map(array)
    out = cp.zeros((8, 16), np.float32)
    for _ in range(3):
        launcher(None, 1, 128, descriptor, out, 16, 8)
        cp.testing.assert_array_equal(out, array[8:16, 16:32])
        out.fill(0)
