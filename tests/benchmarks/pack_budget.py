"""What `jitlto warm --budget` saves of the link seconds of recorded programs, in how little space.

python -m tests.benchmarks.pack_budget --output docs/benchmarks/pack_budget.json   # a minute on 16 cores

Builds `search`, `fft` and `ivf_flat`, and runs the examples of docs/examples in processes of their own with
JITLTO_RECORD, each as often as stated. Then packs are made of what was recorded, with a tenth, a hundredth and less of
the bytes that the cubins of all kernels of these families take. These are estimated: every 24th kernel, in the order of
``KernelFamily.configurations``, is linked. Needs a GPU; examples whose framework is missing are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jitlto.base.versions import Architecture
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.link.parallel import run_parallel
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families.part import say
from tests.benchmarks.machine import command_line, describe

_FAMILIES = ("search", "fft", "ivf_flat", "ivf_flat_batch")
_SAMPLED = 24
_SHARES = (0.1, 0.01, 0.003, 0.001, 0.0003)
_TORCH = """
import torch
from docs.examples.pytorch import SpectrumQuantiser
model = SpectrumQuantiser({size}, 64).cuda()
model(torch.rand(100, {size}, device="cuda"))[1].mean().backward()
"""
_JAX = """
import jax
from docs.examples import jax_calls as example
parameters = example.initial(jax.random.key(1), 256, 40)
jax.jit(example.quantise)(parameters, jax.random.normal(jax.random.key(2), (30, 256)))
"""
_FFT = """
import cupy, jitlto, numpy
from docs.examples import fft
family = jitlto.load("fft")
fft.plan({size}, 100, "float32", load="window", load_info=numpy.hanning({size}), family=family)(
    cupy.ones((100, {size}), "complex64"))
"""
_IVF = """
import cupy
from docs.examples.ivf_flat import Index
data = cupy.random.default_rng(1).integers(0, 100, (20_000, 96)).astype("{dtype}")
index = Index.build(data, n_lists=64)
for k in {ks}:
    index.search(data[:100], k=k, n_probes=8)
"""
#: The programs, and how many processes run each: what serves runs often, what was tried once does not.
_PROGRAMS = {
    "pytorch, 1024 points": (6, _TORCH.format(size=1024)),
    "pytorch, 256 points": (1, _TORCH.format(size=256)),
    "jax": (3, _JAX),
    "fft, 1024 points": (3, _FFT.format(size=1024)),
    "fft, 4096 points": (1, _FFT.format(size=4096)),
    "ivf_flat, float": (5, _IVF.format(dtype="float32", ks=(10,))),
    "ivf_flat, int8": (2, _IVF.format(dtype="int8", ks=(10, 100))),
    "ivf_flat, half": (1, _IVF.format(dtype="float16", ks=(10, 100))),
}


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = describe(command_line()) | {"method": __doc__}
    with tempfile.TemporaryDirectory() as directory:
        database, used = Path(directory) / "kernels.fragdb", Path(directory) / "used.jsonl"
        os.environ |= {"JITLTO_CACHE_DIR": directory, "JITLTO_DATABASE_PATH": str(database)}
        _jitlto("build", *_FAMILIES, "-o", str(database))
        say("built")
        result["programs"] = {name: _record(name, used, *program) for name, program in _PROGRAMS.items()}
        architecture = device.architecture()
        sizes = {name: _sample(KernelFamily(name, FragmentDatabase(database)), architecture) for name in _FAMILIES}
        result["cubins of all kernels"] = sizes
        everything = sum(size["bytes"] for size in sizes.values())
        result["packs"] = [_pack(used, database, share, everything) for share in _SHARES]
    print(json.dumps(result["packs"], indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _jitlto(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "jitlto", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def _record(name: str, used: Path, processes: int, code: str) -> dict[str, object]:
    variables = os.environ | {"JITLTO_RECORD": str(used), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    for _ in range(processes):
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            say(f"{name}: {done.stderr[-500:]}")
            return {"processes": 0, "left out": done.stderr.strip().splitlines()[-1]}
    say(name)
    return {"processes": processes}


def _sample(family: KernelFamily, architecture: Architecture) -> dict[str, int]:
    """The bytes of a family's cubins, estimated."""
    configurations = list(family.configurations())

    def size(configuration: dict[str, str]) -> int:
        return len(family.plan(arch=architecture, **configuration).link().cubin)  # type: ignore[arg-type]

    sizes = [outcome for _, _, outcome in run_parallel(size, configurations[::_SAMPLED]) if isinstance(outcome, int)]
    say(f"{family.name}: {len(sizes)} of {len(configurations)} kernels linked")
    mean = statistics.mean(sizes)
    return {"kernels": len(configurations), "linked": len(sizes), "bytes": round(mean * len(configurations))}


def _pack(used: Path, database: Path, share: float, everything: int) -> dict[str, object]:
    """What a pack of a share of all bytes saves."""
    budget, pack = round(share * everything), used.with_name("used.pack")
    arguments = ("warm", str(used), "--db", str(database), "-o", str(pack), "--budget", str(budget), "--json")
    done = subprocess.run([sys.executable, "-m", "jitlto", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"share of all bytes, at most": share, "error": done.stderr.strip()}
    saving = json.loads(done.stdout)["saving"]
    say(f"{share:.2%} of all bytes")
    return {
        "share of all bytes, at most": share,
        "pack, bytes": pack.stat().st_size,
        "share of all bytes": round(pack.stat().st_size / everything, 5),
        "share of link seconds saved": round(saving["seconds"] / saving["all_seconds"], 4),
        "kernels": saving["kernels"],
        "recorded kernels": saving["all_kernels"],
    }


if __name__ == "__main__":
    main()
