"""What one CUDA release makes of fragments: run by test_compatibility.py in the environment of that release.

``build DIRECTORY`` builds databases, ``family FILE`` that of a ``family.toml``, ``bare DIRECTORY`` compiles
LTO-IR as a caller may bring it, ``digest FILE`` compiles a source, ``cubin DIRECTORY`` links a kernel of what was built
there, and ``link FILE`` reads a list of links as JSON and links them. All print JSON.
"""

import hashlib
import json
import logging
import sys
from pathlib import Path
from unittest.mock import patch

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture
from jitlto.build.pipeline import build
from jitlto.cuda import device, nvjitlink, toolkit
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.plan.plan import Plan
from jitlto.record.headers import Source
from jitlto.runtime.family import KernelFamily
from tests.support.compiled import compile_source
from tests.support.families import MINI, write_family

DEVICE = "device "  # before an architecture: that of a device, which nobody asked for
_CALLED = b"_ZN4mini2opIfEET_S1_"  # stands in a cubin where it was not inlined
_BARE = {
    "kern": 'extern __device__ float op(float); extern "C" __global__ void kern(float* x) { *x = op(*x); }',
    "op": "__device__ float op(float a) { return a + a; }",
}


def databases(directory: Path) -> dict[str, str]:
    """Build ``mini`` with LTO-IR and PTX, with LTO-IR alone, and with cubins too."""
    alone = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\nimages = ["ltoir"]')
    cubins = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\nsass = ["90", "100"]')
    for name, toml in (("both", MINI["family.toml"]), ("ltoir", alone), ("sass", cubins)):
        path = write_family(directory / name, MINI | {"family.toml": toml})
        build([declaration.load_family(path)], directory / f"{name}.fragdb", jobs=1)
    return {"nvrtc": str(toolkit.nvrtc_version())}


def family(file: Path) -> str:
    """Build the family of a ``family.toml``; returns the database's path."""
    return str(build([declaration.load_family(file)], file.with_suffix(".fragdb"), jobs=1).path)


def bare(directory: Path) -> dict[str, str]:
    """Compile LTO-IR with NVRTC itself, as a caller may."""
    nvrtc = toolkit.bindings("nvrtc")
    options = [b"-arch=compute_75", b"-dlto", b"-rdc=true"]
    directory.mkdir()
    for name, text in _BARE.items():
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        assert not int(status), status
        _, size = nvrtc.nvrtcGetLTOIRSize(program)
        data = b" " * size
        nvrtc.nvrtcGetLTOIR(program, data)
        (directory / f"{name}.ltoir").write_bytes(data)
    return {"nvrtc": str(toolkit.nvrtc_version())}


def cubin(directory: Path) -> str:
    """Link a kernel of ``mini`` for sm_90; returns the path of the cubin."""
    with FragmentDatabase(directory / "both.fragdb") as opened:
        linked = plan(KernelFamily("mini", opened), "sm_90", "lto", "twice").link()
    path = directory / f"{linked.target}.cubin"
    path.write_bytes(linked.cubin)
    return str(path)


def digest(file: Path) -> dict[str, object]:
    """Compile a source for its symbols and the hashes of what is made."""
    base = Architecture(75)
    compiled = compile_source(Source(file.read_bytes(), {}), [base], ["--std=c++17"])
    made = (compiled.ltoir[base], compiled.ptx.encode())
    return {
        "provides": [symbol.name for symbol in compiled.module.provides],
        "made": [hashlib.sha256(data).hexdigest() for data in made],
    }


class _Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def plan(mini: KernelFamily, arch: str, mode: str, name: str) -> Plan:
    """A plan of ``mini``, for a target that is asked for, or for that of a device that is not here."""
    requested = None if arch.startswith(DEVICE) else arch
    made = mini.plan(arch=requested, link_mode=mode, data_type="float", op_name=name)
    if requested is None:
        current = Architecture.parse(arch.removeprefix(DEVICE))
        with patch.object(device, "architecture", lambda: current):
            assert made.target  # which the plan keeps
    return made


def outcome(path: Path, arch: str, mode: str) -> dict[str, object]:
    """Link two kernels of ``mini`` and say what came of the first, and what was said of both."""
    heard = _Heard()
    logger = logging.getLogger("jitlto")
    logger.addHandler(heard)
    try:
        if path.is_dir():
            inputs = [LinkInput(InputKind.LTOIR, file.read_bytes(), file.name) for file in sorted(path.glob("*.ltoir"))]
            data = link(inputs, Architecture.parse(arch), ["-lto"]).data
            return {
                "mode": "lto",
                "code": arch,
                "said": [],
                "elf": data[:4] == b"\x7fELF",
                "inlined": b"_Z2opf" not in data,
            }
        with FragmentDatabase(path) as opened:
            plans = [plan(KernelFamily("mini", opened), arch, mode, name) for name in ("twice", "square")]
            linked, _ = [each.link() for each in plans]
        found: dict[str, object] = {"mode": plans[0].link_mode, "code": linked.target, "said": heard.said}
        return found | {"elf": linked.cubin[:4] == b"\x7fELF", "inlined": _CALLED not in linked.cubin}
    except JitltoError as error:
        return {"error": type(error).__name__, "message": str(error), "said": heard.said}
    finally:
        logger.removeHandler(heard)


def main() -> None:
    """Do what the first argument says with the second."""
    what, argument = sys.argv[1], Path(sys.argv[2])
    answer: object
    if what == "link":
        links = [(Path(path), arch, mode) for path, arch, mode in json.loads(argument.read_text())]
        answer = {
            "nvjitlink": str(nvjitlink.version()),
            "links": [{"link": outcome(*each)} for each in links],
        }
    else:
        answer = {"build": databases, "family": family, "bare": bare, "cubin": cubin, "digest": digest}[what](argument)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
