"""Where sources test the architecture, told from their texts."""

from __future__ import annotations

from itertools import pairwise
from operator import eq, ge, gt, le, lt, ne

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.versions import Architecture, Version
from jitlto.compile.architecture_tests import (
    CANDIDATES,
    comparable_architectures,
    find_features,
    find_tests,
    has_narrow_numbers,
)
from jitlto.record.headers import Source


def found(text: str, headers: dict[str, str] | None = None, own: tuple[str, ...] = ()) -> str:
    contents = {name: content.encode() for name, content in (headers or {}).items()}
    tests = find_tests(Source(text.encode(), contents), own, CANDIDATES)
    return " ".join(map(str, tests.architectures))


ANY = "80 86 89 90 100 120"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int f() { return 1; }", ""),
        ("#ifdef __CUDA_ARCH__\n#endif", ""),
        ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800", "80"),
        ("#if __CUDA_ARCH__ < 900", "90"),
        ("#if __CUDA_ARCH__ > 800", "86"),
        ("#if 890 <= __CUDA_ARCH__", "89"),
        ("#if (__CUDA_ARCH__) == 860", "86 89"),
        ("#if __CUDA_ARCH__ != 1000", "100 120"),
        ("#if __CUDA_ARCH__ >= 700", ""),
        ("#if __CUDA_ARCH__ >= 870", "89"),
        ("NV_IF_TARGET(NV_PROVIDES_SM_90, a;)", "90"),
        ("NV_IF_TARGET(NV_IS_EXACTLY_SM_80, a;)", "80 86"),
        ("#define ARCH __CUDA_ARCH__", ANY),
        ("#if __CUDA_ARCH__ >= 8 * 100", ANY),
        ("#if __CUDA_ARCH__ >= 0x320", ANY),
        ("#if 80 * 10 <= __CUDA_ARCH__", ANY),
        ("#if _CCCL_PTX_ARCH() >= 900", "90"),
        ("#if _CCCL_PTX_ARCH >= 900", "90"),
        ("#if CUB_PTX_ARCH < 800", "80"),
        ("#if __CUDA_MINIMUM_ARCH__ >= 890", "89"),
        ("constexpr int arch = _CCCL_PTX_ARCH();", ANY),
        ("#define PROVIDES(n) NV_PROVIDES_SM_##n", ANY),
        ("constexpr int archs[] = {__CUDA_ARCH_LIST__};", ANY),
        ("// __CUDA_ARCH__ matters\n/* __CUDA_ARCH__\n */", ""),
        ("return __viaddmax_s32(a, b, c);", "90"),
    ],
)
def test_code_may_differ_from_the_tested_number_on(text: str, expected: str) -> None:
    assert found(text) == expected
    assert found("", {"own.cuh": text}, ("own.cuh",)) == expected


OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}


@pytest.mark.slow
@given(st.integers(300, 1300), st.sampled_from(sorted(OPERATORS)))
def test_two_architectures_without_a_named_one_between_them_agree_on_a_test(number: int, operator: str) -> None:
    chosen = set(found(f"#if __CUDA_ARCH__ {operator} {number}").split())
    values = {a: OPERATORS[operator](10 * a.number, number) for a in CANDIDATES}
    for earlier, later in pairwise(CANDIDATES):
        assert values[earlier] == values[later] or str(later) in chosen


def test_headers_of_numbers_count_for_sources_that_use_such_numbers() -> None:
    headers = {"cuda_bf16.hpp": "NV_PROVIDES_SM_80 NV_PROVIDES_SM_90", "cuda_fp8.hpp": "__CUDA_ARCH__ >= 890"}
    assert found("float f(float a);", headers) == ""
    assert found("__nv_bfloat16 f(float a);", headers) == "80 90"
    assert found("f();", headers | {"types.cuh": "using type = __nv_fp8_e4m3;"}, ("types.cuh",)) == "89"
    tests = find_tests(Source(b"__nv_bfloat16 x;", {"cuda_bf16.hpp": b"NV_PROVIDES_SM_80"}), (), CANDIDATES)
    assert (tests.architectures, tests.beside_numbers) == ((Architecture(80),), ())


def test_headers_that_define_the_tests_are_none() -> None:
    assert found("", {"nv/target": "__CUDA_ARCH__ >= 800", "cuda/std/__cccl/ptx_isa.h": "__CUDA_ARCH__"}) == ""


def test_headers_of_the_family_count_whatever_they_are_called() -> None:
    for name in ("nv/target", "crt/own.cuh", "cuda/std/__cccl/own.h", "cuda_fp16.h", "cuda_runtime_api.h"):
        assert found("", {name: "#if __CUDA_ARCH__ >= 890"}, (name,)) == "89"


def test_lists_of_architectures_in_the_toolkit_only_name_namespaces() -> None:
    assert found("", {"cub/util_namespace.cuh": "__CUDA_ARCH_LIST__"}) == ""


def test_options_that_define_macros_count() -> None:
    tests = find_tests(Source(b"#if ARCH >= 900", {}), (), CANDIDATES, ("-DARCH=__CUDA_ARCH__",))
    assert tests.architectures == CANDIDATES[1:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#ifdef __CUDA_ARCH_FEAT_SM90_ALL", "90a"),
        ("#if __CUDA_ARCH_HAS_FEATURE__(SM100_ALL)", "100a"),
        ("NV_IF_TARGET(NV_HAS_FEATURE_SM_100f, a;)", "100f"),
        ("#if __CUDA_ARCH_SPECIFIC__ == 900 || __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000", "100f 90a"),
        ("#if defined(__CUDA_ARCH_SPECIFIC__)", "a"),
        ("#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__)", "f"),
        ("#if __CUDA_HAS_ARCH_SPECIFIC(90) || __CUDA_HAS_ARCH_FAMILY_SPECIFIC(120)", "120f 90a"),
        ("// __CUDA_ARCH_FEAT_SM90_ALL\n#if __CUDA_ARCH__ >= 900", ""),
    ],
)
def test_tests_for_features_of_one_architecture_are_found(text: str, expected: str) -> None:
    assert " ".join(find_features(Source(text.encode(), {}))) == expected
    assert " ".join(find_features(Source(b"", {"own.cuh": text.encode()}))) == expected
    assert find_features(Source(b"", {"cutlass/arch/config.h": text.encode()})) == ()


def test_a_test_for_one_architecture_is_exact_if_the_family_wrote_it() -> None:
    def exact(text: str, own: tuple[str, ...]) -> bool:
        return find_tests(Source(b"", {"a.h": text.encode()}), own, CANDIDATES).exact

    assert exact("#if __CUDA_ARCH__ == 860", ("a.h",))
    assert not exact("#if __CUDA_ARCH__ == 860", ())
    assert not exact("#if __CUDA_ARCH__ >= 860", ("a.h",))
    assert exact("#if __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 900", ("a.h",))
    assert exact("#define ARCH __CUDA_ARCH__", ("a.h",))


def test_numbers_of_16_bits_are_seen_in_ptx() -> None:
    assert has_narrow_numbers(b".reg .b16 %rs<2>;")
    assert has_narrow_numbers(b"// begin inline asm")
    assert not has_narrow_numbers(b".reg .b32 %r<2>;\n.reg .f64 %fd<2>;")


def test_the_candidates_are_those_that_compiler_and_linker_know() -> None:
    old, new = Version(12, 6), Version(13, 5)
    base = Architecture(80)
    assert [str(a) for a in comparable_architectures(base, new, old)] == ["80", "86", "89", "90"]
    assert [str(a) for a in comparable_architectures(base, new, new)] == ["80", "86", "89", "90", "100", "120"]
