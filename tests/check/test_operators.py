"""``jitlto check --operators``: calls of every dtype and flag of operators choose, fit and link kernels."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jitlto.base.errors import OperatorError
from jitlto.build.pipeline import build
from jitlto.check.operators import check_operators, find_operators
from jitlto.families import declaration
from tests.support.commands import fails, jitlto
from tests.support.errors import raises
from tests.support.families import compiler, write_family
from tests.support.operators import FAMILY

_names = (f"jitlto_checked{number}" for number in itertools.count())

REDUCE = """
from jitlto import Array, Flag, Launch, Operator, Output, Scalar

reduce_rows = Operator(
    "{package}::reduce_rows",
    "operators",
    arguments=(
        Array("x", "T", "m n"), {flag}, Array("bits", "bool", "n", optional=True), Flag("is_wide", "bool", False),
    ),
    outputs=(Output("values", "T", "m"), Output("counts", "int64", "m")),
    dtypes={{"T": {dtypes}}},
    configuration=lambda case: {{"data_type": case.T, "reduction": {reduction}}},
    launch=lambda case: Launch(grid=-(-case.m // 64), block={block}),
    parameters=("x", "bits", "values", "counts", "m", "n"),
    entry="reduce_rows",
    {more}
)
"""
DEFAULTS = {
    "flag": 'Flag("reduction", "str", "sum")',
    "dtypes": '("float32", "float64")',
    "reduction": "case.reduction",
    "block": "64",
    "more": 'examples=({"reduction": ("sum", "largest")},),',
}
Write = Callable[..., str]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("operators")
    families = [declaration.load_family(write_family(directory, FAMILY))]
    return build(families, directory / "operators.fragdb", executor=compiler()).path


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Path) -> Iterator[Write]:
    """Writes a package whose module ``operators`` declares ``reduce_rows``; returns the package's name."""
    monkeypatch.setenv("JITLTO_DATABASE_PATH", str(database))
    monkeypatch.chdir(tmp_path)
    before = sys.path.copy(), set(sys.modules)

    def make(**changed: str) -> str:
        package = next(_names)
        (tmp_path / package / "inner").mkdir(parents=True)
        for name, text in {
            "__init__": "",
            "inner/__init__": "",
            "inner/operators": REDUCE.format(package=package, **{**DEFAULTS, **changed}),
            "lazy": f"def declare():\n    from {package}.inner import operators\n    return operators.reduce_rows\n",
            "__main__": "raise SystemExit('a program')\n",
        }.items():
            (tmp_path / package / f"{name}.py").write_text(text)
        return package

    yield make
    sys.path[:] = before[0]
    for name in set(sys.modules) - before[1]:
        if name.startswith("jitlto_checked"):
            del sys.modules[name]


def check(package: str, *options: str) -> dict[str, object]:
    done = jitlto("check", "--operators", package, "--json", *options)
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["holds"] else 1)
    (operator,) = found["operators"]
    return dict(operator) | {"diagnostics": found["diagnostics"]}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["", ".inner", ".inner.operators"])
def test_every_dtype_flag_and_optional_array_is_called(write: Write, suffix: str) -> None:
    package = write()
    found = check(package + suffix)
    assert (found.pop("operator"), found.pop("archs")) == (f"{package}::reduce_rows", ["sm_75"])
    assert found == {"calls": 16, "kernels": 4, "diagnostics": []}


