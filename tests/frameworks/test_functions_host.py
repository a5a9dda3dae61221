"""Printed functions compute what PyTorch does: compiled by the C++ compiler of the host, behind a shim for CUDA."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from jitlto import torch_operator
from jitlto.frameworks.functions import PRELUDE
from tests.support.chains import SHIM, element_operator, make_chain, make_kernel, printed
from tests.support.lazy import Lazy

torch = Lazy("torch")
_COUNT = 512


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_random_chains_agree_with_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    element = torch_operator(element_operator())
    fake = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    chains = {seed: chain for seed in range(150) if "float16" not in (chain := make_chain(seed))[1:]}
    source = SHIM + PRELUDE
    for seed, (function, dtype, _) in chains.items():
        with fake:
            v, w = (torch.empty(_COUNT, dtype=getattr(torch, dtype), device="cuda") for _ in range(2))
        text = printed(element, function, v, w)
        assert text, f"chain {seed} is not fused"
        head = f'extern "C" void k{seed}(const void* v, void* w, void* output, unsigned i, unsigned count)'
        source += make_kernel(text, seed, dtype, head, "")
    (tmp_path / "chains.cpp").write_text(source)
    command = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "chains.cpp", "-o", "chains.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "chains.so"))

    wide = torch.randn(2, _COUNT, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 3
    apart: dict[int, float] = {}
    for seed, (function, dtype, _) in chains.items():
        v, w = (each.to(getattr(torch, dtype)) for each in wide)
        computed = torch.float64 if dtype == "float64" else torch.float32  # 16 bits are computed in 32
        expected = function(v.to(computed), w.to(computed))
        result = torch.empty_like(expected)
        for i in range(_COUNT):
            library[f"k{seed}"](*(ctypes.c_void_p(each.data_ptr()) for each in (v, w, result)), i, _COUNT)
        least = max(torch.finfo(each).eps for each in (expected.dtype, computed))
        scale = expected.double().abs().clamp(min=torch.finfo(expected.dtype).tiny) * least
        units = ((result.double() - expected.double()).abs() / scale).nan_to_num(1e9, 1e9)
        same = (result == expected) | (result.isnan() & expected.isnan()) | (units <= 16)
        apart[seed] = float((~same).double().mean())
    # Functions of the two libraries differ in last places, which a later step may enlarge.
    assert sum(each > 0.02 for each in apart.values()) <= len(apart) // 30, apart
    assert max(apart.values()) < 0.2, apart
