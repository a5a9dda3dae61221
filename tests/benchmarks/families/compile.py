"""What one does without fragments: NVRTC on whole sources, with the options of the family."""

from collections.abc import Sequence
from typing import Any

from jitlto.base.versions import Architecture
from jitlto.cuda import toolkit
from jitlto.families.declaration import FamilyDeclaration
from jitlto.plan.plan import Plan
from tests.benchmarks.families.databases import declared, rendered

_OUTPUTS = {"cubin": "CUBIN", "ltoir": "LTOIR"}


def compile_text(
    text: str, family: FamilyDeclaration, architecture: str, output: str, options: Sequence[str] = ()
) -> bytes:
    """Compile one text.

    Parameters
    ----------
    text : str
        CUDA C++.
    family : FamilyDeclaration
        Whose headers and options.
    architecture : str
        ``sm_90`` for a cubin, ``compute_75`` otherwise.
    output : str
        ``cubin`` or ``ltoir``.
    options : sequence of str
        Further ones.

    Raises
    ------
    RuntimeError
        With the compiler's log.
    """
    nvrtc = toolkit.bindings("nvrtc")
    _, program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"whole.cu", 0, [], []), "")
    include = [f"-I{path}" for path in (*family.include, *toolkit.header_roots())]
    every = [f"--gpu-architecture={architecture}", *family.compiler_options(), *include, *options]
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(every), [option.encode() for option in every])
        if int(status[0]):
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC refuses the source: {log.decode('utf-8', 'replace')[:4000]}")
        name = _OUTPUTS[output]
        _, size = _checked(getattr(nvrtc, f"nvrtcGet{name}Size")(program), output)
        data = b" " * size
        _checked(getattr(nvrtc, f"nvrtcGet{name}")(program, data), output)
        return data
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(result: Any, what: str) -> Any:
    if int(result[0]):
        raise RuntimeError(f"NVRTC: {result[0]} {what}")
    return result


def compile_whole(plan: Plan, target: Architecture) -> bytes:
    """The cubin of a kernel compiled as one source."""
    texts = rendered(plan.family)
    text = "\n".join(texts[fragment.key].text for fragment in (*plan.fragments[1:], plan.fragments[0]))
    return compile_text(text, declared(plan.family), target.sm, "cubin")
