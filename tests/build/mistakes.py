"""Mistakes that authors make: each is one edit of a small family, with the place and the words of what a build says.

``python -m tests.build.mistakes`` prints the table of docs/errors.md.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.families import write_family

#: A kernel that calls a function of a group, for two types.
TINY = {
    "family.toml": """[family]
name = "tiny"
include = ["."]

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["type"]
params = ["{{type}}* x", "unsigned n"]

[device.op]
matrix = "op.json"
template = "op.cu.jinja"
key = ["type"]
interface = "op.cuh"
""",
    "kern.json": '{\n  "type": ["float", "double"]\n}\n',
    "op.json": '{\n  "type": [\n    "float",\n    "double"\n  ]\n}\n',
    "op.cuh": "#pragma once\ntemplate <class T> __device__ T op(T a);\n",
    "kern.cu.jinja": """#include "op.cuh"

template <class T>
__global__ void kern(T* x, unsigned n) {
  if (threadIdx.x < n) x[threadIdx.x] = op<T>(x[threadIdx.x]);
}
template __global__ void kern<{{type}}>({{type}}*, unsigned);
""",
    "op.cu.jinja": """#include "op.cuh"

template <class T>
__device__ T op(T a) {
  return a + a;
}
template __device__ {{type}} op<{{type}}>({{type}});
""",
}
TEMPLATE_FREE = TINY | {
    "op.cuh": '#pragma once\nextern "C" __device__ float op(float a);\n',
    "kern.cu.jinja": """#include "op.cuh"

