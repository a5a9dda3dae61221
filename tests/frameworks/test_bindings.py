"""A framework that is not installed is one error that says what to install."""

import sys
from typing import Any

import pytest

import jitlto
from jitlto.base.errors import OperatorError
from tests.support.errors import raises


@pytest.mark.parametrize(
    ("name", "module", "hint"), [("torch_operator", "torch_operator", "torch"), ("jax_call", "jax_call", "jax[cuda13]")]
)
def test_a_framework_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, hint: str
) -> None:
    monkeypatch.setitem(sys.modules, f"jitlto.frameworks.{module}", None)
    make: Any = getattr(jitlto, name)
    with raises(OperatorError, "operator-framework", "cannot be imported", hint=hint):
        make(None)


@pytest.mark.parametrize(("name", "framework"), [("torch_operator", "torch"), ("jax_call", "jax")])
def test_what_is_no_declaration_is_a_type_error(name: str, framework: str) -> None:
    pytest.importorskip(framework)
    with pytest.raises(TypeError, match="str"):
        getattr(jitlto, name)("fft")
