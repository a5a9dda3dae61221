"""Disassembly of machine code with nvdisasm."""

import subprocess
from pathlib import Path

from jitlto.base.errors import ToolchainError
from jitlto.base.files import temporary_directory
from jitlto.cuda import toolkit


def find_program() -> str:
    """Return the path of nvdisasm; raise :class:`~jitlto.base.errors.ToolchainError` if there is none."""
    program = toolkit.find_binary("nvdisasm")
    if program is None:
        raise ToolchainError(
            "nvdisasm not found",
            code="toolchain-missing",
            hint="pip install 'jitlto[nvdisasm]', or a CUDA toolkit and CUDA_HOME; --dump ptx and cubin need nothing",
        )
    return program


def disassemble(cubin: bytes) -> bytes:
    """Return the SASS of a cubin.

    Raises:
        ToolchainError: If there is no nvdisasm or it fails.
    """
    program = find_program()
    with temporary_directory("jitlto-sass-") as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([program, "-c", str(path)], capture_output=True, check=False)
    if done.returncode:
        raise ToolchainError(
            f"nvdisasm failed: {done.stderr.decode(errors='replace').strip()}",
            code="toolchain-failed",
            where=program,
            hint="is it older than the nvJitLink that made the cubin?",
        )
    return done.stdout
