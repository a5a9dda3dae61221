"""Fuzzes whole builds: after every edit of a family's sources, all ways of building it give the same bytes.

A family of small fragments is generated: matrices, templates, two include directories with headers of the same names,
macros, conditionals, options. Each edit changes some of that. Then the family is built four ways: incrementally with
the cache of all earlier builds, without a cache, in two shards that are merged, and as a family that was loaded from
its sources before the edit. All four must give the same file, or the same error.

What failed once, also when tried by hand, is kept in ``tests/build/build_fuzzer_corpus``, as the states of the sources.
"""

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from jitlto.base.config import Config
from jitlto.base.errors import JitltoError
from jitlto.build.cache.cache import Cache, open_cache
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import build
from jitlto.build.shards import Shard
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from jitlto.source.load import load

#: Sources by relative path: a text, or ``{"link": target}`` for a symbolic link.
State: TypeAlias = dict[str, "str | dict[str, str]"]

_HEADERS = [f"h{number}.cuh" for number in range(5)]
_FOLDERS = ["a", "b", "a/s", "."]


class Builder:
    """Builds successive states of one source tree in all ways.

    Args:
        place: An empty directory.
        executor: Where to compile.
    """

    def __init__(self, place: Path, executor: ProcessExecutor) -> None:
        self._place = place
        self._executor = executor
        self._family = place / "kernels"
        settings = Config.read({**os.environ, "JITLTO_CACHE_DIR": str(place / "caches" / "loaded")})
        self._session = Session(settings)
        self._loaded: KernelFamily | None = None
        self._caches = {name: _open(place / "caches" / name) for name in ("incremental", "shards")}
        self._written: State = {}

    def outcomes(self, state: State) -> dict[str, str]:
        """Build a state in every way; return the SHA-256 of the database, or the code of the error, of each."""
        self._write(state)
        ways: dict[str, Callable[[Path], Path]] = {
            "clean": lambda output: self._build(output, None),
            "incremental": lambda output: self._build(output, self._caches["incremental"]),
            "shards": self._build_shards,
            "loaded": self._build_loaded,
        }
        return {name: self._outcome(way, self._place / f"{name}.fragdb") for name, way in ways.items()}

    def _write(self, state: State) -> None:
        """Write only what differs, so that times of modification are as an editor leaves them."""
        for name in self._written.keys() - state.keys():
            (self._family / name).unlink()
        for name, content in state.items():
            path = self._family / name
            if self._written.get(name) == content:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if isinstance(content, str):
                path.write_text(content)
            else:
                path.symlink_to(content["link"])
        self._written = dict(state)

    def _outcome(self, way: Callable[[Path], Path], output: Path) -> str:
        output.unlink(missing_ok=True)
        try:
            return hashlib.sha256(way(output).read_bytes()).hexdigest()
        except JitltoError as error:
            return f"error {error.code}"

    def _build(self, output: Path, cache: Cache | None, shard: Shard | None = None) -> Path:
        family = declaration.load_family(self._family / "family.toml")
        return build([family], output, executor=self._executor, cache=cache, shard=shard).path

    def _build_shards(self, output: Path) -> Path:
        parts = [output.with_suffix(f".{number}.fragdb") for number in (1, 2)]
        for number, part in enumerate(parts, 1):
            self._build(part, self._caches["shards"], Shard(number, len(parts)))
        return merge_databases(parts, output).path

    def _build_loaded(self, _: Path) -> Path:
        self._loaded = self._loaded or load(self._family, session=self._session)
        return self._loaded.database.path


def _open(directory: Path) -> Cache:
    cache = open_cache(directory)
    assert cache is not None
    return cache


def disagreement(outcomes: Mapping[str, str]) -> bool:
    """Return whether two ways differ."""
    return len(set(outcomes.values())) > 1


