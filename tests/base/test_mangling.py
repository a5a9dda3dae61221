"""C++ names: demangling, parameter types and base names."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jitlto.base.mangling import (
    base_name,
    demangle,
    is_toolkit_name,
    parameter_types,
    qualified_name,
    split_top_level,
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_Z3addPKfi", "add(float const*, int)"),
        ("_ZN1a1kIfEEvPKT_", "void a::k<float>(float const*)"),
        ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f()"),
        ("vprintf", "vprintf"),
        ("_Znot_a_name", "_Znot_a_name"),
        ("", ""),
    ],
)
def test_demangle(name: str, text: str) -> None:
    assert demangle(name) == text


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@example("_Z1é")
@example("_Z99999999999999999999f")
def test_any_name_can_be_asked_for(name: str) -> None:
    for asked in (name, f"_Z{name}", f"_ZN{len(name)}{name}Ev"):
        assert isinstance(demangle(asked), str)
        assert isinstance(base_name(asked), str)
        assert parameter_types(asked) is None or asked.startswith("_Z")


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("_Z3addPKfi", ["float const*", "int"]),
        ("_Z1fv", []),
        ("_Z1k3BoxIfLi4EES0_", ["Box<float, 4>", "Box<float, 4>"]),
        ("_ZN1a1kIfEEvPKT_", ["float const*"]),
        ("kernel", None),
        ("_ZN1a1xE", None),
        ("_ZZ1fiE5table", None),
    ],
)
def test_parameter_types(name: str, types: list[str] | None) -> None:
    assert parameter_types(name) == types


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("kernel", "kernel"),
        ("_Z3addPKfi", "add"),
        ("_ZN1a1b1xE", "x"),
        ("_ZN1a1kI3BoxIN1b1TEEEEvT_", "k"),
        ("_ZN1FclEi", "operator()"),
        ("_ZN1FixEi", "operator[]"),
        ("_ZltRK1FS1_", "operator<"),
        ("_ZplRK1FS1_", "operator+"),
        ("_ZN9operators3runEv", "run"),
        ("_Z1kIXadL_ZplffEEEvv", "k"),
    ],
)
def test_base_name(name: str, base: str) -> None:
    assert base_name(name) == base


@pytest.mark.parametrize("levels", [1, 50, 100])
def test_names_of_deeply_nested_types_are_read(levels: int) -> None:
    name = "_ZN1a1kI" + "1BI" * levels + "f" + "E" * levels + "EEvPT_i"
    assert parameter_types(name) == ["B<" * levels + "float" + " ".join(">" * levels) + "*", "int"]
    assert base_name(name) == "k"


def test_a_name_that_means_millions_of_characters_is_left_as_it_is() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name = "_Z1k1PIiiE" + "".join(f"S_IS{digits[n]}_S{digits[n]}_E" for n in range(30))
    assert (demangle(name), base_name(name), parameter_types(name)) == (name, name, None)


def test_a_pack_is_as_many_parameters_as_it_has() -> None:
    assert parameter_types("_Z1kIJifEEvDpT_c") == ["int", "float", "char"]
    assert parameter_types("_Z1kIJEEvDpT_c") == ["char"]


def test_texts_are_split_outside_all_brackets() -> None:
    parts = ["a", "b<c, (d, e)>", "", "f[{g,h}]"]
    assert split_top_level(",".join(parts)) == parts
    assert split_top_level(" ") == []


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("_Z1fi", "f"),
        ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f"),
        ("_ZN1a1kI3BoxIN1b1TEEEEvT_", "a::k<Box<b::T> >"),
        ("_Z1kILi1EEvv", "k<1>"),
    ],
)
def test_a_qualified_name_has_namespaces_and_template_arguments_and_no_types(name: str, function: str) -> None:
    assert qualified_name(name) == function


@pytest.mark.parametrize(
    ("name", "is_toolkits"),
    [
        ("__trap", True),
        ("_Z5__ldgPK5uint4", True),
        ("_ZSt7forwardIRfEOT_RN12__nvrtc_util10remove_refIS1_E4typeE", True),
        ("_ZN4cuda3std3__43expIfEENS1_7complexIT_EERKS5_", True),
        ("_ZN4cuda3std3__417integral_constantIbLb0EE5valueE", True),
        ("_ZN4cuda3std4swapI4mineEEvRT_S4_", False),
        ("_ZN6search4cuda3fooEv", False),
        ("_Z6helperfi", False),
    ],
)
def test_a_name_is_the_toolkits_if_nothing_in_it_is_anothers(name: str, is_toolkits: bool) -> None:
    assert is_toolkit_name(name) == is_toolkits