template <class T>
__global__ void kern(T* x, unsigned n) {
  if (threadIdx.x < n) x[threadIdx.x] = op(x[threadIdx.x]);
}
template __global__ void kern<{{type}}>({{type}}*, unsigned);
""",
    "op.cu.jinja": '#include "op.cuh"\n\nextern "C" __device__ float op(float a) {\n  return a + a;\n}\n',
    "op.json": "{}\n",
    "family.toml": TINY["family.toml"].replace('"op.cu.jinja"\nkey = ["type"]', '"op.cu.jinja"\nkey = []'),
}


@dataclass(frozen=True)
class Mistake:
    """One edit, and what is said of it.

    Parameters
    ----------
    file, old, new : str
        The edit: a text of the file, and what an author wrote in its place; without a text, the whole file.
    at : str
        The file that the first line of the message names.
    line : str
        A text of that line; empty if the message names the file alone.
    code : str
    names : tuple of str
        What the message has beside.
    base : dict
        The family that is edited.
    more : dict
        Further files.
    """

    file: str
    old: str
    new: str | None
    at: str
    line: str
    code: str
    names: tuple[str, ...]
    base: dict[str, str] = field(default_factory=lambda: TINY)
    more: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> Path:
        """Write the family with the mistake; returns the path of its ``family.toml``."""
        files = self.base | self.more
        if self.new is None:
            files = {name: text for name, text in files.items() if name != self.file}
        else:
            assert self.old in files.get(self.file, ""), self.file
            text = files.get(self.file, "")
            files |= {self.file: text.replace(self.old, self.new, 1) if self.old else self.new}
        return write_family(directory, files)


MISTAKES = {
    "a typo in a value of a kernel": Mistake(
        "kern.json",
        '"double"',
        '"duoble"',
        "kern.cu.jinja",
        "template __global__",
        "compile",
        ("duoble", "type=duoble", "kern.json:2:21: has type=duoble", "did you mean 'double'?"),
    ),
    "a typo in a value of two words": Mistake(
        "kern.json",
        '"double"',
        '"unsigned itn"',
        "kern.cu.jinja",
        "template __global__",
        "compile",
        ("kern.json:2:21: has type=unsigned itn", "did you mean 'int'?"),
    ),
    "a typo in a matrix in family.toml": Mistake(
        "family.toml",
        'matrix = "op.json"',
        'matrix = {type = [\n  "float",\n  "duoble",\n]}',
        "op.cu.jinja",
        "template __device__",
        "compile",
        ("family.toml:14:3: has type=duoble", "did you mean 'double'?"),
    ),
    "a number in a matrix in family.toml": Mistake(
        "family.toml",
        'matrix = "op.json"',
        'matrix = {type = [\n  "float",\n  4,\n]}',
        "family.toml",
        "4,",
        "matrix-not-a-string",
        ("[device.op]", '"4"'),
    ),
    "a value that the other matrix lacks": Mistake(
        "op.json", ',\n    "double"', "", "kern.json", '"double"', "plan-missing-provider", ("type=double", "op")
    ),
    "a typo in the name of a matrix": Mistake(
        "family.toml", '"op.json"', '"opp.json"', "family.toml", '"opp.json"', "family-missing-file", ("opp.json",)
    ),
    "a template that is not there": Mistake(
        "op.cu.jinja", "", None, "family.toml", '"op.cu.jinja"', "family-missing-file", ("op.cu.jinja",)
    ),
    "an interface that is not there": Mistake(
        "family.toml", '"op.cuh"', '"pp.cuh"', "family.toml", '"pp.cuh"', "family-interface", ("'pp.cuh'",)
    ),
    "a group that is not there": Mistake(
        "family.toml",
        TINY["family.toml"][TINY["family.toml"].index("[device") :],
        "",
        "kern.cu.jinja",
        "op<T>",
        "plan-missing-provider",
        ("op<double>",),
    ),
    "another type in the declaration": Mistake(
        "op.cuh",
        "float op(float",
        "float op(double",
        "op.cu.jinja",
        "float op",
        "compile",
        ("op.cuh:2", "op.cu.jinja:3"),
        TEMPLATE_FREE,
    ),
    "another type in the definition": Mistake(
        "op.cu.jinja",
        "__device__ float op",
        "__device__ double op",
        "op.cu.jinja",
        "double op",
        "compile",
        ("op.cuh:2",),
        TEMPLATE_FREE,
    ),
    "another type in the definition of a template": Mistake(
        "op.cu.jinja",
        "T op(T a) {\n  return a + a",
        "T op(T* a) {\n  return *a",
        "op.cu.jinja",
        "template <class T>",
        "compile",
        ("defines op unlike its interface", "op.cuh:2", "op.cu.jinja:3"),
    ),
    "another type in the instantiation": Mistake(
        "op.cu.jinja",
        "op<{{type}}>({{type}})",
        "op<{{type}}>(int)",
        "op.cu.jinja",
        "op<{{type}}>(int)",
        "compile",
        ("op",),
    ),
    "a static kernel": Mistake(
        "kern.cu.jinja",
        "template <class T>\n__global__",
        "template <class T>\nstatic __global__",
        "kern.cu.jinja",
        "static __global__",
        "build-no-kernel",
        ("static",),
    ),
    'an interface without extern "C"': Mistake(
        "op.cuh", 'extern "C" ', "", "op.cu.jinja", "float op", "compile", ("op.cuh:2",), TEMPLATE_FREE
    ),
    "two groups that define a function": Mistake(
        "family.toml",
        "[device.op]",
        TINY["family.toml"][TINY["family.toml"].index("[device") :].replace("device.op", "device.copy")
        + "\n[device.op]",
        "op.cu.jinja",
        "T op(",
        "plan-ambiguous-fragments",
        ("tiny/op[", "tiny/copy["),
    ),
    "a helper in a header that is not inline": Mistake(
        "op.cuh",
        "#pragma once\n",
        "#pragma once\n__device__ int half_of(int a) { return a / 2; }\n",
        "op.cuh",
        "half_of",
        "plan-duplicate-definition",
        ("half_of(int)", "inline"),
    ),
    "an error in a header": Mistake(
        "op.cuh", "T op(T a);", "T op(T a)", "op.cuh", "T op", "build-interface-alone", ("op.cuh",)
    ),
    "an undefined name in a header": Mistake(
        "op.cuh", "T op(T a);", "T op(size a);", "op.cuh", "size", "build-interface-alone", ("size",)
    ),
    "an undefined name in a kernel": Mistake(
        "kern.cu.jinja", "threadIdx.x < n", "threadIdx.x < m", "kern.cu.jinja", "< m", "compile", ('"m"', "type=float")
    ),
    "an undefined name in a template": Mistake(
        "op.cu.jinja", "{{type}} op", "{{typ}} op", "op.cu.jinja", "{{typ}}", "render-undefined", ("'typ'", "'type'")
    ),
    "a malformed template": Mistake(
        "op.cu.jinja", "{{type}} op", "{{type} op", "op.cu.jinja", "{{type} op", "render-syntax", ()
    ),
    "a parameter that nothing uses": Mistake(
        "op.json", '{\n  "type"', '{\n  "size": "4",\n  "type"', "op.json", '"size"', "matrix-idle", ("size",)
    ),
    "a key that nothing uses": Mistake(
        "family.toml",
        'key = ["type"]\ninterface',
        'key = ["type", "size"]\ninterface',
        "family.toml",
        '"size"',
        "family-unused-key",
        ("size",),
        more={"op.json": TINY["op.json"].replace("{\n", '{\n  "size": "4",\n', 1)},
    ),
    "an option that belongs elsewhere": Mistake(
        "family.toml",
        'include = ["."]',
        'options = ["-maxrregcount=32"]',
        "family.toml",
        "options",
        "family-option",
        ("maxrregcount",),
    ),
    "an unknown architecture": Mistake(
        "family.toml",
        'include = ["."]',
        'archs = ["sm_9x"]',
        "family.toml",
        "archs",
        "family-invalid-value",
        ("sm_9x",),
    ),
    "an architecture that the compiler lacks": Mistake(
        "family.toml", 'include = ["."]', 'archs = ["35"]', "family.toml", "archs", "compile-options", ("35",)
    ),
    "an unsupported std": Mistake(
        "family.toml", 'include = ["."]', 'std = "c++99"', "family.toml", "std", "compile-options", ("c++99",)
    ),
    "malformed TOML": Mistake(
        "family.toml", 'name = "tiny"', "name = tiny", "family.toml", "name", "family-syntax", ()
    ),
    "malformed JSON": Mistake("op.json", '"float",', '"float"', "op.json", '"double"', "matrix-not-json", ()),
    "a number in a matrix": Mistake("op.json", '"float"', "4", "op.json", "4,", "matrix-not-a-string", ('"4"',)),
    "a member of a matrix twice": Mistake(
        "op.json",
        '  "type"',
        '  "type": "int",\n  "type"',
        "op.json",
        '"type": [',
        "matrix-duplicate-member",
        ("'type'",),
    ),
    "a combination twice": Mistake(
        "op.json",
        '"double"',
        '"double",\n    "float"',
        "op.json",
        '"float"\n',
        "matrix-identical-combinations",
        ("type=float",),
    ),
    "two combinations of one key": Mistake(
        "op.json", "{\n", '{\n  "n": ["1", "2"],\n', "family.toml", 'key = ["type"]\ni', "family-duplicate-key", ("n",)
    ),
    "an unknown key in family.toml": Mistake(
        "family.toml",
        "interface",
        "interfce",
        "family.toml",
        "interfce",
        "family-unknown-key",
        ("'interfce'", "'interface'"),
    ),
    "two groups of one name": Mistake(
        "family.toml",
        "[device.op]",
        "[device.kern]",
        "family.toml",
        "[device.kern]",
        "family-duplicate-group",
        ("'kern'",),
    ),
    "an include that is not there": Mistake(
        "op.cu.jinja", '"op.cuh"', '"opp.cuh"', "op.cu.jinja", "opp.cuh", "compile-missing-header", ("opp.cuh",)
    ),
    "a header of the host": Mistake(
        "op.cu.jinja",
        '#include "op.cuh"',
        '#include "op.cuh"\n#include <vector>',
        "op.cu.jinja",
        "<vector>",
        "compile-missing-header",
        ("host",),
    ),
    "too few params": Mistake(
        "family.toml",
        ', "unsigned n"]',
        "]",
        "family.toml",
        "params",
        "build-params-mismatch",
        ("2 parameters", "kern.cu.jinja:4"),
    ),
    "params of another type": Mistake(
        "family.toml",
        '"unsigned n"',
        '"float n"',
        "family.toml",
        "float n",
        "build-params-mismatch",
        ("'n'", "unsigned int", "kern.cu.jinja:4"),
    ),
    "a malformed entry of params": Mistake(
        "family.toml",
        '"unsigned n"',
        '"unsigned n["',
        "family.toml",
        "unsigned n[",
        "build-params-syntax",
        ("unsigned n[",),
    ),
    "a key that the matrix lacks": Mistake(
        "family.toml",
        'key = ["type"]\ninterface',
        'key = ["tpye"]\ninterface',
        "family.toml",
        "tpye",
        "family-missing-key-parameter",
        ("'tpye'", "'type'"),
    ),
    "an interface that declares nothing": Mistake(
        "op.cuh", "template <class T> __device__ T op(T a);\n", "", "kern.cu.jinja", "op<T>", "compile", ("op",)
    ),
    "a kernel that is not instantiated": Mistake(
        "kern.cu.jinja",
        "template __global__ void kern<{{type}}>({{type}}*, unsigned);\n",
        "using type = {{type}};\n",
        "kern.cu.jinja",
        "__global__",
        "build-no-kernel",
        ("instantiate",),
    ),
    "a template that does not use its key": Mistake(
        "op.cu.jinja",
        "template __device__ {{type}} op<{{type}}>({{type}});",
        "template __device__ float op<float>(float);",
        "family.toml",
        'key = ["type"]\ni',
        "family-same-source",
        ("op.cu.jinja", "depends on type"),
    ),
    "an entry that is not there": Mistake(
        "family.toml",
        'key = ["type"]\nparams',
        'key = ["type"]\nentry = "other"\nparams',
        "family.toml",
        "entry =",
        "build-no-kernel",
        ("'other'",),
    ),
    "a kernel in a device group": Mistake(
        "op.cu.jinja",
        "#include",
        "__global__ void more() {}\n#include",
        "op.cu.jinja",
        "more()",
        "build-unexpected-kernel",
        ("more",),
    ),
    "a function that is not instantiated": Mistake(
        "op.cu.jinja",
        "template __device__ {{type}} op<{{type}}>({{type}});",
        "using type = {{type}};",
        "op.cu.jinja",
        "__device__",
        "build-nothing-provided",
        ("instantiat",),
    ),
    "a source that uses the clock": Mistake(
        "op.cu.jinja",
        "return a + a",
        "return a + sizeof(__DATE__)",
        "op.cu.jinja",
        "__DATE__",
        "build-not-reproducible",
        ("__DATE__",),
    ),
}


def table() -> str:
    """Return the table for readers: what the first line names, its code, and the mistakes of which it is said."""
    kinds = {"family.toml": "`family.toml`", "cu.jinja": "template", "json": "matrix", "cuh": "header"}
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, mistake in MISTAKES.items():
        kind = next(kind for end, kind in kinds.items() if mistake.at.endswith(end))
        rows[kind, mistake.code].append(re.sub(r"^an? ", "", name))
    lines = [f"| {kind}, `{code}` | {'; '.join(names)} |" for (kind, code), names in sorted(rows.items())]
    return "\n".join(["| first line | mistakes |", "| --- | --- |", *lines])


if __name__ == "__main__":
    print(table())
