"""Groups that several families share: declared and stored once, and found by the planner of each family."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import jitlto
from jitlto.base.errors import BuildError, FamilyError
from jitlto.build.cache.cache import Cache
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import BuildReport, build
from jitlto.build.shards import Shard
from jitlto.check.check import check
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import FamilyDeclaration, load_family
from jitlto.packaging.project import list_sources, load_package
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import SHARED, write_family


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shared")
    write_family(directory, SHARED)
    return directory


@pytest.fixture(scope="module")
def both(tree: Path, cache: Cache) -> Iterator[FragmentDatabase]:
    with FragmentDatabase(made(tree, cache, "search", "cluster").path) as database:
        yield database


def family(tree: Path, name: str) -> FamilyDeclaration:
    return load_family(tree / name / "family.toml")


def made(tree: Path, cache: Cache, *names: str, output: str = "", shard: str | None = None) -> BuildReport:
    path = tree / f"{output or '-'.join(names)}.fragdb"
    part = Shard.parse(shard) if shard else None
    return build([family(tree, name) for name in names], path, jobs=1, cache=cache, shard=part)


@pytest.mark.slow
def test_a_shared_group_is_stored_once_and_planned_by_every_family(both: FragmentDatabase) -> None:
    assert sorted(both.families) == ["cluster", "common", "search"]
    assert [len(both.fragments(name)) for name in sorted(both.families)] == [1, 4, 2]
    plans = {
        name: KernelFamily(name, both).plan(arch="sm_90", data_type="float", scale_name="half")
        for name in ("search", "cluster")
    }
    shared = {plan.resolution.device for plan in plans.values()}
    assert [str(fragment.key) for fragment in next(iter(shared))] == ["common/scale[data_type=float,scale_name=half]"]
    assert len(shared) == 1
    for plan in plans.values():
        assert plan.link().cubin
    assert KernelFamily("cluster", both).parameters["scale_name"] == ("half", "twice")
    assert len(list(KernelFamily("search", both).configurations())) == 4


@pytest.mark.slow
def test_shards_and_complete_databases_merge_to_the_same(tree: Path, cache: Cache, both: FragmentDatabase) -> None:
    parts = [made(tree, cache, "search", "cluster", output=f"p{n}", shard=f"{n}/3").path for n in (1, 2, 3)]
    assert merge_databases(parts[::-1], tree / "merged.fragdb").digest == both.digest
    whole = made(tree, cache, "search").path
    with raises(BuildError, "build-part-and-whole", "common", hint="merge the parts alone first"):
        merge_databases([whole, *(made(tree, cache, "cluster", output=f"c{n}", shard=f"{n}/2").path for n in (1, 2))],
                        tree / "mixed.fragdb")  # fmt: skip
    wholes = [made(tree, cache, name).path for name in ("search", "cluster")]
    assert merge_databases(wholes, tree / "wholes.fragdb").digest == both.digest


@pytest.mark.slow
def test_check_finds_a_shared_fragment_that_no_family_uses(tree: Path, cache: Cache, both: FragmentDatabase) -> None:
    assert check(both).holds
    with FragmentDatabase(made(tree, cache, "cluster").path) as database:
        result = check(database)
    unused = [note.message for each in result.families for cause in each.failures for note in cause.notes]
    assert unused == [f"at common/scale: data_type=double scale_name={name}" for name in ("half", "twice")]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"common/family.toml": SHARED["common/family.toml"].replace('"common"', '"other"')}, ["common", "other"]),
        ({"common/family.toml": SHARED["common/family.toml"] + "[link]\nfast_math = true\n"}, ["common", "search"]),
        ({"common/family.toml": SHARED["common/family.toml"] + '[use]\nsearch = "../search"\n'}, ["search"]),
        (
            {
                "search/family.toml": SHARED["search/family.toml"]
                + '[device.scale]\nsupplied = true\ninterface = "scale.cuh"\n'
            },
            ["scale"],
        ),
        *(
            ({"search/family.toml": SHARED["search/family.toml"].replace('"../common/family.toml"', path)}, ["common"])
            for path in ("3", '"a\\u0000b"', '"\\n"')
        ),
    ],
)
def test_mistakes_in_the_table_use(tmp_path: Path, changes: dict[str, str], names: list[str]) -> None:
    write_family(tmp_path, SHARED | changes)
    with raises(FamilyError, "family-use", *names):
        family(tmp_path, "search")


def test_one_name_means_one_family_in_all_that_a_family_uses(tmp_path: Path) -> None:
    copies = {f"copy/{name}": text for name, text in SHARED.items() if name.startswith("common/")}
    middle = '[family]\nname = "middle"\n[use]\ncommon = "../copy/common"\n'
    middle += '[device.more]\nsupplied = true\ninterface = "more.cuh"\n'
    toml = SHARED["search/family.toml"].replace("[use]", '[use]\nmiddle = "../middle"')
    write_family(tmp_path, SHARED | copies | {"middle/family.toml": middle, "search/family.toml": toml})
    with raises(FamilyError, "family-use", "common", "copy/common/family.toml"):
        family(tmp_path, "search")


def test_a_used_family_that_does_not_exist(tmp_path: Path) -> None:
    write_family(tmp_path, {name: text for name, text in SHARED.items() if not name.startswith("common")})
    with raises(FamilyError, "family-missing-file", "common/family.toml", where="search/family.toml in [use]"):
        family(tmp_path, "search")


def test_a_header_that_hides_a_shared_interface_is_refused(tmp_path: Path, cache: Cache) -> None:
    write_family(tmp_path, SHARED | {"search/scale.cuh": SHARED["common/scale.cuh"] + "// mine\n"})
    with raises(FamilyError, "family-use", "search", "common", "scale.cuh"):
        made(tmp_path, cache, "search")


@pytest.mark.slow
def test_a_macro_on_which_a_shared_interface_depends_is_the_same_for_both(tmp_path: Path, cache: Cache) -> None:
    wide = SHARED | {"common/scale.cuh": SHARED["common/scale.cuh"] + "#ifdef WIDE\n#endif\n"}
    for name, option in (("search", "-DOTHER"), ("cluster", "-DWIDE=2")):
        path = f"{name}/family.toml"
        wide[path] = wide[path].replace("[use]", f'options = ["{option}"]\n[use]')
    write_family(tmp_path, wide)
    assert len(made(tmp_path, cache, "search").fragments) == 6
    with raises(FamilyError, "family-use", "cluster", "common", "-DWIDE=2", "scale.cuh"):
        made(tmp_path, cache, "cluster")


@pytest.mark.slow
def test_a_loaded_family_is_compiled_again_when_a_shared_group_changes(tmp_path: Path, empty_cache: Path) -> None:
    write_family(tmp_path, SHARED)
    family = jitlto.load(tmp_path / "search")
    how = {"arch": "sm_90", "data_type": "float", "scale_name": "half"}
    before = family.plan(**how).digest
    template = tmp_path / "common" / "scale.cu.jinja"
    template.write_text(template.read_text() + "__device__ int unused_here() { return 3; }\n")
    assert family.plan(**how).digest != before


@pytest.mark.parametrize("families", ['["fragments/search"]', '["fragments/common", "fragments/search"]'])
def test_a_package_carries_the_families_that_its_own_use(tmp_path: Path, families: str) -> None:
    write_family(tmp_path / "fragments", SHARED)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "pkg"\nversion = "1"\n[project.entry-points."jitlto.fragments"]\nsearch = "pkg.kernels"\n'
        f'[tool.jitlto]\nfamilies = {families}\ndatabase = "pkg/kernels.fragdb"\n'
    )
    package = load_package(tmp_path)
    assert sorted(each.name for each in package.families) == ["common", "search"]
    assert tmp_path / "fragments" / "common" / "scale.cuh" in list_sources(package)
