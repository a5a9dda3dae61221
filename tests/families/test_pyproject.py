"""``[tool.jitlto]``: its keys, and errors with file, key and remedy."""

from pathlib import Path, PurePosixPath

import pytest

from jitlto.base.errors import ProjectError
from jitlto.base.versions import Architecture
from jitlto.families import pyproject
from tests.support.errors import raises
from tests.support.families import MINI, write_family

PROJECT = """
[project]
name = "My-Package"
[project.entry-points."jitlto.fragments"]
mini = "my_package.fragments"
"""
TABLE = """
[tool.jitlto]
database = "my_package/fragments.fragdb"
"""


def project(directory: Path, table: str, text: str = PROJECT) -> Path:
    write_family(directory / "fragments" / "mini", MINI)
    path = directory / "pyproject.toml"
    path.write_text(text + table, "utf-8")
    return path


def refusal(directory: Path, table: str, text: str = PROJECT) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        pyproject.load_config(project(directory, table, text))
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(directory / "pyproject.toml"))
    return caught.value


def test_the_database_is_the_only_required_key(tmp_path: Path) -> None:
    path = project(tmp_path, TABLE)
    found = pyproject.load_config(path)
    assert found == pyproject.load_config(tmp_path)
    assert found.families == (tmp_path / "fragments" / "mini" / "family.toml",)
    assert found.database == PurePosixPath("my_package/fragments.fragdb")
    assert found.entry_point == "my_package.fragments"
    assert found.entry_points == {"mini": "my_package.fragments"}
    assert found.root == tmp_path


def test_all_keys_are_read(tmp_path: Path) -> None:
    table = TABLE + 'families = ["fragments/mini", "mini"]\npack = "mini"\npack_archs = ["sm_90a", "sm_80"]'
    found = pyproject.load_config(project(tmp_path, table))
    assert len(found.families) == 1, "named twice, built once"
    assert (found.pack, found.pack_architectures) == ("mini", (Architecture(80), Architecture(90, "a")))
    assert list(map(str, found.places)) == ["my_package/fragments.fragdb", "my_package/fragments.pack"]


@pytest.mark.parametrize(
    ("table", "code", "what", "hint"),
    [
        ("", "missing-table", "[tool.jitlto]", ""),
        ("[tool.jitlto]", "missing-key", "database", ""),
        (TABLE + "familes = []", "unknown-key", "'familes'", "did you mean 'families'?"),
        (TABLE + "families = []", "no-families", "families", "fragments/"),
        (TABLE + 'families = ["minni"]', "unknown-family", "'minni'", "did you mean 'mini'?"),
        (TABLE + 'pack = "mini"\npack_archs = ["sm_x"]', "invalid-value", "'sm_x'", "sm_90"),
        (TABLE + 'pack_archs = ["sm_90"]', "invalid-value", "pack_archs", "RECORDING"),
    ],
)
def test_a_mistake_is_reported_with_its_key_and_a_remedy(
    tmp_path: Path, table: str, code: str, what: str, hint: str
) -> None:
    error = refusal(tmp_path, table)
    assert error.code == f"project-{code}"
    assert what in error.what
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    "database",
    ["fragments.fragdb", "a/b.db", "/a/b.fragdb", "../a/b.fragdb", "a//b.fragdb", "a/.fragdb", "a-b/c.fragdb",
     "a/b.c.fragdb", "a\\\\b.fragdb", "./a/b.fragdb", "src/a/b.fragdb", ""],
)  # fmt: skip
def test_a_database_is_in_a_package_and_has_a_name_that_an_entry_point_can_spell(tmp_path: Path, database: str) -> None:
    error = refusal(tmp_path, f'[tool.jitlto]\ndatabase = "{database}"')
    assert error.code == "project-invalid-value"
    assert repr(database.replace("\\\\", "\\")) in error.what


def test_a_project_without_a_family_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT + TABLE)
    with raises(ProjectError, "project-no-families", where="pyproject.toml in [tool.jitlto]"):
        pyproject.load_config(tmp_path)


@pytest.mark.parametrize("content", [None, b"[tool.jitlto", b"\xff", b"tool = 1"])
def test_an_unusable_file_has_no_config_and_is_an_error_to_load(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pyproject.toml"
    if content is not None:
        path.write_bytes(content)
    assert not pyproject.has_config(path)
    with pytest.raises(ProjectError) as caught:
        pyproject.load_config(path)
    assert caught.value.code in ("project-unreadable", "project-syntax", "project-missing-table")
    assert str(caught.value.where).startswith(str(path))


@pytest.mark.parametrize(
    ("points", "names"),
    [
        ({}, ["mini"]),
        ({"mini": "my_package.fragment"}, ["mini", "'my_package/fragments.fragdb'"]),
        ({"mini": "my_package.fragments", "mimi": "my_package.fragments"}, ["mimi"]),
    ],
)
def test_entry_points_match_families_and_database_or_the_hint_has_the_lines_to_write(
    tmp_path: Path, points: dict[str, str], names: list[str]
) -> None:
    lines = "".join(f'{name} = "{value}"\n' for name, value in points.items())
    text = f'[project]\nname = "p"\n[project.entry-points."jitlto.fragments"]\n{lines}'
    found = pyproject.load_config(project(tmp_path, TABLE, text))
    with raises(ProjectError, "project-entry-points", *names) as caught:
        pyproject.check_entry_points(found, ["mini"])
    first, _, told = str(caught.value.hint).partition("\n")
    # A table that is there cannot be written a second time.
    assert first == ("replace the table with" if points else "add")
    assert told == '[project.entry-points."jitlto.fragments"]\nmini = "my_package.fragments"'
    # The lines in the hint are right.
    pyproject.check_entry_points(
        pyproject.load_config(project(tmp_path, TABLE, f'[project]\nname = "p"\n{told}\n')), ["mini"]
    )


@pytest.mark.parametrize("text", ["", '[project]\nname = "p"\ndynamic = ["entry-points"]\n'])
def test_entry_points_declared_elsewhere_are_not_checked(tmp_path: Path, text: str) -> None:
    found = pyproject.load_config(project(tmp_path, TABLE, text))
    assert found.entry_points is None
    pyproject.check_entry_points(found, ["mini"])
