"""A family of callbacks for cuFFT, for each precision: a load that scales, and a store that adds."""

from pathlib import Path

from jitlto.runtime.family import KernelFamily
from tests.support.families import built

_GROUP = '[device.{0}]\nmatrix = "types.json"\ntemplate = "{0}.cu.jinja"\nkey = ["type"]\ninterface = false\n'
CALLBACKS = {
    "family.toml": '[family]\nname = "callbacks"\n' + "".join(map(_GROUP.format, ("scale", "shift"))),
    "types.json": '{"type": ["float", "double"]}',
    # As cufftXt.h declares cufftJITCallbackLoadC and cufftJITCallbackStoreC, and those of double.
    "scale.cu.jinja": """static __device__ {{type}} factor(const void* info, unsigned long long offset) {
  return static_cast<const {{type}}*>(info)[0] * static_cast<{{type}}>(offset % 7);
}
__device__ {{type}}2 scale(void* in, unsigned long long offset, void* info, void* shared) {
  const {{type}}2 value = static_cast<const {{type}}2*>(in)[offset];
  return {value.x * factor(info, offset), value.y * factor(info, offset)};
}
""",
    "shift.cu.jinja": """__device__ void shift(
    void* out, unsigned long long offset, {{type}}2 value, void* info, void* shared) {
  static_cast<{{type}}2*>(out)[offset] = {value.x + static_cast<const {{type}}*>(info)[1], value.y};
}
""",
}


def callbacks(directory: Path) -> KernelFamily:
    """Return the family, built in a directory."""
    return built(directory, CALLBACKS, "callbacks")