def replay(states: Sequence[State], place: Path, executor: ProcessExecutor) -> dict[str, str] | None:
    """Build successive states in an empty directory; return the outcomes of the first that disagree, or None."""
    builder = Builder(place, executor)
    for state in states:
        outcomes = builder.outcomes(state)
        if disagreement(outcomes):
            return outcomes
    return None


# Generated sources.


def generate(rng: random.Random) -> State:
    """Return the sources of a family."""
    state: State = {"a/own.cuh": "", "b/own.cuh": "", "a/s/own.cuh": ""}
    for name in _HEADERS:
        for folder in rng.sample(_FOLDERS, rng.randint(1, 2)):
            state[_path(folder, name)] = _header(rng, int(name[1]))
    state["family.toml"] = _declaration(rng)
    state["call.cuh"] = "#pragma once\n" + _include(rng, 0) + "template <class T> __device__ T call(T);\n"
    state["kern.json"] = _matrix(rng)
    state["call.json"] = '{"t": ["float", "double", "int"], "op": ["1", "2"]}'
    state["kern.cu.jinja"] = _template(
        rng,
        "template <int N, class T> __global__ void kern(T* x) { *x = call<T>(*x + N) * (T)(VALUE); }\n"
        "template __global__ void kern<{{n}}, {{t}}>({{t}}*);\n",
    )
    state["call.cu.jinja"] = _template(
        rng,
        "template <class T> __device__ T call(T x) { return x * (T)(VALUE + {{op}}); }\n"
        "template __device__ {{t}} call<{{t}}>({{t}});\n",
    )
    return state


def _declaration(rng: random.Random) -> str:
    folders = [".", *rng.sample(["a", "b"], rng.choice([1, 2, 2, 2]))]
    rng.shuffle(folders)
    include = json.dumps(folders)
    options = rng.choice(["[]", '["-DM=2"]', '["-DM=3", "-DH4"]'])
    images = rng.choice(['["ltoir"]', '["ltoir", "ptx"]'])
    standard = rng.choice(["c++17", "c++20"])
    return (
        f'[family]\nname = "f"\nstd = "{standard}"\n'
        f"include = {include}\noptions = {options}\nimages = {images}\n"
        '[entrypoint.kern]\nmatrix = "kern.json"\ntemplate = "kern.cu.jinja"\nkey = ["t", "n"]\n'
        '[device.call]\nmatrix = "call.json"\ntemplate = "call.cu.jinja"\nkey = ["t", "op"]\ninterface = "call.cuh"\n'
    )


def _matrix(rng: random.Random) -> str:
    types = rng.sample(["float", "double", "int"], rng.randint(1, 2))
    numbers = rng.sample(["1", "2", "3"], rng.randint(1, 2))
    return json.dumps({"t": types, "n": numbers})


def _template(rng: random.Random, body: str) -> str:
    head = "".join(_include(rng, 0) for _ in range(rng.randint(0, 2)))
    condition = rng.choice(["M", "C0 > 2", "defined(C1)", '__has_include("h3.cuh")', "__CUDA_ARCH__ >= 750"])
    value = f"#if {condition}\n#define VALUE (1 C0)\n#else\n#define VALUE 2\n#endif\n"
    return (
        f'#include "call.cuh"\n{head}#ifndef C0\n#define C0 +0\n#endif\n{value.replace("C0 > 2", "C0 + 0 > 2")}{body}'
    )


def _header(rng: random.Random, number: int) -> str:
    lines = [rng.choice(["#pragma once\n", "", "", f"#ifndef G{number}\n#define G{number}\n"])]
    guarded = lines[0].startswith("#ifndef")
    lines += [rng.choice(_LINES)(rng, number).replace("@", str(rng.randint(0, 9))) for _ in range(rng.randint(1, 4))]
    return "".join(lines) + ("#endif\n" if guarded else "")


