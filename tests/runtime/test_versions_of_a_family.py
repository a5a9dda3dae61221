"""Versions of a family: what callers and packs of the old one get from the new one."""

from pathlib import Path

import pytest

from jitlto.base.errors import FamilyError, NotCachedError, UnknownValueError
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.link import packs
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.requests import Contents
from jitlto.link.sources import KERNELS
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import MINI, write_family

TWICE = {"data_type": "float", "op_name": "twice", "arch": "sm_90"}


@pytest.fixture(scope="module")
def second_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second version of ``mini``, which calls the operation ``twice`` ``double_it``."""
    directory = tmp_path_factory.mktemp("second")
    toml = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\nversion = "2.1"')
    renamed = {"family.toml": toml, "op.json": MINI["op.json"].replace("twice", "double_it")}
    path = write_family(directory, MINI | renamed)
    return build([declaration.load_family(path)], directory / "mini.fragdb", jobs=1).path


@pytest.fixture
def renamed(second_path: Path) -> KernelFamily:
    return KernelFamily("mini", FragmentDatabase(second_path))


@pytest.mark.slow
def test_a_version_is_recorded_and_shown(renamed: KernelFamily, mini: KernelFamily) -> None:
    assert (renamed.version, mini.version) == ("2.1", "")
    assert renamed.record.version == "2.1"
    contents = Contents.from_database(renamed.database)
    assert Contents.decode(contents.digest, contents.encode()) == contents


def test_a_value_that_was_renamed_is_an_error_that_names_those_there_are(renamed: KernelFamily) -> None:
    with raises(UnknownValueError, "plan-unknown-value", "twice", hint="double_it"):
        renamed.plan(**TWICE)  # type: ignore[arg-type]


def test_a_pack_of_the_old_version_serves_what_did_not_change(
    mini: KernelFamily, renamed: KernelFamily, second_path: Path
) -> None:
    """Kernels are found by what is linked, in which names of values do not occur."""
    old = mini.plan(**TWICE)  # type: ignore[arg-type]
    kernels = {old.digest: old.link_key.encode(old.link(use_cache=False))}
    packs.write(second_path.with_suffix(".pack"), {KERNELS: kernels})
    new = renamed.plan(**TWICE | {"op_name": "double_it"})  # type: ignore[arg-type]
    assert new.digest == old.digest
    cache = KernelCache(None, may_link=False)
    assert cache.get_or_link(new.link_key, new.link, new.database.location).layer == "pack"
    other = renamed.plan(**TWICE | {"op_name": "square"})  # type: ignore[arg-type]
    with raises(NotCachedError):
        cache.get_or_link(other.link_key, other.link, other.database.location)


def test_a_version_is_a_short_text(tmp_path: Path) -> None:
    toml = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\nversion = "' + "1" * 101 + '"')
    with raises(FamilyError, "family-invalid-value", "version"):
        declaration.load_family(write_family(tmp_path, MINI | {"family.toml": toml}))
