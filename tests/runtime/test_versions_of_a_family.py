"""Versions of a family: what callers, dispatchers, recorded plans and packs of the old one get from the new one."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from jitlto.base.errors import FamilyError, NotCachedError, UnknownValueError
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.link import packs
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.requests import Contents
from jitlto.link.sources import KERNELS
from jitlto.plan.deprecation import replace_deprecated
from jitlto.record.family_record import DeprecatedValue
from jitlto.runtime import recording, session
from jitlto.runtime.family import KernelFamily
from tests.conftest import BuildFamily
from tests.support.commands import jitlto
from tests.support.errors import raises
from tests.support.families import MINI, SHARED, write_family

VERSION = 'name = "mini"\nversion = "2.1"'
RENAMED = """
[deprecated.op_name]
twice = {use = "double_it", message = "it is the same function"}
"""
TWICE = {"data_type": "float", "op_name": "twice", "arch": "sm_90"}


def second(deprecated: str = RENAMED, **files: str) -> dict[str, str]:
    """The second version of ``mini``, which calls the operation ``twice`` ``double_it``."""
    toml = MINI["family.toml"].replace('name = "mini"', VERSION) + deprecated
    renamed = {"family.toml": toml, "op.json": MINI["op.json"].replace("twice", "double_it")}
    return MINI | renamed | {name.replace("__", "."): text for name, text in files.items()}


@pytest.fixture(scope="module")
def second_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("second")
    path = write_family(directory, second())
    return build([declaration.load_family(path)], directory / "mini.fragdb", jobs=1).path


@pytest.fixture
def renamed(second_path: Path) -> KernelFamily:
    return KernelFamily("mini", FragmentDatabase(second_path))


@pytest.mark.slow
def test_a_version_is_recorded_and_shown(renamed: KernelFamily, mini: KernelFamily) -> None:
    assert (renamed.version, mini.version) == ("2.1", "")
    assert renamed.record.version == "2.1"


@pytest.mark.slow
def test_a_renamed_value_plans_the_new_one_with_one_warning(renamed: KernelFamily) -> None:
    with pytest.warns(DeprecationWarning, match="op_name=double_it.*same function") as caught:
        plan = renamed.plan(**TWICE)  # type: ignore[arg-type]
    assert [warning.filename for warning in caught] == [__file__]
    assert plan.configuration["op_name"] == "double_it"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert renamed.plan(**TWICE) == plan  # type: ignore[arg-type]
        assert renamed.plan(**TWICE | {"op_name": "double_it"}) == plan  # type: ignore[arg-type]
    with raises(UnknownValueError, "plan-unknown-value", "thrice"):
        renamed.plan(**TWICE | {"op_name": "thrice"})  # type: ignore[arg-type]


def test_a_planner_and_a_dispatcher_take_the_old_value_too(renamed: KernelFamily) -> None:
    with pytest.warns(DeprecationWarning):
        planner = renamed.planner(data_type="float", op_name="twice")
    assert planner.plan(arch="sm_90").configuration["op_name"] == "double_it"
    renamed._warned.clear()
    with pytest.warns(DeprecationWarning):
        renamed.dispatcher("data_type", op_name="twice")


@pytest.mark.slow
def test_a_value_that_still_has_fragments_is_planned_as_it_is(build_family: BuildFamily) -> None:
    toml = second('[deprecated.op_name.twice]\nmessage = "it goes away in 3.0"\n')["family.toml"]
    family = KernelFamily("mini", FragmentDatabase(build_family(MINI | {"family.toml": toml}).path))
    with pytest.warns(DeprecationWarning, match="goes away"):
        assert family.plan(**TWICE).configuration["op_name"] == "twice"  # type: ignore[arg-type]


def test_plans_recorded_with_the_old_version_are_planned_with_the_new_one(
    mini: KernelFamily, renamed: KernelFamily, tmp_path: Path
) -> None:
    path = tmp_path / "used.jsonl"
    with session.recording(path):
        mini.plan(**TWICE).link()  # type: ignore[arg-type]
    (used,) = recording.read(path)
    assert used.request.configuration["op_name"] == "twice"
    with pytest.warns(DeprecationWarning):
        plan = renamed.plan_request(used.request, used.arch)
    assert plan.configuration["op_name"] == "double_it"


def test_a_pack_of_the_old_version_serves_what_did_not_change(
    mini: KernelFamily, renamed: KernelFamily, second_path: Path
) -> None:
    """Kernels are found by what is linked, in which names of values do not occur."""
    old = mini.plan(**TWICE)  # type: ignore[arg-type]
    packs.write(
        second_path.with_suffix(".pack"), {KERNELS: {old.digest: old.link_key.encode(old.link(use_cache=False))}}
    )
    with pytest.warns(DeprecationWarning):
        new = renamed.plan(**TWICE)  # type: ignore[arg-type]
    assert new.digest == old.digest
    cache = KernelCache(None, may_link=False)
    assert cache.get_or_link(new.link_key, new.link, new.database.location).layer == "pack"
    other = renamed.plan(**TWICE | {"op_name": "square"})  # type: ignore[arg-type]
    with raises(NotCachedError):
        cache.get_or_link(other.link_key, other.link, other.database.location)


def test_what_a_process_notes_for_the_next_tells_of_deprecated_values(renamed: KernelFamily) -> None:
    contents = Contents.from_database(renamed.database)
    assert Contents.from_json(contents.to_json()) == contents
    assert [each.value for each in contents.families["mini"].deprecated] == ["twice"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deprecated", "code", "names", "hint"),
    [
        ('[deprecated.op_name]\ntwice = "doubleit"\n', "family-deprecated", ["twice", "doubleit"], "double_it"),
        ('[deprecated.op_nam]\ntwice = "double_it"\n', "family-deprecated", ["op_nam"], "'op_name'"),
        ('[deprecated.op_name.twice]\nmessage = "gone"\n', "family-deprecated", ["op_name=twice"], "double_it"),
        ("[deprecated.op_name.twice]\n", "family-deprecated", ["op_name=twice"], "use"),
        ('[deprecated.op_name]\ntwice = {ues = "x"}\n', "family-unknown-key", ["'ues'"], "'use'"),
        ("[deprecated.op_name]\ntwice = 3\n", "family-deprecated", ["twice"], "use"),
    ],
)
def test_a_deprecated_value_that_could_not_be_served_is_an_error(
    build_family: BuildFamily, deprecated: str, code: str, names: list[str], hint: str
) -> None:
    with raises(FamilyError, code, *names, hint=hint):
        build_family(second(deprecated))


def test_a_version_is_a_short_text(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\nversion = "1\\n2"')
    with raises(FamilyError, "family-invalid-value", "version"):
        declaration.load_family(write_family(tmp_path, MINI | {"family.toml": toml}))


def test_commands_print_the_warning(second_path: Path) -> None:
    arguments = ("plan", "mini", "data_type=float", "op_name=twice", "--db", second_path, "--arch", "sm_90")
    done = jitlto(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: op_name=twice of mini is deprecated") == 1


@pytest.mark.parametrize("used", ['a = "twice"\ntwice = "square"', 'twice = "square"\nsquare = "twice"'])
def test_a_replacement_is_not_deprecated_itself(tmp_path: Path, used: str) -> None:
    toml = MINI["family.toml"] + f"[deprecated.op_name]\n{used}\n"
    with raises(FamilyError, "family-deprecated", "op_name"):
        declaration.load_family(write_family(tmp_path, MINI | {"family.toml": toml}))


def test_families_that_replace_a_value_differently_do_not_use_each_other(tmp_path: Path) -> None:
    for name, use in (("common", "twice"), ("search", "half")):
        toml = SHARED[f"{name}/family.toml"] + f'[deprecated.scale_name]\ndouble = "{use}"\n'
        write_family(tmp_path / name, {"family.toml": toml})
    write_family(tmp_path, {name: text for name, text in SHARED.items() if not (tmp_path / name).exists()})
    with raises(FamilyError, "family-deprecated", "scale_name=double", "twice", "half"):
        RenderedFamilies([declaration.load_family(tmp_path / "search" / "family.toml")])


def replaced(value: object, known: list[str], **uses: str) -> tuple[object, bool]:
    """What a value becomes, and whether there is a warning."""
    entries = tuple(DeprecatedValue("p", name, use, "") for name, use in uses.items())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return replace_deprecated(entries, {"p": value}, {"p": known}, "f", set())["p"], bool(caught)


def test_a_deprecated_type_is_meant_by_all_its_names() -> None:
    assert replaced(np.int64, ["double"], int64_t="double") == ("double", True)
    assert replaced("long long", ["double"], int64_t="double") == ("double", True)
    assert replaced("int64", ["double"], int64_t="double") == ("double", True)
    # It is still there, under this or under another name.
    assert replaced(np.int64, ["double", "int64_t"], int64_t="double") == (np.int64, True)
    assert replaced(np.int64, ["double", "long long"], int64_t="double") == (np.int64, False)
    assert replaced("int64_t", ["double", "long long"], int64_t="double") == ("double", True)
    # A name that is given as text means itself first.
    assert replaced("float32", ["float", "double"], float32="double") == ("double", True)
    assert replaced(np.float32, ["float", "double"], float32="double") == (np.float32, False)


def test_a_dispatcher_tells_deprecated_numbers_apart(mini: KernelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    """To Python 1, 1.0 and True are equal; to a family they are three values."""
    entries = (DeprecatedValue("op_name", "1", "twice", ""), DeprecatedValue("op_name", "1.0", "square", ""))
    monkeypatch.setattr(mini, "_deprecated", entries)
    asked: list[object] = []
    monkeypatch.setattr(mini, "launcher", lambda **values: [asked.append(values["op_name"])])
    monkeypatch.setattr("jitlto.cuda.device.kind", lambda: 1)
    dispatch = mini.dispatcher("op_name", data_type="float")
    for value in (1, 1.0, 1):
        dispatch(value)
    assert list(map(str, asked)) == ["1", "1.0"]