def _include(rng: random.Random, least: int) -> str:
    """An include of a header with a number of at least ``least``, so that there is no circle."""
    if least >= len(_HEADERS):
        return "// a leaf\n"
    name = _HEADERS[rng.randrange(least, len(_HEADERS))]
    form = rng.choice(
        [
            '#include "{0}"\n',
            '#include "{0}"\n',
            "#include <{0}>\n",
            '#if __has_include("s/{0}")\n#include "s/{0}"\n#endif\n',
            '#if __has_include("../b/{0}")\n#include "../b/{0}"\n#endif\n',
            '# /**/ include /* no */ "{0}" // yes\n',
            '#if __has_include("{0}")\n#include "{0}"\n#endif\n',
            "#ifdef H4\n#include <{0}>\n#endif\n",
            '#if 0\n#include "{0}"\n#endif\n',
            '/*\n#include "{0}"\n*/\n',
            "#if __has_include(<{0}>) && defined(M)\n#include <{0}>\n#endif\n",
        ]
    )
    if rng.random() < 0.02:  # what NVRTC cannot follow, and is refused
        form = rng.choice(['#define NAME "{0}"\n#include NAME\n#undef NAME\n', "#include_next <{0}>\n"])
    return form.format(name)


_LINES: list[Callable[[random.Random, int], str]] = [
    lambda rng, number: _include(rng, number + 1),
    lambda rng, number: _include(rng, number + 1),
    lambda rng, number: f"#undef C{number % 2}\n#define C{number % 2} +@\n",
    lambda rng, number: "#ifdef M\n#undef C0\n#define C0 +M\n#endif\n",
    lambda rng, number: f"__device__ inline int f{number}_@(int x) {{ return x + @; }}\n",
    lambda rng, number: f"// a comment, @\nstatic constexpr int k{number}_@ = @;\n",
    lambda rng, number: f'static constexpr char s{number}_@[] = R"(\n#include "h9.cuh"\n@)";\n',
]


def edit(state: State, rng: random.Random) -> State:
    """Return the sources after an edit."""
    edited = dict(state)
    headers = [name for name in state if name.endswith(".cuh") and Path(name).name not in ("call.cuh", "own.cuh")]
    texts = [name for name in headers if isinstance(state[name], str)]
    fresh = _path(rng.choice(_FOLDERS), rng.choice(_HEADERS))
    kind = rng.choice(["value", "value", "header", "header", "remove", "link", "swap", "toml", "matrix", "template"])
    if kind == "value" and texts:
        name = rng.choice(texts)
        edited[name] = "".join(
            str(rng.randint(0, 9)) if c.isdigit() and rng.random() < 0.2 else c for c in texts_of(state, name)
        )
    elif kind == "remove" and headers:
        del edited[rng.choice(headers)]
    elif kind == "link" and texts:
        target = rng.choice(texts)
        if target != fresh:
            edited[fresh] = {"link": os.path.relpath(target, Path(fresh).parent)}
    elif kind == "swap" and len(texts) > 1:
        one, other = rng.sample(texts, 2)
        edited[one], edited[other] = state[other], state[one]
    elif kind == "toml":
        edited["family.toml"] = _declaration(rng)
    elif kind == "matrix":
        edited["kern.json"] = _matrix(rng)
    elif kind == "template":
        name = rng.choice(["kern.cu.jinja", "call.cu.jinja"])
        edited[name] = generate(rng)[name]
    else:
        edited[fresh] = _header(rng, int(Path(fresh).name[1]))
    return edited


def texts_of(state: State, name: str) -> str:
    content = state[name]
    assert isinstance(content, str)
    return content


def _path(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def history(rng: random.Random) -> Iterator[State]:
    """Yield the sources of a family, edited again and again; sometimes an earlier state comes back."""
    states = [generate(rng)]
    while True:
        yield states[-1]
        back = len(states) > 2 and rng.random() < 0.15
        states.append(rng.choice(states[:-1]) if back else edit(states[-1], rng))
