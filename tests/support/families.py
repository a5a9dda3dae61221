"""Small families for tests, as files: name → text."""

from functools import cache
from pathlib import Path

from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily

#: Kernels over float and double that call ``op``, of which there are two: 2 + 4 fragments, 4 kernels.
MINI = {
    "family.toml": """
[family]
name = "mini"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type"]
params = ["{{data_type}}* x", "unsigned n"]

[device.op]
matrix = "op.json"
template = "op.cu.jinja"
key = ["data_type", "op_name"]
interface = "op.cuh"
""",
    "kern.json": '{"data_type": ["float", "double"]}',
    "op.json": """{
  "data_type": ["float", "double"],
  "_op": [{"op_name": "twice", "expr": "a + a"}, {"op_name": "square", "expr": "a * a"}]
}""",
    "op.cuh": """#pragma once
namespace mini {
template <typename T> __device__ T op(T a);
}
""",
    "kern.cu.jinja": """#include "op.cuh"
namespace mini {
template <typename T> __global__ void kern(T* x, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = op<T>(x[i]);
}
template __global__ void kern<{{data_type}}>({{data_type}}*, unsigned);
}
""",
    "op.cu.jinja": """#include "op.cuh"
namespace mini {
template <typename T> __device__ T op(T a) { return {{expr}}; }
template __device__ {{data_type}} op<{{data_type}}>({{data_type}});
}
""",
}


def calling_op(name: str, declaration: str, kernel: str, settings: str = "") -> dict[str, str]:
    """A family of one kernel, whose callers supply ``op``.

    Parameters
    ----------
    name : str
    declaration : str
        Of ``op``, the text of ``op.cuh``.
    kernel : str
        What follows the include of it.
    settings : str, optional
        Further lines of ``[family]``.
    """
    return {
        "family.toml": f'''
[family]
name = "{name}"
{settings}
[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"

[device.op]
supplied = true
interface = "op.cuh"
''',
        "kern.json": "{}",
        "op.cuh": f"#pragma once\n{declaration}\n",
        "kern.cu.jinja": f'#include "op.cuh"\n{kernel}\n',
    }


def tiered(files: dict[str, str], name: str = "mini", sass: str = '"90"') -> dict[str, str]:
    """A family whose kernels have two tiers."""
    toml = files["family.toml"].replace(f'"{name}"\n', f'"{name}"\nsass = [{sass}]\n', 1)
    return files | {"family.toml": f"{toml}\n[link]\ntiered = true\n"}


def write_family(directory: Path, files: dict[str, str]) -> Path:
    """Write a family's files; returns the path of its ``family.toml``."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return directory / "family.toml"


@cache
def compiler() -> ProcessExecutor:
    """One worker for the small families of a run: to start one takes as long as to compile such a family."""
    return ProcessExecutor(1)


def built(directory: Path, files: dict[str, str], name: str) -> KernelFamily:
    """The family ``name``, built from its files in a directory."""
    families = [declaration.load_family(write_family(directory, files))]
    report = build(families, directory / "built.fragdb", executor=compiler())
    return KernelFamily(name, FragmentDatabase(report.path))


#: Two families that share the groups of a third; keys are paths below one directory.
SHARED = {
    "common/family.toml": """
[family]
name = "common"

[device.scale]
matrix = "scale.json"
template = "scale.cu.jinja"
key = ["data_type", "scale_name"]
interface = "scale.cuh"
""",
    "common/scale.json": """{
  "data_type": ["float", "double"],
  "_scale": [{"scale_name": "twice", "expr": "a + a"}, {"scale_name": "half", "expr": "a / 2"}]
}""",
    "common/scale.cuh": "#pragma once\ntemplate <typename T> __device__ T scale(T a);\n",
    "common/scale.cu.jinja": """#include "scale.cuh"
template <typename T> __device__ T scale(T a) { return {{expr}}; }
template __device__ {{data_type}} scale<{{data_type}}>({{data_type}});
""",
} | {
    f"{name}/{file}": text
    for name, types, expression in (
        ("search", '["float", "double"]', "scale(x[threadIdx.x])"),
        ("cluster", '"float"', "-scale(x[threadIdx.x])"),
    )
    for file, text in {
        "family.toml": f"""
[family]
name = "{name}"

[use]
common = "../common/family.toml"

[entrypoint.{name}_kernel]
matrix = "kernel.json"
template = "kernel.cu.jinja"
key = ["data_type"]
params = ["{{{{data_type}}}}* x"]
""",
        "kernel.json": f'{{"data_type": {types}}}',
        "kernel.cu.jinja": f"""#include "scale.cuh"
template <typename T> __global__ void {name}_kernel(T* x) {{ x[threadIdx.x] = {expression}; }}
template __global__ void {name}_kernel<{{{{data_type}}}}>({{{{data_type}}}}*);
""",
    }.items()
}

#: Kernels that convert numbers, some of them by an instruction that only later architectures have.
CONVERT = {
    "family.toml": """
[family]
name = "convert"
archs = "auto"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["from_type", "count"]
params = ["const {{from_type}}* values", "void* results", "unsigned n"]

[device.store]
matrix = "store.json"
template = "store.cu.jinja"
key = ["from_type", "to_type"]
interface = "store.cuh"
""",
    "kern.json": '{"from_type": ["float", "__half"], "count": "8"}',
    "store.json": """{"_types": [
  {"from_type": "float", "to_type": ["__nv_bfloat16", "float"]},
  {"from_type": "__half", "to_type": ["__nv_fp8_e4m3", "__half"]}
]}""",
    "store.cuh": """#pragma once
#include <cuda_bf16.h>
#include <cuda_fp8.h>
template <typename T> __device__ void store(T value, void* results, unsigned index);
""",
    "kern.cu.jinja": """#include "store.cuh"
template <typename T> __global__ void kern(const T* values, void* results, unsigned n) {
  for (unsigned i = 0; i < {{count}}; ++i) {
    const unsigned index = (blockIdx.x * blockDim.x + threadIdx.x) * {{count}} + i;
    if (index < n) store<T>(values[index], results, index);
  }
}
template __global__ void kern<{{from_type}}>(const {{from_type}}*, void*, unsigned);
""",
    "store.cu.jinja": """#include "store.cuh"
template <typename T> __device__ void store(T value, void* results, unsigned index) {
  static_cast<{{to_type}}*>(results)[index] = static_cast<{{to_type}}>(value);
}
template __device__ void store<{{from_type}}>({{from_type}}, void*, unsigned);
""",
}
