"""The other way to have a callback: a pointer to a device function, in constant memory, called by the kernel.

A source here takes the place of a group. What it defines calls whatever ``callbacks`` points to, as a kernel does whose
library was compiled before its caller's function was written. The kernel ``callback_addresses`` tells where in the
device's memory the functions are; they are the family's own, from the same headers as the linked fragments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitlto.runtime.plan import Plan
from jitlto.runtime.planner import Planner
from jitlto.versions import Architecture
from tests.benchmarks.families.compile import compile_text
from tests.benchmarks.families.databases import declared, rendered

_TAIL = """
extern "C" __global__ void callback_addresses(void** out) {{
{body}
}}
"""

_IVF_FLAT = """
#include "{element_header}"
#include "metric.cuh"
#define accumulate add_up
#include "{metric_header}"
#undef accumulate

extern "C" {{ __constant__ void* callbacks[1]; }}

namespace ivf_flat {{
using packed_chunk = packed_t<{data_type}, {veclen}>;
__device__ __noinline__ {acc_type} pointed_to({acc_type} sum, packed_chunk query, packed_chunk vector) {{
  return add_up<{data_type}, {acc_type}, {veclen}>(sum, query, vector);
}}
using function = {acc_type} (*)({acc_type}, packed_chunk, packed_chunk);
template <>
__device__ {acc_type} accumulate<{data_type}, {acc_type}, {veclen}>({acc_type} sum, packed_chunk query,
                                                                  packed_chunk vector) {{
  return reinterpret_cast<function>(callbacks[0])(sum, query, vector);
}}
template __device__ float to_distance<{data_type}, {acc_type}, {veclen}>({acc_type});
}}  // namespace ivf_flat
"""

_FFT = """
#include "fft_load.cuh"
#include "fft_store.cuh"
#include "load_{load}.cuh"
#include "store_{store}.cuh"

extern "C" {{ __constant__ void* callbacks[2]; }}

__device__ __noinline__ {load_value} read_element(const {load_type}* data, unsigned int row, unsigned int index,
                                                  unsigned int length, void* info) {{
  return fft::load_{load}(data, row, index, length, info);
}}
__device__ __noinline__ void write_element({store_type}* data, unsigned int row, unsigned int index,
                                           unsigned int length, {store_value} value, void* info) {{
  fft::store_{store}(data, row, index, length, value, info);
}}
__device__ {load_value} fft_load(const {load_type}* data, unsigned int row, unsigned int index, unsigned int length,
                                 void* info) {{
  using function = {load_value} (*)(const {load_type}*, unsigned int, unsigned int, unsigned int, void*);
  return reinterpret_cast<function>(callbacks[0])(data, row, index, length, info);
}}
__device__ void fft_store({store_type}* data, unsigned int row, unsigned int index, unsigned int length,
                          {store_value} value, void* info) {{
  using function = void (*)({store_type}*, unsigned int, unsigned int, unsigned int, {store_value}, void*);
  reinterpret_cast<function>(callbacks[1])(data, row, index, length, value, info);
}}
"""

_TRANSPORT = """
#include "get_cross_sections.cuh"
#define get_cross_sections look_up
#include "{implementation}"
#undef get_cross_sections

extern "C" {{ __constant__ void* callbacks[1]; }}

namespace transport {{
__device__ cross_sections get_cross_sections(const problem& problem, uint32_t material, uint32_t group) {{
  using function = cross_sections (*)(const transport::problem&, uint32_t, uint32_t);
  return reinterpret_cast<function>(callbacks[0])(problem, material, group);
}}
}}  // namespace transport
"""

#: Which groups are called through pointers, and which one is not link-time optimised in a mixed link.
GROUPS = {"ivf_flat": ("metric",), "fft": ("fft_load", "fft_store"), "transport": ("get_cross_sections",)}
NOT_OPTIMISED = {"ivf_flat": "metric", "fft": "fft_load", "transport": "get_cross_sections"}
_FUNCTIONS = {
    "ivf_flat": ("&ivf_flat::pointed_to",),
    "fft": ("&read_element", "&write_element"),
    "transport": ("&transport::look_up",),
}


def source(plan: Plan) -> str:
    """What takes the place of the groups in a plan."""
    name = plan.family
    values: dict[str, str] = {}
    for fragment in plan.fragments:
        if fragment.key.group in GROUPS[name]:
            values |= rendered(name)[fragment.key].combination
    if name == "fft":
        values |= _elements(plan.configuration)
    text = {"ivf_flat": _IVF_FLAT, "fft": _FFT, "transport": _TRANSPORT}[name].format(**values)
    body = "\n".join(f"  out[{n}] = (void*)({function});" for n, function in enumerate(_FUNCTIONS[name]))
    return text + _TAIL.format(body=body)


def _elements(configuration: Mapping[str, str]) -> dict[str, str]:
    """The types in which a transform's elements are stored and computed with."""
    real = configuration["data_type"]
    computed = "double" if real == "double" else "float"
    complex_types = {"float": "float2", "double": "double2", "__half": "__half2"}
    of_complex, of_real = (complex_types[real], complex_types[computed]), (real, computed)
    kind = configuration["kind"]
    load, store = (of_real if kind == "r2c" else of_complex), (of_real if kind == "c2r" else of_complex)
    return {"load_type": load[0], "load_value": load[1], "store_type": store[0], "store_value": store[1]}


def with_pointers(planner: Planner, plan: Plan, compiled_for: Architecture, target: Architecture) -> Plan:
    """The plan with pointers in place of linked functions."""
    text = source(plan)
    options = ("--relocatable-device-code=true", "-dlto")
    data = compile_text(text, declared(plan.family), compiled_for.compute, "ltoir", options)
    return planner.add_ltoir(data, "pointers.ltoir").plan(arch=target)


def install(launcher: Any) -> None:
    """Write the functions' addresses where a kernel that was linked so looks for them."""
    import cupy as cp
    from cuda.bindings import driver
    from cuda.core import Device, LaunchConfig, launch

    count = len(_FUNCTIONS[launcher.plan.family])
    addresses = cp.zeros(count, cp.uint64)
    cp.cuda.Device().synchronize()
    code = launcher._code
    launch(
        Device().default_stream,
        LaunchConfig(grid=1, block=1),
        code.get_kernel("callback_addresses"),
        addresses.data.ptr,
    )
    Device().sync()
    status, place, size = driver.cuLibraryGetGlobal(driver.CUlibrary(int(code.handle)), b"callbacks")
    if int(status) or size != 8 * count or not bool(addresses.all()):
        raise RuntimeError(f"pointers to callbacks: {status}, {size} bytes, {addresses}")
    cp.cuda.runtime.memcpy(int(place), addresses.data.ptr, 8 * count, cp.cuda.runtime.memcpyDeviceToDevice)
