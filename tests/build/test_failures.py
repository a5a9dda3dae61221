"""Failures with the same cause are one group, which names the affected combinations."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import strategies as st

from jitlto.base.errors import CompileError
from jitlto.build.failures import FailedFragmentsError, Failure, group_failures
from jitlto.families.declaration import GroupDeclaration
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import FragmentKey, Role

# --- without a compiler


def declared(name: str, key: tuple[str, ...]) -> GroupDeclaration:
    return GroupDeclaration(name, Role.DEVICE, None, Path(f"{name}.cu.jinja"), key, (), None, None, "jinja")


def product(name: str, key: tuple[str, ...] | None = None, **values: str) -> list[RenderedSource]:
    combinations: list[dict[str, str]] = [{}]
    for parameter, choices in values.items():
        combinations = [c | {parameter: value} for c in combinations for value in choices.split()]
    group_ = declared(name, key or tuple(values))
    return [
        RenderedSource(FragmentKey.make("f", name, {n: c[n] for n in group_.key}), group_, c, "line 1\nline 2\n", ())
        for c in combinations
    ]


def error_of(rendered: RenderedSource, message: str, line: int = 1) -> CompileError:
    log = f"{rendered.key}.cu({line}): error: {message}\n\n1 error detected in the compilation.\n"
    return CompileError("does not compile", where=rendered.origin, log=log)


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ("4 8", ["4 is not 4", "8 is not 4"]),  # a value of one combination is a constant of the other
        ("uint32_t float", ['no conversion from "unsigned int"', 'no conversion from "float"']),
        ("float double", ["bad", "bad\ng.cu(9): error: worse"]),
    ],
)
def test_what_varies_does_not_split_a_cause(values: str, messages: list[str]) -> None:
    sources = product("g", t=values)
    failures = [Failure(r, error_of(r, text)) for r, text in zip(sources, messages, strict=True)]
    assert len(group_failures(failures, sources)) == 1


def test_the_message_is_bounded() -> None:
    sources = [r for n in range(40) for r in product(f"g{n}", t=" ".join(f"v{i}" for i in range(n + 1)))]
    failures = [Failure(r, error_of(r, f"cause {'x' * len(r.key.group)}{r.key.group}")) for r in sources]
    text = str(FailedFragmentsError(group_failures(failures, sources), len(sources)))
    assert len(text) < 20_000
    assert text.count("[compile]") == 40
    assert "and 37 more" in text


def test_the_error_of_a_build_carries_its_causes_between_processes() -> None:
    sources = product("g", t="float double")
    error = FailedFragmentsError(group_failures([Failure(r, error_of(r, "bad")) for r in sources], sources), 7)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert isinstance(copy, FailedFragmentsError)
    assert str(copy) == str(error)
    assert copy.causes == error.causes
    assert str(copy).endswith(str(copy.hint))


_VALUE = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=6)