RIGHT = {
    "a mapped flag": {
        "flag": 'Flag("kind", "str", "s")',
        "reduction": '{"s": "sum", "l": "largest"}[case.kind]',
        "more": 'examples=({"kind": ("s", "l")},),',
    },
    "values that belong together": {
        "more": 'examples=({"T": ("float32",), "reduction": ("sum",)}, {"T": ("float64",), "reduction": ("largest",)}),'
    },
    "a size that must be small": {
        "block": "case.m", "more": 'examples=({"m": (32, 1024), "reduction": ("sum",)},),',
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changed", RIGHT.values(), ids=RIGHT)
def test_what_is_right_holds(write: Write, changed: dict[str, str]) -> None:
    found = check(write(**changed), "--link", "sm_90", "--link", "sm_80")
    assert (found["diagnostics"], found["archs"]) == ([], ["sm_80", "sm_90"])


BOTH = 'examples=({"reduction": ("sum", "largest")},), '
WRONG = {
    "a flag's value without a kernel": ({"more": 'examples=({"reduction": ("sum", "m")},),'}, "plan-unknown-value", 8),
    "a parameter that there is not": (
        {"reduction": 'case.reduction, "reducton": case.reduction'}, "plan-unknown-parameter", 16,
    ),
    "a block that no device takes": ({"block": "2048 if case.is_wide else 64"}, "launch-config", 8),
    "a link option that there is not": (
        {"more": BOTH + "link_options={'max_registers': 'many'},"}, "plan-invalid-link", 16,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "code", "count"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_the_call(write: Write, changed: dict[str, str], code: str, count: int) -> None:
    found = check(write(**changed))
    (failure,) = found["diagnostics"]  # type: ignore[misc, attr-defined]
    assert (failure["code"], len(failure["notes"])) == (code, count)


@pytest.mark.slow
def test_a_link_that_fails_is_named_with_its_targets(write: Write) -> None:
    found = check(
        write(more=BOTH + 'link_options={"ptxas": ["--no-such-option"]},'), "--link", "sm_90", "--link", "sm_80"
    )
    (failure,) = found["diagnostics"]  # type: ignore[misc]
    assert {note["message"].rpartition(" ")[2] for note in failure["notes"]} == {"sm_80", "sm_90"}
    assert len(failure["notes"]) == 8


@pytest.mark.slow
def test_packages_that_declare_nothing_or_cannot_be_imported_are_errors(write: Write, tmp_path: Path) -> None:
    sys.path.insert(0, str(tmp_path))
    package = write()
    (tmp_path / package / "broken.py").write_text("import jitlto_no_such_module\n")
    for target, where in (
        (package, f"{package}.broken"),
        (f"{package}.nothing", f"{package}.nothing"),
        (f"{package}.lazy", f"{package}.lazy"),
    ):
        with raises(OperatorError, "operator-import", where=where):
            find_operators(target)
    for target in ("", ".", f".{package}", f"{package}."):
        with raises(OperatorError, "operator-import", where=target or "''", hint="the name that Python imports"):
            find_operators(target)
    (tmp_path / package / "broken.py").write_text("1 / 0\n")
    hint = f"python -c 'import {package}.broken'"
    with raises(OperatorError, "operator-import", "ZeroDivisionError", where=f"{package}.broken", hint=hint):
        find_operators(package)


@pytest.mark.slow
def test_the_values_of_a_flag_are_to_be_named(write: Write) -> None:
    done = jitlto("check", "--operators", write(more=""))
    fails(done, 1, "operator-argument", "the flag reduction", 'examples=[{"reduction"')


def test_it_goes_with_no_option_of_databases(tmp_path: Path) -> None:
    for arguments in (("--operators", "x", "--no-compare"), ("x.fragdb", "--operators", "x"), ()):
        fails(jitlto("check", *arguments), 2)


def test_a_small_package_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mini_path: Path) -> None:
    """A fast test of what the others prove in full."""
    package = next(_names)
    (tmp_path / f"{package}.py").write_text(f'''
from jitlto import Array, Flag, Launch, Operator, load

kern = Operator(
    "{package}::kern", lambda: load("mini", {str(mini_path)!r}),
    (Array("x", "T", "n", mutated=True), Flag("op_name", "str")), (),
    lambda case: {{"data_type": case.T, "op_name": {{"twice": "twice"}}[case.op_name]}},
    lambda case: Launch(1, 64), ("x", "n"),
    {{"T": ("float32", "float16")}}, examples=({{"op_name": ("twice", "square")}},),
)
''')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("jitlto.plan.plan.Plan.link", lambda plan: plan.digest)
    (found,) = check_operators(package)
    assert (found.calls, found.kernels) == (4, 1)
    failures = [(failure.code, len(failure.notes)) for failure in found.diagnostics]
    assert failures == [("operator-call", 2), ("plan-unknown-value", 1)]
