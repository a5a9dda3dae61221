"""The other way to have a callback: a pointer to a device function, in constant memory, called by the kernel.

A source here takes the place of a group. What it defines calls whatever a variable in constant memory points to, as
a kernel does whose library was compiled before its caller's function was written: the host may write another address
there before any launch, so no compiler or linker may look through it. What it points to from the beginning is the
family's own function, from the same headers as the linked fragments.
"""

from collections.abc import Mapping

from jitlto.base.versions import Architecture
from jitlto.plan.plan import Plan
from jitlto.plan.planner import Planner
from tests.benchmarks.families.compile import compile_text
from tests.benchmarks.families.databases import declared, rendered

_IVF_FLAT = """
#include "{element_header}"
#include "metric.cuh"
#define accumulate add_up
#include "{metric_header}"
#undef accumulate

namespace ivf_flat {{
using packed_chunk = packed_t<{data_type}, {veclen}>;
__device__ __noinline__ {acc_type} pointed_to({acc_type} sum, packed_chunk query, packed_chunk vector) {{
  return add_up<{data_type}, {acc_type}, {veclen}>(sum, query, vector);
}}
__constant__ {acc_type} (*callback)({acc_type}, packed_chunk, packed_chunk) = &pointed_to;
template <>
__device__ {acc_type} accumulate<{data_type}, {acc_type}, {veclen}>({acc_type} sum, packed_chunk query,
                                                                  packed_chunk vector) {{
  return callback(sum, query, vector);
}}
template __device__ float to_distance<{data_type}, {acc_type}, {veclen}>({acc_type});
}}  // namespace ivf_flat
"""

_FFT = """
#include "fft_load.cuh"
#include "fft_store.cuh"
#include "load_{load}.cuh"
#include "store_{store}.cuh"

__device__ __noinline__ {load_value} read_element(const {load_type}* data, unsigned int row, unsigned int index,
                                                  unsigned int length, void* info) {{
  return fft::load_{load}(data, row, index, length, info);
}}
__device__ __noinline__ void write_element({store_type}* data, unsigned int row, unsigned int index,
                                           unsigned int length, {store_value} value, void* info) {{
  fft::store_{store}(data, row, index, length, value, info);
}}
__constant__ {load_value} (*load_callback)(const {load_type}*, unsigned int, unsigned int, unsigned int,
                                           void*) = &read_element;
__constant__ void (*store_callback)({store_type}*, unsigned int, unsigned int, unsigned int, {store_value},
                                    void*) = &write_element;
__device__ {load_value} fft_load(const {load_type}* data, unsigned int row, unsigned int index, unsigned int length,
                                 void* info) {{
  return load_callback(data, row, index, length, info);
}}
__device__ void fft_store({store_type}* data, unsigned int row, unsigned int index, unsigned int length,
                          {store_value} value, void* info) {{
  store_callback(data, row, index, length, value, info);
}}
"""

_TRANSPORT = """
#include "get_cross_sections.cuh"
#define get_cross_sections look_up
#include "{implementation}"
#undef get_cross_sections

namespace transport {{
__constant__ cross_sections (*callback)(const transport::problem&, uint32_t, uint32_t) = &look_up;
__device__ cross_sections get_cross_sections(const problem& problem, uint32_t material, uint32_t group) {{
  return callback(problem, material, group);
}}
}}  // namespace transport
"""

#: Which groups are called through pointers, and which one is not link-time optimised in a mixed link.
GROUPS = {"ivf_flat": ("metric",), "fft": ("fft_load", "fft_store"), "transport": ("get_cross_sections",)}
NOT_OPTIMISED = {"ivf_flat": "metric", "fft": "fft_load", "transport": "get_cross_sections"}


def source(plan: Plan) -> str:
    """What takes the place of the groups in a plan."""
    name = plan.family
    values: dict[str, str] = {}
    for fragment in plan.fragments:
        if fragment.key.group in GROUPS[name]:
            values |= rendered(name)[fragment.key].combination
    if name == "fft":
        values |= _elements(plan.configuration)
    return {"ivf_flat": _IVF_FLAT, "fft": _FFT, "transport": _TRANSPORT}[name].format(**values)


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
    """The plan with pointers in place of linked functions.

    Raises
    ------
    RuntimeError
        If no call through a pointer is left.
    """
    text = source(plan)
    options = ("--relocatable-device-code=true", "-dlto")
    data = compile_text(text, declared(plan.family), compiled_for.compute, "ltoir", options)
    pointing = planner.add_ltoir(data, "pointers.ltoir").plan(arch=target)
    if "callprototype" not in pointing.link_ptx():  # how PTX says what is called through a pointer
        raise RuntimeError(f"the linker has looked through the pointers of {plan}")
    return pointing
