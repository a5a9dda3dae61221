"""Strategies for families that nobody would write on purpose: declarations, matrices, templates and CUDA sources.

A family is drawn as files (name → content), starting from a sound one, with some of it replaced by something odd.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.families import MINI

#: How many times the ordinary number of examples, e.g. ``JITLTO_FUZZ=100 pytest tests/build/test_fuzz_build.py``.
EFFORT = int(os.environ.get("JITLTO_FUZZ", "1"))


class Odd(Enum):
    """What may stand at a file's place that is no file."""

    DIRECTORY = "directory"
    FIFO = "fifo"
    LOOP = "loop"
    DANGLING = "dangling"


Files = Mapping[str, "bytes | Odd"]


class Hang(BaseException):
    """Something took longer than any answer may; no ``except Exception`` on its way stops it."""


def effort(examples: int) -> settings:
    """Settings for so many examples, times the effort asked for, each as slow as it needs to be."""
    return settings(max_examples=examples * EFFORT, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise :class:`Hang` if the body takes longer."""

    def stop(*_: object) -> None:
        raise Hang(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def write(directory: Path, files: Files) -> Path:
    """Write a family's files; returns the path of its ``family.toml``."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is Odd.DIRECTORY:
            path.mkdir()
        elif content is Odd.FIFO:
            os.mkfifo(path)
        else:
            path.symlink_to(path.name if content is Odd.LOOP else "nothing")
    return directory / "family.toml"


MINI_BYTES: Files = {name: text.encode() for name, text in MINI.items()}

_NAMES = (
    "", " ", "..", "/", "/etc/hostname", "../op.cuh", "op.cuh/", "sub/../op.cuh", "a" * 300, "a/" * 2000, "a\0b",
    "a\nb",
    'a"b', "a\\b", "é", "\u202e", "\ufeff", "٧٥", "{{", "{{data_type}}", "@data_type@", "a=b", "a,b", "[a]", "kern",
    "op", "self", "arch", "entry", "class", "data_type", "op_name", "expr", "op.cuh", "kern.json", "kern.cu.jinja",
    "fifo", "loop", "directory", "dangling", "/dev/zero", "/dev/stdin", "~", "*",
)  # fmt: skip
texts = st.sampled_from(_NAMES) | st.text(max_size=12)
_numbers = st.sampled_from([0, 1, -1, 75, 2**31, 2**63, 10**40, True, False, 0.5, float("inf"), float("nan")])


class Raw(str):
    """A value as it stands in TOML, sound or not."""

    __slots__ = ()


_raw = st.sampled_from(
    ["0x" + "f" * 6000, "9" * 6000, "1e999", "1979-05-27", "1979-13-27", "25:00:00", "+0", "0b2", "'a'",
     '"""a\n"""', "[[[", "", "{}", "{a.b = 1}", '"\\ud800"', '"\\u0000"', "[" * 2000, "{a=" * 2000, "true false"]
).map(Raw)  # fmt: skip
_values = st.recursive(
    texts | _numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)

_options = st.lists(
    st.sampled_from(
        ["-DN=1", "-D", "-DN", "-I.", "-I", "-G", "--use_fast_math", "-Ifoo", " -I", "--std=c++20", "-x", "--", "-",
         "-w", "-DN=\0", "-DN=é", "-DN=@data_type@", "-D N", "--define-macro=N", "@x", "--dopt=on", "-Werror"]
    ) | texts,
    max_size=3,
)  # fmt: skip
_link: dict[str, st.SearchStrategy[object]] = {
    name: st.booleans() | _numbers
    for name in ("fast_math", "ftz", "prec_div", "prec_sqrt", "fma", "max_registers", "optimization", "lineinfo",
                 "split_compile", "debug")
} | {"ptxas": st.lists(st.sampled_from(["-v", "-g", "-O3"]) | texts, max_size=2)}  # fmt: skip

_KINDS: dict[str, dict[str, st.SearchStrategy[object]]] = {
    "family": {
        "name": texts,
        "version": texts,
        "std": st.sampled_from(["c++17", "c++20", "c++99", "", "c++17 -G", "é", "c++17\0"]),
        "include": st.lists(st.sampled_from([".", "sub", "directory"]) | texts, max_size=3),
        "archs": st.lists(
            st.sampled_from(["75", "80", "90a", "100f", "75 ", "sm_80", "1", "20", "999", "9" * 30, "٧٥",
            "-75"]) | texts,
            max_size=3,
        ),
        "toolchain": st.sampled_from(["nvrtc", "nvcc", "clang", ""]),
        "options": _options,
        "syntax": st.sampled_from(["jinja", "cmake", "Jinja", ""]),
        "templates": st.lists(st.sampled_from([".", "sub"]) | texts, max_size=2),
        "headers": st.dictionaries(
            st.sampled_from(["op.cuh", "new.inc", "../new.inc", "./sub//new.inc", "."]) | texts,
            st.sampled_from(["op.cu.jinja", "kern.json", "sub"]) | texts,
            max_size=2,
        ),
    },
    "link": _link,
    "entrypoint.kern": {
        "matrix": texts,
        "template": texts,
        "key": st.lists(texts, max_size=3),
        "params": st.lists(
            st.sampled_from(["{{data_type}}* x", "unsigned n", "{{data_typ}} x", "@data_type@* x", "{{data_type",
            "int"])
            | texts,
            max_size=3,
        ),
        "interface": st.sampled_from(["op.cu.jinja", "../op.cu.jinja", ".jinja"]) | texts,
        "options": _options,
        "link": st.fixed_dictionaries({}, optional=_link),
        "entry": texts,
        "syntax": st.sampled_from(["jinja", "cmake", "j"]),
    },
}  # fmt: skip
_KINDS["device.op"] = _KINDS["device.user"] = {
    name: value for name, value in _KINDS["entrypoint.kern"].items() if name not in ("params", "entry")
}
_KINDS["entrypoint.op"] = _KINDS["entrypoint.kern"]


def toml(value: object) -> str:
    """A value in TOML, dates and times excepted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(str(key))} = {toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value) + '"'
    return str(value)


@st.composite
def _declarations(draw: st.DrawFn) -> str:
    """A sound declaration with some of its values replaced, left out, added or of another type."""
    tables: dict[str, dict[str, object]] = {
        "family": {"name": "mini"},
        "entrypoint.kern": {
            "matrix": "kern.json", "template": "kern.cu.jinja", "key": ["data_type"],
            "params": ["{{data_type}}* x", "unsigned n"],
        },
        "device.op": {
            "matrix": "op.json", "template": "op.cu.jinja", "key": ["data_type", "op_name"], "interface": "op.cuh",
        },
    }  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(_KINDS)))
        table = tables.setdefault(name, {})
        key = draw(st.sampled_from(sorted(_KINDS[name])) | texts)
        kind = _KINDS[name].get(key, _values)
        match draw(st.integers(0, 9)):
            case 0:
                table.pop(key, None)
            case 1:
                table[key] = draw(_values | _raw)
            case 2:
                tables.pop(name)
            case _:
                table[key] = draw(kind)
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{toml(key)} = {toml(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


_json = st.recursive(
    texts | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
# Documents of strings, objects and arrays alone: most are what a matrix may be.
_products = st.recursive(
    st.lists(st.sampled_from(["float", "double", "", "a b", "é", "a,b", "\ud800", "{{x}}", "%"]), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data_type", "op_name", "expr", "_g", "", "a\ud800", "n"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
matrices = st.one_of(
    _products.map(lambda value: json.dumps({"data_type": ["float"], "_x": value})),
    _products.map(json.dumps),
    _json.map(json.dumps),
    st.sampled_from(
        [
            "", " ", "null", "[]", "{}", "[{}]", '{"a": []}', '"a"', "1", "NaN",
            '{"a": NaN}', '{"a": 1e999}', "[" * 200_000,
            "[" * 500 + "{}" + "]" * 500, '{"a":' * 100_000, '{"a":' * 300 + '["b"]' + "}" * 300,
            f'{{"a": {"9" * 5000}}}',
            '{"a": ["1"], "a": ["2"]}', '{"data_type": "float"} x', '{"data_type": ["float", "float"]}', "\0",
            '{"data_type": "\0"}', '{"data_type": "\\u0000"}', '{"data_type": "\\ud800"}', '{"data_type": {"a": "b"}}',
            json.dumps({f"a{i}": [str(j) for j in range(100)] for i in range(50)}),
            json.dumps({"data_type": "float", "a": [str(j) for j in range(3000)]}),
            json.dumps({"data_type": "float" * 100_000}),
        ]
    ),
)  # fmt: skip

_JINJA = (
    "{{", "}}", "{%", "%}", "{#", "#}", "{{ nobody }}", "{{ data_type.__class__ }}", "{{ data_type() }}",
    "{{ 1 / 0 }}", "{{ 9 ** (9 ** 9) }}", "{{ 'a' * 10 ** 12 }}", "{{ [0] * 10 ** 12 }}", "{{ '%999999999999d' % 1 }}",
    "{{ 1 << 10 ** 12 }}", "{{ self }}", "{{ loop }}", "{% if data_type %}", "{% else %}", "{% endif %}",
    "{% for i in range(3) %}", "{% for i in range(10 ** 12) %}", "{% endfor %}", "{{ i }}",
    "{% for i in data_type recursive %}{{ loop(data_type) }}", "{% endraw %}", "{% include 'part.jinja' %}",
    "{% include '../op.cuh' %}", "{% include 'kern.cu.jinja' %}", "{% include data_type %}",
    "{% include 'fifo' %}", "{% include 'directory' %}", "{% include 'loop' %}", "{% include 'a\0b' %}",
    "{% extends 'kern.cu.jinja' %}", "{% import 'part.jinja' as p %}", "{{ p.q() }}", "{% block a %}", "{% endblock %}",
    "{% macro m(x) %}", "{% endmacro %}", "{{ m() }}", "{% set x = 1 %}", "{% do 1 %}", "{{ data_type|nothing }}",
    "{{ 1|first }}", "{{ {}|tojson }}", "{{ range(10 ** 12)|list }}", "{{ data_type|attr('format') }}",
    "{{ data_type|wordwrap(0) }}", "{{ none }}", "{{ '\\ud800' }}", "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "{{ " + "(" * 20_000, "{% if 1 %}" * 150 + "{% endif %}" * 150, "\n", "\r\n", "\r", "\0", "\ufeff", "é", " ",
    "@data_type@", "@x@", "@", "#include \"op.cuh\"\n", "// ", "\\\n",
)  # fmt: skip
templates = st.lists(st.sampled_from(_JINJA) | st.text(max_size=5), max_size=8).map("".join)


def _encoded(draw: st.DrawFn, text: str) -> bytes:
    """The text as bytes, now and then with another end of line, a byte order mark or another encoding."""
    match draw(st.integers(0, 11)):
        case 0:
            return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
        case 1:
            return text.replace("\n", "\r\n").encode("utf-8", "surrogatepass")
        case 2:
            return text.encode("utf-16", "surrogatepass")
        case 3:
            data = text.encode("utf-8", "surrogatepass")
            at = draw(st.integers(0, len(data)))
            return data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 3)) :]
        case _:
            return text.encode("utf-8", "surrogatepass")


@st.composite
def declared_families(draw: st.DrawFn) -> Files:
    """Families to be declared and rendered: any of their files may be odd."""
    files: dict[str, bytes | Odd] = dict(MINI_BYTES)
    files |= {"part.jinja": b"{% macro q() %}q{% endmacro %}", "sub/x.cuh": b"", **{odd.value: odd for odd in Odd}}
    names = st.sampled_from(["family.toml", "kern.json", "op.json", "kern.cu.jinja", "op.cuh"])
    changed = draw(st.sets(names, min_size=1, max_size=2))
    drawn: dict[str, st.SearchStrategy[str]] = {
        "family.toml": _declarations(), "kern.json": matrices, "op.json": matrices, "kern.cu.jinja": templates,
        "op.cuh": templates | st.sampled_from(['#include "op.cuh"\n', '#include "../x"', "#include <a\0b>"]),
    }  # fmt: skip
    for name in sorted(changed):
        files[name] = _encoded(draw, draw(drawn[name]))
        if draw(st.integers(0, 19)) == 0:
            files[name] = draw(st.sampled_from(Odd))
    return files


_CUDA = (
    "__device__ float helper(float x) { return x; }\n", "static __device__ int s;\n", "__constant__ float c[4];\n",
    "extern __device__ float far(float);\n", "template <class T> __device__ T id(T x) { return x; }\n",
    "template __device__ int id<int>(int);\n", "namespace n {\n", "namespace {\n", "}\n", "extern \"C\" ", "static ",
    "__global__ void other(int) {}\n", "struct S { int a; };\n", "__global__ void byref(S s, float* p) {}\n",
    "#include \"a.cuh\"\n", "#include \"b.cuh\"\n", "#include <cuda_fp16.h>\n", "#include \"none.cuh\"\n",
    "#include \"/etc/hostname\"\n", "#define H \"a.cuh\"\n#include H\n", "#include <\n", "#error stop\n",
    "#if 0\n", "#else\n", "#endif\n", "#ifndef G\n#define G\n", "#line 1000000 \"/x\"\n", "#define float double\n",
    "#define __device__\n", "#pragma nv_diag_suppress 1\n", "#define E E E\nE\n", "__DATE__", "// c \\\n", "/* open\n",
    "*/\n", "\\\n", "\r\n", "\0", "\f", "\u2028", "\ufeff", "é", "R\"x(\n)x\"", "\"open\n", "'a", "1" * 5000 + ";\n",
    "(" * 3000, "{" * 300, "__device__ int many = " + "1+" * 2000 + "1;\n", "asm(\"bad\");\n",
    "@x@", "{{ x }}", "__device__ void r() { r(); }\n", "template <int N> struct D : D<N + 1> {}; D<0> d;\n",
)  # fmt: skip
_pieces = st.lists(st.sampled_from(_CUDA) | st.text(max_size=4), max_size=4).map("".join)
_KERNELS = (
    "__global__ void kern({{data_type}}* x, unsigned n) { x[0] = 1; }\n",
    '#include "op.cuh"\n__global__ void kern({{data_type}}* x, unsigned n) { x[0] = mini::op(x[0]); }\n',
    'extern "C" __global__ void kern({{data_type}}* x, unsigned n) { x[0] = n; }\n',
    "static __global__ void kern({{data_type}}* x, unsigned n) {}\n",
    "namespace { __global__ void kern({{data_type}}* x, unsigned n) {} }\n",
    "__global__ void kern({{data_type}}* x, int n) {}\n",
    "",
)


@st.composite
def compiled_families(draw: st.DrawFn) -> Files:
    """Families to be compiled: sound to look at, with anything in their sources and headers."""
    texts = dict(MINI)
    texts["kern.json"] = '{"data_type": "float"}'
    texts["op.json"] = '{"data_type": "float", "op_name": "twice", "expr": "a + a"}'
    texts["a.cuh"], texts["b.cuh"] = draw(_pieces), draw(_pieces)
    for name in sorted(draw(st.sets(st.sampled_from(["kern.cu.jinja", "op.cu.jinja", "op.cuh"]), max_size=2))):
        body = draw(st.sampled_from(_KERNELS)) if name == "kern.cu.jinja" else texts[name]
        texts[name] = draw(_pieces) + body + draw(_pieces)
    if draw(st.integers(0, 4)) == 0:
        texts["family.toml"] = draw(_declarations())
    encoded = draw(st.sampled_from(sorted(texts)))
    return {
        name: _encoded(draw, text) if name == encoded else text.encode("utf-8", "surrogatepass")
        for name, text in texts.items()
    }
