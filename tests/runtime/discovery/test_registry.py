"""The registry: which databases a process sees, and which of them holds a family."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import DatabaseError, RegistryError
from jitlto.database import FragmentDatabase, writer
from jitlto.link.kernel_cache import KernelCache
from jitlto.runtime.discovery.registry import Registry
from jitlto.source.load import load
from tests.support.distributions import install
from tests.support.errors import raises


def rewritten(source: Path, target: Path, *, name: str = "mini", options: tuple[str, ...] = ()) -> Path:
    """A sound database like ``source`` whose family has another name or other options: other content."""
    with FragmentDatabase(source) as old:
        record = replace(old.families["mini"], name=name, options=(*old.families["mini"].options, *options))
        fragments = [replace(f, key=replace(f.key, family=name)) for f in old.fragments()]
        blobs = {image.sha256: old.read(image) for f in fragments for image in f.images}
    writer.write(target, [record], fragments, blobs)
    return target


def test_families_are_found_in_files_and_in_directories(mini_path: Path, tmp_path: Path) -> None:
    directory = tmp_path / "databases"
    directory.mkdir()
    rewritten(mini_path, directory / "second.fragdb", name="second")
    rewritten(mini_path, directory / "first.fragdb", name="first")
    (directory / "notes.txt").write_text("no database")
    registry = Registry((mini_path, directory))
    assert [path.name for path in registry.files()] == ["mini.fragdb", "first.fragdb", "second.fragdb"]
    assert registry.find("mini").path == mini_path
    assert registry.find("second").path == directory / "second.fragdb"


def test_an_unknown_family_names_the_nearest_and_those_seen(mini_path: Path) -> None:
    with raises(RegistryError, "registry-unknown-family", "'mimi'", "known are mini", hint="did you mean 'mini'?"):
        Registry((mini_path,)).find("mimi")


def test_two_databases_with_the_same_content_do_not_contradict(mini_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.fragdb"
    shutil.copyfile(mini_path, copy)
    assert Registry((copy, mini_path)).find("mini").path == copy


def test_two_databases_with_different_content_of_one_family_are_an_error_that_names_both(
    mini_path: Path, tmp_path: Path
) -> None:
    other = rewritten(mini_path, tmp_path / "other.fragdb", options=("-DOTHER",))
    with raises(RegistryError, "registry-ambiguous-database", str(mini_path), str(other), hint="--db DB"):
        Registry((mini_path, other)).find("mini")


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = tmp_path / "missing.fragdb"
    with raises(DatabaseError, "database-not-found", where="missing.fragdb"):
        Registry().file(missing)
    with raises(DatabaseError, "database-not-found", where="missing.fragdb", hint="JITLTO_DATABASE_PATH"):
        Registry((missing,)).find("mini")


@pytest.mark.parametrize("leads_to", ["loop.fragdb", "gone.fragdb"])
def test_a_link_that_leads_nowhere_or_to_itself_is_one_clear_error(tmp_path: Path, leads_to: str) -> None:
    link = tmp_path / "loop.fragdb"
    link.symlink_to(leads_to)
    for ask in (FragmentDatabase, Registry().file, lambda path: load("mini", path)):
        with raises(DatabaseError, "database-not-found", where="loop.fragdb"):
            ask(link)
    for path in (link, tmp_path / ("long" * 100)):
        with pytest.raises(DatabaseError) as caught:
            Registry((path,)).find("mini")
        assert caught.value.where == str(path)


def test_a_damaged_file_on_the_search_path_is_an_error_and_not_passed_over(mini_path: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.fragdb"
    damaged.write_bytes(mini_path.read_bytes()[:8192])
    with raises(DatabaseError, "database-damaged", where="damaged.fragdb"):
        Registry((damaged, mini_path)).find("mini")


def test_a_family_can_be_loaded_from_a_path_or_an_opened_database(mini_path: Path) -> None:
    assert load("mini", mini_path).database.digest == load("mini", str(mini_path)).database.digest
    with FragmentDatabase(mini_path) as opened:
        assert load("mini", opened).database is opened
        with raises(RegistryError, "registry-unknown-family", "'maxi'", hint="it holds mini"):
            load("maxi", opened)


def renamed(source: Path, directory: Path, count: int) -> list[Path]:
    """So many databases, each of its own family."""
    directory.mkdir()
    return [rewritten(source, directory / f"f{n}.fragdb", name=f"f{n}") for n in range(count)]


def fresh(*paths: Path, cache: Path) -> Registry:
    """A registry as a process has it that begins."""
    return Registry(paths, cache=KernelCache(CacheDir(cache, 1 << 30)))


def test_of_many_installed_databases_one_is_opened_to_find_a_family(
    mini_path: Path, tmp_path: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    for number, path in enumerate(renamed(mini_path, tmp_path / "made", 5)):
        value = f"p{number}.fragments"
        install(site, f"package-{number}", families={f"f{number}": value}, databases={value: path})
    monkeypatch.syspath_prepend(site)
    opened.clear()
    assert Registry().find("f3").path == site / "p3" / "fragments.fragdb"
    assert opened == [site / "p3" / "fragments.fragdb"]


def test_of_many_databases_on_the_path_none_is_opened_to_find_a_family_again(
    mini_path: Path, tmp_path: Path, opened: list[Path]
) -> None:
    paths = renamed(mini_path, tmp_path / "made", 5)
    found = fresh(tmp_path / "made", cache=tmp_path / "cache").find("f4")
    assert found.path == paths[4]
    assert len(opened) == 5
    opened.clear()
    for number in (4, 3):
        again = fresh(tmp_path / "made", cache=tmp_path / "cache").find(f"f{number}")
        assert (again.path, opened) == (paths[number], [])
    with raises(RegistryError, "registry-unknown-family", "'f77'", hint="known are f0, f1"):
        fresh(tmp_path / "made", cache=tmp_path / "cache").find("f77")
    assert opened == []
